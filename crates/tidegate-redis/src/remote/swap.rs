//! The checks of a slice, with the names of their states and of those of former limits; and how
//! the client decides those of kernels that no script knows, for the script to write if no other
//! client was faster.

use std::collections::HashMap;

use tidegate::Micros;
use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{self, Check, Kept, Meter, Part, Slice, StoreError};

use crate::failure::RedisFailure;
use crate::key::{key_of, state_key};
use crate::script::{Call, FormerStep, Reply, Step, Task};
use crate::state::{self, Form, numbers};

/// A check of a slice, and where its states are.
#[derive(Clone)]
pub(super) struct Member<'a> {
    /// Where its verdict goes.
    pub(super) place: usize,
    pub(super) check: Check<'a>,
    pub(super) key: Vec<u8>,
    pub(super) former: Vec<Former<'a>>,
}

/// What the client has read to decide on.
pub(super) struct Seen {
    pub(super) now: Micros,
    /// By their keys.
    states: HashMap<Vec<u8>, Vec<u8>>,
}

impl Seen {
    /// What the server says of the states that a call expected.
    pub(super) fn of(call: &Call<'_>, reply: &Reply) -> Seen {
        let swaps = call.steps.iter().enumerate().filter(|(_, step)| matches!(step.task, Task::Swap { .. }));
        let states = swaps.map(|(place, step)| (step.key.clone(), reply.state(place).to_vec()));
        Seen { now: reply.now, states: states.collect() }
    }

    pub(super) fn state(&self, key: &[u8]) -> &[u8] {
        self.states.get(key).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A check that was decided here, and the steps that write so.
pub(super) struct Swapped<'a> {
    pub(super) verdict: Verdict,
    /// The answer if it is not carried out, because another check of the slice was refused.
    pub(super) withheld: Verdict,
    /// What is used before the check is carried out, and after it.
    pub(super) used: [u64; 2],
    /// First that of its own state, then those of former limits.
    pub(super) steps: Vec<Step<'a>>,
}

/// A former limit of a check.
#[derive(Clone)]
pub(super) struct Former<'a> {
    pub(super) limit: store::Former<'a>,
    pub(super) key: Vec<u8>,
    /// Whether it is this check that changes the state, and no other of the slice.
    pub(super) is_changed: bool,
}

/// A state that must still be this, and that stays as it is.
pub(super) fn unchanged<'a>(key: Vec<u8>, form: Form, state: Vec<u8>) -> Step<'a> {
    Step { key, task: Task::Swap { form, state, passes: true, after: None, healed: None, verdict: None } }
}

/// When the history of a server began.
pub(super) fn began(history: &[u8]) -> Result<Micros, RedisFailure> {
    let at = history.rsplit(|byte| *byte == b':').next().and_then(numbers);
    at.map(|[at]| Micros::new(at)).ok_or(RedisFailure::Garbled { what: "the history of a server" })
}

impl<'a> Member<'a> {
    /// The checks of a slice, with the names of their states and of those of former limits.
    pub(super) fn all(checks: &[Check<'a>], prefix: &str, now: Micros) -> Result<Vec<Member<'a>>, StoreError> {
        let mut members: Vec<Member<'a>> = Vec::with_capacity(checks.len());
        for (place, check) in checks.iter().enumerate() {
            let key = state_key(prefix, check);
            if members.iter().any(|member| member.key == key) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            members.push(Member { place, check: *check, key, former: Vec::new() });
        }
        let mut known: Vec<Vec<u8>> = members.iter().map(|member| member.key.clone()).collect();
        for member in &mut members {
            for former in member.check.former_at(now) {
                let key = key_of(prefix, former.meter, member.check.key());
                // What another check changes is only counted here.
                let is_changed = !known.contains(&key);
                known.push(key.clone());
                member.former.push(Former { limit: *former, key, is_changed });
            }
        }
        Ok(members)
    }

    /// Whether the client decides it: no script knows one of its kernels.
    pub(super) fn is_swapped(&self) -> bool {
        self.meters().any(|(meter, _)| meter.limit().is_none())
    }

    fn meters(&self) -> impl Iterator<Item = (&'a Meter, &Vec<u8>)> {
        let former = self.former.iter().map(|former| (former.limit.meter, &former.key));
        std::iter::once((self.check.meter(), &self.key)).chain(former)
    }

    /// What the script does about it, if it decides it.
    pub(super) fn task(&self) -> Option<Task<'a>> {
        Some(Task::Decide { check: self.check, limit: self.check.meter().limit()? })
    }

    /// Steps that only look at its states.
    pub(super) fn look(&self) -> impl Iterator<Item = Step<'a>> {
        self.meters().map(|(meter, key)| unchanged(key.clone(), Form::of(meter), Vec::new()))
    }

    /// The states of its former limits, for a check that the script decides as step `of`.
    pub(super) fn former_steps(&self, of: usize) -> impl Iterator<Item = FormerStep<'a>> {
        self.former.iter().filter_map(move |former| {
            let check = if former.is_changed { self.check } else { self.check.as_peek() };
            FormerStep::new(of, &check, &former.limit, former.key.clone())
        })
    }

    /// The check that corrects what was charged under its id.
    pub(super) fn correcting(&self, charges: &[(u64, Charged)]) -> Member<'a> {
        let charge_of = |subject| charges.iter().find(|(charged, _)| *charged == subject).map(|(_, charge)| *charge);
        Member { check: self.check.correcting(charge_of), ..self.clone() }
    }

    /// In strict mode: the answer of a limit that counts as used up since the history of its
    /// server began, if it still does.
    fn used_up(&self, since: Micros, now: Micros) -> Result<Option<Verdict>, RedisFailure> {
        let (meter, cost) = (self.check.meter().clone().with_floor(0), self.check.cost());
        let until = match meter.warm_up() {
            Some(_) => since.saturating_add(meter.horizon()),
            None => {
                let charge = [Check::new(&meter, self.check.key(), Verb::Charge, meter.largest_cost())
                    .map_err(|_| RedisFailure::Garbled { what: "the capacity of a custom kernel" })?];
                let mut slice = Slice::new(&charge, since).map_err(|_| RedisFailure::Disagreement)?;
                slice.decide(since);
                slice.parts_mut().find_map(|part| part.save()).map_or(since, |kept| kept.forget_at)
            }
        };
        let wait = until.saturating_since(now);
        if wait == Micros::ZERO || !matches!(self.check.verb(), Verb::Charge | Verb::Peek) {
            return Ok(None);
        }
        let allowed = cost == 0;
        let retry_after = if allowed { Micros::ZERO } else { wait };
        Ok(Some(Verdict { allowed, retry_after, reset_after: wait, ..Verdict::default() }))
    }

    /// Decides on its states, as the server has them.
    pub(super) fn decide(&self, seen: &Seen, since: Option<Micros>) -> Result<Swapped<'a>, RedisFailure> {
        let (now, states) = (seen.now, self.meters().map(|(_, key)| seen.state(key)).collect::<Vec<_>>());
        let is_custom = self.meters().any(|(meter, _)| meter.limit().is_none() && meter.warm_up().is_none());
        let what = if is_custom { "the state of a custom kernel" } else { "a state" };
        let garbled = || RedisFailure::Garbled { what };
        // The server's time may be later than ours: it is decided by all that were loaded.
        let until = |limit: &store::Former<'_>| limit.until.max(now.saturating_add(Micros::new(1)));
        let former = self.former.iter().map(|former| store::Former { until: until(&former.limit), ..former.limit });
        let former: Vec<_> = former.collect();
        let checks = [self.check.without_id().with_former(&former)];
        let subjects: Vec<u64> = checks[0].subjects().collect();
        let place_of = |part: &Part<'_>| subjects.iter().position(|subject| *subject == part.subject());
        let slice = || -> Result<Slice<'_>, RedisFailure> {
            let mut slice = Slice::new(&checks, now).map_err(|_| RedisFailure::Disagreement)?;
            for part in slice.parts_mut() {
                let state = place_of(part).map_or(&[][..], |place| states[place]);
                part.load(&state::encoded(part.meter(), state).ok_or_else(garbled)?).ok_or_else(garbled)?;
            }
            Ok(slice)
        };
        let (mut decided, mut refused) = (slice()?, slice()?);
        decided.decide(now);
        refused.withhold(now);
        let used_up = since.map(|since| self.used_up(since, now)).transpose()?.flatten();
        let verdict = used_up.unwrap_or(decided.verdicts()[0]);
        let withheld = used_up.unwrap_or(refused.verdicts()[0]);
        let passes = verdict.allowed || self.check.verb() == Verb::Peek;
        let write = |slice: &mut Slice<'_>, place: usize| -> Option<Kept> {
            let is_ours = used_up.is_none() && (place == 0 || self.former[place - 1].is_changed);
            let part = slice.parts_mut().find(|part| is_ours && place_of(part) == Some(place))?;
            Some(state::stored(part.meter(), part.save()?))
        };
        let mut steps = Vec::with_capacity(states.len());
        for (place, ((meter, key), state)) in self.meters().zip(&states).enumerate() {
            let [after, healed] = [&mut decided, &mut refused].map(|slice| write(slice, place));
            let (passes, verdict) = if place == 0 { (passes, Some(verdict)) } else { (true, None) };
            let task = Task::Swap { form: Form::of(meter), state: state.to_vec(), passes, after, healed, verdict };
            steps.push(Step { key: key.clone(), task });
        }
        Ok(Swapped { verdict, withheld, used: decided.used(0), steps })
    }
}
