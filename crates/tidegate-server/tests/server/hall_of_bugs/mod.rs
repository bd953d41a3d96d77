//! The hall of bugs, where the server is asked: rows 13, 28, 80 and 82. What the
//! hall is stands in `crates/tidegate/tests/hall_of_bugs/main.rs`.

use crate::server::client::{curl, post};
use crate::server::running::Running;

/// alisaifee/limits#362, songzhibin97/gkit#133: a negative cost came in over the
/// wire, and filled the bucket.
#[test]
fn row_13_a_cost_below_zero_is_refused_on_the_wire() {
    let server = Running::start(&[]);
    let ask =
        |cost: &str| post(&server.url("/v1/check"), &format!(r#"{{"key": "alice", "limit": "5/d", "cost": {cost}}}"#));
    assert_eq!(ask("4").status, 200);
    for cost in ["-1", "-9223372036854775808", "1.5", "1e400", "18446744073709551616", "\"3\"", "null5"] {
        let status = ask(cost).status;
        assert!((400..500).contains(&status), "{cost}: {status}");
    }
    assert_eq!((ask("2").status, ask("1").status), (429, 200), "one was left, as before");
}

/// cyanheads/mcp-ts-core#114, envoyproxy/ratelimit#1132, EmbarkStudios/quilkin#263: each
/// key had metrics of its own, which grew without bound.
#[test]
fn row_80_metrics_do_not_grow_with_the_keys() {
    let server = Running::start(&[]);
    let lines = || curl(&[&server.url("/metrics")]).body.lines().count();
    let ask = |key: usize| post(&server.url("/v1/check"), &format!(r#"{{"key": "key{key}", "limit": "1/h"}}"#));
    for _ in 0..2 {
        ask(0);
    }
    let before = lines();
    for key in 1..150 {
        ask(key);
    }
    assert_eq!(lines(), before, "as many after 150 keys as after one");
}

/// moonbitlang/async#494, TheMorpheus407/the-dmz#278: what a client sent was echoed
/// into headers and logs, line breaks and all.
#[test]
fn row_82_what_a_client_sends_breaks_no_line() {
    let server = Running::start(&[]);
    for key in [r"evil\r\nset-cookie: x=1", r"evil\u0000", r"evil\u2028x", r#"evil\"}"#] {
        for _ in 0..2 {
            let answer = post(&server.url("/v1/check"), &format!(r#"{{"key": "{key}", "limit": "1/h"}}"#));
            assert!(matches!(answer.status, 200 | 429), "{key}: {}", answer.status);
            assert_eq!(answer.header("set-cookie"), None, "{key}");
            for name in ["ratelimit", "ratelimit-policy"] {
                assert!(!answer.header(name).unwrap_or_default().contains("evil"), "{key}");
            }
        }
    }
}
