//! What the dashboard and `tidegate top` show: one picture of the server, once
//! a second for all who look.
//!
//! A picture is made of what is counted anyway, and only while somebody looks.
//! All watchers get the same bytes; one that is slow misses pictures, and
//! nothing is kept for it.

mod picture;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

pub(crate) use self::picture::{AskAgain, LatencyPicture, Picture, RefusalPicture, RulePicture, TopRefused};
use crate::app::App;
use crate::shares::{Full, Share, Shares};

/// Clients that may watch at a time: of all addresses, and of one.
const MOST_WATCHERS: usize = 64;
const MAX_WATCHERS_PER_ADDRESS: usize = 8;

/// The time from one picture to the next.
const BETWEEN_PICTURES: Duration = Duration::from_secs(1);

/// Pictures of a server, for those who watch.
pub(crate) struct Live {
    room: Arc<Shares>,
    /// The latest picture; none while nobody watches.
    latest: Mutex<Option<watch::Sender<Bytes>>>,
    began: Instant,
}

impl Default for Live {
    fn default() -> Live {
        Live {
            room: Shares::new(MOST_WATCHERS, MAX_WATCHERS_PER_ADDRESS),
            latest: Mutex::default(),
            began: Instant::now(),
        }
    }
}

/// Somebody who watches: each picture is a line of JSON.
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

impl Live {
    /// A place to watch from, or how many there may be.
    pub(crate) fn watch(&self, app: &Arc<App>, address: Option<IpAddr>) -> Result<Watcher, usize> {
        let place = self.room.take(address, 1).map_err(|full| match full {
            Full::Total => self.room.total(),
            Full::Address => self.room.each(),
        })?;
        let mut latest = self.latest();
        let pictures = match &*latest {
            Some(known) => {
                let mut pictures = known.subscribe();
                // Whoever comes later need not wait for the next one.
                if !known.borrow().is_empty() {
                    pictures.mark_changed();
                }
                pictures
            }
            None => {
                let (sender, pictures) = watch::channel(Bytes::new());
                *latest = Some(sender);
                tokio::spawn(take_pictures(Arc::clone(app)));
                pictures
            }
        };
        Ok(Watcher { pictures, _place: place })
    }

    /// How long the server has been running.
    fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    fn latest(&self) -> MutexGuard<'_, Option<watch::Sender<Bytes>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A picture for one who does not want to watch.
pub(crate) async fn picture(app: &Arc<App>) -> Bytes {
    let app = Arc::clone(app);
    let line = tokio::task::spawn_blocking(move || {
        // Our own types have text for names, so they are always JSON.
        let mut line = serde_json::to_vec(&Picture::of(&app)).unwrap_or_default();
        line.push(b'\n');
        Bytes::from(line)
    });
    line.await.unwrap_or_default()
}

/// Takes pictures until nobody looks, or the server closes.
async fn take_pictures(app: Arc<App>) {
    let mut clock = tokio::time::interval(BETWEEN_PICTURES);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let closing = app.drain.closing();
    tokio::pin!(closing);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = &mut closing => break,
        }
        let picture = picture(&app).await;
        let mut latest = app.live.latest();
        match &*latest {
            Some(watched) if watched.receiver_count() > 0 => drop(watched.send(picture)),
            _ => {
                *latest = None;
                return;
            }
        }
    }
    *app.live.latest() = None;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tidegate::MemoryStore;

    use crate::serve::Server;
    use crate::settings::Settings;

    use super::*;

    #[tokio::test]
    async fn watchers_have_a_bound_share_pictures_and_are_let_go_at_the_end() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let app = Arc::clone(server.app());
        let watch = |address| app.live.watch(&app, address);
        let address = Some("192.0.2.1".parse().unwrap());
        let of_one: Vec<Watcher> = (0..8).map(|_| watch(address).unwrap()).collect();
        assert_eq!(watch(address).err(), Some(8), "no address has all places");
        drop(of_one);
        let mut watchers: Vec<Watcher> = (0..MOST_WATCHERS).map(|_| watch(None).unwrap()).collect();
        assert_eq!(watch(address).err(), Some(64));
        let first = watchers[0].next().await.unwrap();
        assert_eq!(watchers[1].next().await.unwrap().as_ptr(), first.as_ptr());
        watchers.truncate(2);
        let mut late = watch(None).unwrap();
        assert_eq!(late.next().await.unwrap().as_ptr(), first.as_ptr());
        drop(server);
        for watcher in [&mut watchers[0], &mut late] {
            // A last picture may be on its way; then there are no more.
            while watcher.next().await.is_some() {}
        }
    }
}
