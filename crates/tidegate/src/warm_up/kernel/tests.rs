//! What a new key gets, step by step, and what is left of it.

use std::time::Duration;

use super::*;
use crate::kernel::{Verb, decide};

const START: u64 = 1_700_000_000_000_000;
const ALGORITHMS: [&str; 5] = ["12/s", "leaky 12/s", "fixed 12/s", "sliding 12/s", "sliding-log 12/s"];

fn warming(words: &str) -> Warming {
    let warm_up = WarmUp::new(2, Duration::from_secs(100)).expect("a warm-up");
    Warming::new(words.parse().expect("a limit"), warm_up).expect("something to climb")
}

fn take(kernel: &Warming, state: &mut WarmingState, now: u64, cost: u64) -> bool {
    decide(kernel, state, Micros::new(now), Verb::Charge, cost).0.allowed
}

fn reading(remaining: u64, reset_after: u64) -> Reading {
    Reading { remaining, reset_after: Micros::new(reset_after) }
}

#[test]
fn the_limit_climbs_in_ten_even_steps() {
    let kernel = warming("fixed 12/s");
    let counts: Vec<u64> = (0..12).map(|step| kernel.step_at(START, START + step * 10_000_000).count).collect();
    assert_eq!(counts, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12]);
}

#[test]
#[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
fn a_new_key_gets_less_and_a_warm_one_all() {
    for words in ALGORITHMS {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        let mut admitted_in = Vec::new();
        for second in 0..120_u64 {
            // As many as it lets pass, at twenty instants of each second.
            let instants = (0..20).map(|part| START + second * 1_000_000 + part * 50_000);
            let taken = instants.map(|now| (0..20).filter(|_| take(&kernel, &mut state, now, 1)).count());
            admitted_in.push(taken.sum::<usize>());
        }
        assert!((2..=4).contains(&admitted_in[0]), "{words}: {admitted_in:?}");
        let (climb, after): (usize, usize) = (admitted_in[..100].iter().sum(), admitted_in[100..].iter().sum());
        assert!((540..=660).contains(&climb), "{words}: {climb} in the climb, of about 650");
        assert!((200..=245).contains(&after), "{words}: {after} after the climb, of about 240");
    }
}

#[test]
#[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
fn refused_until_retry_after_and_admitted_then() {
    for words in [
        "12/s",
        "leaky 12/s queue 5",
        "fixed 12/s",
        "fixed 12/7s from-first",
        "sliding 12/3s",
        "sliding-log 12/9s",
        "1000/h burst 30",
    ] {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        let mut now = START;
        let mut waits = 0;
        for round in 0..4_000_u64 {
            let cost = 1 + round % kernel.capacity();
            match kernel.admit(&state, Micros::new(now), cost) {
                Admission::Pass { .. } => {
                    kernel.charge(&mut state, Micros::new(now), cost);
                }
                Admission::Wait { retry_after } => {
                    waits += 1;
                    assert!(retry_after > Micros::ZERO);
                    now += retry_after.get() - 1;
                    let early = kernel.admit(&state, Micros::new(now), cost);
                    assert_eq!(early, Admission::Wait { retry_after: Micros::new(1) }, "{words}, round {round}");
                    now += 1;
                    assert!(matches!(kernel.admit(&state, Micros::new(now), cost), Admission::Pass { .. }));
                }
            }
        }
        assert!(waits > 50, "{words}: {waits}");
    }
}

#[test]
fn an_idle_key_warms_up_again() {
    for words in ["12/s", "fixed 12/s", "sliding-log 12/s"] {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        assert!(take(&kernel, &mut state, START, 1));
        assert!(take(&kernel, &mut state, START + 99_000_000, 1));
        assert_eq!(kernel.read(&state, Micros::new(START + 150_000_000)).remaining, 12, "{words}");
        let forget_at = kernel.forget_at(&state);
        assert_eq!(forget_at, Micros::new(START + 199_000_000), "{words}");
        assert_eq!(kernel.read(&state, forget_at).remaining, 2, "{words}");
        assert_eq!(kernel.charge(&mut state, forget_at, 1).remaining, 1, "{words}");
        assert_eq!((state.born, state.last), (forget_at.get(), forget_at.get()), "{words}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
fn states_go_through_bytes() {
    for words in ["12/s", "fixed 12/s", "sliding 12/s", "sliding-log 12/s"] {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        assert_eq!(kernel.used(&state, Micros::new(START)), 0, "{words}");
        for round in 0..50 {
            let mut bytes = Vec::new();
            kernel.encode(&state, &mut bytes);
            assert_eq!(kernel.decode(&bytes).as_ref(), Some(&state), "{words}");
            take(&kernel, &mut state, START + round * 300_000, 1);
        }
        // All that counts is given back, and the key goes on climbing.
        kernel.refund(&mut state, Micros::new(START + 49 * 300_000), 12);
        let mut bytes = Vec::new();
        kernel.encode(&state, &mut bytes);
        assert_eq!(kernel.decode(&bytes).as_ref(), Some(&state), "{words}");
        assert!(state.born < state.last);
    }
}

#[test]
fn a_partly_used_unit_counts_as_used() {
    for words in ["12/s", "leaky 12/s", "sliding 12/s"] {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        assert!(take(&kernel, &mut state, START, 1));
        assert_eq!(kernel.used(&state, Micros::new(START + 1)), 1, "{words}");
    }
}

#[test]
fn a_step_ends_where_the_next_one_begins() {
    // Eleven microseconds are ten steps of two.
    let warm_up = WarmUp::new(2, Duration::from_micros(11)).expect("a warm-up");
    let kernel = Warming::new("12/s burst 3".parse().expect("a limit"), warm_up).expect("something to climb");
    let steps: Vec<(u64, u64, u64)> = [0, 1, 2, 9, 10, 11, 18, 19, 20, 21]
        .map(|age| kernel.step_at(START, START + age))
        .map(|Step { count, capacity, end, .. }| (count, capacity, end.checked_sub(START).filter(|end| *end < 99)))
        .map(|(count, capacity, end)| (count, capacity, end.unwrap_or(0)))
        .to_vec();
    // A share of less than one is one.
    let (first, fifth, ninth) = ((2, 1, 2), (6, 1, 10), (11, 2, 20));
    let (second, sixth, warm) = ((3, 1, 4), (7, 1, 12), (12, 3, 0));
    assert_eq!(steps, [first, first, second, fifth, sixth, sixth, ninth, ninth, warm, warm]);
    assert_eq!(kernel.step_at(START, START + 20).end, u64::MAX);
}

#[test]
fn a_limit_of_no_more_than_the_start_stays_as_it_is() {
    let warm_up = WarmUp::new(2, Duration::from_secs(100)).expect("a warm-up");
    let climbs = ["1/s", "2/s", "3/s"].map(|words| Warming::new(words.parse().expect("a limit"), warm_up).is_some());
    assert_eq!(climbs, [false, false, true]);
}

#[test]
fn a_new_key_is_admitted_with_its_capacity_and_no_more() {
    for words in ALGORITHMS {
        let (kernel, fresh) = (warming(words), WarmingState::default());
        assert_eq!(kernel.capacity(), 2, "{words}");
        assert_eq!(kernel.admit(&fresh, Micros::new(START), 2), Admission::PASS, "{words}");
        assert_eq!(kernel.read(&fresh, Micros::new(START)), reading(2, 0), "{words}");
    }
    // However short a step is.
    let warm_up = WarmUp::new(2, Duration::from_micros(1)).expect("a warm-up");
    assert_eq!(Warming::new("12/s".parse().expect("a limit"), warm_up).map(|kernel| kernel.capacity()), Some(2));
}

#[test]
fn only_a_leaky_bucket_tells_when_to_go() {
    // Half a second for each unit.
    let delays = |words: &str| {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        kernel.charge(&mut state, Micros::new(START), 1);
        // The last by a clock that is behind.
        [START, START + 400_000, START + 500_000, START - 7].map(|now| kernel.admit(&state, Micros::new(now), 1))
    };
    let pass = |delay| Admission::Pass { delay: Micros::new(delay) };
    assert_eq!(delays("leaky 12/s"), [500_000, 100_000, 0, 500_007].map(pass));
    assert_eq!(delays("12/s"), [0; 4].map(pass));
    let (kernel, fresh) = (warming("leaky 12/s"), WarmingState::default());
    assert_eq!(kernel.admit(&fresh, Micros::new(START), 1), Admission::PASS);
}

#[test]
fn a_key_whose_clock_is_behind_waits_for_the_clock_as_well() {
    for words in ["12/s", "fixed 12/s from-first", "sliding-log 12/s"] {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        kernel.charge(&mut state, Micros::new(START), 2);
        let waits = |now: u64| match kernel.admit(&state, Micros::new(now), 2) {
            Admission::Wait { retry_after } => retry_after.get(),
            Admission::Pass { .. } => 0,
        };
        assert_eq!([0, 7].map(|behind| waits(START - behind)), [1_000_000, 1_000_007], "{words}");
        // Nothing of it can be had again by asking in the past.
        assert_eq!(kernel.read(&state, Micros::new(START - 7)).remaining, 0, "{words}");
        assert_eq!(kernel.used(&state, Micros::new(START - 7)), 2, "{words}");
    }
}

#[test]
fn a_bucket_drains_as_fast_as_each_step_says() {
    // Two a second for ten seconds, then three.
    let kernel = warming("12/s burst 600");
    let mut state = WarmingState::default();
    assert_eq!(kernel.capacity(), 100);
    let full = kernel.charge(&mut state, Micros::new(START), 100);
    assert_eq!(full, reading(0, 100_000_000));
    let used = |seconds: u64| kernel.used(&state, Micros::new(START + seconds * 1_000_000));
    assert_eq!([0, 1, 9, 10, 11, 19, 20, 21].map(used), [100, 98, 82, 80, 77, 53, 50, 46]);
    // 100 - 20 - 30 - 40 leaves ten, at five a second.
    assert_eq!(kernel.when_empty(&state, START), START + 32_000_000);
    // Room for all at once comes with the second step, of which 150 fit; for more than that there is none yet.
    let retry_after = Micros::new(10_000_000);
    assert_eq!(kernel.admit(&state, Micros::new(START), 70), Admission::Wait { retry_after });
    let retry_after = Micros::new(10_000_000 + 10_000_000 / 3 + 1);
    assert_eq!(kernel.admit(&state, Micros::new(START), 80), Admission::Wait { retry_after });
}

#[test]
fn the_only_charge_taken_back_is_as_if_it_had_never_been() {
    for words in ALGORITHMS {
        for later in [0, 300_000] {
            let (kernel, mut state) = (warming(words), WarmingState::default());
            kernel.charge(&mut state, Micros::new(START), 2);
            kernel.refund(&mut state, Micros::new(START + later), 1);
            assert_ne!(state, WarmingState::default(), "{words}: one is left");
            kernel.refund(&mut state, Micros::new(START + later), 1);
            assert_eq!(state, WarmingState::default(), "{words}");
        }
    }
}

#[test]
fn a_key_that_takes_its_latest_charge_back_goes_on_climbing() {
    for words in ALGORITHMS {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        kernel.charge(&mut state, Micros::new(START), 1);
        let later = Micros::new(START + 25_000_000);
        kernel.charge(&mut state, later, 3);
        kernel.refund(&mut state, later, 1);
        assert_eq!(kernel.read(&state, later).remaining, 2, "{words}: one is given back");
        kernel.refund(&mut state, later, 3);
        assert_eq!(kernel.read(&state, later).remaining, 4, "{words}: more than there was");
        let warm = Micros::new(START + 100_000_000);
        assert_eq!(kernel.read(&state, warm).remaining, 12, "{words}");
    }
}

#[test]
fn a_refund_of_nothing_charged_does_nothing() {
    for words in ALGORITHMS {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        kernel.refund(&mut state, Micros::new(START), 1);
        assert_eq!(state, WarmingState::default(), "{words}");
    }
}

#[test]
fn a_refund_of_what_is_forgotten_does_nothing() {
    for words in ALGORITHMS {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        kernel.charge(&mut state, Micros::new(START), 1);
        let (before, forget_at) = (state.clone(), kernel.forget_at(&state));
        for later in [0, 1] {
            kernel.refund(&mut state, forget_at.saturating_add(Micros::new(later)), 1);
            assert_eq!(state, before, "{words}");
        }
    }
}

#[test]
fn units_drained_since_the_charge_are_not_refunded() {
    for words in ["12/s", "leaky 12/s"] {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        let last = START + 1_000_000;
        kernel.charge(&mut state, Micros::new(START), 1);
        kernel.charge(&mut state, Micros::new(last), 2);
        // Half a second for each unit.
        let later = Micros::new(last + 500_000);
        kernel.refund(&mut state, later, 2);
        assert_eq!(kernel.used(&state, later), 0, "{words}: the other one is given back");
        assert_eq!(kernel.used(&state, Micros::new(last)), 1, "{words}: by a clock that went back");
    }
}

#[test]
fn a_state_is_healed_that_is_more_than_the_climb_and_a_second_ahead() {
    let quick = WarmUp::new(2, Duration::from_millis(10)).expect("a warm-up");
    let quick = Warming::new("12/s".parse().expect("a limit"), quick).expect("something to climb");
    for (kernel, ahead) in [(warming("12/s"), 100_000_000), (quick, MIN_GRACE)] {
        let mut state = WarmingState::default();
        kernel.charge(&mut state, Micros::new(START), 1);
        assert_eq!(kernel.heal(&state, Micros::new(START - ahead)), None);
        let now = Micros::new(START - ahead - 1);
        let full = kernel.heal(&state, now).expect("too far ahead");
        assert_eq!(kernel.read(&full, now).remaining, 0);
        assert_eq!((full.born, full.last), (now.get(), now.get()));
    }
}

#[test]
#[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
fn a_healed_key_is_as_full_as_a_warm_one_can_be() {
    // A healed key may have used the whole limit: it must not get it again when the climb is over.
    for words in
        ["12/min", "leaky 12/min", "fixed 12/min", "fixed 12/min from-first", "sliding 12/min", "sliding-log 12/min"]
    {
        let warm_up = WarmUp::new(2, Duration::from_secs(2)).expect("a warm-up");
        let kernel = Warming::new(words.parse().expect("a limit"), warm_up).expect("something to climb");
        let mut state = WarmingState::default();
        let charged_at = START - START % 60_000_000 + 30_000_000;
        assert!(take(&kernel, &mut state, charged_at - 2_000_000, 1));
        let passed = 1 + (0..20).filter(|_| take(&kernel, &mut state, charged_at, 1)).count();
        assert!(passed >= 11, "{words}: warm by now");
        let behind = charged_at - 20_000_000;
        assert!(kernel.heal(&state, Micros::new(behind)).is_some());
        let again = (0..50).filter(|part| take(&kernel, &mut state, behind + part * 100_000, 1)).count();
        assert!(again <= 1, "{words}: {again} more in five seconds after a clock went back");
    }
}

#[test]
fn a_report_of_a_new_key_is_owed_up_to_the_debt_of_the_limit() {
    for words in ALGORITHMS {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        assert_eq!(kernel.report(&mut state, Micros::new(START), 20), 0, "{words}");
        assert_eq!(kernel.report(&mut state, Micros::new(START), 7), 3, "{words}");
        assert_eq!(kernel.read(&state, Micros::new(START)).remaining, 0, "{words}");
        let Admission::Wait { retry_after } = kernel.admit(&state, Micros::new(START), 1) else {
            panic!("{words}: admitted in debt")
        };
        let then = START + retry_after.get();
        let is_admitted = |now| matches!(kernel.admit(&state, Micros::new(now), 1), Admission::Pass { .. });
        assert!(is_admitted(then) && !is_admitted(then - 1), "{words}: {retry_after:?}");
    }
}

#[test]
fn bytes_that_are_no_state_are_refused() {
    let latest = Micros::LATEST.get();
    let bytes = |born: u64, last: u64, use_: &[u8]| [&born.to_le_bytes()[..], &last.to_le_bytes(), use_].concat();
    let kernel = warming("12/s");
    let level = |level: u128| level.to_le_bytes();
    let known = [(0, 0, 0), (1, 1, 24_000_000), (1, 2, 1), (latest, latest, 1)];
    for (born, last, used) in known {
        let state = WarmingState { born, last, use_: Use::Level(used) };
        assert_eq!(kernel.decode(&bytes(born, last, &level(used))), Some(state));
    }
    for (born, last, used) in [(2, 1, 1), (1, latest + 1, 1), (1, 1, 24_000_001)] {
        assert_eq!(kernel.decode(&bytes(born, last, &level(used))), None, "{born} {last} {used}");
    }
    assert_eq!(kernel.decode(&bytes(1, 1, &level(1)[..15])), None);
    assert_eq!(kernel.decode(&[1; 15]), None);
}

#[test]
fn a_state_that_no_climb_leads_to_has_nothing_left_and_overflows_nothing() {
    // Its own count would be twelve, a new key's is two.
    for words in ALGORITHMS {
        let (kernel, mut state) = (warming(words), WarmingState::default());
        kernel.charge(&mut state, Micros::new(START), 12);
        assert_eq!(kernel.read(&state, Micros::new(START)).remaining, 0, "{words}");
        assert_eq!(kernel.used(&state, Micros::new(START)), 12, "{words}");
    }
    // Microseconds of a window that begins at a tick far ahead.
    let warm_up = WarmUp::new(1, Duration::from_secs(1)).expect("a warm-up");
    let widest = Limit::sliding_counter(Limit::MAX_COUNT, Limit::MAX_PERIOD);
    let kernel = Warming::new(widest, warm_up).expect("something to climb");
    let words = [START, START, (1 << 53) - 1, 1, 0];
    assert_eq!(kernel.decode(&words.map(u64::to_le_bytes).concat()), None);
}

/// A state after a charge of 2, which is all that a new key gets.
fn charged_two(kernel: &Warming, now: u64) -> (WarmingState, Charged) {
    let mut state = WarmingState::default();
    assert!(take(kernel, &mut state, now, 2));
    (state, Charged { at: Micros::new(now), cost: 2 })
}

#[test]
fn a_charge_is_corrected_whatever_the_algorithm() {
    for words in ALGORITHMS {
        let kernel = warming(words);
        for (kept, remaining) in [(0, 2), (1, 1)] {
            let (mut state, charged) = charged_two(&kernel, START);
            kernel.undo(&mut state, Micros::new(START), charged, kept);
            assert_eq!(kernel.read(&state, Micros::new(START)).remaining, remaining, "{words}, {kept} kept");
        }
    }
}

#[test]
fn a_partial_refund_counts_drained_units_as_kept() {
    let kernel = warming("12/s");
    // In a quarter of a second half a unit has drained.
    let now = Micros::new(START + 250_000);
    for (kept, used) in [(0, 0), (1, 500_000)] {
        let (mut state, charged) = charged_two(&kernel, START);
        kernel.undo(&mut state, now, charged, kept);
        assert_eq!(kernel.level(&state, now.get()), used, "{kept} kept");
    }
}

#[test]
fn a_charge_that_has_drained_gives_nothing_of_another_back() {
    let kernel = warming("12/s");
    // Of a key that is still known, and of one that was forgotten and is new again.
    for seconds in [2, 300] {
        let (mut state, charged) = charged_two(&kernel, START);
        let now = START + seconds * 1_000_000;
        assert!(take(&kernel, &mut state, now, 2));
        let before = state.clone();
        kernel.undo(&mut state, Micros::new(now), charged, 0);
        assert_eq!(state, before, "after {seconds} s");
    }
}

#[test]
fn only_a_log_knows_whether_a_charge_is_still_there() {
    for words in ALGORITHMS {
        let kernel = warming(words);
        let (state, charged) = charged_two(&kernel, START);
        let is_there = |now, charged| kernel.is_there(&state, Micros::new(now), charged);
        assert_eq!(is_there(START + 999_999, charged), words.contains("log"), "{words}");
        assert!(!is_there(START + 1_000_000, charged), "{words}: it has expired");
        assert!(!is_there(START, Charged { at: Micros::new(START + 1), ..charged }), "{words}: it is another");
    }
}

#[test]
fn a_state_is_ahead_of_a_clock_that_went_back() {
    let kernel = warming("12/s");
    let (state, _) = charged_two(&kernel, START);
    let ahead = |now| kernel.ahead(&state, Micros::new(now)).get();
    assert_eq!([START - 7, START, START + 7].map(ahead), [7, 0, 0]);
    assert_eq!(kernel.ahead(&WarmingState::default(), Micros::new(START)), Micros::ZERO);
}

#[test]
fn a_level_above_the_debt_records_nothing_more() {
    let kernel = warming("12/s");
    let mut state = WarmingState { born: START, last: START, use_: Use::Level(kernel.ceiling() + 1) };
    let before = state.clone();
    assert_eq!((kernel.report(&mut state, Micros::new(START), 3), state), (3, before));
}
