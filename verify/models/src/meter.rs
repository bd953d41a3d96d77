//! A bucket for models: one unit drains in each microsecond, and its state is a
//! number that can be hashed.

use std::time::Duration;

use tidegate::kernel::{self, Bucket, Kernel, LimitKernel, Verb};
use tidegate::{Limit, Micros};

/// Models begin at this instant, where a state of zero is an empty bucket.
pub(crate) const START: u64 = 100;

/// The kernel of a bucket that holds `burst` units.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    kernel: Bucket,
}

/// What was decided, and the state afterwards.
pub(crate) struct Decided {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    pub(crate) state: u64,
}

impl Meter {
    pub(crate) fn new(burst: u64) -> Meter {
        let limit = Limit::try_token_bucket(1, Duration::from_micros(1)).map(|limit| limit.burst(burst));
        match limit.map(|limit| limit.kernel()) {
            Ok(LimitKernel::Bucket(kernel)) => Meter { kernel },
            Ok(LimitKernel::Window(_) | LimitKernel::Log(_)) | Err(_) => panic!("a bucket of {burst} is a limit"),
        }
    }

    /// Decides by the library's kernel.
    pub(crate) fn decide(&self, state: u64, now: u64, verb: Verb, cost: u64) -> Decided {
        let mut bucket = self.kernel.state(state, 0).expect("a state of this bucket");
        let (verdict, _) = kernel::decide(&self.kernel, &mut bucket, Micros::new(now), verb, cost);
        let mut bytes = Vec::new();
        self.kernel.encode(&bucket, &mut bytes);
        let state = bytes.first_chunk().map_or(0, |at| u64::from_le_bytes(*at));
        Decided { allowed: verdict.allowed, remaining: verdict.remaining, state }
    }

    /// The state of a bucket that was full at `since`, if that is later.
    pub(crate) fn full_since(&self, state: u64, since: u64) -> u64 {
        state.max(since + self.kernel.full())
    }
}

/// What was admitted at each instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Admissions(Vec<(u64, u64)>);

impl Admissions {
    pub(crate) fn add(&mut self, at: u64, cost: u64) {
        match self.0.last_mut() {
            Some((latest, sum)) if *latest == at => *sum += cost,
            Some(_) | None => self.0.push((at, cost)),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(_, cost)| cost).sum()
    }

    /// Whether every interval has at most `burst` and one for each microsecond.
    pub(crate) fn keep(&self, burst: u64) -> bool {
        self.0.iter().enumerate().all(|(index, (first, _))| {
            let mut sum = 0;
            self.0[index..].iter().all(|(last, cost)| {
                sum += cost;
                sum <= burst + (last - first)
            })
        })
    }
}
