//! What the tests of the store share: a runtime, a server, stores of their own.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod cluster;
pub(crate) mod listener;
pub(crate) mod load;
pub(crate) mod timeline;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::ManualClock;
use tidegate_redis::{BreakerSettings, Builder, RedisStore, Servers};
use tidegate_testkit::servers::{GUARD, Server, eventually};

/// Connections live here while tests come and go.
pub(crate) static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a runtime")
});

/// One server for all tests of a file that do it no harm.
pub(crate) static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::start();
    println!("running on {}", server.program().version());
    server
});

/// The first failure opens the breaker, and the servers are asked again soon.
pub(crate) const SHORT_PAUSES: BreakerSettings = BreakerSettings {
    failures: 1,
    horizon: Duration::from_secs(1),
    min_calls: 1,
    first_pause: Duration::from_millis(20),
    longest_pause: Duration::from_millis(100),
};

/// The first failure opens the breaker, for as long as the test runs by the real clock.
pub(crate) const LONG_PAUSES: BreakerSettings =
    BreakerSettings { first_pause: GUARD, longest_pause: GUARD, ..SHORT_PAUSES };

/// A prefix that no other store of this process has.
pub(crate) fn new_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store with keys of its own and time to answer on any machine.
pub(crate) fn builder(url: &str) -> Builder {
    patient(Servers::parse(url).expect("a valid URL")).prefix(new_prefix())
}

/// A store with time to answer on any machine.
pub(crate) fn patient(servers: impl Into<Servers>) -> Builder {
    RedisStore::builder(servers).deadline(GUARD).connect_timeout(GUARD)
}

pub(crate) fn build(builder: Builder) -> RedisStore {
    let _entered = RUNTIME.enter();
    builder.build().expect("valid settings")
}

/// An empty store whose clock stands until it is set.
pub(crate) fn manual_store() -> (RedisStore, ManualClock) {
    let clock = ManualClock::default();
    (build(builder(&SERVER.url()).clock(clock.clone())), clock)
}

/// Makes a server a replica, and waits until it is one.
pub(crate) fn demote(server: &Server, master: &Server) {
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually("a replica", || match server.info("replication", "master_link_status").as_str() {
        "up" => Ok(()),
        other => Err(other.to_owned()),
    });
}

/// The only key of a server expires, and not before this instant.
pub(crate) fn assert_kept(server: &Server, until: Instant, what: &str) {
    // As the server says of a key that has expired.
    const EXPIRED: i64 = -2;
    let left = server
        .command(&["KEYS", "*"])
        .items()
        .first()
        .map_or(EXPIRED, |name| server.command(&["PTTL", &name.text()]).integer());
    assert_ne!(left, -1, "{what}: no expiry");
    let left = Duration::from_millis(u64::try_from(left).map_or(0, |left| left + 1));
    assert!(Instant::now() + left >= until, "{what}: {left:?} left");
}
