//! In the place of envoyproxy/ratelimit, with the environment that its docker-compose.yml gives it.

use std::fs;

use tidegate_testkit::servers::Server;

use crate::dropin::running::{Running, command};

/// The kinds of limits that the example of the reference service has, counted for a year, so that no window ends
/// during a test.
const EXAMPLE: &str = "
domain: rl
descriptors:
  - key: category
    value: account
    rate_limit: { unit: year, requests_per_unit: 4, replaces: [{ name: fake_name }] }
  - key: cluster
    value: proxy
    descriptors:
      - { key: to, value: override, rate_limit: { unit: year, requests_per_unit: 2, replaces: [{ name: banned }] } }
      - { key: to, value: fake, rate_limit: { unit: year, requests_per_unit: 2, name: fake_name } }
  - key: foo
    rate_limit: { unit: year, requests_per_unit: 2 }
    descriptors:
      - { key: bar, rate_limit: { unit: year, requests_per_unit: 3 } }
      - { key: bar, value: banned, rate_limit: { unit: year, requests_per_unit: 0, name: banned } }
      - { key: baz, value: shady, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: qux, rate_limit: { unlimited: true } }
  - { key: service, value: one, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: service, value: two, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 2 } }
";

const AS: [&str; 2] = ["--as", "envoy-ratelimit"];

struct Composed {
    redis: Server,
    root: tempfile::TempDir,
}

impl Composed {
    fn new() -> Composed {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("ratelimit/config");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("example.yaml"), EXAMPLE).unwrap();
        Composed { redis: Server::start(), root }
    }

    /// What docker-compose.yml has, on loopback and on ports that are free, and more.
    fn start(&self, more: &[(&str, &str)]) -> Running {
        let redis = format!("127.0.0.1:{}", self.redis.port());
        let composed = [
            ("USE_STATSD", "false"),
            ("LOG_LEVEL", "debug"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", redis.as_str()),
            ("RUNTIME_ROOT", self.root.path().to_str().unwrap()),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("MEMCACHE_HOST_PORT", "memcached:11211"),
        ];
        let here = ["HOST", "GRPC_HOST", "DEBUG_HOST"].map(|name| (name, "127.0.0.1"));
        let free = ["PORT", "GRPC_PORT", "DEBUG_PORT"].map(|name| (name, "0"));
        Running::start(&AS, &[&composed[..], &here, &free, more].concat())
    }
}

#[test]
fn clients_of_the_reference_service_get_its_answers() {
    let composed = Composed::new();
    let headers = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_LIMIT_HEADER", "X-Limit")];
    let running = composed.start(&headers);
    running.python("envoy_ratelimit_client.py", &[]);
    assert!(!running.log().contains("is ignored"), "{}", running.log());

    assert_eq!(running.curl("http", "/healthcheck", &[]), ("200".into(), "OK".into()));
    let json = ["--json", r#"{"domain": "rl", "descriptors": [{"entries": [{"key": "foo", "value": "json"}]}]}"#];
    let codes: Vec<_> = (0..3).map(|_| running.curl("http", "/json", &json).0).collect();
    assert_eq!(codes, ["200", "200", "429"]);
    assert_eq!(running.curl("http", "/admin/v1/policy", &[]).0, "404", "there is no such API in the other");
    assert_eq!(running.curl("http", "/v1/reset", &["--json", "{}"]).0, "401");

    let (status, limits) = running.curl("debug", "/rlconfig", &[]);
    let banned = "rl.foo.bar_banned: unit=YEAR requests_per_unit=0, shadow_mode: false, quota_mode: false\n";
    assert!(status == "200" && limits.contains(banned), "{limits}");
    let (status, stats) = running.curl("debug", "/stats", &[]);
    assert!(status == "200" && stats.contains(r#"rule="rl.foo",outcome="refused""#), "{stats}");
    assert!(running.curl("debug", "/", &[]).1.contains("/rlconfig: "));
}

#[test]
fn with_global_shadow_mode_all_requests_pass_and_are_counted_as_they_are() {
    let composed = Composed::new();
    let running = composed.start(&[("SHADOW_MODE", "true"), ("NEAR_LIMIT_RATIO", "0.9")]);
    let json = ["--json", r#"{"domain": "rl", "descriptors": [{"entries": [{"key": "foo", "value": "a"}]}]}"#];
    for expected in ["OK", "OK", "OVER_LIMIT", "OVER_LIMIT"] {
        let (status, body) = running.curl("http", "/json", &json);
        assert_eq!(status, "200", "{body}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body["overallCode"], &body["statuses"][0]["code"]), (&"OK".into(), &expected.into()));
    }
    let metrics = running.curl("http", "/metrics", &[]).1;
    assert!(metrics.contains(r#"decisions_total{rule="rl.foo",outcome="refused"} 2"#), "{metrics}");
    running.logged("NEAR_LIMIT_RATIO is ignored: there is no statistic of requests near the limit");
}

#[test]
fn with_global_quota_mode_one_limit_that_passes_is_enough() {
    let composed = Composed::new();
    let running = composed.start(&[("QUOTA_MODE", "true")]);
    let request = |value: &str| {
        let entries = format!(r#"[{{"key": "foo", "value": "{value}"}}]"#);
        let other = r#"[{"key": "category", "value": "account"}]"#;
        format!(r#"{{"domain": "rl", "descriptors": [{{"entries": {entries}}}, {{"entries": {other}}}]}}"#)
    };
    let codes: Vec<_> = (0..5).map(|_| running.curl("http", "/json", &["--json", &request("a")]).0).collect();
    assert_eq!(codes, ["200", "200", "200", "200", "429"]);
}

#[test]
fn files_that_change_are_followed() {
    let composed = Composed::new();
    let running = composed.start(&[]);
    let more = "domain: more\ndescriptors: [{ key: a, rate_limit: { unit: year, requests_per_unit: 1 } }]";
    fs::write(composed.root.path().join("ratelimit/config/more.yaml"), more).unwrap();
    running.logged("the descriptor files: applied");
    assert!(running.curl("debug", "/rlconfig", &[]).1.contains("more.a: unit=YEAR requests_per_unit=1,"));
}

#[test]
fn an_environment_that_cannot_be_honoured_is_refused_with_what_to_do() {
    let environment = [("BACKEND_TYPE", "memcache"), ("CONFIG_TYPE", "GRPC_XDS_SOTW")];
    let refused = command(&AS, &environment).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    for words in ["CONFIG_TYPE: only FILE is supported", "BACKEND_TYPE: only redis is supported"] {
        assert!(said.contains(words), "{said}");
    }
}
