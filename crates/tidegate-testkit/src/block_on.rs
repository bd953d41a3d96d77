//! Waiting for a future without a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Runs a future to its end on this thread.
///
/// A store that needs a runtime of its own must have entered it.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // Most stores answer at once: make a waker only for those that do not.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::block_on;

    #[test]
    fn a_future_that_is_woken_from_elsewhere_is_run_to_its_end() {
        let mut polls = 0;
        let future = poll_fn(|context| {
            polls += 1;
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake());
            if polls < 4 { Poll::Pending } else { Poll::Ready("done") }
        });
        assert_eq!(block_on(future), "done");
    }
}
