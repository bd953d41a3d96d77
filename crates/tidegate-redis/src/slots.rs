//! A slice of checks, slot by slot.
//!
//! What is in one slot is decided by one call of the script, and outside of a
//! cluster everything is. A slice that spans slots goes from one to the next;
//! when one refuses, what the others have charged is undone. In between, others
//! may be refused for units that are given back a moment later; nobody is
//! ever admitted who should not be.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::Encoded;
use tidegate::{Check, Micros};

use crate::failure::RedisFailure;
use crate::key::slot;
use crate::script::{Outcome, Task, Turn};
use crate::store::Inner;

/// The checks of a slice that one call decides.
struct Group<'a> {
    /// Where in the slice each of them stands.
    places: Vec<usize>,
    checks: Vec<Check<'a>>,
    keys: Vec<Vec<u8>>,
}

/// What came of a group.
struct Decided {
    at: Micros,
    carried_out: bool,
    verdicts: Vec<Verdict>,
}

/// How often a custom kernel's state may be overtaken by others.
const MOST_TRIES: u32 = 16;

impl Inner {
    pub(crate) async fn decide_by_slot(
        &self,
        checks: &[Check<'_>],
        keys: Vec<Vec<u8>>,
        verdicts: &mut [Verdict],
    ) -> Result<Micros, RedisFailure> {
        let groups = self.groups(checks, keys);
        let mut charged: Vec<(&Group<'_>, Micros)> = Vec::new();
        let mut refused = false;
        let mut now = Micros::ZERO;
        for group in &groups {
            let as_peeks: Option<Verb> = refused.then_some(Verb::Peek);
            let decided = match self.decide_group(group, as_peeks).await {
                Ok(decided) => decided,
                Err(failure) => {
                    self.undo(&charged, verdicts).await;
                    return Err(failure);
                }
            };
            now = now.max(decided.at);
            group.tell(&decided.verdicts, verdicts);
            if decided.carried_out && !refused {
                charged.push((group, decided.at));
            } else if !refused {
                refused = true;
                self.undo(&std::mem::take(&mut charged), verdicts).await;
            }
        }
        Ok(now)
    }

    /// The checks by slot, those that charge first: whoever only looks, or
    /// gives back, comes when nobody can refuse any more.
    fn groups<'a>(&self, checks: &[Check<'a>], keys: Vec<Vec<u8>>) -> Vec<Group<'a>> {
        let mut groups: Vec<(u16, Group<'a>)> = Vec::with_capacity(1);
        for (place, (check, key)) in checks.iter().zip(keys).enumerate() {
            let slot = if self.is_cluster() && checks.len() > 1 { slot(&key) } else { 0 };
            let group = match groups.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, group)) => group,
                None => {
                    groups.push((slot, Group { places: Vec::new(), checks: Vec::new(), keys: Vec::new() }));
                    &mut groups.last_mut().expect("just pushed").1
                }
            };
            group.places.push(place);
            group.checks.push(*check);
            group.keys.push(key);
        }
        groups.sort_by_key(|(_, group)| !group.checks.iter().any(|check| check.verb() == Verb::Charge));
        groups.into_iter().map(|(_, group)| group).collect()
    }

    async fn decide_group(&self, group: &Group<'_>, verb: Option<Verb>) -> Result<Decided, RedisFailure> {
        if group.checks.iter().any(|check| check.meter().limit().is_none()) {
            return self.swap_group(group, verb).await;
        }
        let call = self.call(group.turns(|_, check| decide(check, verb)));
        let reply = self.ask(&call).await?;
        let verdicts = call.turns.iter().enumerate().map(|(index, turn)| reply.verdict(index, &turn.task));
        let verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;
        Ok(Decided { at: reply.now, carried_out: reply.outcome == Outcome::CarriedOut, verdicts })
    }

    /// A group with custom kernels: reads their states, decides on them here,
    /// and has the script write what came out if nobody was faster.
    async fn swap_group(&self, group: &Group<'_>, verb: Option<Verb>) -> Result<Decided, RedisFailure> {
        let custom = |check: &Check<'_>| check.meter().limit().is_none();
        let look = Task::Swap { state: Vec::new(), passes: true, after: None, healed: None };
        let turns = group.turns(|_, check| custom(check).then(|| look.clone()));
        let call = self.call(turns);
        let reply = self.ask(&call).await?;
        let mut now = reply.now;
        let mut states: Vec<Vec<u8>> = (0..call.turns.len()).map(|turn| reply.state(turn).to_vec()).collect();
        for _ in 0..MOST_TRIES {
            let mut encoded: Vec<Option<Encoded>> = Vec::with_capacity(group.checks.len());
            let mut state = states.iter();
            for check in &group.checks {
                let state = if custom(check) { state.next() } else { None };
                encoded.push(match state {
                    Some(state) => {
                        let verb = verb.unwrap_or(check.verb());
                        let decided = check.meter().decide_encoded(state, now, verb, check.cost());
                        Some(decided.ok_or(RedisFailure::Garbled { what: "the state of a custom kernel" })?)
                    }
                    None => None,
                });
            }
            let mut state = states.iter();
            let turns = group.turns(|index, check| match &encoded[index] {
                None => decide(check, verb),
                Some(Encoded { verdict, after, healed, .. }) => {
                    let passes = verdict.allowed || verb.unwrap_or(check.verb()) == Verb::Peek;
                    let state = state.next().cloned().unwrap_or_default();
                    Some(Task::Swap { state, passes, after: after.clone(), healed: healed.clone() })
                }
            });
            let mut call = self.call(turns);
            call.now = Some(now);
            let reply = self.ask(&call).await?;
            if reply.outcome == Outcome::Overtaken {
                now = reply.now;
                let places = group.checks.iter().enumerate().filter(|(_, check)| custom(check));
                states = places.map(|(index, _)| reply.state(index).to_vec()).collect();
                continue;
            }
            let carried_out = reply.outcome == Outcome::CarriedOut;
            let verdicts = call.turns.iter().zip(encoded).enumerate().map(|(index, (turn, encoded))| match encoded {
                None => reply.verdict(index, &turn.task),
                Some(Encoded { verdict, .. }) if carried_out => Ok(verdict),
                Some(Encoded { withheld, .. }) => Ok(withheld),
            });
            return Ok(Decided { at: reply.now, carried_out, verdicts: verdicts.collect::<Result<Vec<_>, _>>()? });
        }
        Err(RedisFailure::Contended { tries: MOST_TRIES })
    }

    /// Takes back what the groups were charged; their verdicts become what
    /// they would have been without.
    async fn undo(&self, charged: &[(&Group<'_>, Micros)], verdicts: &mut [Verdict]) {
        for (group, at) in charged {
            let undone = if group.checks.iter().any(|check| check.meter().limit().is_none()) {
                self.swap_group(group, Some(Verb::Refund)).await.map(|decided| decided.verdicts)
            } else {
                let mut call = self.call(group.turns(|_, check| undo(check)));
                call.undone = *at;
                self.ask(&call).await.and_then(|reply| {
                    call.turns.iter().enumerate().map(|(index, turn)| reply.verdict(index, &turn.task)).collect()
                })
            };
            match undone {
                Ok(undone) => group.tell(&undone, verdicts),
                // It stays charged until it expires: somebody is admitted too little.
                Err(failure) => tracing::warn!(%failure, "a charge could not be taken back"),
            }
        }
    }
}

fn decide<'a>(check: &Check<'a>, verb: Option<Verb>) -> Option<Task<'a>> {
    let limit = check.meter().limit()?;
    Some(Task::Decide { check: *check, limit, verb: verb.unwrap_or(check.verb()) })
}

fn undo<'a>(check: &Check<'a>) -> Option<Task<'a>> {
    let limit = check.meter().limit()?;
    Some(match check.verb() {
        Verb::Charge => Task::Undo { check: *check, limit },
        Verb::Peek | Verb::Refund | Verb::Reset => Task::Decide { check: *check, limit, verb: Verb::Peek },
    })
}

impl<'a> Group<'a> {
    /// A turn for each check that has a task.
    fn turns(&self, mut task: impl FnMut(usize, &Check<'a>) -> Option<Task<'a>>) -> Vec<Turn<'a>> {
        let turns = self.checks.iter().zip(&self.keys).enumerate();
        turns.filter_map(|(index, (check, key))| Some(Turn { key: key.clone(), task: task(index, check)? })).collect()
    }

    fn tell(&self, mine: &[Verdict], verdicts: &mut [Verdict]) {
        for (place, verdict) in self.places.iter().zip(mine) {
            verdicts[*place] = *verdict;
        }
    }
}
