//! `tidegate replay`, as one runs it.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::running::{Folder, ask, tidegate};

fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-replay/samples").join(name).display().to_string()
}

#[test]
fn a_report_is_text_json_or_a_page_and_the_exit_status_says_whether_too_many_are_refused() {
    let (log, new, old) = (sample("access.log"), sample("new.toml"), sample("old.toml"));
    let folder = Folder::new();
    let page = folder.path("report.html");
    let output = ask(&["replay", &log, "--policy", &new, "--against", &old, "--html", &page, "--timings"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("newly refused") && text.contains("198.51.100.23"), "{text}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("2,000 lines in"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("198.51.100.23") && page.contains("<svg") && !page.contains("<script"));
    let outside = page.split("://").skip(1).count();
    assert_eq!(outside, 0, "the page asks for nothing from elsewhere");

    let output = ask(&["replay", &log, "--policy", &new, "--at-most", "1%", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!((&report["lines"], &report["sources"][0]["format"]), (&2_000.into(), &"combined".into()));
    assert_eq!(report["limits"][0]["smallest"]["limit"], "31/min burst 16");
    assert_eq!(ask(&["replay", &log, "--policy", &new, "--at-most", "10%"]).status.code(), Some(0));
}

#[test]
fn a_pipe_is_read_and_mistakes_are_told() {
    let new = sample("new.toml");
    let mut child = tidegate()
        .args(["replay", "-", "--policy", &new, "--map", "user=who", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "{\"time\": 1, \"who\": \"a\"}\nnonsense\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let report: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&report["admitted"], &report["broken"]), (&1.into(), &1.into()));

    for (arguments, says) in [
        (["replay", "/does/not/exist", "--policy", &new], "cannot read /does/not/exist"),
        (["replay", &new, "--policy", &new], "cannot tell the format"),
        (["replay", &new, "--policy", "/does/not/exist.toml"], "/does/not/exist.toml"),
    ] {
        let output = ask(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(says), "{error}");
    }
}
