//! Running a trace, and telling where an answer differs.

use std::fmt;

use tidegate::kernel::{Charged, Verb};
use tidegate::store::Store;
use tidegate::{CheckError, ConfigError, Decision, Limiter, ManualClock, Micros, Request};

use super::{Action, Answer, Line, Step, Trace};
use crate::block_on::block_on;

/// Where a limiter did not answer as a trace says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// It answered otherwise.
    #[error("line {line}: {step}\n  expected {expected}\n  got      {got}{}", Repetition(*repetition, step.times.get()))]
    Answer {
        /// The line of the trace, counted from 1.
        line: usize,
        /// The step.
        step: Box<Step>,
        /// Which of the step's repetitions it was, counted from 1.
        repetition: u32,
        /// What the trace says.
        expected: Answer,
        /// What the limiter said.
        got: Answer,
    },
    /// Its store's fallback answered, not the limit.
    #[error("line {line}: {step}\n  was answered by the fallback of a store that is full or away")]
    Degraded {
        /// The line of the trace, counted from 1.
        line: usize,
        /// The step.
        step: Box<Step>,
    },
    /// It did not answer.
    #[error("line {line}: {step}\n  had no answer")]
    NoAnswer {
        /// The line of the trace, counted from 1.
        line: usize,
        /// The step.
        step: Box<Step>,
        /// Why not.
        source: CheckError,
    },
    /// The trace's limits are no policy.
    #[error("the limits of the trace are no policy")]
    Policy(#[from] ConfigError),
}

/// ` (3 of 100)`, or nothing.
struct Repetition(u32, u32);

impl fmt::Display for Repetition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 > 1 { write!(f, " ({} of {})", self.0, self.1) } else { Ok(()) }
    }
}

impl Trace {
    /// Asks a limiter all that the trace asks, moving the clock that its
    /// store decides by, and compares every answer.
    ///
    /// # Errors
    /// At the first answer that is not as the trace says.
    pub fn replay<S: Store>(&self, limiter: &Limiter<S>, clock: &ManualClock) -> Result<(), Mismatch> {
        self.lines.iter().try_for_each(|line| {
            clock.set(Micros::new(self.start.get().saturating_add(line.step.at.get())));
            line.replay(limiter, self.start)
        })
    }

    /// [`replay`](Trace::replay) on an empty store, under the limits of the
    /// trace.
    ///
    /// # Errors
    /// At the first answer that is not as the trace says.
    pub fn replay_on<S: Store>(&self, store: S, clock: &ManualClock) -> Result<(), Mismatch> {
        self.replay(&Limiter::with_store(self.policy(), store)?, clock)
    }
}

impl Line {
    fn replay<S: Store>(&self, limiter: &Limiter<S>, start: Micros) -> Result<(), Mismatch> {
        let (line, step) = (self.number, &self.step);
        let expected = &step.answer;
        let times = step.times.get();
        for repetition in 1..=times {
            let decision = step.ask(limiter, start);
            if decision.as_ref().is_ok_and(Decision::is_degraded) {
                return Err(Mismatch::Degraded { line, step: Box::new(step.clone()) });
            }
            let no_answer = |source| Mismatch::NoAnswer { line, step: Box::new(step.clone()), source };
            let got = Answer::of(decision).map_err(no_answer)?;
            let is_right = if repetition == times { expected.agrees_with(&got) } else { expected.is_like(&got) };
            if !is_right {
                let (step, expected) = (Box::new(step.clone()), expected.clone());
                return Err(Mismatch::Answer { line, step, repetition, expected, got });
            }
        }
        Ok(())
    }
}

impl Step {
    /// Asks a limiter what this step of a trace with this start asks, once and at the time it is.
    ///
    /// # Errors
    /// Whatever the limiter answers.
    pub fn ask<S: Store>(&self, limiter: &Limiter<S>, start: Micros) -> Result<Decision, CheckError> {
        let (verb, cost) = match self.action {
            Action::Charge(cost) => (Verb::Charge, cost),
            Action::Peek(cost) => (Verb::Peek, cost),
            Action::Report(cost) => (Verb::Report, cost),
            Action::Refund(cost) => (Verb::Refund, cost),
            Action::Reset => (Verb::Reset, 0),
            Action::Settle(cost, charged) => (Verb::Settle(since(start, charged)), cost),
            Action::Renew(charged) => (Verb::Renew(since(start, charged)), 0),
        };
        block_on(limiter.decide_async(verb, Request::new(self.key.as_str()).cost(cost)))
    }
}

/// A charge of a trace that starts then.
fn since(start: Micros, charged: Charged) -> Charged {
    Charged { at: start.saturating_add(charged.at), ..charged }
}
