//! Keys and their states side by side, in a fixed number of cache lines.
//!
//! A slot is a tag (62 bits of the key's fingerprint, and whether this is its
//! second line) and `STATE` words, the first of which says until when the
//! state matters. A key may sit in either of two lines. Three ideas:
//!
//! - *A state whose time has come is a free slot.* Forgetting takes no pass
//!   and no thread: the next key that needs the slot writes over it.
//! - *Every access locks its line*, and the home line stays locked until the key
//!   is found in the other line or has a slot, so two threads can never both find
//!   a key absent. Only a refusal can do with a [glance](Table::glance).
//! - *The line's number and the tag give the whole fingerprint*, so two keys
//!   are taken for one only if all 64 bits of their keyed hashes agree.

mod way;

use super::labels::{Label, Labels, Listed};
use super::line_lock::{Glance, LockedLine};
use super::lines::{Lines, WORDS, prefetch};
use super::overflow::{Full, Overflow};
use crate::sync::{AtomicU64, Ordering};
use crate::time::Micros;

/// Marks a tag in the second of its key's two lines. The bit below it is the
/// line's lock.
const AWAY: u64 = 2;
/// Where the fingerprint begins in a tag; its upper two bits have no room.
const TAG_SHIFT: u32 = 2;
/// The lowest bit of a tag's word is not the tag's. In the first slot it is
/// the line's lock, in the second it says that a key of this line sits, or
/// sat, in its other line: where it is not set, lookups skip that line. In
/// the third it says that the latest charge was refused.
const NOT_TAG: u64 = 1;
/// The slot whose lowest bit says so.
const REFUSED: usize = 2;

/// The bits below the time in a state's first word.
pub(super) const FRACTION_BITS: u32 = 11;

/// A page of memory: to look a key up in its second line costs no second
/// look-up of an address.
const MAX_BLOCK: usize = 64;

/// Lines whose numbers agree in this many values share a record of what was
/// forgotten and taken in them.
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };

/// A clock that goes back by more than this finds forgotten keys fresh.
pub(super) const MAX_CLOCK_STEP_BACK: u64 = 3_600_000_000;

pub(super) struct Table<const STATE: usize> {
    lines: Lines,
    /// The two lines of a key lie in one block of this many.
    block: usize,
    stripes: Box<[Stripe; STRIPES]>,
    labels: Option<Labels>,
    overflow: Overflow,
    evicted: AtomicU64,
}

/// What is remembered of the lines whose numbers agree.
#[repr(align(64))]
#[derive(Default)]
struct Stripe {
    /// Until when, at the latest, a state mattered that was written over.
    forgotten: AtomicU64,
    /// How often a slot was given to a key.
    taken: AtomicU64,
}

/// One of the two places where a key may sit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) tag: u64,
}

/// The home of a key, on its way.
#[derive(Clone, Copy)]
pub(super) struct Approach<'t> {
    pub(super) home: Place,
    pub(super) line: &'t [AtomicU64; WORDS],
}

/// A key's two lines, locked.
#[derive(Clone, Copy)]
pub(super) struct Pair<'g, 't> {
    pub(super) home: &'g LockedLine<'t>,
    pub(super) away: &'g LockedLine<'t>,
}

/// Where a key is, and what is locked for it.
pub(super) enum Found<'t> {
    /// In this slot.
    Slot(LockedLine<'t>, usize),
    /// Nowhere, and this slot of its home line is free: what nearly every new
    /// key comes to.
    Free(LockedLine<'t>, usize),
    /// Nowhere, and its home line is full, or was.
    Absent,
}

impl<const STATE: usize> Table<STATE> {
    const SLOTS: usize = WORDS / (STATE + 1);

    /// A table that `keys` fit into.
    pub(super) fn new(keys: usize, overflow: Overflow, listed: bool) -> Table<STATE> {
        // Three slots more for every eight keys: then one key in nine has to
        // sit in its second line, and one in four thousand finds no room at
        // all. With two slots to a line it takes twice as many slots as keys,
        // and it is one in sixteen hundred.
        let spare = if Self::SLOTS >= 4 { keys / 8 * 3 } else { keys };
        let lines = (keys + spare).div_ceil(Self::SLOTS).max(4);
        Table::with_lines(lines, overflow, listed)
    }

    fn with_lines(lines: usize, overflow: Overflow, listed: bool) -> Table<STATE> {
        let block = lines.next_power_of_two().min(MAX_BLOCK);
        let lines = lines.next_multiple_of(block);
        Table {
            lines: Lines::zeroed(lines),
            block,
            stripes: Box::new(std::array::from_fn(|_| Stripe::default())),
            labels: listed.then(|| Labels::new(lines * Self::SLOTS)),
            overflow,
            evicted: AtomicU64::new(0),
        }
    }

    /// How many keys have made room for others before their time.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Asks for the lines of a key before they are needed.
    #[inline(always)]
    pub(super) fn approach(&self, fingerprint: u64) -> Approach<'_> {
        let approach = self.reach(fingerprint);
        prefetch(approach.line);
        prefetch(self.lines.line(self.other(approach.home).line));
        approach
    }

    #[inline(always)]
    pub(super) fn reach(&self, fingerprint: u64) -> Approach<'_> {
        let home = self.home(fingerprint);
        Approach { home, line: self.lines.line(home.line) }
    }

    /// Finds a key and locks its lines, as far as they are needed.
    #[inline(always)]
    pub(super) fn look_up(&self, home: Place, now: Micros) -> Found<'_> {
        let home_line = self.lock(home.line);
        match Self::find(&home_line, home.tag) {
            Some(slot) => Found::Slot(home_line, slot),
            None => self.look_further(home_line, home, now),
        }
    }

    /// [`look_up`](Table::look_up) for a key that is not in its home line.
    #[inline(always)]
    pub(super) fn look_further<'t>(&'t self, home_line: LockedLine<'t>, home: Place, now: Micros) -> Found<'t> {
        if let Some(slot) = Self::free_slot(&home_line, now) {
            return Found::Free(home_line, slot);
        }
        let (home_line, away_line) = self.lock_other(home_line, home);
        // The home line may have been unlocked in between: look there again.
        match (Self::find(&home_line, home.tag), Self::find(&away_line, home.tag | AWAY)) {
            (Some(slot), _) => Found::Slot(home_line, slot),
            (None, Some(slot)) => Found::Slot(away_line, slot),
            (None, None) => Found::Absent,
        }
    }

    /// Whether the key of a home line has no state that matters at `now`, as far as
    /// that line tells.
    pub(super) fn is_absent(line: &LockedLine<'_>, tag: u64, now: Micros) -> bool {
        match Self::find(line, tag) {
            Some(slot) => Self::until(line, slot) <= now.get() << FRACTION_BITS,
            None => !Self::has_sent_away(line),
        }
    }

    /// A free slot of the home line of a key that is not there, unless the key may be in
    /// its other line.
    #[inline(always)]
    pub(super) fn free_slot(line: &LockedLine<'_>, now: Micros) -> Option<usize> {
        if Self::has_sent_away(line) {
            return None;
        }
        let (slot, until) = Self::oldest(line);
        (until <= now.get() << FRACTION_BITS).then_some(slot)
    }

    /// Gives the free slot of a home line to its key, with this state.
    #[inline(always)]
    pub(super) fn fill_slot(
        &self,
        line: &LockedLine<'_>,
        home: Place,
        slot: usize,
        label: Option<Label<'_>>,
        now: Micros,
        state: [u64; STATE],
    ) {
        self.take(line, home, slot, label, now.get() << FRACTION_BITS);
        Self::write(line, slot, state);
    }

    /// Gives a key this state, in its slot or in one that is taken for it.
    pub(super) fn enter(
        &self,
        home: Place,
        now: Micros,
        label: Option<Label<'_>>,
        state: [u64; STATE],
    ) -> Result<(), Full> {
        let (home_line, away_line) = self.lock_other(self.lock(home.line), home);
        let pair = Pair { home: &home_line, away: &away_line };
        let (line, slot) = self.locate(pair, home).map_or_else(|| self.claim(pair, home, now, label), Ok)?;
        Self::write(line, slot, state);
        Ok(())
    }

    /// Where the key of `home` sits.
    pub(super) fn locate<'g, 't>(&self, pair: Pair<'g, 't>, home: Place) -> Option<(&'g LockedLine<'t>, usize)> {
        let in_home = Self::find(pair.home, home.tag).map(|slot| (pair.home, slot));
        in_home.or_else(|| Self::find(pair.away, home.tag | AWAY).map(|slot| (pair.away, slot)))
    }

    /// Takes a slot for the key of `home`, which sits nowhere yet: a free one
    /// in its lines, or one from which another key can move away. The slot's
    /// state is still the old one.
    pub(super) fn claim<'g, 't>(
        &self,
        pair: Pair<'g, 't>,
        home: Place,
        now: Micros,
        label: Option<Label<'_>>,
    ) -> Result<(&'g LockedLine<'t>, usize), Full> {
        let free = now.get() << FRACTION_BITS;
        let places = [(pair.home, home), (pair.away, self.other(home))];
        let oldest = places.map(|(line, place)| (line, place, Self::oldest(line)));
        for (line, place, (slot, until)) in oldest {
            if until <= free {
                self.take(line, place, slot, label, free);
                if place.tag & AWAY != 0 {
                    Self::note_sent_away(pair.home);
                }
                return Ok((line, slot));
            }
        }
        for (line, place) in places {
            if let Some(slot) = (0..Self::SLOTS).find(|slot| self.move_away(line, place.line, *slot, free)) {
                self.take(line, place, slot, label, free);
                Self::note_sent_away(pair.home);
                return Ok((line, slot));
            }
        }
        let [at_home, away] = oldest;
        let (line, place, (slot, until)) = if away.2.1 < at_home.2.1 { away } else { at_home };
        if self.overflow != Overflow::EvictOldest {
            return Err(Full { until: Micros::new(until.div_ceil(1 << FRACTION_BITS)) });
        }
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.take(line, place, slot, label, free);
        Self::note_sent_away(pair.home);
        Ok((line, slot))
    }

    /// Puts the key's tag on a slot whose state is given up.
    #[inline(always)]
    fn take(&self, line: &LockedLine<'_>, place: Place, slot: usize, label: Option<Label<'_>>, free: u64) {
        let until = Self::until(line, slot);
        let stripe = self.stripe(place.line);
        if until <= free {
            let until = until.div_ceil(1 << FRACTION_BITS);
            if until > stripe.forgotten.load(Ordering::Relaxed) {
                stripe.forgotten.fetch_max(until, Ordering::Relaxed);
            }
        }
        // For readers that glance at the line meanwhile.
        stripe.taken.fetch_add(1, Ordering::Release);
        let word = slot * (STATE + 1);
        line.set(word, place.tag | line.get(word) & NOT_TAG);
        if let Some(labels) = &self.labels {
            labels.put(place.line * Self::SLOTS + slot, label);
        }
    }

    /// Leaves a slot that was [taken](Table::take), and to which nothing was charged.
    pub(super) fn vacate(line: &LockedLine<'_>, slot: usize) {
        let word = slot * (STATE + 1);
        line.set(word, line.get(word) & NOT_TAG);
        Self::write(line, slot, [0; STATE]);
    }

    /// Moves the key in `slot` to its other line, if that has a free slot.
    fn move_away(&self, from: &LockedLine<'_>, line: usize, slot: usize, free: u64) -> bool {
        let to = self.other(Place { line, tag: Self::tag(from, slot) });
        // A line that we hold ourselves has no room: that trying it fails is right.
        let Some(target) = LockedLine::try_lock(self.lines.line(to.line)) else { return false };
        let (room, until) = Self::oldest(&target);
        if until > free {
            return false;
        }
        self.take(&target, to, room, None, free);
        // One of the two is the home of the key that moves; a note too many
        // does no harm.
        Self::note_sent_away(from);
        Self::write(&target, room, Self::read(from, slot));
        if let Some(labels) = &self.labels {
            labels.restore(to.line * Self::SLOTS + room, labels.take(line * Self::SLOTS + slot));
        }
        true
    }

    /// The time for a key that is not here: not before the last moment at
    /// which a state that was written over in its lines could have mattered.
    #[inline]
    pub(super) fn recall(&self, home: Place, now: Micros) -> Micros {
        let forgotten = |line: usize| self.stripe(line).forgotten.load(Ordering::Relaxed);
        let latest = forgotten(home.line).max(forgotten(self.other(home).line));
        if latest > now.get() && latest - now.get() <= MAX_CLOCK_STEP_BACK { Micros::new(latest) } else { now }
    }

    #[inline(always)]
    fn stripe(&self, line: usize) -> &Stripe {
        &self.stripes[line % STRIPES]
    }

    #[inline(always)]
    pub(super) fn lock(&self, line: usize) -> LockedLine<'_> {
        LockedLine::lock(self.lines.line(line))
    }

    /// Locks the other line of the key of `home` too. Lines are waited for in
    /// the order of their numbers only.
    fn lock_other<'t>(&'t self, home_line: LockedLine<'t>, home: Place) -> (LockedLine<'t>, LockedLine<'t>) {
        let other = self.other(home).line;
        if other > home.line {
            return (home_line, self.lock(other));
        }
        if let Some(other_line) = LockedLine::try_lock(self.lines.line(other)) {
            return (home_line, other_line);
        }
        drop(home_line);
        let other_line = self.lock(other);
        (self.lock(home.line), other_line)
    }

    #[inline(always)]
    pub(super) fn home(&self, fingerprint: u64) -> Place {
        Place { line: scale(fingerprint, self.lines.count()), tag: fingerprint << TAG_SHIFT }
    }

    /// The other place of the key that sits, or would sit, in `place`: an odd
    /// number of lines away, so never the same. The other of the other is the
    /// first.
    #[inline(always)]
    pub(super) fn other(&self, place: Place) -> Place {
        let distance = ((place.tag >> TAG_SHIFT) as usize | 1) & (self.block - 1);
        Place { line: place.line ^ distance, tag: place.tag ^ AWAY }
    }

    /// The fingerprint of the key that sits in `place`.
    fn fingerprint(&self, place: Place) -> u64 {
        let home = if place.tag & AWAY == 0 { place } else { self.other(place) };
        // A line's fingerprints are neighbours: the two bits that the tag
        // lacks are those that lead here.
        let candidates = (0..4).map(|upper| upper << (64 - TAG_SHIFT) | home.tag >> TAG_SHIFT);
        candidates.into_iter().find(|fingerprint| self.home(*fingerprint).line == home.line).unwrap_or_default()
    }

    /// Visits every key whose state matters at `now`.
    pub(super) fn for_each(&self, now: Micros, mut visit: impl FnMut(u64, [u64; STATE], Option<Listed>)) {
        let mut found = Vec::new();
        for first in (0..self.lines.count()).step_by(self.block) {
            // A key moves within its block: with the whole block locked, each
            // key is seen once.
            let lines: Vec<_> = (first..first + self.block).map(|number| (number, self.lock(number))).collect();
            for (number, line) in &lines {
                for slot in (0..Self::SLOTS).filter(|slot| Self::until(line, *slot) > now.get() << FRACTION_BITS) {
                    let place = Place { line: *number, tag: Self::tag(line, slot) };
                    let label = self.labels.as_ref().and_then(|labels| labels.get(number * Self::SLOTS + slot));
                    found.push((self.fingerprint(place), Self::read(line, slot), label));
                }
            }
            drop(lines);
            found.drain(..).for_each(|(fingerprint, state, label)| visit(fingerprint, state, label));
        }
    }

    /// The slot with this tag. All are compared before any branch is taken:
    /// which one it is cannot be predicted, and to mispredict it when the line
    /// arrives late costs more than to compare four.
    #[inline(always)]
    pub(super) fn find(line: &Glance<'_>, tag: u64) -> Option<usize> {
        let mut found = 0_u32;
        for slot in 0..Self::SLOTS {
            // A locked line's first word comes without its lock, and only the words of
            // the second and third slot have another bit that is not the tag's.
            let word = line.get(slot * (STATE + 1));
            let word = if slot == 1 || slot == REFUSED { word & !NOT_TAG } else { word };
            found |= u32::from(word == tag) << slot;
        }
        (found != 0).then(|| found.trailing_zeros() as usize % Self::SLOTS)
    }

    /// [`find`](Table::find) for a tag that is nearly always in the first slot.
    #[inline(always)]
    pub(super) fn find_in_order(line: &Glance<'_>, tag: u64) -> Option<usize> {
        if line.get(0) == tag { Some(0) } else { Self::find(line, tag) }
    }

    #[inline(always)]
    fn tag(line: &Glance<'_>, slot: usize) -> u64 {
        line.get(slot * (STATE + 1)) & !NOT_TAG
    }

    #[inline]
    fn has_sent_away(line: &Glance<'_>) -> bool {
        line.get(STATE + 1) & NOT_TAG != 0
    }

    #[inline]
    fn note_sent_away(line: &LockedLine<'_>) {
        line.set(STATE + 1, line.get(STATE + 1) | NOT_TAG);
    }

    /// The slot whose state matters least long, and until when.
    #[inline]
    fn oldest(line: &Glance<'_>) -> (usize, u64) {
        let mut oldest = (0, Self::until(line, 0));
        for slot in 1..Self::SLOTS {
            let until = Self::until(line, slot);
            if until < oldest.1 {
                oldest = (slot, until);
            }
        }
        oldest
    }

    fn until(line: &Glance<'_>, slot: usize) -> u64 {
        line.get(slot * (STATE + 1) + 1)
    }

    #[inline(always)]
    pub(super) fn read(line: &Glance<'_>, slot: usize) -> [u64; STATE] {
        std::array::from_fn(|word| line.get(slot * (STATE + 1) + 1 + word))
    }

    #[inline(always)]
    pub(super) fn write(line: &LockedLine<'_>, slot: usize, state: [u64; STATE]) {
        for (word, value) in state.into_iter().enumerate() {
            line.set(slot * (STATE + 1) + 1 + word, value);
        }
    }
}

impl Table<1> {
    /// The state of a key that sits in its home line, as seen without locking
    /// the line; `None` if another thread is in the way.
    ///
    /// The tag and the state are seen one after the other, so it must be
    /// certain that the slot was not given to another key in between. A
    /// thread that does so locks the line, then counts, then writes: if the line
    /// was not locked before and the count is the same afterwards, none has. The
    /// line must not be locked afterwards either, because a check may change
    /// several states at once: no reader may see one changed and another not.
    #[inline(always)]
    pub(super) fn glance(&self, approach: Approach<'_>) -> Option<[u64; 1]> {
        let taken = &self.stripe(approach.home.line).taken;
        let before = taken.load(Ordering::Acquire);
        let line = Glance::at(approach.line)?;
        let state = Self::read(&line, Self::find(&line, approach.home.tag)?);
        (line.is_still_unlocked() && taken.load(Ordering::Relaxed) == before).then_some(state)
    }

    /// Whether the latest charge in this line was refused, so that it is worth
    /// a glance.
    #[inline(always)]
    pub(super) fn has_refused(line: &[AtomicU64; WORDS]) -> bool {
        line[REFUSED * 2].load(Ordering::Relaxed) & NOT_TAG != 0
    }

    #[inline(always)]
    pub(super) fn note_refused(line: &LockedLine<'_>, refused: bool) {
        let word = line.get(REFUSED * 2);
        if (word & NOT_TAG != 0) != refused {
            line.set(REFUSED * 2, word ^ NOT_TAG);
        }
    }
}

/// Maps a uniform 64-bit number to `0..count`, evenly.
#[inline]
fn scale(number: u64, count: usize) -> usize {
    ((u128::from(number) * count as u128) >> 64) as usize
}

#[cfg(all(test, not(loom)))]
mod tests;
