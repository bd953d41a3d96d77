//! The memory store beside the oracle: millions of random decisions, every
//! field of every verdict the same.
//!
//! `TIDEGATE_DECISIONS` sets how many in all, `TIDEGATE_SEED` where to start.

use tidegate::{Algorithm, Limit, ManualClock, MemoryStore};
use tidegate_testkit::{Differential, Tally};

/// How many tests share the decisions.
const TESTS: u64 = 6;

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: give a whole number")),
        Err(_) => usual,
    }
}

fn compare(algorithms: &[Algorithm], test: u64) -> Tally {
    let decisions = setting("TIDEGATE_DECISIONS", 10_000_000).div_ceil(TESTS);
    let seed = setting("TIDEGATE_SEED", 20_240_229);
    let store = || {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
        (store.expect("valid settings"), clock)
    };
    let differential = Differential { algorithms, decisions, seed: seed.wrapping_mul(TESTS).wrapping_add(test) };
    match differential.run(store) {
        Ok(tally) => {
            println!("{algorithms:?}: {tally}");
            tally
        }
        Err(difference) => panic!("TIDEGATE_SEED={seed}: {difference}"),
    }
}

/// That the comparison met what it is for: refusals, healing, both layouts of
/// a state, and times too coarse for a microsecond.
fn assert_that_it_meets(tally: &Tally, kinds: &[fn(&Limit) -> bool]) {
    // A few scenarios need not be typical.
    if tally.decisions < 100_000 {
        return;
    }
    let refused = tally.refused * 100 / tally.charges;
    assert!((25..=42).contains(&refused), "{refused} % of the charges were refused");
    assert!(tally.tried > tally.refused / 2, "too few waits were tried out");
    assert!(tally.healed > tally.decisions / 1_000, "too few states from the future");
    for (index, kind) in kinds.iter().enumerate() {
        let share = tally.limits.iter().filter(|limit| kind(limit)).count() * 100 / tally.limits.len();
        assert!(share >= 5, "only {share} % of the limits are of kind {index}");
    }
}

fn is_coarse(limit: &Limit) -> bool {
    limit.resolution().as_micros() > 1
}

/// Whether a bucket's fraction of a microsecond fits into 11 bits.
fn is_narrow_bucket(limit: &Limit) -> bool {
    let (count, period) = (u128::from(limit.count()), limit.period().as_micros());
    let (mut divisor, mut rest) = (count, period);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    count / divisor <= 2_048 && !is_coarse(limit)
}

/// Whether a window's count fits into 11 bits.
fn is_narrow_window(limit: &Limit) -> bool {
    limit.count() < 2_048
}

#[test]
fn token_buckets_decide_as_the_oracle_does() {
    let tally = compare(&[Algorithm::TokenBucket], 0);
    assert_that_it_meets(&tally, &[is_coarse, is_narrow_bucket, |limit| !is_narrow_bucket(limit)]);
}

#[test]
fn leaky_buckets_decide_as_the_oracle_does() {
    let tally = compare(&[Algorithm::LeakyBucket], 1);
    assert_that_it_meets(&tally, &[is_coarse, is_narrow_bucket, |limit| !is_narrow_bucket(limit)]);
}

#[test]
fn fixed_windows_decide_as_the_oracle_does() {
    let tally = compare(&[Algorithm::FixedWindow], 2);
    let kinds: [fn(&Limit) -> bool; 3] =
        [is_narrow_window, |limit| !is_narrow_window(limit), Limit::starts_with_first_request];
    assert_that_it_meets(&tally, &kinds);
}

#[test]
fn sliding_logs_decide_as_the_oracle_does() {
    let tally = compare(&[Algorithm::SlidingLog], 3);
    assert_that_it_meets(&tally, &[]);
}

#[test]
fn sliding_counters_decide_as_the_oracle_does() {
    let tally = compare(&[Algorithm::SlidingCounter], 4);
    assert_that_it_meets(&tally, &[is_coarse, |limit| !is_coarse(limit)]);
}

#[test]
fn limits_of_all_algorithms_together_decide_as_the_oracle_does() {
    let tally = compare(&Algorithm::ALL, 5);
    assert_that_it_meets(&tally, &[is_narrow_bucket, is_narrow_window]);
    assert!(tally.slices > tally.decisions / 50, "too few slices");
}
