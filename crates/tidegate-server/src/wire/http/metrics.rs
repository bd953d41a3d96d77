//! `/metrics`, in the format that the scraper accepts.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::header::{ACCEPT, HeaderValue, VARY};
use http::{HeaderMap, Response};

use super::counted::Static;
use super::reply::uncached;
use crate::tell::metrics::Format;
use crate::wire::app::App;

/// OpenMetrics where it is preferred; what every scraper reads otherwise.
fn accepted(headers: &HeaderMap) -> Format {
    let ranges: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let [prometheus, open_metrics] =
        [("text/plain", "0.0.4"), ("application/openmetrics-text", "1.0.0")].map(|kind| quality(&ranges, kind));
    if open_metrics > prometheus { Format::OpenMetrics } else { Format::Prometheus }
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    }
}

/// How much a media type is wanted, in thousandths: as the most specific of the
/// ranges says that it is in.
fn quality(ranges: &[&str], (kind, version): (&str, &str)) -> u16 {
    let of_range = |range: &&str| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next()?.to_ascii_lowercase();
        let specific = match name.strip_suffix('*') {
            _ if name == kind => 2,
            Some(prefix) if prefix.ends_with('/') && kind.starts_with(prefix) => 1,
            Some("*/") => 0,
            _ => return None,
        };
        let mut quality = 1_000;
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "version" if value.trim().trim_matches('"') != version => return None,
                "q" => quality = thousandths(value.trim()),
                _ => {}
            }
        }
        Some((specific, quality))
    };
    ranges.iter().filter_map(of_range).max().map_or(0, |(_, quality)| quality)
}

/// A quality such as `0.75`; one that cannot be read is none.
fn thousandths(text: &str) -> u16 {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{rest:0<3}");
    digits.parse().ok().filter(|quality| *quality <= 1_000 && rest.len() <= 3).unwrap_or(0)
}

pub(crate) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    let format = accepted(&headers);
    let mut response = uncached(content_type(format), Body::from(app.records.metrics.scrape(format).await));
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    // All that ask within a second share one.
    response.extensions_mut().insert(Static);
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_is_preferred() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        for (accept, format) in [
            (&[][..], Format::Prometheus),
            (&["*/*"], Format::Prometheus),
            (&["nonsense"], Format::Prometheus),
            (&["text/plain"], Format::Prometheus),
            (&["application/openmetrics-text"], Format::OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8"], Format::OpenMetrics),
            (&["application/openmetrics-text; version=0.0.1"], Format::Prometheus),
            (&["text/plain", "application/openmetrics-text"], Format::Prometheus),
            (&["text/plain;q=0.5", "application/openmetrics-text"], Format::OpenMetrics),
            (&["text/plain;q=0.5, application/openmetrics-text;q=0.499"], Format::Prometheus),
            (&["application/openmetrics-text;q=0, */*"], Format::Prometheus),
            (&["text/plain;q=0, */*;q=0.1"], Format::OpenMetrics),
            (&["application/*"], Format::OpenMetrics),
            (&["text/*, application/*;q=0.9"], Format::Prometheus),
            (&["application/openmetrics-text;q=often, text/plain;q=0.001"], Format::Prometheus),
            (&[prometheus_2], Format::OpenMetrics),
            (&[prometheus_3], Format::OpenMetrics),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, value.parse().unwrap());
            }
            assert_eq!(accepted(&headers), format, "{accept:?}");
        }
    }
}
