//! The script beside the oracle, without a server: the very text that is sent
//! runs in Lua 5.1 on a small keyspace, millions of times.
//!
//! What a real server adds, and whether it does what the keyspace here
//! believes, `tests/twin.rs` and `tests/conformance.rs` of `tidegate-redis` show.

mod account;
mod calendar;
mod debt;
mod expiry;
mod former;
mod heal;
pub(crate) mod host;
pub(crate) mod keyspace;
mod mutants;
mod once;
mod settings;
mod store;
mod strict;
mod sums;
mod swap;
mod told;
mod undo;

use std::time::Duration;

use tidegate::{Algorithm, Limit};
use tidegate_testkit::{Differential, Tally};

use self::store::EmbeddedStore;

/// Limits of all kinds that a few requests use up, and three for many: two of
/// them see time in coarse steps. Two drain units in a microsecond.
const LIMITS: [Limit; 14] = [
    Limit::per_second(5),
    Limit::token_bucket(7, Duration::from_secs(3)).burst(4),
    Limit::token_bucket(1_009, Duration::from_millis(997)).burst(6),
    Limit::token_bucket(7, Duration::from_micros(4)).burst(9),
    Limit::token_bucket(1_000_003, Duration::from_secs(86_400)),
    Limit::leaky_bucket(3, Duration::from_secs(1)).queue(5),
    Limit::leaky_bucket(2, Duration::from_micros(5)).queue(4),
    Limit::fixed_window(5, Duration::from_secs(10)),
    Limit::fixed_window(4, Duration::from_micros(6_999_997)).from_first_request(),
    Limit::sliding_log(5, Duration::from_secs(10)),
    Limit::sliding_log(1_000, Duration::from_micros(999_983)),
    Limit::sliding_counter(5, Duration::from_secs(10)),
    Limit::sliding_counter(7, Duration::from_micros(8_999_993)),
    Limit::sliding_counter(1_000_003, Duration::from_secs(86_400)),
];

/// The same, and one by the calendar.
fn limits() -> Vec<Limit> {
    LIMITS.into_iter().chain(["5/hour in UTC".parse().expect("a limit")]).collect()
}

/// An instant of no importance, in 2023.
const START: u64 = 1_700_000_003_123_457;

tidegate_testkit::conformance!(embedded, EmbeddedStore::manual);

#[test]
fn fixed_windows_of_one_period_count_together() {
    tidegate_testkit::conformance::fixed_windows_of_one_period_count_together(&EmbeddedStore::manual);
}

/// Decisions for each algorithm, and for all together: a sixth of what is wanted.
fn decisions() -> u64 {
    std::env::var("TIDEGATE_DECISIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(600_000) / 6
}

fn seed() -> u64 {
    std::env::var("TIDEGATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

/// Asks the script and the oracle so many requests.
fn compare(algorithms: &[Algorithm], decisions: u64) -> Tally {
    let differential = Differential { algorithms, decisions, seed: seed() };
    differential.run(EmbeddedStore::manual).unwrap_or_else(|difference| panic!("{difference}"))
}

fn compare_and_tell(algorithms: &[Algorithm]) {
    println!("{algorithms:?} in Lua: {}", compare(algorithms, decisions()));
}

#[test]
fn token_buckets_decide_as_the_oracle_does() {
    compare_and_tell(&[Algorithm::TokenBucket]);
}

#[test]
fn leaky_buckets_decide_as_the_oracle_does() {
    compare_and_tell(&[Algorithm::LeakyBucket]);
}

#[test]
fn fixed_windows_decide_as_the_oracle_does() {
    compare_and_tell(&[Algorithm::FixedWindow]);
}

#[test]
fn sliding_logs_decide_as_the_oracle_does() {
    compare_and_tell(&[Algorithm::SlidingLog]);
}

#[test]
fn sliding_counters_decide_as_the_oracle_does() {
    compare_and_tell(&[Algorithm::SlidingCounter]);
}

#[test]
fn all_algorithms_in_one_slice_decide_as_the_oracle_does() {
    compare_and_tell(&Algorithm::ALL);
}
