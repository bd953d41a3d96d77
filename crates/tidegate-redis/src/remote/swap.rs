//! Checks that the client decides, for the script to write if no other client
//! was faster: those of kernels that no script knows, and of limits that
//! replaced others.

use tidegate::Micros;
use tidegate::kernel::{self, Charged, Verb, Verdict};
use tidegate::store::{Check, Meter};
use tidegate::store::{Encoded, Kept};

use crate::failure::RedisFailure;
use crate::script::{Step, Task};
use crate::state::{self, Form, numbers};

/// A check of a slice, with the names of its states.
#[derive(Clone)]
pub(super) struct Member<'a> {
    /// Where in the slice it stands.
    pub(super) place: usize,
    pub(super) check: Check<'a>,
    pub(super) key: Vec<u8>,
    /// The limits that its limit replaced, as far as they still matter.
    pub(super) former: Vec<Former<'a>>,
}

/// What comes of a check that the client decides.
pub(super) struct Swapped<'a> {
    pub(super) encoded: Encoded,
    /// A step for each state.
    pub(super) steps: Vec<Step<'a>>,
    /// What was left to do when the limits that its own replaced had given back.
    pub(super) verb: Verb,
    pub(super) cost: u64,
}

/// A limit that another one replaced.
#[derive(Clone)]
pub(super) struct Former<'a> {
    pub(super) meter: &'a Meter,
    pub(super) key: Vec<u8>,
}

/// A step that writes nothing, and by which the others are overtaken if the
/// state is not that one.
pub(super) fn unchanged<'a>(key: Vec<u8>, form: Form, state: Vec<u8>) -> Step<'a> {
    Step { key, task: Task::Swap { form, state, passes: true, after: None, healed: None, verdict: None } }
}

/// When a server's history began, by what strict mode keeps of it.
pub(super) fn began(history: &[u8]) -> Result<Micros, RedisFailure> {
    let at = history.rsplit(|byte| *byte == b':').next().and_then(numbers);
    at.map(|[at]| Micros::new(at)).ok_or(RedisFailure::Garbled { what: "the history of a server" })
}

impl<'a> Member<'a> {
    /// Whether one of its states is called so.
    pub(super) fn names(&self, key: &[u8]) -> bool {
        self.key == key || self.former.iter().any(|former| former.key == key)
    }

    /// Whether only the client can decide it, once a former limit has a state.
    pub(super) fn is_swapped(&self) -> bool {
        self.check.meter().limit().is_none() || !self.former.is_empty() || self.corrects_former()
    }

    /// Whether what it corrects may be the charge of a limit that its own replaced: no script knows what is
    /// left of that.
    fn corrects_former(&self) -> bool {
        self.check.is_correction() && !self.check.former().is_empty()
    }

    /// Its own state, and those of former limits.
    pub(super) fn states(&self) -> impl Iterator<Item = (&'a Meter, &Vec<u8>)> {
        let former = self.former.iter().map(|former| (former.meter, &former.key));
        std::iter::once((self.check.meter(), &self.key)).chain(former)
    }

    /// Turns that only read the states.
    pub(super) fn look(&self) -> impl Iterator<Item = Step<'a>> {
        self.states().map(|(meter, key)| unchanged(key.clone(), Form::of(meter), Vec::new()))
    }

    /// The same, to correct what its limit, or one that it replaced, was charged.
    pub(super) fn correcting(&self, charges: &[(u64, Charged)]) -> Member<'a> {
        let charge_of = |subject| charges.iter().find(|(charged, _)| *charged == subject).map(|(_, charge)| *charge);
        Member { check: self.check.correcting(charge_of), ..self.clone() }
    }

    /// What comes of a charge, or of a look, while a server may have forgotten
    /// that all was used when its history began. No kernel tells which part of
    /// a state was charged since, so no charge passes before all of it would
    /// have come back.
    fn used_up(&self, since: Micros, now: Micros, verb: Verb) -> Option<Encoded> {
        let (meter, cost) = (self.check.meter().clone().with_floor(0), self.check.cost());
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
        Some(Encoded { verdict, after: None, withheld: verdict, healed: None, used: [0, 0] })
    }

    /// What comes of the check.
    pub(super) fn decide(
        &self,
        states: Vec<Vec<u8>>,
        now: Micros,
        verb: Verb,
        since: Option<Micros>,
    ) -> Result<Swapped<'a>, RedisFailure> {
        let (meter, intended) = (self.check.meter(), verb);
        let (mut verb, mut cost) = (verb, self.check.cost());
        let is_custom = self.states().any(|(meter, _)| meter.limit().is_none());
        let what = if is_custom { "the state of a custom kernel" } else { "a state" };
        let garbled = || RedisFailure::Garbled { what };
        let encoded = |meter: &Meter, stored: &[u8]| state::encoded(meter, stored).ok_or_else(garbled);
        let mut own = Kept { bytes: encoded(meter, &states[0])?, ..Kept::default() };
        let mut left = Vec::with_capacity(self.former.len());
        for (former, used) in self.former.iter().zip(&states[1..]) {
            let mut used = encoded(former.meter, used)?;
            // What does not fit would come back with the next charge.
            let (rest, given_back);
            if self.check.settles_first() {
                let settled = self.check.settle_former_encoded(former.meter, &used, now, (verb, cost));
                (given_back, verb, cost) = settled.ok_or_else(garbled)?;
                used = given_back.bytes;
            }
            (own, rest) = meter.take_over_encoded(&own.bytes, now, former.meter, &used).ok_or_else(garbled)?;
            if self.check.settles_first() {
                left.push([rest.clone(), rest]);
            } else {
                let kept;
                (kept, verb, cost) =
                    former.meter.give_back_encoded(&rest.bytes, now, verb, cost).ok_or_else(garbled)?;
                left.push([kept, rest]);
            }
        }
        verb = self.check.left_to_settle(now, verb);
        let decided = match since.and_then(|since| self.used_up(since, now, verb)) {
            Some(used_up) => used_up,
            None => meter.decide_encoded(&own.bytes, now, verb, cost).ok_or_else(garbled)?,
        };
        // A peek moves nothing.
        let moved = |kept: Kept| kernel::may_write(intended, self.check.cost()).then_some(kept);
        let own = if self.former.is_empty() { None } else { moved(own) };
        let passes = decided.verdict.allowed || verb == Verb::Peek;
        let write = |meter: &Meter, kept: Option<Kept>| kept.map(|kept| state::stored(meter, kept));
        let after = write(meter, decided.after.clone().or_else(|| own.clone()));
        let healed = write(meter, decided.healed.clone().or(own));
        let mut states = states.into_iter();
        let mut step = |(meter, key): (&Meter, &Vec<u8>), passes, after, healed, verdict| {
            let (form, state) = (Form::of(meter), states.next().unwrap_or_default());
            Step { key: key.clone(), task: Task::Swap { form, state, passes, after, healed, verdict } }
        };
        let mut steps = vec![step((meter, &self.key), passes, after, healed, Some(decided.verdict))];
        for (former, left) in self.former.iter().zip(left) {
            // What is not carried out gives nothing back, and has moved what fits.
            let [after, healed] = left.map(|kept| write(former.meter, moved(kept)));
            steps.push(step((former.meter, &former.key), true, after, healed, None));
        }
        Ok(Swapped { encoded: decided, steps, verb, cost })
    }
}
