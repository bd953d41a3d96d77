//! Token bucket and leaky bucket: one meter, two readings.
//!
//! The level is counted in units x period, so a microsecond drains exactly
//! `drain` of it and nothing is ever rounded. What is kept is not the level
//! but the instant at which it will be zero, because that does not change
//! while time passes: an empty bucket's instant lies in the past, and an
//! unknown key's is the epoch.

use super::divisor::Divisor;
use super::{Admission, Charged, EXACT, Kernel, MIN_GRACE, Reading};
use crate::time::Micros;

/// The kernel of the token bucket and the leaky bucket.
///
/// ```
/// use tidegate::kernel::{Kernel, LimitKernel};
/// use tidegate::{Limit, Micros};
///
/// let LimitKernel::Bucket(bucket) = Limit::per_second(5).kernel() else { panic!("a token bucket") };
/// assert_eq!(bucket.read(&Default::default(), Micros::new(10)).remaining, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Level that drains away per tick: the count, reduced by the gcd.
    drain: u64,
    /// Level that a cost of one adds: the period in ticks, reduced likewise.
    scale: u64,
    by_scale: Divisor,
    /// The level of a full bucket: burst x scale.
    full: u64,
    /// The level up to which a charge is admitted: full, less what is kept back.
    admits: u64,
    /// The highest level of a bucket in debt.
    ceiling: u64,
    /// Ticks in which a full bucket drains, rounded up.
    horizon: u64,
    /// Microseconds in a tick: 1 unless the numbers would not fit.
    tick: u64,
    /// Whether an admitted request is told to wait for its slot.
    queues: bool,
}

/// When the bucket will be empty: at `at + fraction / drain` ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    pub(crate) at: u64,
    pub(crate) fraction: u64,
}

/// The longest time to drain a full bucket: 2^51 microseconds, 71 years.
pub(crate) const MAX_HORIZON: u64 = 1 << 51;

impl Bucket {
    /// `count` per `period` microseconds with room for `burst`, all of them
    /// between 1 and the bounds of [`Limit`](crate::Limit); `None` if the
    /// bucket would take too long to drain.
    pub(crate) const fn new(count: u64, period: u64, burst: u64, queues: bool) -> Option<Bucket> {
        let mut tick = 1;
        loop {
            // Against the caller: where the period is not a whole number of
            // ticks, it lasts until the next one.
            let ticks = period.div_ceil(tick);
            let shared = gcd(count, ticks);
            let (drain, scale) = (count / shared, ticks / shared);
            let full = burst as u128 * scale as u128;
            // `full + 2 * drain` bounds every sum that the kernel makes.
            if full + 2 * (drain as u128) < EXACT as u128 {
                let full = full as u64;
                let horizon = full.div_ceil(drain);
                if horizon as u128 * tick as u128 > MAX_HORIZON as u128 {
                    return None;
                }
                let (by_scale, admits, ceiling) = (Divisor::new(scale), full, full);
                return Some(Bucket { drain, scale, by_scale, full, admits, ceiling, horizon, tick, queues });
            }
            tick *= 10;
        }
    }

    /// The same bucket, of which as many units more can be owed: at most
    /// [`debt_bound`](Bucket::debt_bound).
    pub(crate) const fn with_debt(self, debt: u64) -> Bucket {
        Bucket { ceiling: self.full + debt * self.scale, ..self }
    }

    /// The same bucket for a class of requests that leaves so many units, at most all, to
    /// others: its charges are admitted while more than that is left.
    #[must_use]
    pub const fn with_floor(self, units: u64) -> Bucket {
        Bucket { admits: self.full.saturating_sub(units.saturating_mul(self.scale)), ..self }
    }

    /// The most units that can be owed with every sum exact, and drained away in
    /// the longest horizon.
    pub(crate) const fn debt_bound(&self) -> u64 {
        let countable = EXACT - 1 - 2 * self.drain;
        let drained = (MAX_HORIZON / self.tick) as u128 * self.drain as u128;
        let ceiling = if drained < countable as u128 { drained as u64 } else { countable };
        (ceiling - self.full) / self.scale
    }

    /// The highest level of a bucket in debt.
    #[must_use]
    pub const fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Ticks in which the highest level drains, rounded up.
    #[must_use]
    pub const fn reach(&self) -> u64 {
        self.ceiling.div_ceil(self.drain)
    }

    /// Microseconds in a tick.
    #[must_use]
    pub const fn tick(&self) -> u64 {
        self.tick
    }

    /// The level of a full bucket.
    #[must_use]
    pub const fn full(&self) -> u64 {
        self.full
    }

    /// The state of a bucket that is empty at `at + fraction / drain` ticks;
    /// `None` if no bucket of this limit could have it.
    #[must_use]
    pub const fn state(&self, at: u64, fraction: u64) -> Option<BucketState> {
        if at < EXACT && fraction < self.drain { Some(BucketState { at, fraction }) } else { None }
    }

    /// What one tick drains, per [`scale`](Bucket::scale) of a unit.
    #[must_use]
    pub const fn drain(&self) -> u64 {
        self.drain
    }

    /// The level that one unit of cost makes.
    #[must_use]
    pub const fn scale(&self) -> u64 {
        self.scale
    }

    #[inline(always)]
    fn ticks(&self, now: Micros) -> u64 {
        // A predictable branch is cheaper than the division.
        if self.tick == 1 { now.get() } else { now.get() / self.tick }
    }

    #[inline(always)]
    fn until(&self, tick: u64, now: Micros) -> Micros {
        Micros::new((tick * self.tick).saturating_sub(now.get()))
    }

    /// Splits a level into whole ticks of draining and the rest.
    #[inline(always)]
    fn drained_in(&self, level: u64) -> (u64, u64) {
        if self.drain == 1 { (level, 0) } else { (level / self.drain, level % self.drain) }
    }

    #[inline(always)]
    fn ticks_to_drain(&self, level: u64) -> u64 {
        if self.drain == 1 { level } else { level.div_ceil(self.drain) }
    }

    /// The level at `tick`, or `None` if it is above full: the key is in debt, or
    /// the clock went back.
    #[inline(always)]
    fn level(&self, state: &BucketState, tick: u64) -> Option<u64> {
        if state.at < tick {
            return Some(0);
        }
        let ahead = state.at - tick;
        if ahead > self.horizon {
            return None;
        }
        Some(ahead * self.drain + state.fraction).filter(|level| *level <= self.full)
    }

    /// The level at `tick`, debt included; the ceiling if it is above that
    /// because the clock went back.
    pub(in crate::kernel) fn level_with_debt(&self, state: &BucketState, tick: u64) -> u64 {
        if state.at < tick {
            return 0;
        }
        (state.at - tick).saturating_mul(self.drain).saturating_add(state.fraction).min(self.ceiling)
    }

    /// The half of [`take`](Kernel::take) that changes the state: the level
    /// afterwards, or `None` if there is no room.
    #[inline(always)]
    pub(crate) fn fill_if_room(&self, state: &mut BucketState, now: Micros, cost: u64) -> Option<u64> {
        let tick = self.ticks(now);
        let level = if self.drain == 1 {
            // A tick drains one: the level is the time, without a product.
            state.at.saturating_sub(tick)
        } else {
            self.level(state, tick)?
        };
        let filled = level + cost * self.scale;
        if filled > self.admits {
            return None;
        }
        self.set_level(state, filled, tick);
        Some(filled)
    }

    /// The half of [`take`](Kernel::take) that tells what was done.
    #[inline(always)]
    pub(crate) fn tell(
        &self,
        state: &BucketState,
        now: Micros,
        cost: u64,
        filled: Option<u64>,
    ) -> (Admission, Reading) {
        let tick = self.ticks(now);
        let added = cost * self.scale;
        match filled {
            Some(level) => {
                let pass = Admission::Pass { delay: self.delay(level - added, tick, now) };
                (pass, self.reading(state, filled, now))
            }
            None => (self.wait(state, self.admits - added, now), self.reading(state, self.level(state, tick), now)),
        }
    }

    /// Sets the level that the state has at `tick`.
    #[inline(always)]
    fn set_level(&self, state: &mut BucketState, level: u64, tick: u64) {
        let (whole, fraction) = self.drained_in(level);
        *state = BucketState { at: tick + whole, fraction };
    }

    /// Takes `level` off, or all that there is.
    fn lower(&self, state: &mut BucketState, tick: u64, level: u64) {
        let (whole, fraction) = self.drained_in(level);
        let borrow = u64::from(fraction > state.fraction);
        match state.at.checked_sub(whole + borrow) {
            Some(at) if at >= tick => {
                *state = BucketState { at, fraction: state.fraction + borrow * self.drain - fraction };
            }
            Some(_) | None if state.at >= tick => *state = BucketState { at: tick, fraction: 0 },
            Some(_) | None => {}
        }
    }

    /// How long a request waits for what is before it.
    #[inline(always)]
    fn delay(&self, level: u64, tick: u64, now: Micros) -> Micros {
        if self.queues && level > 0 { self.until(tick + self.ticks_to_drain(level), now) } else { Micros::ZERO }
    }

    #[inline(always)]
    fn wait(&self, state: &BucketState, room: u64, now: Micros) -> Admission {
        Admission::Wait { retry_after: self.until(self.first_tick_at(state, room), now) }
    }

    #[inline(always)]
    fn reading(&self, state: &BucketState, level: Option<u64>, now: Micros) -> Reading {
        let remaining = level.map_or(0, |level| self.by_scale.quotient(self.admits.saturating_sub(level)));
        Reading { remaining, reset_after: self.until(state.at + u64::from(state.fraction > 0), now) }
    }

    /// Microseconds until a bucket is empty that has all the debt it may.
    pub(crate) const fn horizon(&self) -> u64 {
        self.reach().saturating_mul(self.tick)
    }

    /// The first tick at which the level is `room` or less, given that it is more now.
    fn first_tick_at(&self, state: &BucketState, room: u64) -> u64 {
        if self.drain == 1 {
            state.at - room
        } else if room >= state.fraction {
            state.at - (room - state.fraction) / self.drain
        } else {
            // Less than one tick's drain is left then, and too much.
            state.at + 1
        }
    }
}

impl Kernel for Bucket {
    type State = BucketState;

    #[inline(always)]
    fn capacity(&self) -> u64 {
        self.admits / self.scale
    }

    #[inline(always)]
    fn admit(&self, state: &BucketState, now: Micros, cost: u64) -> Admission {
        let tick = self.ticks(now);
        // What costs nothing takes nothing of what is kept back.
        let room = if cost == 0 { self.full } else { self.admits - cost * self.scale };
        match self.level(state, tick) {
            Some(level) if level <= room => Admission::Pass { delay: self.delay(level, tick, now) },
            Some(_) | None => self.wait(state, room, now),
        }
    }

    #[inline(always)]
    fn charge(&self, state: &mut BucketState, now: Micros, cost: u64) -> Reading {
        let tick = self.ticks(now);
        let level = self.level(state, tick).unwrap_or(self.full) + cost * self.scale;
        self.set_level(state, level, tick);
        self.reading(state, Some(level), now)
    }

    #[inline(always)]
    fn take(&self, state: &mut BucketState, now: Micros, cost: u64) -> (Admission, Reading) {
        let filled = self.fill_if_room(state, now, cost);
        self.tell(state, now, cost, filled)
    }

    /// The level rises to the ceiling at most, in parts of a unit if need be: a unit
    /// that fits in part is recorded in part, and told as not recorded.
    fn report(&self, state: &mut BucketState, now: Micros, cost: u64) -> u64 {
        let tick = self.ticks(now);
        let level = self.level_with_debt(state, tick);
        let room = self.ceiling - level;
        let fits = room / self.scale;
        if room > 0 {
            self.set_level(state, level + if cost <= fits { cost * self.scale } else { room }, tick);
        }
        cost.saturating_sub(fits)
    }

    fn refund(&self, state: &mut BucketState, now: Micros, cost: u64) {
        self.lower(state, self.ticks(now), cost.saturating_mul(self.scale));
    }

    /// What has drained since is taken to be of this charge, as if the bucket had been
    /// empty before it, and of what was kept first.
    fn undo(&self, state: &mut BucketState, now: Micros, charged: Charged, kept: u64) -> u64 {
        let tick = self.ticks(now);
        let drained = tick.saturating_sub(self.ticks(charged.at)).saturating_mul(self.drain);
        // The charge may be of a limit that this one replaced, and more than fits here.
        let gone = drained.saturating_sub(kept.saturating_mul(self.scale));
        let wanted = (charged.cost - kept).saturating_mul(self.scale).saturating_sub(gone);
        let taken = wanted.min(self.level_with_debt(state, tick));
        self.lower(state, tick, wanted);
        taken.div_ceil(self.scale)
    }

    #[inline(always)]
    fn read(&self, state: &BucketState, now: Micros) -> Reading {
        self.reading(state, self.level(state, self.ticks(now)), now)
    }

    /// Of the whole bucket, whatever is kept back, and with its debt.
    fn used(&self, state: &BucketState, now: Micros) -> u64 {
        self.level_with_debt(state, self.ticks(now)).div_ceil(self.scale)
    }

    #[inline(always)]
    fn forget_at(&self, state: &BucketState) -> Micros {
        Micros::new((state.at + u64::from(state.fraction > 0)) * self.tick)
    }

    #[inline(always)]
    fn heal(&self, state: &BucketState, now: Micros) -> Option<BucketState> {
        let tick = self.ticks(now);
        if state.at <= tick + self.horizon {
            return None;
        }
        let grace = self.horizon.max(MIN_GRACE.div_ceil(self.tick));
        let (whole, fraction) = self.drained_in(self.full);
        (state.at > tick + self.reach() + grace).then_some(BucketState { at: tick + whole, fraction })
    }

    fn encode(&self, state: &BucketState, bytes: &mut Vec<u8>) {
        bytes.extend(state.at.to_le_bytes());
        bytes.extend(state.fraction.to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Option<BucketState> {
        let (at, fraction) = bytes.split_first_chunk()?;
        self.state(u64::from_le_bytes(*at), u64::from_le_bytes(fraction.try_into().ok()?))
    }
}

pub(crate) const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros::new(1_700_000_003_123_457);
    const DAY: u64 = 86_400_000_000;

    /// Count, period and burst, most with different scales; of some, the product of the scales
    /// is just inexact, or 2^65.
    fn buckets() -> impl Iterator<Item = Bucket> {
        let numbers = [(5, 1_000_000, 5), (7, 3_000_000, 4), (1_009, 997_000, 6), (1, DAY, 10), (7, 4, 9)];
        let inexact = [(1, 1 << 26, 3), (1, 1 << 27, 3), (1, 1 << 32, 3), (1, 1 << 33, 3)];
        let coarse = [(1_000_003, DAY, 1_000_003)];
        let all = numbers.into_iter().chain(inexact).chain(coarse);
        all.filter_map(|(count, period, burst)| Bucket::new(count, period, burst, false))
    }

    /// A state of a level.
    fn filled(bucket: &Bucket, level: u64) -> BucketState {
        let mut state = BucketState::default();
        bucket.set_level(&mut state, level, bucket.ticks(NOW));
        state
    }

    /// Levels of interest.
    fn levels(bucket: &Bucket) -> [u64; 7] {
        let Bucket { full, scale, .. } = *bucket;
        [0, 1, scale, scale + 1, full / 2, full - 1, full]
    }

    #[test]
    fn of_all_units_kept_back_none_are_left() {
        let bucket = Bucket::new(10, 60_000_000, 10, false).expect("a bucket");
        assert_eq!([0, 4, 9].map(|units| bucket.with_floor(units).capacity()), [10, 6, 1]);
        assert_eq!([10, 11, 1 << 63, u64::MAX].map(|units| bucket.with_floor(units).capacity()), [0; 4]);
    }

    #[test]
    fn a_report_raises_the_level_to_the_ceiling_at_most() {
        for bucket in buckets().map(|bucket| bucket.with_debt(2)) {
            let Bucket { full, scale, ceiling, .. } = bucket;
            for level in levels(&bucket).into_iter().chain([full + 1, ceiling - 1, ceiling]) {
                for cost in [0, 1, 2, full / scale, ceiling / scale + 1, u64::MAX] {
                    let mut state = filled(&bucket, level);
                    let unrecorded = bucket.report(&mut state, NOW, cost);
                    let reached = (u128::from(level) + u128::from(cost) * u128::from(scale)).min(u128::from(ceiling));
                    let tick = bucket.ticks(NOW);
                    assert_eq!(
                        u128::from(bucket.level_with_debt(&state, tick)),
                        reached,
                        "{cost} to {level} of {bucket:?}"
                    );
                    assert_eq!(unrecorded, cost.saturating_sub((ceiling - level) / scale), "{cost} to {level}");
                }
            }
            // Further ahead than debt reaches, by a clock that went back: nothing is added, and nothing lost.
            let ahead = BucketState { at: bucket.ticks(NOW) + bucket.reach() + 1, fraction: 0 };
            let mut state = ahead;
            assert_eq!((bucket.report(&mut state, NOW, 3), state), (3, ahead));
        }
    }

    #[test]
    fn a_bucket_counts_in_the_finest_unit_that_is_exact() {
        // Three times either period, and twice the count, is 2^53, or one less.
        let (inexact, exact): (u64, u64) = (3_002_399_751_580_326, 3_002_399_751_580_327);
        let numbers = |count, period, burst| {
            let Bucket { drain, scale, full, horizon, tick, .. } = Bucket::new(count, period, burst, false)?;
            assert_eq!(full, burst * scale);
            Some((drain, scale, horizon, tick))
        };
        for (count, period, burst, expected) in [
            (5, 1_000_000, 5, (1, 200_000, 1_000_000, 1)),
            (2, 3, 5, (2, 3, 8, 1)),
            (5, exact, 3, (5, exact, (3 * exact).div_ceil(5), 1)),
            (7, inexact, 3, (7, inexact / 10 + 1, (3 * (inexact / 10 + 1)).div_ceil(7), 10)),
            (1, MAX_HORIZON, 1, (1, MAX_HORIZON, MAX_HORIZON, 1)),
        ] {
            assert_eq!(numbers(count, period, burst), Some(expected), "{count} in {period}, {burst} at once");
        }
        assert_eq!(numbers(1, MAX_HORIZON + 1, 1), None);
        // Ten times as many ticks of a tenth.
        let coarse = Bucket::new(7, inexact, 3, false).expect("a bucket");
        assert_eq!((coarse.tick(), coarse.horizon()), (10, 10 * coarse.reach()));
    }

    #[test]
    fn numbers_that_no_bucket_could_have_are_no_state() {
        let bucket = Bucket::new(3, 7, 5, false).expect("a bucket");
        assert_eq!((bucket.drain(), bucket.scale(), bucket.full()), (3, 7, 35));
        for (at, fraction, is_state) in [(EXACT - 1, 2, true), (EXACT, 2, false), (EXACT - 1, 3, false), (0, 0, true)] {
            let expected = is_state.then_some(BucketState { at, fraction });
            assert_eq!(bucket.state(at, fraction), expected, "{at} {fraction}");
            assert_eq!(bucket.decode(&[at, fraction].map(u64::to_le_bytes).concat()), expected, "{at} {fraction}");
        }
    }

    #[test]
    fn a_state_is_forgotten_at_the_first_microsecond_without_a_level() {
        for bucket in buckets() {
            for filled_to in levels(&bucket) {
                let state = filled(&bucket, filled_to);
                let level_at = |now: u64| bucket.level(&state, now / bucket.tick);
                let forget_at = bucket.forget_at(&state).get();
                assert_eq!(level_at(forget_at), Some(0), "{filled_to} of {bucket:?}");
                assert!(filled_to == 0 || level_at(forget_at - 1) != Some(0), "{filled_to} of {bucket:?}");
            }
        }
    }

    #[test]
    fn waits_are_rounded_up_to_whole_ticks() {
        for drain in 1..=3 {
            let bucket = Bucket::new(drain, 1, 9, true).expect("a bucket");
            let ticks: Vec<u64> = (0..7).map(|level| bucket.ticks_to_drain(level)).collect();
            assert_eq!(ticks, (0..7).map(|level: u64| level.div_ceil(drain)).collect::<Vec<_>>(), "{drain} a tick");
        }
    }

    #[test]
    fn a_state_far_ahead_has_no_level_and_overflows_nothing() {
        let bucket = Bucket::new(1 << 40, 1_000_000, 1 << 40, false).expect("it drains in a second");
        let ahead = BucketState { at: EXACT - 1, fraction: 0 };
        assert_eq!(bucket.level(&ahead, 0), None);
    }
}
