//! TLS handshakes that have not finished.
//!
//! They have a bound of their own, and a connection counts against its protocol only
//! once its handshake is done. Where there is no room, the oldest one ends: a client that
//! stalls can delay others by no more than it takes to open connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All unfinished handshakes of a server.
#[derive(Debug)]
pub(crate) struct Handshakes {
    total: usize,
    each: usize,
    open: Mutex<Open>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Open {
    latest: u64,
    /// In the order of arrival.
    all: BTreeMap<u64, Option<IpAddr>>,
    /// The same, and how to end each of them.
    by_address: BTreeMap<(Option<IpAddr>, u64), CancellationToken>,
    /// With those that were told to end and have not done so yet.
    sockets: usize,
}

/// An unfinished handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    handshakes: Arc<Handshakes>,
    address: Option<IpAddr>,
    number: u64,
    dropped: CancellationToken,
}

impl Handshakes {
    /// So many in all, and so many of each address.
    pub(crate) fn new(total: usize, each: usize) -> Arc<Handshakes> {
        Arc::new(Handshakes { total, each, open: Mutex::default(), ended: Notify::new() })
    }

    /// Waits while as many as there may be have been told to end, and are not closed yet: their threads are
    /// busy, and further clients wait before the server and not in it.
    pub(crate) async fn room(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // From now on no end is missed.
            ended.as_mut().enable();
            if self.lock().sockets < self.total.saturating_mul(2) {
                return;
            }
            ended.await;
        }
    }

    /// A place for a handshake, if need be that of the oldest one.
    pub(crate) fn begin(self: &Arc<Handshakes>, address: Option<IpAddr>) -> Handshake {
        let mut open = self.lock();
        let of_address = |open: &Open| open.by_address.range((address, 0)..=(address, u64::MAX)).count();
        if address.is_some() && of_address(&open) >= self.each {
            let oldest = open.by_address.range((address, 0)..).next().map(|((_, number), _)| *number);
            open.end(oldest);
        } else if open.all.len() >= self.total {
            let oldest = open.all.keys().next().copied();
            open.end(oldest);
        }
        open.latest += 1;
        open.sockets += 1;
        let (number, dropped) = (open.latest, CancellationToken::new());
        open.all.insert(number, address);
        open.by_address.insert((address, number), dropped.clone());
        Handshake { handshakes: Arc::clone(self), address, number, dropped }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn end(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        if let Some(address) = self.all.remove(&number)
            && let Some(dropped) = self.by_address.remove(&(address, number))
        {
            dropped.cancel();
        }
    }
}

impl Handshake {
    /// Ends when another handshake has taken its place.
    pub(crate) async fn dropped(&self) {
        self.dropped.cancelled().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut open = self.handshakes.lock();
        open.sockets -= 1;
        open.all.remove(&self.number);
        open.by_address.remove(&(self.address, self.number));
        drop(open);
        self.handshakes.ended.notify_waiters();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_dropped(handshake: &Handshake) -> bool {
        handshake.dropped.is_cancelled()
    }

    #[test]
    fn the_oldest_gives_way_first_of_its_address_and_then_of_all() {
        let [one, two, three] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|text| Some(text.parse().unwrap()));
        let handshakes = Handshakes::new(4, 2);
        let begin = |address| handshakes.begin(address);
        let (first, second, third) = (begin(one), begin(two), begin(two));
        let fourth = begin(two);
        assert!(is_dropped(&second) && !is_dropped(&first), "of its own address");
        let fifth = begin(three);
        let sixth = begin(three);
        assert!(is_dropped(&first), "of all");
        assert!(![&third, &fourth, &fifth, &sixth].into_iter().any(is_dropped));
        let (seventh, eighth) = (begin(None), begin(None));
        // Four have been told to end, and none has: more clients wait until one has.
        let mut room = pin!(handshakes.room());
        assert!(room.as_mut().now_or_never().is_none());
        drop(first);
        assert!(room.as_mut().now_or_never().is_some());
        drop(second);
        drop((third, fourth, fifth, sixth, seventh, eighth));
        let open = handshakes.lock();
        assert_eq!((open.sockets, open.all.len(), open.by_address.len()), (0, 0, 0));
    }
}
