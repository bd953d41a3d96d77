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
use tidegate::store::{Check, Store};

use super::Remote;
use super::swap::{Member, Seen, Swapped, began, unchanged};
use crate::failure::RedisFailure;
use crate::script::{Call, FormerStep, Once, Outcome, Step, Tell, charges};
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
        let slots: Vec<u16> = members.iter().map(|member| self.client.nodes().slot(&member.key)).collect();
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
        Once::of(&checks, &self.settings.prefix, self.settings.ids_for, self.clock().now())
    }

    /// Decides a group by one call of the script. Checks that no script knows are decided here, on states that were
    /// read before, and the script writes what came out if they are still the same.
    async fn decide_group(&self, group: &Group<'_>, intent: Intent) -> Result<Decided, RedisFailure> {
        let once = self.once(group);
        let mut seen = self.look(group, once.as_ref()).await?;
        for _ in 0..MAX_TRIES {
            let (call, swapped) = self.group_call(group, intent, once.as_ref(), seen.as_ref())?;
            let reply = self.client.ask(&call).await?;
            if reply.is_of_other_limits(once.as_ref()) {
                return Ok(group.passed_before(reply.now));
            }
            if reply.outcome == Outcome::Overtaken {
                seen = Some(Seen::of(&call, &reply));
                continue;
            }
            let carried_out = reply.outcome == Outcome::CarriedOut;
            let verdicts = group.members.iter().zip(&swapped).enumerate();
            let verdicts = verdicts.map(|(place, (member, swapped))| match swapped {
                Some(swapped) if !reply.is_repeated() => {
                    Ok(if carried_out { swapped.verdict } else { swapped.withheld })
                }
                Some(_) | None => reply.verdict(place, member.task().as_ref().unwrap_or(&call.steps[place].task)),
            });
            let verdicts = call.told(&reply, verdicts.collect::<Result<_, _>>()?);
            return Ok(Decided { at: reply.now, carried_out, verdicts });
        }
        Err(RedisFailure::Contended { tries: MAX_TRIES })
    }

    /// Reads what the client needs to decide checks of a group; `None` if the script decides all of them.
    async fn look(&self, group: &Group<'_>, once: Option<&Once>) -> Result<Option<Seen>, RedisFailure> {
        let swapped = group.members.iter().filter(|member| member.is_swapped());
        let mut steps: Vec<Step<'_>> = swapped.flat_map(Member::look).collect();
        if steps.is_empty() {
            return Ok(None);
        }
        steps.extend(self.beside(group, once).map(|key| unchanged(key, Form::Text, Vec::new())));
        let look = Call { can_part: group.can_part(), ..self.call(steps) };
        let reply = self.client.ask(&look).await?;
        Ok(Some(Seen::of(&look, &reply)))
    }

    /// What is looked at with the states, and must still be that when they are written: what is to be corrected, and
    /// in strict mode the history of the server.
    fn beside(&self, group: &Group<'_>, once: Option<&Once>) -> impl Iterator<Item = Vec<u8>> {
        let genesis = group.members.first().and_then(|member| self.genesis(&member.key));
        once.and_then(Once::reserved).map(<[u8]>::to_vec).into_iter().chain(genesis)
    }

    /// The call that decides a group, and what the client decided. The members' own states come first, in their order.
    fn group_call<'a>(
        &self,
        group: &Group<'a>,
        intent: Intent,
        once: Option<&Once>,
        seen: Option<&Seen>,
    ) -> Result<(Call<'a>, Vec<Option<Swapped<'a>>>), RedisFailure> {
        let (mut own, mut behind, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_swapped = Vec::with_capacity(group.members.len());
        let correcting = seen.and_then(|seen| Some(seen.state(once?.reserved()?)));
        let charges = correcting.map(|record| charges(record).ok_or(RedisFailure::NotReserved)).transpose()?;
        for (place, member) in group.members.iter().enumerate() {
            let tell = self.tell(group, member, place, intent);
            let Some(seen) = seen.filter(|_| member.is_swapped()) else {
                own.extend(member.task().map(|task| Step { key: member.key.clone(), task }));
                told.extend(tell);
                all_swapped.push(None);
                continue;
            };
            let since = self.genesis(&member.key).map(|genesis| began(seen.state(&genesis))).transpose()?;
            let mut swapped = match &charges {
                Some(charges) => member.correcting(charges).decide(seen, since)?,
                None => member.decide(seen, since)?,
            };
            behind.extend(swapped.steps.split_off(1));
            own.append(&mut swapped.steps);
            told.extend(tell.map(|step| step.decided(swapped.used, member.check.verb(), member.check.cost())));
            all_swapped.push(Some(swapped));
        }
        if let Some(seen) = seen {
            let state = |key: &[u8]| seen.state(key).to_vec();
            behind.extend(self.beside(group, once).map(|key| unchanged(key.clone(), Form::Text, state(&key))));
        }
        let mut call = self.call([own, behind, told].concat());
        call.former = group.former_steps();
        if let Some(Seen { now, .. }) = seen {
            (call.is_past, call.now, call.believed) = (call.now.is_none(), Some(*now), *now);
        }
        (call.is_withheld, call.can_part) = (intent == Intent::Withhold, group.can_part());
        call.once = once.cloned();
        Ok((call, all_swapped))
    }

    /// A step that says which thresholds a member crosses, if that takes one.
    fn tell<'a>(&self, group: &Group<'_>, member: &Member<'a>, place: usize, intent: Intent) -> Option<Step<'a>> {
        let is_told = group.by_marks && intent != Intent::Withhold;
        Tell::step(&member.check, place, &self.settings.prefix, &member.key).filter(|_| is_told)
    }

    /// Takes back what the groups were charged, all at once; their verdicts
    /// become what they would have been without.
    async fn undo(&self, charged: Vec<(Group<'_>, Decided)>, verdicts: &mut [Verdict]) {
        let singles = charged.into_iter().flat_map(|(group, Decided { at, verdicts, .. })| {
            let by_marks = group.by_marks;
            group.into_singles(by_marks).zip(verdicts.into_iter().map(move |charged| (charged, at)))
        });
        let undoing = singles.filter(|(single, _)| single.charges()).map(|(single, (charged, at))| async move {
            let mut undone = self.undo_single(&single, at.saturating_add(charged.ahead)).await;
            for (verdict, member) in undone.iter_mut().flatten().zip(&single.members) {
                let meter = member.check.meter();
                verdict.delay = charged.delay;
                // Of what it crossed, that is told which other charges have reached since.
                verdict.crossed = charged.crossed & meter.reached(meter.used_by(verdict));
            }
            (single, undone)
        });
        for (single, undone) in join_all(undoing).await {
            // A request that was refused for these units meanwhile may pass.
            if let Some(given_back) = &self.settings.given_back {
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
        let undoing = single.undoing(at);
        let undone = match self.decide_group(&undoing, Intent::CarryOut).await {
            // The marks may be on another server than the state.
            Err(RedisFailure::OnTheWay) => {
                self.decide_group(&Group { by_marks: false, ..undoing }, Intent::CarryOut).await
            }
            undone => undone,
        };
        undone.map(|decided| decided.verdicts)
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

impl<'a> Group<'a> {
    /// Each check for itself.
    fn into_singles(self, by_marks: bool) -> impl Iterator<Item = Group<'a>> {
        self.members.into_iter().map(move |member| Group { members: vec![member], by_marks })
    }

    /// What takes back its charges: exactly, but for a custom kernel.
    fn undoing(&self, at: Micros) -> Group<'a> {
        let undo = |member: &Member<'a>| {
            let (meter, charged) = (member.check.meter(), Charged { at, cost: member.check.cost() });
            let check = match meter.limit().is_some() || meter.warm_up().is_some() {
                true => member.check.with_verb(Verb::Settle(charged)).with_cost(0),
                false => member.check.with_verb(Verb::Refund),
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

    /// The states of former limits, of the checks that the script decides.
    fn former_steps(&self) -> Vec<FormerStep<'a>> {
        let members = self.members.iter().enumerate().filter(|(_, member)| !member.is_swapped());
        members.flat_map(|(place, member)| member.former_steps(place)).collect()
    }

    fn tell(&self, mine: &[Verdict], verdicts: &mut [Verdict]) {
        for (member, verdict) in self.members.iter().zip(mine) {
            verdicts[member.place] = *verdict;
        }
    }
}
