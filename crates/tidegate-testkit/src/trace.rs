//! Traces: requests and their right answers, one to a line.
//!
//! ```text
//! # Five at once, then one every two seconds.
//! limit 5/10s
//!
//! 0s    alice 1 x5 -> allow 0
//! 100ms alice 1    -> wait 1.9s
//! 2s    alice 1    -> allow 0
//! ```
//! A trace serves tests, fuzz corpora, simulations and bug reports alike. It
//! starts with the limits, as [`Limit`] parses them, all of which a request
//! has to pass. Then every line is
//!
//! ```text
//! TIME KEY [peek | refund | report] COST [xTIMES] [->] ANSWER
//! TIME KEY reset                         [->] ANSWER
//! TIME KEY settle COST of COST at TIME   [->] ANSWER
//! TIME KEY renew COST at TIME            [->] ANSWER
//! ```
//! - **TIME** is when: `1500us`, `160ms`, `1.9s`, `2min`, `1h`, in any order,
//!   for clocks do go back. It counts from the Unix epoch, or from the instant
//!   that a line `start TIME` before the first request gives.
//! - **KEY** is a word, or a text in double quotes.
//! - **xTIMES** repeats the request: each time it must pass, or each time be
//!   refused, and the answer is the last one.
//! - **ANSWER** is `allow REMAINING [delay TIME]`, `wait TIME`, or `impossible`
//!   for a cost above the capacity. A delay that is not named is none. If
//!   named, these are compared too: `wait TIME left REMAINING`, and after
//!   either `reset TIME`, how long until the key is as if never used.
//!
//! A `#` where a word could start makes the rest of the line a comment.

mod answer;
mod parse;
mod recorded;
mod replay;
mod time;

use std::fmt;
use std::num::NonZeroU32;

use tidegate::kernel::{Charged, Verb};
use tidegate::store::Meter;
use tidegate::{Limit, ManualClock, MemoryStore, Micros, Policy};

pub use self::answer::Answer;
pub use self::parse::TraceError;
pub use self::recorded::{RECORDED, Recorded};
pub use self::replay::Mismatch;
use self::time::Time;
use crate::oracle::OracleStore;

/// Limits, requests, and what the answers are.
///
/// Printing gives a text that parses back to the same trace; comments are
/// not kept.
#[derive(Clone, Debug)]
pub struct Trace {
    limits: Vec<Limit>,
    start: Micros,
    lines: Vec<Line>,
}

/// A step, and where it stood in the text.
#[derive(Clone, Debug)]
struct Line {
    number: usize,
    step: Step,
}

/// One request, as often as it is repeated, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, counted from the start of the trace.
    pub at: Micros,
    /// Who asks.
    pub key: String,
    /// For what.
    pub action: Action,
    /// How often.
    pub times: NonZeroU32,
    /// The right answer to the last time.
    pub answer: Answer,
}

/// What is asked for, at what cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To pass, and to be charged.
    Charge(u64),
    /// Whether it would pass.
    Peek(u64),
    /// To be charged for what is spent, into debt.
    Report(u64),
    /// To get it back.
    Refund(u64),
    /// To be as if never seen.
    Reset,
    /// To have taken this, and not what a charge took. Its time counts from the start.
    Settle(u64, Charged),
    /// To have a charge count from now on.
    Renew(Charged),
}

impl Action {
    /// What a verb does at a cost, which a reset has none of.
    #[must_use]
    pub const fn new(verb: Verb, cost: u64) -> Action {
        match verb {
            Verb::Charge => Action::Charge(cost),
            Verb::Peek => Action::Peek(cost),
            Verb::Report => Action::Report(cost),
            Verb::Refund => Action::Refund(cost),
            Verb::Reset => Action::Reset,
            Verb::Settle(charged) => Action::Settle(cost, charged),
            Verb::Renew(charged) => Action::Renew(charged),
        }
    }
}

impl Trace {
    /// A trace without requests, of limits all of which a request has to
    /// pass; the same one twice is one.
    #[must_use]
    pub fn of(limits: impl IntoIterator<Item = Limit>) -> Trace {
        let mut distinct: Vec<Limit> = Vec::new();
        for limit in limits {
            if !distinct.contains(&limit) {
                distinct.push(limit);
            }
        }
        Trace { limits: distinct, start: Micros::ZERO, lines: Vec::new() }
    }

    /// Reads a trace that names its limits.
    ///
    /// # Errors
    /// With the number of the line, and what was expected there.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        Trace::of([]).read(text)
    }

    /// Reads a text that continues this trace, and need not name its limits
    /// again.
    ///
    /// # Errors
    /// With the number of the line, and what was expected there.
    pub fn read(mut self, text: &str) -> Result<Trace, TraceError> {
        parse::read_into(&mut self, text)?;
        Ok(self)
    }

    /// Sets the instant from which the steps count.
    #[must_use]
    pub fn starting_at(mut self, start: Micros) -> Trace {
        self.start = start;
        self
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        let number = self.lines.last().map_or(1, |line| line.number + 1);
        self.lines.push(Line { number, step });
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The limits as a policy: each is named by its own words.
    pub fn policy(&self) -> Policy {
        self.limits.iter().fold(Policy::new(), |policy, limit| policy.meter(Meter::unnamed(*limit)))
    }

    /// The instant from which the steps count.
    #[must_use]
    pub fn start(&self) -> Micros {
        self.start
    }

    /// The requests, in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = &Step> {
        self.lines.iter().map(|line| &line.step)
    }
}

/// Where the lines stood does not matter.
impl PartialEq for Trace {
    fn eq(&self, other: &Trace) -> bool {
        (&self.limits, self.start) == (&other.limits, other.start) && self.steps().eq(other.steps())
    }
}

impl Eq for Trace {}

/// Checks that a limit answers as a trace says, on the memory store and on
/// the oracle.
///
/// ```
/// use tidegate::Limit;
/// use tidegate_testkit::trace;
///
/// trace(Limit::per_second(2), "
///     0ms   alice 1  allow 1
///     0ms   alice 1  allow 0
///     0ms   alice 1  wait 500ms
///     499ms alice 1  wait 1ms
///     500ms alice 1  allow 0
/// ");
/// ```
///
/// # Panics
/// With the line, what was expected and what was answered, if it does not.
#[track_caller]
pub fn trace(limit: Limit, text: &str) {
    let trace = match Trace::of([limit]).read(text) {
        Ok(trace) => trace,
        Err(error) => panic!("{error}"),
    };
    let clock = ManualClock::default();
    let memory = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
    let memory = memory.expect("a thousand keys are neither none nor too many");
    if let Err(mismatch) = trace.replay_on(memory, &clock) {
        panic!("{limit} in memory: {mismatch}");
    }
    if let Err(mismatch) = trace.replay_on(OracleStore::new(clock.clone()), &clock) {
        panic!("{limit} by the oracle: {mismatch}");
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for limit in &self.limits {
            writeln!(f, "limit {limit}")?;
        }
        if self.start != Micros::ZERO {
            writeln!(f, "start {}", Time(self.start))?;
        }
        self.steps().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { at, key, action, times, answer } = self;
        write!(f, "{} {} {action}", Time(*at), Word(key))?;
        if times.get() > 1 {
            write!(f, " x{times}")?;
        }
        write!(f, " -> {answer}")
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Charge(cost) => write!(f, "{cost}"),
            Action::Peek(cost) => write!(f, "peek {cost}"),
            Action::Report(cost) => write!(f, "report {cost}"),
            Action::Refund(cost) => write!(f, "refund {cost}"),
            Action::Reset => f.write_str("reset"),
            Action::Settle(cost, charged) => write!(f, "settle {cost} of {} at {}", charged.cost, Time(charged.at)),
            Action::Renew(charged) => write!(f, "renew {} at {}", charged.cost, Time(charged.at)),
        }
    }
}

/// A key as it is printed: bare if it is a word, or else in quotes.
struct Word<'a>(&'a str);

/// What stands in quotes for a character that cannot stand for itself.
const ESCAPES: [(char, char); 5] = [('\\', '\\'), ('"', '"'), ('\n', 'n'), ('\r', 'r'), ('\t', 't')];

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word(text) = *self;
        let is_bare = !text.is_empty() && !text.starts_with(['#', '"']) && !text.contains(char::is_whitespace);
        if is_bare {
            return f.write_str(text);
        }
        f.write_str("\"")?;
        for character in text.chars() {
            match ESCAPES.iter().find(|(meant, _)| *meant == character) {
                Some((_, written)) => write!(f, "\\{written}")?,
                None => write!(f, "{character}")?,
            }
        }
        f.write_str("\"")
    }
}
