//! Random limits: the usual ones, and those at every edge of what can be
//! kept.

use std::time::Duration;

use tidegate::{Algorithm, Calendar, Limit};

use crate::random::Random;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const MAX_PERIOD: u64 = 3_650 * DAY;

/// The usual periods, and the longest.
const PERIODS: [u64; 8] = [1_000, SECOND, 10 * SECOND, 60 * SECOND, 3_600 * SECOND, DAY, 7 * DAY, MAX_PERIOD];

/// Primes have no factor in common with anything: no product is ever reduced.
const PRIMES: [u64; 8] = [7, 97, 2_039, 2_053, 65_537, 999_983, 1_000_000_007, 999_999_999_989];

/// Counts beside which a store may keep a state in another way: where 11 bits
/// end.
const EDGES: [u64; 6] = [2_046, 2_047, 2_048, 2_049, 4_095, 4_096];

/// A limit of one of `algorithms`.
pub(super) fn limit(random: &mut Random, algorithms: &[Algorithm]) -> Limit {
    loop {
        let algorithm = random.choose(algorithms);
        // Now and then one whose products are certain not to fit.
        let (count, period) = match random.percent(8) {
            true => (random.choose(&PRIMES[5..]), random.choose(&PERIODS[5..])),
            false => (count(random), period(random)),
        };
        if algorithm == Algorithm::FixedWindow && random.percent(30) {
            return Limit::try_calendar(count, calendar(random)).expect("a count within bounds");
        }
        let period = Duration::from_micros(period);
        let limit = Limit::try_new(algorithm, count, period).expect("count and period are within bounds");
        let limit = match algorithm {
            Algorithm::TokenBucket if random.percent(50) => limit.try_burst(self::count(random)),
            Algorithm::LeakyBucket if random.percent(50) => limit.try_queue(self::count(random)),
            Algorithm::FixedWindow if random.percent(40) => limit.try_from_first_request(),
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::FixedWindow
            | Algorithm::SlidingLog
            | Algorithm::SlidingCounter => Ok(limit),
        };
        // Only a bucket that would take a lifetime to refill is refused.
        if let Ok(limit) = limit {
            return limit;
        }
    }
}

/// Zones where clocks are changed by an hour, by half an hour, by two, at midnight, and never;
/// and one that skipped a day.
const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/Havana",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Apia",
];

fn calendar(random: &mut Random) -> Calendar {
    let hour = random.choose(&["", " 00:00", " 02:00", " 23:00"]);
    let words = match random.within(0..=5) {
        0 => "hour".to_owned(),
        1 => format!("day from{}", if hour.is_empty() { " 01:00" } else { hour }),
        2 => format!("week from {}{hour}", random.choose(&["monday", "thursday", "sunday"])),
        3 => format!("month from day {}{hour}", random.choose(&[1, 15, 29, 31])),
        4 => format!("quarter from {}{hour}", random.choose(&["01-01", "02-29", "03-31"])),
        _ => format!("year from {}{hour}", random.choose(&["01-01", "02-29", "07-01"])),
    };
    format!("{words} in {}", random.choose(&ZONES)).parse().expect("a calendar")
}

fn count(random: &mut Random) -> u64 {
    match random.within(0..=9) {
        0 => 1,
        1..=3 => random.within(1..=10),
        4 | 5 => random.within(1..=2_100),
        6 => random.choose(&EDGES),
        7 => random.choose(&PRIMES),
        8 => random.magnitude(1..=1_000_000),
        _ => random.magnitude(1..=Limit::MAX_COUNT),
    }
}

fn period(random: &mut Random) -> u64 {
    match random.within(0..=9) {
        0 => random.within(1..=20),
        1 => random.magnitude(1..=SECOND),
        2..=5 => random.choose(&PERIODS),
        6 => random.choose(&PRIMES),
        7 => random.within(1..=100) * SECOND,
        _ => random.magnitude(1..=MAX_PERIOD),
    }
}
