//! The smallest limit of a shape that refuses at most a share.
//!
//! Each limit is asked alone, whatever else its policy asks: the same requests,
//! by another count. Candidates run side by side over the spool, on the real
//! store; each round leaves the gap between the largest that refuses too
//! many and the smallest that does not, and the next round divides it, until
//! the two are neighbours.
//!
//! Keys that a candidate cannot refuse are known beforehand and passed over,
//! which are most of them.
//!
//! The shape stays: the algorithm, the period, and burst or queue in
//! proportion to the count, rounded up. Where every request costs the same, more
//! of a bucket, a fixed window or a log never refuses more, and the answer is
//! the smallest count there is. Otherwise a large request that newly passes can
//! crowd out several small ones: the answer refuses few enough, and one less
//! refuses too many, but a still smaller count might happen to do.

use std::io;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Meter};
use tidegate::{Algorithm, ConfigError, Key, Limit, ManualClock, MemoryStore};

use crate::busy::{Busy, MAX_SLOTS};
use crate::share::Share;
use crate::spool::{Asked, Spool};
use crate::watched::LimitUse;

/// Candidates of one limit in one round.
const LANES: usize = 7;

/// The smallest limit that refuses at most a share.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Smallest {
    /// The limit, in words.
    pub limit: String,
    /// How many requests it would refuse, if it were the only one.
    pub refused: u64,
    /// Of how many: all, or those that the search could go by.
    pub asked: u64,
    /// Whether no smaller count can do: not told where costs differ, nor for a
    /// sliding counter.
    pub is_least: bool,
    /// How many requests shared a state for want of room: above zero, the answer is
    /// larger than need be.
    pub overflowed: u64,
}

/// The gap that the answer is in.
struct Gap {
    number: usize,
    limit: Limit,
    allowed: u64,
    asked: u64,
    /// Refuses too many.
    below: u64,
    /// Does not, and how many it refuses, once that was tried.
    above: u64,
    refuses: Option<u64>,
    is_least: bool,
    busy: Busy,
}

/// A candidate.
struct Lane {
    gap: usize,
    count: u64,
    meter: Meter,
    store: usize,
    refused: u64,
}

/// The answer for each limit; none where it has no shape to scale, or no count
/// would do.
pub(crate) fn smallest(
    spool: &mut Spool,
    limits: &[LimitUse],
    at_most: Share,
    max_keys: usize,
) -> Result<Vec<Option<Smallest>>, SearchError> {
    let mut gaps: Vec<Gap> = limits.iter().enumerate().filter_map(|(number, seen)| Gap::new(number, seen)).collect();
    let mut of_limit = vec![None; limits.len()];
    let most = (MAX_SLOTS / gaps.len().max(1)).max(1_024);
    for (place, gap) in gaps.iter_mut().enumerate() {
        of_limit[gap.number] = Some(place);
        // Four times as many as keys: few have to share.
        let slots = limits[gap.number].headroom.keys().0.saturating_mul(4).clamp(1_024, most as u64);
        gap.busy = Busy::new(gap.limit, 1 << slots.ilog2());
    }
    spool.for_each(|Asked { at, key, cost, limit }| {
        if let Some(place) = of_limit[usize::from(limit)] {
            gaps[place].busy.ask(at, key, cost);
            gaps[place].asked += 1;
        }
    })?;
    gaps.iter_mut().for_each(|gap| gap.begin(at_most));
    let mut overflowed = 0;
    loop {
        let mut lanes = Vec::new();
        for (place, gap) in gaps.iter().enumerate() {
            for (store, count) in gap.candidates().into_iter().enumerate() {
                let name = format!("limit {}", gap.number);
                let Some(limit) = scaled(gap.limit, count) else { continue };
                lanes.push(Lane { gap: place, count, meter: Meter::new(name, limit), store, refused: 0 });
            }
        }
        if lanes.is_empty() {
            break;
        }
        overflowed += round(spool, limits.len(), (&gaps, &mut lanes), max_keys)?;
        gaps.iter_mut().enumerate().for_each(|(place, gap)| gap.close(lanes.iter().filter(|lane| lane.gap == place)));
    }
    let mut answers = vec![None; limits.len()];
    for gap in gaps {
        let (Some(refused), Some(limit)) = (gap.refuses, scaled(gap.limit, gap.above)) else { continue };
        let Gap { asked, is_least, .. } = gap;
        if asked == 0 {
            // All of it came after what was spooled.
            continue;
        }
        answers[gap.number] = Some(Smallest { limit: limit.to_string(), refused, asked, is_least, overflowed });
    }
    Ok(answers)
}

/// Asks all candidates everything, and says how often a store was full.
fn round(
    spool: &mut Spool,
    limits: usize,
    (gaps, lanes): (&[Gap], &mut [Lane]),
    max_keys: usize,
) -> Result<u64, SearchError> {
    let clock = ManualClock::default();
    let stores = (0..LANES).map(|_| MemoryStore::builder().max_keys(max_keys).clock(clock.clone()).build());
    let stores = stores.collect::<Result<Vec<MemoryStore>, ConfigError>>()?;
    let mut of_limit: Vec<Vec<usize>> = vec![Vec::new(); limits];
    for (number, lane) in lanes.iter().enumerate() {
        of_limit[gaps[lane.gap].number].push(number);
    }
    let mut failure = None;
    spool.for_each(|Asked { at, key, cost, limit }| {
        let asked = &of_limit[usize::from(limit)];
        if asked.is_empty() {
            return;
        }
        clock.set(at);
        let bytes = key.to_le_bytes();
        let enough = asked.first().map_or(0, |number| gaps[lanes[*number].gap].busy.enough_for(key));
        let key = Key::from(&bytes[..]);
        for number in asked {
            let lane = &mut lanes[*number];
            // A lane that refuses too many already is not asked any more, nor
            // about requests that it cannot refuse.
            if lane.refused > gaps[lane.gap].allowed || enough <= lane.meter.capacity() {
                continue;
            }
            let mut verdict = Verdict::default();
            // A cost that can never pass is a refusal.
            let check = Check::new(&lane.meter, &key, Verb::Charge, cost).ok();
            let decided = check.map(|check| stores[lane.store].decide_one_now(check, &mut verdict));
            failure = failure.take().or(decided.and_then(Result::err));
            lane.refused += u64::from(!verdict.allowed);
        }
    })?;
    match failure {
        Some(error) => Err(SearchError::Store(error)),
        None => Ok(stores.iter().map(MemoryStore::overflowed).sum()),
    }
}

impl Gap {
    fn new(number: usize, seen: &LimitUse) -> Option<Gap> {
        // What requests in flight would have held is not known by when they came.
        let limit = seen.limit.filter(|limit| !limit.is_in_flight())?;
        let is_even = seen.total_cost == seen.largest_cost.saturating_mul(seen.asked);
        let is_least = is_even && limit.algorithm() != Algorithm::SlidingCounter;
        let (below, above, refuses, busy) = (0, Limit::MAX_COUNT, None, Busy::new(limit, 1));
        Some(Gap { number, limit, allowed: 0, asked: 0, below, above, refuses, is_least, busy })
    }

    /// All are known that are asked: so is how many of them may be refused, and
    /// that some count refuses none.
    fn begin(&mut self, at_most: Share) {
        self.allowed = at_most.of(self.asked);
        let enough = u128::from(self.busy.enough_for_all()) * u128::from(self.limit.count());
        let count = enough.div_ceil(u128::from(self.limit.capacity())).max(1);
        self.above = u64::try_from(count).unwrap_or(u64::MAX).min(Limit::MAX_COUNT);
    }

    /// Counts to try next: evenly spread, by ratio while the gap is wide.
    fn candidates(&self) -> Vec<u64> {
        let Gap { below, above, .. } = *self;
        let mut counts: Vec<u64> = Vec::with_capacity(LANES);
        let (least, gap) = (below.max(1), above - below);
        if gap <= LANES as u64 {
            counts.extend(below + 1..above);
        } else if above / least > LANES as u64 {
            let ratio = (above as f64 / least as f64).powf(1.0 / (LANES + 1) as f64);
            counts.extend((1..=LANES).map(|step| (least as f64 * ratio.powi(step as i32)) as u64));
        } else {
            counts.extend((1..=LANES as u64).map(|step| below + gap * step / (LANES as u64 + 1)));
        }
        counts.retain(|count| (below + 1..above).contains(count));
        counts.dedup();
        if counts.is_empty() && self.refuses.is_none() && above > below {
            counts.push(above);
        }
        counts
    }

    fn close<'l>(&mut self, lanes: impl Iterator<Item = &'l Lane> + Clone) {
        for lane in lanes.clone().filter(|lane| lane.refused <= self.allowed) {
            if lane.count < self.above || (lane.count == self.above && self.refuses.is_none()) {
                (self.above, self.refuses) = (lane.count, Some(lane.refused));
            }
        }
        for lane in lanes.filter(|lane| lane.refused > self.allowed) {
            if lane.count < self.above {
                self.below = self.below.max(lane.count);
            } else if lane.count == self.above {
                // Not even the largest will do.
                self.below = self.above;
            }
        }
    }
}

/// The same shape with another count.
pub(crate) fn scaled(limit: Limit, count: u64) -> Option<Limit> {
    if let Some(calendar) = limit.resets_by() {
        return Limit::try_calendar(count, calendar).ok();
    }
    let scaled = Limit::try_new(limit.algorithm(), count, limit.period()).ok()?;
    let capacity = (u128::from(limit.capacity()) * u128::from(count)).div_ceil(u128::from(limit.count()));
    let capacity = u64::try_from(capacity).ok()?;
    match limit.algorithm() {
        Algorithm::TokenBucket => scaled.try_burst(capacity).ok(),
        Algorithm::LeakyBucket => scaled.try_queue(capacity).ok(),
        Algorithm::FixedWindow if limit.starts_with_first_request() => scaled.try_from_first_request().ok(),
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => Some(scaled),
    }
}

/// Why there is no smallest limit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    #[error("the spool of the search cannot be read or written: make room in the folder for temporary files")]
    Spool(#[from] io::Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(tidegate::store::StoreError),
}

#[cfg(test)]
mod tests {
    use tidegate::Micros;

    use super::*;
    use crate::headroom::Headroom;

    #[test]
    fn a_share_is_one_of_what_the_search_goes_by() {
        let limit: Limit = "fixed 10/min".parse().expect("a limit");
        let mut seen = LimitUse {
            rule: tidegate::Name::literal("rule"),
            meaning: limit.to_string(),
            limit: Some(limit),
            is_shadow: false,
            asked: 1_000,
            refused: 0,
            total_cost: 1_000,
            largest_cost: 1,
            most_used: 0,
            longest_debt: Micros::ZERO,
            headroom: Headroom::default(),
        };
        let mut spool = Spool::with_room(100).expect("a file");
        for _ in 0..seen.asked {
            seen.headroom.note(7, &Key::from("alice"), 0);
            spool.push(Asked { at: Micros::new(1), key: 7, cost: 1, limit: 0 });
        }
        assert!(spool.is_full());
        let found = smallest(&mut spool, &[seen], "10%".parse().expect("a share"), 100).expect("an answer");
        let found = found[0].as_ref().expect("a limit");
        assert_eq!((&*found.limit, found.refused, found.asked), ("fixed 90/min", 10, 100));
    }
}
