//! The smallest limit, by trying every count from one on.

use std::time::Duration;

use tidegate::{Algorithm, CheckError, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request, Rule};
use tidegate_replay::{Replay, Share, Source};
use tidegate_testkit::Random;

use crate::generated::{Entry, Written, entries};

/// How many a limit refuses by itself.
fn refused(limit: Limit, entries: &[Entry]) -> u64 {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(64).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(limit, store).expect("a valid limit");
    let mut refused = 0;
    for entry in entries {
        clock.set(Micros::new(entry.at));
        refused += match limiter.check(Request::new(entry.ip.as_str()).cost(entry.cost)) {
            Ok(decision) => u64::from(!decision.is_allowed()),
            Err(CheckError::Unsatisfiable { .. }) => 1,
            Err(error) => panic!("{error}"),
        };
    }
    refused
}

fn scaled(limit: Limit, count: u64) -> Limit {
    let words = limit.to_string();
    let (head, tail) = words.split_once('/').expect("a limit has a period");
    let (algorithm, was) = head.rsplit_once(' ').unwrap_or(("", head));
    let was: u64 = was.parse().expect("a count");
    let tail = match tail.rsplit_once(' ') {
        Some((rest, "from-first")) => format!("{rest} from-first"),
        Some((rest, number)) => format!("{rest} {}", (number.parse::<u64>().expect("a number") * count).div_ceil(was)),
        None => tail.to_owned(),
    };
    format!("{algorithm} {count}/{tail}").trim().parse().expect("words of a limit")
}

fn count(limit: &str) -> u64 {
    limit.parse::<Limit>().expect("words of a limit").count()
}

#[test]
fn it_is_the_smallest_that_trying_every_count_finds() {
    let shapes = [
        "10/min",
        "10/min burst 3",
        "7/s burst 20",
        "leaky 3/s queue 2",
        "fixed 9/10s",
        "fixed 5/10s from-first",
        "sliding-log 4/5s",
        "sliding-counter 8/10s",
    ];
    for seed in 0..10 {
        let mut random = Random::new(300 + seed);
        let mut all = entries(&mut random, 300);
        let has_costs = seed % 2 == 1;
        for entry in &mut all {
            // Each address is a key of its own, as in the reference.
            entry.ip = entry.ip.replace("2001:db8:0:", "198.51.100.").replace("::", "");
            entry.cost = if has_costs { entry.cost.clamp(1, 2) } else { 1 };
        }
        let share: Share = random.choose(&["0%", "0.5%", "1%", "10%", "50%", "100%"]).parse().expect("a share");
        for shape in shapes {
            let limit: Limit = shape.parse().expect("words of a limit");
            let policy = Policy::new().rule(Rule::new("address", limit).key(["ip"]));
            let text = Written::Json.write(&all);
            let log = Source::stream("log", std::io::Cursor::new(text));
            let report = Replay::new(policy).max_keys(64).at_most(share).run([log]).expect("it can be read");
            let found = report.limits[0].smallest.as_ref().expect("some count does");
            let case = format!("{shape}, at most {share}, seed {seed}: {found:?}");
            let allowed = share.of(300);
            assert_eq!(found.refused, refused(scaled(limit, count(&found.limit)), &all), "{case}");
            assert!(found.refused <= allowed, "{case}");
            let enough = (1..).find(|count| refused(scaled(limit, *count), &all) <= allowed).expect("some count does");
            assert_eq!(found.is_least, !has_costs && limit.algorithm() != Algorithm::SlidingCounter, "{case}");
            if found.is_least {
                assert_eq!(count(&found.limit), enough, "{case}");
            }
            let less = count(&found.limit) - 1;
            assert!(less == 0 || refused(scaled(limit, less), &all) > allowed, "{case}");
        }
    }
}

#[test]
fn each_limit_is_searched_alone_and_a_policy_that_refuses_too_many_is_told() {
    let strict = Rule::new("strict", Limit::fixed_window(1, Duration::from_secs(60))).key(["ip"]);
    let wide = Rule::new("wide", Limit::per_hour(1_000)).key(["method"]);
    let text = "time,ip,method\n".to_owned() + &"2024-01-01T00:00:00Z,192.0.2.1,GET\n".repeat(8);
    let log = Source::stream("log", std::io::Cursor::new(text));
    let replay = Replay::new(Policy::new().rule(strict).rule(wide)).at_most("0%".parse().expect("a share"));
    let report = replay.run([log]).expect("it can be read");
    let found: Vec<_> = report.limits.iter().map(|limit| limit.smallest.as_ref().map(|found| &*found.limit)).collect();
    assert_eq!(found, [Some("fixed 8/min"), Some("8/h")]);
    assert!(report.refuses_too_many());
}
