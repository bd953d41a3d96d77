//! What a store says aloud.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is said aloud.
struct Listener(&'static AtomicU64);

/// Counts what this thread says meanwhile.
pub(crate) fn listen(said: &'static AtomicU64, run: impl FnOnce()) {
    // While there is one subscriber, tracing asks the thread that comes to an event first whether it has one, and
    // keeps the answer; that may be the thread of another test. With two, it asks the subscribers.
    static UNUSED: AtomicU64 = AtomicU64::new(0);
    let _second = tracing::Dispatch::new(Listener(&UNUSED));
    tracing::subscriber::with_default(Listener(said), run);
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO && metadata.target().starts_with("tidegate")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
