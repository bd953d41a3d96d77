//! A lock inside each line: one bit of its first word.
//!
//! The lock is in the line because the line must be fetched anyway, and is
//! taken by one atomic instruction and released by a plain store. Critical
//! sections are a few dozen nanoseconds, so waiters spin, then yield to
//! its holder. Foreign code runs under it in two rare cases: a user's
//! clock, when a state seems to come from the future, and a user's kernel,
//! when it is one of several limits in a check.
//!
//! A reader may glance at a line without locking it, and has to make sure that
//! what it saw belongs together.

use std::cell::Cell;
use std::ops::Deref;

use super::lines::WORDS;
use crate::sync::{AtomicU64, Ordering, spin_loop, yield_now};

/// The bit of the first word that says "locked".
const LOCK: u64 = 1;

/// How often to look again before giving up the processor, each time after
/// twice as long a pause.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };

/// A line as it was at a moment when it was not locked. Its words may
/// change while they are read.
pub(super) struct Glance<'t> {
    words: &'t [AtomicU64; WORDS],
    /// The first word, without the lock bit; of a locked line, as it will be
    /// when unlocked. Kept here because reading back what was just locked is
    /// slow.
    first: Cell<u64>,
}

impl<'t> Glance<'t> {
    /// Looks at a line, unless it is locked.
    #[inline(always)]
    pub(super) fn at(words: &'t [AtomicU64; WORDS]) -> Option<Glance<'t>> {
        let first = words[0].load(Ordering::Acquire);
        (first & LOCK == 0).then(|| Glance { words, first: Cell::new(first) })
    }

    /// The word at `index`, without the lock bit.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> u64 {
        if index == 0 { self.first.get() } else { self.words[index].load(Ordering::Acquire) }
    }

    /// Whether the line is not locked now, and its first word is the same.
    #[inline(always)]
    pub(super) fn is_still_unlocked(&self) -> bool {
        self.words[0].load(Ordering::Acquire) == self.first.get()
    }
}

/// A line that no other thread can write.
pub(super) struct LockedLine<'t>(Glance<'t>);

impl<'t> LockedLine<'t> {
    #[inline(always)]
    pub(super) fn lock(words: &'t [AtomicU64; WORDS]) -> LockedLine<'t> {
        LockedLine::try_lock(words).unwrap_or_else(|| wait_for(words))
    }

    #[inline(always)]
    pub(super) fn try_lock(words: &'t [AtomicU64; WORDS]) -> Option<LockedLine<'t>> {
        let glance = Glance::at(words)?;
        let first = glance.first.get();
        words[0].compare_exchange(first, first | LOCK, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(LockedLine(glance))
    }

    /// Sets the word at `index`; the lowest bit of the first is the lock's.
    /// Who glances at the new word sees all that was done before it.
    #[inline(always)]
    pub(super) fn set(&self, index: usize, word: u64) {
        if index == 0 {
            self.first.set(word & !LOCK);
        } else {
            self.words[index].store(word, Ordering::Release);
        }
    }
}

impl<'t> Deref for LockedLine<'t> {
    type Target = Glance<'t>;

    #[inline(always)]
    fn deref(&self) -> &Glance<'t> {
        &self.0
    }
}

impl Drop for LockedLine<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.words[0].store(self.first.get(), Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn wait_for(words: &[AtomicU64; WORDS]) -> LockedLine<'_> {
    let mut looks = 0;
    loop {
        if let Some(line) = LockedLine::try_lock(words) {
            return line;
        }
        if looks < LOOKS {
            (0..1 << looks).for_each(|_| spin_loop());
            looks += 1;
        } else {
            yield_now();
        }
    }
}
