//! Cache lines of eight words, zeroed and aligned, and the prefetch.
//!
//! The only `unsafe` of the crate, for two measured gains: memory that the
//! operating system hands out zeroed is not touched until it is used, and a
//! line asked for before the clock is read arrives while it is.
#![allow(unsafe_code)]

use crate::sync::AtomicU64;

/// Words in a line of 64 bytes.
pub(super) const WORDS: usize = 8;

/// A line: aligned, so that it is one for the processor too.
#[repr(C, align(64))]
struct Line([AtomicU64; WORDS]);

/// A fixed number of lines, zero to begin with.
pub(super) struct Lines(Zeroed);

impl Lines {
    pub(super) fn zeroed(count: usize) -> Lines {
        Lines(Zeroed::new(count))
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.0.lines().len()
    }

    #[inline(always)]
    pub(super) fn line(&self, index: usize) -> &[AtomicU64; WORDS] {
        &self.0.lines()[index].0
    }
}

/// Asks for a line to be brought near; says nothing about its content.
#[inline(always)]
pub(super) fn prefetch(line: &[AtomicU64; WORDS]) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads nothing that the program
        // could see and faults on no address. SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = line;
}

/// Lines in memory that the operating system hands out zeroed.
#[cfg(not(loom))]
struct Zeroed {
    allocation: std::ptr::NonNull<u8>,
    /// The first aligned line in the allocation.
    first: std::ptr::NonNull<Line>,
    count: usize,
}

#[cfg(not(loom))]
impl Zeroed {
    /// The allocator zeroes by not touching only what needs no alignment
    /// beyond its own, so a line more than needed is asked for instead.
    fn layout(count: usize) -> std::alloc::Layout {
        let bytes = (count + 1).checked_mul(size_of::<Line>()).expect("the caller bounds the number of keys");
        std::alloc::Layout::from_size_align(bytes, align_of::<u64>()).expect("the caller bounds the number of keys")
    }

    fn new(count: usize) -> Zeroed {
        let layout = Zeroed::layout(count);
        // SAFETY: the layout has at least the one spare line, so it is not empty.
        let allocation = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(allocation) = std::ptr::NonNull::new(allocation) else { std::alloc::handle_alloc_error(layout) };
        // SAFETY: the next aligned address is less than a line away, and the
        // allocation is a line longer than needed.
        let first = unsafe { allocation.add(allocation.align_offset(align_of::<Line>())) };
        Zeroed { allocation, first: first.cast(), count }
    }

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        // SAFETY: `count` lines from the first one on lie in the allocation,
        // which lives as long as `self`. Every bit pattern is a valid
        // `AtomicU64`, and zero is what they are initialised to. Lines are only
        // ever shared, never borrowed mutably.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

#[cfg(not(loom))]
impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and not freed since.
        unsafe { std::alloc::dealloc(self.allocation.as_ptr(), Zeroed::layout(self.count)) };
    }
}

// SAFETY: `Zeroed` owns its allocation, through which only atomics are reached.
#[cfg(not(loom))]
unsafe impl Send for Zeroed {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Zeroed {}

/// The model checker's atomics are no plain words.
#[cfg(loom)]
struct Zeroed(Box<[Line]>);

#[cfg(loom)]
impl Zeroed {
    fn new(count: usize) -> Zeroed {
        Zeroed((0..count).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))).collect())
    }

    fn lines(&self) -> &[Line] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn lines_are_zeroed_aligned_and_apart() {
        for count in [1, 2, 7] {
            let lines = Lines::zeroed(count);
            for index in 0..count {
                assert_eq!(lines.line(index).as_ptr() as usize % 64, 0);
                for word in lines.line(index) {
                    assert_eq!(word.swap(index as u64 + 1, Ordering::Relaxed), 0);
                }
                prefetch(lines.line(index));
            }
        }
    }
}
