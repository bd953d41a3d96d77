//! What is decided is what the library decides, and what the rivals would.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use throttlecrab::{PeriodicStore, RateLimiter};
use tidegate::{Decision, Limiter, ManualClock, MemoryStore, Policy, Request};
use tidegate_testkit::servers::Reply;

use crate::resp::harness::{TestServer, ask, numbers, refusal};
use crate::resp::rivals::RedisCell;

/// Numbers whose interval is a whole number of microseconds, so that nanoseconds
/// make no difference.
fn buckets() -> impl Strategy<Value = [i64; 3]> {
    let rates =
        prop::sample::select(vec![[1, 1], [5, 2], [30, 60], [1000, 1], [100, 3600], [8, 60], [1, 86_400], [64, 1]]);
    (0_i64..20, rates).prop_map(|(max_burst, [count, period])| [max_burst, count, period])
}

/// Steps of a trace: microseconds to wait, which of three keys, and the quantity.
fn steps() -> impl Strategy<Value = Vec<(u64, u8, i64)>> {
    let waits = prop_oneof![Just(0), 0_u64..5_000_000, 0_u64..2_000, 0_u64..200_000_000];
    prop::collection::vec((waits, 0_u8..3, prop_oneof![4 => Just(1), 2 => 0_i64..6, 1 => 0_i64..30]), 1..60)
}

fn cases(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() })
}

fn nanos(clock: &ManualClock) -> i128 {
    use tidegate::Clock;
    i128::from(clock.now().get()) * 1_000
}

#[test]
fn cl_throttle_answers_as_redis_cell_does() {
    let server = TestServer::start();
    let connection = std::cell::RefCell::new(server.connect());
    let trace = std::cell::Cell::new(0_u32);
    let run = cases(100).run(&(buckets(), steps()), |([max_burst, count, period], steps)| {
        trace.set(trace.get() + 1);
        let mut models = [RedisCell::default(), RedisCell::default(), RedisCell::default()];
        for (wait, key, quantity) in steps {
            server.clock.advance(Duration::from_micros(wait));
            let expected =
                models[usize::from(key)].throttle(nanos(&server.clock), [max_burst, count, period, quantity]);
            let line = format!("CL.THROTTLE {}:{key} {max_burst} {count} {period} {quantity}", trace.get());
            prop_assert_eq!(numbers(&ask(&mut connection.borrow_mut(), &line)), expected, "{}", line);
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

/// throttlecrab admits too much of a key that was idle, so these traces never let one
/// become so. It forgets a burst of one at once, and lets those wait who can never pass.
#[test]
fn throttle_answers_as_throttlecrab_does() {
    let server = TestServer::start();
    let connection = std::cell::RefCell::new(server.connect());
    let trace = std::cell::Cell::new(0_u32);
    let steps = prop::collection::vec((0_u64..3_000_000, 1_i64..4), 1..60);
    let run = cases(100).run(&(buckets(), steps), |([max_burst, count, period], steps)| {
        let burst = max_burst + 2;
        trace.set(trace.get() + 1);
        let mut rival = RateLimiter::new(PeriodicStore::new());
        let mut full_in = Duration::ZERO;
        for (wait, quantity) in steps {
            let wait = Duration::from_micros(wait).min(full_in);
            server.clock.advance(wait);
            let quantity = quantity.min(burst);
            let now = UNIX_EPOCH + Duration::from_nanos(nanos(&server.clock) as u64);
            let (allowed, rate) = rival.rate_limit("key", burst, count, period, quantity, now).expect("valid numbers");
            let [reset, retry] = [rate.reset_after, rate.retry_after].map(|time| time.as_secs() as i64);
            let line = format!("THROTTLE crab{} {burst} {count} {period} {quantity}", trace.get());
            let answer = numbers(&ask(&mut connection.borrow_mut(), &line));
            prop_assert_eq!(answer, [i64::from(allowed), burst, rate.remaining, reset, retry], "{}", line);
            let interval = Duration::from_secs(period as u64) / count as u32;
            full_in = if allowed { full_in - wait + interval * quantity as u32 } else { full_in - wait };
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

const POLICY: &str = r#"
[rules.all]
limit = "20/s burst 30"
key = []

[rules.users]
limit = "5/s burst 8"
key = ["user"]

[rules.orders]
limit = "sliding 3/min"
match = { endpoint = { prefix = "/orders" } }
key = ["user", "endpoint"]
"#;

const DENY_LIST: &str = r#"
[lists]
deny = [{ user = "mallory" }, { ip = { cidr = "192.0.2.0/24" } }]
"#;

fn fields(decision: &Decision) -> Vec<(String, Reply)> {
    let text = |text: &str| Reply::Bulk(text.into());
    let number = |number: u64| Reply::Integer(number as i64);
    let micros = |time: Duration| Reply::Integer(time.as_micros() as i64);
    let fields = [
        ("allowed", Reply::Integer(i64::from(decision.is_allowed()))),
        ("rule", text(decision.rule().as_str())),
        ("limit", number(decision.capacity().expect("a limit"))),
        ("remaining", number(decision.remaining().expect("a limit"))),
        ("retry_after_us", micros(decision.retry_after().expect("a wait"))),
        ("reset_after_us", micros(decision.reset_after().expect("a time"))),
        ("delay_us", micros(decision.delay())),
        ("degraded", Reply::Integer(i64::from(decision.is_degraded()))),
    ];
    let unrecorded = Some(("unrecorded", number(decision.unrecorded()))).filter(|_| decision.unrecorded() > 0);
    fields.into_iter().chain(unrecorded).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn pairs(reply: &Reply) -> Vec<(String, Reply)> {
    reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
}

#[test]
fn tidegate_check_answers_as_the_library_does() {
    let (server, file) = TestServer::start_by(POLICY);
    let policy: Policy = tidegate_config::load(file.path()).expect("a policy");
    let store = MemoryStore::builder().clock(server.clock.clone()).build().expect("valid settings");
    let library = Limiter::with_store(policy, store).expect("a valid policy");
    let mut connection = server.connect();
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut refused = 0;
    for _ in 0..2_000 {
        server.clock.advance(Duration::from_micros(next(90_000)));
        let user = ["alice", "bob", "carol"][next(3) as usize];
        let endpoint = ["/orders", "/orders/7", "/"][next(3) as usize];
        let verb = ["CHECK", "CHECK", "CHECK", "PEEK", "REPORT", "REFUND", "RESET"][next(7) as usize];
        // Now and then more than can be owed.
        let cost = if verb == "REPORT" && next(4) == 0 { 1_000 } else { next(4) };
        let request = Request::user(user).with("endpoint", endpoint).cost(cost);
        let expected = match verb {
            "CHECK" => library.check(request),
            "PEEK" => library.peek(request),
            "REPORT" => library.report(request),
            "REFUND" => library.refund(request).map(Decision::from),
            _ => library.reset(request).map(Decision::from),
        };
        let expected = expected.expect("an answer");
        refused += u64::from(!expected.is_allowed());
        let line = format!("TIDEGATE.{verb} user {user} endpoint {endpoint} COST {cost}");
        assert_eq!(pairs(&ask(&mut connection, &line)), fields(&expected), "{line}");
    }
    assert!((200..1_800).contains(&refused), "{refused} were refused: the trace tries only one way");
}

#[test]
fn a_request_that_does_not_fit_the_policy_is_an_error_and_no_decision() {
    let (server, _file) = TestServer::start_by(&format!("{POLICY}{DENY_LIST}"));
    let mut connection = server.connect();
    let metrics = |of: &str| {
        let text = server.server().app().records.metrics.text();
        text.lines().filter(|line| line.starts_with(of)).map(str::to_owned).collect::<Vec<_>>()
    };
    ask(&mut connection, "TIDEGATE.CHECK user alice");
    let decisions = metrics("tidegate_decisions_total");
    let missing = "MISSINGATTRIBUTE rule \"users\": key attribute \"user\" is missing from the request: ";
    let errors = [
        ("TIDEGATE.CHECK KEY acme", missing),
        ("TIDEGATE.PEEK KEY acme RULE users", missing),
        ("TIDEGATE.CHECK endpoint /", missing),
        ("TIDEGATE.CHECK user alice RULE unknown", "UNKNOWNRULE the policy has no rule \"unknown\": "),
        ("TIDEGATE.RESET user alice RULE unknown", "UNKNOWNRULE the policy has no rule \"unknown\": "),
        ("TIDEGATE.EXPLAIN user alice RULE unknown", "UNKNOWNRULE the policy has no rule \"unknown\": "),
        ("TIDEGATE.CHECK user alice ip nowhere", "NOTANADDRESS attribute \"ip\" is not an IP address: \"nowhere\""),
    ];
    for (line, words) in errors {
        let error = refusal(ask(&mut connection, line));
        assert!(error.starts_with(words), "{line}: {error}");
    }
    assert_eq!(metrics("tidegate_decisions_total"), decisions);
    for counted in [
        "tidegate_errors_total{reason=\"missing-attribute\"} 3",
        "tidegate_errors_total{reason=\"unknown-rule\"} 3",
        "tidegate_errors_total{reason=\"not-an-address\"} 1",
    ] {
        assert!(metrics("tidegate_errors_total").iter().any(|line| line == counted), "{counted}");
    }
    // A rule that does not need the attribute answers without it.
    assert_eq!(pairs(&ask(&mut connection, "TIDEGATE.PEEK KEY acme RULE all"))[0].1, Reply::Integer(1));
}

#[test]
fn the_deny_list_refuses_with_no_time_to_wait_for() {
    let (server, _file) = TestServer::start_by(&format!("{POLICY}{DENY_LIST}"));
    let mut connection = server.connect();
    // Before any rule, so that no key attribute is missing.
    for line in ["TIDEGATE.CHECK user mallory", "TIDEGATE.CHECK user alice ip 192.0.2.7", "TIDEGATE.CHECK ip 192.0.2.7"]
    {
        let number = Reply::Integer;
        let expected = [
            ("allowed", number(0)),
            ("rule", Reply::Bulk("denied".into())),
            ("limit", number(0)),
            ("remaining", number(0)),
            ("retry_after_us", Reply::Nil),
            ("reset_after_us", Reply::Nil),
            ("delay_us", number(0)),
            ("degraded", number(0)),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(pairs(&ask(&mut connection, line)), expected, "{line}");
    }
    assert_eq!(pairs(&ask(&mut connection, "TIDEGATE.CHECK user alice ip 198.51.100.7"))[0].1, Reply::Integer(1));
}

/// A pipeline of everything at once is answered as if each command had been waited for.
#[test]
fn a_pipeline_is_answered_in_order_and_as_one_by_one() {
    let (together, apart) = (TestServer::start(), TestServer::start());
    let (mut pipeline, mut waiting) = (together.connect(), apart.connect());
    let line = |number: usize| match number % 11 {
        // The same keys again and again: each sees the charge of the one before.
        0..=5 => format!("CL.THROTTLE key{} 9 {} 60", number % 3, 1 + number % 2),
        6 => format!("ECHO {number}"),
        7 => "CL.THROTTLE key0 nine 1 60".to_owned(),
        8 => format!("THROTTLE key1 10 {} 60 2", 1 + number % 40),
        9 => format!("TIDEGATE.CHECK KEY key2 LIMIT 10/min COST {}", number % 3),
        _ => "FOO".to_owned(),
    };
    const COMMANDS: usize = 3_000;
    let mut bytes = Vec::new();
    for number in 0..COMMANDS {
        let line = line(number);
        let words: Vec<&str> = line.split(' ').collect();
        bytes.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    pipeline.send_bytes(&bytes).expect("the server reads");
    let received: Vec<Reply> = (0..COMMANDS).map(|_| pipeline.receive().expect("a reply")).collect();
    for (number, received) in received.iter().enumerate() {
        assert_eq!(*received, ask(&mut waiting, &line(number)), "{number}: {}", line(number));
    }
    assert_eq!(ask(&mut pipeline, "PING"), Reply::Status("PONG".into()));
}

#[test]
fn keys_are_any_bytes() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for key in [&b"\xff\x00\r\n$5"[..], b"", b" ", "\u{1f30a}".as_bytes()] {
        for remaining in [1, 0] {
            let reply = connection.command(&[b"CL.THROTTLE", key, b"1", b"1", b"60"]).expect("a reply");
            assert_eq!(numbers(&reply)[2], remaining, "{key:?}");
        }
    }
}

#[test]
fn a_negative_quantity_gives_back() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let mut throttle = |quantity: i64| numbers(&ask(&mut connection, &format!("CL.THROTTLE a 9 1 60 {quantity}")));
    assert_eq!(throttle(8), [0, 10, 2, -1, 480]);
    assert_eq!(throttle(-3), [0, 10, 5, -1, 300]);
    assert_eq!(throttle(-50), [0, 10, 10, -1, 0]);
}

/// Different keys are decided at once, and each key in the order of its commands.
#[test]
fn a_pipeline_on_redis_keeps_the_order_of_every_key() {
    let redis = tidegate_testkit::servers::Server::start();
    let server = TestServer::start_on_redis(&redis.url());
    let mut connection = server.connect();
    const EACH: usize = 40;
    let bytes: String = (0..3 * EACH).map(|number| format!("CL.THROTTLE key{} 29 1 3600 1\r\n", number % 3)).collect();
    connection.send_bytes(bytes.as_bytes()).expect("the server reads");
    let answers: Vec<Vec<i64>> = (0..3 * EACH).map(|_| numbers(&connection.receive().expect("a reply"))).collect();
    for key in 0..3 {
        let of_key: Vec<(i64, i64)> =
            answers.iter().skip(key).step_by(3).map(|answer| (answer[0], answer[2])).collect();
        let expected = (0..EACH as i64).map(|number| (i64::from(number >= 30), (29 - number).max(0)));
        assert_eq!(of_key, expected.collect::<Vec<_>>());
    }
    assert_eq!(numbers(&ask(&mut connection, "CL.THROTTLE key0 29 1 3600 31"))[..4], [1, 30, 0, -1]);
}

/// A client that sends ten thousand limits evicts cached limits, and has no other
/// effect.
#[test]
fn a_limit_that_is_made_anew_has_the_same_stand_in_while_the_store_is_away() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let closed_port = "redis://127.0.0.1:1";
        let store = tidegate_redis::RedisStore::connect(closed_port).await.expect("a store");
        let on_failure = "local".parse().expect("a mode");
        let settings = tidegate_server::Settings { http: vec![], on_failure, ..Default::default() };
        let server = tidegate_server::Server::start(settings, store).await.expect("a server");
        let limit = |count| tidegate::Limit::token_bucket(count, Duration::from_secs(3_600));
        let check = async |count| {
            let inline = server.app().engine.inline(limit(count)).expect("a limit");
            inline.limiter.check_async("alice").await.expect("the fallback answers")
        };
        assert!(check(1).await.is_allowed());
        for count in 2..10_010 {
            server.app().engine.inline(limit(count)).expect("a limit");
        }
        let again = check(1).await;
        assert!(!again.is_allowed() && again.is_degraded());
        assert_eq!(check(2).await.remaining(), Some(1), "each limit has its own");
    });
}
