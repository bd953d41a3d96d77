//! Thresholds that a check crosses, where what was told has to be remembered.
//!
//! The script decides that with the charge: a step after the others says which check it
//! is about, and where the marks are. In a fixed window there is nothing to remember, and
//! the reply to the check is enough.

use tidegate::kernel::{Act, LimitKernel, Style, Verb, Verdict};
use tidegate::store::{Check, Meter};

use super::{Call, Outcome, Reply, Step, Task, double, pack};
use crate::key::told_key;
use crate::state::numbers;

/// A step that says which thresholds another one crossed.
#[derive(Clone, Debug)]
pub struct Tell<'a> {
    /// The place of the step that it is about, in the call.
    pub of: usize,
    /// Its limit.
    pub meter: &'a Meter,
    /// What is used before and after, and whether that gives back, if the client decided.
    pub decided: Option<([u64; 2], bool)>,
}

impl<'a> Tell<'a> {
    /// The step for a check that may cross thresholds, or leave them to be crossed again.
    pub fn step(check: &Check<'a>, of: usize, prefix: &str, state_key: &[u8]) -> Option<Step<'a>> {
        let writes = check.is_correction() || check.act().writes();
        let meter = check.meter();
        if !writes || !meter.needs_marks() {
            return None;
        }
        let task = Task::Tell(Tell { of, meter, decided: None });
        Some(Step { key: told_key(prefix, state_key), task })
    }

    pub(super) fn packed(&self) -> Vec<u8> {
        let (verb, [from, to], unmarks) = match self.decided {
            None => (b'C', [0, 0], false),
            Some((used, unmarks)) => (b'Y', used, unmarks),
        };
        let unmarks = if unmarks { 1.0 } else { 0.0 };
        let lasts = double(self.meter.mark_lasts().get());
        let numbers = [double(self.of as u64 + 1), lasts, double(from), double(to), unmarks];
        let mut packed = pack(b'm', verb, numbers);
        let words: Vec<String> = self
            .meter
            .threshold_units()
            .map(|(percent, units)| format!("{percent}:{}", self.most_below(units)))
            .collect();
        packed.extend(words.join(" ").into_bytes());
        packed
    }

    /// The most use that is below so many units, in what the script counts.
    fn most_below(&self, units: u64) -> u64 {
        let limit = self.meter.limit().filter(|_| self.decided.is_none());
        match limit.map(|limit| limit.kernel()) {
            // Use is rounded up in a bucket, and down in a sliding counter.
            Some(LimitKernel::Bucket(bucket)) => (units - 1) * bucket.scale(),
            Some(LimitKernel::Window(window)) if window.style() == Style::Sliding => {
                units * window.period_in_ticks() - 1
            }
            Some(LimitKernel::Window(_) | LimitKernel::Log(_)) | None => units - 1,
        }
    }
}

impl<'a> Step<'a> {
    /// The same, about a check that the client decided.
    #[must_use]
    pub(crate) fn decided(mut self, used: [u64; 2], verb: Verb, cost: u64) -> Step<'a> {
        if let Task::Tell(tell) = &mut self.task {
            tell.decided = Some((used, Act::of(verb, cost).gives_back()));
        }
        self
    }
}

impl Call<'_> {
    /// The verdicts of its first steps, with what the steps that tell say of them.
    pub fn told(&self, reply: &Reply, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
        for (index, step) in self.steps.iter().enumerate() {
            if let Task::Tell(Tell { of, .. }) = step.task
                && let Some(verdict) = verdicts.get_mut(of)
            {
                verdict.crossed = reply.crossed(index);
            }
        }
        verdicts
    }
}

impl Reply {
    /// The thresholds that the step at this place says were crossed.
    pub fn crossed(&self, step: usize) -> u8 {
        let is_new = self.outcome == Outcome::CarriedOut && !self.is_repeated();
        let told = numbers(self.state(step)).filter(|_| is_new);
        told.map_or(0, |[bits]| u8::try_from(bits).unwrap_or(u8::MAX))
    }
}
