//! Kernels whose states live on the heap, of whatever type they are: the
//! sliding log and those of users.

use std::any::Any;
use std::sync::Arc;

use crate::kernel::{Admission, Charged, Kernel, Reading};
use crate::time::Micros;

/// A kernel that keeps its state as an [`AnyState`].
pub(crate) type HeapKernel = Arc<dyn AnyKernel>;

/// A kernel of any type.
pub(crate) trait AnyKernel: Kernel<State = AnyState> {
    /// The same kernel, on the same states, for a class of requests that leaves so many
    /// units to others.
    fn with_floor(&self, units: u64) -> HeapKernel;
}

/// Hides the type of a kernel's state.
pub(crate) fn erase(kernel: impl Kernel) -> HeapKernel {
    Arc::new(Erased { kernel: Arc::new(kernel), floor: 0 })
}

/// A state of whatever type.
#[derive(Default)]
pub(crate) enum AnyState {
    /// The default one of its type.
    #[default]
    Fresh,
    Known(Box<dyn Any + Send>),
    /// From a snapshot, not yet asked for.
    Encoded(Box<[u8]>),
}

impl AnyState {
    /// The state as its kernel knows it. An encoding that the kernel does not
    /// understand, and another kernel's state, are fresh ones.
    pub(super) fn get<K: Kernel>(&mut self, kernel: &K) -> &mut K::State {
        let known = match self {
            AnyState::Fresh => false,
            AnyState::Known(state) => state.is::<K::State>(),
            AnyState::Encoded(bytes) => {
                let decoded = kernel.decode(bytes);
                decoded.is_some_and(|state| {
                    *self = AnyState::Known(Box::new(state));
                    true
                })
            }
        };
        if !known {
            *self = AnyState::Known(Box::<K::State>::default());
        }
        match self {
            AnyState::Known(state) => state.downcast_mut().expect("made of this type above"),
            AnyState::Fresh | AnyState::Encoded(_) => unreachable!("made known above"),
        }
    }

    fn peek<K: Kernel, R>(&self, kernel: &K, look: impl FnOnce(&K::State) -> R) -> R {
        match self {
            AnyState::Known(state) => match state.downcast_ref() {
                Some(state) => look(state),
                None => look(&K::State::default()),
            },
            AnyState::Encoded(bytes) => look(&kernel.decode(bytes).unwrap_or_default()),
            AnyState::Fresh => look(&K::State::default()),
        }
    }
}

struct Erased<K> {
    kernel: Arc<K>,
    /// Units that are left to others.
    floor: u64,
}

impl<K: Kernel> AnyKernel for Erased<K> {
    fn with_floor(&self, units: u64) -> HeapKernel {
        Arc::new(Erased { kernel: Arc::clone(&self.kernel), floor: units })
    }
}

impl<K: Kernel> Erased<K> {
    fn above_floor(&self, reading: Reading) -> Reading {
        Reading { remaining: reading.remaining.saturating_sub(self.floor), ..reading }
    }
}

impl<K: Kernel> Kernel for Erased<K> {
    type State = AnyState;

    fn capacity(&self) -> u64 {
        self.kernel.capacity().saturating_sub(self.floor)
    }

    fn admit(&self, state: &AnyState, now: Micros, cost: u64) -> Admission {
        // There is room for the cost above the floor if there is for both. What costs nothing
        // takes nothing of what is kept back.
        let needed = if cost == 0 { 0 } else { cost + self.floor };
        state.peek(&*self.kernel, |state| self.kernel.admit(state, now, needed))
    }

    fn charge(&self, state: &mut AnyState, now: Micros, cost: u64) -> Reading {
        self.above_floor(self.kernel.charge(state.get(&*self.kernel), now, cost))
    }

    fn report(&self, state: &mut AnyState, now: Micros, cost: u64) -> u64 {
        self.kernel.report(state.get(&*self.kernel), now, cost)
    }

    fn refund(&self, state: &mut AnyState, now: Micros, cost: u64) {
        self.kernel.refund(state.get(&*self.kernel), now, cost);
    }

    fn undo(&self, state: &mut AnyState, now: Micros, charged: Charged, kept: u64) -> u64 {
        self.kernel.undo(state.get(&*self.kernel), now, charged, kept)
    }

    fn renew(&self, state: &mut AnyState, now: Micros, charged: Charged) {
        self.kernel.renew(state.get(&*self.kernel), now, charged);
    }

    fn is_there(&self, state: &AnyState, now: Micros, charged: Charged) -> bool {
        state.peek(&*self.kernel, |state| self.kernel.is_there(state, now, charged))
    }

    fn ahead(&self, state: &AnyState, now: Micros) -> Micros {
        state.peek(&*self.kernel, |state| self.kernel.ahead(state, now))
    }

    fn read(&self, state: &AnyState, now: Micros) -> Reading {
        self.above_floor(state.peek(&*self.kernel, |state| self.kernel.read(state, now)))
    }

    fn used(&self, state: &AnyState, now: Micros) -> u64 {
        state.peek(&*self.kernel, |state| self.kernel.used(state, now))
    }

    fn forget_at(&self, state: &AnyState) -> Micros {
        state.peek(&*self.kernel, |state| self.kernel.forget_at(state))
    }

    fn heal(&self, state: &AnyState, now: Micros) -> Option<AnyState> {
        state.peek(&*self.kernel, |state| self.kernel.heal(state, now)).map(|full| AnyState::Known(Box::new(full)))
    }

    fn known_since(&self, state: &AnyState, now: Micros) -> Option<Micros> {
        state.peek(&*self.kernel, |state| self.kernel.known_since(state, now))
    }

    fn known(&self, since: Micros, now: Micros) -> AnyState {
        AnyState::Known(Box::new(self.kernel.known(since, now)))
    }

    fn encode(&self, state: &AnyState, bytes: &mut Vec<u8>) {
        state.peek(&*self.kernel, |state| self.kernel.encode(state, bytes));
    }

    fn decode(&self, bytes: &[u8]) -> Option<AnyState> {
        self.kernel.decode(bytes).map(|state| AnyState::Known(Box::new(state)))
    }

    fn copy(&self, state: &AnyState, now: Micros) -> AnyState {
        AnyState::Known(Box::new(state.peek(&*self.kernel, |state| self.kernel.copy(state, now))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Log;

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    #[test]
    fn a_copy_has_used_as_much() {
        let kernel = erase(Log::new(5, 1_000_000));
        let mut state = AnyState::Fresh;
        kernel.charge(&mut state, NOW, 3);
        let copied = kernel.copy(&state, NOW);
        kernel.charge(&mut state, NOW, 2);
        assert_eq!([&state, &copied, &AnyState::Fresh].map(|state| kernel.used(state, NOW)), [5, 3, 0]);
    }

    #[test]
    fn an_encoded_state_goes_on_where_it_stopped_and_what_is_none_begins_anew() {
        let kernel = erase(Log::new(5, 1_000_000));
        let (mut state, mut bytes) = (AnyState::Fresh, Vec::new());
        kernel.charge(&mut state, NOW, 3);
        kernel.encode(&state, &mut bytes);
        for (bytes, used) in [(&bytes[..], 3), (&bytes[1..], 0)] {
            let mut encoded = AnyState::Encoded(bytes.into());
            assert_eq!(kernel.used(&encoded, NOW), used);
            assert_eq!(kernel.charge(&mut encoded, NOW, 1).remaining, 4 - used);
            assert_eq!(kernel.used(&encoded, NOW), used + 1);
        }
    }
}
