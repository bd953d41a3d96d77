//! States as words, so that a key and its state fit side by side in a line.
//!
//! The first word leads with the instant from which the state matters no
//! more, and is greater than `now << FRACTION_BITS` exactly while it does:
//! that is all a table ever knows of a state.

use super::table::FRACTION_BITS;
use crate::kernel::{Bucket, BucketState, Kernel, Style, Window, WindowState};
use crate::store::{MeterKernel, MeterState};
use crate::time::Micros;

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
    /// Whether a state fits into one word: a fixed window with a small count,
    /// on states that no larger one charges.
    #[inline(always)]
    pub(crate) fn is_narrow(&self) -> bool {
        self.style() != Style::Sliding && self.ceiling() <= FRACTION && !self.is_of_any_count()
    }
}

impl Pack<1> for Window {
    /// The last microsecond of the window, and the count.
    #[inline(always)]
    fn pack(&self, state: &WindowState) -> [u64; 1] {
        match state.current {
            0 => [0],
            current => [(self.forget_at(state).get() - 1) << FRACTION_BITS | current],
        }
    }

    #[inline(always)]
    fn unpack(&self, [word]: [u64; 1]) -> WindowState {
        match word & FRACTION {
            0 => WindowState::default(),
            current => WindowState { start: self.start_of(word >> FRACTION_BITS), current, previous: 0 },
        }
    }
}

impl Pack<3> for Window {
    fn pack(&self, state: &WindowState) -> [u64; 3] {
        // A period of the calendar has no last one that counts, but not the length of every other.
        let third = if let Style::Calendar(_) = self.style() { state.start } else { state.previous };
        [self.forget_at(state).get() << FRACTION_BITS, state.current, third]
    }

    /// The start follows from when the state is to be forgotten. The words may
    /// be those of a forged snapshot: whatever they are, no count is above the
    /// bound.
    fn unpack(&self, [until, current, third]: [u64; 3]) -> WindowState {
        let (current, previous) = (current.min(self.most()), third.min(self.ceiling()));
        if let Style::Calendar(_) = self.style() {
            let start = if current == 0 { 0 } else { third.min(Micros::LATEST.get()) };
            return WindowState { start, current, previous: 0 };
        }
        let until = (until >> FRACTION_BITS) / self.tick();
        let end = match (self.style(), current, previous) {
            (_, 0, 0) => return WindowState::default(),
            (Style::Sliding, 1.., _) => until.saturating_sub(self.period_in_ticks()),
            _ => until,
        };
        WindowState { start: self.start_of(end.saturating_sub(1)), current, previous }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::store::Meter;

    /// A bucket whose tick drains so much; the period is prime to each of them.
    fn bucket(drain: u64) -> Bucket {
        Bucket::new(drain, 1_000_003, 1, false).expect("a bucket")
    }

    #[test]
    fn a_state_is_one_word_if_every_fraction_and_count_fits_into_eleven_bits() {
        assert_eq!([1, 2_047, 2_048, 2_049].map(|drain| bucket(drain).is_narrow()), [true, true, true, false]);
        let window = |count, style| Window::new(count, 1_000_000, style);
        let fixed = [1, 2_047, 2_048].map(|count| window(count, Style::FixedFromEpoch).is_narrow());
        assert_eq!(fixed, [true, true, false]);
        assert!(window(2_047, Style::FixedFromFirst).is_narrow() && !window(1, Style::Sliding).is_narrow());
        assert!(!window(1, Style::FixedFromEpoch).of_any_count().is_narrow(), "a larger count has the same states");
        // Time in ticks of more than a microsecond has no room beside it.
        let coarse = Bucket::new(2_047, 1_000_000_000_000, 10_000, false).expect("a bucket");
        assert!(coarse.tick() > 1 && !coarse.is_narrow());
    }

    #[test]
    fn states_come_back_as_they_were() {
        let now = 1_700_000_000_000_000;
        for drain in [1, 2_047, 2_048] {
            let state = BucketState { at: now, fraction: drain - 1 };
            let narrow: [u64; 1] = bucket(drain).pack(&state);
            let wide: [u64; 3] = bucket(drain).pack(&state);
            assert_eq!((bucket(drain).unpack(narrow), bucket(drain).unpack(wide)), (state, state));
            let until = bucket(drain).forget_at(&state).get();
            for word in [narrow[0], wide[0]] {
                assert!(word > (until - 1) << FRACTION_BITS && word <= until << FRACTION_BITS);
            }
        }
        for style in [Style::FixedFromEpoch, Style::FixedFromFirst, Style::Sliding] {
            let window = Window::new(2_047, 60_000_000, style);
            for (current, previous) in [(1, 0), (2_047, 0), (0, 5), (7, 5)] {
                let previous = if style == Style::Sliding { previous } else { 0 };
                let start = if current + previous > 0 { now - now % 60_000_000 } else { 0 };
                let state = WindowState { start, current, previous };
                let wide: [u64; 3] = window.pack(&state);
                assert_eq!(window.unpack(wide), state, "{style:?}");
                assert_eq!(wide[0], window.forget_at(&state).get() << FRACTION_BITS);
                if style != Style::Sliding {
                    let narrow: [u64; 1] = window.pack(&state);
                    assert_eq!(window.unpack(narrow), state);
                    let until = window.forget_at(&state).get();
                    assert!(narrow == [0] || narrow[0] > (until - 1) << FRACTION_BITS);
                    assert!(narrow[0] <= until << FRACTION_BITS);
                }
            }
        }
    }

    #[test]
    fn any_words_unpack_to_a_state() {
        for style in [Style::FixedFromEpoch, Style::Sliding] {
            let window = Window::new(10, 60_000_000, style);
            let narrow: WindowState = window.unpack([5 << FRACTION_BITS | 3]);
            assert_eq!(narrow, WindowState { start: 0, current: 3, previous: 0 });
            let wide: WindowState = window.unpack([5 << FRACTION_BITS, u64::MAX, 11]);
            assert_eq!(wide, WindowState { start: 0, current: window.most(), previous: 10 });
        }
    }

    #[test]
    fn nothing_of_a_log_is_in_words() {
        let meter = Meter::new(Name::literal("log"), Limit::sliding_log(1, Duration::from_secs(1)));
        let mut state = MeterState::Fresh;
        meter.kernel().charge(&mut state, Micros::new(5), 1);
        let (narrow, wide): ([u64; 1], [u64; 3]) = (meter.kernel().pack(&state), meter.kernel().pack(&state));
        assert_eq!((narrow, wide), ([0], [0; 3]));
    }
}
