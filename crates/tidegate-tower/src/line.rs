//! The text of a header, put together without an allocation of its own.

use http::HeaderValue;

/// Text that moves to the heap only when it outgrows the buffer.
#[derive(Debug)]
pub(crate) struct HeaderLine {
    buffer: [u8; ROOM],
    length: usize,
    heap: Vec<u8>,
}

/// Enough for most fields.
const ROOM: usize = 96;

/// The largest integer of a structured field: 15 digits.
pub const MAX_INTEGER: u64 = 999_999_999_999_999;

impl HeaderLine {
    pub(crate) fn new() -> HeaderLine {
        HeaderLine { buffer: [0; ROOM], length: 0, heap: Vec::new() }
    }

    #[inline]
    pub(crate) fn text(&mut self, text: &str) -> &mut HeaderLine {
        self.bytes(text.as_bytes())
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut HeaderLine {
        let room = self.buffer.get_mut(self.length..self.length + bytes.len());
        match room.filter(|_| self.heap.is_empty()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
                self
            }
            None => self.outgrow(bytes),
        }
    }

    #[cold]
    fn outgrow(&mut self, bytes: &[u8]) -> &mut HeaderLine {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.buffer[..self.length]);
        }
        self.heap.extend_from_slice(bytes);
        self
    }

    /// A number, or the largest that fields can have.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) -> &mut HeaderLine {
        if number < 10 {
            return self.bytes(&[b'0' + number as u8]);
        }
        self.text(itoa::Buffer::new().format(number.min(MAX_INTEGER)))
    }

    /// A string of a structured field. What such strings cannot have is
    /// percent-encoded.
    pub(crate) fn quoted(&mut self, text: &str) -> &mut HeaderLine {
        self.text("\"");
        let is_plain = |byte: &u8| matches!(byte, 0x20..0x7f) && !matches!(byte, b'"' | b'\\');
        if text.as_bytes().iter().all(is_plain) {
            self.text(text);
        } else {
            for byte in text.bytes() {
                match byte {
                    b'"' => self.text("\\\""),
                    b'\\' => self.text("\\\\"),
                    0x20..0x7f => self.bytes(&[byte]),
                    _ => self.bytes(&percent(byte)),
                };
            }
        }
        self.text("\"")
    }

    /// Text as it is in the message of a gRPC status.
    pub(crate) fn percent_encoded(&mut self, text: &str) -> &mut HeaderLine {
        for byte in text.bytes() {
            match byte {
                b'%' => self.bytes(&percent(byte)),
                0x20..0x7f => self.bytes(&[byte]),
                _ => self.bytes(&percent(byte)),
            };
        }
        self
    }

    pub(crate) fn base64(&mut self, bytes: &[u8], padding: Padding) -> &mut HeaderLine {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for group in bytes.chunks(3) {
            let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            let digit = |place: u32| DIGITS[(bits >> (18 - 6 * place)) as usize % 64];
            let digits = [digit(0), digit(1), digit(2), digit(3)];
            self.bytes(&digits[..=group.len()]);
            if padding == Padding::Equals {
                self.bytes(&b"=="[group.len() - 1..]);
            }
        }
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        if self.heap.is_empty() { &self.buffer[..self.length] } else { &self.heap }
    }

    /// The same as text: only ASCII is ever written.
    pub(crate) fn to_text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }

    /// The header; none is made of what no header can have.
    pub(crate) fn to_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.as_bytes()).ok()
    }
}

/// What the end of base64 is filled with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    None,
    Equals,
}

fn percent(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut HeaderLine) -> &mut HeaderLine) -> String {
        let mut line = HeaderLine::new();
        String::from_utf8(write(&mut line).as_bytes().to_vec()).expect("text")
    }

    #[test]
    fn numbers_end_at_fifteen_digits() {
        for (number, text) in
            [(0, "0"), (7, "7"), (1_000, "1000"), (MAX_INTEGER, "999999999999999"), (u64::MAX, "999999999999999")]
        {
            assert_eq!(written(|line| line.number(number)), text);
        }
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(written(|line| line.base64(bytes.as_bytes(), Padding::Equals)), text);
            assert_eq!(written(|line| line.base64(bytes.as_bytes(), Padding::None)), text.trim_end_matches('='));
        }
        assert_eq!(written(|line| line.base64(&[0xfb, 0xff, 0xfe], Padding::None)), "+//+");
    }

    #[test]
    fn any_name_can_be_quoted_and_any_message_sent() {
        assert_eq!(written(|line| line.quoted("100/min burst 20")), "\"100/min burst 20\"");
        assert_eq!(written(|line| line.quoted("a\"b\\c\né")), "\"a\\\"b\\\\c%0A%C3%A9\"");
        assert_eq!(written(|line| line.percent_encoded("100%\né")), "100%25%0A%C3%A9");
        let long = "x".repeat(3 * ROOM);
        assert_eq!(written(|line| line.quoted(&long).number(1)), format!("\"{long}\"1"));
    }
}
