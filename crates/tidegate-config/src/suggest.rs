//! Suggestions for misspelled words.

/// Words longer than this are not compared.
const MAX_CHARS: usize = 40;

/// The candidate nearest to `word`, if one is near: at most a third of its
/// letters missing, added, changed or swapped with their neighbour.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.chars().count() > MAX_CHARS {
        return None;
    }
    let distances = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (least, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    (least <= (candidate.chars().count() / 3).max(1)).then_some(candidate)
}

/// A candidate that differs by one letter, or by case only. Of short words one
/// letter is too much: `id` is no slip of `ip`.
pub(crate) fn slip<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let length = |word: &str| word.chars().take(MAX_CHARS + 1).count();
    let is_slip = |candidate: &&str| {
        let edits = usize::from(length(candidate) > 3);
        length(word).max(length(candidate)) <= MAX_CHARS && word != *candidate && distance(word, candidate) <= edits
    };
    candidates.into_iter().find(is_slip)
}

/// The number of edits from one word to the other, a swap of neighbours being
/// one, where case does not count.
fn distance(one: &str, other: &str) -> usize {
    let letters = |word: &str| word.to_lowercase().chars().collect::<Vec<char>>();
    let (one, other) = (letters(one), letters(other));
    let mut before = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for row in 1..=one.len() {
        let mut next = vec![row];
        for column in 1..=other.len() {
            let changed = usize::from(one[row - 1] != other[column - 1]);
            let mut least = (last[column - 1] + changed).min(last[column] + 1).min(next[column - 1] + 1);
            let swapped =
                row > 1 && column > 1 && one[row - 1] == other[column - 2] && one[row - 2] == other[column - 1];
            if swapped {
                least = least.min(before[column - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (one, other, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("limit", "limit", 0),
            ("limt", "limit", 1),
            ("limti", "limit", 1),
            ("Limit", "limit", 0),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (edits, edits), "{one} {other}");
        }
    }

    #[test]
    fn a_slip_is_one_letter_of_a_longer_word_or_case() {
        let names = ["user", "ip", "tenant"];
        for word in ["usr", "usre", "users", "uzer", "User"] {
            assert_eq!(slip(word, names), Some("user"), "{word}");
        }
        assert_eq!(slip("IP", names), Some("ip"));
        for word in ["user", "id", "ipp", "usrs", "plan", &"user".repeat(11)] {
            assert_eq!(slip(word, names), None, "{word}");
        }
    }

    #[test]
    fn only_what_is_near_is_suggested() {
        let fields = ["limit", "match", "key"];
        assert_eq!(nearest("limt", fields), Some("limit"));
        assert_eq!(nearest("keys", fields), Some("key"));
        assert_eq!(nearest("colour", fields), None);
        assert_eq!(nearest(&"limit".repeat(100), fields), None);
        assert_eq!(nearest("x", []), None);
    }
}
