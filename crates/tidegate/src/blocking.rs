//! Running a future on the calling thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// The output of a future that is ready when it is first polled, as those of a
/// store that never waits are. One that is not is waited for.
#[inline]
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => wait_for(future),
    }
}

/// Polls a future once, and drops it.
pub(crate) fn once(mut future: Pin<Box<dyn Future<Output = ()> + Send>>) {
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// Runs a future on this thread, which sleeps while there is nothing to do.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    wait_for(pin!(future))
}

#[cold]
fn wait_for<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
