//! Limits that come with the request: within their caps, and never at the cost of the policy's keys.

use std::fmt::Write;

use tidegate_testkit::servers;

use crate::server::client::{Answer, curl, post};
use crate::server::running::{Folder, Running};

const POLICY: &str = "[rules.all]\nlimit = \"5/h\"\nkey = [\"user\"]\n";

/// So many requests at once, as they are written by their number.
fn batch(server: &Running, numbers: std::ops::Range<usize>, request: impl Fn(usize) -> String) -> serde_json::Value {
    let requests: Vec<String> = numbers.map(request).collect();
    let folder = Folder::new();
    let body = folder.write("body", &format!("[{}]", requests.join(",")));
    let answer = post(&server.url("/v1/check"), &format!("@{body}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Charges as many keys as there are, by limits that last: how many were decided on, and why the others were not.
fn flood(server: &Running, keys: usize) -> (usize, Vec<serde_json::Value>) {
    let (mut decided, mut problems) = (0, Vec::new());
    for from in (0..keys).step_by(1_000) {
        let answers = batch(server, from..from + 1_000, |key| format!(r#"{{"key":"p{key}","limit":"1/day"}}"#));
        for answer in answers.as_array().unwrap() {
            if answer["allowed"].is_boolean() { decided += 1 } else { problems.push(answer.clone()) }
        }
    }
    (decided, problems)
}

/// Callers that were never seen have the whole of their limit.
fn newcomers_are_admitted(server: &Running) {
    let answers = batch(server, 0..300, |user| format!(r#"{{"attributes":{{"user":"honest {user}"}}}}"#));
    for answer in answers.as_array().unwrap() {
        assert_eq!((&answer["allowed"], &answer["remaining"]), (&true.into(), &4.into()), "{answer}");
    }
}

fn metric(server: &Running, name: &str) -> usize {
    let metrics = curl(&[&server.url("/metrics")]).body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

#[test]
fn a_flood_of_inline_keys_leaves_the_memory_store_to_the_policy() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", POLICY);
    let server = Running::start(&["--policy", &policy, "--max-keys", "1000", "--inline-max-keys", "1000"]);
    let (decided, problems) = flood(&server, 8_000);
    assert_eq!((decided, problems.len()), (8_000, 0), "without room, keys share a limit");
    newcomers_are_admitted(&server);
    assert!((1_000..2_000).contains(&metric(&server, "tidegate_inline_keys")));
    assert!(metric(&server, "tidegate_inline_overflows_total") > 6_000);
    assert_eq!(metric(&server, "tidegate_store_overflows_total"), 0);
}

#[test]
fn a_flood_of_inline_keys_leaves_redis_to_the_policy() {
    let (redis, folder) = (servers::Server::start(), Folder::new());
    let policy = folder.write("policy.toml", POLICY);
    let server = Running::start(&["--policy", &policy, "--store", &redis.url(), "--inline-max-keys", "500"]);
    let (decided, problems) = flood(&server, 4_000);
    assert!((500..1_000).contains(&decided), "{decided} keys in a table for 500");
    assert_eq!(redis.command(&["DBSIZE"]).integer(), decided as i64, "those without room never reach Redis");
    for problem in problems {
        assert_eq!(
            (&problem["status"], &problem["type"]),
            (&503.into(), &"urn:problem-type:tidegate:inline-full".into())
        );
        assert!(problem["detail"].as_str().unwrap().contains("--inline-max-keys"), "{problem}");
    }
    newcomers_are_admitted(&server);
    assert_eq!(metric(&server, "tidegate_inline_keys"), decided);
    assert_eq!(metric(&server, "tidegate_errors_total{reason=\"inline-full\"}"), 4_000 - decided);
    // A key that has its place keeps it.
    let known = flood(&server, 1_000).0;
    assert!(known > 0 && redis.command(&["DBSIZE"]).integer() < 1_500);
}

fn check(server: &Running, limit: &str) -> Answer {
    post(&server.url("/v1/check"), &format!(r#"{{"key": "alice", "limit": "{limit}"}}"#))
}

#[test]
fn a_limit_beyond_the_caps_is_an_error_that_names_the_flag() {
    let caps = ["--inline-max-period", "1h", "--inline-max-count", "100"];
    let server = Running::start(&[&caps[..], &["--resp", "127.0.0.1:0"]].concat());
    let mut resp = servers::Connection::open(server.address_of("resp").parse().unwrap()).unwrap();
    assert_eq!(check(&server, "100/h").status, 200);
    assert!(!resp.command(&["CL.THROTTLE", "a", "99", "100", "3600"]).unwrap().is_error());
    for (limit, numbers, flag) in [
        ("1/2h", ["0", "1", "7200"], "--inline-max-period"),
        ("1/min burst 61", ["60", "1", "60"], "--inline-max-period"),
        ("101/s", ["0", "101", "1"], "--inline-max-count"),
        ("1/s burst 101", ["100", "1", "1"], "--inline-max-count"),
    ] {
        for path in ["/v1/check", "/v1/peek", "/v1/explain"] {
            let answer = post(&server.url(path), &format!(r#"{{"key": "alice", "limit": "{limit}"}}"#));
            assert_eq!(
                (answer.status, &answer.json()["type"]),
                (400, &"urn:problem-type:tidegate:invalid-request".into())
            );
            assert!(answer.body.contains(flag), "{answer:?}");
        }
        let check = resp.command(&["TIDEGATE.CHECK", "KEY", "a", "LIMIT", limit]).unwrap();
        let throttle = resp.command(&[&["CL.THROTTLE", "a"], &numbers[..]].concat()).unwrap();
        for (reply, begin) in [(check, "ERR "), (throttle, "Cell error: ")] {
            let servers::Reply::Error(words) = reply else { panic!("{reply:?}") };
            assert!(words.starts_with(begin) && words.contains(flag), "{words}");
        }
    }
}

#[test]
fn a_server_without_inline_limits_refuses_them_on_every_wire() {
    let server = Running::start(&["--no-inline", "--resp", "127.0.0.1:0"]);
    let mut resp = servers::Connection::open(server.address_of("resp").parse().unwrap()).unwrap();
    let mut said = String::new();
    for answer in [
        check(&server, "1/s"),
        post(&server.url("/v1/check"), r#"[{"key": "alice", "limit": "1/s"}]"#),
        post(
            &server.url("/json"),
            r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "b"}], "limit": {"requestsPerUnit": 1, "unit": "DAY"}}]}"#,
        ),
    ] {
        assert_eq!(answer.status, 400, "{answer:?}");
        said += &answer.body;
    }
    for words in [
        &["CL.THROTTLE", "a", "0", "1", "60"][..],
        &["THROTTLE", "a", "1", "1", "60"],
        &["TIDEGATE.CHECK", "KEY", "a", "LIMIT", "1/s"],
    ] {
        let servers::Reply::Error(words) = resp.command(words).unwrap() else { panic!("{words:?}") };
        write!(said, "{words}").unwrap();
    }
    assert_eq!(said.matches("--no-inline").count(), 6, "{said}");
    let by_policy = post(&server.url("/v1/check"), r#"{"attributes": {"user": "alice", "ip": "192.0.2.1"}}"#);
    assert_eq!(by_policy.status, 200, "{by_policy:?}");
    assert!(!resp.command(&["TIDEGATE.CHECK", "user", "alice", "ip", "192.0.2.1"]).unwrap().is_error());
}

#[test]
fn an_inline_max_period_that_is_no_duration_is_refused_at_the_start() {
    let output = crate::server::running::ask(&["serve", "--inline-max-period", "soon"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("such as 12h or 1d"), "{said}");
}
