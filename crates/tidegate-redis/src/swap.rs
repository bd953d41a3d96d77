//! Checks that the client decides, for the script to write if nobody was
//! faster: those of kernels that no script knows, and of limits that take over
//! from others.

use tidegate::kernel::{self, Verb, Verdict};
use tidegate::store::{Encoded, Kept};
use tidegate::{Check, Meter, Micros};

use crate::failure::RedisFailure;
use crate::key::key_of;
use crate::script::{Task, Turn};
use crate::state::{self, Form, numbers};
use crate::store::Inner;

/// A limit that another one succeeds, as far as it still matters.
pub(crate) struct Former<'a> {
    /// Which of the checks succeeds it.
    pub(crate) heir: usize,
    meter: &'a Meter,
    pub(crate) key: Vec<u8>,
}

/// The limits that those of some checks succeed. One that is asked itself
/// keeps what it has.
pub(crate) fn predecessors<'a>(inner: &Inner, checks: &[Check<'a>], keys: &[Vec<u8>]) -> Vec<Former<'a>> {
    let mut formers: Vec<Former<'a>> = Vec::new();
    for (heir, check) in checks.iter().enumerate() {
        for former in check.former().iter().filter(|former| former.until > inner.local_now()) {
            let meter = former.meter;
            let key = key_of(inner.prefix(), meter, check.key());
            if !keys.contains(&key) && !formers.iter().any(|former| former.key == key) {
                formers.push(Former { heir, meter, key });
            }
        }
    }
    formers
}

/// A turn that writes nothing, and by which the others are overtaken if the
/// state is not that one.
pub(crate) fn unchanged<'a>(key: Vec<u8>, form: Form, state: Vec<u8>) -> Turn<'a> {
    Turn { key, task: Task::Swap { form, state, passes: true, after: None, healed: None, verdict: None } }
}

/// When a server's history began, by what strict mode keeps of it.
pub(crate) fn began(history: &[u8]) -> Result<Micros, RedisFailure> {
    let at = history.rsplit(|byte| *byte == b':').next().and_then(numbers);
    at.map(|[at]| Micros::new(at)).ok_or(RedisFailure::Garbled { what: "the history of a server" })
}

/// A check that the client decides: its own state, and those of the limits
/// that its limit succeeds.
pub(crate) struct Swapped<'a> {
    check: Check<'a>,
    meters: Vec<&'a Meter>,
    pub(crate) keys: Vec<Vec<u8>>,
}

impl<'a> Swapped<'a> {
    /// One of some checks, and what all of them succeed.
    pub(crate) fn new(check: &Check<'a>, key: &[u8], index: usize, formers: &[Former<'a>]) -> Swapped<'a> {
        let (mut meters, mut keys) = (vec![check.meter()], vec![key.to_vec()]);
        for former in formers.iter().filter(|former| former.heir == index) {
            meters.push(former.meter);
            keys.push(former.key.clone());
        }
        Swapped { check: *check, meters, keys }
    }

    /// Turns that only read the states.
    pub(crate) fn look(&self) -> impl Iterator<Item = Turn<'a>> {
        self.keys.iter().zip(&self.meters).map(|(key, meter)| unchanged(key.clone(), Form::of(meter), Vec::new()))
    }

    /// What comes of a charge, or of a look, while a server may have forgotten
    /// that all was used when its history began. No kernel tells which part of
    /// a state was charged since, so nobody passes before all of it would have
    /// come back.
    fn used_up(&self, since: Micros, now: Micros, verb: Verb) -> Option<Encoded> {
        let (meter, cost) = (self.meters[0], self.check.cost());
        let until = match meter.warm_up() {
            Some(_) => since.saturating_add(meter.horizon()),
            None => meter.decide_encoded(&[], since, Verb::Charge, meter.largest_cost())?.after?.forget_at,
        };
        let wait = until.saturating_since(now);
        if wait == Micros::ZERO || !matches!(verb, Verb::Charge | Verb::Peek) {
            return None;
        }
        let allowed = cost == 0;
        let retry_after = if allowed { Micros::ZERO } else { wait };
        let verdict = Verdict { allowed, retry_after, reset_after: wait, ..Verdict::default() };
        Some(Encoded { verdict, after: None, withheld: verdict, healed: None })
    }

    /// What comes of the check, and of each state.
    pub(crate) fn decide(
        &self,
        states: Vec<Vec<u8>>,
        now: Micros,
        verb: Verb,
        since: Option<Micros>,
    ) -> Result<(Encoded, Vec<Task<'a>>), RedisFailure> {
        let mut cost = self.check.cost();
        let is_custom = self.meters.iter().any(|meter| meter.limit().is_none());
        let what = if is_custom { "the state of a custom kernel" } else { "a state" };
        let garbled = || RedisFailure::Garbled { what };
        let (meter, predecessors) = (self.meters[0], &self.meters[1..]);
        let encoded = |meter: &Meter, stored: &[u8]| state::encoded(meter, stored).ok_or_else(garbled);
        let mut own = Kept { bytes: encoded(meter, &states[0])?, ..Kept::default() };
        let mut left = Vec::with_capacity(predecessors.len());
        for (predecessor, used) in predecessors.iter().zip(&states[1..]) {
            let used = encoded(predecessor, used)?;
            let rest;
            (own, rest) = meter.take_over_encoded(&own.bytes, now, predecessor, &used).ok_or_else(garbled)?;
            // What does not fit would come back with the next charge.
            left.push(match verb {
                Verb::Reset => Kept::default(),
                Verb::Refund => {
                    let kept;
                    (kept, cost) = predecessor.give_back_encoded(&rest.bytes, now, cost).ok_or_else(garbled)?;
                    kept
                }
                Verb::Charge | Verb::Peek => rest,
            });
        }
        let decided = match since.and_then(|since| self.used_up(since, now, verb)) {
            Some(used_up) => used_up,
            None => meter.decide_encoded(&own.bytes, now, verb, cost).ok_or_else(garbled)?,
        };
        // Whoever only looks moves nothing.
        let moved = |kept: Kept| kernel::may_write(verb, self.check.cost()).then_some(kept);
        let own = if predecessors.is_empty() { None } else { moved(own) };
        let passes = decided.verdict.allowed || verb == Verb::Peek;
        let write = |meter: &Meter, kept: Option<Kept>| kept.map(|kept| state::stored(meter, kept));
        let after = write(meter, decided.after.clone().or_else(|| own.clone()));
        let healed = write(meter, decided.healed.clone().or(own));
        let mut states = states.into_iter();
        let mut next = || states.next().unwrap_or_default();
        let mut tasks = vec![Task::Swap {
            form: Form::of(meter),
            state: next(),
            passes,
            after,
            healed,
            verdict: Some(decided.verdict),
        }];
        for (predecessor, left) in predecessors.iter().zip(left) {
            let left = write(predecessor, moved(left));
            let form = Form::of(predecessor);
            tasks.push(Task::Swap {
                form,
                state: next(),
                passes: true,
                after: left.clone(),
                healed: left,
                verdict: None,
            });
        }
        Ok((decided, tasks))
    }
}
