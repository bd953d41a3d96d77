//! Limits in words: what is printed parses back, and what does not parse is
//! told in words too.

use std::collections::HashMap;
use std::time::Duration;

use tidegate::{Algorithm, ConfigError, Limit};
use tidegate_testkit::Random;

const CASES: u64 = 2_000;

/// Numbers of every size.
fn number(random: &mut Random, most: u64) -> u64 {
    let most = random.choose(&[most.min(20), most.min(100_000), most]);
    random.within(1..=most)
}

/// Every limit that can be made, so many of them.
fn limits(seed: u64) -> impl Iterator<Item = Limit> {
    let mut random = Random::new(seed);
    // A bucket must not take a lifetime to refill.
    std::iter::repeat_with(move || limit(&mut random)).flatten().take(CASES as usize)
}

fn limit(random: &mut Random) -> Option<Limit> {
    let algorithm = random.choose(&Algorithm::ALL);
    let units = [1, 1_000, 1_000_000, 60_000_000, 86_400_000_000];
    let period = match random.percent(50) {
        true => number(random, Limit::MAX_PERIOD.as_micros() as u64),
        false => random.within(1..=50) * random.choose(&units),
    };
    let limit = Limit::try_new(algorithm, number(random, Limit::MAX_COUNT), Duration::from_micros(period)).ok()?;
    let setting = random.percent(50).then(|| number(random, Limit::MAX_COUNT));
    match (algorithm, setting) {
        (Algorithm::TokenBucket, Some(burst)) => limit.try_burst(burst).ok(),
        (Algorithm::LeakyBucket, Some(queue)) => limit.try_queue(queue).ok(),
        (Algorithm::FixedWindow, Some(_)) => limit.try_from_first_request().ok(),
        (_, None) | (Algorithm::SlidingLog | Algorithm::SlidingCounter, Some(_)) => Some(limit),
    }
}

#[test]
fn a_printed_limit_parses_back_to_itself() {
    for limit in limits(1) {
        assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
    }
}

#[test]
fn different_limits_have_different_words() {
    let by_words: HashMap<String, Limit> = limits(2).map(|limit| (limit.to_string(), limit)).collect();
    for limit in limits(2) {
        assert_eq!(by_words[&limit.to_string()], limit);
    }
}

#[test]
fn spaces_and_underscores_change_nothing() {
    for limit in limits(3) {
        let words = limit.to_string();
        let spaced = format!("  {}\t\n", words.replace(' ', "   "));
        assert_eq!(spaced.parse::<Limit>(), Ok(limit));
        let (before, rate) = words.split_once('/').expect("every limit has a rate");
        let is_number = rate.starts_with(|first: char| first.is_ascii_digit());
        assert_eq!(format!("{before}_/_{rate}").parse::<Limit>().is_ok(), is_number, "{words}");
    }
}

#[test]
fn any_text_parses_or_is_refused_without_a_panic() {
    let random = &mut Random::new(4);
    for _ in 0..CASES {
        let letters = (0..random.within(0..=40)).map(|_| random.magnitude(0..=0x10_ffff) as u32);
        let text: String = letters.filter_map(char::from_u32).collect();
        let _ = text.parse::<Limit>();
    }
}

#[test]
fn almost_a_limit_parses_or_is_refused_without_a_panic() {
    let words = [
        "token-bucket",
        "leaky",
        "fixed",
        "sliding-log",
        "sliding",
        "10/s",
        "5/10min",
        "1/0s",
        "0/s",
        "7/us",
        "/s",
        "9/",
        "burst",
        "queue",
        "from-first",
        "0",
        "1",
        "99999999999999999999",
        "1000000000000",
        "-1",
        "1.5",
        "/",
    ];
    let random = &mut Random::new(5);
    for _ in 0..CASES {
        let some: Vec<&str> = (0..random.within(0..=5)).map(|_| random.choose(&words)).collect();
        if let Ok(limit) = some.join(" ").parse::<Limit>() {
            assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }
    }
}

#[test]
fn time_is_coarsened_only_where_the_products_do_not_fit() {
    for limit in limits(6) {
        let largest = u128::from(limit.capacity().max(limit.count()));
        // A sliding counter adds up to three windows' worth.
        let product = 4 * largest * limit.period().as_micros();
        let tick = limit.resolution().as_micros();
        assert!(tick == 1 || product >= 1 << 53, "{limit} in steps of {tick} us");
        assert_eq!(10u128.pow(tick.ilog10()), tick, "{limit} is in steps of no power of ten");
        assert!(tick == 1 || !matches!(limit.algorithm(), Algorithm::FixedWindow | Algorithm::SlidingLog));
    }
}

#[test]
fn every_spelling_of_a_limit_is_the_same_limit() {
    let table = [
        (
            "100/min",
            vec!["100/minute", "100/1min", "100/60s", "100/60_000ms", "token 100/m", "token-bucket 100/minutes"],
        ),
        ("10/s burst 20", vec!["10/sec burst 20", "10/1second burst 2_0", "token 10/1000ms burst 20"]),
        ("10/s", vec!["10/s burst 10", "1_0/seconds"]),
        ("leaky 2/s queue 8", vec!["leaky-bucket 2/s queue 8", "leaky 2/1000000us queue 8"]),
        ("leaky 2/s", vec!["leaky 2/s queue 2"]),
        ("fixed 1000/day", vec!["fixed-window 1_000/d", "fixed 1000/24h", "fixed 1000/24hours", "fixed 1000/days"]),
        ("fixed 1000/h from-first", vec!["fixed-window 1000/hour from-first"]),
        ("sliding-log 5/10s", vec!["log 5/10s", "sliding-log 5/10seconds"]),
        ("sliding-counter 5/2week", vec!["sliding 5/14d", "sliding 5/2w", "sliding-counter 5/2weeks"]),
        ("7/1500us", vec!["7/1500microseconds"]),
        ("7/15ms", vec!["7/15milliseconds", "7/15000us"]),
    ];
    for (shortest, spellings) in table {
        let limit: Limit = shortest.parse().unwrap_or_else(|error| panic!("{shortest}: {error}"));
        assert_eq!(limit.to_string(), shortest);
        for spelling in spellings {
            assert_eq!(spelling.parse(), Ok(limit), "{spelling}");
        }
    }
}

#[test]
fn an_invalid_limit_is_refused_with_what_to_do() {
    let a_rate = "expected a rate such as 100/min, found";
    let an_algorithm =
        "expected an algorithm (token-bucket, leaky, fixed, sliding-log, sliding-counter), in-flight or a rate, found";
    let a_unit = "expected a unit (us, ms, s, min, h, day, week), found";
    let an_end = "expected burst N, queue N, from-first, debt N or the end, found";
    let unreadable = [
        ("", a_rate, ""),
        ("   ", a_rate, ""),
        ("100", a_rate, "100"),
        ("/s", a_rate, ""),
        ("-5/s", a_rate, "-5"),
        ("1.5/s", a_rate, "1.5"),
        ("+5/s", a_rate, "+5"),
        ("５/s", a_rate, "５"),
        ("_/s", a_rate, "_"),
        ("fixed", a_rate, ""),
        ("fixed window 5/s", a_rate, "window"),
        ("bucket 5/s", an_algorithm, "bucket"),
        ("Fixed 5/s", an_algorithm, "Fixed"),
        ("per second", an_algorithm, "per"),
        ("5/", a_unit, ""),
        ("5/10", a_unit, ""),
        ("5/fortnight", a_unit, "fortnight"),
        ("5/1.5s", a_unit, ".5s"),
        ("5/-1s", a_unit, "-1s"),
        ("5/S", a_unit, "S"),
        ("5/s/s", a_unit, "s/s"),
        ("5/_s", "expected a period such as 10s, found", "_"),
        ("5/s bursts 5", an_end, "bursts"),
        ("5/s 5", an_end, "5"),
        ("5/s burst", "expected a number after burst, found", ""),
        ("5/s burst many", "expected a number after burst, found", "many"),
        ("leaky 5/s queue -1", "expected a number after queue, found", "-1"),
        ("5/s burst 5 queue 5", "expected debt N or the end, found", "queue"),
        ("fixed 5/s from-first please", "expected debt N or the end, found", "please"),
    ];
    for (text, expected, found) in unreadable {
        let error = text.parse::<Limit>().expect_err(text);
        assert_eq!(error.to_string(), format!("cannot read {text:?} as a limit: {expected} {found:?}"));
    }
    let nonsense = [
        ("0/s", "count is zero: give at least 1"),
        ("5/0s", "period in microseconds is zero: give at least 1"),
        ("5/s burst 0", "burst is zero: give at least 1"),
        ("leaky 5/s queue 0", "queue is zero: give at least 1"),
        ("1000000000001/s", "count is 1000000000001: give at most 1000000000000"),
        ("99999999999999999999/s", "count is 18446744073709551615: give at most 1000000000000"),
        ("18446744073709552k/s", "count is 18446744073709551615: give at most 1000000000000"),
        ("5/s burst 1000000000001", "burst is 1000000000001: give at most 1000000000000"),
        ("5/522week", "period in microseconds is 315705600000000: give at most 315360000000000"),
        ("5/99999999999999999999week", "period in microseconds is 18446744073709551615: give at most 315360000000000"),
        ("leaky 5/s burst 5", "burst does not apply to leaky: leave it out, or choose token-bucket"),
        ("fixed 5/s burst 5", "burst does not apply to fixed: leave it out, or choose token-bucket"),
        ("5/s queue 5", "queue does not apply to token-bucket: leave it out, or choose leaky"),
        ("sliding-log 5/s queue 5", "queue does not apply to sliding-log: leave it out, or choose leaky"),
        ("sliding 5/s from-first", "from-first does not apply to sliding-counter: leave it out, or choose fixed"),
        (
            "1/day burst 30000",
            "a burst of 30000 at 1 per 86400s takes more than 71 years to refill: lower the burst or raise the rate",
        ),
    ];
    for (text, message) in nonsense {
        let error = text.parse::<Limit>().expect_err(text);
        assert!(!matches!(error, ConfigError::Unreadable { .. }), "{text}: {error}");
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn the_slash_may_be_spaced_or_a_word_and_numbers_short() {
    for (words, printed) in [
        ("5 / s", "5/s"),
        ("5 per minute", "5/min"),
        ("5/ min", "5/min"),
        ("sliding-log 3 per 10s", "sliding-log 3/10s"),
        ("1k/s burst 2M", "1000/s burst 2000000"),
        ("leaky 2 / s queue 1k", "leaky 2/s queue 1000"),
    ] {
        assert_eq!(words.parse::<Limit>().expect(words).to_string(), printed, "{words}");
    }
    for words in ["5 / / s", "5 per", "per minute", "k/s", "1kk/s", "1K/s", "5 per per s"] {
        assert!(words.parse::<Limit>().is_err(), "{words}");
    }
}

#[test]
fn a_limit_on_requests_in_flight_has_words_of_its_own() {
    for (words, seconds) in [("in-flight 20 for 1min", 60), ("in-flight 1 for 90s", 90), ("in-flight 3 for 2h", 7_200)]
    {
        let limit: Limit = words.parse().expect("a limit");
        assert_eq!((limit.to_string().as_str(), limit.period().as_secs()), (words, seconds));
        assert!(
            limit.is_in_flight() && limit.max_debt() == 0 && limit == Limit::in_flight(limit.count(), limit.period())
        );
        assert_ne!(limit, Limit::sliding_log(limit.count(), limit.period()));
    }
    assert_eq!("in-flight 2k for 60s".parse::<Limit>(), Ok(Limit::in_flight(2_000, Duration::from_secs(60))));
    let an_expiry = "expected for and a time after which a permit expires, such as for 60s, found";
    for (words, expected) in [
        ("in-flight", "expected a number after in-flight, found \"\"".to_owned()),
        ("in-flight 20", format!("{an_expiry} \"\"")),
        ("in-flight 20 within 60s", format!("{an_expiry} \"within\"")),
        ("in-flight 20/min", "expected a number after in-flight, found \"20/min\"".to_owned()),
        ("in-flight 20 for 60s debt 5", "expected the end, found \"debt\"".to_owned()),
    ] {
        let error = words.parse::<Limit>().expect_err("no limit").to_string();
        assert!(error.ends_with(&expected), "{error}");
    }
    assert!("in-flight 0 for 60s".parse::<Limit>().is_err());
    assert!(Limit::in_flight(2, Duration::from_secs(60)).try_debt(1).is_err());
}
