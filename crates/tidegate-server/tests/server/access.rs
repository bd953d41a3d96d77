//! Who may do what: every path by every credential, what web pages try, and what the audit log keeps of it.

use tidegate_testkit::servers::eventually;

use crate::server::client::{Answer, curl, post};
use crate::server::commands::ended_at_its_start;
use crate::server::running::{Folder, Running, ask, tidegate};

const KEY: &str = r#"{"key": "alice", "limit": "5/h"}"#;
const RESERVATION: &str = r#"{"key": "carol", "limit": "5/h", "id": "call-1"}"#;
const ENVOY: &str = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}"#;

/// A path, a body if it is posted, and the right that it needs.
const PATHS: [(&str, Option<&str>, &str); 32] = [
    ("/v1/check", Some(KEY), "check"),
    ("/v1/report", Some(KEY), "check"),
    ("/v1/peek", Some(KEY), "check"),
    ("/v1/reserve", Some(RESERVATION), "check"),
    ("/v1/renew", Some(RESERVATION), "check"),
    ("/v1/settle", Some(RESERVATION), "check"),
    ("/v1/release", Some(RESERVATION), "check"),
    ("/v1/acquire", Some(r#"{"key": "bob", "limit": "9999/h", "timeout_ms": 0}"#), "check"),
    ("/json", Some(ENVOY), "check"),
    ("/v1/refund", Some(KEY), "manage"),
    ("/v1/reset", Some(KEY), "manage"),
    ("/v1/explain", Some(KEY), "manage"),
    ("/metrics", None, "metrics"),
    ("/admin/v1/session", None, "view"),
    ("/admin/v1/instances", None, "view"),
    ("/admin/v1/policy", None, "view"),
    ("/admin/v1/policy/versions", None, "view"),
    ("/admin/v1/policy/schema", None, "view"),
    ("/admin/v1/policy/limits", None, "view"),
    ("/admin/v1/policy/validate", Some("{}"), "view"),
    ("/admin/v1/policy/trial", Some("{}"), "view"),
    ("/admin/v1/history", None, "view"),
    ("/admin/v1/live", None, "view"),
    ("/admin/v1/keys/refused", None, "view"),
    ("/admin/v1/keys/inspect", Some(KEY), "manage"),
    ("/admin/v1/keys/reset", Some(KEY), "manage"),
    ("/admin/v1/audit", None, "admin"),
    ("/healthz", None, ""),
    ("/readyz", None, ""),
    ("/healthcheck", None, ""),
    ("/openapi.json", None, ""),
    ("/", None, ""),
];

/// A token, and the lines that make it known.
fn token(name: &str, rights: &str) -> (String, String) {
    let output = ask(&["token", "--name", name, "--rights", rights]);
    assert_eq!(output.status.code(), Some(0));
    let token = String::from_utf8(output.stderr).unwrap().split_whitespace().last().unwrap().to_owned();
    (token, String::from_utf8(output.stdout).unwrap())
}

fn authorization(token: &str) -> String {
    format!("authorization: Bearer {token}")
}

fn get(server: &Running, path: &str, token: &str) -> Answer {
    curl(&["-H", &authorization(token), &server.url(path)])
}

fn post_as(server: &Running, path: &str, body: &str, token: &str) -> Answer {
    curl(&["-H", &authorization(token), "--json", body, &server.url(path)])
}

#[test]
fn every_path_asks_for_its_right_however_it_is_reached() {
    let folder = Folder::new();
    let rights = ["check", "manage", "metrics", "view", "admin"];
    let (tokens, lines): (Vec<String>, Vec<String>) = rights.map(|right| token(right, right)).into_iter().unzip();
    let tokens_file = folder.write("tokens.toml", &lines.concat());
    let server = Running::start(&["--tokens", &tokens_file]);
    assert!(server.banner.contains("Bearer TOKEN"), "{}", server.banner);
    // The second is not for the path that answers plain checks.
    let ways = [&["--http1.1"][..], &["--http1.1", "-H", "connection: close"], &["--http2-prior-knowledge"]];
    for (path, body, needed) in PATHS {
        let url = server.url(path);
        for way in ways {
            let status = |field: &str| {
                let body = body.map_or(vec![], |body| vec!["--json", body]);
                let answer = curl(&[way, &["-H", field], &body, &[&url]].concat());
                if answer.status == 401 {
                    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                }
                answer.status
            };
            assert_eq!(status("x: y"), if needed.is_empty() { 200 } else { 401 }, "{path} {way:?}");
            for (right, token) in rights.iter().zip(&tokens) {
                let has = needed == *right || *right == "admin" && ["view", "manage"].contains(&needed);
                let expected = if needed.is_empty() || has { 200 } else { 403 };
                assert_eq!(status(&authorization(token)), expected, "{path} {way:?} {right}");
            }
        }
    }
    let wrong = get(&server, "/metrics", &tokens[0].to_lowercase());
    assert_eq!(wrong.status, 401, "{wrong:?}");
    let cut = &tokens[2][1..];
    assert_eq!(get(&server, "/metrics", cut).status, 401);
}

#[test]
fn a_session_tells_identity_and_rights_and_a_viewer_changes_nothing() {
    let (folder, (viewer, lines), (ops, more)) = (Folder::new(), token("viewer", "view"), token("ops", "admin"));
    let server = Running::start(&["--tokens", &folder.write("tokens.toml", &(lines + &more))]);
    let session = |token: &str| get(&server, "/admin/v1/session", token).json();
    assert_eq!(session(&viewer), serde_json::json!({"identity": "viewer", "rights": ["view"]}));
    assert_eq!(session(&ops), serde_json::json!({"identity": "ops", "rights": ["manage", "view", "admin"]}));
    let put = |token: &str| {
        let (token, kind) = (authorization(token), "content-type: application/toml");
        let policy = "[rules.all]\nlimit = \"2/h\"\n";
        curl(&["-X", "PUT", "-H", &token, "-H", kind, "--data-binary", policy, &server.url("/admin/v1/policy")])
    };
    let refused = put(&viewer);
    assert_eq!(refused.status, 403);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("\"viewer\" lacks the right \"admin\""), "{detail}");
    let refused = post_as(&server, "/admin/v1/keys/reset", KEY, &viewer).json()["detail"].to_string();
    assert!(refused.contains("manage"), "{refused}");
    assert_eq!(put(&ops).status, 200);
    let open = Running::start(&[]);
    let all = serde_json::json!({"identity": null, "rights": ["check", "manage", "view", "admin", "metrics"]});
    assert_eq!(curl(&[&open.url("/admin/v1/session")]).json(), all);
}

#[test]
fn anonymous_callers_may_do_what_the_flag_gives_them() {
    let server = Running::start(&["--admin-token", "s3cret", "--anonymous", "check,metrics"]);
    assert_eq!(post(&server.url("/v1/check"), KEY).status, 200);
    assert_eq!(curl(&[&server.url("/metrics")]).status, 200);
    assert_eq!(post(&server.url("/v1/reset"), KEY).status, 401);
    assert_eq!(curl(&[&server.url("/admin/v1/policy")]).status, 401);
    assert_eq!(post_as(&server, "/v1/reset", KEY, "s3cret").status, 200);
    let checked = ask(&["check", "alice", "--server", server.address()]);
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn the_command_check_shows_its_token() {
    let server = Running::start(&["--admin-token", "s3cret"]);
    let check = |token: &str| {
        let mut command = tidegate();
        command.args(["check", "alice", "--server", server.address()]).env("TIDEGATE_TOKEN", token);
        command.output().unwrap()
    };
    assert_eq!(check("s3cret").status.code(), Some(0));
    let refused = check("");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("Authorization: Bearer TOKEN"));
}

/// By a page of another origin, which can post text without asking (`no-cors`).
#[test]
fn a_page_of_another_origin_resets_no_key() {
    let server = Running::start(&[]);
    let check = || post(&server.url("/v1/peek"), KEY).json()["remaining"].as_u64();
    post(&server.url("/v1/check"), KEY);
    let origin = "origin: http://evil.example";
    for (path, fields, status) in [
        ("/v1/reset", vec![origin, "sec-fetch-site: cross-site", "content-type: text/plain"], 403),
        ("/v1/reset", vec![origin, "content-type: text/plain"], 403),
        ("/v1/reset", vec!["content-type: text/plain"], 415),
        ("/v1/reset", vec!["content-type: application/x-www-form-urlencoded"], 415),
        ("/v1/reset", vec!["content-type: multipart/form-data; boundary=x"], 415),
        ("/v1/refund", vec!["sec-fetch-site: same-site", "content-type: application/json"], 403),
        ("/admin/v1/keys/reset", vec!["origin: null", "content-type: application/json"], 403),
    ] {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["-H", *field]).collect();
        let answer = curl(&[&fields[..], &["--data-binary", KEY, &server.url(path)]].concat());
        assert_eq!(answer.status, status, "{path} {fields:?}: {answer:?}");
        assert_eq!(check(), Some(4), "{path} {fields:?}");
    }
    let own = format!("origin: http://{}", server.address());
    let fields = ["-H", &own, "-H", "sec-fetch-site: same-origin"];
    assert_eq!(curl(&[&fields[..], &["--json", KEY, &server.url("/v1/reset")]].concat()).status, 200);
    assert_eq!(check(), Some(5));
}

/// By DNS rebinding the page's own name leads to the server: all is of one origin, but for the name.
#[test]
fn by_its_own_name_a_page_reads_and_changes_nothing() {
    let server = Running::start(&[]);
    let port = server.address().rsplit_once(':').unwrap().1;
    let host = format!("host: evil.example:{port}");
    let fields = ["-H", &host, "-H", "sec-fetch-site: same-origin", "-H", "content-type: application/json"];
    let before = curl(&[&server.url("/admin/v1/policy")]).json();
    for (path, method) in [
        ("/admin/v1/policy", "GET"),
        ("/admin/v1/policy", "PUT"),
        ("/admin/v1/live/stream", "GET"),
        ("/metrics", "GET"),
        ("/v1/check", "POST"),
        ("/v1/reset", "POST"),
        ("/json", "POST"),
        ("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "POST"),
    ] {
        let answer = curl(&[&fields[..], &["-X", method, "-d", KEY, &server.url(path)]].concat());
        assert_eq!(answer.status, 421, "{method} {path}: {answer:?}");
    }
    assert_eq!(curl(&[&server.url("/admin/v1/policy")]).json(), before);
    let named = Running::start(&["--allowed-host", "gate.example"]);
    let status = |host: &str| curl(&["-H", &format!("host: {host}"), &named.url("/metrics")]).status;
    assert_eq!([status("gate.example:1"), status("localhost"), status("gate.example.org")], [200, 200, 421]);
}

#[test]
fn listeners_beyond_loopback_ask_for_credentials_before_the_server_starts() {
    let local = ["--http", "127.0.0.1:0"];
    for arguments in [
        &["--http", "0.0.0.0:0"][..],
        &["--http", "0.0.0.0:0", "--no-admin"],
        &["--http", "0.0.0.0:0", "--admin-token", ""],
        &["--http", "0.0.0.0:0", "--resp-password", "for RESP only"],
        &["--http", "127.0.0.1:0", "--grpc", "0.0.0.0:0"],
        &["--http", "127.0.0.1:0", "--resp", "[::]:0"],
        &["--http", "127.0.0.1:0", "--resp", "0.0.0.0:0", "--anonymous", "check"],
    ] {
        let mut serve = tidegate();
        serve.arg("serve").args(arguments);
        let errors = ended_at_its_start(serve);
        assert!(errors.contains("--insecure-no-auth") && errors.contains("--tokens"), "{arguments:?}: {errors}");
    }
    let password = [&local[..], &["--resp", "0.0.0.0:0", "--resp-password", "tide"]].concat();
    let open = ["--http", "0.0.0.0:0", "--insecure-no-auth"];
    for arguments in [&password[..], &open[..]] {
        let server = Running::with(|command| command.args(arguments));
        let port = server.address().rsplit_once(':').unwrap().1;
        let url = format!("http://127.0.0.1:{port}/v1/reset");
        assert_eq!(post(&url, KEY).status, 200);
        assert_eq!(curl(&["-H", "origin: http://evil.example", "--json", KEY, &url]).status, 403);
    }
}

#[test]
fn tokens_follow_their_file_and_the_last_good_ones_stay() {
    let folder = Folder::new();
    let ((first, first_lines), (second, second_lines)) = (token("gateway", "metrics"), token("gateway", "metrics"));
    let tokens = folder.write("tokens.toml", &first_lines);
    let audit = folder.path("audit");
    let server = Running::start(&["--tokens", &tokens, "--audit", &audit]);
    let status = |token: &str| get(&server, "/metrics", token).status;
    assert_eq!(status(&first), 200);
    // Two of one name; the audit log says when it has been read.
    folder.write("tokens.toml", &(second_lines.clone() + &second_lines));
    let audited = |words: &str| {
        eventually(words, || {
            let text = std::fs::read_to_string(&audit).unwrap();
            let has = |line: &str| line.contains("\"reload-tokens\"") && line.contains(words);
            if text.lines().any(has) { Ok(()) } else { Err(text) }
        });
    };
    audited("\"refused\"");
    assert_eq!(status(&first), 200);
    folder.write("tokens.toml", &second_lines);
    server.hang_up();
    audited("\"done\"");
    assert_eq!((status(&first), status(&second)), (401, 200));
    // None at all is a valid file.
    folder.write("tokens.toml", "");
    server.hang_up();
    eventually("no token to be left", || match status(&second) {
        200 => Err("it is still known"),
        _ => Ok(()),
    });
}

#[test]
fn a_server_with_a_bad_tokens_file_does_not_start() {
    let folder = Folder::new();
    let (_, lines) = token("gateway", "check");
    let mut serve = tidegate();
    let tokens = folder.write("tokens.toml", &lines.replace("[\"check\"]", "[\"chekc\"]"));
    serve.args(["serve", "--http", "127.0.0.1:0", "--tokens", &tokens]);
    let errors = ended_at_its_start(serve);
    assert!(errors.contains("tokens.toml:4:") && errors.contains("chekc"), "{errors}");
    let wrong = ask(&["token", "--name", "two words", "--rights", "check"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn wrong_credentials_are_counted_and_slowed_down_and_the_right_one_always_passes() {
    let server = Running::start(&["--admin-token", "s3cret"]);
    let mut statuses = Vec::new();
    // One more comes back each six seconds, so their number depends on the machine.
    while statuses.last() != Some(&429) {
        let answer = get(&server, "/admin/v1/policy", "wrong");
        statuses.push(answer.status);
        if answer.status == 429 {
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            assert!(answer.json()["type"].as_str().unwrap().ends_with(":too-many-failures"), "{answer:?}");
        }
    }
    let (last, before) = statuses.split_last().unwrap();
    assert!(*last == 429 && before.len() >= 10 && before.iter().all(|status| *status == 401), "{statuses:?}");
    let metrics = get(&server, "/metrics", "s3cret");
    assert_eq!(metrics.status, 200);
    let counted = format!("tidegate_authentication_failures_total{{protocol=\"http\"}} {}\n", statuses.len());
    assert!(metrics.body.contains(&counted), "{}", metrics.body);
}

#[test]
fn the_audit_log_says_who_changed_what() {
    let folder = Folder::new();
    let (robot, lines) = token("robot", "check,manage");
    let (tokens, audit) = (folder.write("tokens.toml", &lines), folder.path("audit"));
    let server = Running::start(&["--admin-token", "s3cret", "--tokens", &tokens, "--audit", &audit]);
    assert_eq!(get(&server, "/admin/v1/policy", "wrong").status, 401);
    let put = |text: &str| {
        let fields = [&authorization("s3cret"), "-H", "content-type: application/toml", "-X", "PUT"];
        curl(&[&["-H"], &fields[..], &["--data-binary", text, &server.url("/admin/v1/policy")]].concat()).status
    };
    assert_eq!(put("[rules.all]\nlimit = \"2/h\"\n"), 200);
    assert_eq!(put("[rules.all]\nlimit = \"3/h\"\n"), 200);
    assert_eq!(put("[rules.all]\nlimit = \"often\"\n"), 422);
    assert_eq!(post_as(&server, "/v1/check", KEY, &robot).status, 200);
    assert_eq!(post_as(&server, "/v1/refund", KEY, &robot).status, 200);
    assert_eq!(post_as(&server, "/v1/reset", "{", &robot).status, 400);
    assert_eq!(post_as(&server, "/admin/v1/keys/reset", KEY, "s3cret").status, 200);
    assert!(server.stop().success());
    let text = std::fs::read_to_string(&audit).unwrap();
    let entries: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<[&str; 3]> = entries
        .iter()
        .map(|entry| ["identity", "action", "outcome"].map(|field| entry[field].as_str().unwrap()))
        .collect();
    assert_eq!(
        said,
        [
            ["unknown", "authenticate", "refused"],
            ["admin", "put-policy", "done"],
            ["admin", "put-policy", "done"],
            ["admin", "put-policy", "refused"],
            ["robot", "refund", "done"],
            ["robot", "reset", "refused"],
            ["admin", "admin-reset", "done"],
        ]
    );
    assert!(entries.iter().all(|entry| entry["peer"].as_str().unwrap().starts_with("127.0.0.1:")), "{text}");
    assert_eq!(entries[1]["policy_after"], entries[2]["policy_before"]);
    assert_ne!(entries[2]["policy_after"], entries[2]["policy_before"]);
    assert!(!text.contains(&robot) && !text.contains("s3cret") && !text.contains("wrong"), "{text}");
}
