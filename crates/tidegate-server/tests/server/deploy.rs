//! What is there to run the server with: alerts, dashboard, unit.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tidegate_testkit::servers::{Permit, eventually};

use crate::server::client::{ALICE, curl, post};
use crate::server::running::{Folder, Running, workspace};

fn promtool(arguments: &[&str]) -> Command {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(workspace().join("deploy/prometheus"));
    command
}

fn run(command: &mut Command) -> Output {
    let missing = "promtool is missing: run `cargo xtask install`";
    command.output().unwrap_or_else(|error| panic!("{missing}: {error}"))
}

#[test]
fn alerts_are_valid_and_ring_when_they_should() {
    for arguments in [&["check", "config", "prometheus.yaml"][..], &["test", "rules", "alerts.test.yaml"]] {
        let output = run(&mut promtool(arguments));
        let printed = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&printed));
    }
}

#[test]
fn the_settings_file_is_understood() {
    let server = Running::with(|command| {
        let command = command.current_dir(workspace()).args(["--settings", "deploy/settings.toml"]);
        command.args(["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"])
    });
    assert!(server.banner.contains("deploy/policy.toml"), "{}", server.banner);
}

/// A Prometheus that scrapes one server; killed when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
    _permit: Permit,
}

impl Prometheus {
    fn scraping(target: &str) -> Prometheus {
        let permit = Permit::wait(2);
        let folder = Folder::new();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let scrape = format!("[{{ job_name: t, static_configs: [ {{ targets: [\"{target}\"] }} ] }}]");
        let config = format!("global: {{ scrape_interval: 10s, scrape_timeout: 10s }}\nscrape_configs: {scrape}\n");
        let config = folder.write("prometheus.yaml", &config);
        let child = Command::new("prometheus")
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", folder.path("data")))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus is missing: run `cargo xtask install`: {error}"));
        Prometheus { child, address, _folder: folder, _permit: permit }
    }

    /// The value of a query, once it has one.
    fn value(&self, query: &str) -> String {
        let url = format!("http://{}/api/v1/query", self.address);
        let data = format!("query={query}");
        eventually(query, || {
            let output = Command::new("curl").args(["-s", "-G", "--data-urlencode", &data, &url]).output().unwrap();
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned).ok_or(answer)
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both formats, after some decisions: what a client gets that asks for nothing, and OpenMetrics.
#[test]
fn promtool_finds_no_fault_with_the_metrics_in_either_format() {
    let server = Running::start(&[]);
    for body in [ALICE, r#"{"key": "a", "limit": "1/h"}"#, r#"{"key": "a", "cost": 1000}"#] {
        post(&server.url("/v1/check"), body);
    }
    let text = curl(&[&server.url("/metrics")]);
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(
        text.body.contains("# TYPE tidegate_decisions_total counter\n") && !text.body.contains("# EOF"),
        "{text:?}"
    );
    let accept = "accept: application/openmetrics-text; version=1.0.0, text/plain; q=0.5";
    let open_metrics = curl(&["-H", accept, &server.url("/metrics")]);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open_metrics.header("content-type"), Some(kind));
    assert!(open_metrics.body.contains("# TYPE tidegate_decisions counter\n"), "{open_metrics:?}");
    assert!(open_metrics.body.ends_with("# EOF\n"), "{open_metrics:?}");
    let samples = |answer: &str| {
        // Each of the two is a connection, and a key may be forgotten in between.
        let changing = ["#", "tidegate_connections_total", "tidegate_connections_open", "tidegate_store_keys"];
        let counted = |line: &&str| !changing.iter().any(|beginning| line.starts_with(beginning));
        let mut lines: Vec<String> = answer.lines().filter(counted).map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(samples(&text.body), samples(&open_metrics.body), "the same numbers");
    let folder = Folder::new();
    let plain = std::fs::File::open(folder.write("metrics.txt", &text.body)).unwrap();
    let linted = run(promtool(&["check", "metrics"]).stdin(plain));
    let said = [linted.stdout, linted.stderr].concat();
    assert!(linted.status.success() && said.is_empty(), "{}{}", String::from_utf8_lossy(&said), text.body);
    // The tool lints no OpenMetrics, and reads it only with the time of each sample.
    let timed = |line: &str| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1700000000\n") };
    let timed: String = open_metrics.body.lines().map(timed).collect();
    let (timed, blocks) = (folder.write("metrics.om", &timed), folder.path("blocks"));
    let read = run(&mut promtool(&["tsdb", "create-blocks-from", "openmetrics", &timed, &blocks]));
    assert!(read.status.success(), "{}{}", String::from_utf8_lossy(&read.stderr), open_metrics.body);
}

#[test]
fn prometheus_reads_the_metrics() {
    let server = Running::start(&[]);
    for _ in 0..3 {
        post(&server.url("/v1/check"), r#"{"key": "a", "limit": "2/h"}"#);
    }
    let prometheus = Prometheus::scraping(server.address());
    assert_eq!(prometheus.value("tidegate_decisions_total{rule=\"inline\", outcome=\"allowed\"}"), "2");
    assert_eq!(prometheus.value("tidegate_request_duration_seconds_count{protocol=\"http\"}"), "3");
    assert_eq!(prometheus.value("tidegate_inline_keys"), "1");
    assert_eq!(prometheus.value("up"), "1");
    // By its own name in OpenMetrics, which Prometheus prefers; by that of its samples in plain text.
    let url = format!("http://{}/api/v1/metadata?metric=tidegate_decisions", prometheus.address);
    assert_eq!(curl(&[&url]).json()["data"]["tidegate_decisions"][0]["type"], "counter");
}

/// The names of metrics in an expression.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("tidegate_"))
}

#[test]
fn metrics_are_in_the_reference_and_alerts_and_dashboard_ask_for_no_others() {
    let redis = tidegate_testkit::servers::Server::start();
    let mut served = String::new();
    for store in ["memory".to_owned(), redis.url()] {
        let server = Running::start(&["--store", &store]);
        // Some are there from the first time on.
        post(&server.url("/v1/check"), ALICE);
        post(&server.url("/v1/check"), r#"{"key": "alice", "cost": 1000}"#);
        served += &curl(&[&server.url("/metrics")]).body;
    }
    let reference = std::fs::read_to_string(workspace().join("docs/book/src/reference/metrics.md")).unwrap();
    let described = served.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    for (name, help) in described {
        assert!(reference.contains(&format!("`{name}`")), "{name} ({help}) is not in the reference");
    }
    let served: BTreeSet<&str> = names(&served).collect();
    let folder = workspace().join("deploy");
    let dashboard = std::fs::read_to_string(folder.join("grafana/tidegate.json")).unwrap();
    let alerts = std::fs::read_to_string(folder.join("prometheus/alerts.yaml")).unwrap();
    for name in names(&dashboard).chain(names(&alerts)) {
        assert!(served.contains(name), "{name} is no metric of the server");
    }
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() > panels.len());
    // As rules, so that the tool parses them.
    let rules: String = expressions
        .iter()
        .enumerate()
        .map(|(number, expression)| {
            let expression = expression.replace("$__rate_interval", "5m");
            format!("  - {{ record: r{number}, expr: {expression:?} }}\n")
        })
        .collect();
    let path = std::env::temp_dir().join(format!("tidegate-dashboard-{}.yaml", std::process::id()));
    std::fs::write(&path, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).unwrap();
    let output = run(&mut promtool(&["check", "rules", path.to_str().unwrap()]));
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{}{rules}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_manifest_of_kubernetes_asks_paths_and_sets_variables_that_there_are() {
    let manifest = std::fs::read_to_string(workspace().join("deploy/kubernetes.yaml")).unwrap();
    let manifest = manifest.as_str();
    let after = |mark: &'static str| {
        manifest.match_indices(mark).map(move |(place, _)| {
            let rest = &manifest[place + mark.len()..];
            &rest[..rest.find([',', ' ']).unwrap()]
        })
    };
    let server = Running::start(&[]);
    let paths: Vec<&str> = after("path: ").collect();
    assert_eq!(paths, ["/healthz", "/readyz"]);
    for path in paths {
        assert_eq!(curl(&[&server.url(path)]).status, 200);
    }
    let help = String::from_utf8(crate::server::running::ask(&["serve", "--help"]).stdout).unwrap();
    for variable in after("{ name: TIDEGATE_") {
        let flag = format!("--{}", variable.to_lowercase().replace('_', "-"));
        assert!(help.split_whitespace().any(|word| word == flag), "{flag}");
    }
    let document = std::fs::read_to_string(workspace().join("docs/book/src/reference/http.md")).unwrap();
    let shown = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(shown.lines().all(|line| manifest.contains(line)), "{shown}");
}

#[test]
fn the_unit_of_systemd_starts_what_the_binary_understands() {
    let unit = std::fs::read_to_string(workspace().join("deploy/systemd/tidegate.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/tidegate ")).unwrap();
    let flags = start.split_whitespace().filter(|word| word.starts_with("--"));
    let help = String::from_utf8(crate::server::running::ask(&["serve", "--help"]).stdout).unwrap();
    for flag in flags {
        assert!(help.contains(flag), "{flag}");
    }
    assert!(unit.contains("Type=notify"));
}
