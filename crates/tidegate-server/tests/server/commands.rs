//! The other commands, and what surrounds the server.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_testkit::servers::{GUARD, eventually};

use crate::server::client::{ALICE, curl, post};
use crate::server::running::{Folder, Running, ask, tidegate};

#[test]
fn check_answers_by_its_exit_status() {
    let server = Running::start(&[]);
    let check = |limit: &str| ask(&["check", "alice", "--limit", limit, "--server", server.address()]);
    let allowed = check("1/h");
    assert_eq!((allowed.status.code(), &*allowed.stdout), (Some(0), &b"allowed, 0 left\n"[..]));
    let refused = check("1/h");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stdout).unwrap();
    let seconds = said.strip_prefix("refused, retry after ").and_then(|rest| rest.strip_suffix("s\n"));
    let seconds: f64 = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{said:?}"));
    assert!((3_000.0..3_600.0).contains(&seconds), "{said:?}");
    assert_eq!(check("1/fortnight").status.code(), Some(2));
    let by_policy = ask(&["check", "alice", "--server", server.address(), "--cost", "21"]);
    assert_eq!(by_policy.status.code(), Some(2));
    assert!(String::from_utf8(by_policy.stderr).unwrap().contains("can never fit"));
    let unreachable = ask(&["check", "alice", "--server", "127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(2));
    assert!(String::from_utf8(unreachable.stderr).unwrap().contains("start one by `tidegate serve`"));
}

#[test]
fn check_and_explain_send_attributes() {
    let folder = Folder::new();
    let policy = "[rules.orders]\nlimit = \"1/h\"\nmatch = { path = \"/orders\" }\nkey = [\"user\"]\n";
    let file = folder.write("policy.toml", policy);
    let server = Running::start(&["--policy", &file]);
    let run = |command: &str, words: &[&str]| {
        let output = ask(&[&[command, "--server", server.address()], words].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let order = &["user=alice", "--attribute", "path=/orders"][..];
    assert_eq!(run("check", order), (Some(0), "allowed, 0 left\n".to_owned()));
    assert_eq!(run("check", order).0, Some(1));
    assert_eq!(run("check", &["user=bob", "path=/other"]), (Some(0), "allowed, any number left\n".to_owned()));
    let (status, told) = run("explain", order);
    assert_eq!(status, Some(1));
    assert!(told.starts_with("refused") && told.contains("\"orders\""), "{told}");
    let (status, told) = run("explain", &["user=bob", "path=/orders"]);
    assert!(status == Some(0) && told.starts_with("allowed: 1 left by \"orders\""), "{told}");
    for (words, why) in [(&[][..], "neither a key nor an attribute"), (&["alice", "bob"], "two keys")] {
        let (status, told) = run("check", words);
        assert!(status == Some(2) && told.contains(why), "{told}");
    }
    // Without a server, of keys that were never used.
    let explain = ["explain", "user=alice", "path=/orders", "--policy", &file];
    // A server that the environment names is not asked.
    let offline = tidegate().args(explain).env("TIDEGATE_SERVER", "127.0.0.1:1").output().unwrap();
    assert_eq!(offline.status.code(), Some(0));
    assert!(String::from_utf8(offline.stdout).unwrap().contains("allowed: 1 left by \"orders\""));
    let invalid = folder.write("invalid.toml", "[rules.orders]\nlimit = \"1/fortnight\"\n");
    let invalid = ask(&["explain", "user=alice", "--policy", &invalid]);
    assert_eq!(invalid.status.code(), Some(2));
    assert!(String::from_utf8(invalid.stderr).unwrap().contains("invalid.toml:2:9"));
}

#[test]
fn validate_reads_standard_input() {
    let validate = |text: &str, arguments: &[&str]| {
        let mut command = tidegate();
        command.args(["validate", "-"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let valid = (Some(0), "standard input: valid\n".to_owned());
    assert_eq!(validate("[rules.all]\nlimit = \"1/h\"\n", &[]), valid);
    assert_eq!(validate("rules:\n  all:\n    limit: 1/h\n", &["--format", "yaml"]), valid);
    let (status, told) = validate("[rules.all]\nlimit = \"1/fortnight\"\n", &[]);
    assert!(status == Some(1) && told.contains("standard input:2:9"), "{told}");
}

#[test]
fn a_port_in_use_is_told_with_the_flag_that_names_another() {
    let server = Running::start(&[]);
    for flag in ["--http", "--resp", "--grpc"] {
        let mut arguments = vec!["serve", flag, server.address()];
        if flag != "--http" {
            arguments.extend(["--http", "127.0.0.1:0"]);
        }
        let output = ask(&arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("cannot listen on") && told.contains(&format!("by {flag}")), "{told}");
    }
}

/// A client without TLS says how to ask a server with TLS.
#[test]
fn what_answers_is_no_http() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let alerts = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap() > 0);
            std::io::Write::write_all(&mut stream, b"\x15\x03\x03\x00\x02\x02\x32").unwrap();
        }
    });
    for arguments in [&["ready", "--server", &address][..], &["check", "alice", "--server", &address]] {
        let output = ask(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains("TLS"));
    }
    alerts.join().unwrap();
}

#[test]
fn validate_shows_errors_at_their_places() {
    let folder = Folder::new();
    let good = folder.write("good.toml", "[rules.all]\nlimit = \"1/h\"\n");
    let bad = folder.write("bad.yaml", "rules:\n  all:\n    limit: 1/fortnight\n");
    assert!(ask(&["validate", &good]).status.success());
    let output = ask(&["validate", &good, &bad]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("bad.yaml:3:12") && errors.contains("1/fortnight"), "{errors}");
    let envoy = folder.write(
        "envoy.yaml",
        "domain: edge\ndescriptors:\n  - key: a\n    rate_limit: { unit: hour, requests_per_unit: 5 }\n",
    );
    assert!(ask(&["validate", "--envoy", &envoy]).status.success());
}

#[test]
fn validate_tells_an_invalid_file_from_one_that_cannot_be_read() {
    let folder = Folder::new();
    let good = folder.write("good.toml", "[rules.all]\nlimit = \"1/h\"\n");
    let bad = folder.write("bad.toml", "[rules.all]\nlimit = \"1/fortnight\"\n");
    let includes = folder.write("includes.toml", "include = [\"none.toml\"]\n[rules.all]\nlimit = \"1/h\"\n");
    let unnamed = folder.write("policy", "[rules.all]\nlimit = \"1/h\"\n");
    let none = folder.path("none.toml");
    for (files, status) in [
        (&[&good][..], 0),
        (&[&good, &bad], 1),
        (&[&includes], 1),
        (&[&none], 2),
        (&[&unnamed], 2),
        (&[&none, &bad, &good], 2),
        (&[], 2),
    ] {
        for envoy in [&["--envoy"][..], &[]] {
            // Of Envoy's files, none of these is one.
            let status = if envoy.is_empty() || files.contains(&&none) || files.is_empty() { status } else { 1 };
            let arguments: Vec<&str> = ["validate"].into_iter().chain(files.iter().map(|file| file.as_str())).collect();
            let found = ask(&[&arguments[..], envoy].concat()).status.code();
            assert_eq!(found, Some(status), "{files:?} {envoy:?}");
        }
    }
}

#[test]
fn ready_tells_a_server_that_is_not_ready_from_none() {
    let server = Running::with(|command| {
        command.args(["--http", "127.0.0.1:0"]).env("TIDEGATE_DRAIN_GRACE_MS", GUARD.as_millis().to_string())
    });
    let ready = || ask(&["ready", "--server", server.address()]).status.code();
    assert_eq!(ready(), Some(0));
    server.terminate();
    eventually("the server to drain", || match ready() {
        Some(1) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        assert!(std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap() > 0);
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let output = ask(&["ready", "--server", &address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is not a tidegate server"));
    answers.join().unwrap();
}

#[test]
fn every_command_documents_its_exit_status() {
    let help = |arguments: &[&str]| String::from_utf8(ask(arguments).stdout).unwrap();
    let all = help(&["--help"]);
    let (_, list) = all.split_once("Commands:\n").unwrap();
    let list = list.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let lines = list.filter(|line| !line.starts_with(' ') && !line.contains("not in this build"));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    assert!(all.contains("Exit status") && names.contains(&"replay") && names.contains(&"serve"), "{all}");
    for name in names {
        let help = help(&[name, "--help"]);
        assert!(help.contains("Exit status:"), "{help}");
        let unknown = ask(&[name, "--no-such-flag"]);
        assert_eq!(unknown.status.code(), Some(2), "{name}");
    }
}

#[test]
fn help_has_examples_first_and_80_columns_and_the_short_one_fits_a_screen() {
    let help = |arguments: &[&str]| String::from_utf8(ask(arguments).stdout).unwrap();
    let commands =
        ["serve", "check", "explain", "ready", "simulate", "top", "validate", "replay", "token", "schema", "man"];
    for command in commands {
        for flag in ["-h", "--help"] {
            let text = help(&[command, flag]);
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{command} {flag}: {wide:#?}");
            let (example, usage) = (text.find("Examples:"), text.find("Usage:"));
            assert!(example.is_none_or(|example| Some(example) < usage), "{text}");
        }
    }
    let short = help(&["serve", "-h"]);
    assert!(short.lines().count() <= 24, "{} lines\n{short}", short.lines().count());
    let long = help(&["serve", "--help"]);
    let places = ["Examples:", "Listen:", "Store:", "Policy:", "Limits:", "TLS:", "Admin:", "Envoy:", "Logging:"];
    let places = places.map(|heading| long.find(heading).unwrap_or_else(|| panic!("no {heading}\n{long}")));
    assert!(places.is_sorted(), "{long}");
}

#[test]
fn validate_shows_warnings_at_their_places_and_succeeds() {
    let folder = Folder::new();
    let file = folder.write("policy.toml", "[rules.all]\nlimit = \"1/h\"\nkey = [\"usr\"]\n");
    let output = ask(&["validate", &file]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{file}: valid\n"));
    let warned = String::from_utf8(output.stderr).unwrap();
    let parts = ["warning: key attribute \"usr\"", "policy.toml:3:8", "help: did you mean \"user\"?"];
    assert!(parts.iter().all(|part| warned.contains(part)), "{warned}");
}

#[test]
fn warnings_are_logged_once_for_each_policy_that_is_applied() {
    let folder = Folder::new();
    let policy = |key: &str| format!("[rules.all]\nlimit = \"1/h\"\nkey = [\"{key}\"]\n");
    let file = folder.write("policy.toml", &policy("usr"));
    let mut server = tidegate()
        .args(["serve", "--http", "127.0.0.1:0", "--policy", &file, "--log-format", "json"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stderr.take().unwrap()));
    // The system may be worth a warning, too.
    let mut next = || loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let message = line["fields"]["message"].as_str().unwrap();
        if message.starts_with("the policy: ") {
            assert_eq!(line["level"], "WARN", "{line}");
            break message.to_owned();
        }
    };
    assert!(next().contains("key attribute \"usr\""), "at the start");
    std::fs::rename(folder.write("next.toml", &policy("tennat")), &file).unwrap();
    assert!(next().contains("key attribute \"tennat\""), "and when another policy is applied");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn the_schema_is_printed() {
    let schema: Value = serde_json::from_slice(&ask(&["schema"]).stdout).unwrap();
    assert!(schema["properties"]["rules"].is_object());
}

#[test]
#[cfg(feature = "manual")]
fn completions_and_the_manual_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ask(&["completions", shell]);
        assert!(output.status.success() && String::from_utf8(output.stdout).unwrap().contains("max-connections"));
    }
    let manual = String::from_utf8(ask(&["man"]).stdout).unwrap();
    let parts = [".TH", "TIDEGATE_MAX_KEYS", "Exit status"];
    assert!(parts.iter().all(|part| manual.contains(part)), "{manual}");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.all]\nlimt = \"1/h\"\n");
    let text = folder.write("text", "text");
    let server = Running::start(&[]);
    for (arguments, words) in [
        (&["--policy", &policy][..], "did you mean \"limit\"?"),
        (&["--policy", "/no/such/policy.toml"], "/no/such/policy.toml"),
        (&["--http", server.address()], "cannot listen on"),
        (&["--http", &format!("unix:{text}")], "no socket"),
        (&["--http", "here"], "write host:port"),
        (&["--store", "mongo://x"], "mongo"),
        (&["--store", "redis://127.0.0.1", "--snapshot", &text], "Redis keeps the states itself"),
        (&["--snapshot", &text], "remove it to start with fresh states"),
        (&["--tls-certificate", &text], "--tls-key"),
        (&["--tls-certificate", &text, "--tls-key", &text], "no certificate in PEM"),
        (&["--tls-client-crl", &text], "needs --tls-client-ca"),
        (&["--on-failure", "ajar"], "local:N"),
        (&["--max-keys", "0"], "zero"),
        (&["--log", "=,="], "--log"),
        (&["--log", "verbose"], "--log"),
    ] {
        let output = tidegate().arg("serve").args(["--http", "127.0.0.1:0"]).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn settings_come_from_the_environment_too() {
    let server = Running::with(|command| command.env("TIDEGATE_HTTP", "127.0.0.1:0").env("TIDEGATE_MAX_BATCH", "1"));
    assert_eq!(post(&server.url("/v1/check"), &format!("[{ALICE},{ALICE}]")).status, 400);
}

/// As others leave one out who fill in a template.
#[test]
fn an_empty_variable_is_none() {
    let folder = Folder::new();
    let token = folder.write("token", "from-the-file");
    let server = Running::with(|command| {
        let empty = ["POLICY", "ADMIN_TOKEN", "NO_ADMIN", "MAX_KEYS", "SETTINGS", "RESP"];
        let command = empty.iter().fold(command, |command, name| command.env(format!("TIDEGATE_{name}"), ""));
        command.env("TIDEGATE_HTTP", "127.0.0.1:0").env("TIDEGATE_ADMIN_TOKEN_FILE", &token)
    });
    assert!(server.banner.contains("built in"), "{}", server.banner);
    assert_eq!(curl(&[&server.url("/admin/v1/policy")]).status, 401);
    let ready = tidegate().env("TIDEGATE_SERVER", "").arg("ready").output().unwrap();
    assert!(String::from_utf8_lossy(&ready.stderr).contains("127.0.0.1:7400") || ready.status.success());
}

/// A pipe whose reader has gone.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn commands_succeed_when_their_output_is_not_read() {
    let server = Running::start(&[]);
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.all]\nlimit = '1/h'\n");
    for (arguments, code) in [
        (&["validate", &policy][..], 0),
        (&["check", "alice", "--limit", "1/h", "--server", server.address()], 0),
        (&["check", "alice", "--limit", "1/h", "--server", server.address()], 1),
        (&["ready", "--server", server.address()], 0),
        (&["schema"], 0),
    ] {
        let status = tidegate().args(arguments).stdout(unread()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
    assert_eq!(tidegate().args(["validate", "/no/such.toml"]).stderr(unread()).status().unwrap().code(), Some(2));
    assert_eq!(
        tidegate().args(["check", "a", "--server", "127.0.0.1:1"]).stderr(unread()).status().unwrap().code(),
        Some(2)
    );
}

/// Neither what it prints nor what it logs is worth a server's life, or its states.
#[test]
fn a_server_keeps_running_and_keeps_its_states_when_its_log_is_not_read() {
    let folder = Folder::new();
    let (socket, states) = (folder.path("socket"), folder.path("states"));
    let mut server = tidegate()
        .args(["serve", "--log", "info", "--snapshot", &states, "--http", &format!("unix:{socket}")])
        .stdout(unread())
        .stderr(unread())
        .spawn()
        .unwrap();
    let ready = || ask(&["ready", "--server", &format!("unix:{socket}")]).status.success();
    eventually("the server to be ready", || if ready() { Ok(()) } else { Err(format!("{:?}", server.try_wait())) });
    let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&server), signal).unwrap();
    signal(rustix::process::Signal::HUP);
    for _ in 0..5 {
        assert!(ready(), "it has read its files again, and said so");
    }
    signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(std::fs::metadata(&states).is_ok_and(|file| file.len() > 0));
}

#[test]
fn settings_come_from_a_file_where_nothing_comes_before() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.all]\nlimit = '1/h'\n");
    let text = format!("http = ['127.0.0.1:0', '127.0.0.1:0']\nmax_batch = 2\nmax_body = 300\npolicy = '{policy}'\n");
    let settings = folder.write("settings.toml", &text);
    let server = Running::with(|command| {
        command.env("TIDEGATE_SETTINGS", &settings).env("TIDEGATE_MAX_BODY", "400").args(["--max-batch", "1"])
    });
    assert_eq!(server.banner.matches("http  ").count(), 2, "{}", server.banner);
    assert!(server.banner.contains("policy.toml"), "{}", server.banner);
    let url = server.url("/v1/check");
    assert_eq!(post(&url, &format!("[{ALICE},{ALICE}]")).status, 400, "a flag comes before the file");
    let spaces = |count| format!("{ALICE}{}", " ".repeat(count));
    assert_eq!(post(&url, &spaces(350)).status, 200, "a variable comes before the file");
    assert_eq!(post(&url, &spaces(450)).status, 413);
}

#[test]
fn a_token_that_is_given_comes_before_the_file_of_one_in_the_settings() {
    let folder = Folder::new();
    let token = folder.write("token", "from-the-file");
    let settings = folder.write("settings.yaml", &format!("admin_token_file: {token}\n"));
    let status = |server: &Running, token: &str| {
        curl(&["-H", &format!("authorization: Bearer {token}"), &server.url("/admin/v1/policy")]).status
    };
    let server = Running::start(&["--settings", &settings]);
    assert_eq!((status(&server, "from-the-file"), status(&server, "given")), (200, 401));
    let server = Running::start(&["--settings", &settings, "--admin-token", "given"]);
    assert_eq!((status(&server, "from-the-file"), status(&server, "given")), (401, 200));
}

#[test]
fn errors_of_a_settings_file_are_shown_at_their_places() {
    let folder = Folder::new();
    let text = "max_kes = 5\nmax_keys = 'many'\nno_admin = 1\nthreads = [1, 2]\nhttp = 'here'\n";
    let output = ask(&["serve", "--settings", &folder.write("settings.toml", text)]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    for words in [
        "settings.toml:1:1",
        "did you mean \"max_keys\"?",
        "settings.toml:2:12",
        "invalid digit",
        "write true or false",
        "not a list",
        "write host:port",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
}

/// One of the two would not be looked at.
#[test]
fn a_settings_file_has_the_token_or_a_file_of_it_but_not_both() {
    let folder = Folder::new();
    let token = folder.write("token", "from-the-file");
    for (name, text) in [
        ("one.toml", format!("admin_token = 'here'\nadmin_token_file = '{token}'\n")),
        ("other.yaml", format!("admin_token_file: {token}\nadmin_token: here\n")),
    ] {
        let mut serve = tidegate();
        serve.args(["serve", "--http", "127.0.0.1:0", "--settings", &folder.write(name, &text)]);
        let errors = ended_at_its_start(serve);
        assert!(errors.contains(&format!("{name}:2:")), "{errors}");
        assert!(errors.contains("\"admin_token\"") && errors.contains("\"admin_token_file\""), "{errors}");
    }
}

/// What a server says that does not start; one that does is ended.
pub(crate) fn ended_at_its_start(mut serve: Command) -> String {
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let read = std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    if read > 0 {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((read, output.status.code()), (0, Some(2)), "it has started: {first}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn systemd_is_told_of_readiness_and_of_the_end() {
    let folder = Folder::new();
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    let server = Running::with(|command| command.args(["--http", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &path));
    let next = || {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    assert_eq!(next(), "READY=1");
    assert!(server.stop().success());
    assert_eq!(next(), "STOPPING=1");
}

#[test]
fn logs_can_be_json_one_object_a_line() {
    let mut server = tidegate()
        .args(["serve", "--http", "127.0.0.1:0", "--log-format", "json", "--log", "info"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stderr.take().unwrap()));
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["fields"]["message"]), (&"INFO".into(), &"listening".into()));
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn the_root_of_the_workspace_runs_the_binary() {
    let cargo = Command::new(env!("CARGO")).args(["metadata", "--no-deps", "--format-version", "1"]).output().unwrap();
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let default = metadata["workspace_default_members"][0].as_str().unwrap();
    assert!(default.contains("tidegate-server"), "{default}");
}

#[test]
fn readiness_and_health_are_told_apart() {
    let server = Running::start(&[]);
    assert_eq!(curl(&[&server.url("/healthz")]).body, "alive\n");
    assert_eq!(curl(&[&server.url("/readyz")]).body, "ready\n");
    assert_eq!(ask(&["ready", "--server", server.address()]).status.code(), Some(0));
    assert_eq!(ask(&["ready", "--server", "127.0.0.1:1"]).status.code(), Some(2));
}
