//! The memory that clients can make the server hold: one budget of bytes over all wires.
//!
//! Bytes count when they have arrived, not when they are announced, and until the request
//! is answered and the answer is sent. Beyond the budget a request of HTTP or gRPC is refused, and RESP
//! reads no further until there is room. The first [`FREE`] bytes of every request are not
//! counted: small requests are answered while others hold the budget. Answers to GET have [`FOR_READS`] bytes more.
//!
//! Not counted, and bounded by the number of connections instead: those first bytes (times
//! the streams of a connection of HTTP/2), the buffer of a socket's reader (4 KiB, of RESP 16 KiB), and what the HTTP
//! library holds unread of a connection: 16 KiB of HTTP/1, a window of 128 KiB of HTTP/2. A
//! buffer that grows is at most twice as large as what is counted of it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

/// Bytes of each request that do not count.
pub(crate) const FREE: usize = 4 * 1024;

/// Bytes beyond the budget for answers to GET: what the server does can be seen while requests hold the budget.
pub(crate) const FOR_READS: usize = 1024 * 1024;

/// The budget of a server.
#[derive(Debug)]
pub(crate) struct Buffered {
    max: usize,
    /// What is held, where metrics show it.
    bytes: Gauge,
    shed: Counter,
    given_back: Notify,
}

/// More would be held than the server may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unfinished requests and unsent answers hold {max} bytes, which is all that the server may buffer: retry in a moment, or start the \
     server with a larger --max-buffered"
)]
pub(crate) struct OverBudget {
    max: usize,
}

/// Bytes of one request or connection; they are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    buffered: Arc<Buffered>,
    /// So many of them do not count.
    free: usize,
    bytes: AtomicUsize,
}

impl Buffered {
    pub(crate) fn new(max: usize, bytes: Gauge, shed: Counter) -> Arc<Buffered> {
        Arc::new(Buffered { max, bytes, shed, given_back: Notify::new() })
    }

    /// Nothing yet, of which the first bytes will not count.
    pub(crate) fn hold(self: &Arc<Buffered>, free: usize) -> Held {
        Held { buffered: Arc::clone(self), free, bytes: AtomicUsize::new(0) }
    }

    /// The bytes of an answer to a request that changed nothing.
    ///
    /// # Errors
    /// If that is more than the server may hold; the request counts as shed.
    pub(crate) fn hold_read(self: &Arc<Buffered>, bytes: usize) -> Result<Held, OverBudget> {
        self.take(bytes, self.max.saturating_add(FOR_READS)).inspect_err(|_| {
            self.shed.inc();
        })?;
        Ok(Held { buffered: Arc::clone(self), free: 0, bytes: AtomicUsize::new(bytes) })
    }

    /// Bytes that are there in any case, such as the answer to a request that changed something.
    pub(crate) fn hold_anyway(self: &Arc<Buffered>, bytes: usize) -> Held {
        self.bytes.inc_by(signed(bytes));
        Held { buffered: Arc::clone(self), free: 0, bytes: AtomicUsize::new(bytes) }
    }

    fn take(&self, bytes: usize, max: usize) -> Result<(), OverBudget> {
        let before = self.bytes.inc_by(signed(bytes));
        if bytes > 0 && before.saturating_add(signed(bytes)) > signed(max) {
            self.bytes.dec_by(signed(bytes));
            return Err(OverBudget { max: self.max });
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.dec_by(signed(bytes));
            self.given_back.notify_waiters();
        }
    }
}

impl Held {
    /// Holds more.
    ///
    /// # Errors
    /// If that is more than the server may hold: then nothing has changed, and the request counts as shed.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), OverBudget> {
        self.grow_to(self.bytes.load(Relaxed) + bytes).inspect_err(|_| {
            self.buffered.shed.inc();
        })
    }

    fn grow_to(&self, bytes: usize) -> Result<(), OverBudget> {
        let before = self.bytes.load(Relaxed);
        self.buffered.take(self.counted(bytes).saturating_sub(self.counted(before)), self.buffered.max)?;
        self.bytes.store(bytes.max(before), Relaxed);
        Ok(())
    }

    /// Holds so many, as soon as there is room for them.
    pub(crate) async fn grow_in_time(&self, bytes: usize) {
        loop {
            let mut given_back = pin!(self.buffered.given_back.notified());
            // From now on nothing that is given back is missed.
            given_back.as_mut().enable();
            if self.grow_to(bytes).is_ok() {
                return;
            }
            given_back.await;
        }
    }

    /// Holds no more than so many.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.load(Relaxed);
        if bytes < before {
            self.bytes.store(bytes, Relaxed);
            self.buffered.give_back(self.counted(before) - self.counted(bytes));
        }
    }

    fn counted(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.free)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn bytes_count_beyond_the_free_ones_up_to_the_budget_until_they_are_given_back() {
        let (bytes, shed) = (Gauge::default(), Counter::default());
        let buffered = Buffered::new(1_000, bytes.clone(), shed.clone());
        let (one, two) = (buffered.hold(100), buffered.hold(100));
        one.add(100).unwrap();
        assert_eq!(bytes.get(), 0, "the first ones are free");
        one.add(600).unwrap();
        two.add(500).unwrap();
        assert_eq!(bytes.get(), 1_000);
        assert_eq!(two.add(1), Err(OverBudget { max: 1_000 }));
        assert_eq!((bytes.get(), shed.get()), (1_000, 1), "a refusal changes nothing");
        assert!(buffered.hold_read(FOR_READS + 1).is_err());
        assert_eq!((bytes.get(), shed.get()), (1_000, 2));
        drop(buffered.hold_read(FOR_READS).unwrap());
        let small = buffered.hold(100);
        small.add(100).unwrap();
        let answer = buffered.hold_anyway(50);
        assert_eq!(bytes.get(), 1_050);
        let mut waiting = pin!(two.grow_in_time(600));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(answer);
        assert!(waiting.as_mut().now_or_never().is_none(), "that is not enough");
        one.shrink_to(0);
        assert!(waiting.as_mut().now_or_never().is_some());
        drop((one, small));
        assert_eq!(bytes.get(), 500);
    }
}
