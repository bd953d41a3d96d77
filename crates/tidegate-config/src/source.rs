//! A file's text, and places in it.

use std::ops::Range;
use std::path::Path;

/// Bytes of a text, from and to.
pub(crate) type Span = Range<usize>;

/// A line longer than this is not shown.
const MAX_LINE_BYTES: usize = 2_000;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The file, as it was named.
    pub file: String,
    /// The line; the first is 1.
    pub line: usize,
    /// The character in the line; the first is 1.
    pub column: usize,
    /// The line's text, unless it is too long to show.
    pub(crate) text: Option<String>,
    /// Which bytes of the line it is about.
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    name: String,
    text: String,
}

impl Source {
    pub(crate) fn new(name: &Path, text: String) -> Source {
        Source { name: name.display().to_string(), text }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What is written there, quotes included.
    pub(crate) fn written(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    pub(crate) fn place(&self, span: &Span) -> Place {
        // A byte-order mark is not part of the first line.
        let first = if self.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let start = self.boundary(span.start).max(first);
        let end = self.boundary(span.end.max(start));
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(first, |newline| newline + 1);
        let rest = &self.text[line_start..];
        let line = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let within = |offset: usize| (offset - line_start).min(line.len());
        Place {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: self.text[line_start..start].chars().count() + 1,
            text: (line.len() <= MAX_LINE_BYTES).then(|| line.to_owned()),
            span: within(start)..within(end),
        }
    }

    /// The offset, or the last one before it at which a character begins.
    fn boundary(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters() {
        let source = Source::new("x".as_ref(), "one\r\nzwölf = 3\n".into());
        let place = |span| {
            let Place { line, column, text, span, .. } = source.place(&span);
            (line, column, text.expect("a short line"), span)
        };
        assert_eq!(place(0..3), (1, 1, "one".into(), 0..3));
        assert_eq!(place(0..9), (1, 1, "one".into(), 0..3));
        assert_eq!(place(12..13), (2, 7, "zwölf = 3".into(), 7..8));
        assert_eq!(place(8..9), (2, 3, "zwölf = 3".into(), 2..4), "not inside a character");
        assert_eq!(place(99..200), (3, 1, String::new(), 0..0));
        let marked = Source::new("x".as_ref(), "\u{feff}one\ntwo".into());
        for (span, line, column, within) in
            [(0..0, 1, 1, 0..0), (0..4, 1, 1, 0..1), (4..6, 1, 2, 1..3), (7..8, 2, 1, 0..1)]
        {
            let place = marked.place(&span);
            assert_eq!((place.line, place.column, place.span), (line, column, within));
        }
    }
}
