//! Whichever kernel a meter has, as one kernel.

use super::erased::{AnyState, HeapKernel};
use crate::kernel::{Admission, Bucket, BucketState, Charged, Kernel, Reading, Window, WindowState};
use crate::time::Micros;

/// A kernel by what its state needs: a few words, or the heap.
#[derive(Clone)]
pub(crate) enum MeterKernel {
    Bucket(Bucket),
    Window(Window),
    Heap(HeapKernel),
}

/// The state of a meter's kernel.
#[derive(Default)]
pub(crate) enum MeterState {
    /// The default one, of whichever kernel.
    #[default]
    Fresh,
    Bucket(BucketState),
    Window(WindowState),
    Heap(AnyState),
}

impl MeterState {
    pub(crate) fn bucket(&self) -> BucketState {
        if let MeterState::Bucket(state) = self { *state } else { BucketState::default() }
    }

    pub(crate) fn window(&self) -> WindowState {
        if let MeterState::Window(state) = self { *state } else { WindowState::default() }
    }

    fn heap(&self) -> &AnyState {
        if let MeterState::Heap(state) = self { state } else { &AnyState::Fresh }
    }

    pub(super) fn bucket_mut(&mut self) -> &mut BucketState {
        *self = MeterState::Bucket(self.bucket());
        if let MeterState::Bucket(state) = self { state } else { unreachable!("made one above") }
    }

    pub(super) fn window_mut(&mut self) -> &mut WindowState {
        *self = MeterState::Window(self.window());
        if let MeterState::Window(state) = self { state } else { unreachable!("made one above") }
    }

    pub(crate) fn heap_mut(&mut self) -> &mut AnyState {
        if !matches!(self, MeterState::Heap(_)) {
            *self = MeterState::Heap(AnyState::Fresh);
        }
        if let MeterState::Heap(state) = self { state } else { unreachable!("made one above") }
    }
}

impl MeterKernel {
    /// Whether a state is one word of a table.
    #[inline]
    pub(crate) fn is_narrow(&self) -> bool {
        match self {
            MeterKernel::Bucket(bucket) => bucket.is_narrow(),
            MeterKernel::Window(window) => window.is_narrow(),
            MeterKernel::Heap(_) => false,
        }
    }
}

impl MeterKernel {
    /// The same kernel, on the same states, for a class of requests that leaves so many
    /// units to others.
    pub(super) fn with_floor(&self, units: u64) -> MeterKernel {
        match self {
            MeterKernel::Bucket(kernel) => MeterKernel::Bucket(kernel.with_floor(units)),
            MeterKernel::Window(kernel) => MeterKernel::Window(kernel.with_floor(units)),
            MeterKernel::Heap(kernel) => MeterKernel::Heap(kernel.with_floor(units)),
        }
    }
}

impl Kernel for MeterKernel {
    type State = MeterState;

    fn capacity(&self) -> u64 {
        match self {
            MeterKernel::Bucket(kernel) => kernel.capacity(),
            MeterKernel::Window(kernel) => kernel.capacity(),
            MeterKernel::Heap(kernel) => kernel.capacity(),
        }
    }

    fn admit(&self, state: &MeterState, now: Micros, cost: u64) -> Admission {
        match self {
            MeterKernel::Bucket(kernel) => kernel.admit(&state.bucket(), now, cost),
            MeterKernel::Window(kernel) => kernel.admit(&state.window(), now, cost),
            MeterKernel::Heap(kernel) => kernel.admit(state.heap(), now, cost),
        }
    }

    fn charge(&self, state: &mut MeterState, now: Micros, cost: u64) -> Reading {
        match self {
            MeterKernel::Bucket(kernel) => kernel.charge(state.bucket_mut(), now, cost),
            MeterKernel::Window(kernel) => kernel.charge(state.window_mut(), now, cost),
            MeterKernel::Heap(kernel) => kernel.charge(state.heap_mut(), now, cost),
        }
    }

    fn report(&self, state: &mut MeterState, now: Micros, cost: u64) -> u64 {
        match self {
            MeterKernel::Bucket(kernel) => kernel.report(state.bucket_mut(), now, cost),
            MeterKernel::Window(kernel) => kernel.report(state.window_mut(), now, cost),
            MeterKernel::Heap(kernel) => kernel.report(state.heap_mut(), now, cost),
        }
    }

    fn refund(&self, state: &mut MeterState, now: Micros, cost: u64) {
        match self {
            MeterKernel::Bucket(kernel) => kernel.refund(state.bucket_mut(), now, cost),
            MeterKernel::Window(kernel) => kernel.refund(state.window_mut(), now, cost),
            MeterKernel::Heap(kernel) => kernel.refund(state.heap_mut(), now, cost),
        }
    }

    fn undo(&self, state: &mut MeterState, now: Micros, charged: Charged, kept: u64) -> u64 {
        match self {
            MeterKernel::Bucket(kernel) => kernel.undo(state.bucket_mut(), now, charged, kept),
            MeterKernel::Window(kernel) => kernel.undo(state.window_mut(), now, charged, kept),
            MeterKernel::Heap(kernel) => kernel.undo(state.heap_mut(), now, charged, kept),
        }
    }

    fn renew(&self, state: &mut MeterState, now: Micros, charged: Charged) {
        match self {
            MeterKernel::Bucket(kernel) => kernel.renew(state.bucket_mut(), now, charged),
            MeterKernel::Window(kernel) => kernel.renew(state.window_mut(), now, charged),
            MeterKernel::Heap(kernel) => kernel.renew(state.heap_mut(), now, charged),
        }
    }

    fn is_there(&self, state: &MeterState, now: Micros, charged: Charged) -> bool {
        match self {
            MeterKernel::Bucket(kernel) => kernel.is_there(&state.bucket(), now, charged),
            MeterKernel::Window(kernel) => kernel.is_there(&state.window(), now, charged),
            MeterKernel::Heap(kernel) => kernel.is_there(state.heap(), now, charged),
        }
    }

    fn ahead(&self, state: &MeterState, now: Micros) -> Micros {
        match self {
            MeterKernel::Bucket(kernel) => kernel.ahead(&state.bucket(), now),
            MeterKernel::Window(kernel) => kernel.ahead(&state.window(), now),
            MeterKernel::Heap(kernel) => kernel.ahead(state.heap(), now),
        }
    }

    fn read(&self, state: &MeterState, now: Micros) -> Reading {
        match self {
            MeterKernel::Bucket(kernel) => kernel.read(&state.bucket(), now),
            MeterKernel::Window(kernel) => kernel.read(&state.window(), now),
            MeterKernel::Heap(kernel) => kernel.read(state.heap(), now),
        }
    }

    fn used(&self, state: &MeterState, now: Micros) -> u64 {
        match self {
            MeterKernel::Bucket(kernel) => kernel.used(&state.bucket(), now),
            MeterKernel::Window(kernel) => kernel.used(&state.window(), now),
            MeterKernel::Heap(kernel) => kernel.used(state.heap(), now),
        }
    }

    fn forget_at(&self, state: &MeterState) -> Micros {
        match self {
            MeterKernel::Bucket(kernel) => kernel.forget_at(&state.bucket()),
            MeterKernel::Window(kernel) => kernel.forget_at(&state.window()),
            MeterKernel::Heap(kernel) => kernel.forget_at(state.heap()),
        }
    }

    fn heal(&self, state: &MeterState, now: Micros) -> Option<MeterState> {
        match self {
            MeterKernel::Bucket(kernel) => kernel.heal(&state.bucket(), now).map(MeterState::Bucket),
            MeterKernel::Window(kernel) => kernel.heal(&state.window(), now).map(MeterState::Window),
            MeterKernel::Heap(kernel) => kernel.heal(state.heap(), now).map(MeterState::Heap),
        }
    }

    fn known_since(&self, state: &MeterState, now: Micros) -> Option<Micros> {
        match self {
            MeterKernel::Bucket(_) | MeterKernel::Window(_) => None,
            MeterKernel::Heap(kernel) => kernel.known_since(state.heap(), now),
        }
    }

    fn known(&self, since: Micros, now: Micros) -> MeterState {
        match self {
            MeterKernel::Bucket(_) | MeterKernel::Window(_) => MeterState::Fresh,
            MeterKernel::Heap(kernel) => MeterState::Heap(kernel.known(since, now)),
        }
    }

    fn encode(&self, state: &MeterState, bytes: &mut Vec<u8>) {
        match self {
            MeterKernel::Bucket(kernel) => kernel.encode(&state.bucket(), bytes),
            MeterKernel::Window(kernel) => kernel.encode(&state.window(), bytes),
            MeterKernel::Heap(kernel) => kernel.encode(state.heap(), bytes),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<MeterState> {
        match self {
            MeterKernel::Bucket(kernel) => kernel.decode(bytes).map(MeterState::Bucket),
            MeterKernel::Window(kernel) => kernel.decode(bytes).map(MeterState::Window),
            MeterKernel::Heap(kernel) => kernel.decode(bytes).map(MeterState::Heap),
        }
    }

    fn copy(&self, state: &MeterState, now: Micros) -> MeterState {
        match self {
            MeterKernel::Bucket(_) => MeterState::Bucket(state.bucket()),
            MeterKernel::Window(_) => MeterState::Window(state.window()),
            MeterKernel::Heap(kernel) => MeterState::Heap(kernel.copy(state.heap(), now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::store::Meter;

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    fn kernel(words: &str) -> MeterKernel {
        Meter::unnamed(words.parse::<Limit>().expect("a limit")).kernel().clone()
    }

    #[test]
    fn the_state_of_a_common_limit_is_one_word() {
        let narrow = ["100/s", "leaky 1000/min", "fixed 500/h", "fixed 500/h from-first"];
        let wide = ["sliding 100/s", "sliding-log 100/s", "999983/day", "fixed 1000000000/s"];
        assert_eq!(narrow.map(|words| kernel(words).is_narrow()), [true; 4]);
        assert_eq!(wide.map(|words| kernel(words).is_narrow()), [false; 4]);
    }

    #[test]
    fn a_copy_of_a_state_has_used_as_much() {
        for words in ["9/s", "leaky 9/s", "fixed 9/s", "sliding 9/s", "sliding-log 9/s"] {
            let (kernel, mut state) = (kernel(words), MeterState::Fresh);
            kernel.charge(&mut state, NOW, 3);
            let copied = kernel.copy(&state, NOW);
            kernel.charge(&mut state, NOW, 2);
            assert_eq!(
                [&state, &copied, &MeterState::Fresh].map(|state| kernel.used(state, NOW)),
                [5, 3, 0],
                "{words}"
            );
        }
    }
}
