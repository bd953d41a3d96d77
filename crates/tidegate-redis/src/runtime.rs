//! The runtime that connections live on: the caller's, or one of our own for
//! programs that have none.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::runtime::Handle;

use crate::failure::RedisFailure;

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

/// An attempt that goes on in the background, and whose outcome all wait for.
pub(crate) type Attempt = Shared<BoxFuture<'static, Result<(), RedisFailure>>>;

/// Begins an attempt at `what`.
pub(crate) fn attempt(
    runtime: &Handle,
    what: &'static str,
    attempt: impl Future<Output = Result<(), RedisFailure>> + Send + 'static,
) -> Attempt {
    let attempt = runtime.spawn(attempt);
    attempt.map(move |joined| joined.unwrap_or(Err(RedisFailure::Garbled { what }))).boxed().shared()
}
