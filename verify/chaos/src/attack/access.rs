//! Attacks on rights: web pages that speak to a server they may not speak to, and
//! tokens that are guessed.

use std::fs;

use tidegate_testkit::servers::eventually;

use super::wire::ATTACKER;
use super::{Attack, BOUNDS, SERVER, Server, Target};
use crate::findings::Findings;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "web-pages",
        what: "requests as pages of other origins send them: no-cors, rebinding of names, foreign hosts",
        is_quick: true,
        server: SERVER,
        bounds: BOUNDS,
        make: web_pages,
    },
    Attack {
        name: "wrong-tokens",
        what: "50 wrong tokens on every kind of path",
        is_quick: true,
        server: Server { flags: &["--admin-token", "correct-horse-battery", "--anonymous", "check"], ..SERVER },
        bounds: BOUNDS,
        make: wrong_tokens,
    },
];

fn web_pages(target: &mut Target, claims: &mut Findings) {
    let body = r#"{"key":"victim"}"#;
    let length = body.len();
    let json = "content-type: application/json\r\n";
    for path in ["/v1/check", "/v1/reset", "/v1/refund", "/v1/explain", "/admin/v1/keys/reset"] {
        for (attack, host, fields) in [
            ("no-cors", "localhost", "content-type: text/plain\r\n".to_owned()),
            ("without a type", "localhost", String::new()),
            ("cross-site", "localhost", format!("{json}sec-fetch-site: cross-site\r\n")),
            ("foreign origin", "localhost", format!("{json}origin: https://evil.example\r\n")),
            ("rebound name", "evil.example", json.to_owned()),
            ("rebound name and origin", "evil.example", format!("{json}origin: http://evil.example\r\n")),
        ] {
            let request =
                format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{fields}content-length: {length}\r\n\r\n{body}");
            let answer = target.send(ATTACKER, &request);
            let is_refused = answer.as_ref().is_ok_and(|answer| matches!(answer.status, 403 | 415 | 421));
            claims.claim(is_refused, || format!("{attack} on {path}: {answer:?}"));
        }
    }
    let put = "PUT /admin/v1/policy HTTP/1.1\r\nhost: evil.example\r\ncontent-type: application/toml\r\ncontent-length: 0\r\n\r\n";
    for request in [put, "GET /admin/v1/policy HTTP/1.1\r\nhost: evil.example\r\n\r\n"] {
        let answer = target.send(ATTACKER, request);
        claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 421), || format!("rebound: {answer:?}"));
    }
}

fn wrong_tokens(target: &mut Target, claims: &mut Findings) {
    for number in 0..50 {
        let path = ["/v1/reset", "/metrics", "/admin/v1/policy", "/v1/explain", "/admin/v1/live"][number % 5];
        let method = if path.starts_with("/v1") { "POST" } else { "GET" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer guess-{number}\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        let answer = target.send(ATTACKER, &request);
        let is_refused = answer.as_ref().is_ok_and(|answer| matches!(answer.status, 401 | 429));
        claims.claim(is_refused, || format!("a wrong token on {path}: {answer:?}"));
    }
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer correct-horse-battery\r\n\r\n";
    let metrics = target.send(ATTACKER, request).map(|answer| answer.body).unwrap_or_default();
    let counted =
        metrics.lines().any(|line| line.starts_with("tidegate_authentication_failures_total") && !line.ends_with(" 0"));
    claims.claim(counted, || "failed authentications are not counted, or the right token is refused".into());
    let audited = eventually_audited(target);
    claims.claim(audited.contains("authenticate"), || format!("failed authentications are not audited: {audited}"));
    // Nothing of a secret is in any file of the server.
    let leaked = fs::read_dir(target.directory())
        .into_iter()
        .flatten()
        .flatten()
        .any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains("correct-horse-battery")));
    let leaked = leaked || target.log().contains("correct-horse-battery");
    claims.claim(!leaked, || "the token is in a file of the server".into());
}

/// The audit log, once there is anything in it: it is written beside the answers.
fn eventually_audited(target: &Target) -> String {
    eventually("a line of the audit log", || match target.audited() {
        lines if lines.ends_with('\n') => Ok(lines),
        lines => Err(lines),
    })
}
