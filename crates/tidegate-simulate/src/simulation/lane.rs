//! One limit, and its state of every client.

use tidegate::Limit;
use tidegate::kernel::{
    Bucket, BucketState, Kernel, LimitKernel, Log, LogState, Verb, Verdict, Window, WindowState, decide,
};

use crate::traffic::Arrival;

#[derive(Debug)]
pub(super) enum Lane {
    Bucket(Bucket, Vec<BucketState>),
    Window(Window, Vec<WindowState>),
    Log(Log, Vec<LogState>),
}

impl Lane {
    pub(super) fn new(limit: Limit, clients: usize) -> Lane {
        match limit.kernel() {
            LimitKernel::Bucket(bucket) => Lane::Bucket(bucket, vec![BucketState::default(); clients]),
            LimitKernel::Window(window) => Lane::Window(window, vec![WindowState::default(); clients]),
            LimitKernel::Log(log) => Lane::Log(log, vec![LogState::default(); clients]),
        }
    }

    pub(super) fn decide(&mut self, arrival: Arrival) -> Verdict {
        match self {
            Lane::Bucket(bucket, states) => charge(bucket, states, arrival),
            Lane::Window(window, states) => charge(window, states, arrival),
            Lane::Log(log, states) => charge(log, states, arrival),
        }
    }
}

/// Virtual time begins at the epoch, which is an edge of every window.
#[inline]
fn charge<K: Kernel>(kernel: &K, states: &mut [K::State], arrival: Arrival) -> Verdict {
    let Arrival { at, client, cost } = arrival;
    decide(kernel, &mut states[client as usize], at, Verb::Charge, cost).0
}
