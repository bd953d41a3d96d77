//! A policy that is tried on the last requests: by every wire that decides, and beside what another server decides.

use std::process::Command;

use serde_json::{Value, json};

use crate::server::client::{curl, post};
use crate::server::running::{Folder, Running};

const POLICY: &str = "[rules.orders]\nlimit = \"3/d\"\nkey = [\"user\"]\n";

fn trial(server: &Running, text: &str) -> Value {
    let url = server.url("/admin/v1/policy/trial");
    let answer = curl(&["-H", "content-type: application/toml", "--data-binary", text, &url]);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn check(server: &Running, user: &str) -> u16 {
    post(&server.url("/v1/check"), &format!(r#"{{"attributes": {{"user": "{user}"}}}}"#)).status
}

#[test]
fn a_trial_counts_what_another_policy_does_differently_with_the_same_requests() {
    let folder = Folder::new();
    let start = |limit: &str| {
        let policy = folder.write(&format!("{}.toml", &limit[..1]), &POLICY.replace("3/d", limit));
        Running::start(&["--policy", &policy])
    };
    let (three, five) = (start("3/d"), start("5/d"));
    let empty = trial(&three, POLICY);
    assert_eq!((&empty["requests"], &empty["seconds"], &empty["complete"]), (&0.into(), &0.0.into(), &true.into()));
    // What servers with the two policies really do.
    let refused = |server: &Running| {
        let users = ["alice"; 6].into_iter().chain(["bob"; 4]);
        users.filter(|user| check(server, user) == 429).count() as u64
    };
    let (before, after) = (refused(&three), refused(&five));
    assert_eq!((before, after), (4, 1));
    let raised = trial(&three, &POLICY.replace("3/d", "5/d"));
    let figures = ["requests", "admitted_before", "refused_before", "refused_after", "undecided_after"];
    assert_eq!(figures.map(|name| raised[name].as_u64().unwrap()), [10, 6, before, after, 0], "{raised}");
    assert_eq!((&raised["complete"], &raised["newly_refused"]), (&true.into(), &json!([])));
    assert_eq!(raised["rules"], json!([{"rule": "orders", "refused_before": 4, "refused_after": 1}]));
    let admitted = json!([
        {"rule": "orders", "key": "alice", "requests": 2, "attributes": {"user": "alice"}},
        {"rule": "orders", "key": "bob", "requests": 1, "attributes": {"user": "bob"}},
    ]);
    assert_eq!(raised["newly_admitted"], admitted);
    assert_eq!(trial(&five, POLICY)["newly_refused"], admitted, "the other way round");
    // Nothing was charged by a trial, and the policy in force is the same.
    assert_eq!(check(&three, "carol"), 200);
    let other = trial(&three, "[rules.all]\nlimit = \"1/d\"\nkey = [\"tenant\"]\n");
    assert_eq!((&other["undecided_after"], &other["requests"]), (&11.into(), &11.into()), "{other}");
    let rules = json!([
        {"rule": "orders", "refused_before": 4, "refused_after": 0},
        {"rule": "all", "refused_before": 0, "refused_after": 0},
    ]);
    assert_eq!(other["rules"], rules);
}

#[test]
fn every_wire_that_decides_by_the_policy_is_recorded() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.all]\nlimit = \"100/d\"\nkey = [\"user\"]\nmissing = \"skip\"\n");
    let server = Running::start(&["--policy", &policy, "--resp", "127.0.0.1:0", "--trusted-proxy", "127.0.0.1"]);
    let user = r#"{"attributes": {"user": "alice"}}"#;
    assert_eq!(post(&server.url("/v1/check"), user).status, 200);
    assert_eq!(post(&server.url("/v1/check"), &format!("[{user}, {user}]")).status, 200);
    assert_eq!(post(&server.url("/v1/acquire"), &user.replace("}}", "}, \"timeout_ms\": 0}")).status, 200);
    let forwarded = curl(&["-H", "x-forwarded-for: 192.0.2.1", &server.url("/v1/forward-auth")]);
    assert_eq!(forwarded.status, 204, "{forwarded:?}");
    let envoy = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}"#;
    assert_eq!(post(&server.url("/json"), envoy).status, 200);
    let (host, port) = server.address_of("resp").split_once(':').unwrap();
    let words = ["-e", "-h", host, "-p", port, "TIDEGATE.CHECK", "KEY", "alice"];
    let output = Command::new("redis-cli").args(words).output();
    assert!(output.expect("redis-cli is missing: run `cargo xtask install`").status.success());
    let tried = trial(&server, "[rules.all]\nlimit = \"1/d\"\nkey = [\"user\"]\nmissing = \"skip\"\n");
    assert_eq!(tried["requests"], 7, "{tried}");
    // Peeks and limits that come with requests are not decided by the policy.
    assert_eq!(post(&server.url("/v1/peek"), user).status, 200);
    assert_eq!(post(&server.url("/v1/check"), r#"{"key": "alice", "limit": "5/h"}"#).status, 200);
    assert_eq!(trial(&server, POLICY)["requests"], 7);
}

#[test]
fn an_invalid_policy_is_told_and_a_server_that_keeps_no_requests_says_so() {
    let server = Running::start(&[]);
    let invalid = trial(&server, "[rules.all]\nlimit = \"1/fortnight\"\n");
    assert_eq!((&invalid["valid"], &invalid["errors"][0]["line"]), (&false.into(), &2.into()));
    let server = Running::start(&["--keep-requests", "0"]);
    let url = server.url("/admin/v1/policy/trial");
    let answer = curl(&["-H", "content-type: application/toml", "--data-binary", POLICY, &url]);
    assert_eq!(answer.status, 409);
    assert!(answer.json()["detail"].as_str().unwrap().contains("--keep-requests"), "{answer:?}");
}

#[test]
fn a_request_that_is_too_large_is_left_out_and_the_answer_says_so() {
    let server = Running::start(&["--keep-requests", "2", "--threads", "1"]);
    let long = "x".repeat(2_000);
    for more in [json!({}), json!({"one": long, "two": long, "three": long})] {
        let answer = post(&server.url("/v1/check"), &json!({"key": "a", "attributes": more}).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let tried = trial(&server, POLICY);
    assert_eq!((&tried["requests"], &tried["complete"]), (&1.into(), &false.into()));
    for key in ["b", "c", "d"] {
        post(&server.url("/v1/check"), &format!(r#"{{"key": "{key}"}}"#));
    }
    let tried = trial(&server, POLICY);
    assert_eq!((&tried["requests"], &tried["complete"]), (&2.into(), &true.into()));
}
