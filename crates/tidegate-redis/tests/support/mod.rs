//! What the tests of the store share: a runtime, a server, stores of their own.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod listener;
pub(crate) mod load;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::ManualClock;
use tidegate_redis::{Builder, RedisStore, Servers};
use tidegate_testkit::servers::Server;

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

/// A prefix that no other store of this process has.
pub(crate) fn new_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store with keys of its own and time to answer on a busy machine.
pub(crate) fn builder(url: &str) -> Builder {
    let servers = Servers::parse(url).expect("a valid URL");
    RedisStore::builder(servers).prefix(new_prefix()).deadline(Duration::from_secs(10))
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
