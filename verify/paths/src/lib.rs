//! Paths through the library that a service takes, one check at a time.
//!
//! `cargo xtask bench instructions` runs each path under callgrind and compares what it
//! counts with `instructions.txt`; `cargo xtask bench` measures their times beside
//! each other.

use std::future::Future;
use std::hint::black_box;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::store::Meter;
use tidegate::{
    CheckError, Condition, Decision, Floor, Limit, Limiter, MemoryStore, Policy, PriorityClasses, Request, Rule,
};
use tidegate_redis::Lease;
use tidegate_redis::layer::{Leased, Leases};
use tokio::runtime::{Builder, Runtime};

/// How often a path is run at most.
pub const TIMES: usize = 4_096;
/// Keys of the paths that ask about many.
const KEYS: usize = 65_536;
/// Limiters of a path whose count depends on the seed of a hash.
const ALIKE: usize = 16;
/// So large that nothing is refused.
const LIMIT: Limit = Limit::per_second(1_000_000).burst(1_000_000_000);
/// The same, of which nothing matters after a moment.
const SHORT: Limit = Limit::per_second(1_000_000_000).burst(10_000_000);

/// Makes a path, which is then run with the numbers of its turns.
pub type Path = fn() -> Box<dyn FnMut(usize)>;

/// One limit, one key.
fn hot(words: &str) -> Box<dyn FnMut(usize)> {
    let limiter = filled(words.parse().expect("a limit"), "alice");
    Box::new(move |_| assert!(limiter.allow(black_box("alice"))))
}

/// All paths by their names.
pub const PATHS: [(&str, Path); 41] = [
    ("allow-short", || {
        let limiter = filled(SHORT, "alice");
        Box::new(move |_| assert!(limiter.allow(black_box("alice"))))
    }),
    ("allow-hot", || {
        let limiter = filled(LIMIT, "alice");
        Box::new(move |_| assert!(limiter.allow(black_box("alice"))))
    }),
    ("check-hot", || {
        let limiter = filled(LIMIT, "alice");
        Box::new(move |_| assert!(is_allowed(&limiter.check(black_box("alice")))))
    }),
    ("allow-refused", || {
        let limiter = filled(Limit::per_day(1), "alice");
        Box::new(move |_| assert!(!limiter.allow(black_box("alice"))))
    }),
    ("check-refused", || {
        let limiter = filled(Limit::per_day(1), "alice");
        Box::new(move |_| assert!(!is_allowed(&limiter.check(black_box("alice")))))
    }),
    ("allow-among-many", || {
        let (limiter, keys) = (Limiter::new(long()), keys());
        keys.iter().for_each(|key| assert!(limiter.allow(key)));
        Box::new(move |turn| assert!(limiter.allow(black_box(&keys[turn * 97 % KEYS]))))
    }),
    ("allow-new", || {
        let (limiter, keys) = (Limiter::new(long()), keys());
        Box::new(move |turn| assert!(limiter.allow(black_box(&keys[turn % KEYS]))))
    }),
    ("allow-u64", || {
        let limiter = filled(LIMIT, 12_345_678_u64);
        Box::new(move |_| assert!(limiter.allow(black_box(12_345_678_u64))))
    }),
    ("allow-ipv4", || {
        let address = IpAddr::from([192, 0, 2, 117]);
        let limiter = filled(LIMIT, address);
        Box::new(move |_| assert!(limiter.allow(black_box(address))))
    }),
    ("allow-ipv6", || {
        let address = IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0x85a3, 0, 0, 0x8a2e, 0x370, 0x7334));
        let limiter = filled(LIMIT, address);
        Box::new(move |_| assert!(limiter.allow(black_box(address))))
    }),
    ("allow-no-keys", || {
        let limiter = filled(LIMIT, ());
        Box::new(move |_| assert!(limiter.allow(())))
    }),
    ("refuse-no-keys", || {
        let limiter = filled(Limit::per_day(1), ());
        Box::new(move |_| assert!(!limiter.allow(())))
    }),
    ("check-many", || {
        let (limiter, keys) = (Limiter::new(long()), keys());
        keys.iter().for_each(|key| assert!(limiter.allow(key)));
        Box::new(move |turn| {
            // A batch counts as the requests in it.
            if turn % 64 == 0 {
                let first = turn * 97 % (KEYS - 64);
                assert!(limiter.check_many(&keys[first..first + 64]).is_ok_and(|decisions| decisions.len() == 64));
            }
        })
    }),
    ("allow-many", || {
        let (limiter, keys) = (Limiter::new(long()), keys());
        keys.iter().for_each(|key| assert!(limiter.allow(key)));
        Box::new(move |turn| {
            if turn % 64 == 0 {
                let first = turn * 97 % (KEYS - 64);
                assert!(limiter.allow_many(&keys[first..first + 64]).iter().all(|is_admitted| *is_admitted));
            }
        })
    }),
    ("check-many-hot", || {
        let (limiter, keys) = (filled(LIMIT, "alice"), vec!["alice"; 64]);
        Box::new(move |turn| {
            if turn % 64 == 0 {
                assert!(
                    limiter.check_many(black_box(&keys).iter().copied()).is_ok_and(|decisions| decisions.len() == 64)
                );
            }
        })
    }),
    ("allow-many-hot", || {
        let (limiter, keys) = (filled(LIMIT, "alice"), vec!["alice"; 64]);
        Box::new(move |turn| {
            if turn % 64 == 0 {
                assert!(limiter.allow_many(black_box(&keys).iter().copied()).iter().all(|is_admitted| *is_admitted));
            }
        })
    }),
    ("check-leased", || {
        let (limiter, runtime) = leased();
        (0..3).for_each(|_| assert!(is_allowed(&runtime.block_on(limiter.check_async("alice")))));
        let mut context = Context::from_waker(Waker::noop());
        Box::new(move |_| {
            let answer = pin!(limiter.check_async(black_box("alice"))).poll(&mut context);
            assert!(matches!(&answer, Poll::Ready(decision) if is_allowed(decision)));
            // It lives for as long as the path.
            black_box(&runtime);
        })
    }),
    ("three-direct", || {
        let limiters = [(); 3].map(|()| filled(LIMIT, "alice"));
        Box::new(move |_| assert!(limiters.iter().all(|limiter| limiter.allow(black_box("alice")))))
    }),
    ("limits-2", || limits(&["a"; 2])),
    ("limits-3", || limits(&["a"; 3])),
    ("limits-5", || limits(&["a"; 5])),
    ("limits-10", || limits(&["a"; 10])),
    ("limits-16", || limits(&["a"; 16])),
    ("bucket-and-sliding", || limits(&["a", "sliding 1000000000/h"])),
    ("bucket-log-and-fixed", || limits(&["a", "sliding-log 100000/1ms", "fixed 100000000/h"])),
    ("fixed-window", || hot("fixed 1000000000/30day")),
    ("calendar-month", || hot("1000000000/month in Europe/Berlin")),
    ("rule-by-user", || {
        let limiter = Limiter::new(Rule::new("users", LIMIT).key(["user"]));
        assert!(limiter.allow(Request::user("alice")));
        Box::new(move |_| assert!(limiter.allow(Request::user(black_box("alice")))))
    }),
    ("rule-by-user-and-path", || {
        let limiter = Limiter::new(Rule::new("users", LIMIT).key(["user", "path"]));
        let request = || Request::user(black_box("alice")).with("path", "/orders");
        assert!(limiter.allow(request()));
        Box::new(move |_| assert!(limiter.allow(request())))
    }),
    ("floor-hot", || {
        let limiter = Limiter::new(Meter::new("floor", LIMIT).with_floor(LIMIT.capacity() / 5));
        assert!(limiter.allow("alice"));
        Box::new(move |_| assert!(limiter.allow(black_box("alice"))))
    }),
    ("rule-by-tier", || {
        by_attribute(|rule| {
            rule.tier("class", "high", SHORT).tier("class", "normal", LIMIT).tier("class", "low", SHORT)
        })
    }),
    ("rule-by-class", || {
        let priority = PriorityClasses::by("class").class("high", Floor::NONE).class("normal", Floor::Percent(20));
        let priority = priority.class("low", Floor::Percent(50));
        by_attribute(|rule| rule.priority(priority))
    }),
    ("rules-3-of-1000", || {
        let mut policy = Policy::new().rule(Rule::new("all", LIMIT).key(["user"]));
        for number in 1..1_000 {
            let rule = Rule::new(format!("rule{number}"), LIMIT).key(["user"]);
            policy = policy.rule(match number % 2 {
                0 => rule.when("path", Condition::StartsWith(format!("/api/{}/", number / 2 + 6))),
                _ => rule.when("tenant", Condition::Equals(format!("tenant{number}"))),
            });
        }
        let limiter = Limiter::new(policy);
        let request = || Request::user(black_box("alice")).with("path", "/api/7/orders").with("tenant", "tenant13");
        assert!(limiter.allow(request()));
        Box::new(move |_| assert!(limiter.allow(request())))
    }),
    ("globs-10", || globs(10)),
    ("globs-100", || globs(100)),
    ("globs-1000", || globs(1_000)),
    ("globs-10000", || globs(10_000)),
    ("changed-settled", || {
        let limiter = changed(SHORT);
        std::thread::sleep(Duration::from_millis(1_100));
        assert!(limiter.allow("alice"));
        Box::new(move |_| assert!(limiter.allow(black_box("alice"))))
    }),
    ("changed-with-former-use", || alike(|| changed(LIMIT))),
    ("changed-with-former-use-rule", || {
        let rule = |limit| Rule::new("users", limit).key(["user"]);
        let limiter = Limiter::new(rule(LIMIT));
        assert!(limiter.allow(Request::user("alice")));
        limiter.set_policy(rule(Limit::per_hour(500_000_000))).expect("a valid policy");
        assert!(limiter.allow(Request::user("alice")));
        Box::new(move |_| assert!(limiter.allow(Request::user(black_box("alice")))))
    }),
    ("explain", || {
        let limiter = Limiter::new(Rule::new("users", LIMIT).key(["user"]));
        Box::new(move |_| assert!(limiter.explain(Request::user(black_box("alice"))).is_ok()))
    }),
];

/// A limit by which a key stays live while all others are asked about.
fn long() -> Limit {
    Limit::per_hour(1_000).burst(1_000_000)
}

fn keys() -> Vec<String> {
    (0..KEYS).map(|number| format!("user-{number:011}")).collect()
}

fn filled<'a>(limit: Limit, key: impl Into<Request<'a>>) -> Limiter {
    let limiter = Limiter::new(limit);
    assert!(limiter.allow(key));
    limiter
}

/// A rule that an attribute of the request matters to.
fn by_attribute(with: impl FnOnce(Rule) -> Rule) -> Box<dyn FnMut(usize)> {
    let limiter = Limiter::new(with(Rule::new("users", LIMIT).key(["user"])));
    let request = || Request::user(black_box("alice")).with("class", "normal");
    assert!(limiter.allow(request()));
    Box::new(move |_| assert!(limiter.allow(request())))
}

fn is_allowed(decision: &Result<Decision, CheckError>) -> bool {
    black_box(decision).as_ref().is_ok_and(Decision::is_allowed)
}

/// A limiter that borrows more than a path takes, and the runtime that gives it back.
fn leased() -> (Limiter<Leased<Arc<MemoryStore>>>, Runtime) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
    let lease = Lease { chunk: 1_000_000_000, ttl: Duration::from_secs(3_600) };
    let leases = Arc::new(Leases::new([("leased".to_owned(), lease)], Duration::from_secs(60)));
    let store = Leased::new(Arc::default(), leases, runtime.handle().clone());
    let limiter = Limiter::with_store(Policy::new().limit("leased", LIMIT), store).expect("a valid policy");
    (limiter, runtime)
}

/// As many limits on one key: of these words, or so large that nothing is refused.
fn limits(words: &[&str]) -> Box<dyn FnMut(usize)> {
    let limit = |words: &str| words.parse().unwrap_or(LIMIT);
    let add = |policy: Policy, (number, words): (usize, &&str)| policy.limit(format!("limit{number}"), limit(words));
    alike(move || {
        let limiter = Limiter::new(words.iter().enumerate().fold(Policy::new(), add));
        assert!(limiter.allow("alice"));
        limiter
    })
}

/// Limiters that are alike but for the seeds of their hashes, in turn: in which order their
/// lines are locked matters to the count.
fn alike(make: impl Fn() -> Limiter) -> Box<dyn FnMut(usize)> {
    let limiters: Vec<Limiter> = (0..ALIKE).map(|_| make()).collect();
    Box::new(move |turn| assert!(limiters[turn % ALIKE].allow(black_box("alice"))))
}

/// Rules by patterns, of which one matches.
fn globs(count: usize) -> Box<dyn FnMut(usize)> {
    let rule = |number: usize| {
        let matches = Condition::Matches(format!("*/x{number}/*"));
        Rule::new(format!("rule{number}"), LIMIT).when("path", matches).key(["user"])
    };
    let limiter = Limiter::new((0..count).map(rule).fold(Policy::new(), Policy::rule));
    let request = || Request::user(black_box("alice")).with("path", "/api/x7/orders");
    assert!(limiter.allow(request()));
    Box::new(move |_| assert!(limiter.allow(request())))
}

/// One limit that has replaced another.
fn changed(limit: Limit) -> Limiter {
    let limiter = filled(limit.burst(limit.capacity() / 2), "alice");
    limiter.set_policy(limit).expect("a valid policy");
    assert!(limiter.allow("alice"));
    limiter
}
