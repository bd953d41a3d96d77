//! A tidegate that can be killed and come back on its port, and the application behind the proxies.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_testkit::servers::{Directory, Process, eventually};

use crate::proxies::client::Client;

/// The peer that all proxies of these tests are.
pub(crate) const PROXY: &str = "127.0.0.1";

/// A server of the binary. It is killed when dropped.
pub(crate) struct Tidegate {
    /// None while it is down.
    process: Option<Process>,
    directory: Directory,
    pub(crate) port: u16,
}

impl Tidegate {
    pub(crate) fn start(policy: &str) -> Tidegate {
        let directory = Directory::create();
        directory.write("policy.toml", policy);
        let port = unused_port();
        Tidegate { process: Some(serve(&directory, port)), directory, port }
    }

    pub(crate) fn kill(&mut self) {
        // Its directory is for the next one.
        self.process.take().unwrap().make_way();
    }

    /// Starts it again, with nothing of its states left.
    pub(crate) fn restart(&mut self) {
        self.process = Some(serve(&self.directory, self.port));
    }

    /// What it says to a request.
    pub(crate) fn ask(&self, path: &str, body: &str) -> String {
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        let mut client = Client::open(self.port, PROXY);
        client.request(if body.is_empty() { "GET" } else { "POST" }, path, &head, body).body
    }

    /// Decisions of a rule that came out so, as it counts them itself.
    pub(crate) fn counted(&self, rule: &str, outcome: &str) -> u64 {
        let line = format!("tidegate_decisions_total{{rule=\"{rule}\",outcome=\"{outcome}\"}} ");
        let metrics = self.ask("/metrics", "");
        metrics.lines().find_map(|metric| metric.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
    }
}

fn serve(directory: &Directory, port: u16) -> Process {
    let [policy, log] = ["policy.toml", "log"].map(|name| directory.path().join(name));
    let address = format!("127.0.0.1:{port}");
    let arguments = ["serve", "--http", &address, "--trusted-proxy", PROXY, "--policy", policy.to_str().unwrap()];
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::start(program, &arguments, directory, &log);
    wait_for(port, &mut process, &log);
    process
}

/// Waits until a process accepts connections.
pub(crate) fn wait_for(port: u16, process: &mut Process, log: &Path) {
    let logged = || std::fs::read_to_string(log).unwrap_or_default();
    eventually("a program to start", || {
        assert!(!process.has_ended(), "{}", logged());
        TcpStream::connect(("127.0.0.1", port)).map_err(|_| logged())
    });
}

pub(crate) fn unused_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An application that answers every request, and counts them.
pub(crate) struct Upstream {
    pub(crate) port: u16,
    served: Arc<AtomicU64>,
}

impl Upstream {
    pub(crate) fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, served) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU64::new(0)));
        let counter = Arc::clone(&served);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counter = Arc::clone(&counter);
                thread::spawn(move || answer(stream, &counter));
            }
        });
        Upstream { port, served }
    }

    /// Counts anew.
    pub(crate) fn forget(&self) {
        self.served.store(0, Ordering::SeqCst);
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }
}

/// Answers requests without a body until the connection ends.
fn answer(mut stream: TcpStream, served: &AtomicU64) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    for _ in lines.filter(String::is_empty) {
        served.fetch_add(1, Ordering::SeqCst);
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nup\n").is_err() {
            return;
        }
    }
}
