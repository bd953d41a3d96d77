//! One limit, and its state of every client.

use tidegate::kernel::{Bucket, BucketState, LimitKernel, Log, LogState, Verb, Verdict, Window, WindowState, decide};
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
    pub(super) fn decide(&mut self, client: u32, now: Micros, (verb, cost): (Verb, u64)) -> Verdict {
        let client = client as usize;
        let (verdict, _) = match self {
            Lane::Bucket(bucket, states) => decide(bucket, &mut states[client], now, verb, cost),
            Lane::Window(window, states) => decide(window, &mut states[client], now, verb, cost),
            Lane::Log(log, states) => decide(log, &mut states[client], now, verb, cost),
        };
        verdict
    }
}
