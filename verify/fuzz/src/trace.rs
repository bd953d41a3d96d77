//! Whatever is read as a trace is printed so that it reads the same.

use tidegate_testkit::Trace;

/// A trace in words.
pub fn trace(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(trace) = Trace::parse(text) else { return };
    let printed = trace.to_string();
    let again = Trace::parse(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert!(again == trace, "{printed}");
    assert_eq!(again.to_string(), printed);
}
