//! Columns with names, as RFC 4180 has them, between commas, semicolons or
//! tabs. A line is a line: a field with a line break in it breaks its line.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};

use super::{Format, UnknownField};
use crate::batch::Batch;
use crate::draft::{Draft, Fault};
use crate::mapping::{Mapping, Plan, Slot, slot};

/// What may stand between columns.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// A log's columns, once its first line has named them.
#[derive(Default)]
pub(crate) struct Csv {
    header: Option<Header>,
}

struct Header {
    line: Vec<u8>,
    separator: u8,
    names: Vec<String>,
    /// What is wanted of each column.
    columns: Vec<Vec<(Slot, u8)>>,
}

impl Csv {
    /// Columns, of which the first line has all that are named by hand. One that is cut off has its own error later.
    pub(super) fn new(plan: &Plan, beginning: &[u8]) -> Result<Csv, UnknownField> {
        let line = beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
        let header = line.and_then(|line| Header::new(line, plan).ok());
        if let Some(header) = header {
            let is_found = |slot: Slot| header.columns.iter().flatten().any(|(wanted, _)| *wanted == slot);
            if let Some(slot) = (0..plan.slots()).find(|slot| plan.chosen[*slot] && !is_found(*slot)) {
                let field = plan.names[slot].first().cloned().unwrap_or_default();
                return Err(UnknownField { format: Format::Csv, field, known: header.names.join(", ") });
            }
        }
        Ok(Csv::default())
    }

    /// Whether the line was one of values.
    pub(super) fn offer(
        &mut self,
        line: &[u8],
        plan: &Plan,
        draft: &mut Draft,
        batch: &mut Batch,
    ) -> Result<bool, Fault> {
        let Some(header) = &self.header else {
            self.header = Some(Header::new(line, plan)?);
            return Ok(false);
        };
        // Files that were put together have it again and again.
        if header.line == line {
            return Ok(false);
        }
        let mut columns = header.columns.iter();
        split(line, header.separator, |value| {
            for wanted in columns.next().into_iter().flatten() {
                draft.offer(batch, *wanted, value);
            }
        })?;
        Ok(true)
    }
}

impl Header {
    fn new(line: &[u8], plan: &Plan) -> Result<Header, Fault> {
        let most = |separator: &u8| memchr_iter(*separator, line).count();
        let separator = SEPARATORS.into_iter().rev().max_by_key(most).unwrap_or(b',');
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        split(line, separator, |name| {
            let name = name.trim_ascii();
            names.push(String::from_utf8_lossy(name).into_owned());
            let wanted = plan.fields().filter(|(known, ..)| known.as_bytes().eq_ignore_ascii_case(name));
            columns.push(wanted.map(|(_, slot, rank)| (slot, rank)).collect());
        })?;
        Ok(Header { line: line.to_vec(), separator, names, columns })
    }
}

/// Whether a first line names a column that is a time.
pub(super) fn looks_like(line: &[u8]) -> bool {
    let plan = Plan::new(&Mapping::default(), &Default::default());
    let header = Header::new(line, &plan);
    header.is_ok_and(|header| {
        header.columns.len() > 1 && header.columns.iter().flatten().any(|(wants, _)| *wants == slot::TIME)
    })
}

/// Shows every value of a line, freed of its quotes.
fn split(line: &[u8], separator: u8, mut show: impl FnMut(&[u8])) -> Result<(), Fault> {
    let mut rest = line;
    loop {
        let after = match rest {
            [b'"', text @ ..] => {
                let (value, after) = quoted(text).ok_or(Fault::Shape { format: "CSV", expected: "a closing quote" })?;
                show(&value);
                after
            }
            _ => {
                let end = memchr(separator, rest).unwrap_or(rest.len());
                show(&rest[..end]);
                &rest[end..]
            }
        };
        match after {
            [] => return Ok(()),
            [next, after @ ..] if *next == separator => rest = after,
            _ => return Err(Fault::Shape { format: "CSV", expected: "a separator after the closing quote" }),
        }
    }
}

/// What stands before the closing quote, and what comes after; two quotes mean
/// one that closes nothing.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut doubled = Vec::new();
    let (mut from, mut end) = (0, memchr(b'"', text)?);
    while text.get(end + 1) == Some(&b'"') {
        doubled.extend_from_slice(&text[from..=end]);
        from = end + 2;
        end = from + memchr(b'"', &text[from..])?;
    }
    let (value, after) = (&text[from..end], &text[end + 1..]);
    if doubled.is_empty() {
        return Some((Cow::Borrowed(value), after));
    }
    doubled.extend_from_slice(value);
    Some((Cow::Owned(doubled), after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_others_write_is_read_as_it_was(values in proptest::collection::vec("[a,;\t\" é]{0,6}", 1..6)) {
            for separator in SEPARATORS {
                let mut writer = csv::WriterBuilder::new().delimiter(separator).from_writer(Vec::new());
                writer.write_record(&values).expect("a vector takes all");
                let line = writer.into_inner().expect("a vector takes all");
                let mut found = Vec::new();
                split(line.trim_ascii_end().strip_suffix(b"\n").unwrap_or(line.strip_suffix(b"\n").expect("a line")), separator, |value| {
                    found.push(String::from_utf8_lossy(value).into_owned());
                }).expect("it is well-formed");
                prop_assert_eq!(&found, &values);
            }
        }
    }

    #[test]
    fn a_quote_that_closes_nothing_breaks_the_line() {
        for line in ["\"a", "a,\"b\"\"", "\"a\"b,c"] {
            assert!(split(line.as_bytes(), b',', |_| ()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_first_line_with_a_time_looks_like_csv() {
        for (line, is_csv) in
            [("time,ip", true), ("ip;Timestamp;x", true), ("a\tts", true), ("time", false), ("a,b", false)]
        {
            assert_eq!(looks_like(line.as_bytes()), is_csv, "{line}");
        }
    }
}
