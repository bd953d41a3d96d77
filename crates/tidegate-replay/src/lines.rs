//! Lines of a stream, each within a bound, found in place.

use std::io::{self, Read};

use memchr::memchr;

/// Bytes of the longest line that is read; a longer one is broken.
pub const MAX_LINE_BYTES: usize = 1 << 16;

/// Bytes that are asked for at a time, and never fewer than two lines'.
const CHUNK: usize = 1 << 18;

/// Splits a stream into lines without copying any of them.
pub(crate) struct Lines<R> {
    stream: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    is_over: bool,
    /// The rest of a line that was too long is still to come.
    skips: bool,
    /// What went wrong when the beginning was looked at: told when the lines
    /// before it have been read.
    failure: Option<io::Error>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'b> {
    /// A line, without its end.
    Whole(&'b [u8]),
    /// One of more than [`MAX_LINE_BYTES`] bytes, and how it begins.
    TooLong(&'b [u8]),
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(stream: R) -> Lines<R> {
        let buffer = vec![0; CHUNK].into();
        Lines { stream, buffer, start: 0, end: 0, is_over: false, skips: false, failure: None }
    }

    /// How the stream begins: as much of it as is at hand, which is not
    /// consumed.
    pub(crate) fn beginning(&mut self) -> &[u8] {
        while !self.is_over && self.end < MAX_LINE_BYTES && self.failure.is_none() {
            self.failure = self.fill().err();
        }
        // A mark of the byte order says nothing in UTF-8.
        if self.buffer[self.start..self.end].starts_with(b"\xef\xbb\xbf") {
            self.start += 3;
        }
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        // How much of what is there has been looked at.
        let mut seen = 0;
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(length) = memchr(b'\n', &held[seen..]).map(|at| at + seen) {
                let from = self.start;
                self.start += length + 1;
                if std::mem::take(&mut self.skips) {
                    seen = 0;
                    continue;
                }
                return Ok(Some(line(&self.buffer[from..from + length])));
            }
            if self.skips {
                (self.start, self.end) = (0, 0);
            } else if held.len() > MAX_LINE_BYTES {
                self.skips = true;
                let from = std::mem::replace(&mut self.start, self.end);
                return Ok(Some(Line::TooLong(&self.buffer[from..from + MAX_LINE_BYTES])));
            }
            seen = self.end - self.start;
            if self.is_over {
                let from = std::mem::replace(&mut self.start, self.end);
                let rest = &self.buffer[from..self.end];
                return Ok((!rest.is_empty()).then(|| line(rest)));
            }
            self.fill()?;
        }
    }

    /// What is left of a line that the stream broke off in.
    pub(crate) fn rest(&mut self) -> &[u8] {
        let from = std::mem::replace(&mut self.start, self.end);
        &self.buffer[from..self.end]
    }

    fn fill(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        self.is_over = read == 0;
        Ok(())
    }
}

fn line(bytes: &[u8]) -> Line<'_> {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.len() > MAX_LINE_BYTES { Line::TooLong(&bytes[..MAX_LINE_BYTES]) } else { Line::Whole(bytes) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives a few bytes at a time, as a slow stream does.
    struct Trickle<'t>(&'t [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (now, later) = self.0.split_at(self.0.len().min(self.1).min(buffer.len()));
            self.0 = later;
            (&*now).read(buffer)
        }
    }

    fn all(text: &[u8], step: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Trickle(text, step));
        let mut found = Vec::new();
        while let Some(line) = lines.next().expect("it cannot fail") {
            found.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong(_) => None,
            });
        }
        found
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_whole_text(text in "[ab\r\n]{0,60}", step in 1..20usize) {
            let whole = text.strip_suffix('\n').unwrap_or(&text);
            let naive = whole.split('\n').map(|line| Some(line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec()));
            let naive: Vec<_> = naive.filter(|_| !text.is_empty()).collect();
            prop_assert_eq!(all(text.as_bytes(), step), naive);
        }
    }

    #[test]
    fn a_line_beyond_the_bound_is_told_once_and_skipped() {
        for length in [MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 3 * CHUNK, 3 * CHUNK + 7] {
            for step in [100, 4_096, usize::MAX] {
                let text = [b"first\n", &*vec![b'x'; length], b"\nlast\n"].concat();
                let found = all(&text, step);
                assert_eq!(found.len(), 3, "{length} by {step}");
                assert_eq!(found[1].is_some(), length <= MAX_LINE_BYTES, "{length} by {step}");
                assert_eq!(found[2].as_deref(), Some(&b"last"[..]));
            }
        }
    }

    /// Breaks off once, and then says that it is over.
    struct BreaksOff<'t>(&'t [u8], bool);

    impl Read for BreaksOff<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 if !std::mem::replace(&mut self.1, true) => Err(io::ErrorKind::UnexpectedEof.into()),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn a_read_error_comes_after_the_whole_lines_before_it() {
        let mut lines = Lines::new(BreaksOff(b"one\ntw", false));
        assert_eq!(lines.beginning(), b"one\ntw");
        assert_eq!(lines.next().expect("a line"), Some(Line::Whole(b"one")));
        assert_eq!(lines.next().expect_err("it broke off").kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(lines.rest(), b"tw");
    }

    #[test]
    fn the_beginning_is_not_consumed() {
        let mut lines = Lines::new(&b"\xef\xbb\xbfone\ntwo"[..]);
        assert_eq!(lines.beginning(), b"one\ntwo");
        assert_eq!(lines.next().expect("it cannot fail"), Some(Line::Whole(b"one")));
        assert_eq!(lines.next().expect("it cannot fail"), Some(Line::Whole(b"two")));
        assert_eq!(lines.next().expect("it cannot fail"), None);
    }
}
