//! Who is admitted, and the arithmetic of it: rows 1 to 22.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{CheckError, ConfigError, Limit, Limiter, MemoryStore, Micros, Request};
use tidegate_testkit::Random;

use crate::{SECOND, START, every_algorithm, limit, limiter, passes, remaining, takes};

/// TerminalWitchcraft/actix-ratelimit#16, Netflix/concurrency-limits#140: the
/// count was read, then compared, then written, and others came between.
#[test]
fn row_01_threads_that_race_get_the_limit_and_no_more() {
    for limit in every_algorithm() {
        let (limiter, _) = limiter(limit);
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| admitted.fetch_add(passes(&limiter, 500), Ordering::Relaxed));
            }
        });
        assert_eq!(admitted.into_inner(), 5, "{limit}");
    }
}

/// golang/go#71360: time was read before the lock was had, so late readings
/// moved the state back, and 5000 times the limit passed.
#[test]
fn row_02_readings_of_the_clock_in_any_order_mint_nothing() {
    let mut random = Random::new(2);
    for limit in every_algorithm() {
        let (limiter, clock) = limiter(limit);
        let (mut admitted, mut latest) = (0, START);
        for _ in 0..20_000 {
            // Readings of the last second, in no order.
            latest += random.within(0..=100);
            clock.set(Micros::new(latest - random.within(0..=SECOND.min(latest - START))));
            admitted += passes(&limiter, 1);
        }
        // About a second in all: less than it takes for another unit.
        assert!(latest < START + 2 * SECOND);
        assert_eq!(admitted, 5, "{limit}");
    }
}

/// sethvargo/go-limiter#41, ProfessionalWiki/MediaWiki-MCP-Server#557: a clock
/// that went back made the elapsed time negative, which panicked, or locked the
/// key until the clock had caught up.
#[test]
fn row_03_a_clock_step_grants_nothing_and_locks_no_key_out() {
    for limit in every_algorithm() {
        for step in [1, SECOND, 3_600 * SECOND, 31_536_000 * SECOND] {
            let (limiter, clock) = limiter(limit);
            assert_eq!(passes(&limiter, 9), 5, "{limit}");
            clock.set(Micros::new(START - step));
            assert_eq!(passes(&limiter, 9), 0, "{limit}: back by {step}");
            // However far the clock was ahead, the wait is at most a few horizons.
            let told = limiter.peek("alice").expect("an answer").retry_after().expect("a wait");
            assert!(told <= Duration::from_secs(40), "{limit}: back by {step}, and a wait of {told:?}");
            clock.advance(told);
            assert!(takes(&limiter, 1), "{limit}: back by {step}");
        }
    }
}

/// boinkor-net/governor#299, metrics-rs/quanta#111: a processor's counter that
/// was behind on another core refused requests before the burst was used. Ours
/// loses no unit by it: at most the last of a burst waits for the clock to be
/// where it was, and is told so to the microsecond.
#[test]
fn row_04_a_clock_that_trembles_takes_nothing_of_the_burst() {
    for limit in every_algorithm() {
        let (limiter, clock) = limiter(limit);
        for number in 0..4 {
            clock.set(Micros::new(START + 100 - number * 20));
            assert!(takes(&limiter, 1), "{limit}: request {number}");
        }
        clock.set(Micros::new(START + 20));
        let last = limiter.check("alice").expect("an answer");
        if !last.is_allowed() {
            assert_eq!(last.retry_after(), Some(Duration::from_micros(80)), "{limit}: as long as the clock went back");
            clock.advance(last.retry_after().expect("a wait"));
            assert!(takes(&limiter, 1), "{limit}");
        }
        assert_eq!(passes(&limiter, 3), 0, "{limit}");
    }
}

/// redis/redis#14826 (review), scireum/sirius-biz#2408, and measured: governor
/// 0.10.4 admits 145,984 of a burst of 1,000,000 at one a day, and 1.67 times
/// its limit at 600 million a second.
#[test]
fn row_06_large_numbers_are_exact_or_refused() {
    for (words, burst) in [
        ("40/day burst 1000000", 1_000_000_u64),
        ("1/h burst 500000", 500_000),
        ("600000000/s burst 600000000", 600_000_000),
        ("2000000000/s burst 7", 7),
    ] {
        let (limiter, _) = limiter(limit(words));
        assert!(takes(&limiter, burst) && passes(&limiter, 3) == 0, "{words}: all of the burst and no more");
    }
    let largest = |period| Limit::try_token_bucket(u64::MAX, period);
    assert!(matches!(largest(Duration::from_secs(1)), Err(ConfigError::TooLarge { .. })));
    let slow = "1/day burst 1000000".parse::<Limit>();
    assert!(matches!(slow, Err(ConfigError::TooSlow { .. })), "a burst that takes a lifetime to refill");
}

/// bucket4j/bucket4j#51, udoprog/leaky-bucket#30: after a long time without use
/// the product of time and rate overflowed.
#[test]
fn row_07_a_century_without_use_leaves_a_full_bucket() {
    for limit in every_algorithm() {
        let (limiter, clock) = limiter(limit);
        assert_eq!(passes(&limiter, 9), 5);
        for instant in [START + 50 * 31_536_000 * SECOND, Micros::LATEST.get()] {
            clock.set(Micros::new(instant));
            assert_eq!(passes(&limiter, 9), 5, "{limit}: in {instant}");
        }
    }
}

/// rsyslog/rsyslog#3981, rclone/rclone#9828: an interval of 16 bits, a burst of 32.
#[test]
fn row_08_numbers_beyond_32_bits_count() {
    let many = u64::from(u32::MAX) + 10;
    let (limiter, clock) = limiter(Limit::fixed_window(many, Duration::from_secs(90_000)));
    assert!(takes(&limiter, many - 1) && passes(&limiter, 5) == 1);
    clock.advance(Duration::from_secs(90_000));
    assert_eq!(remaining(&limiter), many);
}

/// golang/go#46579, Losant/redis-gcra#3: a float had lost the last bit, and who
/// had enough tokens was refused.
#[test]
fn row_09_a_third_of_a_second_is_a_third() {
    let (limiter, clock) = limiter(limit("3/s"));
    assert!(takes(&limiter, 3));
    for third in 1..=3_000_u64 {
        // The first microsecond at which so many thirds have passed.
        let due = START + (third * SECOND).div_ceil(3);
        clock.set(Micros::new(due - 1));
        assert!(!takes(&limiter, 1), "a microsecond before {third}");
        clock.set(Micros::new(due));
        assert!(takes(&limiter, 1), "at {third}");
    }
}

/// And there is no float to lose a bit: in no kernel, and in no store.
#[test]
fn row_09_no_decision_is_made_with_floats() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("text");
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            let floats: Vec<&str> = code.filter(|line| line.contains("f64") || line.contains("f32")).collect();
            assert!(floats.is_empty(), "{}: {floats:?}", path.display());
        }
    }
}

/// apache/polaris#3433, firecracker-microvm/firecracker#3370, scylladb/seastar#1723:
/// every check dropped the remaining part of a unit, so a bucket that was
/// checked often never refilled.
#[test]
fn row_10_looking_often_costs_nothing() {
    for words in ["1/s", "7/3s", "3/10s"] {
        let (limiter, clock) = limiter(limit(words));
        let (count, period) = (limit(words).count(), limit(words).period().as_micros() as u64);
        while takes(&limiter, 1) {}
        let mut admitted = 0;
        for step in 1..=30_000_u64 {
            clock.set(Micros::new(START + step * 1_000));
            admitted += passes(&limiter, 1);
        }
        assert_eq!(admitted, 30 * SECOND * count / period, "{words}");
    }
}

/// Govcraft/acton-service#141, brandur/redis-cell#80: the period was divided by
/// the count and cut off, so that the rate was another; above 60,000 a minute
/// it was a division by zero.
#[test]
fn row_11_the_rate_is_the_configured_one() {
    for words in ["70000/min", "61/min", "999983/s", "300000001/s burst 300000001", "11/7s"] {
        let (limiter, clock) = limiter(limit(words));
        let (count, period) = (limit(words).count(), limit(words).period().as_micros() as u64);
        let burst = limit(words).capacity();
        let (mut admitted, length) = (0, 40 * SECOND);
        for now in (START..=START + length).step_by(6_997) {
            clock.set(Micros::new(now));
            let left = remaining(&limiter);
            assert!(takes(&limiter, left));
            admitted += left;
            let bound = u128::from(burst) + u128::from(count) * u128::from(now - START) / u128::from(period);
            assert_eq!(u128::from(admitted), bound, "{words} after {} us", now - START);
        }
    }
}

/// firecracker-microvm/firecracker#1918, google/guava#8586, vulcand/oxy#213: a
/// rate of zero, or of what is not a number, divided by zero or stopped limiting.
#[test]
fn row_12_a_limit_of_nothing_cannot_be_made() {
    let second = Duration::from_secs(1);
    let zero = |limit: Result<Limit, ConfigError>| matches!(limit, Err(ConfigError::Zero { .. }));
    assert!(zero(Limit::try_token_bucket(0, second)) && zero(Limit::try_token_bucket(1, Duration::ZERO)));
    assert!(zero(Limit::try_fixed_window(0, second)) && zero(Limit::try_sliding_log(1, Duration::ZERO)));
    assert!(zero(Limit::per_second(1).try_burst(0)) && zero(Limit::try_sliding_counter(0, second)));
    for words in ["0/s", "NaN/s", "1/0s", "inf/min", "-1/s", "1e9/s", "0.5/s", "1/NaN"] {
        assert!(words.parse::<Limit>().is_err(), "{words}");
    }
}

/// alisaifee/limits#362, songzhibin97/gkit#133: a negative cost filled the
/// bucket. Ours is unsigned, and what gives units back gives no more than was taken.
#[test]
fn row_13_nothing_fills_a_bucket_beyond_its_burst() {
    for limit in every_algorithm() {
        let (limiter, _) = limiter(limit);
        assert!(takes(&limiter, 2));
        for cost in [5, u64::MAX] {
            // More than was ever taken, or than the limit can hold.
            let _ = limiter.refund(Request::new("alice").cost(cost));
            assert!(remaining(&limiter) <= 5, "{limit}: {cost}");
        }
        assert!(passes(&limiter, 20) <= 5, "{limit}");
    }
}

/// bucket4j/bucket4j#20, boinkor-net/governor#11, redis/redis#15113, and
/// measured of throttlecrab: a cost above the capacity was admitted, or told to
/// come back for ever.
#[test]
fn row_14_a_cost_that_can_never_pass_is_an_error() {
    for limit in every_algorithm() {
        let (limiter, _) = limiter(limit);
        for cost in [6, u64::MAX] {
            let outcome = limiter.check(Request::new("alice").cost(cost));
            assert!(matches!(outcome, Err(CheckError::Unsatisfiable { capacity: 5, .. })), "{limit}: {outcome:?}");
        }
        assert_eq!(remaining(&limiter), 5, "{limit}: and nothing was taken");
    }
}

/// boinkor-net/governor#249, and measured: throttlecrab admits 17 of a burst of
/// 10 after 17.9 seconds without use.
#[test]
fn row_15_a_rest_earns_the_burst_and_not_one_more() {
    for idle in [10_000, 12_000, 15_000, 17_900, 86_400_000] {
        let (limiter, clock) = limiter(limit("1/s burst 10"));
        assert_eq!(passes(&limiter, 20), 10);
        clock.advance(Duration::from_millis(idle));
        assert_eq!(passes(&limiter, 20), 10, "after {idle} ms");
    }
}

/// bucket4j/bucket4j#417: taking as much as there is of a bucket that was
/// overdrawn returned a negative number, and added tokens.
#[test]
fn row_16_of_an_overdrawn_key_there_is_nothing_to_take() {
    for limit in every_algorithm() {
        let (limiter, clock) = limiter(limit);
        assert_eq!(passes(&limiter, 9), 5);
        // By this clock the key has used more than there ever is.
        clock.set(Micros::new(START - 7 * SECOND));
        assert_eq!(remaining(&limiter), 0, "{limit}");
        assert_eq!(passes(&limiter, 9), 0, "{limit}");
    }
}

/// bucket4j/bucket4j#501: requests put together to save round trips took more
/// than they would have apart.
#[test]
fn row_17_a_batch_decides_as_its_parts_would() {
    let mut random = Random::new(17);
    for limit in every_algorithm() {
        let ((together, one_clock), (apart, other_clock)) = (limiter(limit), limiter(limit));
        let mut now = START;
        for _ in 0..300 {
            now += random.within(0..=SECOND);
            one_clock.set(Micros::new(now));
            other_clock.set(Micros::new(now));
            let costs: Vec<u64> = (0..random.within(1..=40)).map(|_| random.within(0..=5)).collect();
            let keys = ["alice", "bob"];
            let asks = || costs.iter().enumerate().map(|(index, cost)| Request::new(keys[index % 2]).cost(*cost));
            let batch = together.check_many(asks());
            let single: Vec<_> = asks().map(|request| apart.check(request)).collect();
            assert_eq!(
                format!("{batch:?}"),
                format!("{:?}", Ok::<_, CheckError>(single.into_iter().map(Result::unwrap).collect::<Vec<_>>()))
            );
        }
    }
}

/// upstash/ratelimit-js#61 and #39: the sliding counter looked at the wrong
/// window and was a fixed one; a limit of one admitted no request.
#[test]
fn row_18_a_sliding_counter_weighs_the_window_before() {
    let period = 10 * SECOND;
    let mut random = Random::new(18);
    for count in 1..=4 {
        let (limiter, clock) = limiter(Limit::sliding_counter(count, Duration::from_micros(period)));
        // By the definition: what was admitted, by window.
        let mut windows = std::collections::HashMap::<u64, u64>::new();
        let (mut now, mut admitted) = (START, 0);
        for _ in 0..5_000 {
            now += random.within(0..=2 * SECOND);
            clock.set(Micros::new(now));
            let (window, elapsed) = (now / period, now % period);
            let of = |window: u64| windows.get(&window).copied().unwrap_or(0);
            let weight = of(window - 1) * (period - elapsed) + (of(window) + 1) * period;
            let passed = takes(&limiter, 1);
            assert_eq!(passed, weight < (count + 1) * period, "{count}: at {now}");
            if passed {
                *windows.entry(window).or_default() += 1;
                admitted += 1;
            }
        }
        assert!(admitted > 200, "{count}: {admitted}");
    }
}

/// block/buzz#3477, sandbaseai/sandbase-harness#280: "N a minute" let 2 N pass
/// around the edge of a window. Ours does as well where it is a fixed window,
/// and says so; the others do not.
#[test]
fn row_19_twice_the_limit_at_an_edge_only_where_it_is_said() {
    for (limit, expected) in every_algorithm().into_iter().zip([5, 5, 10, 5, 5, 5]) {
        let (limiter, clock) = limiter(limit);
        // Windows of ten seconds end at a multiple of that.
        clock.set(Micros::new(START + 10 * SECOND - 1));
        let before = passes(&limiter, 9);
        clock.set(Micros::new(START + 10 * SECOND));
        assert_eq!(before + passes(&limiter, 9), expected, "{limit}");
    }
    let page = include_str!("../../../../docs/book/src/concepts/algorithms.md");
    assert!(page.contains("twice") || page.contains("2 x"), "docs/book/src/concepts/algorithms.md tells of the edge");
}

/// envoyproxy/ratelimit#1206, epam/ai-dial-core#1951: a month was thirty days.
/// Ours is one of the calendar, as long as it is in a time zone.
#[test]
fn row_20_a_month_is_not_thirty_days() {
    for words in ["100/month", "5/quarter", "5/year"] {
        let error = words.parse::<Limit>().expect_err(words).to_string();
        assert!(error.contains("a time zone as well"), "{error}");
    }
    let (limiter, clock) = limiter("10/month in UTC".parse::<Limit>().expect("a limit"));
    // 2024: a leap year.
    let mut now = 1_704_067_200 * SECOND;
    for days in [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 28] {
        clock.set(Micros::new(now));
        assert_eq!(passes(&limiter, 12), 10);
        now += days * 86_400 * SECOND;
        clock.set(Micros::new(now - 1));
        assert_eq!(passes(&limiter, 2), 0, "{days} days");
    }
}

/// sockudo/sockudo#251, peterkhayes/rolling-rate-limiter#11: requests of one
/// instant were one member of a set: 10,000 counted as 19.
#[test]
fn row_21_requests_of_one_instant_all_count() {
    let (limiter, clock) = limiter(Limit::sliding_log(10_000, Duration::from_secs(10)));
    assert_eq!(passes(&limiter, 9_000), 9_000);
    clock.advance(Duration::from_micros(1));
    assert_eq!(passes(&limiter, 9_000), 1_000);
}

/// rcarmo/piclaw#105, teamplanes/graphql-rate-limit#191: refused requests were
/// counted, so a client that went on trying never recovered.
#[test]
fn row_22_trying_while_refused_delays_nothing() {
    for limit in every_algorithm() {
        let (limiter, clock) = limiter(limit);
        assert_eq!(passes(&limiter, 9), 5);
        let told = limiter.peek("alice").expect("an answer").retry_after().expect("a wait");
        for part in 0..1_000 {
            clock.set(Micros::new(START + told.as_micros() as u64 * part / 1_000));
            assert_eq!(passes(&limiter, 3), 0, "{limit}: at part {part}");
        }
        clock.set(Micros::new(START + told.as_micros() as u64));
        assert!(takes(&limiter, 1), "{limit}");
    }
}

/// With real time as well, which has no mercy: a store by its own clock.
#[test]
fn row_15_nor_by_real_time() {
    let store = MemoryStore::builder().max_keys(100).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_day(10), store).expect("a valid policy");
    assert_eq!(passes(&limiter, 1_000), 10);
}
