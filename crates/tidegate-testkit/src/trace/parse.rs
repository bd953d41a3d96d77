//! Reading traces: a line at a time, and every error says where it is and
//! what could have stood there.

use std::iter::Peekable;
use std::num::NonZeroU32;

use tidegate::kernel::Charged;
use tidegate::{ConfigError, Limit, Micros};

use super::time::{self, A_TIME, is_number};
use super::{Action, Answer, ESCAPES, Line, Step, Trace};

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Something else was expected.
    #[error("line {line}: expected {expected}, found {found}")]
    Unreadable {
        /// Counted from 1.
        line: usize,
        /// What could have stood there.
        expected: &'static str,
        /// What stood there.
        found: String,
    },
    /// The words after `limit` are none.
    #[error("line {line}: {error}")]
    Limit {
        /// Counted from 1.
        line: usize,
        /// What is wrong with them.
        error: ConfigError,
    },
}

const A_LIMIT: &str = "a line such as `limit 5/10s` before the first request";
const A_VERB: &str = "a cost, peek, report, refund or reset";
const A_COST: &str = "a cost: a whole number";
const AN_ANSWER: &str = "allow, wait or impossible";
const THE_END: &str = "the end of the line";

pub(super) fn read_into(trace: &mut Trace, text: &str) -> Result<(), TraceError> {
    let mut lines = 0;
    let mut has_start = false;
    for (index, line) in text.lines().enumerate() {
        lines = index + 1;
        let mut words = Words::of(lines, line)?;
        let Some(word) = words.words.peek() else { continue };
        let is_heading = !word.is_quoted && trace.lines.is_empty();
        match word.text.as_str() {
            "limit" if is_heading => {
                let limit = words.limit()?;
                if trace.limits.contains(&limit) {
                    return Err(words.unreadable("another limit than before", &format!("{limit} again")));
                }
                trace.limits.push(limit);
            }
            "start" if is_heading && !has_start => {
                words.words.next();
                trace.start = words.time()?;
                words.end()?;
                has_start = true;
            }
            _ if trace.limits.is_empty() => {
                let found = format!("{:?}", word.text);
                return Err(words.unreadable(A_LIMIT, &found));
            }
            _ => {
                let step = words.step()?;
                trace.lines.push(Line { number: lines, step });
            }
        }
    }
    match trace.limits.is_empty() {
        true => Err(TraceError::Unreadable { line: lines + 1, expected: A_LIMIT, found: "the end".to_owned() }),
        false => Ok(()),
    }
}

/// The words of one line.
struct Words {
    line: usize,
    words: Peekable<std::vec::IntoIter<Word>>,
}

struct Word {
    text: String,
    is_quoted: bool,
}

impl Words {
    fn of(line: usize, text: &str) -> Result<Words, TraceError> {
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let word = if let Some(quoted) = rest.strip_prefix('"') {
                let expected = "a closing quote, and \\\\, \\\", \\n, \\r or \\t for what cannot stand in quotes";
                let (text, after) = unquoted(quoted).ok_or_else(|| TraceError::Unreadable {
                    line,
                    expected,
                    found: format!("`{rest}`"),
                })?;
                rest = after;
                Word { text, is_quoted: true }
            } else {
                let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
                rest = after;
                Word { text: word.to_owned(), is_quoted: false }
            };
            words.push(word);
            rest = rest.trim_start();
        }
        Ok(Words { line, words: words.into_iter().peekable() })
    }

    /// `limit WORDS`
    fn limit(&mut self) -> Result<Limit, TraceError> {
        let words: Vec<String> = self.words.by_ref().skip(1).map(|word| word.text).collect();
        words.join(" ").parse().map_err(|error| TraceError::Limit { line: self.line, error })
    }

    fn step(&mut self) -> Result<Step, TraceError> {
        let at = self.time()?;
        let key = self.next("a key").map(|word| word.text)?;
        let action = self.action()?;
        let times = self.times()?;
        if self.next_is("->") {
            self.words.next();
        }
        let answer = self.answer()?;
        self.end()?;
        Ok(Step { at, key, action, times, answer })
    }

    fn action(&mut self) -> Result<Action, TraceError> {
        let word = self.next(A_VERB)?;
        Ok(match word.text.as_str() {
            "peek" => Action::Peek(self.number(A_COST)?),
            "report" => Action::Report(self.number(A_COST)?),
            "refund" => Action::Refund(self.number(A_COST)?),
            "reset" => Action::Reset,
            "settle" => Action::Settle(self.number(A_COST)?, self.charged("of")?),
            "renew" => Action::Renew(self.charged("")?),
            cost => Action::Charge(self.to_number(A_VERB, cost)?),
        })
    }

    /// `[of] COST at TIME`
    fn charged(&mut self, of: &str) -> Result<Charged, TraceError> {
        self.skip(of);
        let cost = self.number(A_COST)?;
        self.skip("at");
        Ok(Charged { at: self.time()?, cost })
    }

    fn times(&mut self) -> Result<NonZeroU32, TraceError> {
        let is_times = |word: &Word| word.text.strip_prefix('x').is_some_and(is_number);
        match self.words.next_if(is_times) {
            None => Ok(NonZeroU32::MIN),
            Some(word) => {
                let times = word.text[1..].parse().ok().and_then(NonZeroU32::new);
                times.ok_or_else(|| self.unlike("a repetition such as x100", &word))
            }
        }
    }

    fn answer(&mut self) -> Result<Answer, TraceError> {
        let word = self.next(AN_ANSWER)?;
        match word.text.as_str() {
            "allow" => {
                let remaining = self.number("the remaining units after allow")?;
                let delay = if self.skip("delay") { self.time()? } else { Micros::ZERO };
                Ok(Answer::Allow { remaining, delay, reset_after: self.reset_after()? })
            }
            "wait" => {
                let retry_after = self.time()?;
                let is_told = self.skip("left");
                let remaining = is_told.then(|| self.number("the remaining units after left")).transpose()?;
                Ok(Answer::Wait { retry_after, remaining, reset_after: self.reset_after()? })
            }
            "impossible" => Ok(Answer::Impossible),
            _ => Err(self.unlike(AN_ANSWER, &word)),
        }
    }

    fn reset_after(&mut self) -> Result<Option<Micros>, TraceError> {
        let is_told = self.skip("reset");
        is_told.then(|| self.time()).transpose()
    }

    fn time(&mut self) -> Result<Micros, TraceError> {
        let word = self.next(A_TIME)?;
        time::read(&word.text).ok_or_else(|| self.unlike(A_TIME, &word))
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, TraceError> {
        let word = self.next(expected)?;
        self.to_number(expected, &word.text)
    }

    fn to_number(&self, expected: &'static str, text: &str) -> Result<u64, TraceError> {
        let number = if is_number(text) { text.parse().ok() } else { None };
        number.ok_or_else(|| self.unreadable(expected, &format!("{text:?}")))
    }

    fn end(&mut self) -> Result<(), TraceError> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(self.unlike(THE_END, &word)),
        }
    }

    fn next(&mut self, expected: &'static str) -> Result<Word, TraceError> {
        self.words.next().ok_or_else(|| self.unreadable(expected, THE_END))
    }

    fn next_is(&mut self, text: &str) -> bool {
        self.words.peek().is_some_and(|word| word.text == text)
    }

    /// Steps over a word, if it is the next one.
    fn skip(&mut self, text: &str) -> bool {
        self.words.next_if(|word| word.text == text).is_some()
    }

    fn unlike(&self, expected: &'static str, word: &Word) -> TraceError {
        self.unreadable(expected, &format!("{:?}", word.text))
    }

    fn unreadable(&self, expected: &'static str, found: &str) -> TraceError {
        TraceError::Unreadable { line: self.line, expected, found: found.to_owned() }
    }
}

/// What stood in quotes, and what follows them; none if they do not end.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut meant = String::new();
    let mut rest = text.chars();
    loop {
        match rest.next()? {
            '"' => return Some((meant, rest.as_str())),
            '\\' => {
                let written = rest.next()?;
                meant.push(ESCAPES.iter().find(|(_, letter)| *letter == written)?.0);
            }
            character => meant.push(character),
        }
    }
}
