//! One limit, and its state of every client.

use tidegate::kernel::{
    Bucket, BucketState, Kernel, LimitKernel, Log, LogState, Verb, Verdict, Window, WindowState, decide, withhold,
};
use tidegate::{Limit, Micros};

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

    /// Virtual time begins at the epoch, which is an edge of every window.
    pub(super) fn decide(&mut self, client: u32, now: Micros, asked: (Verb, u64), floor: u64) -> Verdict {
        let client = client as usize;
        match self {
            Lane::Bucket(bucket, states) => decide_above(bucket, &mut states[client], now, asked, floor),
            Lane::Window(window, states) => decide_above(window, &mut states[client], now, asked, floor),
            Lane::Log(log, states) => decide_above(log, &mut states[client], now, asked, floor),
        }
    }
}

/// Decides for a class that leaves so much to others: there must be room for that as well.
fn decide_above<K: Kernel>(kernel: &K, state: &mut K::State, now: Micros, asked: (Verb, u64), floor: u64) -> Verdict {
    let (verb, cost) = asked;
    let beside = (verb == Verb::Charge && floor > 0).then(|| withhold(kernel, state, now, Verb::Peek, cost + floor));
    let refused = beside.filter(|beside| !beside.allowed);
    let verdict = refused.unwrap_or_else(|| decide(kernel, state, now, verb, cost).0);
    Verdict { remaining: verdict.remaining.saturating_sub(floor), ..verdict }
}
