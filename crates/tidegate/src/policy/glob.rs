//! Patterns with `*` for anything and `?` for one character.

use super::pieces::Piece;

/// Whether `text` is what `pattern` says: `*` stands for any characters or
/// none, `?` for exactly one, everything else for itself. Takes time in the
/// order of both lengths' product at worst, never more.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to go on if what follows the last star does not fit.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let rest = text.clone();
        let fits = match (pattern.next(), text.next()) {
            (Some('*'), _) => {
                text = rest;
                retry = Some((pattern.clone(), text.clone()));
                continue;
            }
            (None, None) => return true,
            (Some('?'), Some(_)) => true,
            (Some(wanted), Some(found)) => wanted == found,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if fits {
            continue;
        }
        // The star takes one character more.
        let Some((after_star, skipped)) = &mut retry else { return false };
        if skipped.next().is_none() {
            return false;
        }
        (pattern, text) = (after_star.clone(), skipped.clone());
    }
}

/// [`matches`] for bytes; what is not UTF-8 matches nothing.
pub(super) fn matches_bytes(pattern: &str, bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| matches(pattern, text))
}

/// The literal pieces of a pattern: all of them occur in every text that matches.
pub(super) fn pieces(pattern: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = Some((pattern, true));
    let all = std::iter::from_fn(move || {
        let (text, at_start) = rest.take()?;
        let (text, after) = text.split_once(['*', '?']).map_or((text, None), |(text, after)| (text, Some(after)));
        rest = after.map(|after| (after, false));
        Some(Piece { text, at_start, at_end: after.is_none() })
    });
    // An empty piece says nothing, except that the whole text is empty.
    all.filter(|piece| !piece.text.is_empty() || (piece.at_start && piece.at_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by trying everything.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', after)), _) => (0..=text.len()).any(|taken| naive(after, &text[taken..])),
            (Some(('?', after)), Some((_, rest))) => naive(after, rest),
            (Some((wanted, after)), Some((found, rest))) => wanted == found && naive(after, rest),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    #[test]
    fn agrees_with_trying_everything() {
        let letters = ['a', 'b', '*', '?', 'é'];
        let words = |most: u32| {
            (0..=most).flat_map(move |length| {
                (0..5u32.pow(length)).map(move |mut number| {
                    let mut word = Vec::new();
                    for _ in 0..length {
                        word.push(letters[(number % 5) as usize]);
                        number /= 5;
                    }
                    word
                })
            })
        };
        // Under Miri a word is read letter by letter, slowly.
        let (longest, long) = if cfg!(miri) { (2, 1) } else { (4, 3) };
        for pattern in words(longest) {
            for text in words(long).filter(|text| !text.contains(&'*') && !text.contains(&'?')) {
                let (of, at): (String, String) = (pattern.iter().collect(), text.iter().collect());
                assert_eq!(matches(&of, &at), naive(&pattern, &text), "{of:?} {at:?}");
                let occurs = |Piece { text, at_start, at_end }: Piece<'_>| match (at_start, at_end) {
                    (true, true) => at == text,
                    (true, false) => at.starts_with(text),
                    (false, true) => at.ends_with(text),
                    (false, false) => at.contains(text),
                };
                assert!(!matches(&of, &at) || pieces(&of).all(occurs), "{of:?} {at:?}");
            }
        }
    }

    #[test]
    fn the_pieces_of_a_pattern_are_what_stands_between_its_wildcards() {
        let piece = |text, at_start, at_end| Piece { text, at_start, at_end };
        let cases = [
            ("", vec![piece("", true, true)]),
            ("a", vec![piece("a", true, true)]),
            ("*", vec![]),
            ("a*", vec![piece("a", true, false)]),
            ("?a", vec![piece("a", false, true)]),
            ("*a*", vec![piece("a", false, false)]),
            ("a*b??c", vec![piece("a", true, false), piece("b", false, false), piece("c", false, true)]),
        ];
        for (pattern, expected) in cases {
            assert_eq!(pieces(pattern).collect::<Vec<_>>(), expected, "{pattern:?}");
        }
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let text = "a".repeat(if cfg!(miri) { 10 } else { 10_000 });
        assert!(!matches(&("*a".repeat(50) + "b"), &text));
    }
}
