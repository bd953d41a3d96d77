//! The admin API, and who may use it.

use tidegate_testkit::servers::eventually;

use crate::server::client::{ALICE, Answer, curl, post};
use crate::server::commands::ended_at_its_start;
use crate::server::running::{Folder, Running, tidegate};

const TOKEN: [&str; 2] = ["-H", "authorization: Bearer s3cret"];

fn put(server: &Running, text: &str, kind: &str) -> Answer {
    let kind = format!("content-type: {kind}");
    curl(&["-X", "PUT", "-H", &kind, "--data-binary", text, &server.url("/admin/v1/policy")])
}

fn post_json(server: &Running, path: &str, body: &str) -> Answer {
    curl(&["-H", "content-type: application/json", "-d", body, &server.url(path)])
}

#[test]
fn only_the_token_opens_the_admin_api() {
    let server = Running::start(&["--admin-token", "s3cret"]);
    let url = server.url("/admin/v1/policy");
    for header in
        ["x: y", "authorization: Bearer s3cre", "authorization: Bearer s3cret2", "authorization: Basic s3cret"]
    {
        let answer = curl(&["-H", header, &url]);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{header}");
    }
    assert_eq!(curl(&[TOKEN[0], TOKEN[1], &url]).status, 200);
    assert_eq!(curl(&["-H", "authorization: bearer s3cret", &url]).status, 200, "a scheme is in any letters");
    assert_eq!(curl(&["-H", "authorization: bearer S3CRET", &url]).status, 401);
    let folder = Folder::new();
    let by_file = Running::start(&["--admin-token-file", &folder.write("token", "s3cret\n")]);
    let url = by_file.url("/admin/v1/policy");
    assert_eq!((curl(&[&url]).status, curl(&[TOKEN[0], TOKEN[1], &url]).status), (401, 200));
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 401, "nor is anything else open");
}

#[test]
fn pages_of_listed_instances_read_the_admin_api_and_no_other_page_does() {
    let (listed, other) = ("https://limiter-b.example:7400", "https://limiter-c.example");
    let flags = ["--admin-token", "s3cret", "--dashboard-instance", listed];
    let server = Running::start(&[&flags[..], &["--dashboard-instance", "http://Self.example"]].concat());
    let url = server.url("/admin/v1/instances");
    let from = |origin: &str, more: &[&str]| {
        let origin = format!("origin: {origin}");
        let page = ["-H", &origin, "-H", "sec-fetch-site: cross-site"];
        curl(&[&page[..], more, &[&url]].concat())
    };
    let allowed = |answer: &Answer| answer.header("access-control-allow-origin").map(str::to_owned);
    let read = from(listed, &TOKEN);
    assert_eq!((read.status, allowed(&read).as_deref()), (200, Some(listed)));
    assert_eq!((read.header("vary"), read.header("access-control-allow-credentials")), (Some("origin"), None));
    assert_eq!(read.json()["instances"], serde_json::json!([listed, "http://self.example"]));
    let own = curl(&[TOKEN[0], TOKEN[1], "-H", "host: self.example", &url]).json();
    assert_eq!(own["instances"], serde_json::json!([listed]), "without the one that is asked");
    let refused = from(listed, &[]);
    assert_eq!((refused.status, allowed(&refused).as_deref()), (401, Some(listed)), "the page is told why");
    let wants = ["-X", "OPTIONS", "-H", "access-control-request-method: GET"];
    let preflight = from(listed, &wants);
    assert_eq!((preflight.status, allowed(&preflight).as_deref()), (204, Some(listed)));
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization"));
    assert_eq!(preflight.header("access-control-allow-methods"), Some("GET"));
    for origin in [other, "null", "https://limiter-b.example", "http://limiter-b.example:7400"] {
        assert_eq!(allowed(&from(origin, &TOKEN)), None, "{origin}");
        assert_eq!((from(origin, &wants).status, allowed(&from(origin, &wants))), (401, None), "{origin}");
    }
    let posted = from(listed, &[TOKEN[0], TOKEN[1], "-X", "POST"]);
    assert_eq!(allowed(&posted), None, "only what is read");
    let page = curl(&[&server.url("/")]);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.ends_with(&format!("connect-src 'self' {listed} http://self.example")), "{policy}");
    let alone = Running::start(&[]);
    assert_eq!(curl(&[&alone.url("/admin/v1/instances")]).json(), serde_json::json!({"instances": []}));
    let origin = format!("origin: {}", alone.url(""));
    assert_eq!(allowed(&curl(&["-H", &origin, &alone.url("/admin/v1/instances")])), None);
}

#[test]
fn instances_are_origins_and_bounded() {
    let start = |instances: &[String]| {
        let mut serve = tidegate();
        serve.args(["serve", "--http", "127.0.0.1:0"]);
        for origin in instances {
            serve.args(["--dashboard-instance", origin]);
        }
        ended_at_its_start(serve)
    };
    let wrong = start(&["https://limiter-b.example/path".to_owned()]);
    assert!(wrong.contains("is not an origin: write http://"), "{wrong}");
    let many: Vec<String> = (0..65).map(|number| format!("https://limiter-{number}.example")).collect();
    let wrong = start(&many);
    assert!(wrong.contains("there are 65 of --dashboard-instance: give at most 64"), "{wrong}");
}

#[test]
fn without_an_admin_api_there_is_none() {
    let server = Running::start(&["--no-admin"]);
    assert_eq!(curl(&[&server.url("/admin/v1/policy")]).status, 404);
}

#[test]
fn a_policy_is_put_whole_or_not_at_all_and_what_was_used_stays_used() {
    let server = Running::start(&[]);
    let check = |key: &str| post(&server.url("/v1/check"), &format!(r#"{{"key": "{key}"}}"#)).json();
    let text = "[rules.everyone]\nlimit = \"10/d\"\n";
    assert_eq!(put(&server, text, "application/toml").status, 200);
    assert_eq!((check("alice")["remaining"].as_u64(), check("alice")["remaining"].as_u64()), (Some(9), Some(8)));
    let shown = curl(&[&server.url("/admin/v1/policy")]).json();
    assert_eq!((&shown["text"], &shown["format"], &shown["file"]), (&text.into(), &"toml".into(), &().into()));
    let refused = put(&server, "[rules.everyone]\nlimt = \"5/h\"\n", "application/toml");
    assert_eq!(refused.status, 422);
    assert!(refused.json()["detail"].as_str().unwrap().contains("did you mean"), "{refused:?}");
    assert_eq!(check("alice")["remaining"], 7);
    let put_again = put(&server, r#"{"rules": {"everyone": {"limit": "20/d"}}}"#, "application/json");
    assert_eq!(put_again.json()["changes"], serde_json::json!(["rule \"everyone\": 10/day -> 20/day"]));
    assert_eq!(check("alice")["remaining"], 16);
    assert_eq!(put(&server, text, "text/plain").status, 415);
    let metrics = curl(&[&server.url("/metrics")]).body;
    assert!(metrics.contains("tidegate_policy_changes_total 2\n"), "{metrics}");
    assert!(metrics.contains("tidegate_policy_errors_total 1\n"), "{metrics}");
}

#[test]
fn a_policy_that_follows_a_file_is_changed_there() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.all]\nlimit = \"1/h\"\n");
    let server = Running::start(&["--policy", &policy]);
    let answer = put(&server, "[rules.all]\nlimit = \"2/h\"\n", "application/toml");
    assert_eq!(answer.status, 409);
    assert!(answer.json()["detail"].as_str().unwrap().contains(&policy));
}

#[test]
fn a_policy_file_is_followed_and_read_again_when_told_and_the_last_good_one_stays() {
    let folder = Folder::new();
    let write = |limit: &str| folder.write("policy.toml", &format!("[rules.all]\nlimit = \"{limit}\"\n"));
    let server = Running::start(&["--policy", &write("10/d")]);
    let check = || post(&server.url("/v1/check"), r#"{"key": "alice"}"#).json()["remaining"].as_u64().unwrap();
    assert_eq!((check(), check()), (9, 8));
    // The metrics say when it has been read.
    let until = |name: &str, count: u64| {
        let wanted = format!("tidegate_policy_{name}_total ");
        eventually("the policy to be read again", || {
            let metrics = curl(&[&server.url("/metrics")]).body;
            let counted = metrics.lines().find_map(|line| line.strip_prefix(&wanted)?.parse::<u64>().ok());
            if counted >= Some(count) { Ok(()) } else { Err(format!("{wanted}{counted:?}")) }
        });
    };
    write("20/fortnight");
    until("errors", 1);
    assert_eq!(check(), 7);
    write("20/d");
    until("changes", 1);
    assert_eq!(check(), 16);
    // A SIGHUP has it read at once.
    write("30/d");
    server.hang_up();
    until("changes", 2);
    assert_eq!(check(), 25);
}

#[test]
fn errors_of_a_policy_are_told_with_their_places() {
    let server = Running::start(&[]);
    let validate = |text: &str| {
        let url = server.url("/admin/v1/policy/validate");
        curl(&["-H", "content-type: application/toml", "--data-binary", text, &url]).json()
    };
    assert_eq!(validate("[rules.all]\nlimit = \"1/h\"\n")["valid"], true);
    let found = validate("[rules.all]\nlimit = \"1/fortnight\"\n");
    assert_eq!(found["valid"], false);
    assert_eq!((&found["errors"][0]["line"], &found["errors"][0]["column"]), (&2.into(), &9.into()));
}

#[test]
fn the_most_refused_are_listed_inspected_and_reset() {
    let server = Running::start(&[]);
    for (key, times) in [("alice", 5), ("bob", 3)] {
        for _ in 0..times {
            post(&server.url("/v1/check"), &format!(r#"{{"key": "{key}", "limit": "1/h"}}"#));
        }
    }
    let top = curl(&[&server.url("/admin/v1/keys/refused?top=1")]).json();
    assert_eq!(top, serde_json::json!([{"rule": "inline", "key": "alice", "refused": 4, "error": 0}]));
    for query in ["top=0", "top=1001", "top=x", "top=-1", "top", "most=5", "top=1&top=2"] {
        let problem = curl(&[&server.url(&format!("/admin/v1/keys/refused?{query}"))]);
        let detail = format!("the query must be top=N, with N from 1 to 1000, not {query:?}");
        assert_eq!((problem.status, &problem.json()["detail"]), (400, &detail.into()));
    }
    let request = r#"{"key": "alice", "limit": "1/h"}"#;
    assert_eq!(post_json(&server, "/admin/v1/keys/inspect", request).json()["rules"][0]["says"], "refuses");
    assert_eq!(post_json(&server, "/admin/v1/keys/reset", request).json()["remaining"], 1);
    assert_eq!(post_json(&server, "/admin/v1/keys/inspect", request).json()["rules"][0]["says"], "allows");
    let rules = "[rules.addresses]\nlimit = \"1/h\"\nkey = [\"ip\"]\n";
    assert_eq!(put(&server, rules, "application/toml").status, 200);
    for _ in 0..9 {
        post(&server.url("/v1/check"), r#"{"attributes": {"ip": "192.0.2.1", "user": "carol"}}"#);
    }
    let top = curl(&[&server.url("/admin/v1/keys/refused?top=1")]).json();
    assert_eq!((&top[0]["rule"], &top[0]["key"]), (&"addresses".into(), &"192.0.2.1".into()));
    // A page in a browser can post text to loopback, but no JSON.
    assert_eq!(curl(&["-d", request, &server.url("/admin/v1/keys/reset")]).status, 415);
}

#[test]
fn the_audit_log_and_the_versions_of_the_policy_are_told() {
    let server = Running::start(&["--admin-token", "s3cret", "--anonymous", "check"]);
    let token = "authorization: Bearer s3cret";
    let read = |path: &str| curl(&["-H", token, &server.url(path)]).json();
    for limit in ["10/d", "20/d"] {
        let policy = format!("[rules.everyone]\nlimit = \"{limit}\"\n");
        let kind = "content-type: application/toml";
        let url = server.url("/admin/v1/policy");
        assert_eq!(curl(&["-X", "PUT", "-H", token, "-H", kind, "--data-binary", &policy, &url]).status, 200);
    }
    let versions = read("/admin/v1/policy/versions");
    assert_eq!((&versions[0]["generation"], versions.as_array().unwrap().len()), (&3.into(), 3));
    assert_eq!(versions[0]["changes"], serde_json::json!(["rule \"everyone\": 10/day -> 20/day"]));
    assert_eq!((&versions[0]["by"], &versions[2]["by"]), (&"admin".into(), &"server".into()));
    assert!(versions[1]["text"].as_str().unwrap().contains("10/d"), "{versions}");
    let kind = "content-type: application/json";
    for path in ["reset", "refund"] {
        let url = server.url(&format!("/admin/v1/keys/{path}?reason=a+customer%20called"));
        assert_eq!(curl(&["-H", token, "-H", kind, "-d", r#"{"key": "alice"}"#, &url]).status, 200, "{path}");
    }
    assert_eq!(curl(&["-H", "authorization: Bearer wrong", &server.url("/admin/v1/audit")]).status, 401);
    let audit = read("/admin/v1/audit");
    let told = |at: usize| (audit[at]["action"].as_str().unwrap(), audit[at]["identity"].as_str().unwrap());
    assert_eq!((told(0), told(1)), (("authenticate", "unknown"), ("admin-refund", "admin")));
    assert_eq!((told(2), told(3)), (("admin-reset", "admin"), ("put-policy", "admin")));
    assert_eq!((&audit[1]["reason"], audit[3].get("reason")), (&"a customer called".into(), None), "{audit}");
}
