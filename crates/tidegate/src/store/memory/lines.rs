//! Cache lines of eight words, zeroed and aligned, and the prefetch.
//!
//! The only `unsafe` of the crate, for two measured gains: memory that the
//! operating system hands out zeroed is not touched until it is used, and a
//! line asked for before the clock is read arrives while it is.
#![allow(unsafe_code)]

use crate::sync::AtomicU64;

/// Words in a line of 64 bytes.
pub(super) const WORDS: usize = 8;

/// A fixed number of zeroed lines.
pub(super) struct Lines {
    words: Box<[AtomicU64]>,
    /// Words before the first aligned line.
    skip: usize,
    count: usize,
}

impl Lines {
    pub(super) fn zeroed(count: usize) -> Lines {
        let words = zeroed_words((count + 1) * WORDS);
        let misaligned = words.as_ptr() as usize % 64;
        let skip = (64 - misaligned) % 64 / size_of::<AtomicU64>().max(1) % WORDS;
        Lines { words, skip, count }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn line(&self, index: usize) -> &[AtomicU64; WORDS] {
        let start = self.skip + index * WORDS;
        self.words[start..start + WORDS].try_into().expect("the slice is as long as a line")
    }

    /// Asks for the line to be brought near; says nothing about its content.
    #[inline]
    pub(super) fn prefetch(&self, index: usize) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line: *const AtomicU64 = self.line(index).as_ptr();
            // SAFETY: a prefetch is a hint: it reads nothing that the program
            // could see and faults on no address. SSE is part of x86-64.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
        let _ = index;
    }
}

#[cfg(not(loom))]
fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) }
    // `vec![0; n]` asks the allocator for zeroed memory and writes none itself.
    let words: *mut [u64] = Box::into_raw(vec![0_u64; count].into_boxed_slice());
    // SAFETY: the pointer comes from a box that was just given up. `AtomicU64`
    // has the size and bit validity of `u64`, always, and its alignment here,
    // as asserted above, so the allocation's layout is the same too.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}

#[cfg(loom)]
fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn lines_are_zeroed_aligned_and_apart() {
        for count in [1, 2, 7, 1_000] {
            let lines = Lines::zeroed(count);
            for index in 0..count {
                assert_eq!(lines.line(index).as_ptr() as usize % 64, 0);
                for word in lines.line(index) {
                    assert_eq!(word.swap(index as u64 + 1, Ordering::Relaxed), 0);
                }
                lines.prefetch(index);
            }
        }
    }
}
