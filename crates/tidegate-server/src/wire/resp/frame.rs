//! Commands as they arrive: arrays of bulk strings, or typed lines.
//!
//! Nothing is copied: a command is where its arguments are in the reader's
//! buffer. A command that has not arrived whole is remembered, not read again,
//! so a client that sends a byte at a time costs no more than the bytes. Whatever
//! does not keep to the protocol or its bounds ends the connection, as in
//! Redis: after it, the start of the next command is unknown.

/// The longest line of a command that is typed, as in Redis.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// The most arguments of a command, its name included.
pub const MAX_ARGUMENTS: usize = 1024;
/// The longest argument.
pub const MAX_ARGUMENT_BYTES: usize = 64 * 1024;
/// The longest command, all in all.
pub const MAX_COMMAND_BYTES: usize = 256 * 1024;
/// [`MAX_ARGUMENTS`] before authentication, as in Redis.
pub const MAX_ARGUMENTS_UNAUTHENTICATED: usize = 10;
/// [`MAX_ARGUMENT_BYTES`] before authentication, as in Redis.
pub const MAX_ARGUMENT_BYTES_UNAUTHENTICATED: usize = 16 * 1024;
/// The longest number before a line end: that of any `i64`.
const MAX_NUMBER_BYTES: usize = 20;

/// What no client may send. The words are those of Redis where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line without an end.
    #[error("too big inline request")]
    LineTooLong,
    /// A quote that is never closed, or closed within a word.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The number of arguments is none, or too large.
    #[error("invalid multibulk length")]
    ArgumentCount,
    /// The length of an argument is none, negative, or too large.
    #[error("invalid bulk length")]
    ArgumentLength,
    /// An argument that is no bulk string, such as an array in an array.
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoBulkString(u8),
    /// Something else stands where a line has to end.
    #[error("expected the end of a line")]
    LineEnd,
    /// The arguments together are too long.
    #[error("a command is longer than {MAX_COMMAND_BYTES} bytes")]
    CommandTooLong,
    /// More arguments than strangers may send.
    #[error("unauthenticated multibulk length")]
    ArgumentCountOfStranger,
    /// A longer argument than strangers may send.
    #[error("unauthenticated bulk length")]
    ArgumentLengthOfStranger,
}

/// Where an argument is in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// The argument.
    #[inline]
    #[must_use]
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start..self.end]
    }
}

/// The arguments of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// Those at the spans of a buffer.
    pub(super) fn new(buffer: &'a [u8], spans: &'a [Span]) -> Arguments<'a> {
        Arguments { buffer, spans }
    }

    /// Copies them to the end of a buffer, and adds where they are in it to its spans.
    pub(super) fn copy_to(self, buffer: &mut Vec<u8>, spans: &mut Vec<Span>) {
        for argument in self.from(0) {
            let start = buffer.len();
            buffer.extend_from_slice(argument);
            spans.push(Span { start, end: buffer.len() });
        }
    }

    /// How many there are; never none.
    #[inline]
    #[must_use]
    pub fn count(self) -> usize {
        self.spans.len()
    }

    /// One of them.
    #[inline]
    #[must_use]
    pub fn get(self, number: usize) -> Option<&'a [u8]> {
        Some(self.span(number)?.of(self.buffer))
    }

    /// Where one of them is.
    #[inline]
    #[must_use]
    pub fn span(self, number: usize) -> Option<Span> {
        self.spans.get(number).copied()
    }

    /// The name of the command.
    #[inline]
    #[must_use]
    pub fn name(self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// All from a number on.
    pub fn from(self, number: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.spans.iter().skip(number).map(move |span| span.of(self.buffer))
    }
}

/// Finds the commands in a buffer that grows at its end.
#[derive(Debug, Default)]
pub struct Parser {
    /// The arguments of the latest command, as far as they have been found.
    spans: Vec<Span>,
    /// How many more belong to it; none if it is whole.
    missing: usize,
    /// Where the latest command begins.
    start: usize,
    /// Where to read on.
    position: usize,
    /// Whether the bounds of strangers apply.
    stranger: bool,
}

impl Parser {
    /// Says whether the sender has yet to say the password.
    pub fn set_stranger(&mut self, stranger: bool) {
        self.stranger = stranger;
    }

    /// Finds the next command that has arrived whole, and whether there is
    /// one; [`arguments`](Parser::arguments) are those of that command. A line
    /// is freed of its quotes in place.
    ///
    /// # Errors
    /// If what arrived is no command. There is nothing to be read after that.
    #[inline]
    pub fn advance(&mut self, buffer: &mut [u8]) -> Result<bool, ProtocolError> {
        loop {
            if self.missing == 0 {
                self.start = self.position;
                self.spans.clear();
                let more = match buffer.get(self.position) {
                    None => return Ok(false),
                    Some(b'*') => self.begin_array(buffer)?,
                    Some(_) => self.read_line(buffer)?,
                };
                if !more {
                    return Ok(false);
                }
            }
            while self.missing > 0 {
                if !self.read_argument(buffer)? {
                    return Ok(false);
                }
            }
            // An empty line or array is no command, and no error.
            if !self.spans.is_empty() {
                return Ok(true);
            }
        }
    }

    /// The arguments of the command that was found last.
    #[inline]
    #[must_use]
    pub fn arguments<'a>(&'a self, buffer: &'a [u8]) -> Arguments<'a> {
        Arguments { buffer, spans: &self.spans }
    }

    /// Lets go of all commands that were found: the number of bytes that the
    /// caller is to drop from the front.
    pub fn forget(&mut self) -> usize {
        let whole = self.missing == 0;
        let read = if whole { self.position } else { self.start };
        self.start = 0;
        self.position -= read;
        if whole {
            self.spans.clear();
        }
        for span in &mut self.spans {
            *span = Span { start: span.start - read, end: span.end - read };
        }
        read
    }

    #[inline]
    fn begin_array(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        let number = match read_number(&buffer[self.position + 1..]) {
            Number::Of(number, length) => {
                self.position += 1 + length;
                number
            }
            Number::Unfinished => return Ok(false),
            Number::None => return Err(ProtocolError::ArgumentCount),
        };
        if self.stranger && number > MAX_ARGUMENTS_UNAUTHENTICATED as i64 {
            return Err(ProtocolError::ArgumentCountOfStranger);
        }
        if number > MAX_ARGUMENTS as i64 {
            return Err(ProtocolError::ArgumentCount);
        }
        self.missing = usize::try_from(number).unwrap_or(0);
        Ok(true)
    }

    #[inline]
    fn read_argument(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        match buffer.get(self.position) {
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoBulkString(*other)),
            None => return Ok(false),
        }
        let (length, digits) = match read_number(&buffer[self.position + 1..]) {
            Number::Of(length, digits) => (length, digits),
            Number::Unfinished => return Ok(false),
            Number::None => return Err(ProtocolError::ArgumentLength),
        };
        if self.stranger && length > MAX_ARGUMENT_BYTES_UNAUTHENTICATED as i64 {
            return Err(ProtocolError::ArgumentLengthOfStranger);
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_ARGUMENT_BYTES);
        let length = length.ok_or(ProtocolError::ArgumentLength)?;
        let start = self.position + 1 + digits;
        let end = start + length;
        if end - self.start > MAX_COMMAND_BYTES {
            return Err(ProtocolError::CommandTooLong);
        }
        match buffer.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::LineEnd),
            None => return Ok(false),
        }
        self.spans.push(Span { start, end });
        self.position = end + 2;
        self.missing -= 1;
        Ok(true)
    }

    fn read_line(&mut self, buffer: &mut [u8]) -> Result<bool, ProtocolError> {
        let rest = &mut buffer[self.position..];
        let Some(length) = rest.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n') else {
            return if rest.len() < MAX_LINE_BYTES { Ok(false) } else { Err(ProtocolError::LineTooLong) };
        };
        split(&mut rest[..length], |start, end| {
            self.spans.push(Span { start: self.position + start, end: self.position + end });
        })?;
        if self.spans.len() > MAX_ARGUMENTS {
            return Err(ProtocolError::ArgumentCount);
        }
        self.position += length + 1;
        Ok(true)
    }
}

enum Number {
    /// A number, and the length of its digits and their line end.
    Of(i64, usize),
    /// It may yet become one.
    Unfinished,
    /// It is none.
    None,
}

/// Reads a number and the end of its line, as strictly as Redis: no plus, no
/// zeros in front.
#[inline]
fn read_number(bytes: &[u8]) -> Number {
    // Nearly every number has one digit or two.
    match bytes {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => return Number::Of(i64::from(ones - b'0'), 3),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Number::Of(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), 4);
        }
        _ => {}
    }
    let Some(length) = bytes.iter().take(MAX_NUMBER_BYTES + 1).position(|byte| *byte == b'\r') else {
        return if bytes.len() > MAX_NUMBER_BYTES { Number::None } else { Number::Unfinished };
    };
    let number = std::str::from_utf8(&bytes[..length]).ok().and_then(|digits| {
        let positive = digits.strip_prefix('-').unwrap_or(digits);
        let strict = positive == "0" || positive.starts_with(|digit: char| matches!(digit, '1'..='9'));
        digits.parse().ok().filter(|_| strict)
    });
    match (number, bytes.get(length + 1)) {
        (None, _) | (Some(_), Some(0..b'\n' | 0x0b..)) => Number::None,
        (Some(_), None) => Number::Unfinished,
        (Some(number), Some(b'\n')) => Number::Of(number, length + 2),
    }
}

/// Splits a line into words as Redis does, taking off their quotes in place:
/// a word never becomes longer by that.
fn split(line: &mut [u8], mut found: impl FnMut(usize, usize)) -> Result<(), ProtocolError> {
    let mut read = 0;
    loop {
        while line.get(read).is_some_and(|byte| is_space(*byte)) {
            read += 1;
        }
        if read == line.len() {
            return Ok(());
        }
        let start = read;
        let mut written = start;
        while let Some(&byte) = line.get(read).filter(|byte| !is_space(**byte)) {
            read += 1;
            if byte == b'"' || byte == b'\'' {
                (read, written) = unquote(line, byte, read, written)?;
            } else {
                line[written] = byte;
                written += 1;
            }
        }
        found(start, written);
    }
}

/// Copies what is in quotes from `read` to `written`: where both are then.
fn unquote(line: &mut [u8], quote: u8, read: usize, written: usize) -> Result<(usize, usize), ProtocolError> {
    let (mut read, mut written) = (read, written);
    loop {
        let (byte, length) = match line[read..] {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [byte, ref after @ ..] if byte == quote => {
                // A closed quote ends the word.
                return match after.first() {
                    Some(next) if !is_space(*next) => Err(ProtocolError::UnbalancedQuotes),
                    Some(_) | None => Ok((read + 1, written)),
                };
            }
            [b'\\', b'\'', ..] if quote == b'\'' => (b'\'', 2),
            [b'\\', b'x', high, low, ..] if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hexadecimal(high) << 4 | hexadecimal(low), 4)
            }
            [b'\\', escaped, ..] if quote == b'"' => (escape(escaped), 2),
            [byte, ..] => (byte, 1),
        };
        line[written] = byte;
        written += 1;
        read += length;
    }
}

fn escape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        other => other.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// Those of C, with the vertical tab that Rust leaves out.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests;
