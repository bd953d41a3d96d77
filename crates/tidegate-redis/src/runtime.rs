//! The runtime that connections live on: the caller's, or one of our own for
//! programs that have none.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

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

    /// Runs a future that needs this runtime's timers, on whatever executor
    /// the caller polls it.
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            let _entered = self.handle.enter();
            future.as_mut().poll(context)
        })
        .await
    }
}
