//! YAML 1.2 as a tree, by its core schema.
//!
//! Aliases stand for copies of what they name, within bounds on all values
//! and all text of the file. Merge keys (`<<`) are honoured, since files in the
//! wild have them. Tags are not: nothing here has a type that the file could
//! choose.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle};

use super::{DEEPEST, Entry, Node, Value};
use crate::regular::MAX_FILE;
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::{Source, Span};

/// The most values of a file, those that aliases stand for included.
const MAX_VALUES: usize = 1_000_000;
/// The most bytes of its keys, texts and numbers, counted in the same way: four
/// times the longest file.
const MAX_TEXT_BYTES: usize = 4 * MAX_FILE;

/// The tree of a text, or what is wrong with its syntax.
pub(crate) fn parse(source: &Source, diagnostics: &mut Collector) -> Option<Node> {
    let mut builder =
        Builder { source, values: 0, text_bytes: 0, open: Vec::new(), anchors: HashMap::new(), root: None };
    match builder.build() {
        Ok(()) => Some(builder.root.unwrap_or(Node { value: Value::Table(Vec::new()), span: 0..0 })),
        Err(diagnostic) => {
            diagnostics.add(|| *diagnostic);
            None
        }
    }
}

struct Builder<'s> {
    source: &'s Source,
    values: usize,
    text_bytes: usize,
    open: Vec<Open>,
    /// What each anchor names, and how deep and how large it is.
    anchors: HashMap<usize, (Node, Size)>,
    root: Option<Node>,
}

/// A list or a table that has not ended.
struct Open {
    value: Container,
    start: usize,
    anchor: usize,
    size: Size,
}

enum Container {
    List(Vec<Node>),
    Table { entries: Vec<Entry>, seen: HashSet<String>, key: Option<(String, Span)>, merged: Vec<Node> },
}

#[derive(Clone, Copy)]
struct Size {
    depth: usize,
    values: usize,
    text_bytes: usize,
}

impl Builder<'_> {
    fn build(&mut self) -> Result<(), Box<Diagnostic>> {
        let options = granit_parser::options! {
            flow_nesting_limit: DEEPEST,
            block_nesting_limit: DEEPEST,
            emit_comments: false,
        };
        for next in Parser::new_from_str_with_options(self.source.text(), options) {
            let (event, span) = next.map_err(|error| {
                let at = error.marker().byte_offset().unwrap_or_default();
                self.diagnostic(&(at..at + 1), Problem::Syntax { message: error.info() })
            })?;
            let span = span.byte_range().unwrap_or(0..0);
            match event {
                Event::Scalar(text, style, anchor, tag) => {
                    let is_plain = style == ScalarStyle::Plain && tag.is_none();
                    let value = if is_plain { plain(&text) } else { Value::Text(text.clone().into_owned()) };
                    let node = Node { value, span };
                    let size = Size { depth: 0, values: 1, text_bytes: text.len() };
                    self.name(anchor, &node, size)?;
                    self.count(size, &node.span)?;
                    self.put(node, size, Some(&text))?;
                }
                Event::Alias(anchor) => {
                    let Some(size) = self.anchors.get(&anchor).map(|(_, size)| *size) else {
                        let message = "an alias cannot be part of what it names".to_owned();
                        return Err(self.diagnostic(&span, Problem::Syntax { message }));
                    };
                    self.count(size, &span)?;
                    let node = self.anchors[&anchor].0.clone();
                    let text = match &node.value {
                        Value::Text(text) => Some(text.clone()),
                        _ => None,
                    };
                    self.put(node, size, text.as_deref())?;
                }
                Event::SequenceStart(_, anchor, _) => self.begin(Container::List(Vec::new()), span.start, anchor),
                Event::MappingStart(_, anchor, _) => {
                    let (entries, seen, merged) = (Vec::new(), HashSet::new(), Vec::new());
                    self.begin(Container::Table { entries, seen, key: None, merged }, span.start, anchor);
                }
                Event::SequenceEnd | Event::MappingEnd => self.end(span.end)?,
                Event::DocumentStart(..) if self.root.is_some() => {
                    let message = "a file is one document: there is a second".to_owned();
                    return Err(self.diagnostic(&span, Problem::Syntax { message }));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn diagnostic(&self, span: &Span, problem: Problem) -> Box<Diagnostic> {
        Box::new(Diagnostic::at(self.source, span, problem))
    }

    fn begin(&mut self, value: Container, start: usize, anchor: usize) {
        self.open.push(Open { value, start, anchor, size: Size { depth: 0, values: 1, text_bytes: 0 } });
    }

    fn end(&mut self, end: usize) -> Result<(), Box<Diagnostic>> {
        let Some(Open { value, start, anchor, size }) = self.open.pop() else { return Ok(()) };
        let span = start..end.max(start);
        let value = match value {
            Container::List(items) => Value::List(items),
            Container::Table { mut entries, mut seen, merged, .. } => {
                for table in merged {
                    let span = table.span.clone();
                    let Value::Table(more) = table.value else {
                        let message = "<< takes a table, or a list of tables".to_owned();
                        return Err(self.diagnostic(&span, Problem::Syntax { message }));
                    };
                    entries.extend(more.into_iter().filter(|entry| seen.insert(entry.key.clone())));
                }
                Value::Table(entries)
            }
        };
        let node = Node { value, span };
        self.name(anchor, &node, size)?;
        // Its values were counted as they came.
        self.count(Size { values: 1, text_bytes: 0, ..size }, &node.span)?;
        self.put(node, size, None)
    }

    /// Remembers what an anchor names, which counts as if it were there twice;
    /// 0 is none.
    fn name(&mut self, anchor: usize, node: &Node, size: Size) -> Result<(), Box<Diagnostic>> {
        if anchor != 0 {
            self.count(size, &node.span)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(())
    }

    fn count(&mut self, size: Size, span: &Span) -> Result<(), Box<Diagnostic>> {
        self.values += size.values;
        self.text_bytes += size.text_bytes;
        let (what, bound) = match () {
            () if self.values > MAX_VALUES => ("the file has too many values", MAX_VALUES),
            () if self.text_bytes > MAX_TEXT_BYTES => ("the values have too many bytes in all", MAX_TEXT_BYTES),
            () => return Ok(()),
        };
        Err(self.diagnostic(span, Problem::TooMuch { what, bound }))
    }

    /// Puts a finished value, which is counted, where it belongs; `text` is what
    /// a key would be.
    fn put(&mut self, node: Node, size: Size, text: Option<&str>) -> Result<(), Box<Diagnostic>> {
        if self.open.len() + size.depth > DEEPEST {
            let problem = Problem::TooMuch { what: "values are nested too deep", bound: DEEPEST };
            return Err(self.diagnostic(&node.span, problem));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.size.depth = open.size.depth.max(size.depth + 1);
        open.size.values += size.values;
        open.size.text_bytes += size.text_bytes;
        match &mut open.value {
            Container::List(items) => items.push(node),
            Container::Table { entries, seen, key, merged } => match key.take() {
                None => {
                    let Some(text) = text else {
                        let found = "a key is text".to_owned();
                        return Err(self.diagnostic(&node.span, Problem::Syntax { message: found }));
                    };
                    let is_merge = text == "<<";
                    if !is_merge && !seen.insert(text.to_owned()) {
                        let first = entries.iter().find(|entry| entry.key == text).map(|entry| entry.key_span.clone());
                        let problem = Problem::Twice { what: "the key", name: text.to_owned() };
                        let diagnostic = Diagnostic::at(self.source, &node.span, problem);
                        return Err(Box::new(match first {
                            Some(first) => diagnostic.see(self.source.place(&first), "first here"),
                            None => diagnostic,
                        }));
                    }
                    *key = Some((text.to_owned(), node.span));
                }
                Some((key, _)) if key == "<<" => match node.value {
                    Value::List(tables) => merged.extend(tables),
                    _ => merged.push(node),
                },
                Some((key, key_span)) => entries.push(Entry { key, key_span, value: node }),
            },
        }
        Ok(())
    }
}

/// What plain text means by the core schema of YAML 1.2. Numbers that begin
/// with 0 are not numbers: in YAML 1.1 they were octal, in 1.2 they are not,
/// and the author of the file should say which.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Nothing,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty() {
        if digits.len() > 1 && digits.starts_with('0') {
            return Value::Text(text.to_owned());
        }
        return match text.parse() {
            Ok(number) => Value::Integer(number, text.to_owned()),
            Err(_) => Value::Fraction(text.to_owned()),
        };
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        let number = text.strip_prefix(prefix).filter(|digits| !digits.starts_with(['+', '-']));
        if let Some(Ok(number)) = number.map(|digits| i128::from_str_radix(digits, radix)) {
            return Value::Integer(number, text.to_owned());
        }
    }
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte))
        && text.parse::<f64>().is_ok();
    if is_number { Value::Fraction(text.to_owned()) } else { Value::Text(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_means_what_the_core_schema_says() {
        for text in ["", "~", "null", "Null"] {
            assert!(matches!(plain(text), Value::Nothing), "{text}");
        }
        for (text, number) in [("0", 0), ("12", 12), ("-3", -3), ("+4", 4), ("0x1f", 31), ("0o17", 15)] {
            assert!(matches!(plain(text), Value::Integer(found, _) if found == number), "{text}");
        }
        for text in ["1.5", "1e3", "-.5", "99999999999999999999999999999999999999999999"] {
            assert!(matches!(plain(text), Value::Fraction(_)), "{text}");
        }
        for text in ["yes", "on", "010", "10.0.0.0/8", "1.2.3", "100/min", "0x", "0x-1", "-", ".", "nan", "e5"] {
            assert!(matches!(plain(text), Value::Text(_)), "{text}");
        }
    }
}
