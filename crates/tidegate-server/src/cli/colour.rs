//! Colours, where standard output is a terminal that wants them.

use std::io::{self, IsTerminal};

#[derive(Clone, Copy, Debug)]
pub(super) enum Colour {
    Red,
    Green,
}

impl Colour {
    /// The text in this colour; as it is in a pipe, in a dumb terminal, and with `NO_COLOR` (no-color.org).
    pub(super) fn paint(self, text: &str) -> String {
        let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !io::stdout().is_terminal() || !unset("NO_COLOR") || is_dumb {
            return text.to_owned();
        }
        let code = match self {
            Colour::Red => 31,
            Colour::Green => 32,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
