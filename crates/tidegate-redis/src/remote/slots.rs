//! A slice of checks, slot by slot.
//!
//! What is in one slot is decided by one call of the script, and outside of a
//! cluster everything is. A slice that spans slots is looked at first: if any
//! refuses, that is the answer. Then it goes from one slot to the next; when
//! one refuses after all, because others were faster, what the others have
//! charged is undone. In between, other requests may be refused for units that
//! are given back a moment later; none is ever admitted beyond its limit. The
//! same is done with the checks of one slot while it moves, and some of its
//! keys are here and some there.

use std::collections::VecDeque;

use futures_util::future::join_all;
use tidegate::Micros;
use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{Check, Purpose};

use super::Remote;
use super::swap::{Member, Swapped, began, unchanged};
use crate::failure::RedisFailure;
use crate::script::{FormerStep, Once, Outcome, Step, Task, Tell, charges};
use crate::state::Form;

/// The checks of a slice that one call decides; at least one.
struct Group<'a> {
    members: Vec<Member<'a>>,
    /// Whether to look which thresholds were told: not while a slot moves, as the state and the
    /// marks may be on different servers. A threshold may then be told again.
    by_marks: bool,
}

/// What came of a group.
struct Decided {
    at: Micros,
    carried_out: bool,
    verdicts: Vec<Verdict>,
}

/// What to do with the checks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    CarryOut,
    /// Another group refused: only to say what would have come of it.
    Withhold,
}

/// How often a custom kernel's state may be overtaken by others.
const MAX_TRIES: u32 = 16;

impl Remote {
    pub(super) async fn decide_by_slot(
        &self,
        members: Vec<Member<'_>>,
        verdicts: &mut [Verdict],
    ) -> Result<Micros, RedisFailure> {
        let has_id = members.iter().any(|member| member.check.id().is_some());
        let mut groups = self.groups(members);
        if has_id && groups.len() > 1 {
            return Err(RedisFailure::IdSpansSlots);
        }
        let mut charged: Vec<(Group<'_>, Decided)> = Vec::new();
        let mut refused = false;
        let mut now = Micros::ZERO;
        if groups.len() > 1 {
            let mut all_seen = true;
            let looks = groups.iter().map(|group| self.decide_group(group, Intent::Withhold));
            for (group, seen) in groups.iter().zip(join_all(looks).await) {
                match seen {
                    Ok(seen) => {
                        now = now.max(seen.at);
                        refused |= group.can_refuse() && seen.verdicts.iter().any(|verdict| !verdict.allowed);
                        group.tell(&seen.verdicts, verdicts);
                    }
                    Err(RedisFailure::OnTheWay) => all_seen = false,
                    Err(failure) => return Err(failure),
                }
            }
            if refused && all_seen {
                return Ok(now);
            }
        }
        while let Some(group) = groups.pop_front() {
            let intent = if refused { Intent::Withhold } else { Intent::CarryOut };
            let decided = match self.decide_group(&group, intent).await {
                Ok(decided) => decided,
                Err(RedisFailure::OnTheWay) if group.can_part() => {
                    let mut singles: Vec<Group<'_>> = group.into_singles(false).collect();
                    singles.sort_by_key(|single| single.members.first().map(|member| rank(&member.check)));
                    singles.into_iter().rev().for_each(|single| groups.push_front(single));
                    continue;
                }
                Err(failure) => {
                    self.undo(charged, verdicts).await;
                    return Err(failure);
                }
            };
            now = now.max(decided.at);
            group.tell(&decided.verdicts, verdicts);
            if decided.carried_out && !refused {
                charged.push((group, decided));
            } else if !refused {
                refused = true;
                self.undo(std::mem::take(&mut charged), verdicts).await;
            }
        }
        Ok(now)
    }

    /// The checks by slot, charges first: a peek or a refund comes when none
    /// can refuse any more.
    fn groups<'a>(&self, members: Vec<Member<'a>>) -> VecDeque<Group<'a>> {
        let slots: Vec<u16> = members.iter().map(|member| self.client.slot(&member.key)).collect();
        let is_one = slots.iter().all(|slot| *slot == slots[0]);
        let mut groups: Vec<((u16, u8), Group<'a>)> = Vec::with_capacity(1);
        for (member, slot) in members.into_iter().zip(slots) {
            let kind = (slot, if is_one { 0 } else { rank(&member.check) });
            match groups.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, group)) => group.members.push(member),
                None => groups.push((kind, Group { members: vec![member], by_marks: true })),
            }
        }
        groups.sort_by_key(|((_, rank), _)| *rank);
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// The id under which a group is carried out once, if it has one.
    fn once(&self, group: &Group<'_>) -> Option<Once> {
        let checks: Vec<Check<'_>> = group.members.iter().map(|member| member.check).collect();
        let mut once = Once::of(&checks, &self.settings.prefix, self.settings.ids_for)?;
        once.add_gone(group.members.iter().map(|member| &*member.gone));
        Some(once)
    }

    async fn decide_group(&self, group: &Group<'_>, intent: Intent) -> Result<Decided, RedisFailure> {
        if group.members.iter().any(Member::is_swapped) {
            return self.swap_group(group, intent).await;
        }
        let mut steps = group.steps(decide);
        let members = group.members.iter().enumerate();
        steps.extend(members.filter_map(|(place, member)| self.tell(group, member, place, intent)));
        let mut call = self.call(steps);
        call.former = group.former_steps(0..);
        call.is_withheld = intent == Intent::Withhold;
        (call.once, call.can_part) = (self.once(group), group.can_part());
        let reply = self.client.ask(&call).await?;
        if reply.is_of_other_limits(call.once.as_ref()) {
            return Ok(group.passed_before(reply.now));
        }
        let steps = || call.steps.iter().take(group.members.len()).enumerate();
        let verdicts = steps().map(|(index, step)| reply.verdict(index, &step.task));
        let verdicts = call.told(&reply, verdicts.collect::<Result<Vec<_>, _>>()?, |place| place);
        Ok(Decided { at: reply.now, carried_out: reply.outcome == Outcome::CarriedOut, verdicts })
    }

    /// A step that says which thresholds a member crosses, if that takes one.
    fn tell<'a>(&self, group: &Group<'_>, member: &Member<'a>, place: usize, intent: Intent) -> Option<Step<'a>> {
        let is_told = group.by_marks && intent != Intent::Withhold;
        Tell::step(&member.check, place, &self.settings.prefix, &member.key).filter(|_| is_told)
    }

    /// A group of which the client decides some checks: those of custom
    /// kernels, and of limits that replaced others. Reads their states, decides
    /// on them here, and has the script write what came out if they are still
    /// the same.
    async fn swap_group(&self, group: &Group<'_>, intent: Intent) -> Result<Decided, RedisFailure> {
        let swapped = group.members.iter().filter(|member| member.is_swapped());
        let mut look = self.call(swapped.flat_map(Member::look).collect());
        look.can_part = group.can_part();
        let look_genesis = look.genesis.clone();
        // What is to be corrected, and in strict mode the history of the server, is looked at
        // with the states, and must still be that when they are written.
        let once = self.once(group);
        let reserved = once.as_ref().filter(|once| once.purpose != Purpose::Once).map(|once| once.key.clone());
        let beside = || reserved.iter().cloned().chain(look_genesis.clone());
        look.steps.extend(beside().map(|key| unchanged(key, Form::Text, Vec::new())));
        let reply = self.client.ask(&look).await?;
        let mut now = reply.now;
        let mut states: VecDeque<Vec<u8>> = (0..reply.len()).map(|step| reply.state(step).to_vec()).collect();
        for _ in 0..MAX_TRIES {
            let beside: Vec<_> =
                beside().zip(states.split_off(states.len().saturating_sub(beside().count()))).collect();
            let since =
                beside.last().filter(|_| look_genesis.is_some()).map(|(_, history)| began(history)).transpose()?;
            let record = beside.first().filter(|_| reserved.is_some()).map(|(_, record)| record.as_slice());
            let charges = match record {
                None => Vec::new(),
                Some(record) => charges(record).ok_or(RedisFailure::NotReserved)?,
            };
            let mut steps = Vec::with_capacity(group.members.len());
            // Where each check stands among the steps, and what the client says of it.
            let mut places = Vec::with_capacity(group.members.len());
            let mut told = Vec::new();
            for member in &group.members {
                let (place, check) = (steps.len(), &member.check);
                let tell = self.tell(group, member, place, intent);
                let swapped = if member.is_swapped() {
                    let states: Vec<Vec<u8>> = states.drain(..member.states()).collect();
                    let member = if reserved.is_some() { &member.correcting(&charges) } else { member };
                    let mut swapped = member.decide(&states, now, since)?;
                    steps.append(&mut swapped.steps);
                    let (verb, cost) = (member.check.verb(), member.check.cost());
                    told.extend(tell.map(|step| step.decided(swapped.used, verb, cost)));
                    Some(swapped)
                } else {
                    steps.extend(decide(check).map(|task| Step { key: member.key.clone(), task }));
                    told.extend(tell);
                    None
                };
                places.push((place, swapped));
            }
            steps.extend(beside.into_iter().map(|(key, state)| unchanged(key, Form::Text, state)));
            steps.extend(told);
            let mut call = self.call(steps);
            let stands: Vec<usize> = places.iter().map(|(place, _)| *place).collect();
            call.former = group.former_steps(stands.iter().copied());
            (call.now, call.believed, call.is_past) = (Some(now), now, look.now.is_none());
            call.is_withheld = intent == Intent::Withhold;
            call.once = once.clone().map(|once| once.at(stands.iter().copied()));
            call.can_part = group.can_part();
            let reply = self.client.ask(&call).await?;
            if reply.is_of_other_limits(call.once.as_ref()) {
                return Ok(group.passed_before(reply.now));
            }
            if reply.outcome == Outcome::Overtaken {
                now = reply.now;
                let is_swap = |(_, step): &(usize, &Step<'_>)| matches!(step.task, Task::Swap { .. });
                let swaps = call.steps.iter().enumerate().filter(is_swap);
                states = swaps.map(|(index, _)| reply.state(index).to_vec()).collect();
                continue;
            }
            let carried_out = reply.outcome == Outcome::CarriedOut;
            let verdicts = places.into_iter().zip(&group.members).enumerate();
            let verdicts = verdicts.map(|(index, ((place, swapped), member))| match swapped {
                _ if reply.is_repeated() => {
                    let task = decide(&member.check);
                    reply.verdict(index, task.as_ref().unwrap_or(&call.steps[place].task))
                }
                Some(Swapped { withheld, .. }) if !carried_out => Ok(withheld),
                Some(Swapped { verdict, .. }) => Ok(verdict),
                None => reply.verdict(place, &call.steps[place].task),
            });
            let verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;
            let verdicts = call.told(&reply, verdicts, |place| stands.binary_search(&place).unwrap_or(usize::MAX));
            return Ok(Decided { at: reply.now, carried_out, verdicts });
        }
        Err(RedisFailure::Contended { tries: MAX_TRIES })
    }

    /// Takes back what the groups were charged, all at once; their verdicts
    /// become what they would have been without.
    async fn undo(&self, charged: Vec<(Group<'_>, Decided)>, verdicts: &mut [Verdict]) {
        let singles = charged.into_iter().flat_map(|(group, decided)| {
            let charged = decided.verdicts.into_iter();
            let charged = charged.map(move |verdict| (decided.at.saturating_add(verdict.ahead), verdict.crossed));
            let by_marks = group.by_marks;
            group.into_singles(by_marks).zip(charged)
        });
        let undoing = singles.filter(|(single, _)| single.charges()).map(|(single, (at, crossed))| async move {
            let mut undone = self.undo_single(&single, at).await;
            // Of what it crossed, that is told which other charges have reached since.
            for (verdict, member) in undone.iter_mut().flatten().zip(&single.members) {
                let meter = member.check.meter();
                verdict.crossed = crossed & meter.reached(meter.used_by(verdict));
            }
            (single, undone)
        });
        for (single, undone) in join_all(undoing).await {
            // A request that was refused for these units meanwhile may pass.
            if let Some(given_back) = &self.given_back {
                given_back.note(single.members.iter().map(|member| &member.check));
            }
            match undone {
                Ok(undone) => single.tell(&undone, verdicts),
                // It stays charged until it expires: its key is admitted too little.
                Err(failure) => tracing::warn!(%failure, "a charge could not be taken back"),
            }
        }
    }

    async fn undo_single(&self, single: &Group<'_>, at: Micros) -> Result<Vec<Verdict>, RedisFailure> {
        let steps = single.steps(|check| Some(Task::Undo { check: *check, limit: check.meter().limit()?, at }));
        if steps.is_empty() {
            return self.swap_group(&single.undoing(at), Intent::CarryOut).await.map(|decided| decided.verdicts);
        }
        let told = single.members.iter().filter_map(|member| self.tell(single, member, 0, Intent::CarryOut));
        let mut call = self.call(steps.into_iter().chain(told).collect());
        call.former = single.former_steps(0..);
        let reply = self.client.ask(&call).await?;
        Ok(vec![reply.verdict(0, &call.steps[0].task)?])
    }
}

/// In which order checks of several slots are carried out: what can be undone first, then
/// what may still refuse, then the rest. A custom kernel may give nothing back.
fn rank(check: &Check<'_>) -> u8 {
    match check.verb() {
        Verb::Charge if check.meter().limit().is_none() && check.meter().warm_up().is_none() => 1,
        Verb::Charge => 0,
        Verb::Renew(_) => 2,
        Verb::Peek | Verb::Report | Verb::Refund | Verb::Reset | Verb::Settle(_) => 3,
    }
}

fn decide<'a>(check: &Check<'a>) -> Option<Task<'a>> {
    let limit = check.meter().limit()?;
    Some(Task::Decide { check: *check, limit, verb: check.verb() })
}

impl<'a> Group<'a> {
    /// Each check for itself.
    fn into_singles(self, by_marks: bool) -> impl Iterator<Item = Group<'a>> {
        self.members.into_iter().map(move |member| Group { members: vec![member], by_marks })
    }

    /// What takes back charges of kernels that no script knows: exactly, of a limit that warms up.
    fn undoing(&self, at: Micros) -> Group<'a> {
        let undo = |member: &Member<'a>| {
            let charged = Charged { at, cost: member.check.cost() };
            let check = match member.check.meter().warm_up() {
                Some(_) => member.check.with_verb(Verb::Settle(charged)).with_cost(0),
                None => member.check.with_verb(Verb::Refund),
            };
            Member { check, ..member.clone() }
        };
        Group { members: self.members.iter().map(undo).collect(), by_marks: self.by_marks }
    }

    /// What came of a request that passed by other limits than these.
    fn passed_before(&self, at: Micros) -> Decided {
        let verdict = Verdict { allowed: true, repeated: true, ..Verdict::default() };
        let count = self.members.len();
        Decided { at, carried_out: true, verdicts: vec![verdict; count] }
    }

    /// Whether its checks can be decided one by one. A request with an id is
    /// carried out once, and so at once.
    fn can_part(&self) -> bool {
        let has_marks = self.by_marks && self.members.iter().any(|member| member.check.meter().needs_marks());
        (self.members.len() > 1 || has_marks) && self.members.iter().all(|member| member.check.id().is_none())
    }

    fn can_refuse(&self) -> bool {
        self.members.iter().any(|member| member.check.verb().can_refuse())
    }

    fn charges(&self) -> bool {
        self.members.iter().any(|member| member.check.verb() == Verb::Charge)
    }

    /// A step for each check that has a task.
    fn steps(&self, task: impl Fn(&Check<'a>) -> Option<Task<'a>>) -> Vec<Step<'a>> {
        let steps = self.members.iter();
        steps.filter_map(|member| Some(Step { key: member.key.clone(), task: task(&member.check)? })).collect()
    }

    /// The states of former limits, of the checks that the script decides as these steps.
    fn former_steps(&self, steps: impl IntoIterator<Item = usize>) -> Vec<FormerStep<'a>> {
        let members = self.members.iter().zip(steps).filter(|(member, _)| !member.is_swapped());
        members.flat_map(|(member, step)| member.former_steps(step)).collect()
    }

    fn tell(&self, mine: &[Verdict], verdicts: &mut [Verdict]) {
        for (member, verdict) in self.members.iter().zip(mine) {
            verdicts[member.place] = *verdict;
        }
    }
}
