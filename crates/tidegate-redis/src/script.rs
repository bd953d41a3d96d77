//! The script's two ends: checks as its arguments, its reply as verdicts.
//!
//! The script only decides and moves states. What a decision says about
//! itself is computed here, from the state that the script found, by the same
//! kernels that decide in memory: there is no second copy to drift.

use std::sync::LazyLock;

use redis::{Cmd, Script, Value};
use tidegate::kernel::{self, Kernel, LimitKernel, Style, Verb, Verdict};
use tidegate::store::Kept;
use tidegate::{Check, Limit, Micros};

use crate::failure::RedisFailure;

/// The script's text.
pub(crate) const TEXT: &str = include_str!("../lua/decide.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// One call of the script.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) turns: Vec<Turn<'a>>,
    /// The time, if it is not the server's.
    pub(crate) now: Option<Micros>,
    /// How long a state is kept after it has become that of a fresh key.
    pub(crate) kept_longer_ms: u64,
    /// Where the server's history is kept, if it must be trusted to be whole.
    pub(crate) genesis: Option<Vec<u8>>,
    /// When what is to be undone was charged.
    pub(crate) undone: Micros,
}

/// One check in a call.
#[derive(Clone, Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) key: Vec<u8>,
    pub(crate) task: Task<'a>,
}

#[derive(Clone, Debug)]
pub(crate) enum Task<'a> {
    /// To be decided by the script.
    Decide { check: Check<'a>, limit: Limit, verb: Verb },
    /// A charge to be taken back exactly.
    Undo { check: Check<'a>, limit: Limit },
    /// Decided by the client, to be written if the state is still that one.
    Swap { state: Vec<u8>, passes: bool, after: Option<Kept>, healed: Option<Kept> },
}

/// How the script is named in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    ByDigest,
    InFull,
}

impl Call<'_> {
    pub(crate) fn command(&self, named: Named) -> Cmd {
        let mut command = match named {
            Named::ByDigest => redis::cmd("EVALSHA"),
            Named::InFull => redis::cmd("EVAL"),
        };
        match named {
            Named::ByDigest => command.arg(SCRIPT.get_hash()),
            Named::InFull => command.arg(TEXT),
        };
        command.arg(self.turns.len() + usize::from(self.genesis.is_some()));
        for turn in &self.turns {
            command.arg(&turn.key);
        }
        if let Some(genesis) = &self.genesis {
            command.arg(genesis);
        }
        match self.now {
            Some(now) => command.arg(now.get()),
            None => command.arg(""),
        };
        command.arg(self.kept_longer_ms);
        command.arg(if self.genesis.is_some() { "strict" } else { "" }).arg(self.undone.get());
        for turn in &self.turns {
            turn.task.write(&mut command);
        }
        command
    }
}

impl Task<'_> {
    fn write(&self, command: &mut Cmd) {
        match self {
            Task::Decide { check, limit, verb } => write_check(command, check, *limit, letter(*verb)),
            Task::Undo { check, limit } => write_check(command, check, *limit, "U"),
            Task::Swap { state, passes, after, healed } => {
                command.arg("c").arg(state).arg(u8::from(*passes));
                for kept in [after, healed] {
                    match kept {
                        Some(Kept { bytes, forget_at, .. }) => command.arg(bytes).arg(forget_at.get()),
                        None => command.arg("").arg(""),
                    };
                }
            }
        }
    }
}

fn letter(verb: Verb) -> &'static str {
    match verb {
        Verb::Charge => "C",
        Verb::Peek => "P",
        Verb::Refund => "R",
        Verb::Reset => "X",
    }
}

fn write_check(command: &mut Cmd, check: &Check<'_>, limit: Limit, verb: &str) {
    let cost = check.cost();
    match limit.kernel() {
        LimitKernel::Bucket(bucket) => {
            command.arg("b").arg(verb).arg(cost * bucket.scale());
            command.arg(bucket.full()).arg(bucket.drain()).arg(bucket.tick());
        }
        LimitKernel::Window(window) => {
            let style = match window.style() {
                Style::FixedFromEpoch => 0,
                Style::FixedFromFirst => 1,
                Style::Sliding => 2,
            };
            command.arg("w").arg(verb).arg(cost).arg(window.capacity());
            command.arg(window.period_in_ticks()).arg(window.tick()).arg(style);
        }
        LimitKernel::Log(log) => {
            command.arg("l").arg(verb).arg(cost).arg(log.capacity()).arg(log.period());
        }
    }
}

/// What the script says of a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) now: Micros,
    pub(crate) outcome: Outcome,
    answers: Vec<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    CarriedOut,
    Refused,
    /// A state that the client had decided on was another one by now.
    Overtaken,
}

#[derive(Debug)]
struct Answer {
    passes: bool,
    state: Option<Vec<u8>>,
}

impl Reply {
    pub(crate) fn read(value: Value) -> Result<Reply, RedisFailure> {
        let garbled = || RedisFailure::Garbled { what: "the script's reply" };
        let Value::Array(values) = value else { return Err(garbled()) };
        let mut values = values.into_iter();
        let mut head = || values.next().as_ref().and_then(integer);
        let now = Micros::new(head().ok_or_else(garbled)?);
        let outcome = match head() {
            Some(1) => Outcome::CarriedOut,
            Some(0) => Outcome::Refused,
            Some(2) => Outcome::Overtaken,
            _ => return Err(garbled()),
        };
        let mut answers = Vec::with_capacity(values.len() / 2);
        while let Some(passes) = values.next() {
            let state = match values.next() {
                Some(Value::BulkString(state)) => Some(state),
                Some(Value::Nil) => None,
                _ => return Err(garbled()),
            };
            answers.push(Answer { passes: integer(&passes).ok_or_else(garbled)? == 1, state });
        }
        Ok(Reply { now, outcome, answers })
    }

    /// What the state of a turn was, or nothing.
    pub(crate) fn state(&self, turn: usize) -> &[u8] {
        self.answers.get(turn).and_then(|answer| answer.state.as_deref()).unwrap_or_default()
    }

    /// The verdict on a turn that the script decided.
    pub(crate) fn verdict(&self, turn: usize, task: &Task<'_>) -> Result<Verdict, RedisFailure> {
        let answer = self.answers.get(turn).ok_or(RedisFailure::Garbled { what: "the script's reply" })?;
        let foreign = RedisFailure::Garbled { what: "a state" };
        let read = match task {
            Task::Decide { check, limit, verb } => self.decided(answer, check, *limit, *verb),
            Task::Undo { check, limit } => self.undone(answer, check, *limit),
            Task::Swap { .. } => None,
        };
        let verdict = read.ok_or(foreign)?;
        if verdict.allowed == answer.passes { Ok(verdict) } else { Err(RedisFailure::Disagreement) }
    }

    fn decided(&self, answer: &Answer, check: &Check<'_>, limit: Limit, verb: Verb) -> Option<Verdict> {
        let state = answer.state.as_deref();
        match limit.kernel() {
            LimitKernel::Bucket(bucket) => Some(self.replay(&bucket, read_bucket(&bucket, state)?, verb, check.cost())),
            LimitKernel::Window(window) => Some(self.replay(&window, read_window(&window, state)?, verb, check.cost())),
            LimitKernel::Log(log) => self.read_log(&log, state, answer.passes),
        }
    }

    fn undone(&self, answer: &Answer, check: &Check<'_>, limit: Limit) -> Option<Verdict> {
        let (now, cost, state) = (self.now, check.cost(), answer.state.as_deref());
        // The state is that of afterwards: there is nothing left to carry out.
        let verb = Verb::Refund;
        Some(match limit.kernel() {
            LimitKernel::Bucket(bucket) => kernel::withhold(&bucket, &read_bucket(&bucket, state)?, now, verb, cost),
            LimitKernel::Window(window) => kernel::withhold(&window, &read_window(&window, state)?, now, verb, cost),
            LimitKernel::Log(log) => self.read_log(&log, state, answer.passes)?,
        })
    }

    fn replay<K: Kernel>(&self, kernel: &K, mut state: K::State, verb: Verb, cost: u64) -> Verdict {
        match self.outcome {
            Outcome::CarriedOut => kernel::decide(kernel, &mut state, self.now, verb, cost).0,
            Outcome::Refused | Outcome::Overtaken => kernel::withhold(kernel, &state, self.now, verb, cost),
        }
    }

    /// A log is too long to be sent: the script says when its newest entry
    /// was, what is used, and when enough of it will have expired.
    fn read_log(&self, log: &kernel::Log, state: Option<&[u8]>, passes: bool) -> Option<Verdict> {
        let [newest, used, frees] = numbers(state?)?;
        let reset_at = if newest == 0 && used == 0 { 0 } else { newest + log.period() };
        Some(Verdict {
            allowed: passes,
            remaining: log.capacity().checked_sub(used)?,
            retry_after: if passes { Micros::ZERO } else { Micros::new(frees).saturating_since(self.now) },
            reset_after: Micros::new(reset_at).saturating_since(self.now),
            ..Verdict::default()
        })
    }
}

fn read_bucket(bucket: &kernel::Bucket, state: Option<&[u8]>) -> Option<kernel::BucketState> {
    let Some(text) = state else { return bucket.state(0, 0) };
    match numbers(text) {
        Some([at, fraction]) => bucket.state(at, fraction),
        None => numbers(text).and_then(|[at]| bucket.state(at, 0)),
    }
}

fn read_window(window: &kernel::Window, state: Option<&[u8]>) -> Option<kernel::WindowState> {
    let [start, current, previous] = state.map_or(Some([0; 3]), numbers)?;
    window.state(start, current, previous)
}

/// Exactly `N` numbers with colons between them.
fn numbers<const N: usize>(text: &[u8]) -> Option<[u64; N]> {
    let mut words = std::str::from_utf8(text).ok()?.split(':');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}
