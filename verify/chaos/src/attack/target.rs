//! The server that is attacked: a process under limits of its own.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate_testkit::servers::Directory;

use super::{Server, wire};
use crate::tidegate_process::{Tidegate, free_address};

/// The file of the audit log.
const AUDIT: &str = "audit.jsonl";

/// A server under attack.
pub(crate) struct Target {
    server: Tidegate,
    resp: SocketAddr,
    directory: Directory,
    way: Way,
}

/// How to reach a server.
#[derive(Clone)]
pub(crate) struct Way {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection, with TLS or without.
pub(crate) trait Io: Read + Write + Send {}

impl<T: Read + Write + Send> Io for T {}

impl Way {
    pub(crate) fn connect(&self, from: Ipv4Addr) -> io::Result<Box<dyn Io>> {
        let stream = wire::connect(from, self.address)?;
        let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(connection, stream)))
    }
}

/// An answer of HTTP.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Target {
    pub(super) fn start(Server { flags, policy, tls, files, address_space }: Server) -> Target {
        let directory = Directory::create();
        let resp = free_address();
        let mut arguments: Vec<String> = flags.iter().map(ToString::to_string).collect();
        arguments.extend(["--resp".into(), resp.to_string()]);
        arguments.extend(["--policy".into(), directory.write("policy.toml", policy).display().to_string()]);
        arguments.extend(["--audit".into(), directory.path().join(AUDIT).display().to_string()]);
        let tls = tls.then(|| certify(&directory, &mut arguments));
        let (files, space) = (format!("--nofile={files}"), format!("--as={}", address_space << 20));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let server = Tidegate::start_by(&["prlimit", &files, &space], &arguments);
        let way = Way { address: server.address(), tls };
        Target { server, resp, directory, way }
    }

    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn resp(&self) -> SocketAddr {
        self.resp
    }

    pub(crate) fn policy(&self) -> PathBuf {
        self.directory.path().join("policy.toml")
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn signal(&mut self, name: &str) {
        self.server.process().signal(name);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.server.process().has_ended()
    }

    /// Tells it to end, and waits until it has; whether all that had begun was finished.
    pub(crate) fn terminate(&mut self) -> bool {
        self.server.terminate().is_some_and(|status| status.success())
    }

    pub(crate) fn log(&self) -> String {
        let log = self.server.log();
        log.chars().skip(log.chars().count().saturating_sub(2_000)).collect()
    }

    /// What its audit log says.
    pub(crate) fn audited(&self) -> String {
        fs::read_to_string(self.directory.path().join(AUDIT)).unwrap_or_default()
    }

    /// The most memory that it has held, in MiB.
    pub(crate) fn peak_memory(&mut self) -> u64 {
        self.status("VmHWM:").map_or(0, |kibibytes| kibibytes.div_ceil(1_024))
    }

    /// How many threads it has.
    pub(crate) fn threads(&mut self) -> u64 {
        self.status("Threads:").unwrap_or(0)
    }

    fn status(&mut self, field: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.process().id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// One request from an address of the attacker's, as it is written.
    pub(crate) fn send(&self, from: Ipv4Addr, request: &str) -> io::Result<Response> {
        let mut stream = self.way.connect(from)?;
        stream.write_all(request.as_bytes())?;
        read_answer(&mut BufReader::new(stream))
    }

    /// A POST of JSON, as an honest program sends it.
    pub(crate) fn post(&self, path: &str, body: &str) -> io::Result<Response> {
        self.send(Ipv4Addr::LOCALHOST, &wire::post(path, "", body))
    }

    pub(crate) fn get(&self, path: &str) -> io::Result<Response> {
        self.send(Ipv4Addr::LOCALHOST, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }
}

/// Gives the server a certificate, and the client trust in it.
fn certify(directory: &Directory, arguments: &mut Vec<String>) -> Arc<ClientConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    for (flag, name, text) in [
        ("--tls-certificate", "certificate.pem", made.cert.pem()),
        ("--tls-key", "key.pem", made.signing_key.serialize_pem()),
    ] {
        arguments.extend([flag.to_owned(), directory.write(name, &text).display().to_string()]);
    }
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate of our own");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(versions.expect("versions of TLS").with_root_certificates(roots).with_no_client_auth())
}

/// Reads an answer whose length is told.
pub(crate) fn read_answer(stream: &mut impl BufRead) -> io::Result<Response> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("closed after {head:?}")));
        }
    }
    let head = head.to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse().ok());
    let (Some(status), Some(length)) = (status, length) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, head));
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
}
