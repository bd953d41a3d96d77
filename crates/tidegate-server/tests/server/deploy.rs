//! What is there to run the server with: alerts, dashboard, unit.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::client::{curl, post};
use crate::running::{Running, workspace};

fn promtool(arguments: &[&str]) -> Command {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(workspace().join("deploy/prometheus"));
    command
}

fn run(command: &mut Command) -> Output {
    let missing = "promtool is missing: run `cargo xtask programs`";
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
fn metrics_are_what_prometheus_reads() {
    let server = Running::start(&[]);
    post(&server.url("/v1/check"), "{}");
    let metrics = curl(&[&server.url("/metrics")]).body;
    // The tool knows the older format, in which a counter's name is that of its samples.
    let older: String = metrics
        .lines()
        .filter(|line| *line != "# EOF")
        .map(|line| match line.strip_suffix(" counter") {
            Some(counter) => format!("{counter}_total counter\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let older = older.lines().filter(|line| !line.starts_with("# HELP")).collect::<Vec<_>>().join("\n") + "\n";
    let mut child = promtool(&["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(older.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    // 3 is for matters of style, such as a metric without help.
    assert!([Some(0), Some(3)].contains(&status.code()), "{older}");
}

/// The names of metrics in an expression.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("tidegate_"))
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_there_are() {
    let redis = tidegate_testkit::servers::Server::start();
    let mut served = String::new();
    for store in ["memory".to_owned(), redis.url()] {
        let server = Running::start(&["--store", &store]);
        // Some are there from the first time on.
        post(&server.url("/v1/check"), "{}");
        post(&server.url("/v1/check"), "{\"cost\": 1000}");
        served += &curl(&[&server.url("/metrics")]).body;
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
fn the_unit_of_systemd_starts_what_the_binary_understands() {
    let unit = std::fs::read_to_string(workspace().join("deploy/systemd/tidegate.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/tidegate ")).unwrap();
    let flags = start.split_whitespace().filter(|word| word.starts_with("--"));
    let help = String::from_utf8(crate::running::ask(&["serve", "--help"]).stdout).unwrap();
    for flag in flags {
        assert!(help.contains(flag), "{flag}");
    }
    assert!(unit.contains("Type=notify"));
}
