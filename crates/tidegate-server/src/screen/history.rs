//! What each rule decided: by the second for 15 minutes, by the minute for 24 hours.
//!
//! Once a second the server reads its counters and keeps what was added to them, and how long it took. Nothing is
//! counted for it on the path of a request but the latency. A rule takes 60 KB from its first decision on,
//! and at most [`MAX_RULES`] rules have a history of their own: about 15 MB in all. What others
//! decide is kept together, without its latency.
//!
//! A reading comes at the end of each second. One that is late is divided over the seconds since the one before.

mod latency;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tidegate::Name;

use self::latency::LatencySteps;
pub(crate) use self::latency::{Latency, ToldLatency};
use crate::run::connections::Drain;
use crate::tell::metrics::{LatencyReading, Metrics, OTHER_RULES, RuleCounts};

/// Rules that have a history of their own.
pub(crate) const MAX_RULES: usize = 256;

/// Seconds that a late reading is divided over; one that is later is a machine that slept.
const MAX_LATE: u64 = 60;

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

    /// One of so many parts, which together are the whole.
    fn part(self, number: u64, of: u64) -> Sample {
        // A part is at most the whole.
        let part = |whole: u32| {
            let until = |number: u64| u64::from(whole) * number / of;
            (until(number + 1) - until(number)) as u32
        };
        Sample {
            allowed: part(self.allowed),
            refused: part(self.refused),
            shadow_allowed: part(self.shadow_allowed),
            shadow_refused: part(self.shadow_refused),
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
    latency: LatencySteps,
    /// The second of its latest decision.
    latest: u64,
}

impl Series {
    fn new(before: LatencyReading) -> Series {
        let rings = SCALES.map(|scale| vec![Sample::default(); scale.length].into_boxed_slice());
        Series { rings, latency: LatencySteps::new(before), latest: 0 }
    }
}

/// The history of all rules.
#[derive(Default)]
pub(crate) struct History(Mutex<Kept>);

struct Kept {
    /// The latest step of each scale, counted from 1970.
    newest: [u64; SCALES.len()],
    /// Seconds since the reading before.
    seconds: u64,
    /// The latency of all requests.
    latency: LatencySteps,
    series: HashMap<Name, Series>,
    /// The counters as they were read last.
    before: HashMap<Name, RuleCounts>,
}

impl Default for Kept {
    fn default() -> Kept {
        let latency = LatencySteps::new(LatencyReading::default());
        Kept { newest: [0; SCALES.len()], seconds: 1, latency, series: HashMap::new(), before: HashMap::new() }
    }
}

/// A stretch of the history, as it is told. Counts are per step, the oldest first.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) step_us: u64,
    /// The end of the last step, since 1970, by the clock of the server's machine.
    pub(crate) end_us: u64,
    /// From a request to its answer, of all protocols.
    pub(crate) latency: ToldLatency,
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
    /// The time to decide, of the requests in which this rule bound.
    pub(crate) latency: ToldLatency,
}

impl History {
    /// Reads the counters at the end of each second until the server closes.
    pub(crate) async fn keep(self: Arc<History>, metrics: Arc<Metrics>, drain: Drain) {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut closing = std::pin::pin!(drain.closing());
        loop {
            tokio::select! {
                () = tokio::time::sleep(until_next_second(now())) => {}
                () = &mut closing => return,
            }
            let mut kept = self.kept();
            kept.begin(ended_second(now()));
            kept.record_latency(metrics.latencies());
            metrics.each_rule(|rule, counters| kept.record(rule, counters.read(), || counters.latencies()));
        }
    }

    /// The latency of each rule in the last ten seconds.
    pub(crate) fn latencies(&self) -> HashMap<Name, Latency> {
        let kept = self.kept();
        kept.series.iter().map(|(rule, series)| (rule.clone(), series.latency.now(kept.newest[0]))).collect()
    }

    /// The history of all rules, or of one.
    pub(crate) fn tell(&self, range: Range, rule: Option<&str>) -> Told {
        let kept = self.kept();
        let (scale, steps) = range.steps();
        let Scale { step, length } = SCALES[scale];
        let wanted = |name: &Name| rule.is_none_or(|rule| name.as_str() == rule);
        // A step that has only begun would look like a fall. Steps before 1970 are not asked for.
        let end = if step == 1 { kept.newest[scale] + 1 } else { kept.newest[scale] };
        let steps = end.saturating_sub(steps as u64)..end;
        let told = |(name, series): (&Name, &Series)| {
            let samples = || steps.clone().map(|at| series.rings[scale][place(at, length)]);
            ToldRule {
                rule: name.as_str().to_owned(),
                allowed: samples().map(|sample| sample.allowed).collect(),
                refused: samples().map(|sample| sample.refused).collect(),
                shadow_allowed: samples().map(|sample| sample.shadow_allowed).collect(),
                shadow_refused: samples().map(|sample| sample.shadow_refused).collect(),
                latency: series.latency.tell(scale, steps.clone()),
            }
        };
        let mut rules: Vec<ToldRule> = kept.series.iter().filter(|(name, _)| wanted(name)).map(told).collect();
        rules.sort_unstable_by(|one, other| one.rule.cmp(&other.rule));
        let latency = kept.latency.tell(scale, steps.clone());
        Told { step_us: step * 1_000_000, end_us: end * step * 1_000_000, latency, rules }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait for a second to end.
fn until_next_second(now: Duration) -> Duration {
    Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into())
}

/// The second that has just ended: readings come around the end of one.
fn ended_second(now: Duration) -> u64 {
    (now + Duration::from_millis(500)).as_secs().saturating_sub(1)
}

/// Where a step is in a ring.
fn place(step: u64, length: usize) -> usize {
    // A remainder is less than the length.
    (step % length as u64) as usize
}

impl Kept {
    /// Begins a second. A clock that went back stays where it was.
    fn begin(&mut self, now: u64) {
        let passed = now.saturating_sub(self.newest[0]);
        self.seconds = if (1..=MAX_LATE).contains(&passed) { passed } else { 1 };
        for (at, Scale { step, length }) in SCALES.into_iter().enumerate() {
            let (from, to) = (self.newest[at], now / step);
            if to <= from {
                continue;
            }
            let skipped = (to - from).saturating_sub(length as u64);
            for passed in from + skipped + 1..=to {
                self.latency.begin(at, passed);
                for series in self.series.values_mut() {
                    series.rings[at][place(passed, length)] = Sample::default();
                    series.latency.begin(at, passed);
                }
            }
            self.newest[at] = to;
        }
    }

    /// Takes the latency of all requests.
    fn record_latency(&mut self, reading: LatencyReading) {
        self.latency.record(reading, self.newest, self.seconds);
    }

    /// Adds what a rule has decided since it was read last, and how long that took.
    fn record(&mut self, rule: &Name, counts: RuleCounts, latency: impl FnOnce() -> LatencyReading) {
        let before = self.before.get_mut(rule).map(|known| std::mem::replace(known, counts));
        if before.is_none() {
            self.before.insert(rule.clone(), counts);
        }
        // What was counted before the first reading has happened since the start, a second ago at most.
        let sample = Sample::between(&before.unwrap_or_default(), &counts);
        if sample == Sample::default() {
            return;
        }
        let latency = latency();
        // Of a rule that had no history, what it decided long ago is not told.
        let is_new = before.is_none_or(|before| Sample::between(&RuleCounts::default(), &before) == Sample::default());
        let seconds = self.seconds;
        let name = self.place_for(rule, if is_new { LatencyReading::default() } else { latency });
        let (newest, is_own) = (self.newest, name == *rule);
        let Some(series) = self.series.get_mut(&name) else { return };
        for back in 0..seconds {
            let (second, sample) = (newest[0].saturating_sub(back), sample.part(seconds - 1 - back, seconds));
            for (at, scale) in SCALES.iter().enumerate() {
                series.rings[at][place(second / scale.step, scale.length)].add(sample);
            }
        }
        series.latest = newest[0];
        if is_own && name != OTHER_RULES {
            series.latency.record(latency, newest, seconds);
        }
    }

    /// The rule under which a rule is kept: its own name, or that of all others.
    fn place_for(&mut self, rule: &Name, before: LatencyReading) -> Name {
        let has_room = |kept: &mut Kept| kept.series.len() < MAX_RULES || kept.forget_one();
        let name = match self.series.contains_key(rule) || has_room(self) {
            true => rule.clone(),
            false => OTHER_RULES,
        };
        self.series.entry(name.clone()).or_insert_with(|| Series::new(before));
        name
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
        kept.record(rule, counts, LatencyReading::default);
    }

    #[test]
    fn steps_hold_what_was_added_since_the_reading_before() {
        let (history, orders) = (History::default(), Name::literal("orders"));
        record(&history, START, &orders, counts(10, 0));
        record(&history, START + 1, &orders, counts(10, 3));
        // Nothing was read for a second: what was counted in two is divided.
        record(&history, START + 3, &orders, counts(15, 3));
        let told = history.tell(Range::FiveMinutes, None);
        assert_eq!((told.step_us, told.end_us), (1_000_000, (START + 4) * 1_000_000));
        assert_eq!(told.rules[0].allowed.len(), 300);
        assert_eq!(told.rules[0].allowed[296..], [10, 0, 2, 3]);
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
    }

    /// Bytes of each rule, and of the latency of all requests: as the book and SECURITY.md have them.
    const RULE_BYTES: u64 = 60_000;
    const TOTAL_BYTES: u64 = 25_000;

    #[test]
    fn a_day_of_history_of_a_hundred_rules_takes_no_more_memory_than_documented() {
        const RULES: u64 = 100;
        let metrics = Metrics::default();
        let rules: Vec<Name> = (0..RULES).map(|number| Name::from(format!("rule {number}"))).collect();
        rules.iter().for_each(|rule| drop(metrics.rule(rule)));
        let mut history = None;
        let allocated = allocation_counter::measure(|| {
            let kept = history.insert(History::default());
            // A day of readings that are each a minute late, then a quarter of an hour by the second.
            for second in (0..86_400).step_by(60).chain(86_400..87_300) {
                for (number, rule) in (0..).zip(&rules) {
                    let counters = metrics.rule(rule);
                    counters.decided(1 + second % 7, number);
                    counters.took(Duration::from_micros(number + second % 50), 1);
                }
                let mut kept = kept.kept();
                kept.begin(START + second);
                kept.record_latency(metrics.latencies());
                metrics.each_rule(|rule, counters| kept.record(rule, counters.read(), || counters.latencies()));
            }
        });
        let told = history.map(|history| history.tell(Range::Day, None)).map(|told| (told.rules.len(), told.rules));
        let Some((100, told)) = told else { unreachable!("all rules have decided") };
        assert!(told[0].allowed.iter().skip(20).all(|count| *count > 0), "{told:?}");
        let bytes = u64::try_from(allocated.bytes_current).unwrap_or(0);
        assert!((1..=RULES * RULE_BYTES + TOTAL_BYTES).contains(&bytes), "{bytes}");
        assert!(allocated.bytes_max <= RULES * RULE_BYTES + TOTAL_BYTES, "{allocated:?}");
    }

    #[test]
    fn a_reading_belongs_to_the_second_that_has_ended_late_or_early() {
        let at = |seconds: u64, millis: u64| Duration::from_secs(seconds) + Duration::from_millis(millis);
        assert_eq!([at(9, 999), at(10, 0), at(10, 480)].map(ended_second), [9, 9, 9]);
        assert_eq!([at(10, 500), at(11, 200)].map(ended_second), [10, 10]);
        assert_eq!([at(10, 0), at(10, 250)].map(until_next_second), [at(1, 0), at(0, 750)]);
    }

    #[test]
    fn steps_have_the_latency_of_their_own_requests() {
        let (history, metrics, orders) = (History::default(), Metrics::default(), Name::literal("orders"));
        let decide = |second: u64, times: u32, took: Duration| {
            let counters = metrics.rule(&orders);
            counters.decided(times.into(), 0);
            counters.took(took, times);
            metrics.answered(crate::run::protocol::Protocol::Http, took);
            let mut kept = history.kept();
            kept.begin(second);
            kept.record_latency(metrics.latencies());
            kept.record(&orders, counters.read(), || counters.latencies());
        };
        decide(START, 10, Duration::from_micros(1));
        decide(START + 1, 99, Duration::from_micros(20));
        decide(START + 3, 1, Duration::from_micros(700));
        let told = history.tell(Range::FiveMinutes, None);
        let latency = &told.rules[0].latency;
        assert_eq!(latency.p50_us[295..], [None, Some(2), Some(24), Some(768), Some(768)]);
        assert_eq!((latency.p99_us[297], latency.p50_us.len()), (Some(24), 300));
        assert_eq!(told.latency.p50_us[295..], [None, Some(2), Some(24), Some(768), Some(768)]);
        assert_eq!(history.latencies()[&orders], Latency { p50_us: Some(24), p99_us: Some(24) });
        // Nothing since: there is no latency of now, and the minute has that of all.
        for second in 4..=60 {
            decide(START + second, 0, Duration::from_micros(1));
        }
        assert_eq!(history.latencies()[&orders], Latency::default());
        let told = history.tell(Range::Hour, Some("orders"));
        assert_eq!((told.rules[0].latency.p50_us[59], told.rules[0].latency.p99_us[59]), (Some(24), Some(24)));
    }
}
