//! The runtime that connections live on: the caller's, or one of our own for
//! programs that have none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

#[derive(Clone)]
pub(crate) struct Runtime {
    handle: Handle,
    /// Kept for as long as anyone uses it.
    _own: Option<Arc<Own>>,
}

struct Own(Option<tokio::runtime::Runtime>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for it could block a thread that must not be.
            runtime.shutdown_background();
        }
    }
}

impl Runtime {
    /// The runtime that this thread runs in, or one thread of our own.
    pub(crate) fn find() -> std::io::Result<Runtime> {
        if let Ok(handle) = Handle::try_current() {
            return Ok(Runtime { handle, _own: None });
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let own = builder.worker_threads(1).thread_name("tidegate-redis").enable_all().build()?;
        Ok(Runtime { handle: own.handle().clone(), _own: Some(Arc::new(Own(Some(own)))) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Runs a future that needs the timers of a runtime, on whatever executor
/// polls it.
///
/// The future is boxed here, and only here. A server holds the future of a
/// decision in the task of each connection, whether a decision is under way or
/// not, and what it takes to ask the servers is several KiB. So a connection
/// pays for it only while servers are asked, and an answer from memory
/// allocates nothing for it.
pub(crate) fn run<F: Future>(runtime: &Handle, future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    })
}

/// A future that goes on on the runtime if it is dropped before its end.
pub(crate) struct ToTheEnd<F: Future<Output: Send> + Send + 'static> {
    runtime: Handle,
    future: Option<Pin<Box<F>>>,
    is_gone: Arc<AtomicBool>,
}

/// Carries a future to its end, on the runtime if no caller polls it any more. It is told when
/// that is so.
pub(crate) fn to_the_end<F: Future<Output: Send> + Send + 'static>(
    runtime: &Handle,
    future: impl FnOnce(Arc<AtomicBool>) -> F,
) -> ToTheEnd<F> {
    let is_gone = Arc::default();
    ToTheEnd { runtime: runtime.clone(), future: Some(Box::pin(future(Arc::clone(&is_gone)))), is_gone }
}

impl<F: Future<Output: Send> + Send + 'static> Future for ToTheEnd<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().expect("not polled after its end");
        let output = ready!(future.as_mut().poll(context));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for ToTheEnd<F> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.is_gone.store(true, Ordering::Release);
            self.runtime.spawn(future);
        }
    }
}
