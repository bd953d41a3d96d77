//! Charges to states that sit in their home lines or in their bucket of the heap: what
//! nearly every check comes to.
//!
//! The planner locks the lines in their order, asks the kernels, and writes
//! only if all of them admit. It does nothing at all unless every charge is
//! simple. Where one is not (a new key, a key in its second line, a state to be
//! healed, a custom kernel, several charges beside former limits that still count something),
//! it says so, and the [round](super::round) decides.
//!
//! It first goes from state to state as if all of them had room, and writes on its way
//! back. If one has none, it begins again and asks all of them, for what each has to say.
//!
//! One charge to a narrow bucket is the same without a list, and without a lock where
//! charges are being refused. Where that one is not simple, a
//! [single check](super::single) decides.

use smallvec::SmallVec;

use super::MemoryStore;
use super::heap::{Entry, Heap};
use super::line_lock::LockedLine;
use super::lines::{WORDS, prefetch};
use super::pack::Pack;
use super::shelf::{Lock, NARROW, WIDE};
use super::table::{Approach, Place, Table};
use crate::kernel::{Admission, Bucket, BucketState, Kernel, Reading, Verdict};
use crate::store::{Check, Former, MeterKernel, is_leaky};
use crate::sync::AtomicU64;
use crate::time::Micros;

/// The most states that are looked at for one plan.
const MAX_TARGETS: usize = 16;

/// What there is one of for each state.
type Few<T> = SmallVec<[T; MAX_TARGETS]>;

/// The bucket of a check that the planner can charge by itself.
#[inline(always)]
pub(super) fn simple_bucket<'a>(check: &Check<'a>) -> Option<&'a Bucket> {
    match check.meter().kernel() {
        MeterKernel::Bucket(bucket) if check.meter().is_simple() && check.is_charge() && check.former().is_empty() => {
            Some(bucket)
        }
        MeterKernel::Bucket(_) | MeterKernel::Window(_) | MeterKernel::Heap(_) => None,
    }
}

/// Where the state of a limit is looked for, and what for.
#[derive(Clone, Copy)]
struct Target<'t> {
    /// What is locked, in this order: lines of one word for a state, of three, buckets.
    place: u64,
    /// None on the heap.
    line: Option<&'t [AtomicU64; WORDS]>,
    /// The tag of the home line, or the fingerprint on the heap.
    mark: u64,
    /// The check that it is for, and its number.
    check: &'t Check<'t>,
    index: usize,
    /// The former limit, of which is only counted what is used; none if the check's own is charged.
    former: Option<&'t Former<'t>>,
}

/// The bits of a place that number the lines or buckets of a shelf; the shelf is above them.
const NUMBER_BITS: u32 = 62;

#[inline(always)]
fn place(shelf: usize, number: usize) -> u64 {
    (shelf as u64) << NUMBER_BITS | number as u64
}

impl Target<'_> {
    #[inline(always)]
    fn shelf(&self) -> usize {
        (self.place >> NUMBER_BITS) as usize
    }

    fn number(&self) -> usize {
        (self.place & ((1 << NUMBER_BITS) - 1)) as usize
    }

    /// Whether this is a former limit that counts no more.
    fn is_over(&self, now: Micros) -> bool {
        self.former.is_some_and(|former| former.until <= now)
    }
}

/// Targets, and the order of their places: a target stays where it was written, since the processor
/// waits for one that is moved at once.
struct Targets<'t> {
    all: Few<Target<'t>>,
    order: [u8; MAX_TARGETS],
}

impl<'t> Targets<'t> {
    #[inline(always)]
    fn new() -> Targets<'t> {
        Targets { all: SmallVec::new(), order: [0; MAX_TARGETS] }
    }

    /// Adds one, if there are not too many.
    #[inline(always)]
    fn add(&mut self, target: Target<'t>) -> Result<(), Option<Micros>> {
        let number = self.all.len();
        let mut at = number;
        while at > 0 && self.at(at - 1).is_some_and(|other| other.place > target.place) {
            *self.order.get_mut(at).ok_or(None)? = self.order[at - 1];
            at -= 1;
        }
        *self.order.get_mut(at).ok_or(None)? = number as u8;
        self.all.push(target);
        Ok(())
    }

    /// The target that comes at this place in the order.
    #[inline(always)]
    fn at(&self, place: usize) -> Option<&Target<'t>> {
        self.all.get(usize::from(*self.order.get(place)?))
    }
}

/// A state that is locked, and those before it.
struct Held<'h, 't> {
    target: &'h Target<'t>,
    /// None on the heap.
    line: Option<&'h LockedLine<'t>>,
    before: Option<&'h Held<'h, 't>>,
}

impl<'h, 't> Held<'h, 't> {
    /// Whether the state is among those in the latest line or bucket.
    fn has(&self, target: &Target<'t>) -> bool {
        let mut held = Some(self);
        while let Some(other) = held.filter(|other| other.target.place == target.place) {
            if other.target.mark == target.mark {
                return true;
            }
            held = other.before;
        }
        false
    }
}

/// Charges on their way, and who is told of each what it came to.
struct Plan<'p, 't, T> {
    store: &'p MemoryStore,
    targets: &'p Targets<'t>,
    now: Micros,
    tell: T,
    /// Of a check that is alone, what its former limits count; of several, they must count nothing.
    beside: Option<Beside>,
}

/// What former limits count, and for how long.
#[derive(Clone, Copy, Default)]
struct Beside {
    used: u64,
    reset_after: Micros,
}

impl<'p, 't, T: FnMut(usize, Verdict)> Plan<'p, 't, T> {
    /// Charges the states from this place in the order on if all of them have room: what is locked for
    /// each stays locked until those after it are charged. If not, nothing has changed.
    fn fill_from(&mut self, at: usize, before: Option<&Held<'_, 't>>) -> Option<()> {
        let target = self.targets.at(at)?;
        let Some(line) = target.line else { return self.fill_on_heap(target, at, before) };
        let mut own = None;
        let line = match before.filter(|held| held.target.place == target.place) {
            Some(held) if held.has(target) => return None,
            Some(held) => held.line?,
            None => own.insert(LockedLine::lock(line)),
        };
        let held = Held { target, line: Some(line), before };
        let is_narrow = target.shelf() == NARROW;
        if let Some(former) = target.former {
            if !target.is_over(self.now) {
                match former.meter.kernel() {
                    MeterKernel::Bucket(kernel) if is_narrow => self.count_in::<1, _>(kernel, line, target)?,
                    MeterKernel::Window(kernel) if is_narrow => self.count_in::<1, _>(kernel, line, target)?,
                    MeterKernel::Bucket(kernel) => self.count_in::<3, _>(kernel, line, target)?,
                    MeterKernel::Window(kernel) => self.count_in::<3, _>(kernel, line, target)?,
                    MeterKernel::Heap(_) => return None,
                }
            }
            return self.fill_after(at, &held);
        }
        match target.check.meter().kernel() {
            MeterKernel::Bucket(kernel) if is_narrow => self.fill_in::<1, _>(kernel, line, at, &held),
            MeterKernel::Window(kernel) if is_narrow => self.fill_in::<1, _>(kernel, line, at, &held),
            MeterKernel::Bucket(kernel) => self.fill_in::<3, _>(kernel, line, at, &held),
            MeterKernel::Window(kernel) => self.fill_in::<3, _>(kernel, line, at, &held),
            MeterKernel::Heap(_) => None,
        }
    }

    /// Charges those that come after this one, if there are any.
    #[inline(always)]
    fn fill_after(&mut self, at: usize, held: &Held<'_, 't>) -> Option<()> {
        if at + 1 == self.targets.all.len() { Some(()) } else { self.fill_from(at + 1, Some(held)) }
    }

    #[inline(always)]
    fn fill_in<const STATE: usize, K: Pack<STATE>>(
        &mut self,
        kernel: &K,
        line: &LockedLine<'t>,
        at: usize,
        held: &Held<'_, 't>,
    ) -> Option<()> {
        let (now, target) = (self.now, held.target);
        let slot = Table::<STATE>::find(line, target.mark)?;
        let mut state = kernel.unpack(Table::<STATE>::read(line, slot));
        if kernel.heal(&state, now).is_some() {
            return None;
        }
        if self.beside.is_some() {
            // All other states are former ones, of which nothing is written.
            self.fill_after(at, held)?;
            let (admission, reading) = self.take_beside(kernel, &mut state, target.check)?;
            Table::<STATE>::write(line, slot, kernel.pack(&state));
            (self.tell)(target.index, Verdict { ahead: kernel.ahead(&state, now), ..Verdict::new(admission, reading) });
            return Some(());
        }
        let (admission @ Admission::Pass { .. }, reading) = kernel.take(&mut state, now, target.check.cost()) else {
            return None;
        };
        self.fill_after(at, held)?;
        Table::<STATE>::write(line, slot, kernel.pack(&state));
        (self.tell)(target.index, Verdict { ahead: kernel.ahead(&state, now), ..Verdict::new(admission, reading) });
        Some(())
    }

    /// Counts what is used of a former limit; `None` if the round has to.
    fn count_in<const STATE: usize, K: Pack<STATE>>(
        &mut self,
        kernel: &K,
        line: &LockedLine<'t>,
        target: &Target<'t>,
    ) -> Option<()> {
        let now = self.now;
        let Some(beside) = &mut self.beside else {
            return is_unused(self.store, Table::<STATE>::is_absent(line, target.mark, now), now);
        };
        let Some(slot) = Table::<STATE>::find(line, target.mark) else {
            return is_unused(self.store, Table::<STATE>::is_absent(line, target.mark, now), now);
        };
        let state = kernel.unpack(Table::<STATE>::read(line, slot));
        if kernel.heal(&state, now).is_some() {
            return None;
        }
        beside.used += kernel.used(&state, now);
        beside.reset_after = beside.reset_after.max(kernel.read(&state, now).reset_after);
        Some(())
    }

    /// Charges a state beside what former limits count, if that fits; a queue begins where theirs end, which the round
    /// finds out.
    fn take_beside<K: Kernel>(
        &self,
        kernel: &K,
        state: &mut K::State,
        check: &Check<'_>,
    ) -> Option<(Admission, Reading)> {
        let (Beside { used, reset_after }, meter) = (self.beside?, check.meter());
        let needed = check.cost() + used;
        if needed > meter.largest_cost() || (used > 0 && is_leaky(meter)) {
            return None;
        }
        let admission @ Admission::Pass { .. } = kernel.admit(state, self.now, needed) else { return None };
        let Reading { remaining, reset_after: own } = kernel.charge(state, self.now, check.cost());
        let reading = Reading { remaining: remaining.saturating_sub(used), reset_after: own.max(reset_after) };
        Some((admission, reading))
    }

    fn fill_on_heap(&mut self, target: &'p Target<'t>, at: usize, before: Option<&Held<'_, 't>>) -> Option<()> {
        // Of two in one bucket, the round decides.
        if before.is_some_and(|held| held.target.place == target.place) {
            return None;
        }
        let (now, cost, held) = (self.now, target.check.cost(), Held { target, line: None, before });
        let mut bucket = self.store.heap().lock(target.number());
        if target.former.is_some() {
            is_unused(self.store, target.is_over(now) || is_absent_on_heap(&bucket, target.mark, now), now)?;
            return self.fill_after(at, &held);
        }
        if self.beside.is_some_and(|beside| beside.used > 0) {
            return None;
        }
        let MeterKernel::Heap(kernel) = target.check.meter().kernel() else { return None };
        let entry = Heap::find(&mut bucket, target.mark)?;
        let state = entry.decoded(kernel);
        let admission = kernel.admit(state, now, cost);
        if kernel.heal(state, now).is_some() || !matches!(admission, Admission::Pass { .. }) {
            return None;
        }
        self.fill_after(at, &held)?;
        let state = entry.decoded(kernel);
        let (reading, ahead) = (kernel.charge(state, now, cost), kernel.ahead(state, now));
        entry.renew(kernel);
        (self.tell)(target.index, Verdict { ahead, ..Verdict::new(admission, reading) });
        Some(())
    }

    /// Asks all states what they have to say, and charges none; nothing if none refuses, or if that is
    /// not simple.
    fn ask_all(&mut self) -> Option<()> {
        let (now, targets) = (self.now, self.targets);
        let mut locks: Few<Lock<'_>> = SmallVec::new();
        let (mut first, mut is_refused) = (0, false);
        let in_order = || (0..targets.all.len()).filter_map(|at| targets.at(at));
        for (at, target) in in_order().enumerate() {
            if targets.at(first).is_none_or(|other| at == 0 || other.place != target.place) {
                first = at;
                locks.push(self.store.lock(target));
            } else if in_order().take(at).skip(first).any(|other| other.mark == target.mark) {
                // Perhaps the same state twice, which the round reports.
                return None;
            }
            let lock = locks.last_mut()?;
            if target.former.is_none() {
                let verdict = ask(lock, target, now)?;
                is_refused |= !verdict.allowed;
                (self.tell)(target.index, verdict);
            } else if !target.is_over(now) {
                is_unused(self.store, is_absent(lock, target, now), now)?;
            }
        }
        is_refused.then_some(())
    }
}

impl MemoryStore {
    /// Charges one bucket: the state afterwards, and the level if it is
    /// admitted. If that is not simple, nothing has changed: the home line,
    /// locked, if the bucket is not there. `IS_FIRST` if it mostly
    /// sits in the first slot.
    #[inline(always)]
    pub(super) fn charge_one<'t, const IS_FIRST: bool>(
        &'t self,
        bucket: &Bucket,
        cost: u64,
        approach: Approach<'t>,
        now: Micros,
    ) -> Result<(BucketState, Option<u64>), Option<LockedLine<'t>>> {
        // A refusal changes nothing, so it needs no lock.
        if Table::has_refused(approach.line) {
            if let Some(words) = self.narrow.glance(approach) {
                if let Some((state, None)) = fill(bucket, words, now, cost) {
                    return Ok((state, None));
                }
            }
        }
        let line = LockedLine::lock(approach.line);
        let tag = approach.home.tag;
        let found = if IS_FIRST { Table::<1>::find_in_order(&line, tag) } else { Table::<1>::find(&line, tag) };
        let Some(slot) = found else { return Err(Some(line)) };
        let Some((state, filled)) = fill(bucket, Table::<1>::read(&line, slot), now, cost) else { return Err(None) };
        if filled.is_some() {
            Table::<1>::write(&line, slot, bucket.pack(&state));
        }
        Table::note_refused(&line, filled.is_none());
        Ok((state, filled))
    }

    /// Charges all or none: whether they were charged, and when. If that is not simple, nothing has
    /// changed: the time, if the clock was read. `tell` is called with the number of each check and
    /// what became of it.
    #[inline(always)]
    pub(super) fn charge_all<'a>(
        &'a self,
        checks: &'a [Check<'a>],
        tell: impl FnMut(usize, Verdict),
    ) -> Result<(bool, Micros), Option<Micros>> {
        let mut targets = Targets::new();
        self.find_targets(checks, &mut targets)?;
        let now = self.clock.now();
        let is_alone = checks.len() == 1 && targets.all.len() > 1;
        let beside = is_alone.then(Beside::default);
        let mut plan = Plan { store: self, targets: &targets, now, tell, beside };
        match plan.fill_from(0, None) {
            Some(()) => Ok((true, now)),
            None => plan.ask_all().map(|()| (false, now)).ok_or(Some(now)),
        }
    }

    /// Finds where the states of these checks are looked for, if all are simple charges and not too many.
    #[inline(always)]
    fn find_targets<'a>(&'a self, checks: &'a [Check<'a>], targets: &mut Targets<'a>) -> Result<(), Option<Micros>> {
        for (index, check) in checks.iter().enumerate() {
            let meter = check.meter();
            if !check.is_charge() || meter.is_custom() || !meter.thresholds().is_empty() {
                return Err(None);
            }
            targets.add(self.target(check, index, None))?;
            for former in check.former() {
                targets.add(self.target(check, index, Some(former)))?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn target<'t>(&'t self, check: &'t Check<'t>, index: usize, former: Option<&'t Former<'t>>) -> Target<'t> {
        let of = Check { meter: former.map_or(check.meter(), |former| former.meter), former: &[], ..*check };
        let fingerprint = self.fingerprint(of);
        let shelf = self.shelf_of(of);
        let approach = match shelf {
            NARROW => self.narrow.reach(fingerprint),
            WIDE => self.wide().reach(fingerprint),
            _ => {
                let place = place(shelf, self.heap().bucket(fingerprint));
                return Target { place, line: None, mark: fingerprint, check, index, former };
            }
        };
        prefetch(approach.line);
        let Place { line, tag } = approach.home;
        let place = place(shelf, line);
        Target { place, line: Some(approach.line), mark: tag, check, index, former }
    }

    #[inline(always)]
    fn lock(&self, target: &Target<'_>) -> Lock<'_> {
        let number = target.number();
        match target.shelf() {
            NARROW => Lock::Line(self.narrow.lock(number)),
            WIDE => Lock::Line(self.wide().lock(number)),
            _ => Lock::Bucket(self.heap().lock(number)),
        }
    }
}

/// What a state has to say of a charge that is not carried out; `None` if it is not there or is to
/// be healed.
fn ask(lock: &mut Lock<'_>, target: &Target<'_>, now: Micros) -> Option<Verdict> {
    let is_narrow = target.shelf() == NARROW;
    match (lock, target.check.meter().kernel()) {
        (Lock::Line(line), MeterKernel::Bucket(kernel)) if is_narrow => ask_in::<1, _>(line, target, kernel, now),
        (Lock::Line(line), MeterKernel::Window(kernel)) if is_narrow => ask_in::<1, _>(line, target, kernel, now),
        (Lock::Line(line), MeterKernel::Bucket(kernel)) => ask_in::<3, _>(line, target, kernel, now),
        (Lock::Line(line), MeterKernel::Window(kernel)) => ask_in::<3, _>(line, target, kernel, now),
        (Lock::Bucket(bucket), MeterKernel::Heap(kernel)) => {
            let state = Heap::find(bucket, target.mark)?.decoded(kernel);
            ask_of(&**kernel, state, target, now)
        }
        (_, _) => None,
    }
}

fn ask_in<const STATE: usize, K: Pack<STATE>>(
    line: &LockedLine<'_>,
    target: &Target<'_>,
    kernel: &K,
    now: Micros,
) -> Option<Verdict> {
    let slot = Table::<STATE>::find(line, target.mark)?;
    ask_of(kernel, &kernel.unpack(Table::<STATE>::read(line, slot)), target, now)
}

fn ask_of<K: Kernel + ?Sized>(kernel: &K, state: &K::State, target: &Target<'_>, now: Micros) -> Option<Verdict> {
    let verdict = || Verdict::new(kernel.admit(state, now, target.check.cost()), kernel.read(state, now));
    kernel.heal(state, now).is_none().then(verdict)
}

/// Goes on if a former limit counts nothing: not in its place, and in no state that keys share.
#[inline(always)]
fn is_unused(store: &MemoryStore, is_absent: bool, now: Micros) -> Option<()> {
    let is_shared = || store.shared.get().is_some_and(|shared| shared.matters(now));
    (is_absent && !is_shared()).then_some(())
}

/// Whether a former limit counts nothing.
fn is_absent(lock: &mut Lock<'_>, target: &Target<'_>, now: Micros) -> bool {
    match (lock, target.shelf()) {
        (Lock::Line(line), NARROW) => Table::<1>::is_absent(line, target.mark, now),
        (Lock::Line(line), _) => Table::<3>::is_absent(line, target.mark, now),
        (Lock::Bucket(bucket), _) => is_absent_on_heap(bucket, target.mark, now),
    }
}

fn is_absent_on_heap(bucket: &[Entry], fingerprint: u64, now: Micros) -> bool {
    !bucket.iter().any(|entry| entry.fingerprint() == fingerprint && entry.until() > now)
}

/// The state of a bucket after a charge, and the level if there is room;
/// `None` if the state is to be healed.
#[inline(always)]
fn fill(bucket: &Bucket, words: [u64; 1], now: Micros, cost: u64) -> Option<(BucketState, Option<u64>)> {
    let mut state = bucket.unpack(words);
    let filled = bucket.fill_if_room(&mut state, now, cost);
    // A bucket that is to be healed is fuller than full.
    if filled.is_none() && bucket.heal(&state, now).is_some() {
        return None;
    }
    Some((state, filled))
}

#[cfg(all(test, not(loom)))]
mod tests;
