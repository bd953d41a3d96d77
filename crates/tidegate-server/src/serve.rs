//! A whole server: settings to listeners, and back to silence.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{ConfigError, Policy};
use tidegate_config::{Format, Report};
use tidegate_redis::ConnectError;
use tracing::{info, warn};

use crate::app::App;
use crate::http;
use crate::listen::{Address, Listener};
use crate::resp::{self, Resp};
use crate::settings::{Settings, StoreChoice};
use crate::store::AnyStore;
use crate::tls::{TlsError, TlsFiles};

/// The policy of a server that was given none.
pub(crate) const DEFAULT_POLICY: &str = include_str!("default_policy.toml");

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The policy has mistakes.
    #[error("{0}")]
    Policy(Box<Report>),
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store's URL cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] ConnectError),
    /// TLS cannot be had.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: Address,
        /// Why.
        source: io::Error,
    },
}

/// A server that runs in this process until it is [drained](Server::drain).
pub struct Server {
    app: Arc<App>,
    http: Vec<Address>,
    resp: Vec<Address>,
}

impl Server {
    /// Starts a server with the store that its settings name.
    ///
    /// # Errors
    /// [`StartError`], if anything that was asked for cannot be had.
    pub async fn open(settings: Settings) -> Result<Server, StartError> {
        let store = match &settings.store {
            StoreChoice::Memory => tidegate::MemoryStore::builder().max_keys(settings.max_keys).build()?.into(),
            StoreChoice::Url(url) => AnyStore::from(tidegate_redis::RedisStore::connect(url).await?),
        };
        Server::start(settings, store).await
    }

    /// Starts a server on any store, such as one with a
    /// [`ManualClock`](tidegate::ManualClock).
    ///
    /// # Errors
    /// As [`open`](Server::open).
    pub async fn start(settings: Settings, store: impl Into<AnyStore>) -> Result<Server, StartError> {
        let policy = policy(settings.policy.as_deref())?;
        let tls = TlsFiles::of(&settings)?;
        let app = Arc::new(App::new(settings, policy, store)?);
        let mut server = Server { app, http: Vec::new(), resp: Vec::new() };
        for address in server.app.settings.http.clone() {
            let listener = listen(&address, tls.as_ref(), &[b"h2", b"http/1.1"]).await?;
            server.http.push(listener.address().clone());
            server.spawn(http::serve(listener, Arc::clone(&server.app)));
        }
        let resp = Resp::new(Arc::clone(&server.app));
        for address in server.app.settings.resp.clone() {
            let listener = listen(&address, tls.as_ref(), &[]).await?;
            server.resp.push(listener.address().clone());
            server.spawn(resp::serve(listener, Arc::clone(&resp)));
        }
        // Further protocols are started here, in the same way.
        Ok(server)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.app.connections.spawn(task);
    }

    /// What the protocols share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Where HTTP is served.
    pub fn http(&self) -> &[Address] {
        &self.http
    }

    /// The first TCP address of HTTP, for tests.
    pub fn http_socket(&self) -> Option<SocketAddr> {
        tcp(&self.http)
    }

    /// Where RESP is served.
    pub fn resp(&self) -> &[Address] {
        &self.resp
    }

    /// The first TCP address of RESP, for tests.
    pub fn resp_socket(&self) -> Option<SocketAddr> {
        tcp(&self.resp)
    }

    /// Leaves: says so, waits for the grace, closes, and waits for those who
    /// have begun. Says whether all have finished in time.
    pub async fn drain(self) -> bool {
        let settings = &self.app.settings;
        info!("leaving");
        self.app.drain.leave();
        if self.app.connections.open() > 0 {
            tokio::time::sleep(Duration::from_millis(settings.drain_grace_ms)).await;
        }
        self.app.drain.close();
        let finished = self.app.connections.finished_within(Duration::from_secs(settings.drain_seconds)).await;
        if !finished {
            warn!(open = self.app.connections.open(), "some connections did not finish in time");
        }
        if let AnyStore::Redis(store) = self.app.store() {
            store.close().await;
        }
        finished
    }
}

/// The first TCP address of some.
fn tcp(addresses: &[Address]) -> Option<SocketAddr> {
    addresses.iter().find_map(|address| match address {
        Address::Tcp(text) => text.parse().ok(),
        Address::Unix(_) => None,
    })
}

fn policy(path: Option<&Path>) -> Result<Policy, StartError> {
    let policy = match path {
        Some(path) => tidegate_config::load(path),
        None => tidegate_config::parse(DEFAULT_POLICY, Format::Toml, "built-in policy".as_ref()),
    };
    policy.map_err(|report| StartError::Policy(Box::new(report)))
}

/// Listens on an address, with TLS if there is any.
async fn listen(address: &Address, tls: Option<&TlsFiles>, protocols: &[&[u8]]) -> Result<Listener, StartError> {
    let acceptor = tls.map(|files| files.acceptor(protocols)).transpose()?;
    let bound = Listener::bind(address, acceptor).await;
    bound.map_err(|source| StartError::Listen { address: address.clone(), source })
}
