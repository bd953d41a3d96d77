//! `tidegate replay`, as one runs it.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::server::running::{Folder, ask, tidegate};

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
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("of 2000 requests would be refused, more than 1%"), "{told}");
    assert_eq!(ask(&["replay", &log, "--policy", &new, "--at-most", "10%"]).status.code(), Some(0));
}

#[test]
fn durations_make_lines_reservations() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.calls]\nlimit = 'in-flight 2 for 1min'\nkey = ['user']\n");
    let line = |end: u64| format!("{{\"ts\": {end}, \"user\": \"alice\", \"duration\": 1500}}\n");
    let log = folder.write("calls.json", &(10..20).map(line).collect::<String>());
    let output = ask(&["replay", &log, "--policy", &policy, "--map", "duration_ms=duration"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("admitted        10   100%"), "{text}");
    assert!(text.contains("Most requests in flight at once: 2\n  calls: 2 in flight for one key, at most"), "{text}");
    // As seconds, they never end while the log lasts.
    let output = ask(&["replay", &log, "--policy", &policy, "--map", "duration=duration", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["limits"][0]["most_in_flight"], 2);
    assert_eq!(report["refused"], 8);
}

/// What is said to a log from a pipe: the status, and the complaint.
fn piped(log: &str, arguments: &[&str]) -> (Option<i32>, Output) {
    let mut child = tidegate()
        .args(["replay", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that ends before it has read all says why by its status.
    let _ = child.stdin.take().unwrap().write_all(log.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), output)
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const BY_USER: &str = "[rules.orders]\nlimit = '1000/min'\nkey = ['user']\n";

/// Lines of JSON: with a user, of no format, and without a user.
fn lines(good: usize, broken: usize, undecided: usize) -> String {
    "{\"time\": 1, \"user\": \"a\"}\n".repeat(good)
        + &"nonsense\n".repeat(broken)
        + &"{\"time\": 1, \"client\": \"192.0.2.1\"}\n".repeat(undecided)
}

#[test]
fn a_log_without_a_line_is_no_answer() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", BY_USER);
    for (name, text) in [("empty.log", ""), ("blank.log", "\n \n"), ("header.csv", "time,user\n")] {
        let log = folder.write(name, text);
        for gate in [&[][..], &["--at-most", "100%"], &["--tolerate", "100%"], &["--format", "json"]] {
            let output = ask(&[&["replay", &log, "--policy", &policy][..], gate].concat());
            assert_eq!(output.status.code(), Some(2), "{name} {gate:?}");
            assert!(
                errors(&output).contains(&format!("0 lines were read, so nothing was decided: {log}"))
                    || gate.contains(&"json")
            );
            let (status, output) = piped(text, &[&["--policy", &policy][..], gate].concat());
            assert_eq!(status, Some(2), "{name} {gate:?}: {}", errors(&output));
        }
    }
    let output = ask(&["replay", &folder.path(""), "--policy", &policy]);
    assert_eq!(output.status.code(), Some(2), "a folder is no log: {}", errors(&output));
}

#[test]
fn a_log_of_broken_lines_is_no_answer() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", BY_USER);
    let log = folder.write("broken.log", &lines(0, 50_000, 0));
    for gate in [&["--at-most", "100%"][..], &["--tolerate", "100%"], &[]] {
        let output = ask(&[&["replay", &log, "--policy", &policy, "--format", "json"][..], gate].concat());
        assert_eq!(output.status.code(), Some(2), "{gate:?}");
        let errors = errors(&output);
        for words in [
            "50,000 of 50,000 lines could not be read or decided".to_owned(),
            format!("50,000 could not be read: {log}:1: not a JSON object"),
            "\n    nonsense\n".to_owned(),
            "--format".to_owned(),
            "--tolerate".to_owned(),
        ] {
            assert!(errors.contains(&words), "{words:?}: {errors}");
        }
    }
    let (status, output) = piped(&lines(0, 50_000, 0), &["--policy", &policy]);
    assert_eq!(status, Some(2));
    assert!(errors(&output).contains("cannot tell the format"), "{}", errors(&output));
}

#[test]
fn as_many_lines_may_be_lost_as_are_tolerated_and_no_more() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", BY_USER);
    for ((good, broken, undecided), gate, status) in [
        ((95, 5, 0), &[][..], 0),
        ((95, 0, 5), &[], 0),
        ((94, 6, 0), &[], 2),
        ((94, 0, 6), &[], 2),
        ((94, 3, 3), &[], 2),
        ((94, 3, 3), &["--tolerate", "6%"], 0),
        ((94, 3, 3), &["--tolerate", "5.9999%"], 2),
        ((999, 1, 0), &["--tolerate", "0%"], 2),
        ((95, 5, 0), &["--at-most", "0%"], 0),
        ((1_050, 0, 0), &["--at-most", "5%"], 0),
        ((1_050, 0, 0), &["--at-most", "4%"], 1),
        // No answer comes before "no".
        ((1_050, 0, 60), &["--at-most", "4%"], 2),
    ] {
        let (found, output) = piped(&lines(good, broken, undecided), &[&["--policy", &policy][..], gate].concat());
        assert_eq!(found, Some(status), "{good} {broken} {undecided} {gate:?}: {}", errors(&output));
        assert_eq!(errors(&output).is_empty(), status == 0, "{}", errors(&output));
    }
    assert_eq!(piped("", &["--policy", &policy, "--tolerate", "some"]).0, Some(2));
}

#[test]
fn a_log_without_the_key_attribute_is_no_answer() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", BY_USER);
    let log = folder.write("access.log", &lines(5, 0, 95));
    let page = folder.path("report.html");
    let replay = ["replay", &log, "--policy", &policy, "--at-most", "1%", "--html", &page];
    let output = ask(&replay);
    assert_eq!(output.status.code(), Some(2));
    let missing = "rule \"orders\": key attribute \"user\" is missing";
    let errors = errors(&output);
    assert!(errors.contains(&format!("95 could not be decided: {log}:6: {missing}")), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("  95: {log}:6: {missing}")), "{text}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("95 of 100 lines could not be read or decided") && page.contains("Could not be decided"));
    let output = ask(&[&replay[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["undecided"]), (Some(2), &95.into()));
    let reason = &report["undecided_reasons"][0];
    let told = ["reason", "rule", "attribute"].map(|field| reason[field].as_str().unwrap());
    assert_eq!((told, &reason["lines"]), (["missing-attribute", "orders", "user"], &95.into()));
    // The field of the log, and the rule, can say what to do.
    assert_eq!(ask(&[&replay[..], &["--map", "user=client"]].concat()).status.code(), Some(0), "5 lack it");
    for more in ["missing = 'skip'\n", "missing = 'shared'\n"] {
        let policy = folder.write("lenient.toml", &format!("{BY_USER}{more}"));
        assert_eq!(ask(&["replay", &log, "--policy", &policy, "--at-most", "1%"]).status.code(), Some(0), "{more}");
    }
}

#[test]
fn a_log_whose_addresses_are_none_is_no_answer() {
    let policy = sample("old.toml");
    let log = "{\"time\": 1, \"ip\": \"192.0.2.1\"}\n".repeat(9) + "{\"time\": 1, \"ip\": \"a.example\"}\n";
    let (status, output) = piped(&log, &["--policy", &policy]);
    assert_eq!(status, Some(2));
    let errors = errors(&output);
    assert!(
        errors.contains("1 of 10 lines") && errors.contains("\"ip\" is not an IP address: \"a.example\""),
        "{errors}"
    );
    assert_eq!(piped(&log, &["--policy", &policy, "--tolerate", "10%"]).0, Some(0));
}

#[test]
fn a_pipe_is_read_and_errors_are_told() {
    let new = sample("new.toml");
    let log = "{\"time\": 1, \"client\": \"192.0.2.1\"}\nnonsense\n";
    let (status, output) = piped(log, &["--policy", &new, "--map", "ip=client", "--json", "--tolerate", "50%"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((status, &report["admitted"], &report["broken"]), (Some(0), &1.into(), &1.into()));

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
