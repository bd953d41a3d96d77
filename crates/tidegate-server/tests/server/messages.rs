//! Errors speak of the request: whatever a client sends, no reply names a type of Rust or repeats serde.

use tidegate_testkit::Random;

use crate::server::client::{Answer, Connection, curl};
use crate::server::running::Running;

/// What no client has to know.
const WORDS_OF_RUST: [&str; 20] = [
    "u64",
    "i64",
    "u32",
    "i32",
    "f64",
    "usize",
    "struct",
    "enum",
    "variant",
    "serde",
    "Option",
    "`",
    "&str",
    "Some(",
    "None",
    "invalid type",
    "invalid value",
    "missing field",
    "expected ident",
    "what is asked for",
];

const VALUES: [&str; 22] = [
    "null",
    "true",
    "5",
    "-1",
    "1.5",
    "1e400",
    "-0",
    "18446744073709551616",
    "\"x\"",
    "\"\"",
    "[]",
    "[1]",
    "[null]",
    "{}",
    "{\"a\": []}",
    "{\"a\": 1.5}",
    "{\"a\": null}",
    "[{\"a\": {}}]",
    "\"\\ud800\"",
    "nul",
    "01",
    "\"a\tb\"",
];

/// Paths, and a valid body of each with its fields.
const SHAPES: [(&str, &str); 11] = [
    ("/v1/check", r#"{"key": "a", "cost": 1, "limit": "9/h", "id": "i"}"#),
    ("/v1/peek", r#"{"attributes": {"user": "a"}, "rule": "everyone"}"#),
    ("/v1/refund", r#"[{"attributes": {"user": "a"}, "rule": "everyone"}, {"key": "b"}]"#),
    ("/v1/acquire", r#"{"key": "a", "timeout_ms": 1}"#),
    ("/v1/explain", r#"{"attributes": {"user": "a", "n": 5}, "cost": 2}"#),
    ("/admin/v1/keys/inspect", r#"{"key": "a", "limit": "sliding-log 5/s"}"#),
    ("/admin/v1/keys/reset", r#"{"attributes": {"user": "a"}}"#),
    ("/admin/v1/playground", r#"{"limit": "9/s", "traffic": "1/s", "duration": "1s", "seed": 7}"#),
    ("/json", r#"{"domain": "d", "hitsAddend": 1, "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}"#),
    ("/json", r#"{"domain": "d", "descriptors": [{"hitsAddend": "1", "isNegativeHits": false}]}"#),
    ("/json", r#"{"domain": "d", "descriptors": [{"limit": {"requestsPerUnit": 5, "unit": "MINUTE"}}]}"#),
];

/// Each field in turn with each value in place of its own; then each name gone, unknown, or there twice.
fn damaged(body: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    let names = body.match_indices("\": ").filter_map(|(end, _)| Some(body[..end].rfind('"')? + 1..end));
    for name in names {
        let start = name.end + 3;
        for value in VALUES {
            // Up to the next comma, which for what nests leaves a rest that is wrong in yet another way.
            let end = body[start..].find([',', '}']).map_or(body.len(), |length| start + length);
            bodies.push(format!("{}{value}{}", &body[..start], &body[end..]));
            let whole = body.rfind('}').unwrap_or(body.len());
            bodies.push(format!("{}{value}{}", &body[..start], &body[whole..]));
        }
        let (before, after) = (&body[..name.start], &body[name.end..]);
        bodies.push(format!("{before}unheard{after}"));
        bodies.push(format!("{before}{}\": 1, \"{}{after}", &body[name.clone()], &body[name.clone()]));
    }
    bodies
}

fn post(server: &Running, path: &str, body: &[u8]) -> Answer {
    let mut connection = Connection::open(server.address());
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.send(&[head.as_bytes(), body].concat()).unwrap();
    connection.answer().unwrap()
}

fn says_nothing_of_rust(path: &str, body: &[u8], answer: &Answer) {
    let found = WORDS_OF_RUST.iter().find(|word| answer.body.contains(*word));
    assert_eq!(found, None, "{path} {}: {answer:?}", body.escape_ascii());
}

#[test]
fn no_reply_speaks_rust_whatever_is_wrong_with_a_body() {
    let server = Running::start(&[]);
    let mut random = Random::new(11);
    let mut errors = 0;
    for (path, valid) in SHAPES {
        let mut bodies: Vec<Vec<u8>> = damaged(valid).into_iter().map(String::into_bytes).collect();
        bodies.extend(VALUES.map(Into::into));
        bodies.extend((0..valid.len()).map(|end| valid.as_bytes()[..end].to_vec()));
        for _ in 0..100 {
            let mut body = valid.as_bytes().to_vec();
            let place = random.within(0..=body.len() as u64 - 1) as usize;
            body[place] = random.choose(b"{}[]\",:0-9e.\\ \n\x00\x7f\xff");
            bodies.push(body);
        }
        for body in bodies {
            let answer = post(&server, path, &body);
            errors += u32::from(answer.status >= 400);
            // Simulations have a bound, and those before may still run.
            let is_answered = answer.status < 500 || path == "/admin/v1/playground";
            assert!(is_answered, "{path} {}: {answer:?}", body.escape_ascii());
            says_nothing_of_rust(path, &body, &answer);
        }
    }
    assert!(errors > 1_000, "{errors} of the bodies are wrong");
}

#[test]
fn a_message_says_where_what_and_what_is_expected() {
    let server = Running::start(&[]);
    for (path, body, said) in [
        (
            "/v1/check",
            "{\n  \"cost\": \"x\"\n}",
            "cost must be a whole number from 0 to 9007199254740991, not \"x\" (line 2, column 13)",
        ),
        ("/admin/v1/playground", "{\"limit\": \"9/s\"}", "field 'traffic' is missing (line 1, column 16)"),
        (
            "/admin/v1/playground",
            "{\"seed\": -1}",
            "seed must be a whole number from 0 to 18446744073709551615, not -1 (line 1, column 11)",
        ),
    ] {
        assert_eq!(post(&server, path, body.as_bytes()).json()["detail"], said);
    }
    for (body, said) in [
        (r#"{"descriptors": {}}"#, "descriptors must be a list, not an object"),
        (r#"{"descriptors": [{"entries": [{"key": 5}]}]}"#, "descriptors[0].entries[0].key must be a string, not 5"),
        (r#"{"descriptors": [{"isNegativeHits": 1}]}"#, "descriptors[0].isNegativeHits must be true or false, not 1"),
        (r#"{"hitsAddend": 4294967296}"#, "hitsAddend must be a whole number from 0 to 4294967295, not 4294967296"),
        (r#"{"hitsAddend": "x"}"#, "hitsAddend must be a whole number from 0 to 4294967295, not \"x\""),
    ] {
        let answer = post(&server, "/json", body.as_bytes());
        assert_eq!(answer.status, 400);
        assert!(answer.body.starts_with(&format!("not a RateLimitRequest: {said} (line 1,")), "{answer:?}");
    }
}

#[test]
fn the_errors_of_a_policy_are_told_without_rust_too() {
    let server = Running::start(&[]);
    let valid = r#"{"rules": {"r": {"limit": "9/h", "key": ["user"], "missing": "skip", "shadow": true}}}"#;
    for body in damaged(valid) {
        let url = server.url("/admin/v1/policy/validate");
        let answer = curl(&["-H", "content-type: application/json", "--data-binary", &body, &url]);
        says_nothing_of_rust("/admin/v1/policy/validate", body.as_bytes(), &answer);
    }
}
