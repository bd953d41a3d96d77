//! The binary as others see it: grpcio, and a real Envoy with clients of its own.
//!
//! `cargo xtask programs` gets both.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use tidegate_testkit::servers::{GUARD, Permit, eventually};

/// Counted for a year, so that no window ends during the test.
const LIMITS: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: tokens, rate_limit: { unit: year, requests_per_unit: 1000 } }
";

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/programs/envoy")
}

fn python() -> PathBuf {
    let python = programs().join("bin/python");
    assert!(python.exists(), "Envoy is missing: run `cargo xtask programs`");
    python
}

/// The proxy, which its wheel keeps beside the module.
fn envoy() -> PathBuf {
    let script = "import envoy, os; print(os.path.join(os.path.dirname(envoy.__file__), '_bin', 'envoy'))";
    let found = Command::new(python()).args(["-c", script]).output().unwrap();
    let path = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    assert!(path.exists(), "Envoy is missing: run `cargo xtask programs`");
    path
}

/// A server of the binary, and its port for gRPC.
fn tidegate(folder: &Path, flags: &[&str]) -> (Process, u16) {
    let file = folder.join("edge.yaml");
    fs::write(&file, LIMITS).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--body-seconds", "300", "--envoy-config"])
        .arg(file)
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Process(child);
    let said = lines.find_map(|line| Some(line.unwrap().trim().strip_prefix("grpc")?.trim().to_owned()));
    // What else it says is nobody's business, but it must be able to say it.
    thread::spawn(move || lines.for_each(drop));
    let address = said.expect("it says where it serves gRPC");
    (process, address.rsplit(':').next().unwrap().parse().unwrap())
}

fn unused_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Answers every request, and says that it has spent the tokens that it was sent.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            thread::spawn(move || {
                let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let mut head = head.take_while(|line| !line.is_empty());
                let tokens = head.find_map(|line| Some(line.to_lowercase().strip_prefix("x-tokens: ")?.to_owned()));
                head.for_each(drop);
                let tokens = tokens.map(|tokens| format!("x-tokens: {tokens}\r\n")).unwrap_or_default();
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n{tokens}content-length: 3\r\nconnection: close\r\n\r\nup\n");
            });
        }
    });
    port
}

/// Envoy between its clients and the upstream, until it answers.
fn proxy(folder: &Path, tidegate: u16, deny: bool) -> (Process, u16) {
    let port = unused_port();
    let config = include_str!("envoy_support/envoy.yaml")
        .replace("LISTENER_PORT", &port.to_string())
        .replace("FAILURE_MODE", &deny.to_string())
        .replace("UPSTREAM_PORT", &upstream().to_string())
        .replace("TIDEGATE_PORT", &tidegate.to_string());
    let (file, log) = (folder.join("envoy.yaml"), folder.join("envoy.log"));
    fs::write(&file, config).unwrap();
    let child = Command::new(envoy())
        .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "--config-path"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let process = Process(child);
    let connect = || TcpStream::connect(("127.0.0.1", port));
    eventually("Envoy to start", || connect().map_err(|_| fs::read_to_string(&log).unwrap()));
    (process, port)
}

struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

fn get(port: u16, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}

fn through_envoy(deny: bool) {
    let _permit = Permit::wait(2);
    let folder = tempfile::tempdir().unwrap();
    let (mut server, grpc) = tidegate(folder.path(), &["--envoy-headers", "draft-8", "--envoy-problem"]);
    let (_proxy, port) = proxy(folder.path(), grpc, deny);
    let alice = "x-user: alice\r\n";
    for left in [2, 1, 0] {
        let passed = get(port, "/", alice);
        assert_eq!((passed.status, passed.body.as_str()), (200, "up\n"));
        assert_eq!(passed.headers["x-ratelimit-remaining"], left.to_string());
        assert!(passed.headers["ratelimit"].starts_with(&format!("\"edge.user\";r={left};t=")), "{:?}", passed.headers);
    }
    let refused = get(port, "/", alice);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["x-envoy-ratelimited"], "true");
    assert_eq!(refused.headers["x-ratelimit-limit"], "3, 3;w=31536000");
    assert_eq!(refused.headers["ratelimit-policy"], "\"edge.user\";q=3;w=31536000");
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    assert!(refused.body.contains("\"violated-policies\":[\"edge.user\"]"), "{}", refused.body);

    assert_eq!(get(port, "/", "x-user: bob\r\n").status, 200, "bob has a limit of his own");
    assert_eq!(get(port, "/", "").status, 200, "no descriptor, no limit");
    let cost = |cost: u32| get(port, "/cost", &format!("x-user: carol\r\nx-cost: {cost}\r\n")).status;
    assert_eq!(cost(4), 429, "more than the limit holds is refused, in either mode");
    assert_eq!((cost(2), cost(2), cost(1), cost(0)), (200, 429, 200, 429));

    // What a response has cost is told when it has ended, and no request waits for that.
    let spend = |tokens: u32| get(port, "/tokens", &format!("x-user: dave\r\nx-tokens: {tokens}\r\n"));
    let left = || match spend(0) {
        answer if answer.status == 200 => answer.headers["x-ratelimit-remaining"].parse::<u32>().unwrap(),
        _ => 0,
    };
    for (tokens, expected) in [(700, 300), (100, 200), (1_200, 0)] {
        assert_eq!(spend(tokens).status, 200, "some are left");
        eventually("the tokens to be counted", || match left() {
            left if left == expected => Ok(()),
            left => Err(left),
        });
    }
    assert_eq!(spend(1).status, 429, "a thousand are owed");

    // Another limit, from the moment that the server is told of it.
    fs::write(folder.path().join("edge.yaml"), LIMITS.replace("requests_per_unit: 3", "requests_per_unit: 5")).unwrap();
    let told = Command::new("kill").args(["-HUP", &server.0.id().to_string()]).status().unwrap();
    assert!(told.success());
    eventually("a limit with room for alice", || match get(port, "/cost", "x-user: alice\r\nx-cost: 0\r\n").status {
        200 => Ok(()),
        status => Err(status),
    });
    let more = [get(port, "/", alice), get(port, "/", alice), get(port, "/", alice)].map(|answer| answer.status);
    assert_eq!(more, [200, 200, 429], "what she had used stays used");

    server.kill();
    let without = get(port, "/", alice).status;
    assert_eq!(without, if deny { 500 } else { 200 }, "the service is dead");
}

#[test]
fn envoy_refuses_what_the_service_refuses_and_passes_all_without_it() {
    through_envoy(false);
}

#[test]
fn envoy_refuses_what_the_service_refuses_and_passes_nothing_without_it() {
    through_envoy(true);
}

#[test]
fn grpcio_finds_health_reflection_and_the_right_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, port) = tidegate(folder.path(), &["--grpc-reflection"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/envoy_support/grpcio_client.py");
    let seen = Command::new(python()).arg(script).arg(format!("127.0.0.1:{port}")).output().unwrap();
    let said = [seen.stdout, seen.stderr].concat();
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_filter_of_the_document_is_that_of_these_tests() {
    let document = include_str!("../../../docs/envoy.md");
    let shown = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let tested: Vec<&str> = include_str!("envoy_support/envoy.yaml").lines().map(str::trim).collect();
    assert!(shown.lines().all(|line| tested.contains(&line.trim())), "{shown}");
}
