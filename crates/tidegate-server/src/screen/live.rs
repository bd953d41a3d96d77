//! What the dashboard and `tidegate top` show: one picture of the server, once
//! a second for all who look.
//!
//! A picture is made of what is counted anyway, and only while a client
//! [watches](crate::screen::watchers).

mod picture;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::MissedTickBehavior;

#[cfg(feature = "top")]
pub(crate) use self::picture::{LatencyPicture, RefusalPicture, ReservationsPicture, RulePicture, TopRefused};
pub(crate) use self::picture::{Picture, top_refused};
use crate::screen::Screen;
use crate::screen::watchers::Watcher;

/// The time from one picture to the next.
const BETWEEN_PICTURES: Duration = Duration::from_secs(1);

/// A place to watch from, or how many there may be.
pub(crate) fn watch(screen: &Screen, address: Option<IpAddr>) -> Result<Watcher, usize> {
    screen.shown.watchers.enter(address, || drop(tokio::spawn(take_pictures(screen.clone()))))
}

/// A single picture.
pub(crate) async fn picture(screen: &Screen) -> Bytes {
    let screen = screen.clone();
    let line = tokio::task::spawn_blocking(move || {
        // Our own types have text for names, so they are always JSON.
        let mut line = serde_json::to_vec(&Picture::of(&screen)).unwrap_or_default();
        line.push(b'\n');
        Bytes::from(line)
    });
    line.await.unwrap_or_default()
}

/// Takes pictures until no client watches, or the server closes.
async fn take_pictures(screen: Screen) {
    let mut clock = tokio::time::interval(BETWEEN_PICTURES);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let closing = screen.app.guards.drain.closing();
    tokio::pin!(closing);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = &mut closing => break,
        }
        if !screen.shown.watchers.send(picture(&screen).await) {
            return;
        }
    }
    screen.shown.watchers.close();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tidegate::MemoryStore;

    use super::*;
    use crate::screen::watchers::{MAX_WATCHERS, MAX_WATCHERS_PER_ADDRESS};
    use crate::{Server, Settings};

    #[tokio::test]
    async fn watchers_have_a_bound_share_pictures_and_are_let_go_at_the_end() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let screen = server.screen();
        let enter = |address| watch(screen, address);
        let address = Some("192.0.2.1".parse().unwrap());
        let of_one: Vec<Watcher> = (0..MAX_WATCHERS_PER_ADDRESS).map(|_| enter(address).unwrap()).collect();
        assert_eq!(enter(address).err(), Some(MAX_WATCHERS_PER_ADDRESS), "no address has all places");
        drop(of_one);
        let mut watchers: Vec<Watcher> = (0..MAX_WATCHERS).map(|_| enter(None).unwrap()).collect();
        assert_eq!(enter(address).err(), Some(MAX_WATCHERS));
        let first = watchers[0].next().await.unwrap();
        assert_eq!(watchers[1].next().await.unwrap().as_ptr(), first.as_ptr());
        watchers.truncate(2);
        let mut late = enter(None).unwrap();
        assert_eq!(late.next().await.unwrap().as_ptr(), first.as_ptr());
        drop(server);
        for watcher in [&mut watchers[0], &mut late] {
            // A last picture may be on its way; then there are no more.
            while watcher.next().await.is_some() {}
        }
    }
}
