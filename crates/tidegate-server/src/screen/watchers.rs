//! Clients that watch the server: bounded in number, and all given the same bytes.
//!
//! A client that is slow misses pictures, and nothing is kept for it. What a picture is, and
//! when one is taken, is known [elsewhere](crate::screen::live).

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::run::shares::{Full, Share, Shares};

/// Clients that may watch at a time: of all addresses, and of one.
pub(crate) const MAX_WATCHERS: usize = 256;
pub(crate) const MAX_WATCHERS_PER_ADDRESS: usize = 128;

/// All clients that watch.
pub(crate) struct Watchers {
    room: Arc<Shares>,
    /// The latest picture; none while no client watches.
    latest: Mutex<Option<watch::Sender<Bytes>>>,
}

impl Default for Watchers {
    fn default() -> Watchers {
        Watchers { room: Shares::new(MAX_WATCHERS, MAX_WATCHERS_PER_ADDRESS), latest: Mutex::default() }
    }
}

/// One client that watches: each picture is a line of JSON.
pub(crate) struct Watcher {
    pictures: watch::Receiver<Bytes>,
    _place: Share,
}

impl Watcher {
    /// The next picture; none when there will be no more.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.pictures.changed().await.ok()?;
        Some(self.pictures.borrow_and_update().clone())
    }
}

impl Watchers {
    /// A place to watch from, or how many there may be. The first client makes pictures `begin`.
    pub(crate) fn enter(&self, address: Option<IpAddr>, begin: impl FnOnce()) -> Result<Watcher, usize> {
        let place = self.room.take(address, 1).map_err(|full| match full {
            Full::Total => self.room.total(),
            Full::Address => self.room.each(),
        })?;
        let mut latest = self.latest();
        let pictures = match &*latest {
            Some(known) => {
                let mut pictures = known.subscribe();
                // A client that comes later need not wait for the next one.
                if !known.borrow().is_empty() {
                    pictures.mark_changed();
                }
                pictures
            }
            None => {
                let (sender, pictures) = watch::channel(Bytes::new());
                *latest = Some(sender);
                begin();
                pictures
            }
        };
        Ok(Watcher { pictures, _place: place })
    }

    /// Gives all clients a picture. Without clients it returns false, and the next one begins anew.
    pub(crate) fn send(&self, picture: Bytes) -> bool {
        let mut latest = self.latest();
        // Sending fails where no client is left.
        let is_watched = latest.as_ref().is_some_and(|watched| watched.send(picture).is_ok());
        if !is_watched {
            *latest = None;
        }
        is_watched
    }

    /// Lets all clients go.
    pub(crate) fn close(&self) {
        *self.latest() = None;
    }

    fn latest(&self) -> MutexGuard<'_, Option<watch::Sender<Bytes>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
