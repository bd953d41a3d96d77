//! Replies in RESP2 and RESP3, written one after the other into one buffer.
//!
//! What RESP2 has no word for is said as Redis says it there: a map as a flat
//! array, a truth as 1 or 0, nothing as a null bulk string.

/// The version of the protocol that a connection has agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every connection begins with.
    #[default]
    Resp2,
    /// What `HELLO 3` asks for.
    Resp3,
}

impl Protocol {
    /// Its number.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Replies that are to be sent.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    protocol: Protocol,
}

impl Replies {
    /// The version in which the next replies are written.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the version for the replies that follow.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What has been written and not cleared.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what has been sent, and keeps at most `room` for what follows.
    pub fn clear(&mut self, room: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(room);
    }

    /// A short word without a line end, such as `OK`.
    pub fn status(&mut self, word: &'static str) {
        self.line(b'+', word.as_bytes());
    }

    /// A refusal in words, the first of which is its code. Line ends in it
    /// become spaces.
    pub fn error(&mut self, words: &str) {
        self.bytes.push(b'-');
        self.bytes.extend(words.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A number.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// Five numbers in an array: what every throttle is answered with.
    #[inline]
    pub fn five(&mut self, numbers: [i64; 5]) {
        self.bytes.extend_from_slice(b"*5\r\n");
        for number in numbers {
            self.integer(number);
        }
    }

    /// Any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Text that clients show as it is, on several lines.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.number(b'=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Whether something is so.
    pub fn boolean(&mut self, so: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(so)),
            Protocol::Resp3 => self.line(b'#', if so { b"t" } else { b"f" }),
        }
    }

    /// Begins an array of as many replies.
    pub fn array(&mut self, length: usize) {
        self.number(b'*', length as i64);
    }

    /// Begins a set of as many replies.
    pub fn set(&mut self, length: usize) {
        let kind = match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => b'~',
        };
        self.number(kind, length as i64);
    }

    /// Begins a map of as many pairs of replies.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * pairs),
            Protocol::Resp3 => self.number(b'%', pairs as i64),
        }
    }

    #[inline]
    fn number(&mut self, kind: u8, number: i64) {
        self.line(kind, itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline]
    fn line(&mut self, kind: u8, rest: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Replies)) -> String {
        let mut replies = Replies::default();
        replies.set_protocol(protocol);
        write(&mut replies);
        String::from_utf8(replies.as_bytes().to_vec()).expect("text")
    }

    #[test]
    fn every_reply_is_as_both_versions_have_it() {
        type Write = fn(&mut Replies);
        let cases: [(Write, &str, &str); 11] = [
            (|replies| replies.status("OK"), "+OK\r\n", "+OK\r\n"),
            (|replies| replies.error("ERR no"), "-ERR no\r\n", "-ERR no\r\n"),
            (|replies| replies.integer(-1), ":-1\r\n", ":-1\r\n"),
            (|replies| replies.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|replies| replies.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (|replies| replies.verbatim("a"), "$1\r\na\r\n", "=5\r\ntxt:a\r\n"),
            (Replies::null, "$-1\r\n", "_\r\n"),
            (|replies| replies.boolean(true), ":1\r\n", "#t\r\n"),
            (|replies| replies.set(2), "*2\r\n", "~2\r\n"),
            (|replies| replies.map(2), "*4\r\n", "%2\r\n"),
            (
                |replies| replies.five([0, 1, 2, -1, 4]),
                "*5\r\n:0\r\n:1\r\n:2\r\n:-1\r\n:4\r\n",
                "*5\r\n:0\r\n:1\r\n:2\r\n:-1\r\n:4\r\n",
            ),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(Protocol::Resp2, write), resp2);
            assert_eq!(written(Protocol::Resp3, write), resp3);
        }
    }

    #[test]
    fn an_error_message_cannot_contain_a_second_reply() {
        let text = written(Protocol::Resp2, |replies| replies.error("ERR unknown 'a\r\n+OK\r\n'"));
        assert_eq!(text, "-ERR unknown 'a  +OK  '\r\n");
    }
}
