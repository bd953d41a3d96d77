//! Where states are kept, as a round uses it: the two tables and the heap, each
//! of them locked in parts.

use smallvec::SmallVec;

use super::MemoryStore;
use super::heap::{Bucket, Entry, Heap};
use super::line_lock::LockedLine;
use super::overflow::Full;
use super::pack::Pack;
use super::step::Step;
use super::table::{Pair, Table};
use crate::store::{AnyState, Check, MeterKernel, MeterState, Part};
use crate::sync::MutexGuard;
use crate::time::Micros;

/// The numbers of the shelves: states of one word, of three, and of any size.
pub(super) const NARROW: usize = 0;
pub(super) const WIDE: usize = 1;
const HEAP: usize = 2;

impl MemoryStore {
    /// The number of the shelf where the state of a check is kept.
    pub(super) fn shelf_of(&self, check: Check<'_>) -> usize {
        match check.meter().kernel() {
            kernel if kernel.is_narrow() => NARROW,
            MeterKernel::Bucket(_) | MeterKernel::Window(_) => WIDE,
            MeterKernel::Heap(_) => HEAP,
        }
    }

    pub(super) fn shelf(&self, number: usize) -> &dyn Shelf {
        match number {
            NARROW => &self.narrow,
            WIDE => self.wide(),
            _ => self.heap(),
        }
    }
}

/// The lines and buckets that are locked, sorted by shelf and number.
pub(super) struct Held<'s> {
    pub(super) locks: SmallVec<[(usize, usize, Lock<'s>); 8]>,
}

pub(super) enum Lock<'s> {
    Line(LockedLine<'s>),
    Bucket(MutexGuard<'s, Bucket>),
}

impl<'s> Held<'s> {
    fn position(&self, shelf: usize, number: usize) -> usize {
        let found = self.locks.binary_search_by_key(&(shelf, number), |(shelf, number, _)| (*shelf, *number));
        found.expect("all that a step could need is locked before any of it is used")
    }

    fn line(&self, shelf: usize, number: usize) -> &LockedLine<'s> {
        match &self.locks[self.position(shelf, number)].2 {
            Lock::Line(line) => line,
            Lock::Bucket(_) => unreachable!("tables have lines"),
        }
    }

    fn bucket(&mut self, shelf: usize, number: usize) -> &mut Bucket {
        let position = self.position(shelf, number);
        match &mut self.locks[position].2 {
            Lock::Bucket(bucket) => bucket,
            Lock::Line(_) => unreachable!("the heap has buckets"),
        }
    }
}

/// A place for states.
pub(super) trait Shelf {
    /// What must be locked for a key; the same twice if it is only one.
    fn numbers(&self, fingerprint: u64) -> [usize; 2];
    fn lock(&self, number: usize) -> Lock<'_>;
    /// Whether the key has a slot.
    fn has(&self, held: &mut Held<'_>, step: &Step<'_>) -> bool;
    /// Takes a slot for a key that has none.
    fn claim(&self, held: &mut Held<'_>, step: &Step<'_>, now: Micros) -> Result<(), Full>;
    /// The state in the key's slot, which is to be saved again.
    fn load(&self, held: &mut Held<'_>, step: &Step<'_>) -> MeterState;
    /// Puts the state into the key's slot. Of one that has not changed, the
    /// kernel is not asked until when it matters.
    fn save(&self, held: &mut Held<'_>, step: &Step<'_>, part: &mut Part<'_>);
    /// Leaves the slot that was taken for a key, as if it had never been.
    fn give_up(&self, held: &mut Held<'_>, step: &Step<'_>);
    /// The time for a key that has no slot.
    fn recall(&self, fingerprint: u64, now: Micros) -> Micros;
}

impl<const STATE: usize> Table<STATE> {
    /// The slot of a step's key.
    fn slot<'g, 's>(&self, held: &'g Held<'s>, step: &Step<'_>) -> Option<(&'g LockedLine<'s>, usize)> {
        self.locate(self.pair(held, step), self.home(step.fingerprint))
    }

    fn pair<'g, 's>(&self, held: &'g Held<'s>, step: &Step<'_>) -> Pair<'g, 's> {
        let home = self.home(step.fingerprint);
        let away = self.other(home);
        Pair { home: held.line(step.shelf, home.line), away: held.line(step.shelf, away.line) }
    }
}

impl<const STATE: usize> Shelf for Table<STATE>
where
    MeterKernel: Pack<STATE>,
{
    fn numbers(&self, fingerprint: u64) -> [usize; 2] {
        let home = self.home(fingerprint);
        [home.line, self.other(home).line]
    }

    fn lock(&self, number: usize) -> Lock<'_> {
        Lock::Line(Table::lock(self, number))
    }

    fn has(&self, held: &mut Held<'_>, step: &Step<'_>) -> bool {
        self.slot(held, step).is_some()
    }

    fn claim(&self, held: &mut Held<'_>, step: &Step<'_>, now: Micros) -> Result<(), Full> {
        let home = self.home(step.fingerprint);
        let (line, slot) = Table::claim(self, self.pair(held, step), home, now, step.label)?;
        // Until it is decided what to write here, the next step must not take
        // the slot too.
        Self::write(line, slot, [u64::MAX; STATE]);
        Ok(())
    }

    fn load(&self, held: &mut Held<'_>, step: &Step<'_>) -> MeterState {
        let slot = self.slot(held, step);
        slot.map_or(MeterState::Fresh, |(line, slot)| step.check.meter().kernel().unpack(Self::read(line, slot)))
    }

    fn save(&self, held: &mut Held<'_>, step: &Step<'_>, part: &mut Part<'_>) {
        if let (true, Some((line, slot))) = (part.changed, self.slot(held, step)) {
            Self::write(line, slot, part.meter.kernel().pack(&part.state));
        }
    }

    fn give_up(&self, held: &mut Held<'_>, step: &Step<'_>) {
        if let Some((line, slot)) = self.slot(held, step) {
            Self::vacate(line, slot);
        }
    }

    fn recall(&self, fingerprint: u64, now: Micros) -> Micros {
        Table::recall(self, self.home(fingerprint), now)
    }
}

impl Shelf for Heap {
    fn numbers(&self, fingerprint: u64) -> [usize; 2] {
        [self.bucket(fingerprint); 2]
    }

    fn lock(&self, number: usize) -> Lock<'_> {
        Lock::Bucket(Heap::lock(self, number))
    }

    fn has(&self, held: &mut Held<'_>, step: &Step<'_>) -> bool {
        let bucket = held.bucket(step.shelf, self.bucket(step.fingerprint));
        Heap::find(bucket, step.fingerprint).is_some()
    }

    fn claim(&self, held: &mut Held<'_>, step: &Step<'_>, now: Micros) -> Result<(), Full> {
        let number = self.bucket(step.fingerprint);
        let bucket = held.bucket(step.shelf, number);
        self.make_room(bucket, now)?;
        if let MeterKernel::Heap(kernel) = step.check.meter().kernel() {
            let mut entry = Entry::new(step.fingerprint, kernel, AnyState::Fresh, step.label);
            entry.set(kernel, AnyState::Fresh, Micros::MAX);
            bucket.push(entry);
        }
        self.sweep(number, bucket, now);
        Ok(())
    }

    fn load(&self, held: &mut Held<'_>, step: &Step<'_>) -> MeterState {
        let bucket = held.bucket(step.shelf, self.bucket(step.fingerprint));
        match (Heap::find(bucket, step.fingerprint), step.check.meter().kernel()) {
            (Some(entry), MeterKernel::Heap(kernel)) => MeterState::Heap(entry.take(kernel)),
            (_, _) => MeterState::Fresh,
        }
    }

    fn save(&self, held: &mut Held<'_>, step: &Step<'_>, part: &mut Part<'_>) {
        let bucket = held.bucket(step.shelf, self.bucket(step.fingerprint));
        let entry = Heap::find(bucket, step.fingerprint);
        if let (Some(entry), MeterKernel::Heap(kernel)) = (entry, step.check.meter().kernel()) {
            let state = part.state.heap_mut();
            let until = if part.changed { part.forget_at } else { entry.until() };
            entry.set(kernel, std::mem::take(state), until);
        }
    }

    fn give_up(&self, held: &mut Held<'_>, step: &Step<'_>) {
        let bucket = held.bucket(step.shelf, self.bucket(step.fingerprint));
        bucket.retain(|entry| entry.fingerprint() != step.fingerprint);
    }

    fn recall(&self, _: u64, now: Micros) -> Micros {
        Heap::recall(self, now)
    }
}
