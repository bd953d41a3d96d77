//! A lock inside each line: one bit of its first word.
//!
//! The lock is in the line because the line must be fetched anyway, and is
//! taken by one atomic instruction and released by a plain store. Critical
//! sections are a few dozen nanoseconds, so waiters spin, then yield to
//! whoever holds it. Foreign code runs under it in two rare cases: a user's
//! clock, when a state seems to come from the future, and a user's kernel,
//! when it is one of several limits in a check.

use std::cell::Cell;

use super::lines::WORDS;
use crate::sync::{AtomicU64, Ordering, spin_loop, yield_now};

/// The bit of the first word that says "locked".
const LOCK: u64 = 1;

/// How often to look again before giving up the processor, each time after
/// twice as long a pause.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };

/// A line that nobody else can read or write.
pub(super) struct LockedLine<'t> {
    words: &'t [AtomicU64; WORDS],
    /// The first word, without the lock bit, as it will be when unlocked: kept
    /// here because reading back what was just locked is slow.
    first: Cell<u64>,
}

impl<'t> LockedLine<'t> {
    #[inline(always)]
    pub(super) fn lock(words: &'t [AtomicU64; WORDS]) -> LockedLine<'t> {
        LockedLine::try_lock(words).unwrap_or_else(|| wait_for(words))
    }

    #[inline(always)]
    pub(super) fn try_lock(words: &'t [AtomicU64; WORDS]) -> Option<LockedLine<'t>> {
        let first = words[0].load(Ordering::Relaxed);
        if first & LOCK != 0 {
            return None;
        }
        words[0].compare_exchange(first, first | LOCK, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(LockedLine { words, first: Cell::new(first) })
    }

    /// The word at `index`, without the lock bit.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> u64 {
        if index == 0 { self.first.get() } else { self.words[index].load(Ordering::Relaxed) }
    }

    /// Sets the word at `index`; the lowest bit of the first is the lock's.
    #[inline(always)]
    pub(super) fn set(&self, index: usize, word: u64) {
        if index == 0 {
            self.first.set(word & !LOCK);
        } else {
            self.words[index].store(word, Ordering::Relaxed);
        }
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
