//! The script beside the oracle, on a real server: every field of every verdict.

use crate::support;
use tidegate::Algorithm;
use tidegate_testkit::Differential;

/// Decisions in all: a fifth for each algorithm, as many for all together.
fn decisions() -> u64 {
    std::env::var("TIDEGATE_REDIS_DECISIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(240_000)
}

fn seed() -> u64 {
    std::env::var("TIDEGATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

fn compare(algorithms: &[Algorithm]) {
    let differential = Differential { algorithms, decisions: decisions() / 6, seed: seed() };
    match differential.run(support::manual_store) {
        Ok(tally) => println!("{algorithms:?} on {}: {tally}", support::SERVER.program().version()),
        Err(difference) => panic!("{difference}"),
    }
}

#[test]
fn token_buckets_decide_as_the_oracle_does() {
    compare(&[Algorithm::TokenBucket]);
}

#[test]
fn leaky_buckets_decide_as_the_oracle_does() {
    compare(&[Algorithm::LeakyBucket]);
}

#[test]
fn fixed_windows_decide_as_the_oracle_does() {
    compare(&[Algorithm::FixedWindow]);
}

#[test]
fn sliding_logs_decide_as_the_oracle_does() {
    compare(&[Algorithm::SlidingLog]);
}

#[test]
fn sliding_counters_decide_as_the_oracle_does() {
    compare(&[Algorithm::SlidingCounter]);
}

#[test]
fn all_algorithms_in_one_slice_decide_as_the_oracle_does() {
    compare(&Algorithm::ALL);
}
