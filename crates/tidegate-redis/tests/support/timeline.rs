//! A clock that runs ahead where a deadline must expire.
//!
//! A store on a timeline has a deadline of minutes, so a slow machine meets it.
//! Where there is no answer, the clock jumps to the deadline, and the test waits
//! for nothing.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tidegate_redis::{Builder, RedisFailure, RedisStore};
use tidegate_testkit::servers::GUARD;
use tokio::runtime::Runtime;
use tokio::time::{self, Instant, timeout};

/// A deadline that is kept ends its call within the resolution of the timer.
pub(crate) const RESOLUTION: Duration = Duration::from_millis(2);

/// Longer than every deadline of a test: a call that takes longer hangs.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A runtime of one thread, and its clock.
pub(crate) struct Timeline(Runtime);

impl Timeline {
    pub(crate) fn start() -> Timeline {
        Timeline(tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"))
    }

    pub(crate) fn build(&self, builder: Builder) -> RedisStore {
        let _entered = self.0.enter();
        builder.build().expect("valid settings")
    }

    /// Runs by the real clock: for calls that are answered.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Runs ahead: for calls that are not answered. Returns how long it took
    /// by the clock that ran ahead.
    pub(crate) fn run_ahead<F: Future>(&self, future: F) -> (F::Output, Duration) {
        self.run_ahead_once(|| true, future)
    }

    /// Runs by the real clock until something has happened, and then ahead.
    pub(crate) fn run_ahead_once<F: Future>(
        &self,
        mut has_happened: impl FnMut() -> bool,
        future: F,
    ) -> (F::Output, Duration) {
        self.0.block_on(async {
            let mut future = pin!(future);
            if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
                return (output, Duration::ZERO);
            }
            // The deadline runs by now, however slow the machine is.
            let began = Instant::now();
            while !has_happened() {
                if let Ok(output) = timeout(Duration::from_millis(1), future.as_mut()).await {
                    return (output, began.elapsed());
                }
            }
            time::pause();
            let output = timeout(NEVER, future).await.expect("a call with a deadline does not hang");
            let took = began.elapsed();
            time::resume();
            (output, took)
        })
    }

    /// Runs ahead where servers answer, but only with the word that they cannot
    /// decide: a part of the deadline at a time, and each after another word.
    pub(crate) fn run_ahead_while_told<F: Future>(&self, store: &RedisStore, future: F) -> (F::Output, Duration) {
        self.0.block_on(async {
            let (mut future, began) = (pin!(future), Instant::now());
            let trips = || store.statistics().round_trips;
            let mut before = trips();
            loop {
                if let Ok(output) = timeout(Duration::from_millis(1), future.as_mut()).await {
                    return (output, began.elapsed());
                }
                // Asked again, so there was a word.
                if trips() > before + 1 {
                    skip(GUARD / 4).await;
                    before = trips();
                }
            }
        })
    }

    /// A call that servers answer only with the word that they cannot decide,
    /// until its deadline expires: that word, or what else came of the call.
    pub(crate) fn run_out_of_time<T: Debug>(
        &self,
        store: &RedisStore,
        call: impl Future<Output = Result<T, RedisFailure>>,
    ) -> Result<String, String> {
        let trips = || store.statistics().round_trips;
        let before = trips();
        // Asked again, so there was a word.
        let (outcome, took) = self.run_ahead_once(|| trips() > before + 1, call);
        assert!(took <= GUARD + RESOLUTION, "took {took:?}");
        match outcome {
            Err(RedisFailure::Deadline { last_word, .. }) => Ok(last_word),
            other => Err(format!("{other:?}")),
        }
    }
}

/// Asks, and does not wait for the answer.
pub(crate) async fn is_pending(mut call: Pin<&mut impl Future>) -> bool {
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await
}

/// Lets time pass on the timeline that this runs on.
pub(crate) async fn skip(passed: Duration) {
    time::pause();
    time::advance(passed).await;
    time::resume();
}
