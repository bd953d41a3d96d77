//! The proxy as a process, in front of an upstream of the test's own.

#![allow(missing_docs)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const GUARD: Duration = Duration::from_secs(120);

/// A proxy that ends with the test.
struct Proxy {
    process: Child,
    address: SocketAddr,
}

impl Proxy {
    fn start(upstream: SocketAddr, limit: &str) -> Proxy {
        let began = Instant::now();
        while began.elapsed() < GUARD {
            // Free a moment ago; if another program takes it, the proxy ends and the next one is tried.
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-example-pingora"));
            let process = command.args([&address.to_string(), &upstream.to_string(), limit]).spawn().unwrap();
            let mut proxy = Proxy { process, address };
            while began.elapsed() < GUARD && proxy.process.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).is_ok() {
                    return proxy;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("the proxy does not listen");
    }

    /// The head of an answer, in lower case, and the body.
    fn ask(&self) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers every request with `hello`, and counts them.
fn upstream() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let asked = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            asked.fetch_add(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello").unwrap();
        }
    });
    (address, count)
}

fn has(head: &str, lines: &[&str]) -> bool {
    lines.iter().all(|line| head.lines().any(|found| found == *line))
}

#[test]
fn a_client_over_its_limit_gets_429_with_retry_after_and_the_upstream_is_not_asked() {
    let (address, asked) = upstream();
    let proxy = Proxy::start(address, "2/day");
    let policy = "ratelimit-policy: \"clients\";q=2;w=86400";
    for left in ["ratelimit: \"clients\";r=1;t=", "ratelimit: \"clients\";r=0;t="] {
        let (head, body) = proxy.ask();
        assert!(has(&head, &["http/1.1 200 ok", policy]) && head.contains(left), "{head}");
        assert!(body == "hello" && !head.contains("retry-after"), "{head}");
    }
    let (head, body) = proxy.ask();
    assert!(
        has(&head, &["http/1.1 429 too many requests", policy, "content-type: application/problem+json"]),
        "{head}"
    );
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: ")).expect(&head);
    assert!((1..=43_200).contains(&wait.parse::<u64>().unwrap()), "half a day for one of two: {wait}");
    assert!(head.contains("ratelimit: \"clients\";r=0;t=") && body.contains("quota-exceeded"), "{head}\n{body}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
