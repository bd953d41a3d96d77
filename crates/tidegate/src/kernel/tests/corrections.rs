//! Tests: what each kernel gives back of a charge, and when one is renewed.

use crate::kernel::{self, *};
use crate::time::Micros;

const NOW: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;

fn at(offset: i64) -> Micros {
    Micros::new(NOW.saturating_add_signed(offset))
}

fn charged(offset: i64, cost: u64) -> Charged {
    Charged { at: at(offset), cost }
}

#[test]
fn a_bucket_takes_what_has_drained_for_what_was_kept_first() {
    // One a second, and three in a second, of which a third of a microsecond is the least.
    for count in [1, 3] {
        let bucket = Bucket::new(count, SECOND, 20, false).expect("a bucket");
        assert_eq!((bucket.scale(), bucket.drain()), (SECOND, count));
        // The level in thousandths of a unit, of a bucket that was charged 10 at first.
        let cases = [
            // after s, kept, left: what drained is of what is kept, as far as that goes
            (0, 0, 0),
            (0, 4, 4_000),
            (2, 0, 0),
            (2, 4, 4_000 - 2_000),
            (2, 9, 9_000 - 2_000),
            (5, 4, 0),
        ];
        for (seconds, kept, left) in cases {
            let seconds = seconds * SECOND / count;
            let mut state = BucketState::default();
            bucket.charge(&mut state, at(0), 10);
            bucket.undo(&mut state, Micros::new(NOW + seconds), charged(0, 10), kept);
            let level = bucket.level_with_debt(&state, NOW + seconds);
            assert_eq!(level * 1_000 / bucket.scale(), left, "{count}/s, {kept} kept after {seconds}");
        }
    }
}

#[test]
fn a_bucket_gives_no_more_back_than_has_not_drained_since() {
    let bucket = Bucket::new(1, SECOND, 20, false).expect("a bucket");
    // Beside 8 that were there before, the level after a charge of 10 is 18.
    let cases = [(0, 0, 8), (3, 0, 8), (3, 2, 8), (10, 0, 8), (12, 0, 6), (12, 10, 6), (30, 0, 0)];
    for (seconds, kept, left) in cases {
        let mut state = BucketState::default();
        bucket.charge(&mut state, at(0), 18);
        let now = NOW + seconds * SECOND;
        bucket.undo(&mut state, Micros::new(now), charged(0, 10), kept);
        assert_eq!(bucket.level_with_debt(&state, now) / SECOND, left, "{kept} kept after {seconds}s");
    }
    // By a clock that is behind, nothing has drained; and a charge too large for this limit takes all.
    let mut state = BucketState::default();
    bucket.charge(&mut state, at(0), 18);
    bucket.undo(&mut state, at(-5), charged(0, 10), 3);
    assert_eq!(state.at, NOW + 11 * SECOND);
    bucket.undo(&mut state, at(0), charged(0, u64::MAX), 0);
    assert_eq!(state.at, NOW);
}

#[test]
fn a_window_gives_back_to_the_window_of_the_charge() {
    let period = 10 * SECOND;
    let start = NOW - NOW % period;
    let offset = |window: i64| (start - NOW).cast_signed() + window * period.cast_signed();
    for (style, window, left) in [
        (Style::Sliding, 0, (2, 4)),
        (Style::Sliding, -1, (5, 1)),
        (Style::Sliding, -2, (5, 4)),
        (Style::FixedFromEpoch, 0, (2, 0)),
        (Style::FixedFromEpoch, -1, (5, 0)),
        (Style::FixedFromFirst, 0, (2, 0)),
        (Style::FixedFromFirst, -1, (5, 0)),
    ] {
        let kernel = Window::new(9, period, style);
        let previous = if style == Style::Sliding { 4 } else { 0 };
        // From the first to the last microsecond of its window.
        for within in [0, period - 1] {
            let mut state = kernel.state(start, 5, previous).expect("a state");
            kernel.undo(&mut state, Micros::new(start + 1), charged(offset(window) + within.cast_signed(), 4), 1);
            let (current, previous) = left;
            assert_eq!(Some(state), kernel.state(start, current, previous), "{style:?}, window {window}, {within}");
        }
    }
    let kernel = Window::new(9, period, Style::Sliding);
    // No more than there is, and all of it is a window that was never used.
    let mut state = kernel.state(start, 2, 0).expect("a state");
    kernel.undo(&mut state, Micros::new(start), charged(offset(0), 7), 0);
    assert_eq!(state, WindowState::default());
    let ahead = |now: u64| kernel.ahead(&kernel.state(start, 1, 0).expect("a state"), Micros::new(now)).get();
    assert_eq!([start - 7, start, start + 7].map(ahead), [7, 0, 0]);
}

fn log(entries: &[(i64, u64)]) -> (Log, LogState) {
    let log = Log::new(9, 10 * SECOND);
    let mut state = LogState::default();
    for (offset, cost) in entries {
        log.charge(&mut state, at(*offset), *cost);
    }
    (log, state)
}

#[test]
fn a_log_gives_back_what_was_charged_at_that_instant() {
    const BEFORE: &[(i64, u64)] = &[(-7, 2), (-5, 3), (0, 1)];
    type Entries = &'static [(i64, u64)];
    let cases: [(Charged, u64, Entries); 7] = [
        (charged(-5, 3), 0, &[(-7, 2), (0, 1)]),
        (charged(-5, 2), 0, &[(-7, 2), (-5, 1), (0, 1)]),
        (charged(-5, 3), 1, &[(-7, 2), (-5, 1), (0, 1)]),
        (charged(-5, 9), 0, &[(-7, 2), (0, 1)]),
        (charged(-7, 2), 0, &[(-5, 3), (0, 1)]),
        (charged(0, 1), 0, &[(-7, 2), (-5, 3)]),
        (charged(-6, 2), 0, BEFORE),
    ];
    for (charge, kept, after) in cases {
        let (kernel, mut state) = log(BEFORE);
        kernel.undo(&mut state, at(0), charge, kept);
        assert_eq!(state, log(after).1, "{charge:?}, {kept} kept");
    }
    // What has expired is gone, and goes with whatever is given back beside it.
    let period = 10 * SECOND.cast_signed();
    let (kernel, mut state) = log(BEFORE);
    kernel.undo(&mut state, at(period - 7), charged(-7, 2), 0);
    assert_eq!(state, log(BEFORE).1);
    kernel.undo(&mut state, at(period - 7), charged(0, 1), 0);
    assert_eq!(state, log(&[(-5, 3)]).1);
}

#[test]
fn a_charge_of_a_log_is_there_as_long_as_it_counts_and_all_of_it_is() {
    let (kernel, state) = log(&[(-7, 2), (0, 1)]);
    let is_there = |now: i64, charge: Charged| kernel.is_there(&state, at(now), charge);
    assert!(is_there(0, charged(-7, 2)) && is_there(0, charged(-7, 1)) && is_there(0, charged(0, 1)));
    assert!(!is_there(0, charged(-7, 3)) && !is_there(0, charged(-6, 1)) && !is_there(0, charged(1, 1)));
    let period = 10 * SECOND.cast_signed();
    assert!(is_there(period - 8, charged(-7, 2)) && !is_there(period - 7, charged(-7, 2)));
    assert_eq!([at(-3), at(0), at(3)].map(|now| kernel.ahead(&state, now).get()), [3, 0, 0]);
    // No other kernel knows one charge from another.
    let bucket = Bucket::new(1, SECOND, 20, false).expect("a bucket");
    assert!(!bucket.is_there(&BucketState { at: NOW + SECOND, fraction: 0 }, at(0), charged(0, 1)));
}

#[test]
fn settle_reports_or_refunds_and_renew_restarts_the_expiry() {
    let (kernel, before) = log(&[(-7, 2), (-5, 3)]);
    let decide = |verb: Verb, cost: u64| {
        let mut state = before.clone();
        let (verdict, changed) = kernel::decide(&kernel, &mut state, at(0), verb, cost);
        (verdict.allowed, verdict.remaining, changed, state)
    };
    let same = |entries: &[(i64, u64)], remaining, changed| (true, remaining, changed, log(entries).1);
    assert_eq!(decide(Verb::Settle(charged(-5, 3)), 3), same(&[(-7, 2), (-5, 3)], 4, false));
    assert_eq!(decide(Verb::Settle(charged(-5, 3)), 1), same(&[(-7, 2), (-5, 1)], 6, true));
    assert_eq!(decide(Verb::Settle(charged(-5, 3)), 5), same(&[(-7, 2), (-5, 3), (0, 2)], 2, true));
    assert_eq!(decide(Verb::Renew(charged(-5, 3)), 0), same(&[(-7, 2), (0, 3)], 4, true));
    assert_eq!(decide(Verb::Renew(charged(-5, 0)), 0), same(&[(-7, 2), (-5, 3)], 4, false));
    assert_eq!(decide(Verb::Renew(charged(-5, 4)), 0), (false, 4, false, before.clone()));
    let beyond = kernel::decide(&kernel, &mut before.clone(), at(0), Verb::Settle(charged(-5, 3)), 9).0;
    assert_eq!((beyond.allowed, beyond.remaining, beyond.unrecorded), (true, 0, 2));
    // A clock that is behind charges at the state's own time.
    let ahead = |verb: Verb, cost: u64| kernel::decide(&kernel, &mut before.clone(), at(-9), verb, cost).0.ahead.get();
    let verbs = [Verb::Charge, Verb::Renew(charged(-7, 2)), Verb::Report, Verb::Peek, Verb::Refund];
    assert_eq!(verbs.map(|verb| ahead(verb, 1)), [4, 4, 0, 0, 0]);
    assert_eq!(ahead(Verb::Charge, 9), 0, "nothing was charged");
}

#[test]
fn each_verb_changes_only_what_it_may() {
    let [settle, renew] = [Verb::Settle(charged(0, 2)), Verb::Renew(charged(0, 2))];
    let all = [Verb::Charge, Verb::Peek, Verb::Report, Verb::Refund, Verb::Reset, settle, renew];
    let which = |is: fn(Verb) -> bool| all.map(is);
    assert_eq!(which(Verb::can_refuse), [true, false, false, false, false, false, true]);
    assert_eq!(which(Verb::is_final), [false, false, true, true, false, true, true]);
    assert_eq!(which(Verb::may_give_back), [false, false, false, true, true, true, false]);
    let acts = |cost: u64| all.map(|verb| Act::of(verb, cost));
    assert_eq!(acts(2).map(Act::adds), [true, false, true, false, false, false, false]);
    assert_eq!(acts(1).map(Act::gives_back), [false, false, false, true, true, true, false]);
    assert_eq!(acts(2).map(Act::writes), [true, false, true, true, true, false, true]);
    assert_eq!(acts(0).map(Act::writes), [false, false, false, false, true, true, true]);
    assert_eq!(acts(2).map(Act::charges), [true, false, false, false, false, false, true]);
    assert_eq!([1, 3].map(|cost| Act::of(settle, cost).adds()), [false, true]);
    assert_eq!(Act::of(Verb::RENEW, 0), Act::Nothing);
}
