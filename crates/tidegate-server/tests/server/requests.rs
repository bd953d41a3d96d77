//! Requests of every kind, by curl: answers, and errors that say what to do.

use std::process::Command;

use crate::server::client::{ALICE, curl, post};
use crate::server::running::{Folder, Running};

/// What the server prints to try, tried.
fn tried(server: &Running) -> String {
    let line = server.banner.lines().find_map(|line| line.strip_prefix("Try: ")).unwrap();
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_line_that_the_banner_says_to_try_works() {
    let printed = tried(&Running::start(&[]));
    assert!(printed.starts_with("HTTP/1.1 200 OK"), "{printed}");
    assert!(printed.contains("\"allowed\":true") && printed.contains("\"remaining\":19"), "{printed}");
}

#[test]
fn the_line_to_try_has_the_key_attributes_of_the_policy() {
    let folder = Folder::new();
    for (policy, attributes, rule) in [
        ("rules: { a: { limit: 5/h, key: [ip] } }", r#"{"ip":"192.0.2.1"}"#, "a"),
        ("rules: { a: { limit: 5/h, key: [user, ip] } }", r#"{"ip":"192.0.2.1","user":"alice"}"#, "a"),
        (
            "rules: { a: { limit: 9/h }, b: { limit: 5/h, key: [ { attribute: peer, ipv6: 48 } ] } }",
            r#"{"peer":"192.0.2.1","user":"alice"}"#,
            "b",
        ),
        ("rules: { a: { limit: 5/h, key: [tenant], match: { plan: pro } } }", r#"{"tenant":"example"}"#, "unlimited"),
        ("rules: { a: { limit: 5/h, key: [\"it's\"] } }", r#"{"it's":"example"}"#, "a"),
        ("rules: { a: { limit: 5/h, key: [] } }", r#"{"user":"alice"}"#, "a"),
        ("rules: { a: { limit: 5/h, key: [org], missing: skip } }", r#"{"org":"example"}"#, "a"),
    ] {
        let server = Running::start(&["--policy", &folder.write("policy.yaml", policy)]);
        let (printed, banner) = (tried(&server), server.banner.replace(r"'\''", "'"));
        assert!(banner.contains(&format!(r#"Try: curl -i --json '{{"attributes":{attributes}}}' http"#)), "{banner}");
        assert!(printed.starts_with("HTTP/1.1 200 OK"), "{policy}: {printed}");
        assert!(printed.contains(&format!(r#""rule":"{rule}""#)), "{policy}: {printed}");
        let metrics = curl(&[&server.url("/metrics")]).body;
        assert!(!metrics.contains("tidegate_errors_total{"), "to print it counts nothing: {metrics}");
    }
}

#[test]
fn a_refusal_is_429_with_the_wait_in_its_fields() {
    let server = Running::start(&[]);
    let ask = || post(&server.url("/v1/check"), r#"{"key": "alice", "limit": "2/h"}"#);
    let first = ask();
    assert_eq!((first.status, first.header("retry-after")), (200, None));
    assert_eq!(first.header("ratelimit-policy"), Some(r#""inline";q=2;w=3600"#));
    assert_eq!(first.header("ratelimit"), Some(r#""inline";r=1;t=1800"#));
    assert_eq!(first.header("content-type"), Some("application/json"));
    ask();
    let refusal = ask();
    assert_eq!(refusal.status, 429);
    assert_eq!(refusal.header("content-type"), Some("application/problem+json"));
    let seconds: u64 = refusal.header("retry-after").unwrap().parse().unwrap();
    let json = refusal.json();
    let micros = json["retry_after_us"].as_u64().unwrap();
    assert_eq!(seconds, micros.div_ceil(1_000_000));
    assert_eq!(json["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&json["violated-policies"][0], &json["allowed"]), (&"inline".into(), &false.into()));
}

#[test]
fn all_limits_that_were_met_are_listed_and_the_tightest_is_told() {
    let folder = Folder::new();
    let policy = "[rules.minute]\nlimit = \"10/min\"\n[rules.day]\nlimit = \"fixed 100/day\"\n";
    let policy = folder.write("policy.toml", policy);
    let server = Running::start(&["--policy", &policy]);
    let answer = post(&server.url("/v1/check"), r#"{"key": "alice", "cost": 4}"#);
    assert_eq!(answer.header("ratelimit-policy"), Some(r#""minute";q=10;w=60, "day";q=100;w=86400"#));
    assert_eq!(answer.header("ratelimit"), Some(r#""minute";r=6;t=6"#), "the next unit comes in six seconds");
}

#[test]
fn peek_refund_and_reset_do_what_they_say() {
    let server = Running::start(&[]);
    let remaining = |verb: &str, cost: u64| {
        let body = format!(r#"{{"key": "alice", "limit": "10/d", "cost": {cost}}}"#);
        let answer = post(&server.url(&format!("/v1/{verb}")), &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["remaining"].as_u64().unwrap()
    };
    assert_eq!(remaining("check", 7), 3);
    assert_eq!(remaining("peek", 1), 3);
    assert_eq!(remaining("peek", 9), 3);
    assert_eq!(remaining("refund", 2), 5);
    assert_eq!(remaining("reset", 0), 10);
}

#[test]
fn a_report_is_never_refused_and_says_what_is_not_recorded() {
    let server = Running::start(&[]);
    let ask = |verb: &str, cost: u64| {
        let body = format!(r#"{{"key": "alice", "limit": "10/d debt 5", "cost": {cost}}}"#);
        post(&server.url(&format!("/v1/{verb}")), &body)
    };
    let reported = ask("report", 12);
    assert_eq!((reported.status, reported.json()["allowed"].as_bool()), (200, Some(true)), "{reported:?}");
    assert_eq!((&reported.json()["remaining"], reported.json().get("unrecorded")), (&0.into(), None));
    let refused = ask("check", 1);
    assert_eq!(refused.status, 429);
    // Two are owed, and one more must come: a tenth of a day each.
    let wait = refused.json()["retry_after_us"].as_u64().unwrap();
    assert!((25_800_000_000..=25_920_000_000).contains(&wait), "{wait}");
    let more = ask("report", 100);
    assert_eq!((more.status, more.json()["unrecorded"].as_u64()), (200, Some(97)));
    let batch = r#"[{"key": "bob", "limit": "3/d", "cost": 4}, {"key": "carol", "limit": "3/d", "cost": 9}]"#;
    let answers = post(&server.url("/v1/report"), batch);
    assert_eq!(answers.status, 200);
    assert_eq!((&answers.json()[0].get("unrecorded"), &answers.json()[1]["unrecorded"]), (&None, &3.into()));
    assert_eq!(ask("refund", 10).json()["remaining"], 5, "all that can be owed, less ten");
}

#[test]
fn a_request_with_an_id_is_charged_once() {
    let server = Running::start(&[]);
    let check = |cost: u64| {
        let body = format!(r#"{{"key": "alice", "limit": "10/d", "cost": {cost}, "id": "order-17"}}"#);
        post(&server.url("/v1/check"), &body)
    };
    assert_eq!(check(3).json()["remaining"], 7);
    assert_eq!(check(3).json()["remaining"], 7);
    let another = check(4);
    assert_eq!(another.status, 422);
    assert_eq!(another.json()["type"], "urn:problem-type:tidegate:id-reused");
    let said = "the request id \"order-17\" was used for another request: give each request an id of its own";
    assert_eq!(another.json()["detail"], said);
    let metrics = curl(&[&server.url("/metrics")]).body;
    assert!(metrics.contains("tidegate_decisions_total{rule=\"inline\",outcome=\"allowed\"} 1\n"), "{metrics}");
    assert!(metrics.contains("tidegate_repeated_decisions_total{rule=\"inline\"} 1\n"), "{metrics}");
}

#[test]
fn a_batch_is_answered_in_order_and_each_for_itself() {
    let server = Running::start(&[]);
    let batch =
        r#"[{"key": "a", "limit": "1/h"}, {"key": "a", "limit": "1/h"}, {"key": "b", "limit": "1/h", "cost": 2}]"#;
    let answer = post(&server.url("/v1/check"), batch);
    assert_eq!(answer.status, 200);
    let json = answer.json();
    assert_eq!((&json[0]["allowed"], json[0].get("status")), (&true.into(), None));
    assert_eq!((&json[1]["allowed"], &json[1]["status"]), (&false.into(), &429.into()));
    assert_eq!(json[2]["status"], 422);
    assert_eq!(post(&server.url("/v1/check"), "[]").body, "[]");
}

#[test]
fn a_batch_with_one_error_decides_nothing() {
    let server = Running::start(&[]);
    let batch = r#"[{"key": "a", "limit": "1/h"}, {"key": "a", "limit": "1/fortnight"}]"#;
    assert_eq!(post(&server.url("/v1/check"), batch).status, 400);
    let answer = post(&server.url("/v1/peek"), r#"{"key": "a", "limit": "1/h"}"#);
    assert_eq!(answer.json()["remaining"], 1);
}

#[test]
fn acquire_waits_for_as_long_as_it_may() {
    let server = Running::start(&[]);
    let acquire = |timeout: u64| {
        let body = format!(r#"{{"key": "a", "limit": "10/s burst 1", "timeout_ms": {timeout}}}"#);
        post(&server.url("/v1/acquire"), &body)
    };
    for _ in 0..3 {
        assert_eq!(acquire(60_000).status, 200);
    }
    let refusal = post(&server.url("/v1/acquire"), r#"{"key": "b", "limit": "1/h", "timeout_ms": 0}"#);
    assert_eq!(refusal.status, 200);
    let refusal = post(&server.url("/v1/acquire"), r#"{"key": "b", "limit": "1/h", "timeout_ms": 1000}"#);
    assert_eq!(refusal.status, 429);
    assert!(refusal.json()["retry_after_us"].as_u64().unwrap() > 3_000_000_000);
}

#[test]
fn rules_go_by_attributes() {
    let folder = Folder::new();
    let policy = folder.write(
        "policy.yaml",
        "rules:
  orders: { limit: 2/h, match: { method: POST }, key: [user], overrides: { user: { acme: unlimited } } }
  reads: { limit: 5/h, match: { method: GET }, key: [ip] }
lists: { deny: [ { user: mallory } ] }
",
    );
    let server = Running::start(&["--policy", &policy]);
    let check = |attributes: &str| post(&server.url("/v1/check"), &format!(r#"{{"attributes": {attributes}}}"#));
    assert_eq!(check(r#"{"user": "alice", "method": "POST"}"#).json()["remaining"], 1);
    assert_eq!(check(r#"{"user": 7, "method": "POST"}"#).json()["remaining"], 1);
    assert_eq!(check(r#"{"ip": "192.0.2.1", "method": "GET"}"#).json()["rule"], "reads");
    let unlimited = check(r#"{"user": "acme", "method": "POST"}"#);
    assert_eq!((unlimited.status, unlimited.header("ratelimit")), (200, None));
    assert!(unlimited.json()["limit"].is_null() && unlimited.json()["remaining"].is_null());
    let blocked = check(r#"{"user": "mallory", "method": "GET"}"#);
    assert_eq!((blocked.status, blocked.header("retry-after"), blocked.header("ratelimit")), (403, None, None));
    assert!(blocked.json()["retry_after_us"].is_null());
    let request = r#"{"attributes": {"user": "mallory", "method": "GET"}, "timeout_ms": 60000}"#;
    assert_eq!(post(&server.url("/v1/acquire"), request).status, 403, "no wait helps");
    let peeked = post(&server.url("/v1/peek"), r#"{"attributes": {"user": "mallory", "method": "GET"}}"#);
    assert_eq!((peeked.status, &peeked.json()["allowed"]), (200, &false.into()));
    let named = post(&server.url("/v1/check"), r#"{"attributes": {"user": "bob"}, "rule": "orders"}"#);
    assert_eq!(named.json()["rule"], "orders");
    let explained = post(&server.url("/v1/explain"), r#"{"attributes": {"user": "alice", "method": "POST"}}"#).json();
    assert_eq!(explained["rules"][0]["says"], "allows");
    assert_eq!(explained["rules"][0]["limit"], "2/h by user");
    assert_eq!(explained["rules"][1]["says"], "does-not-match");
    assert!(explained["text"].as_str().unwrap().contains("the rule asks that it is \"GET\""), "{explained}");
}

/// Every outcome but those of a bad request: a request, its status, and the end of the problem's type. First come those
/// that are admitted.
const OUTCOMES: &[(&str, u16, &str)] = &[
    (r#"{"attributes": {"user": "alice"}, "cost": 2}"#, 200, ""),
    (r#"{"attributes": {"user": "carol"}, "id": "order-1", "cost": 2}"#, 200, ""),
    (r#"{"attributes": {"user": "alice"}}"#, 429, "quota-exceeded"),
    (r#"{"attributes": {"user": "mallory"}}"#, 403, "denied"),
    (r#"{"attributes": {"user": "dave", "path": "/closed"}}"#, 403, "denied"),
    (r#"{"attributes": {"user": "dave"}, "cost": 3}"#, 422, "unsatisfiable"),
    (r#"{"attributes": {"path": "/"}}"#, 422, "missing-attribute"),
    (r#"{"key": "dave"}"#, 422, "missing-attribute"),
    (r#"{"attributes": {"user": "dave", "ip": "here"}}"#, 422, "not-an-address"),
    (r#"{"attributes": {"user": "dave"}, "rule": "none"}"#, 422, "unknown-rule"),
    (r#"{"attributes": {"user": "carol"}, "id": "order-1"}"#, 422, "id-reused"),
];

#[test]
fn each_outcome_has_one_status_alone_and_in_a_batch_and_errors_are_no_decisions() {
    let folder = Folder::new();
    let policy = "
rules:
  all: { limit: 2/h, key: [user] }
  closed: { limit: blocked, match: { path: /closed }, key: [user] }
lists: { deny: [ { user: mallory }, { ip: 192.0.2.66 } ] }
";
    let server = Running::start(&["--policy", &folder.write("policy.yaml", policy)]);
    for (body, status, kind) in OUTCOMES {
        let answer = post(&server.url("/v1/check"), body);
        assert_eq!(answer.status, *status, "{body}: {answer:?}");
        let retry_after = answer.header("retry-after");
        assert_eq!(retry_after.is_some(), *status == 429, "{body}: {answer:?}");
        let is_told = answer.header("ratelimit").is_some() && answer.header("ratelimit-policy").is_some();
        assert_eq!(is_told, [200, 429].contains(status), "{body}: {answer:?}");
        if *status != 200 {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            assert!(answer.json()["type"].as_str().unwrap().ends_with(kind), "{body}: {answer:?}");
        }
    }
    let bodies: Vec<&str> = OUTCOMES[2..].iter().map(|(body, ..)| *body).collect();
    let batch = post(&server.url("/v1/check"), &format!("[{}]", bodies.join(",")));
    assert_eq!(batch.status, 200);
    for (item, (body, status, kind)) in batch.json().as_array().unwrap().iter().zip(&OUTCOMES[2..]) {
        assert_eq!(item["status"], *status, "{body}: {item}");
        assert!(item["type"].as_str().unwrap().ends_with(kind), "{body}: {item}");
    }
    let metrics = curl(&[&server.url("/metrics")]).body;
    let counted = |name: &str| {
        let counted = metrics.lines().filter(|line| !line.ends_with(" 0"));
        let mut lines: Vec<&str> = counted.filter_map(|line| line.strip_prefix(name)).collect();
        lines.sort_unstable();
        lines
    };
    let decisions = [
        r#"{rule="all",outcome="allowed"} 2"#,
        r#"{rule="all",outcome="refused"} 2"#,
        r#"{rule="closed",outcome="refused"} 2"#,
        r#"{rule="denied",outcome="refused"} 2"#,
    ];
    assert_eq!(counted("tidegate_decisions_total"), decisions);
    let errors = [
        r#"{reason="id-reused"} 2"#,
        r#"{reason="missing-attribute"} 4"#,
        r#"{reason="not-an-address"} 2"#,
        r#"{reason="unknown-rule"} 2"#,
        r#"{reason="unsatisfiable"} 2"#,
    ];
    assert_eq!(counted("tidegate_errors_total"), errors);
    assert!(counted("tidegate_missing_attributes_total").contains(&r#"{rule="all"} 4"#), "{metrics}");
    let rules = curl(&[&server.url("/admin/v1/live")]).json()["rules"].clone();
    assert_eq!((&rules[0]["rule"], &rules[0]["missing"]), (&"all".into(), &4.into()), "{rules}");
}

/// Bad requests: path, body, status, and what the answer must mention.
const ERRORS: &[(&str, &str, u16, &str)] = &[
    ("check", "", 400, "the body is empty"),
    ("check", "{", 400, "EOF while parsing an object (line 1, column 1)"),
    ("check", "nonsense", 400, "expected true, false or null (line 1, column 2)"),
    (
        "check",
        "42",
        400,
        "the body must be an object with attributes, key, cost, amounts, rule, id, ttl_ms, limit and timeout_ms, not \
         42",
    ),
    ("reserve", "{\"key\": \"a\"}", 400, "id is missing: send the id of the reservation"),
    ("settle", "{\"key\": \"a\"}", 400, "id is missing"),
    ("renew", "[{\"key\": \"a\", \"id\": null}]", 400, "id is missing"),
    ("release", "{\"key\": \"a\"}", 400, "id is missing"),
    ("settle", "{\"key\": \"a\", \"id\": \"x\"}", 404, "no reservation \"x\" is open for this key"),
    (
        "reserve",
        "{\"key\": \"a\", \"id\": \"x\", \"ttl_ms\": 0}",
        400,
        "ttl_ms must be a whole number from 1 to 86400000, not 0",
    ),
    ("check", "{\"key\": \"a\", \"ttl_ms\": 5}", 400, "the time to live is how long the id is remembered"),
    (
        "check",
        "{\"key\": \"a\", \"cost\": null}",
        400,
        "cost must be a whole number from 0 to 9007199254740991, not null",
    ),
    (
        "check",
        "{\"key\": \"a\", \"amounts\": 5}",
        400,
        "amounts must be an object whose values are whole numbers, not 5",
    ),
    ("check", "{\"key\": \"a\", \"amounts\": {\"tokens\": -5}}", 400, "amounts.tokens must be a whole number from 0"),
    ("peek", "{\"key\": \"a\", \"amounts\": {\"b\": 1, \"b\": 2}}", 400, "amount \"b\" is given twice"),
    ("check", "null", 400, "the body must be an object with attributes"),
    ("check", "[[\"alice\"]]", 400, "[0] must be an object with attributes"),
    ("check", "{} {}", 400, "trailing characters"),
    ("check", "{}", 400, "neither a key nor attributes"),
    ("check", "{\"cost\": 5, \"id\": \"x\"}", 400, "neither a key nor attributes"),
    ("check", "{\"key\": \"\"}", 400, "key is empty"),
    ("check", "{\"key\": \"a\", \"key\": \"b\"}", 400, "duplicate field 'key' (line 1, column 18)"),
    ("check", "{\"kee\": \"a\"}", 400, "unknown field 'kee', expected one of 'key', 'attributes'"),
    ("check", "{\"key\": 5}", 400, "key must be a string, not 5 (line 1, column 9)"),
    ("check", "{\"key\": \"\\ud800\"}", 400, "hex escape"),
    ("check", "{\"cost\": -1}", 400, "cost must be a whole number from 0 to 9007199254740991, not -1"),
    ("check", "{\"cost\": 1.5}", 400, "9007199254740991, not 1.5"),
    ("check", "{\"cost\": \"x\"}", 400, "9007199254740991, not \"x\" (line 1, column 12)"),
    ("check", "{\"cost\": 9007199254740992}", 400, "9007199254740991, not 9007199254740992"),
    ("check", "{\"cost\": 99999999999999999999999}", 400, "9007199254740991, not 1e"),
    (
        "check",
        "{\"attributes\": [1]}",
        400,
        "attributes must be an object whose values are strings or whole numbers, not a list",
    ),
    ("check", "{\"attributes\": {\"a\": 9007199254740992}}", 400, "9007199254740991, not 9007199254740992"),
    ("check", "{\"attributes\": {\"a\": -9007199254740992}}", 400, "9007199254740991, not -9007199254740992"),
    (
        "check",
        "{\"attributes\": {\"a\": true}}",
        400,
        "attributes.a must be a string, or a whole number of at most 9007199254740991, not true",
    ),
    ("check", "{\"attributes\": {\"a\": {}}}", 400, "9007199254740991, not an object"),
    ("check", "{\"attributes\": {\"a\": \"1\", \"a\": \"2\"}}", 400, "attribute \"a\" is given twice"),
    ("check", "{\"limit\": \"1/h\"}", 400, "send \"key\" beside \"limit\""),
    ("check", "{\"key\": \"a\", \"limit\": \"1/h\", \"attributes\": {\"a\": \"b\"}}", 400, "neither \"attributes\""),
    ("check", "{\"key\": \"a\", \"limit\": \"1/h\", \"rule\": \"x\"}", 400, "nor \"rule\""),
    ("check", "{\"key\": \"a\", \"limit\": \"often\"}", 400, "cannot read \"often\" as a limit"),
    ("check", "{\"key\": \"a\", \"limit\": \"0/h\"}", 400, "zero"),
    ("check", "{\"key\": \"a\", \"timeout_ms\": 5}", 400, "only /v1/acquire waits"),
    ("check", "{\"key\": \"a\", \"rule\": \"none\"}", 422, "no rule \"none\""),
    ("check", "{\"key\": \"a\", \"cost\": 21}", 422, "can never fit the limit of 20"),
    ("check", "[{\"key\": \"a\"}, {\"cost\": null}]", 400, "[1].cost must be a whole number"),
    ("check", "[{\"key\": \"a\"}, 1]", 400, "[1] must be an object with attributes"),
    ("check", "[{\"key\": \"a\"}", 400, "EOF while parsing a list"),
    ("acquire", "{\"key\": \"a\"}", 400, "timeout_ms is missing"),
    (
        "acquire",
        "{\"key\": \"a\", \"timeout_ms\": 60001}",
        400,
        "timeout_ms must be a whole number from 0 to 60000, not 60001",
    ),
    ("acquire", "{\"key\": \"a\", \"cost\": 21, \"timeout_ms\": 1}", 422, "can never fit"),
    ("acquire", "{\"key\": \"a\", \"rule\": \"none\", \"timeout_ms\": 1}", 422, "no rule \"none\""),
    ("acquire", "[]", 400, "not a batch"),
    ("explain", "[]", 400, "not a batch"),
];

#[test]
fn every_error_is_told_and_the_server_goes_on() {
    let server = Running::start(&["--max-batch", "3", "--max-body", "10000"]);
    for (path, body, status, words) in ERRORS {
        let answer = post(&server.url(&format!("/v1/{path}")), body);
        assert_eq!(answer.status, *status, "{path} {body}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let json = answer.json();
        assert_eq!(json["status"], *status);
        assert!(json["detail"].as_str().unwrap().contains(words), "{path} {body}: {json}");
    }
    let long = format!(r#"{{"key": "{}"}}"#, "x".repeat(4097));
    assert!(post(&server.url("/v1/check"), &long).json()["detail"].as_str().unwrap().contains("at most 4096"));
    let names: Vec<String> = (0..65).map(|number| format!(r#""a{number}": 1"#)).collect();
    let many = format!(r#"{{"attributes": {{{}}}}}"#, names.join(","));
    assert!(post(&server.url("/v1/check"), &many).json()["detail"].as_str().unwrap().contains("at most 64"));
    let units: Vec<String> = (0..17).map(|number| format!(r#""u{number}": 1"#)).collect();
    let many = format!(r#"{{"key": "a", "amounts": {{{}}}}}"#, units.join(","));
    let detail = post(&server.url("/v1/check"), &many).json()["detail"].clone();
    assert_eq!(detail, "the request has 17 amounts: send at most 16");
    let long = format!(r#"{{"key": "a", "amounts": {{"{}": 1}}}}"#, "u".repeat(65));
    let detail = post(&server.url("/v1/check"), &long).json()["detail"].clone();
    assert_eq!(detail, "the name of a unit has 65 bytes: send at most 64");
    // It is refused where it is too long: what follows is not read.
    for end in ["]", ", x"] {
        let batch = post(&server.url("/v1/check"), &format!("[{}{end}", [ALICE; 4].join(",")));
        let detail = batch.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("the batch has more than 3 requests: send at most 3 at a time"), "{detail}");
    }
    let deep = "[".repeat(9_000);
    assert_eq!(post(&server.url("/v1/check"), &deep).status, 400);
    let folder = Folder::new();
    let large = format!("@{}", folder.write("large.json", &" ".repeat(10_001)));
    assert_eq!(post(&server.url("/v1/check"), &large).status, 413);
    let chunked = curl(&["-H", "transfer-encoding: chunked", "--json", &large, &server.url("/v1/check")]);
    assert_eq!(chunked.status, 413);
    let bytes = folder.path("bytes");
    std::fs::write(&bytes, b"{\"key\": \"\xff\xfe\"}").unwrap();
    assert_eq!(post(&server.url("/v1/check"), &format!("@{bytes}")).status, 400);
    assert_eq!(curl(&[&server.url("/healthz")]).status, 200);
}

#[test]
fn paths_and_methods_that_are_not_there_say_what_is() {
    let server = Running::start(&[]);
    let nothing = curl(&[&server.url("/v2/check?x=1")]);
    assert_eq!((nothing.status, nothing.header("content-type")), (404, Some("application/problem+json")));
    let got = curl(&[&server.url("/v1/check")]);
    assert_eq!((got.status, got.header("allow")), (405, Some("POST")));
    let put = curl(&["-X", "DELETE", &server.url("/metrics")]);
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn metrics_count_by_rule_and_outcome_and_never_by_key() {
    let server = Running::start(&[]);
    for _ in 0..3 {
        post(&server.url("/v1/check"), r#"{"key": "a-key-to-look-for", "limit": "2/h"}"#);
    }
    post(&server.url("/v1/check"), r#"{"key": "a-key-to-look-for", "cost": 1000}"#);
    let metrics = curl(&[&server.url("/metrics")]).body;
    for line in [
        "tidegate_decisions_total{rule=\"inline\",outcome=\"allowed\"} 2",
        "tidegate_decisions_total{rule=\"inline\",outcome=\"refused\"} 1",
        "tidegate_errors_total{reason=\"unsatisfiable\"} 1",
        "tidegate_request_duration_seconds_count{protocol=\"http\"} 4",
        "tidegate_store_keys 0",
        "tidegate_inline_keys 1",
        "tidegate_inline_overflows_total 0",
        "tidegate_store_overflows_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("a-key-to-look-for"));
}
