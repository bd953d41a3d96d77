//! Values with `*`, which stands for any characters or none. Nothing else is
//! special, unlike in the patterns of policies.

/// Whether `text` is what `pattern` says, in the time of their lengths' product
/// at worst.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*');
    // What follows the last star has to end the text.
    let Some(tail) = pieces.next_back() else { return true };
    for piece in pieces {
        match text.find(piece) {
            // The earliest place leaves the most for the rest.
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fits) in [
            ("foo", "foo", true),
            ("foo", "food", false),
            ("foo*", "foo", true),
            ("foo*", "food", true),
            ("foo*", "fo", false),
            ("*", "", true),
            ("*bar", "foobar", true),
            ("*bar", "barfoo", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a**a", "aa", true),
            ("a?*", "ab", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
