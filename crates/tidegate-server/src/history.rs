//! What each rule decided: by the second for 15 minutes, by the minute for 24 hours.
//!
//! Once a second the server reads its counters and keeps what was added to them. Nothing is
//! counted for it on the path of a request. A rule takes 37 KB from its first decision on,
//! and at most [`MAX_RULES`] rules have a history of their own: about 9.6 MB in all. What others
//! decide is kept together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tidegate::Name;
use tokio::time::MissedTickBehavior;

use crate::connections::Drain;
use crate::metrics::{Metrics, OTHER_RULES, RuleCounts};

/// Rules that have a history of their own.
pub(crate) const MAX_RULES: usize = 256;

/// The time from one reading of the counters to the next.
const BETWEEN_READINGS: Duration = Duration::from_secs(1);

/// A ring of steps of time.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Seconds of one step.
    step: u64,
    /// Steps that are kept.
    length: usize,
}

const SECONDS: Scale = Scale { step: 1, length: 15 * 60 };
const MINUTES: Scale = Scale { step: 60, length: 24 * 60 };
const SCALES: [Scale; 2] = [SECONDS, MINUTES];

/// How far to look back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    FiveMinutes,
    FifteenMinutes,
    Hour,
    Day,
}

impl Range {
    pub(crate) const ALL: [(&str, Range); 4] =
        [("5m", Range::FiveMinutes), ("15m", Range::FifteenMinutes), ("1h", Range::Hour), ("24h", Range::Day)];

    /// The scale that it is told in, and how many steps of it.
    fn steps(self) -> (usize, usize) {
        match self {
            Range::FiveMinutes => (0, 5 * 60),
            Range::FifteenMinutes => (0, SECONDS.length),
            Range::Hour => (1, 60),
            // The step that has just begun is not told.
            Range::Day => (1, MINUTES.length - 1),
        }
    }
}

/// What was decided in one step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) allowed: u32,
    pub(crate) refused: u32,
    pub(crate) shadow_allowed: u32,
    pub(crate) shadow_refused: u32,
}

impl Sample {
    fn between(before: &RuleCounts, after: &RuleCounts) -> Sample {
        let grown = |before: u64, after: u64| u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
        Sample {
            allowed: grown(before.allowed, after.allowed),
            refused: grown(before.refused, after.refused),
            shadow_allowed: grown(before.shadow_allowed, after.shadow_allowed),
            shadow_refused: grown(before.shadow_refused, after.shadow_refused),
        }
    }

    fn add(&mut self, other: Sample) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.refused = self.refused.saturating_add(other.refused);
        self.shadow_allowed = self.shadow_allowed.saturating_add(other.shadow_allowed);
        self.shadow_refused = self.shadow_refused.saturating_add(other.shadow_refused);
    }
}

/// The history of one rule.
struct Series {
    rings: [Box<[Sample]>; SCALES.len()],
    /// The second of its latest decision.
    latest: u64,
}

impl Series {
    fn new() -> Series {
        Series { rings: SCALES.map(|scale| vec![Sample::default(); scale.length].into_boxed_slice()), latest: 0 }
    }
}

/// The history of all rules.
#[derive(Default)]
pub(crate) struct History(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The latest step of each scale, counted from 1970.
    newest: [u64; SCALES.len()],
    series: HashMap<Name, Series>,
    /// The counters as they were read last.
    before: HashMap<Name, RuleCounts>,
}

/// A stretch of the history, as it is told. Counts are per step, the oldest first.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) step_us: u64,
    /// The end of the last step, since 1970, by the clock of the server's machine.
    pub(crate) end_us: u64,
    pub(crate) rules: Vec<ToldRule>,
}

/// What one rule decided.
#[derive(Debug, Serialize)]
pub(crate) struct ToldRule {
    pub(crate) rule: String,
    pub(crate) allowed: Vec<u32>,
    pub(crate) refused: Vec<u32>,
    pub(crate) shadow_allowed: Vec<u32>,
    pub(crate) shadow_refused: Vec<u32>,
}

impl History {
    /// Reads the counters once a second until the server closes.
    pub(crate) async fn keep(self: Arc<History>, metrics: Arc<Metrics>, drain: Drain) {
        let mut clock = tokio::time::interval(BETWEEN_READINGS);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing = std::pin::pin!(drain.closing());
        loop {
            tokio::select! {
                _ = clock.tick() => {}
                () = &mut closing => return,
            }
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            let mut kept = self.kept();
            kept.begin(now);
            metrics.each_rule(|rule, counts| kept.record(rule, counts));
        }
    }

    /// The history of all rules, or of one.
    pub(crate) fn tell(&self, range: Range, rule: Option<&str>) -> Told {
        let kept = self.kept();
        let (scale, steps) = range.steps();
        let Scale { step, length } = SCALES[scale];
        let wanted = |name: &Name| rule.is_none_or(|rule| name.as_str() == rule);
        // A step that has only begun would look like a fall. Steps before 1970 are not asked for.
        let end = if step == 1 { kept.newest[scale] + 1 } else { kept.newest[scale] };
        let told = |(name, series): (&Name, &Series)| {
            let samples = || (end.saturating_sub(steps as u64)..end).map(|at| series.rings[scale][place(at, length)]);
            ToldRule {
                rule: name.as_str().to_owned(),
                allowed: samples().map(|sample| sample.allowed).collect(),
                refused: samples().map(|sample| sample.refused).collect(),
                shadow_allowed: samples().map(|sample| sample.shadow_allowed).collect(),
                shadow_refused: samples().map(|sample| sample.shadow_refused).collect(),
            }
        };
        let mut rules: Vec<ToldRule> = kept.series.iter().filter(|(name, _)| wanted(name)).map(told).collect();
        rules.sort_unstable_by(|one, other| one.rule.cmp(&other.rule));
        Told { step_us: step * 1_000_000, end_us: end * step * 1_000_000, rules }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a step is in a ring.
fn place(step: u64, length: usize) -> usize {
    // A remainder is less than the length.
    (step % length as u64) as usize
}

impl Kept {
    /// Begins a second: steps that were left out are empty. A clock that went back stays where it was.
    fn begin(&mut self, now: u64) {
        for (at, Scale { step, length }) in SCALES.into_iter().enumerate() {
            let (from, to) = (self.newest[at], now / step);
            if to <= from {
                continue;
            }
            for passed in (from + 1..=to).rev().take(length) {
                for series in self.series.values_mut() {
                    series.rings[at][place(passed, length)] = Sample::default();
                }
            }
            self.newest[at] = to;
        }
    }

    /// Adds what a rule has decided since it was read last.
    fn record(&mut self, rule: &Name, counts: RuleCounts) {
        let Some(before) = self.before.get_mut(rule) else {
            // What was counted before the first reading has happened since the start, a second ago at most.
            self.before.insert(rule.clone(), counts);
            return self.add(rule, Sample::between(&RuleCounts::default(), &counts));
        };
        let sample = Sample::between(before, &counts);
        *before = counts;
        self.add(rule, sample);
    }

    fn add(&mut self, rule: &Name, sample: Sample) {
        if sample == Sample::default() {
            return;
        }
        if !self.series.contains_key(rule) {
            if self.series.len() >= MAX_RULES && *rule != OTHER_RULES && !self.forget_one() {
                return self.add(&OTHER_RULES, sample);
            }
            self.series.insert(rule.clone(), Series::new());
        }
        let newest = self.newest;
        if let Some(series) = self.series.get_mut(rule) {
            for (at, scale) in SCALES.iter().enumerate() {
                series.rings[at][place(newest[at], scale.length)].add(sample);
            }
            series.latest = newest[0];
        }
    }

    /// Forgets a rule of which nothing is told any more.
    fn forget_one(&mut self) -> bool {
        let now = self.newest[0];
        let is_empty = |series: &Series| series.latest + MINUTES.step * (MINUTES.length as u64) < now;
        let empty = self.series.iter().find(|(_, series)| is_empty(series)).map(|(rule, _)| rule.clone());
        empty.is_some_and(|rule| self.series.remove(&rule).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute that begins a day.
    const START: u64 = 1_800_000_000 / 86_400 * 86_400;

    fn counts(allowed: u64, refused: u64) -> RuleCounts {
        RuleCounts { allowed, refused, ..RuleCounts::default() }
    }

    fn record(history: &History, at: u64, rule: &Name, counts: RuleCounts) {
        let mut kept = history.kept();
        kept.begin(at);
        kept.record(rule, counts);
    }

    #[test]
    fn steps_hold_what_was_added_since_the_reading_before() {
        let (history, orders) = (History::default(), Name::literal("orders"));
        record(&history, START, &orders, counts(10, 0));
        record(&history, START + 1, &orders, counts(10, 3));
        // Nothing was read for a second.
        record(&history, START + 3, &orders, counts(15, 3));
        let told = history.tell(Range::FiveMinutes, None);
        assert_eq!((told.step_us, told.end_us), (1_000_000, (START + 4) * 1_000_000));
        assert_eq!(told.rules[0].allowed.len(), 300);
        assert_eq!(told.rules[0].allowed[296..], [10, 0, 0, 5]);
        assert_eq!(told.rules[0].refused[296..], [0, 3, 0, 0]);
        // The minute has not ended.
        assert!(history.tell(Range::Hour, None).rules[0].allowed.iter().all(|count| *count == 0));
        record(&history, START + 60, &orders, counts(15, 3));
        let told = history.tell(Range::Hour, Some("orders"));
        assert_eq!(told.end_us, (START + 60) * 1_000_000);
        assert_eq!(told.rules[0].allowed[59], 15);
        assert!(history.tell(Range::Hour, Some("other")).rules.is_empty());
    }

    #[test]
    fn what_is_older_than_the_ring_is_forgotten() {
        let (history, orders) = (History::default(), Name::literal("orders"));
        record(&history, START, &orders, counts(7, 0));
        record(&history, START + 899, &orders, counts(7, 0));
        assert_eq!(history.tell(Range::FifteenMinutes, None).rules[0].allowed[0], 7);
        record(&history, START + 900, &orders, counts(7, 0));
        let told = history.tell(Range::FifteenMinutes, None);
        assert_eq!(told.rules[0].allowed.iter().sum::<u32>(), 0);
        assert_eq!(history.tell(Range::Day, None).rules[0].allowed.iter().sum::<u32>(), 7);
        record(&history, START + 86_400, &orders, counts(7, 0));
        assert_eq!(history.tell(Range::Day, None).rules[0].allowed.iter().sum::<u32>(), 0);
    }

    #[test]
    fn a_clock_that_goes_back_adds_to_the_latest_step() {
        let (history, orders) = (History::default(), Name::literal("orders"));
        record(&history, START + 10, &orders, counts(1, 0));
        record(&history, START, &orders, counts(3, 0));
        assert_eq!(history.tell(Range::FiveMinutes, None).rules[0].allowed[299], 3);
    }

    #[test]
    fn rules_beyond_the_bound_are_kept_together_until_one_is_forgotten() {
        let history = History::default();
        for number in 0..MAX_RULES {
            record(&history, START, &Name::from(format!("rule {number}")), counts(1, 0));
        }
        record(&history, START, &Name::literal("late"), counts(5, 0));
        assert_eq!(history.kept().series.len(), MAX_RULES + 1);
        assert_eq!(history.tell(Range::FiveMinutes, Some("(other rules)")).rules[0].allowed[299], 5);
        record(&history, START + 86_401, &Name::literal("late"), counts(6, 0));
        assert_eq!(history.tell(Range::FiveMinutes, Some("late")).rules[0].allowed[299], 1);
        let bytes = SCALES.map(|scale| scale.length * size_of::<Sample>()).iter().sum::<usize>();
        assert_eq!(bytes, 37_440, "the bound that is documented");
    }
}
