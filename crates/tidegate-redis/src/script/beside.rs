//! Limits that were replaced, in a call: their states come behind those of the checks.
//!
//! What was charged to a former limit stays in its state and counts beside the check's own. The
//! script reads it with the check, and says in the check's answer what it counts.

use tidegate::kernel::{LimitKernel, Verb, Verdict};
use tidegate::store::{Check, Former};
use tidegate::{Algorithm, Limit, Micros};

use super::once::is_by_id;
use super::{Task, pack_check};
use crate::state::numbers;

/// The state of a former limit.
#[derive(Clone, Debug)]
pub struct FormerStep<'a> {
    /// Which step's check replaced it, from zero on.
    pub of: usize,
    /// Where the state is.
    pub key: Vec<u8>,
    /// What the check does to it.
    pub check: Check<'a>,
    /// The limit.
    pub limit: Limit,
    /// When it is forgotten.
    pub until: Micros,
}

impl<'a> FormerStep<'a> {
    /// What a check does to a limit that its own replaced; `None` for a kernel that no script knows.
    pub fn new(of: usize, check: &Check<'a>, former: &Former<'a>, key: Vec<u8>) -> Option<FormerStep<'a>> {
        let own = check.of_former(former);
        let check = match check.verb() {
            Verb::Reset => own,
            // The script knows what the check's own state has not given back.
            Verb::Refund => own.with_cost(0),
            Verb::Settle(_) | Verb::Renew(_) if is_by_id(check) => own,
            Verb::Charge | Verb::Peek | Verb::Report | Verb::Settle(_) | Verb::Renew(_) => own.as_peek().with_cost(0),
        };
        Some(FormerStep { of, key, check, limit: former.meter.limit()?, until: former.until })
    }

    /// Marks the text of the check that it belongs to, once.
    pub(super) fn mark(&self, text: &mut Vec<u8>, task: &Task<'_>) {
        let Task::Decide { limit, .. } = task else { return };
        if !text[TEXT..].contains(&b';') {
            let [unit, ceiling] = unit_and_ceiling(*limit);
            text.extend(format!(";{unit}:{ceiling}").into_bytes());
        }
    }

    pub(super) fn packed(&self, believed: Micros) -> Vec<u8> {
        let mut packed = pack_check(&self.check, self.limit, believed);
        packed[0] = packed[0].to_ascii_uppercase();
        let ([unit, ceiling], until) = (unit_and_ceiling(self.limit), self.until.min(Micros::LATEST).get());
        let queues = u8::from(is_leaky(self.limit));
        packed.extend(format!(";{}:{unit}:{ceiling}:{until}:{queues}", self.of + 1).into_bytes());
        packed
    }
}

/// Where the text of a step begins: behind two letters and five numbers.
const TEXT: usize = 42;

pub(super) fn unit_and_ceiling(limit: Limit) -> [u64; 2] {
    match limit.kernel() {
        LimitKernel::Bucket(bucket) => [bucket.scale(), bucket.ceiling()],
        LimitKernel::Window(window) => [1, window.ceiling()],
        LimitKernel::Log(log) => [1, log.ceiling()],
    }
}

fn is_leaky(limit: Limit) -> bool {
    limit.algorithm() == Algorithm::LeakyBucket
}

/// What the script says of the former limits of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// When the check will pass, if it does not.
    frees: Micros,
    /// What they count in units, before the check and after it.
    pub(super) used: [u64; 2],
    /// When they count nothing any more.
    ends: Micros,
    /// When the queues of leaky buckets among them have drained.
    queue: Micros,
    /// When a charge that was renewed counts as made.
    moment: Micros,
}

impl Beside {
    /// Splits a state from what stands behind it, if anything does; `None` if that is garbled.
    pub(super) fn split(word: &[u8]) -> Option<(&[u8], Option<Beside>)> {
        let Some(tilde) = word.iter().rposition(|byte| *byte == b'~') else { return Some((word, None)) };
        let [frees, before, after, ends, queue, moment] = numbers(&word[tilde + 1..])?;
        let [frees, ends, queue, moment] = [frees, ends, queue, moment].map(Micros::new);
        Some((&word[..tilde], Some(Beside { frees, used: [before, after], ends, queue, moment })))
    }

    /// What a limit says alone, with what its former ones count.
    pub(super) fn counted(self, alone: Verdict, passes: bool, task: &Task<'_>, now: Micros) -> Verdict {
        let until = |instant: Micros| instant.saturating_since(now);
        let may_pass = |check: &Check<'_>| matches!(check.verb(), Verb::Charge | Verb::Peek);
        let delays = matches!(task, Task::Decide { check, limit } if is_leaky(*limit) && may_pass(check));
        let queue = if delays && passes { until(self.queue) } else { Micros::ZERO };
        let waits = !passes && self.frees > Micros::ZERO;
        Verdict {
            allowed: passes,
            remaining: alone.remaining.saturating_sub(self.used[1]),
            retry_after: if waits { until(self.frees) } else { Micros::ZERO },
            reset_after: alone.reset_after.max(until(self.ends)),
            delay: if passes { alone.delay.saturating_add(queue) } else { Micros::ZERO },
            ahead: alone.ahead.max(until(self.moment)),
            ..alone
        }
    }
}
