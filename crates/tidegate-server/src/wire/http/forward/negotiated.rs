//! A refusal or a problem in the form that the client prefers: JSON, plain text, or a page.

use std::borrow::Cow;

/// What a body can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Text,
    Html,
}

impl Form {
    /// The form that the lines of `Accept` prefer: JSON where they prefer none (RFC 9110, 12.5.1).
    pub(super) fn of(accept: &[&[u8]]) -> Form {
        let json = ["application/problem+json", "application/json"].map(|kind| quality(accept, kind));
        let [text, html] = ["text/plain", "text/html"].map(|kind| quality(accept, kind));
        let json = json.into_iter().max().unwrap_or_default();
        if html > json && html >= text {
            Form::Html
        } else if text > json {
            Form::Text
        } else {
            Form::Json
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Form::Json => "application/problem+json",
            Form::Text => "text/plain; charset=utf-8",
            Form::Html => "text/html; charset=utf-8",
        }
    }

    /// A title and a sentence.
    pub(super) fn body(self, title: &str, detail: &str) -> String {
        match self {
            Form::Json | Form::Text => format!("{title}\n{detail}\n"),
            Form::Html => {
                let (title, detail) = (escaped(title), escaped(detail));
                format!(
                    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
                     <h1>{title}</h1>\n<p>{detail}</p>\n</html>\n"
                )
            }
        }
    }
}

/// How much a kind is wanted, in thousandths: by the range that names it most closely.
fn quality(accept: &[&[u8]], kind: &str) -> u16 {
    let main = kind.split('/').next().unwrap_or_default();
    let ranges = accept.iter().flat_map(|line| line.split(|byte| *byte == b','));
    let matching = ranges.filter_map(|range| {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let closeness = match name {
            b"*/*" => 1,
            _ if name.strip_suffix(b"/*").is_some_and(|name| name.eq_ignore_ascii_case(main.as_bytes())) => 2,
            _ if name.eq_ignore_ascii_case(kind.as_bytes()) => 3,
            _ => return None,
        };
        let weight = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
        Some((closeness, weight.map_or(1_000, thousandths)))
    });
    matching.max_by_key(|(closeness, _)| *closeness).map_or(0, |(_, weight)| weight)
}

/// `0.8` in thousandths; what is no weight is none.
fn thousandths(weight: &[u8]) -> u16 {
    let (whole, rest) = weight.split_at(weight.len().min(1));
    let digits = rest.strip_prefix(b".").unwrap_or_default();
    let is_weight = digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) && rest.len() <= 4;
    match whole {
        b"1" if is_weight => 1_000,
        b"0" if is_weight => {
            (0..3).fold(0, |sum, place| sum * 10 + digits.get(place).map_or(0, |digit| u16::from(digit - b'0')))
        }
        _ => 0,
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_accept_prefers_and_json_by_default() {
        for (lines, form) in [
            (&[][..], Form::Json),
            (&["*/*"], Form::Json),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], Form::Html),
            (&["text/plain"], Form::Text),
            (&["TEXT/Plain; charset=utf-8; q=1.000"], Form::Text),
            (&["application/json, text/html"], Form::Json),
            (&["application/problem+json;q=0.2, application/json;q=0.9, text/html;q=0.8"], Form::Json),
            (&["text/html;q=0.5", "text/plain;q=0.501"], Form::Text),
            (&["text/*"], Form::Html),
            (&["text/*, text/html;q=0"], Form::Text),
            (&["text/html;q=0, */*;q=0.1"], Form::Json),
            (&["image/png"], Form::Json),
            (&["text/html;q=2, text/plain;q=-1", ",;,=", "\u{fffd}"], Form::Json),
            (&["text/html;q=0.9999, text/plain;q=.9, application/json;q=0.1"], Form::Json),
        ] {
            let accept: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            assert_eq!(Form::of(&accept), form, "{lines:?}");
        }
    }

    #[test]
    fn a_page_escapes_what_it_is_told() {
        let page = Form::Html.body("429 <b>", "rule \"a&b\" <script>alert('x')</script>");
        assert!(page.contains("<h1>429 &lt;b&gt;</h1>") && !page.contains("<script"), "{page}");
        assert!(page.contains("rule &quot;a&amp;b&quot; &lt;script&gt;alert(&#39;x&#39;)"), "{page}");
    }
}
