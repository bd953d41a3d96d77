//! Heads of HTTP/1 that hyper takes and this server does not: a line that ends in
//! a bare LF, no `Host` field, or several (RFC 9112, 2.2 and 3.2).
//!
//! A proxy that reads such a head otherwise would see other requests than this
//! server. It is answered 400, and the connection closes. Fields are seen in the
//! request, ends of lines only in the bytes: so those are followed on their way
//! to hyper, from head to head, past bodies of either framing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::header::HOST;
use http::{Request, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::InspectReader;

use super::problem::Problem;

/// Bytes of a line that are looked at. Where more would matter, as in a length
/// behind a thousand blanks, the head is refused.
const MAX_KEPT: usize = 1024;

/// The heads of a connection.
#[derive(Debug)]
pub(super) struct Heads {
    /// Requests that were judged.
    judged: AtomicUsize,
    /// The number of heads before the first that is refused for its bytes.
    sound: AtomicUsize,
}

impl Heads {
    /// Why the next request is refused, if it is: to be called with each, in their order.
    pub(super) fn next_refused<B>(&self, request: &Request<B>) -> Option<Problem> {
        if request.version() > Version::HTTP_11 {
            return None;
        }
        if self.judged.fetch_add(1, Relaxed) >= self.sound.load(Relaxed) {
            return Some(Problem::BareLf);
        }
        match request.headers().get_all(HOST).iter().count() {
            1 => None,
            0 if request.version() < Version::HTTP_11 => None,
            found => Some(Problem::Hosts { found }),
        }
    }
}

/// A stream whose heads are followed as they are read.
pub(super) fn watched(
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> (impl AsyncRead + AsyncWrite + Unpin, Arc<Heads>) {
    let heads = Arc::new(Heads { judged: AtomicUsize::new(0), sound: AtomicUsize::new(usize::MAX) });
    let mut scanner = Scanner::new(Arc::clone(&heads));
    (InspectReader::new(stream, move |bytes: &[u8]| scanner.pass(bytes)), heads)
}

/// What comes next on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first line of a head, or an empty one before it.
    RequestLine,
    /// A field of a head, or its end, and how the body will be framed.
    Field(Body),
    /// So many bytes of a body, or of a chunk and its end.
    Bytes { left: u64, is_chunk: bool },
    /// The size of a chunk.
    Size,
    /// A field after the last chunk, or the end.
    Trailer,
    /// Nothing that matters: HTTP/2, or a head that is refused.
    Anything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
}

struct Scanner {
    heads: Arc<Heads>,
    next: Next,
    /// Heads that have ended.
    ended: usize,
    /// The line so far, up to a bound.
    line: Vec<u8>,
    is_cut: bool,
    last: u8,
}

impl Scanner {
    fn new(heads: Arc<Heads>) -> Scanner {
        Scanner { heads, next: Next::RequestLine, ended: 0, line: Vec::new(), is_cut: false, last: 0 }
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.next {
                Next::Anything => return,
                Next::Bytes { left, is_chunk } => {
                    let passed = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    bytes = &bytes[passed..];
                    *left -= passed as u64;
                    if *left == 0 {
                        self.next = if *is_chunk { Next::Size } else { Next::RequestLine };
                    }
                }
                Next::RequestLine | Next::Field(_) | Next::Size | Next::Trailer => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    self.keep(part);
                    if end.is_none() {
                        return;
                    }
                    bytes = &rest[1..];
                    self.next = self.after_line();
                    self.line.clear();
                    (self.is_cut, self.last) = (false, 0);
                }
            }
        }
    }

    fn keep(&mut self, part: &[u8]) {
        let room = MAX_KEPT - self.line.len();
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        self.is_cut |= part.len() > room;
        self.last = part.last().copied().unwrap_or(self.last);
    }

    fn after_line(&mut self) -> Next {
        let is_whole = self.last == b'\r';
        let is_empty = self.line == b"\r";
        match self.next {
            Next::RequestLine | Next::Field(_) if !is_whole => self.refuse(),
            Next::RequestLine if is_empty => Next::RequestLine,
            Next::RequestLine if self.line == b"PRI * HTTP/2.0\r" => Next::Anything,
            Next::RequestLine => Next::Field(Body::Length(0)),
            Next::Field(body) if is_empty => {
                self.ended += 1;
                match body {
                    Body::Length(0) => Next::RequestLine,
                    Body::Length(left) => Next::Bytes { left, is_chunk: false },
                    Body::Chunked => Next::Size,
                }
            }
            Next::Field(body) => self.field(body).map_or_else(|| self.refuse(), Next::Field),
            Next::Size => match chunk_size(&self.line) {
                Some(0) => Next::Trailer,
                // With the end of its line.
                Some(size) => size.checked_add(2).map_or(Next::Anything, |left| Next::Bytes { left, is_chunk: true }),
                None => self.refuse(),
            },
            // Hyper reads on to the next CRLF.
            Next::Trailer if !is_whole => self.refuse(),
            Next::Trailer if is_empty => Next::RequestLine,
            Next::Trailer => Next::Trailer,
            Next::Bytes { .. } | Next::Anything => self.next,
        }
    }

    /// How the body is framed, with the field that was read; nothing if it is too long to be read.
    fn field(&self, body: Body) -> Option<Body> {
        let colon = self.line.iter().position(|byte| *byte == b':').unwrap_or(self.line.len());
        let (name, value) = self.line.split_at(colon);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Some(Body::Chunked);
        }
        // With both, chunks count.
        if body == Body::Chunked || !name.eq_ignore_ascii_case(b"content-length") {
            return Some(body);
        }
        let digits = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
        (!self.is_cut).then(|| number(digits, 10).map_or(body, Body::Length))
    }

    /// Refuses this head and whatever follows.
    fn refuse(&self) -> Next {
        self.heads.sound.store(self.ended, Relaxed);
        Next::Anything
    }
}

/// The size that a line gives, without its extensions; nothing if hyper would not read it, either.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // A line that is nothing but digits has lost its end.
    if digits == line.len() { None } else { number(&line[..digits], 16) }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tidegate_testkit::Random;

    use super::*;

    /// Requests, each with whether its head is sound, and the number of sound ones before the first that is not.
    fn requests(random: &mut Random) -> (Vec<u8>, usize) {
        let (mut bytes, mut sound, mut is_sound) = (Vec::new(), 0, true);
        for _ in 0..random.within(1..=5) {
            let body = "\n{\"a\": \n1}\r\n\r\n\n".repeat(random.within(0..=3) as usize);
            let framed = match random.within(0..=2) {
                0 => format!("Content-Length: \t {:03}\r\n\r\n{body}", body.len()),
                1 if body.is_empty() => "\r\n".to_owned(),
                _ => {
                    let (one, other) = body.split_at(body.len() / 2);
                    let chunk = |part: &str| match part.len() {
                        0 => String::new(),
                        length => format!("{length:X};x=\"y\"\r\n{part}\r\n"),
                    };
                    let trailer = random.choose(&["", "a: b\r\n"]);
                    let (one, other) = (chunk(one), chunk(other));
                    format!("transfer-encoding: chunked\r\ncontent-length: 7\r\n\r\n{one}{other}0\r\n{trailer}\r\n")
                }
            };
            let blank = random.choose(&["", "\r\n"]);
            let long = "y".repeat(random.choose(&[0, 10, MAX_KEPT + 10]));
            let end = if random.percent(10) { "\n" } else { "\r\n" };
            is_sound &= end == "\r\n";
            sound += usize::from(is_sound);
            bytes.extend_from_slice(format!("{blank}POST /x HTTP/1.1\r\nhost: x\r\nx: {long}{end}{framed}").as_bytes());
        }
        (bytes, if is_sound { usize::MAX } else { sound })
    }

    #[test]
    fn bare_lf_is_found_in_the_head_that_has_it_whatever_bodies_hold() {
        let mut random = Random::new(1);
        for round in 0..2_000 {
            let (bytes, sound) = requests(&mut random);
            let heads = Arc::new(Heads { judged: 0.into(), sound: usize::MAX.into() });
            let mut scanner = Scanner::new(Arc::clone(&heads));
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, left) = rest.split_at(random.within(1..=rest.len().min(40) as u64) as usize);
                scanner.pass(piece);
                rest = left;
            }
            assert_eq!(heads.sound.load(Relaxed), sound, "round {round}: {}", bytes.escape_ascii());
            assert!(scanner.line.len() <= MAX_KEPT);
            assert!(sound != usize::MAX || scanner.next == Next::RequestLine, "round {round}");
        }
    }

    #[test]
    fn lengths_that_are_too_far_away_are_refused_and_http_2_is_not_looked_at() {
        for (bytes, sound) in [
            (format!("GET / HTTP/1.1\r\ncontent-length:{}5\r\n", " ".repeat(MAX_KEPT)), 0),
            ("\nGET / HTTP/1.1\r\n".to_owned(), 0),
            ("GET / HTTP/1.1\n".to_owned(), 0),
            ("GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\n\r\n".to_owned(), 1),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n".to_owned(), usize::MAX),
        ] {
            let heads = Arc::new(Heads { judged: 0.into(), sound: usize::MAX.into() });
            Scanner::new(Arc::clone(&heads)).pass(bytes.as_bytes());
            assert_eq!(heads.sound.load(Relaxed), sound, "{bytes}");
        }
    }
}
