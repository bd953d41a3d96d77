//! The span that a caller made for its request: the field `traceparent` of W3C Trace Context.

use http::HeaderMap;

/// A span of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    pub(super) is_sampled: bool,
}

impl Parent {
    /// The parent that a head names. One that cannot be read, or is there twice, is none, as the specification says.
    pub(super) fn of(headers: &HeaderMap) -> Option<Parent> {
        let mut values = headers.get_all("traceparent").into_iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { Parent::parse(value.as_bytes()) }
    }

    /// Reads `00-<trace id>-<span id>-<flags>`. A later version may have more after it.
    fn parse(text: &[u8]) -> Option<Parent> {
        let (known, rest) = text.split_at_checked(55)?;
        let [version, trace, span, flags] = [0..2, 3..35, 36..52, 53..55].map(|range| &known[range]);
        let [version] = hex(version)?;
        let ends = if version == 0 { rest.is_empty() } else { rest.first().is_none_or(|byte| *byte == b'-') };
        if version == 0xff || !ends || [2, 35, 52].iter().any(|dash| known[*dash] != b'-') {
            return None;
        }
        let (trace_id, span_id, [flags]) = (hex(trace)?, hex(span)?, hex(flags)?);
        let is_sampled = flags & 1 == 1;
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Parent { trace_id, span_id, is_sampled })
    }
}

/// Bytes in lower-case digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_traceparent_is_read_as_w3c_trace_context_says() {
        let parent = Parent::parse(format!("00-{TRACE}-{SPAN}-01").as_bytes()).unwrap();
        assert_eq!((parent.trace_id[0], parent.trace_id[15], parent.span_id[7]), (0x0a, 0x9c, 0x31));
        for (text, is_sampled) in [
            (format!("00-{TRACE}-{SPAN}-00"), false),
            (format!("00-{TRACE}-{SPAN}-03"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-may-come"), true),
            (format!("cc-{TRACE}-{SPAN}-01"), true),
        ] {
            assert_eq!(Parent::parse(text.as_bytes()).map(|parent| parent.is_sampled), Some(is_sampled), "{text}");
        }
    }

    #[test]
    fn an_invalid_traceparent_is_none() {
        let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
        for text in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{no_trace}-{SPAN}-01"),
            format!("00-{TRACE}-{no_span}-01"),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00_{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(Parent::parse(text.as_bytes()), None, "{text:?}");
        }
        let mut headers = HeaderMap::new();
        for _ in 0..2 {
            headers.append("traceparent", format!("00-{TRACE}-{SPAN}-01").parse().unwrap());
        }
        assert_eq!(Parent::of(&headers), None, "two of them");
    }
}
