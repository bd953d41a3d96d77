//! States as words, so that a key and its state fit side by side in a line.
//!
//! The first word leads with the instant from which the state matters no
//! more, and is greater than `now << FRACTION_BITS` exactly while it does:
//! that is all a table ever knows of a state.

use super::table::FRACTION_BITS;
use crate::kernel::{Bucket, BucketState, Kernel, Style, Window, WindowState};
use crate::store::{MeterKernel, MeterState};

/// A kernel whose state fits into `STATE` words.
pub(super) trait Pack<const STATE: usize>: Kernel {
    fn pack(&self, state: &Self::State) -> [u64; STATE];
    fn unpack(&self, words: [u64; STATE]) -> Self::State;
}

const FRACTION: u64 = (1 << FRACTION_BITS) - 1;

impl Bucket {
    /// Whether a state fits into one word: time in microseconds, and room for
    /// every fraction.
    #[inline(always)]
    pub(crate) fn is_narrow(&self) -> bool {
        self.tick() == 1 && self.drain() <= FRACTION + 1
    }
}

impl Pack<1> for Bucket {
    #[inline(always)]
    fn pack(&self, state: &BucketState) -> [u64; 1] {
        [state.at << FRACTION_BITS | state.fraction]
    }

    #[inline(always)]
    fn unpack(&self, [word]: [u64; 1]) -> BucketState {
        BucketState { at: word >> FRACTION_BITS, fraction: word & FRACTION }
    }
}

impl Pack<3> for Bucket {
    fn pack(&self, state: &BucketState) -> [u64; 3] {
        [self.forget_at(state).get() << FRACTION_BITS, state.at, state.fraction]
    }

    fn unpack(&self, [_, at, fraction]: [u64; 3]) -> BucketState {
        BucketState { at, fraction }
    }
}

impl Window {
    /// Whether a state fits into one word: a fixed window with a small count.
    #[inline(always)]
    pub(crate) fn is_narrow(&self) -> bool {
        self.style() != Style::Sliding && self.capacity() <= FRACTION
    }
}

impl Pack<1> for Window {
    /// The last microsecond of the window, and the count.
    #[inline(always)]
    fn pack(&self, state: &WindowState) -> [u64; 1] {
        match state.current {
            0 => [0],
            current => [(state.start + self.period() - 1) << FRACTION_BITS | current],
        }
    }

    #[inline(always)]
    fn unpack(&self, [word]: [u64; 1]) -> WindowState {
        match word & FRACTION {
            0 => WindowState::default(),
            current => WindowState { start: (word >> FRACTION_BITS) + 1 - self.period(), current, previous: 0 },
        }
    }
}

impl Pack<3> for Window {
    fn pack(&self, state: &WindowState) -> [u64; 3] {
        [self.forget_at(state).get() << FRACTION_BITS, state.current, state.previous]
    }

    /// The start follows from when the state is to be forgotten.
    fn unpack(&self, [until, current, previous]: [u64; 3]) -> WindowState {
        let windows = match (self.style(), current, previous) {
            (_, 0, 0) => return WindowState::default(),
            (Style::Sliding, 1.., _) => 2,
            (Style::Sliding, 0, _) | (Style::FixedFromEpoch | Style::FixedFromFirst, ..) => 1,
        };
        let start = (until >> FRACTION_BITS) - windows * self.period();
        WindowState { start: start / self.tick(), current, previous }
    }
}

/// Kernels whose state lives on the heap keep nothing in words.
impl<const STATE: usize> Pack<STATE> for MeterKernel
where
    Bucket: Pack<STATE>,
    Window: Pack<STATE>,
{
    fn pack(&self, state: &MeterState) -> [u64; STATE] {
        match self {
            MeterKernel::Bucket(kernel) => kernel.pack(&state.bucket()),
            MeterKernel::Window(kernel) => kernel.pack(&state.window()),
            MeterKernel::Heap(_) => [0; STATE],
        }
    }

    fn unpack(&self, words: [u64; STATE]) -> MeterState {
        match self {
            MeterKernel::Bucket(kernel) => MeterState::Bucket(kernel.unpack(words)),
            MeterKernel::Window(kernel) => MeterState::Window(kernel.unpack(words)),
            MeterKernel::Heap(_) => MeterState::Fresh,
        }
    }
}
