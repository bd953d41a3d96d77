//! A lock inside each line: one bit of its first word.
//!
//! The lock is in the line because the line must be fetched anyway, and is
//! taken by one atomic instruction and released by a plain store. Critical
//! sections are a few dozen nanoseconds and call no foreign code, so waiters
//! spin, then yield to whoever holds it.

use super::lines::WORDS;
use crate::sync::{AtomicU64, Ordering, spin_loop, yield_now};

/// The bit of the first word that says "locked".
pub(super) const LOCK: u64 = 1 << 63;

/// How often to look again before giving up the processor.
const SPINS: u32 = if cfg!(loom) { 0 } else { 64 };

/// A line that nobody else can read or write.
pub(super) struct LockedLine<'t> {
    words: &'t [AtomicU64; WORDS],
}

impl<'t> LockedLine<'t> {
    #[inline]
    pub(super) fn lock(words: &'t [AtomicU64; WORDS]) -> LockedLine<'t> {
        if words[0].fetch_or(LOCK, Ordering::Acquire) & LOCK != 0 {
            wait_for(&words[0]);
        }
        LockedLine { words }
    }

    #[inline]
    pub(super) fn try_lock(words: &'t [AtomicU64; WORDS]) -> Option<LockedLine<'t>> {
        (words[0].fetch_or(LOCK, Ordering::Acquire) & LOCK == 0).then_some(LockedLine { words })
    }

    /// The word at `index`, without the lock bit.
    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        let word = self.words[index].load(Ordering::Relaxed);
        if index == 0 { word & !LOCK } else { word }
    }

    /// Sets the word at `index`; the first one has only 63 bits.
    #[inline]
    pub(super) fn set(&self, index: usize, word: u64) {
        let word = if index == 0 { word | LOCK } else { word };
        self.words[index].store(word, Ordering::Relaxed);
    }
}

impl Drop for LockedLine<'_> {
    #[inline]
    fn drop(&mut self) {
        // Nobody else writes a locked line's words: those who fail to lock it
        // only set the bit that is set.
        self.words[0].store(self.get(0), Ordering::Release);
    }
}

#[cold]
fn wait_for(word: &AtomicU64) {
    let mut spins = 0;
    loop {
        // Look before trying again: a waiter that only reads leaves the line
        // with the one who works on it.
        if word.load(Ordering::Relaxed) & LOCK == 0 && word.fetch_or(LOCK, Ordering::Acquire) & LOCK == 0 {
            return;
        }
        if spins < SPINS {
            spins += 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}
