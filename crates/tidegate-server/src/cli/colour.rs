//! Colours by word: what is admitted is green and what is refused is red, in the output of every command.

use std::fmt::Write as _;
use std::io::IsTerminal;

const RED: u8 = 31;
const GREEN: u8 = 32;
const AMBER: u8 = 33;

const WORDS: [(u8, &[&str]); 3] = [
    (GREEN, &["admitted", "allowed", "allows", "ready", "valid", "PASS"]),
    (RED, &["refused", "refuses", "error", "FAIL"]),
    (AMBER, &["warning"]),
];

/// Whether a stream takes colours: a terminal that is not dumb, without `NO_COLOR` (no-color.org).
pub(super) fn is_wanted(stream: &impl IsTerminal) -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && unset("NO_COLOR") && !is_dumb
}

/// The text with its words in their colours, if the stream takes them.
pub(super) fn tinted(text: &str, stream: &impl IsTerminal) -> String {
    if is_wanted(stream) { tint(text) } else { text.to_owned() }
}

fn tint(text: &str) -> String {
    let mut tinted = String::with_capacity(text.len() * 5 / 4);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = is_letter(first);
        let end = rest.find(|letter| is_letter(letter) != is_word).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let colour = WORDS.iter().find(|(_, words)| words.contains(&word));
        // Only a writer fails, and a String takes everything.
        let _ = match colour {
            Some((code, _)) => write!(tinted, "\u{1b}[{code}m{word}\u{1b}[0m"),
            None => tinted.write_str(word),
        };
        rest = after;
    }
    tinted
}

/// Names of rules and files are longer words than those that have a colour.
fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_have_colours_and_names_that_contain_them_have_none() {
        assert_eq!(tint("allowed, 9 left\n"), "\u{1b}[32mallowed\u{1b}[0m, 9 left\n");
        assert_eq!(tint("refused-log/valid.toml: valid"), "refused-log/valid.toml: \u{1b}[32mvalid\u{1b}[0m");
        assert_eq!(tint("error: é"), "\u{1b}[31merror\u{1b}[0m: é");
    }
}
