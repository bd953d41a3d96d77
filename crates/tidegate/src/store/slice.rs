//! What several states mean together: the one place where it is written.
//!
//! A slice has a [`Cell`] for each check and a [`Part`] for each state that they are about: a check's own state, and those
//! of the limits that its own replaced. A store loads the parts, calls [`Slice::decide`], and saves the parts that changed.
//! Nothing here reads a clock, takes a lock, or does I/O.
//!
//! A charge never moves: it stays in the state of the limit that admitted it. While former limits still count something,
//! what they count is a floor under the limit in force, and it melts: a cost is admitted if what is used of the limit, what
//! is used of its former ones, and the cost fit into it together. All of these only fall while nothing is charged, so the
//! wait is found by halving. Units go back to where they were charged: a correction to the very state, a refund to the
//! newest state first. What a settlement adds is charged to the limit in force, as anything that is used now.

use smallvec::SmallVec;

use super::crossed::Marks;
use super::error::StoreError;
use super::meter_kernel::{MeterKernel, MeterState};
use super::{Check, Meter};
use crate::algorithm::Algorithm;
use crate::kernel::{self, Act, Admission, Kernel, Verb, Verdict};
use crate::request::Key;
use crate::time::Micros;

/// Checks that are decided together, with the states that they are about.
///
/// A store that keeps bytes under keys is this much:
///
/// ```
/// use std::collections::HashMap;
/// use tidegate::kernel::{Verb, Verdict};
/// use tidegate::store::{Check, Meter, Slice};
/// use tidegate::{Key, Limit, Micros};
///
/// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
/// let (mut kept, now) = (HashMap::<u64, Vec<u8>>::new(), Micros::new(1_000_000));
/// let mut charge = |cost| -> Result<Verdict, Box<dyn std::error::Error>> {
///     let checks = [Check::new(&meter, &key, Verb::Charge, cost)?];
///     let mut slice = Slice::new(&checks, now)?;
///     for part in slice.parts_mut() {
///         part.load(kept.get(&part.subject()).map_or(&[], Vec::as_slice)).ok_or("a damaged state")?;
///     }
///     slice.decide(now);
///     for part in slice.parts_mut() {
///         if let Some(changed) = part.save() {
///             kept.insert(part.subject(), changed.bytes);
///         }
///     }
///     Ok(slice.verdicts()[0])
/// };
/// assert_eq!(charge(7)?.remaining, 3);
/// assert!(!charge(4)?.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Slice<'a> {
    /// First the checks' own, in their order, then those of former limits.
    pub(crate) parts: SmallVec<[Part<'a>; 4]>,
    pub(crate) cells: SmallVec<[Cell<'a>; 4]>,
}

/// A state that a slice is about.
pub struct Part<'a> {
    pub(crate) meter: &'a Meter,
    key: &'a Key<'a>,
    pub(crate) state: MeterState,
    /// What the check sees in place of the state: one that it would heal, but writes nothing; or the
    /// age of a key that is new here and known to a former limit.
    seen: Option<MeterState>,
    /// The time to go by for this state, if that is later than the time of the decision.
    pub(crate) at: Micros,
    pub(crate) changed: bool,
    /// From when on the changed state matters no more.
    pub(crate) forget_at: Micros,
    /// Whether units can be given back to it: not to a state that keys share.
    pub(crate) is_own: bool,
    /// The place of the check that may change it; others of the slice only count it.
    of: usize,
    /// For a former limit, when it is forgotten.
    until: Micros,
}

/// A check, and what is found out about it.
pub(crate) struct Cell<'a> {
    pub(crate) check: Check<'a>,
    /// The places of the former limits' states, the newest first.
    former: SmallVec<[usize; 2]>,
    /// The place of the state that a correction is about, if it still matters.
    corrected: Option<usize>,
    at: Micros,
    admission: Admission,
    /// What is used of the limit and its former ones, before the check is carried out and after it.
    used: [u64; 2],
    is_applied: bool,
    /// The answer of the store itself, where there is no room for a state.
    pub(crate) given: Option<Verdict>,
    pub(crate) verdict: Verdict,
}

/// A state as bytes, and how long it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Empty for the default state.
    pub bytes: Vec<u8>,
    /// From when on it equals the default state.
    pub forget_at: Micros,
}

/// A limit that another one replaced: what a key used of it counts on.
#[derive(Clone, Copy, Debug)]
pub struct Former<'a> {
    /// The limit.
    pub meter: &'a Meter,
    /// When nothing that was charged to it matters any more, by the store's clock.
    pub until: Micros,
}

impl Former<'_> {
    /// When another limit replaced it, at the latest.
    #[must_use]
    pub fn replaced_at(&self) -> Micros {
        Micros::new(self.until.get().saturating_sub(self.meter.horizon().get()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    CarryOut,
    Withhold,
}

impl<'a> Slice<'a> {
    /// The checks, with all states as if they were never used: load them next.
    ///
    /// # Errors
    /// If two checks are about the same state.
    pub fn new(checks: &[Check<'a>], now: Micros) -> Result<Slice<'a>, StoreError> {
        let mut slice = Slice { parts: SmallVec::new(), cells: SmallVec::new() };
        for check in checks {
            if slice.place_of(check.meter(), check.key()).is_some() {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            slice.parts.push(Part::new(check.meter(), check.key(), slice.parts.len(), Micros::MAX));
        }
        for (index, check) in checks.iter().enumerate() {
            let places = check.former_at(now).map(|one| match slice.place_of(one.meter, check.key()) {
                Some(place) => place,
                None => {
                    slice.parts.push(Part::new(one.meter, check.key(), index, one.until));
                    slice.parts.len() - 1
                }
            });
            let former = places.collect();
            let corrected =
                slice.place_of(check.corrected(), check.key()).filter(|place| slice.parts[*place].of == index);
            let (admission, verdict, used) = (Admission::PASS, Verdict::default(), [0; 2]);
            slice.cells.push(Cell {
                check: *check,
                former,
                corrected,
                at: now,
                admission,
                used,
                is_applied: false,
                given: None,
                verdict,
            });
        }
        Ok(slice)
    }

    fn place_of(&self, meter: &Meter, key: &Key<'_>) -> Option<usize> {
        self.parts.iter().position(|part| part.meter.is_same_as(meter) && part.key == key)
    }

    /// What the slice does to each of its states, as a check of that limit alone: of a former limit
    /// it only reads the state, unless a correction is about it.
    pub(crate) fn checks(&self) -> impl Iterator<Item = Check<'a>> + '_ {
        self.parts.iter().enumerate().map(|(place, part)| {
            let cell = &self.cells[part.of];
            match place {
                place if place == part.of => cell.check,
                place if cell.corrected == Some(place) => cell.check.by(part.meter),
                _ => Check::peek_of(part.meter, part.key),
            }
        })
    }

    /// The states, to be loaded and saved.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part<'a>> {
        self.parts.iter_mut()
    }

    /// Decides the slice at `now`: all checks are carried out, or none is. Says which.
    pub fn decide(&mut self, now: Micros) -> bool {
        self.decide_by(now, Intent::CarryOut)
    }

    /// Says of each check what it would say if another one of the slice were refused.
    pub fn withhold(&mut self, now: Micros) {
        self.decide_by(now, Intent::Withhold);
    }

    fn decide_by(&mut self, now: Micros, intent: Intent) -> bool {
        let Slice { parts, cells } = self;
        for (index, cell) in cells.iter_mut().enumerate() {
            cell.look(index, parts, now);
        }
        let is_refused = cells.iter().any(Cell::refuses);
        let carries_out = intent == Intent::CarryOut && !is_refused;
        // A kernel that may panic goes first: then nothing is charged to the others.
        for is_custom in [true, false] {
            let cells = cells.iter_mut().enumerate();
            for (index, cell) in cells.filter(|(_, cell)| cell.check.meter().is_custom() == is_custom) {
                cell.finish(index, parts, now, carries_out);
            }
        }
        carries_out
    }

    /// The answers, in the order of the checks.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.cells.iter().map(|cell| cell.verdict).collect()
    }

    /// What is used of the limit of a check and of its former ones, before the check and after it.
    #[must_use]
    pub fn used(&self, check: usize) -> [u64; 2] {
        self.cells[check].used
    }

    /// Leaves of the thresholds that a check crossed those that were not told yet, by the marks of its state, and notes
    /// them there. For meters that [need marks](Meter::needs_marks).
    pub fn tell(&mut self, check: usize, marks: &mut Marks, now: Micros) {
        let cell = &mut self.cells[check];
        if cell.is_applied {
            cell.verdict.crossed = marks.tell(&cell.check, cell.used[1], cell.verdict.crossed, now);
        }
    }

    /// Whether a check has changed a state.
    #[must_use]
    pub fn is_applied(&self, check: usize) -> bool {
        self.cells[check].is_applied
    }
}

impl<'a> Part<'a> {
    fn new(meter: &'a Meter, key: &'a Key<'a>, of: usize, until: Micros) -> Part<'a> {
        let (state, seen, at, forget_at) = (MeterState::Fresh, None, Micros::ZERO, Micros::ZERO);
        Part { meter, key, state, seen, at, changed: false, forget_at, is_own: true, of, until }
    }

    /// The limit.
    #[must_use]
    pub fn meter(&self) -> &'a Meter {
        self.meter
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &'a Key<'a> {
        self.key
    }

    /// A number that tells the state from those of other limits and keys, the same in every process.
    #[must_use]
    pub fn subject(&self) -> u64 {
        self.meter.subject(self.key)
    }

    /// Loads a state that was [saved](Part::save); no bytes are the default state. `None` if they are no state of this limit.
    #[must_use]
    pub fn load(&mut self, bytes: &[u8]) -> Option<()> {
        self.state = if bytes.is_empty() { MeterState::Fresh } else { self.meter.kernel().decode(bytes)? };
        Some(())
    }

    /// The state as bytes, if it has changed.
    #[must_use]
    pub fn save(&self) -> Option<Kept> {
        let kernel = self.meter.kernel();
        self.changed.then(|| match &self.state {
            MeterState::Fresh => Kept::default(),
            state => {
                let mut bytes = Vec::new();
                kernel.encode(state, &mut bytes);
                Kept { bytes, forget_at: self.forget_at }
            }
        })
    }

    fn kernel(&self) -> &'a MeterKernel {
        self.meter.kernel()
    }

    fn view(&self) -> &MeterState {
        self.seen.as_ref().unwrap_or(&self.state)
    }

    fn heal(&mut self, at: Micros, writes: bool) {
        let Some(full) = self.kernel().heal(&self.state, at) else { return };
        if writes {
            self.state = full;
            self.note_change();
        } else {
            self.seen = Some(full);
        }
    }

    fn used(&self, at: Micros) -> u64 {
        self.meter.whole_kernel().used(self.view(), at)
    }

    fn matters_until(&self) -> Micros {
        self.kernel().forget_at(self.view())
    }

    fn apply(&mut self, at: Micros, act: Act) -> Option<u64> {
        // What gives back leaves no state where there was none.
        if act.adds() {
            self.state = self.seen.take().unwrap_or_else(|| std::mem::take(&mut self.state));
        }
        act.writes().then(|| {
            let unrecorded = kernel::apply(self.meter.kernel(), &mut self.state, at, act);
            self.note_change();
            unrecorded
        })
    }

    fn note_change(&mut self) {
        (self.changed, self.forget_at) = (true, self.meter.kernel().forget_at(&self.state));
    }
}

impl Cell<'_> {
    /// Heals the states, and asks the kernel.
    fn look(&mut self, own: usize, parts: &mut [Part<'_>], now: Micros) {
        if let Some(Verdict { allowed, retry_after, .. }) = self.given {
            self.admission = if allowed { Admission::PASS } else { Admission::Wait { retry_after } };
            return;
        }
        let act = self.check.act();
        let places = || std::iter::once(own).chain(self.former.iter().copied());
        self.at = places().map(|place| parts[place].at).fold(now, Micros::max);
        for place in places() {
            parts[place].heal(self.at, act.writes());
        }
        self.inherit_age(own, parts);
        self.admission = match act {
            Act::Look { cost } | Act::Take { cost } => self.admit(own, parts, cost),
            Act::Prolong { charged } => {
                // A former limit is forgotten one day: what is renewed there has to end before.
                let lasts = |part: &Part<'_>| self.at.saturating_add(part.meter.period()) <= part.until;
                let is_there = self
                    .corrected
                    .map(|place| &parts[place])
                    .is_some_and(|part| part.kernel().is_there(part.view(), self.at, charged) && lasts(part));
                if is_there { Admission::PASS } else { Admission::Wait { retry_after: Micros::ZERO } }
            }
            Act::Nothing | Act::Force { .. } | Act::GiveBack { .. } | Act::Correct { .. } | Act::Clear => {
                Admission::PASS
            }
        };
    }

    /// A key that is new to a limit with a warm-up may be known to the limit that this one replaced.
    fn inherit_age(&self, own: usize, parts: &mut [Part<'_>]) {
        let is_new = parts[own].matters_until() <= self.at;
        let is_reset = self.check.act() == Act::Clear;
        if self.former.is_empty() || parts[own].meter.warm_up().is_none() || !is_new || is_reset {
            return;
        }
        let known = |place: &usize| parts[*place].kernel().known_since(parts[*place].view(), self.at);
        let Some(since) = self.former.iter().find_map(known) else { return };
        parts[own].seen = Some(parts[own].kernel().known(since, self.at));
    }

    /// What the former limits count at an instant.
    fn beside(&self, parts: &[Part<'_>], at: Micros) -> u64 {
        self.former.iter().map(|place| parts[*place].used(at)).fold(0, u64::saturating_add)
    }

    /// Whether the cost fits beside what former limits count, and if not, when it will.
    fn admit(&self, own: usize, parts: &[Part<'_>], cost: u64) -> Admission {
        let (meter, state) = (self.check.meter(), parts[own].view());
        let alone = meter.kernel().admit(state, self.at, cost);
        if self.beside(parts, self.at) == 0 {
            return alone;
        }
        // What costs nothing takes nothing of what a class leaves to others.
        let kernel = if cost == 0 { meter.whole_kernel() } else { meter.kernel() };
        let most = meter.capacity() - if cost == 0 { 0 } else { meter.floor() };
        let admit = |at: Micros| {
            let needed = cost.saturating_add(self.beside(parts, at));
            (needed <= most).then(|| kernel.admit(state, at, needed))
        };
        if let Some(Admission::Pass { delay }) = admit(self.at) {
            return Admission::Pass { delay: self.after_former_queues(parts, delay) };
        }
        let alone = if let Admission::Wait { retry_after } = alone { retry_after } else { Micros::ZERO };
        let former = self.former.iter().map(|place| parts[*place].matters_until().saturating_since(self.at));
        // By then the former limits count nothing, and the limit alone admits the cost.
        let (mut refused, mut admitted) = (0, former.fold(alone, Micros::max).get());
        while admitted - refused > 1 {
            let middle = refused + (admitted - refused) / 2;
            match admit(self.at.saturating_add(Micros::new(middle))) {
                Some(Admission::Pass { .. }) => admitted = middle,
                Some(Admission::Wait { .. }) | None => refused = middle,
            }
        }
        Admission::Wait { retry_after: Micros::new(admitted) }
    }

    /// A request that a leaky bucket delays goes when the queues of former leaky buckets have drained, too.
    fn after_former_queues(&self, parts: &[Part<'_>], delay: Micros) -> Micros {
        if !is_leaky(self.check.meter()) {
            return delay;
        }
        let queues = self.former.iter().map(|place| &parts[*place]).filter(|part| is_leaky(part.meter));
        let drained = queues.map(|part| part.matters_until().saturating_since(self.at)).max();
        delay.saturating_add(drained.unwrap_or_default())
    }

    fn refuses(&self) -> bool {
        matches!(self.admission, Admission::Wait { .. }) && self.check.verb().can_refuse()
    }

    /// Carries the check out, if all of the slice pass, and answers it.
    fn finish(&mut self, own: usize, parts: &mut [Part<'_>], now: Micros, carries_out: bool) {
        if let Some(given) = self.given {
            self.verdict = given;
            return;
        }
        let (meter, at) = (self.check.meter(), self.at);
        let is_told = !meter.thresholds().is_empty();
        let used = |cell: &Self, parts: &[Part<'_>]| parts[own].used(at).saturating_add(cell.beside(parts, at));
        self.used = [if is_told { used(self, parts) } else { 0 }; 2];
        let applied = if carries_out { self.apply(own, parts) } else { None };
        self.is_applied = applied.is_some();
        if is_told && applied.is_some() {
            self.used[1] = used(self, parts);
        }
        let part = &parts[self.corrected.unwrap_or(own)];
        let is_charged = applied.is_some() && self.check.act().charges();
        let ahead = if is_charged { part.kernel().ahead(&part.state, at) } else { Micros::ZERO };
        let mut reading = meter.kernel().read(parts[own].view(), at);
        for former in self.former.iter().map(|place| &parts[*place]) {
            reading.remaining = reading.remaining.saturating_sub(former.used(at));
            reading.reset_after = reading.reset_after.max(former.kernel().read(former.view(), at).reset_after);
        }
        let (unrecorded, crossed) = (applied.unwrap_or(0), meter.crossed(self.used[0], self.used[1]));
        let verdict = Verdict { unrecorded, ahead, crossed, ..Verdict::new(self.admission, reading) };
        self.verdict = seen_from(now, at, verdict);
    }

    /// Carries the act out; returns what could not be recorded, if anything was done.
    fn apply(&self, own: usize, parts: &mut [Part<'_>]) -> Option<u64> {
        let (act, at) = (self.check.act(), self.at);
        match act {
            Act::Nothing | Act::Look { .. } => None,
            // What was used beyond a charge is used now, and of the limit in force.
            Act::Take { .. } | Act::Force { .. } => parts[own].apply(at, act),
            Act::Correct { .. } | Act::Prolong { .. } => {
                parts.get_mut(self.corrected?).filter(|part| part.is_own)?.apply(at, act)
            }
            Act::GiveBack { cost } => {
                let mut left = cost.saturating_sub(if self.former.is_empty() { cost } else { parts[own].used(at) });
                let applied = parts[own].apply(at, act);
                for place in &self.former {
                    let used = parts[*place].used(at);
                    self.change_former(own, &mut parts[*place], Act::of(Verb::Refund, left));
                    left = left.saturating_sub(used);
                }
                applied
            }
            Act::Clear => {
                for place in &self.former {
                    self.change_former(own, &mut parts[*place], act);
                }
                parts[own].apply(at, act)
            }
        }
    }
}

impl Cell<'_> {
    /// Changes the state of a former limit, if that is this check's to do.
    fn change_former(&self, own: usize, part: &mut Part<'_>, act: Act) {
        if part.is_own && part.of == own {
            part.apply(self.at, act);
        }
    }
}

/// Whether it delays what it admits.
pub(crate) fn is_leaky(meter: &Meter) -> bool {
    meter.nominal_limit().is_some_and(|limit| limit.algorithm() == Algorithm::LeakyBucket)
}

/// A verdict reached for a later time `at`, as the caller at `now` sees it.
#[inline(always)]
pub(crate) fn seen_from(now: Micros, at: Micros, verdict: Verdict) -> Verdict {
    if at <= now {
        return verdict;
    }
    let ahead = at.saturating_since(now);
    let later = |wait: Micros| if wait == Micros::ZERO { wait } else { wait.saturating_add(ahead) };
    Verdict {
        retry_after: later(verdict.retry_after),
        reset_after: later(verdict.reset_after),
        delay: later(verdict.delay),
        ahead: if verdict.allowed { verdict.ahead.saturating_add(ahead) } else { verdict.ahead },
        ..verdict
    }
}

#[cfg(test)]
mod tests;
