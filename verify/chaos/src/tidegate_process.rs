//! The binary `tidegate` as a process, and callers that ask it over HTTP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs};

use tidegate::Limit;
use tidegate_testkit::servers::{CallId, Directory, Outcome, Process, eventually};

use crate::trial::KEY;

/// The variable that says where the binary is, if not beside this program.
const VARIABLE: &str = "TIDEGATE_BINARY";

/// How long an answer over HTTP may take: a server that is well answers long before.
pub(crate) const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for an answer that there may not be.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn is_ready() -> Result<(), String> {
    let path = binary();
    if path.exists() { Ok(()) } else { Err(format!("needs the binary tidegate: build it, or name it in {VARIABLE}")) }
}

/// The one that is named, or beside this program; tests are built one folder deeper.
fn binary() -> PathBuf {
    let built = || {
        let folders: Vec<PathBuf> =
            env::current_exe().iter().flat_map(|path| path.ancestors().skip(1).take(2)).map(Into::into).collect();
        let found = folders.iter().map(|folder| folder.join("tidegate")).find(|path| path.is_file());
        found.unwrap_or_else(|| "tidegate".into())
    };
    env::var_os(VARIABLE).map_or_else(built, PathBuf::from)
}

/// A server of the binary, to be terminated, killed and started again on its port.
#[derive(Debug)]
pub(crate) struct Tidegate {
    directory: Directory,
    address: SocketAddr,
    arguments: Vec<String>,
    process: Option<Process>,
    starts: u32,
}

impl Tidegate {
    /// Starts one with these arguments of `tidegate serve`.
    pub(crate) fn start(arguments: &[&str]) -> Tidegate {
        Tidegate::start_by(&[], arguments)
    }

    /// Starts one by a command that becomes it, such as `prlimit --nofile=64`.
    pub(crate) fn start_by(command: &[&str], arguments: &[&str]) -> Tidegate {
        let mut tidegate = Tidegate {
            directory: Directory::create(),
            address: free_address(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            process: None,
            starts: 0,
        };
        tidegate.start_again_by(command);
        tidegate
    }

    pub(crate) fn start_again(&mut self) {
        self.start_again_by(&[]);
    }

    /// Starts it on the port that it had, and waits until it answers.
    pub(crate) fn start_again_by(&mut self, command: &[&str]) {
        self.starts += 1;
        if let Some(former) = self.process.take() {
            former.make_way();
        }
        let (binary, address) = (binary().display().to_string(), self.address.to_string());
        // Nothing of this environment is the server's business, but where programs are.
        let mut words = vec!["env", "-u", VARIABLE];
        words.extend(command);
        words.extend([binary.as_str(), "serve", "--http", &address, "--log", "warn"]);
        words.extend(self.arguments.iter().map(String::as_str));
        let (program, rest) = words.split_first().expect("there are words");
        let mut process = Process::start(Path::new(program), rest, &self.directory, &self.log_path());
        eventually("a server of the binary", || match self.log() {
            log if log.contains("Try: ") => Ok(()),
            log if process.has_ended() => panic!("it ended at its start: {log}"),
            log => Err(log),
        });
        self.process = Some(process);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it was started")
    }

    /// Tells it to leave, and waits until it has; how it ended.
    pub(crate) fn terminate(&mut self) -> Option<ExitStatus> {
        self.process().terminate();
        self.process().status()
    }

    /// What it has said since it was last started.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join(format!("log{}", self.starts))
    }
}

/// An address that is free now. Ports of connections are given out higher up.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
    listener.local_addr().expect("a listener has an address")
}

/// Callers over HTTP, each with a connection that it keeps.
#[derive(Debug)]
pub(crate) struct HttpCallers {
    address: SocketAddr,
    request: String,
    connections: Mutex<Vec<Option<HttpConnection>>>,
    cut_off: AtomicU64,
}

#[derive(Debug)]
struct HttpConnection(BufReader<TcpStream>);

/// An answer over HTTP, as far as a caller is interested.
#[derive(Debug, Default)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) closes: bool,
    pub(crate) body: String,
}

impl HttpCallers {
    pub(crate) fn new(address: SocketAddr, limit: Limit) -> HttpCallers {
        let body = format!(r#"{{"key": "{KEY}", "limit": "{limit}"}}"#);
        let fields = "host: localhost\r\ncontent-type: application/json";
        let request = format!("POST /v1/check HTTP/1.1\r\n{fields}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        HttpCallers { address, request, connections: Mutex::default(), cut_off: AtomicU64::new(0) }
    }

    /// How many had no answer on a connection on which they had had one before, and on which they were not told
    /// that it was the last.
    pub(crate) fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// One request of one caller.
    pub(crate) fn ask(&self, id: CallId) -> Outcome {
        let kept = self.take(id.caller);
        let was_kept = kept.is_some();
        let mut connection = match kept.map_or_else(|| HttpConnection::open(self.address, HTTP_TIMEOUT), Ok) {
            Ok(connection) => connection,
            Err(error) => return Outcome::TurnedAway { why: error.to_string() },
        };
        match connection.ask(&self.request) {
            Ok(answer) => {
                if !answer.closes {
                    self.put_back(id.caller, connection);
                }
                let degraded = answer.body.contains(r#""degraded":true"#);
                match answer.status {
                    200 => Outcome::Admitted { degraded },
                    429 => Outcome::Refused { degraded },
                    503 => Outcome::InDoubt { why: answer.body },
                    other => panic!("no fault explains a {other}: {}", answer.body),
                }
            }
            Err(error) => {
                self.cut_off.fetch_add(u64::from(was_kept), Ordering::Relaxed);
                Outcome::InDoubt { why: error.to_string() }
            }
        }
    }

    fn take(&self, caller: usize) -> Option<HttpConnection> {
        self.lock().get_mut(caller)?.take()
    }

    fn put_back(&self, caller: usize, connection: HttpConnection) {
        let mut connections = self.lock();
        if connections.len() <= caller {
            connections.resize_with(caller + 1, || None);
        }
        connections[caller] = Some(connection);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<HttpConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpConnection {
    fn open(address: SocketAddr, timeout: Duration) -> io::Result<HttpConnection> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(HttpConnection(BufReader::new(stream)))
    }

    fn ask(&mut self, request: &str) -> io::Result<HttpResponse> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.to_ascii_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = field("content-length:").and_then(|length| length.parse().ok());
        let (Some(status), Some(length)) = (status, length) else { return Err(io::ErrorKind::InvalidData.into()) };
        let closes = field("connection:") == Some("close");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(HttpResponse { status, closes, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// Asks once, on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<HttpResponse> {
    HttpConnection::open(address, PROBE_TIMEOUT)?.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
}
