//! A server in this process, on a clock that moves when told to.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::NamedTempFile;
use tidegate::{ManualClock, MemoryStore};
use tidegate_server::{Server, Settings};
use tidegate_testkit::servers::{Connection, GUARD, Reply};
use tokio::runtime::Runtime;

pub(crate) struct TestServer {
    runtime: Runtime,
    server: Server,
    pub(crate) clock: ManualClock,
}

impl TestServer {
    pub(crate) fn start() -> TestServer {
        TestServer::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut Settings)) -> TestServer {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1_800_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let mut settings = settings();
        change(&mut settings);
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start(settings, store)).expect("a server");
        TestServer { runtime, server, clock }
    }

    /// One that goes by the policy of a file.
    pub(crate) fn start_by(policy: &str) -> (TestServer, NamedTempFile) {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
        std::fs::write(file.path(), policy).expect("a file");
        (TestServer::start_with(|settings| settings.policy = Some(file.path().into())), file)
    }

    /// One whose states are on a server of Redis, by that server's time.
    pub(crate) fn start_on_redis(url: &str) -> TestServer {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(async {
            let servers = tidegate_redis::Servers::parse(url).expect("a URL");
            let store = tidegate_redis::RedisStore::builder(servers).deadline(GUARD).build().expect("a store");
            Server::start(settings(), store).await.expect("a server")
        });
        TestServer { runtime, server, clock: ManualClock::default() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.resp_socket().expect("a listener")
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address()).expect("a connection")
    }

    /// Says whether all connections have finished.
    pub(crate) fn drain(self) -> bool {
        self.runtime.block_on(self.server.drain())
    }
}

fn settings() -> Settings {
    let local = "127.0.0.1:0".parse().expect("an address");
    let drain_seconds = GUARD.as_secs();
    Settings {
        http: vec![],
        resp: vec![local],
        drain_grace_ms: 0,
        drain_seconds,
        // Any limit that the library can make.
        inline_max_period: Duration::MAX,
        inline_max_count: u64::MAX,
        ..Settings::default()
    }
}

/// Words of a line, asked and answered.
pub(crate) fn ask(connection: &mut Connection, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    connection.command(&words).expect("a reply")
}

/// An answer that is numbers.
pub(crate) fn numbers(reply: &Reply) -> Vec<i64> {
    reply.items().iter().map(Reply::integer).collect()
}

/// An answer that is a refusal.
pub(crate) fn refusal(reply: Reply) -> String {
    match reply {
        Reply::Error(words) => words,
        other => panic!("expected an error, got {other:?}"),
    }
}
