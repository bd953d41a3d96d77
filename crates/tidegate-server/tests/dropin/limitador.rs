//! In the place of limitador, with its limits file.

use std::fs;
use std::path::Path;

use tidegate_testkit::servers::{Server, eventually};

use crate::dropin::running::{Running, command};

/// The worked example of the document, in windows of a year, so that none ends during a test.
fn limits() -> String {
    let document = include_str!("../../../../docs/book/src/migrate/limitador.md");
    let example = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(example.matches("seconds: 60\n").count(), 3, "{example}");
    example.replace("seconds: 60\n", "seconds: 31536000\n")
}

fn start(folder: &Path, store: &str) -> Running {
    let file = folder.join("limits.yaml");
    fs::write(&file, limits()).unwrap();
    let flags = ["--limitador-limits", file.to_str().unwrap(), "--store", store];
    Running::start(&[&flags[..], &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]].concat(), &[])
}

fn clients_are_answered(store: &str) {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path(), store);
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    running.python("kuadrant_client.py", &[protos.to_str().unwrap(), folder.path().to_str().unwrap()]);
    let (_, metrics) = running.curl("http", "/metrics", &[]);
    assert!(metrics.contains(r#"decisions_total{rule="shop/posts",outcome="refused"}"#), "{metrics}");
}

#[test]
fn clients_of_limitador_get_its_answers_in_memory() {
    clients_are_answered("memory");
}

#[test]
fn clients_of_limitador_get_its_answers_on_redis() {
    clients_are_answered(&Server::start().url());
}

#[test]
fn limits_that_change_are_followed_and_the_last_good_ones_kept() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path(), "memory");
    let file = folder.path().join("limits.yaml");
    let json = r#"{"domain": "new", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}"#;
    let ask = || running.curl("http", "/json", &["--json", json]).0;
    assert_eq!((ask(), ask()), ("200".into(), "200".into()));
    let limit = "- { namespace: new, max_value: 1, seconds: 31536000, variables: [\"descriptors[0]['a']\"] }\n";
    fs::write(&file, limit).unwrap();
    eventually("the new limit", || if ask() == "429" { Ok(()) } else { Err(running.log()) });
    fs::write(&file, "- { namespace: new, max_value: 1000, seconds: 60, conditions: [\"a > 'b'\"] }\n").unwrap();
    running.logged("limits.yaml:1:67");
    running.logged("a comparison is missing here");
    assert_eq!(ask(), "429", "the last valid file still decides");
}

#[test]
fn files_are_validated_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let [good, bad] = ["good", "bad"].map(|name| folder.path().join(name).with_extension("yaml"));
    fs::write(&good, limits()).unwrap();
    fs::write(&bad, "- { namespace: n, max_value: 1, seconds: 60, conditions: ['a.b == c'] }").unwrap();
    let mut validate = std::process::Command::new(command(&[], &[]).get_program());
    let validated = validate.args(["validate", "--limitador"]).args([&good, &bad]).output().unwrap();
    assert_eq!(validated.status.code(), Some(1));
    assert!(String::from_utf8(validated.stdout).unwrap().contains("good.yaml: valid"));
    let said = String::from_utf8(validated.stderr).unwrap();
    assert!(said.contains("bad.yaml:1:60") && said.contains("descriptors[0]['a.b']"), "{said}");
}
