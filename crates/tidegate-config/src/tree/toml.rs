//! TOML as a tree.

use toml::de::{DeTable, DeValue};

use super::{DEEPEST, Entry, Node, Value};
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::{Source, Span};

/// Of a longer text only the first error of syntax is told: the parser would
/// collect one for every line.
const MAX_RECOVERED: usize = 1 << 20;

/// The tree of a text, and all that is wrong with its syntax.
pub(crate) fn parse(source: &Source, diagnostics: &mut Collector) -> Option<Node> {
    let (table, errors) = match source.text().len() {
        ..=MAX_RECOVERED => DeTable::parse_recoverable(source.text()),
        _ => match DeTable::parse(source.text()) {
            Ok(table) => (table, Vec::new()),
            Err(error) => (DeTable::parse_recoverable("").0, vec![error]),
        },
    };
    if !errors.is_empty() {
        tell(&errors, source, diagnostics);
        return None;
    }
    let span = table.span();
    let value = convert_table(table.into_inner(), 1).map_err(|problem| {
        diagnostics.add(|| Diagnostic::at(source, &span, problem));
    });
    Some(Node { value: value.ok()?, span })
}

/// What the parser found, each error once: it tells of some headers when their
/// table begins and again when it ends, and of every key of a table that is there
/// twice as well as of the table.
fn tell(errors: &[toml::de::Error], source: &Source, diagnostics: &mut Collector) {
    let mut told: Vec<(Span, &str)> = Vec::new();
    let mut again = 0..0;
    for error in errors {
        let (span, message) = (error.span().unwrap_or(0..0), error.message());
        let is_twice = message == "duplicate key";
        let is_told = told.contains(&(span.clone(), message)) || is_twice && again.contains(&span.start);
        if is_told || diagnostics.is_full() {
            continue;
        }
        let problem = if is_twice {
            again = rest_of_table(&span, source);
            Problem::Twice { what: "the key", name: source.written(&span).trim_matches(['"', '\'']).to_owned() }
        } else {
            Problem::Syntax { message: message.to_owned() }
        };
        diagnostics.add(|| Diagnostic::at(source, &span, problem));
        told.push((span, message));
    }
}

/// What follows a header, up to the next one; nothing if it is none.
fn rest_of_table(header: &Span, source: &Source) -> Span {
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let (before, after) = (source.written(&(0..header.start)), source.written(&(header.end..source.text().len())));
    if !is_header(before.rsplit('\n').next().unwrap_or_default()) {
        return 0..0;
    }
    let mut lines = after.split_inclusive('\n');
    let own = lines.next().unwrap_or_default().len();
    header.end..header.end + own + lines.take_while(|line| !is_header(line)).map(str::len).sum::<usize>()
}

fn convert(value: DeValue<'_>, span: Span, depth: usize) -> Result<Node, Problem> {
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) => Value::Integer(value, number.to_string()),
            Err(_) => Value::Fraction(number.to_string()),
        },
        DeValue::Float(number) => Value::Fraction(number.as_str().to_owned()),
        DeValue::Datetime(time) => Value::Fraction(time.to_string()),
        DeValue::Array(items) => {
            let mut list = Vec::with_capacity(items.len());
            for item in items {
                let span = item.span();
                list.push(convert(item.into_inner(), span, depth + 1)?);
            }
            Value::List(list)
        }
        DeValue::Table(table) => convert_table(table, depth + 1)?,
    };
    Ok(Node { value, span })
}

fn convert_table(table: DeTable<'_>, depth: usize) -> Result<Value, Problem> {
    if depth > DEEPEST {
        return Err(Problem::TooMuch { what: "values are nested too deep", bound: DEEPEST });
    }
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let (key_span, span) = (key.span(), value.span());
        let value = convert(value.into_inner(), span, depth)?;
        entries.push(Entry { key: key.into_inner().into_owned(), key_span, value });
    }
    // A table forgets the order of the file; the places remember it.
    entries.sort_by_key(|entry| entry.key_span.start);
    Ok(Value::Table(entries))
}
