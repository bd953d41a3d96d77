//! The programs of these tests as processes, and a client of HTTP.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use tidegate_testkit::servers::{GUARD, eventually};

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn kill(&mut self) {
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

pub(crate) fn python() -> PathBuf {
    let python = programs().join("bin/python");
    assert!(python.exists(), "Envoy is missing: run `cargo xtask install`");
    python
}

/// The proxy, which its wheel keeps beside the module.
fn envoy() -> PathBuf {
    let script = "import envoy, os; print(os.path.join(os.path.dirname(envoy.__file__), '_bin', 'envoy'))";
    let found = Command::new(python()).args(["-c", script]).output().unwrap();
    let path = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    assert!(path.exists(), "Envoy is missing: run `cargo xtask install`");
    path
}

/// A server of the binary, and its ports.
pub(crate) struct Tidegate {
    pub(crate) process: Process,
    pub(crate) http: u16,
    pub(crate) grpc: u16,
}

impl Tidegate {
    pub(crate) fn start(flags: &[&str]) -> Tidegate {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--body-seconds", "300"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Process(child);
        let mut port = |protocol: &str| {
            let address = lines.find_map(|line| Some(line.unwrap().trim().strip_prefix(protocol)?.trim().to_owned()));
            let address = address.unwrap_or_else(|| panic!("it does not print where it serves {protocol}"));
            address.rsplit(':').next().unwrap().parse().unwrap()
        };
        let (http, grpc) = (port("http"), port("grpc"));
        // The pipe must stay open and empty: the server may print more.
        thread::spawn(move || lines.for_each(drop));
        Tidegate { process, http, grpc }
    }
}

pub(crate) fn unused_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An Envoy with this configuration, once it accepts connections on this port.
pub(crate) fn proxy(folder: &Path, config: &str, port: u16) -> Process {
    let (file, log) = (folder.join("envoy.yaml"), folder.join("envoy.log"));
    fs::write(&file, config).unwrap();
    let child = Command::new(envoy())
        .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "--config-path"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut process = Process(child);
    eventually("Envoy to start", || {
        let ended = process.0.try_wait().unwrap();
        assert_eq!(ended, None, "{}", fs::read_to_string(&log).unwrap());
        TcpStream::connect(("127.0.0.1", port)).map_err(|_| fs::read_to_string(&log).unwrap())
    });
    process
}

/// An answer of HTTP.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

pub(crate) fn get(port: u16, path: &str, headers: &str) -> Response {
    read(send(port, "GET", path, headers, ""))
}

pub(crate) fn post(port: u16, path: &str, headers: &str, body: &str) -> Response {
    read(send(port, "POST", path, headers, body))
}

/// Sends a request, and leaves its answer in the connection.
pub(crate) fn send(port: u16, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let head = format!("host: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}", body.len());
    let request = format!("{method} {path} HTTP/1.1\r\n{head}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads an answer to its end, which is not always that of the connection: Envoy resets one whose request it
/// has refused before it read the body.
fn read(stream: TcpStream) -> Response {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "the connection has ended: {head:?}");
    }
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: HashMap<_, _> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").map_or(u64::MAX, |length| length.parse().unwrap());
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body).unwrap();
    assert!(length == u64::MAX || body.len() as u64 == length, "the connection has ended: {head}{body}");
    Response { status, headers, body }
}
