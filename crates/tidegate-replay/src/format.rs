//! What a log's lines look like, and how their values are found.

mod csv;
mod json;
mod text;

use crate::batch::Batch;
use crate::draft::{Draft, Fault};
use crate::mapping::Plan;

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The common and combined formats of Apache and nginx:
    /// `ip - user [time] "request" status bytes "referer" "agent"`. What follows
    /// is passed over.
    Combined,
    /// Envoy's default text, and Istio's.
    Envoy,
    /// An object of JSON on each line: Envoy's as well as anyone's.
    Json,
    /// Columns with names, between commas, semicolons or tabs.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 4] = [Format::Combined, Format::Envoy, Format::Json, Format::Csv];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Combined => "combined",
            Format::Envoy => "envoy",
            Format::Json => "json",
            Format::Csv => "csv",
        }
    }

    /// The format that the end of a file's name tells: of `a.csv`, `a.tsv.gz` and `a.jsonl`, say.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Format> {
        let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
        match name.rsplit_once('.')?.1 {
            "csv" | "tsv" => Some(Format::Csv),
            "jsonl" | "ndjson" => Some(Format::Json),
            _ => None,
        }
    }

    /// The format of a log that begins like this, if any of its first lines
    /// tells.
    #[must_use]
    pub fn detect(beginning: &[u8]) -> Option<Format> {
        /// Lines that are looked at.
        const MAX_LINES: usize = 32;
        let lines = beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let mut lines = lines.take(MAX_LINES).peekable();
        let header = *lines.peek()?;
        let known = lines.find_map(|line| {
            if line.starts_with(b"{") {
                return Some(Format::Json);
            }
            [Format::Envoy, Format::Combined].into_iter().find(|format| text::looks_like(*format, line))
        });
        known.or_else(|| csv::looks_like(header).then_some(Format::Csv))
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Format, UnknownFormat> {
        match text {
            "combined" | "common" | "nginx" | "apache" | "clf" => Ok(Format::Combined),
            "envoy" | "istio" => Ok(Format::Envoy),
            "json" | "jsonl" | "ndjson" => Ok(Format::Json),
            "csv" | "tsv" => Ok(Format::Csv),
            _ => Err(UnknownFormat { text: text.to_owned() }),
        }
    }
}

/// A word that is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no format {text:?}: choose combined, envoy, json or csv")]
pub struct UnknownFormat {
    text: String,
}

/// A field that a format does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the format {format} has no field {field:?}, but: {known}")]
pub struct UnknownField {
    format: Format,
    field: String,
    known: String,
}

/// Finds the values of one log's lines.
pub(crate) enum Parser {
    Text(text::Text),
    Json(json::Json),
    Csv(csv::Csv),
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// It is in the batch.
    Record(tidegate::Micros),
    /// It names the columns, or says nothing.
    Nothing,
}

impl Parser {
    pub(crate) fn new(format: Format, plan: &Plan, beginning: &[u8]) -> Result<Parser, UnknownField> {
        Ok(match format {
            Format::Combined | Format::Envoy => Parser::Text(text::Text::new(format, plan)?),
            Format::Json => Parser::Json(json::Json::new(plan)),
            Format::Csv => Parser::Csv(csv::Csv::new(plan, beginning)?),
        })
    }

    /// Finds the values of a line, and adds them to the batch.
    pub(crate) fn parse(
        &mut self,
        line: &[u8],
        (plan, place): (&Plan, (u32, u64)),
        (draft, batch): (&mut Draft, &mut Batch),
    ) -> Result<Parsed, Fault> {
        if line.trim_ascii().is_empty() {
            return Ok(Parsed::Nothing);
        }
        draft.begin(batch);
        let found = match self {
            Parser::Text(text) => text.offer(line, draft, batch).map(|()| true),
            Parser::Json(json) => json.offer(line, draft, batch).map(|()| true),
            Parser::Csv(csv) => csv.offer(line, plan, draft, batch),
        };
        let record = match found {
            Ok(false) => return Ok(Parsed::Nothing),
            Ok(true) => draft.finish(batch, plan, place),
            Err(fault) => Err(fault),
        };
        record.map(Parsed::Record).inspect_err(|_| draft.discard(batch))
    }
}
