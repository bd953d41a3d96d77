//! The library's bounds, as the server sets them: entries of a log, callers that
//! wait, names of rules.

use serde_json::json;
use tidegate_testkit::servers::eventually;

use crate::server::client::{Connection, curl, post};
use crate::server::running::{Folder, Running, ask};

const LONG: &str = "sliding-log 3000000/day";

/// Within the caps of inline limits.
const INLINE: &str = "sliding-log 200000/h";

fn validate(server: &Running, folder: &Folder, text: &str) -> serde_json::Value {
    let file = format!("@{}", folder.write("validated.toml", text));
    let url = server.url("/admin/v1/policy/validate");
    curl(&["-H", "content-type: application/toml", "--data-binary", &file, &url]).json()
}

#[test]
fn a_log_beyond_the_bound_is_refused_on_every_way_in() {
    let folder = Folder::new();
    let text = format!("[rules.orders]\nlimit = '{LONG}'\n");
    let policy = folder.write("policy.toml", &text);
    let says = |said: &str| {
        assert!(said.contains("rule \\\"orders\\\"") || said.contains("rule \"orders\""), "{said}");
        assert!(said.contains("at most 100000 are allowed") && said.contains("max_log_entries"), "{said}");
    };
    let refused = ask(&["serve", "--http", "127.0.0.1:0", "--policy", &policy]);
    assert!(!refused.status.success());
    says(&String::from_utf8_lossy(&refused.stderr));
    let invalid = ask(&["validate", &policy]);
    assert_eq!(invalid.status.code(), Some(1));
    says(&String::from_utf8_lossy(&invalid.stderr));
    assert!(String::from_utf8_lossy(&invalid.stderr).contains(":2:"), "{invalid:?}");
    assert!(ask(&["validate", "--max-log-entries", "3000000", &policy]).status.success());

    let server = Running::start(&[]);
    let found = validate(&server, &folder, &text);
    assert_eq!((&found["valid"], &found["errors"][0]["line"]), (&false.into(), &2.into()));
    says(found["errors"][0]["message"].as_str().unwrap());
    let url = server.url("/admin/v1/policy");
    let put = curl(&["-X", "PUT", "-H", "content-type: application/toml", "--data-binary", &text, &url]);
    assert_eq!(put.status, 422);
    says(put.json()["detail"].as_str().unwrap());
    let inline = post(&server.url("/v1/check"), &json!({"key": "alice", "limit": INLINE}).to_string());
    assert_eq!(inline.status, 400);
    assert!(inline.json()["detail"].as_str().unwrap().contains("use a sliding counter"), "{inline:?}");

    let server = Running::start(&["--max-log-entries", "3000000", "--policy", &policy]);
    assert_eq!(post(&server.url("/v1/check"), r#"{"key": "alice"}"#).status, 200);
    let inline = post(&server.url("/v1/check"), &json!({"key": "alice", "limit": INLINE}).to_string());
    assert_eq!(inline.status, 200);
}

#[test]
fn callers_beyond_the_bound_do_not_wait_whatever_limit_they_wait_for() {
    let server = Running::start(&["--max-waiters", "2"]);
    let wait = |limit: &str| {
        let mut connection = Connection::open(server.address());
        let request = json!({"key": "alice", "limit": limit, "timeout_ms": 60_000}).to_string();
        connection.ask("/v1/acquire", &request).unwrap();
        connection
    };
    assert_eq!([wait("1/50s"), wait("1/55s")].map(|mut first| first.answer().unwrap().status), [200, 200]);
    // Each has a limit of its own, and they share the places.
    let waiting = [wait("1/50s"), wait("1/55s")];
    let mut refused = None;
    eventually("both to wait", || {
        let answer = post(&server.url("/v1/acquire"), r#"{"key": "bob", "limit": "1/h", "timeout_ms": 1}"#);
        if answer.status != 503 {
            return Err(format!("{answer:?}"));
        }
        refused = Some(answer);
        Ok(())
    });
    let said = refused.unwrap().json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(said, "2 callers are waiting already: retry later");
    drop(waiting);
    eventually("room after both have left", || {
        let answer = post(&server.url("/v1/acquire"), r#"{"key": "carol", "limit": "1/h", "timeout_ms": 1}"#);
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
}

#[test]
fn a_policy_file_gains_rules_however_many_names_were_validated() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.all]\nlimit = '10/d'\n");
    let server = Running::start(&["--policy", &policy, "--max-body", "2000000"]);
    for round in 0..4 {
        let text: String = (0..26_000).map(|number| format!("[rules.r{round}-{number}]\nlimit = '1/s'\n")).collect();
        assert_eq!(validate(&server, &folder, &text)["valid"], true);
    }
    folder.write("policy.toml", "[rules.all]\nlimit = '10/d'\n[rules.gained]\nlimit = '5/d'\n");
    eventually("the rule that was gained", || {
        // Without a charge: on a busy machine, the other rule would be used up before.
        let answer = post(&server.url("/v1/peek"), r#"{"key": "alice"}"#).json();
        if answer["rule"] == "gained" { Ok(()) } else { Err(answer.to_string()) }
    });
}
