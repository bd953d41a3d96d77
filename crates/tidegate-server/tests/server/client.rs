//! Two clients: curl, as people have it, and one that can be rude.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tidegate_testkit::servers::GUARD;

/// A request that every policy without key attributes decides.
pub(crate) const ALICE: &str = r#"{"attributes": {"user": "alice"}}"#;

/// The fields that a request of a caller without a token needs.
pub(crate) const PLAIN: &str = "host: localhost\r\ncontent-type: application/json\r\n";

/// An answer of HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Runs curl, which must succeed.
pub(crate) fn curl(arguments: &[&str]) -> Answer {
    try_curl(arguments).unwrap_or_else(|errors| panic!("curl {arguments:?}: {errors}"))
}

/// Runs curl, which may be turned away.
pub(crate) fn try_curl(arguments: &[&str]) -> Result<Answer, String> {
    let guard = GUARD.as_secs().to_string();
    let output = Command::new("curl").args(["-sS", "-i", "--max-time", &guard]).args(arguments).output();
    let output = output.expect("curl is missing: run `cargo xtask install`");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(parse(&String::from_utf8(output.stdout).unwrap()))
}

/// Posts a body.
pub(crate) fn post(url: &str, body: &str) -> Answer {
    curl(&["-H", "content-type: application/json", "--data-binary", body, url])
}

fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A connection that says whatever it is told to.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(address: &str) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&self) {
        // It may be closed by now.
        let _ = self.0.get_ref().shutdown(std::net::Shutdown::Write);
    }

    /// Asks a request; the connection stays open.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> std::io::Result<Answer> {
        self.ask(path, body)?;
        self.answer()
    }

    /// Asks a request, and leaves its answer for later.
    pub(crate) fn ask(&mut self, path: &str, body: &str) -> std::io::Result<()> {
        let request = format!("POST {path} HTTP/1.1\r\n{PLAIN}content-length: {}\r\n\r\n{body}", body.len());
        self.send(request.as_bytes())
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> std::io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut answer = parse(&head);
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        answer.body = String::from_utf8(body).unwrap();
        Ok(answer)
    }

    /// The next line, of a protocol that has lines.
    pub(crate) fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line)
    }

    /// Whether the server closes it.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// What the server says before it closes it; nothing if it neither speaks nor closes for a fifth of a second.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        let mut words = Vec::new();
        self.0.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let heard = self.0.read_to_end(&mut words);
        self.0.get_ref().set_read_timeout(Some(GUARD)).unwrap();
        let is_open = heard.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        (!is_open || !words.is_empty()).then(|| String::from_utf8(words).unwrap())
    }
}
