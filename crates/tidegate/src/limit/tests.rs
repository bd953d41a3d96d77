use super::*;

const MAX: u64 = Limit::MAX_COUNT;
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_limit_says_what_it_was_made_of() {
    let made = [
        (Limit::per_second(7), "7/s"),
        (Limit::per_minute(7), "7/min"),
        (Limit::per_hour(7), "7/h"),
        (Limit::per_day(7), "7/day"),
        (Limit::token_bucket(7, 2 * SECOND).burst(9), "7/2s burst 9"),
        (Limit::leaky_bucket(7, 2 * SECOND).queue(9), "leaky 7/2s queue 9"),
        (Limit::fixed_window(7, 2 * SECOND), "fixed 7/2s"),
        (Limit::fixed_window(7, 2 * SECOND).from_first_request(), "fixed 7/2s from-first"),
        (Limit::sliding_log(7, 2 * SECOND), "sliding-log 7/2s"),
        (Limit::sliding_counter(7, 2 * SECOND), "sliding-counter 7/2s"),
    ];
    for (limit, words) in made {
        assert_eq!(words.parse(), Ok(limit));
        assert_eq!((limit.to_string().as_str(), limit.count()), (words, 7));
        assert_eq!(limit.starts_with_first_request(), words.ends_with("from-first"), "{words}");
        assert_eq!(limit.capacity(), if words.ends_with('9') { 9 } else { 7 }, "{words}");
    }
    let tried = [Limit::try_per_second(7), Limit::try_per_minute(7), Limit::try_per_hour(7), Limit::try_per_day(7)];
    assert!(tried.into_iter().eq(made.iter().take(4).map(|(limit, _)| Ok(*limit))));
    let periods = made.map(|(limit, _)| limit.period().as_secs());
    assert_eq!(periods, [1, 60, 3_600, 86_400, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn debt_is_one_capacity_unless_it_is_set() {
    let debts = ["5/s", "5/s burst 9", "5/s debt 3", "5/s burst 9 debt 0", "leaky 2/s queue 4", "fixed 7/s debt 70"];
    let debts = debts.map(|words| words.parse::<Limit>().expect("a limit"));
    assert_eq!(debts.map(|limit| limit.max_debt()), [5, 9, 3, 0, 4, 70]);
    assert_eq!(Limit::per_second(5).debt(3).burst(9), "5/s burst 9 debt 3".parse().expect("a limit"));
    assert_eq!(Limit::per_second(5).debt(5).to_string(), "5/s debt 5");
    assert_ne!(Limit::per_second(5).debt(5), Limit::per_second(5), "it has another name in a store");
    let two = std::num::NonZeroU32::new(2).expect("not zero");
    let shares = ["10/s", "10/s debt 3", "fixed 10/s debt 3"].map(|words| words.parse::<Limit>().expect("a limit"));
    assert_eq!(shares.map(|limit| limit.share(two).max_debt()), [5, 3, 3]);
    for words in ["5/s debt", "5/s debt x", "5/s debt 1 debt 1", "5/s debt 1 burst 2"] {
        assert!(matches!(words.parse::<Limit>(), Err(ConfigError::Unreadable { .. })), "{words}");
    }
}

#[test]
fn debt_is_bounded_by_what_can_be_counted_exactly() {
    let bound = |words: &str| {
        let limit: Limit = words.parse().expect("a limit");
        let Err(ConfigError::TooLarge { field: "debt", bound, .. }) = limit.try_debt(u64::MAX) else {
            panic!("{words} has no bound")
        };
        assert!(limit.try_debt(bound).is_ok() && limit.try_debt(bound + 1).is_err(), "{words}");
        (limit, bound)
    };
    for words in ["fixed 5/s", "fixed 5/s from-first", "sliding-log 5/s", "1000/us", "sliding 1/us"] {
        assert_eq!(bound(words).1, MAX, "{words}");
    }
    // A bucket: every sum below 2^53, and drained within the longest horizon.
    for words in ["5/s", "1/day", "999983/day", "7/4us burst 9", "1/3650day burst 7", "1000000000000/s"] {
        let (limit, debt) = bound(words);
        let of =
            |debt| Bucket::new(limit.count, limit.period, limit.capacity, false).expect("a bucket").with_debt(debt);
        let fits = |bucket: Bucket| {
            let exact = bucket.ceiling() + 2 * bucket.drain() < 1 << 53;
            exact && bucket.reach() * bucket.tick() <= 1 << 51
        };
        assert!(debt == MAX || fits(of(debt)) && !fits(of(debt + 1)), "{words}: {debt}");
        assert!(fits(of(limit.max_debt())) && limit.max_debt() <= limit.capacity(), "{words}");
    }
    assert_eq!("1/3650day burst 7".parse::<Limit>().expect("a limit").max_debt(), 0, "seventy years is the most");
    // A sliding counter: two windows that owe, and the count of one more.
    for words in ["sliding 5/s", "sliding 1000000000000/s", "sliding 999983/day", "sliding 3/3650day"] {
        let (limit, debt) = bound(words);
        let LimitKernel::Window(window) = limit.kernel() else { panic!("a window") };
        let weight =
            |debt: u64| u128::from(2 * (limit.count + debt) + limit.count) * u128::from(window.period_in_ticks());
        let is_exact = |debt| weight(debt) < 1 << 53;
        assert!(is_exact(debt) && (debt == MAX || !is_exact(debt + 1)), "{words}: {debt}");
        assert!(2 * limit.max_debt() >= limit.count, "{words}: half a count at least");
    }
}

#[test]
fn a_limit_means_what_its_words_say() {
    let kernels = ["2/s", "leaky 2/s", "fixed 2/s", "fixed 2/s from-first", "sliding 2/s", "sliding-log 2/s"]
        .map(|words| words.parse::<Limit>().expect("a limit").kernel());
    let bucket = |queues| LimitKernel::Bucket(Bucket::new(2, 1_000_000, 2, queues).expect("a bucket").with_debt(2));
    let window = |style| LimitKernel::Window(Window::new(2, 1_000_000, style).with_debt(2));
    let [fixed, from_first, sliding] = [Style::FixedFromEpoch, Style::FixedFromFirst, Style::Sliding].map(window);
    let log = LimitKernel::Log(Log::new(2, 1_000_000).with_debt(2));
    assert_eq!(kernels, [bucket(false), bucket(true), fixed, from_first, sliding, log]);
    let resolutions = ["9/s", "999983/day", "sliding 999983/day", "sliding-log 999983/day"];
    let resolutions = resolutions.map(|words| words.parse::<Limit>().expect("a limit").resolution().as_micros());
    assert_eq!(resolutions, [1, 10, 100, 1]);
}

#[test]
fn the_largest_numbers_are_taken_and_no_larger_ones() {
    let longest = Limit::MAX_PERIOD;
    let too_long = longest + Duration::from_micros(1);
    for algorithm in Algorithm::ALL {
        for (count, period) in [(1, Duration::from_micros(1)), (MAX, SECOND), (MAX, longest), (1, longest)] {
            assert!(Limit::try_new(algorithm, count, period).is_ok(), "{algorithm:?} {count} {period:?}");
        }
        let zero = |field| Err(ConfigError::Zero { field });
        let large = |field, value, bound| Err(ConfigError::TooLarge { field, value, bound });
        let (period, bound) = ("period in microseconds", 315_360_000_000_000);
        assert_eq!(Limit::try_new(algorithm, 0, SECOND), zero("count"));
        assert_eq!(Limit::try_new(algorithm, MAX + 1, SECOND), large("count", u128::from(MAX) + 1, MAX));
        assert_eq!(Limit::try_new(algorithm, 1, Duration::ZERO), zero(period));
        assert_eq!(Limit::try_new(algorithm, 1, Duration::from_nanos(999)), zero(period));
        assert_eq!(Limit::try_new(algorithm, 1, too_long), large(period, u128::from(bound) + 1, bound));
    }
}

#[test]
fn only_its_own_settings_apply_to_an_algorithm() {
    for algorithm in Algorithm::ALL {
        let limit = Limit::try_new(algorithm, 1_000_000_000, SECOND).expect("a limit");
        let other = |field, instead| ConfigError::NotApplicable { field, algorithm, instead };
        let bursts = limit.try_burst(MAX).map(|limit| limit.capacity());
        let queues = limit.try_queue(MAX).map(|limit| limit.capacity());
        let starts = limit.try_from_first_request().map(|limit| limit.starts_with_first_request());
        let is = |kind| algorithm == kind;
        let [token, leaky, fixed] = [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::FixedWindow];
        assert_eq!(bursts, if is(token) { Ok(MAX) } else { Err(other("burst", token)) });
        assert_eq!(queues, if is(leaky) { Ok(MAX) } else { Err(other("queue", leaky)) });
        assert_eq!(starts, if is(fixed) { Ok(true) } else { Err(other("from-first", fixed)) });
    }
    let limit = Limit::per_second(7);
    assert_eq!(limit.try_burst(0), Err(ConfigError::Zero { field: "burst" }));
    let (value, bound) = (u128::from(MAX) + 1, MAX);
    assert_eq!(limit.try_burst(MAX + 1), Err(ConfigError::TooLarge { field: "burst", value, bound }));
    let (burst, count, period) = (MAX, 1, SECOND);
    assert_eq!(Limit::per_second(1).try_burst(MAX), Err(ConfigError::TooSlow { burst, count, period }));
}
