//! The protocols, written and read by hand: the client must cost less than what it measures.

/// A way to ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Resp,
    Http,
    Grpc,
}

/// What a server is asked, whatever the key.
pub(super) enum WireRequest {
    /// The words of a command; the key goes where `KEY` stands.
    Command(Vec<String>),
    /// A path, and the body posted to it; the key goes where `KEY` stands.
    Post { path: &'static str, body: String },
    /// A method, and its message of the key.
    Call { path: &'static str, message: fn(&str) -> Vec<u8> },
}

/// Every answer by RESP is an array of five numbers.
const LINES: usize = 6;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Room for all answers of a run, so that none waits for leave to be sent.
const WINDOW: u32 = (1 << 31) - 1 - 65_535;

impl WireRequest {
    pub(super) fn wire(&self) -> Wire {
        match self {
            WireRequest::Command(_) => Wire::Resp,
            WireRequest::Post { .. } => Wire::Http,
            WireRequest::Call { .. } => Wire::Grpc,
        }
    }

    /// Writes one request.
    pub(super) fn write(&self, key: &str, bytes: &mut Vec<u8>) {
        match self {
            WireRequest::Command(words) => {
                bytes.extend(format!("*{}\r\n", words.len()).bytes());
                for word in words {
                    let word = if word == "KEY" { key } else { word };
                    bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
                }
            }
            WireRequest::Post { path, body } => {
                let body = body.replace("KEY", key);
                let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
                bytes.extend(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).bytes());
            }
            WireRequest::Call { path, message } => {
                // POST and http by their numbers in the static table, the rest spelled out.
                let mut head = vec![0x83, 0x86, 0x04];
                spell(&mut head, path);
                head.push(0x01);
                spell(&mut head, "localhost");
                head.extend([0x0f, 0x10]);
                spell(&mut head, "application/grpc");
                head.push(0x00);
                spell(&mut head, "te");
                spell(&mut head, "trailers");
                frame(bytes, HEADERS, END_HEADERS, &head);
                let message = message(key);
                let mut data = vec![0];
                data.extend((message.len() as u32).to_be_bytes());
                data.extend(message);
                frame(bytes, DATA, END_STREAM, &data);
            }
        }
    }
}

fn spell(head: &mut Vec<u8>, text: &str) {
    head.push(u8::try_from(text.len()).expect("short texts"));
    head.extend(text.bytes());
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, payload: &[u8]) {
    bytes.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend([kind, flags, 0, 0, 0, 0]);
    bytes.extend(payload);
}

impl Wire {
    /// What is said before any request.
    pub(super) fn greeting(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self == Wire::Grpc {
            bytes.extend(PREFACE);
            frame(&mut bytes, SETTINGS, 0, &[]);
            frame(&mut bytes, WINDOW_UPDATE, 0, &WINDOW.to_be_bytes());
        }
        bytes
    }

    /// Gives the requests the numbers of the next streams, where they have any.
    pub(super) fn number(self, requests: &mut [u8], stream: &mut u32) {
        if self != Wire::Grpc {
            return;
        }
        let mut rest = requests;
        while rest.len() >= FRAME_HEAD {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            rest[5..FRAME_HEAD].copy_from_slice(&stream.to_be_bytes());
            if rest[4] & END_STREAM != 0 {
                *stream += 2;
            }
            rest = &mut rest[FRAME_HEAD + length..];
        }
    }

    /// Takes whole answers from the front of what has arrived: how many, and
    /// how many bytes they were. Stops at an answer that is no decision.
    pub(super) fn answers(self, arrived: &[u8]) -> Result<(usize, usize), String> {
        match self {
            Wire::Resp => answers_by_resp(arrived),
            Wire::Http => answers_by_http(arrived),
            Wire::Grpc => answers_by_grpc(arrived),
        }
    }
}

fn answers_by_resp(arrived: &[u8]) -> Result<(usize, usize), String> {
    if arrived.first() == Some(&b'-') {
        return Err(String::from_utf8_lossy(arrived).into_owned());
    }
    let ends: Vec<usize> = arrived.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let whole = ends.len() / LINES;
    Ok((whole, if whole == 0 { 0 } else { ends[whole * LINES - 1] + 1 }))
}

fn answers_by_http(arrived: &[u8]) -> Result<(usize, usize), String> {
    const LENGTH: &[u8] = b"content-length:";
    let (mut count, mut taken) = (0, 0);
    loop {
        // Line by line to the end of the head, which is an empty one.
        let (mut at, mut length) = (taken, None);
        loop {
            let Some(line) = memchr::memchr(b'\n', &arrived[at..]).map(|end| &arrived[at..at + end]) else {
                return Ok((count, taken));
            };
            at += line.len() + 1;
            if line == b"\r" {
                break;
            }
            if let Some((_, digits)) =
                line.split_at_checked(LENGTH.len()).filter(|(name, _)| name.eq_ignore_ascii_case(LENGTH))
            {
                length = str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse::<usize>().ok());
            }
        }
        let (true, Some(length)) = (arrived[taken..].starts_with(b"HTTP/1.1 200"), length) else {
            return Err(String::from_utf8_lossy(&arrived[taken..at]).into_owned());
        };
        if arrived.len() < at + length {
            return Ok((count, taken));
        }
        (count, taken) = (count + 1, at + length);
    }
}

/// A decision is a message; a status without one ends its stream without one.
fn answers_by_grpc(arrived: &[u8]) -> Result<(usize, usize), String> {
    let (mut count, mut taken, mut messages) = (0, 0, 0);
    // Up to the last frame that ends a stream.
    let mut whole = (0, 0);
    while let Some([a, b, c, kind, flags, ..]) = arrived.get(taken..taken + FRAME_HEAD) {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if arrived.len() < taken + FRAME_HEAD + length {
            break;
        }
        taken += FRAME_HEAD + length;
        messages += usize::from(*kind == DATA && length > 0);
        count += usize::from(*kind == HEADERS && flags & END_STREAM != 0);
        if messages == count {
            whole = (count, taken);
        }
        if count > messages || !matches!(*kind, DATA | HEADERS | SETTINGS | WINDOW_UPDATE | 6) {
            return Err(format!("a frame of kind {kind} in place of a message: {:?}", &arrived[..taken.min(200)]));
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_when_they_are_whole() {
        let resp = b"*5\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n*5\r\n";
        assert_eq!(Wire::Resp.answers(resp), Ok((1, resp.len() - 4)));
        assert!(Wire::Resp.answers(b"-ERR\r\n").is_err());
        let http = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no";
        assert_eq!(Wire::Http.answers(http), Ok((1, 40)));
        assert!(Wire::Http.answers(b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n").is_err());
        let mut grpc = Vec::new();
        frame(&mut grpc, HEADERS, END_HEADERS, &[0x88]);
        frame(&mut grpc, DATA, 0, &[0; 7]);
        frame(&mut grpc, HEADERS, END_HEADERS | END_STREAM, &[0x88]);
        assert_eq!(Wire::Grpc.answers(&grpc), Ok((1, grpc.len())));
        let some = Wire::Grpc.answers(&grpc[..grpc.len() - 1]).map(|(answers, _)| answers);
        assert_eq!(some, Ok(0), "the rest comes later");
    }

    #[test]
    fn streams_are_numbered_in_order() {
        let request = WireRequest::Call { path: "/a.B/C", message: |key| key.as_bytes().to_vec() };
        let mut bytes = Vec::new();
        request.write("one", &mut bytes);
        let half = bytes.len();
        request.write("two", &mut bytes);
        let mut stream = 1;
        Wire::Grpc.number(&mut bytes, &mut stream);
        assert_eq!((bytes[8], bytes[half + 8], stream), (1, 3, 5));
    }
}
