//! How far a command has come: a line on standard error, if that is a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A command that takes less shows nothing.
const DELAY: Duration = Duration::from_secs(1);
/// How often the line is written anew.
const REFRESH: Duration = Duration::from_millis(100);
/// The characters of the bar.
const WIDTH: usize = 30;
/// Back to the start of the line, and nothing on it.
const CLEAR: &str = "\r\x1b[2K";

/// The line; it is cleared when this is dropped.
pub(super) struct Progress {
    began: Instant,
    due: Instant,
    is_shown: bool,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn start() -> Progress {
        let began = Instant::now();
        Progress { began, due: began + DELAY, is_shown: false, is_terminal: io::stderr().is_terminal() }
    }

    /// Shows what share is done, if that is known, and the words, if it is time to.
    pub(super) fn show(&mut self, share: Option<f64>, words: impl Display) {
        if self.is_terminal && Instant::now() >= self.due {
            self.show_now(share, words);
        }
    }

    /// The same at once, for a step that may take long.
    pub(super) fn show_now(&mut self, share: Option<f64>, words: impl Display) {
        if !self.is_terminal {
            return;
        }
        self.due = Instant::now() + REFRESH;
        self.is_shown = true;
        let line = line(share, words, self.began.elapsed());
        // A line that cannot be shown is no reason to stop.
        let _ = write!(io::stderr(), "{CLEAR}{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

/// The words, behind a bar and before the time that is left at the pace so far.
fn line(share: Option<f64>, words: impl Display, elapsed: Duration) -> String {
    let Some(share) = share.map(|share| share.clamp(0.000_001, 1.0)) else { return words.to_string() };
    let filled = (share * WIDTH as f64) as usize;
    let left = elapsed.as_secs_f64() * (1.0 / share - 1.0);
    format!("{}{} {words}, {left:.0} s left", "━".repeat(filled), "╌".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_bar_and_the_time_left_where_the_share_is_known() {
        let elapsed = Duration::from_secs(3);
        assert_eq!(line(None, "5 lines", elapsed), "5 lines");
        let bar = |filled| "━".repeat(filled) + &"╌".repeat(WIDTH - filled);
        assert_eq!(line(Some(0.1), "10%", elapsed), format!("{} 10%, 27 s left", bar(3)));
        assert_eq!(line(Some(1.5), "150%", elapsed), format!("{} 150%, 0 s left", bar(30)));
    }
}
