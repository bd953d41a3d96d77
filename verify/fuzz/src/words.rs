//! Limits in words.

use tidegate::Limit;

/// Words that mean a limit are printed as words that mean the same; others
/// are refused with a reason.
pub fn limit_words(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    match text.parse::<Limit>() {
        Ok(limit) => {
            let printed = limit.to_string();
            assert_eq!(printed.parse::<Limit>(), Ok(limit), "{text:?} is printed as {printed:?}");
            assert!(limit.capacity() > 0, "{text:?} lets nothing pass");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
