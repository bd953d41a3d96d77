//! What each rule decided in the last minutes or hours, as JSON or CSV.

use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::{Query, State};
use http::{Response, Uri};
use serde::Deserialize;

use crate::screen::Screen;
use crate::screen::history::{Range, Told};
use crate::wire::http::problem::Problem;
use crate::wire::http::reply::{JSON, uncached};

const CSV: &str = "text/csv; charset=utf-8";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    range: Option<String>,
    rule: Option<String>,
    #[serde(default)]
    format: Format,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Csv,
}

/// The history of all rules, or of one.
pub(super) async fn history(State(screen): State<Screen>, uri: Uri) -> Result<Response<Body>, Problem> {
    let wrong = || Problem::HistoryQuery { found: uri.query().unwrap_or_default().to_owned() };
    let Query(Wanted { range, rule, format }) = Query::try_from_uri(&uri).map_err(|_| wrong())?;
    let range = match range {
        None => Range::FifteenMinutes,
        Some(range) => Range::ALL.into_iter().find(|(word, _)| *word == range).ok_or_else(wrong)?.1,
    };
    // Up to a megabyte of text: not on a thread that answers checks.
    let write = move || {
        let told = screen.shown.history.tell(range, rule.as_deref());
        match format {
            // Our own types have text for names, so they are always JSON.
            Format::Json => (JSON, serde_json::to_vec(&told).unwrap_or_default()),
            Format::Csv => (CSV, csv(&told).into_bytes()),
        }
    };
    let (kind, body) = tokio::task::spawn_blocking(write).await.unwrap_or_default();
    Ok(uncached(kind, Body::from(body)))
}

/// A line for each rule and step: the end of the step in seconds since 1970, and what was decided.
fn csv(told: &Told) -> String {
    let mut text = String::from("time,rule,allowed,refused,shadow_allowed,shadow_refused,p50_us,p99_us\r\n");
    let micros = |latency: Option<u32>| latency.map(|latency| latency.to_string()).unwrap_or_default();
    for rule in &told.rules {
        let name = quoted(&rule.rule);
        let counts = rule.allowed.iter().zip(&rule.refused).zip(rule.shadow_allowed.iter().zip(&rule.shadow_refused));
        let latency = rule.latency.p50_us.iter().zip(&rule.latency.p99_us);
        for (at, (((allowed, refused), (shadow_allowed, shadow_refused)), (p50, p99))) in
            counts.zip(latency).enumerate()
        {
            let (p50, p99) = (micros(*p50), micros(*p99));
            let ago = (rule.allowed.len() - 1 - at) as u64 * told.step_us;
            let time = told.end_us.saturating_sub(ago) / 1_000_000;
            // Only a writer fails, and a String takes everything.
            let _ = write!(text, "{time},{name},{allowed},{refused},{shadow_allowed},{shadow_refused},{p50},{p99}\r\n");
        }
    }
    text
}

/// A field of CSV (RFC 4180). One that a spreadsheet would take for a formula begins with an apostrophe.
fn quoted(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    match text.contains([',', '"', '\r', '\n']) || !guard.is_empty() {
        true => format!("\"{guard}{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::history::{ToldLatency, ToldRule};

    #[test]
    fn csv_has_a_line_for_each_step_and_quotes_names() {
        let rule = ToldRule {
            rule: "=a,\"b\"".into(),
            allowed: vec![1, 2],
            refused: vec![0, 3],
            shadow_allowed: vec![0, 0],
            shadow_refused: vec![0, 4],
            latency: ToldLatency { p50_us: vec![None, Some(3)], p99_us: vec![None, Some(12)] },
        };
        let latency = ToldLatency::default();
        let told = Told { step_us: 60_000_000, end_us: 180_000_000, latency, rules: vec![rule] };
        let lines = csv(&told);
        let expected = "time,rule,allowed,refused,shadow_allowed,shadow_refused,p50_us,p99_us\r\n\
                        120,\"'=a,\"\"b\"\"\",1,0,0,0,,\r\n180,\"'=a,\"\"b\"\"\",2,3,0,4,3,12\r\n";
        assert_eq!(lines, expected);
    }
}
