//! A whole server: settings to listeners, and back to silence.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use tidegate::ConfigError;
use tidegate_config::envoy::{self, EnvoyConfig};
use tidegate_config::{Report, document};
use tracing::{error, info, warn};

use crate::access::audit::{Audit, AuditError};
use crate::access::guards::Guards;
use crate::access::{TokensFile, has_credentials};
use crate::ask::engine::Engine;
use crate::ask::inline::Observe;
use crate::ask::inline_store::{self, InlineStore};
use crate::ask::opening::{self, OpenError};
use crate::ask::policy::CurrentPolicy;
use crate::ask::snapshot::{Kept, StatesError};
use crate::ask::store::AnyStore;
use crate::ask::watch::Watches;
use crate::run::buffered::Buffered;
use crate::run::connections::Connections;
use crate::run::files::{self, TooFewFiles};
use crate::run::listen::Listener;
use crate::run::protocol::Protocol;
use crate::run::tls::{Protocols, Tls, TlsError, TlsFiles};
use crate::run::workers::Workers;
use crate::screen::Screen;
use crate::screen::recent_requests::RecentRequests;
use crate::settings::absent::Absent;
use crate::settings::address::Address;
use crate::settings::origin::MAX_INSTANCES;
use crate::settings::{Secret, Settings};
use crate::tell::metrics::Metrics;
#[cfg(feature = "otlp")]
use crate::tell::otlp;
use crate::tell::records::Records;
use crate::tell::webhook::{Webhook, WebhookError};
use crate::wire::app::App;
use crate::wire::grpc;
use crate::wire::http;
use crate::wire::resp::{self, Resp};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The policy has errors.
    #[error("{0}")]
    Policy(Box<Report>),
    /// A folder that is to have descriptor files has none.
    #[error("there are no descriptor files in {}: their names end in .yaml or .yml", path.display())]
    EnvoyFolder {
        /// Which.
        path: PathBuf,
    },
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// TLS cannot be had.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The states of the last run cannot be read.
    #[error(transparent)]
    States(#[from] StatesError),
    /// A file with a token or a secret cannot be read.
    #[error("cannot read the token or secret in {}", path.display())]
    Token {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A setting needs a feature that this binary was built without.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// Every client that reaches the server could use it.
    #[error(
        "all clients that reach {address} could use the server: give --tokens FILE, an --admin-token or \
         --tls-client-ca{password}, listen on loopback, or start with --insecure-no-auth"
    )]
    NoCredentials {
        /// Where it would listen.
        address: Address,
        /// What else would do.
        password: &'static str,
    },
    /// More instances were named than a dashboard shows.
    #[error("there are {count} of --dashboard-instance: give at most {MAX_INSTANCES}")]
    TooManyInstances {
        /// How many.
        count: usize,
    },
    /// More connections were asked for than files can be opened.
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The system has no threads to serve with.
    #[error("cannot start the threads that serve")]
    Threads(#[source] io::Error),
    /// Events cannot be sent.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// Metrics cannot be sent.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Otlp(#[from] otlp::OtlpError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: give another address by {flag}, or port 0 for one that is free")]
    Listen {
        /// The flag that names another address.
        flag: &'static str,
        /// Which.
        address: Address,
        /// Why.
        source: io::Error,
    },
}

impl From<Report> for StartError {
    fn from(report: Report) -> StartError {
        StartError::Policy(Box::new(report))
    }
}

/// A server that runs in this process until it is [drained](Server::drain).
pub struct Server {
    app: Arc<App>,
    screen: Screen,
    kept: Kept,
    http: Vec<Address>,
    resp: Vec<Address>,
    grpc: Vec<Address>,
    debug: Vec<Address>,
    watches: Watches,
    webhook: Option<Webhook>,
    #[cfg(feature = "otlp")]
    exporter: Option<otlp::Exporter>,
}

impl Server {
    /// Starts a server with the store that its settings name.
    ///
    /// # Errors
    /// [`StartError`], if anything that was asked for cannot be had.
    pub async fn open(settings: Settings) -> Result<Server, StartError> {
        let store = opening::open(&settings).await?;
        Server::start(settings, store).await
    }

    /// Starts a server on any store, such as one with a
    /// [`ManualClock`](tidegate::ManualClock).
    ///
    /// # Errors
    /// As [`open`](Server::open).
    pub async fn start(mut settings: Settings, store: impl Into<AnyStore>) -> Result<Server, StartError> {
        Absent::check(&settings)?;
        if let Some(path) = &settings.admin_token_file {
            settings.admin_token = Some(secret(path)?);
        }
        if let Some(path) = &settings.webhook_secret_file {
            settings.webhook_secret = Some(secret(path)?);
        }
        is_guarded(&settings)?;
        let count = settings.dashboard_instance.len();
        if count > MAX_INSTANCES {
            return Err(StartError::TooManyInstances { count });
        }
        let tokens = settings.tokens.as_deref().map_or_else(|| Ok(TokensFile::default()), document::load)?;
        let audit = Audit::start(settings.audit.as_deref())?;
        let policy = CurrentPolicy::load(settings.policy.as_deref(), settings.limitador_limits.as_deref())?;
        let tls = tls_files(&settings)?.map(Tls::load).transpose()?;
        let envoy = envoy_config(&settings)?;
        let workers = Workers::start(settings.threads).map_err(StartError::Threads)?;
        let connections = Connections::new(files::bounds(&settings)?, workers);
        let store = store.into();
        let inline = InlineStore::open(&settings, &store)?;
        let kept = kept(&settings, &store, &inline);
        let metrics = Metrics::new(store.clone(), inline.clone(), audit.lost.clone(), &connections.counts);
        let buffered = Buffered::new(settings.max_buffered, metrics.buffered(), metrics.shed("buffered"));
        let bounds = (buffered, metrics.shed("in-flight"));
        let guards = Arc::new(Guards::new(&settings, (tokens, audit), connections, bounds));
        let records = Records { metrics: Arc::new(metrics), refused: Arc::default() };
        let recent = RecentRequests::new(&settings).map(Arc::new);
        let observe = observe(records.clone(), recent.clone());
        let engine = Arc::new(Engine::new(&settings, policy, envoy, (store, inline), observe)?);
        let app = Arc::new(App { settings, engine, guards, records, started: Instant::now() });
        let mut server = Server {
            #[cfg(feature = "otlp")]
            exporter: otlp::Exporter::start(&app.settings, &app.records.metrics)?,
            webhook: Webhook::start(&app.settings, &app.records.metrics).await?,
            screen: Screen::new(Arc::clone(&app), recent),
            app,
            kept,
            http: Vec::new(),
            resp: Vec::new(),
            grpc: Vec::new(),
            debug: Vec::new(),
            watches: Watches::default(),
        };
        for address in server.app.settings.http.clone() {
            let listener = listen("--http", &address, tls.as_ref(), &[b"h2", b"http/1.1"]).await?;
            server.http.push(listener.address().clone());
            server.spawn(http::serve(listener, Arc::clone(&server.app), server.routes()));
        }
        let resp = Resp::new(Arc::clone(&server.app));
        for address in server.app.settings.resp.clone() {
            let listener = listen("--resp", &address, tls.as_ref(), &[]).await?;
            server.resp.push(listener.address().clone());
            server.spawn(resp::serve(listener, Arc::clone(&resp)));
        }
        for address in server.app.settings.grpc.clone() {
            let listener = listen("--grpc", &address, tls.as_ref(), &[b"h2"]).await?;
            server.grpc.push(listener.address().clone());
            server.spawn(grpc::serve(listener, Arc::clone(&server.app)));
        }
        for address in server.app.settings.debug.clone() {
            let listener = listen("--debug", &address, tls.as_ref(), &[b"h2", b"http/1.1"]).await?;
            server.debug.push(listener.address().clone());
            server.spawn(grpc::debug::serve(listener, Arc::clone(&server.app)));
        }
        if let (Some(_), pause @ 1..) = (&server.app.settings.snapshot, server.app.settings.snapshot_every) {
            server.spawn(server.kept.clone().save_every(Duration::from_secs(pause), server.app.guards.drain.clone()));
        }
        if !server.app.settings.no_admin {
            let (history, App { guards, records, .. }) = (&server.screen.shown.history, &*server.app);
            server.spawn(Arc::clone(history).keep(Arc::clone(&records.metrics), guards.drain.clone()));
        }
        let App { settings, engine, guards, records, .. } = &*server.app;
        let metrics = Arc::clone(&records.metrics);
        server.watches = Watches::start(settings, engine, guards, tls, move |taken| metrics.policy_given(taken))?;
        Ok(server)
    }

    /// All that is served over HTTP.
    pub(crate) fn routes(&self) -> Router {
        http::router(Arc::clone(&self.app), grpc::http_routes(&self.app).merge(self.screen.routes()))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.app.guards.connections.spawn(task);
    }

    /// Reads policy, descriptor, token and TLS files again, though they may not have changed.
    pub fn reload(&self) {
        self.app.guards.audit.reopen();
        self.watches.reload();
    }

    /// What the protocols share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// What is shown.
    #[cfg(test)]
    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Where HTTP is served.
    pub fn http(&self) -> &[Address] {
        &self.http
    }

    /// All addresses, with the protocol of each.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, &Address)> {
        let http = self.http.iter().map(|address| ("http", address));
        let resp = self.resp.iter().map(|address| ("resp", address));
        let debug = self.debug.iter().map(|address| ("debug", address));
        http.chain(resp).chain(self.grpc.iter().map(|address| ("grpc", address))).chain(debug)
    }

    /// Where gRPC is served, and nothing else.
    pub fn grpc(&self) -> &[Address] {
        &self.grpc
    }

    /// The first TCP address of gRPC, for tests.
    pub fn grpc_socket(&self) -> Option<SocketAddr> {
        tcp(&self.grpc)
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

    /// Shuts down: reports not ready, waits for the grace if there ever was a connection, closes the listeners, and
    /// waits for requests that have begun. Returns whether all have finished in time.
    pub async fn drain(mut self) -> bool {
        let settings = &self.app.settings;
        info!("shutting down");
        self.app.guards.drain.leave();
        if self.app.guards.connections.have_been() {
            tokio::time::sleep(Duration::from_millis(settings.drain_grace_ms)).await;
        }
        self.app.guards.drain.close();
        let finished = self.app.guards.connections.finished_within(Duration::from_secs(settings.drain_seconds)).await;
        if !finished {
            warn!(open = self.app.guards.connections.open(), "some connections did not finish in time");
        }
        if let Some(store) = self.app.engine.store().redis() {
            store.close().await;
        }
        let kept = self.kept.save().await;
        if !kept {
            error!("cannot write the snapshot: states since the last one are lost");
        }
        self.app.guards.audit.flush().await;
        if let Some(webhook) = self.webhook.take() {
            webhook.finish().await;
        }
        // Last: a collector may not answer, and the rest of the shutdown does not wait for it.
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter.take() {
            exporter.finish().await;
        }
        finished && kept
    }
}

impl Drop for Server {
    /// Closes, without waiting for anybody.
    fn drop(&mut self) {
        self.app.guards.drain.close();
    }
}

/// What is told of decisions, and by the policy also what is kept for trials.
fn observe(records: Records, recent: Option<Arc<RecentRequests>>) -> Box<Observe> {
    Box::new(move |builder, inline| match &recent {
        Some(recent) if inline.is_none() => records.observe(builder, inline).observer(Arc::clone(recent)),
        Some(_) | None => records.observe(builder, inline),
    })
}

/// What is written to files, if anything is.
fn kept(settings: &Settings, store: &AnyStore, inline: &InlineStore) -> Kept {
    match (&settings.snapshot, store, &inline.store) {
        (Some(path), AnyStore::Memory(store), AnyStore::Memory(inline)) => {
            Kept::new(vec![(Arc::clone(store), path.clone()), (Arc::clone(inline), inline_store::file_of(path))])
        }
        _ => Kept::default(),
    }
}

/// What a file says that has a token or a secret in it.
fn secret(path: &Path) -> Result<Secret, StartError> {
    let text = tidegate_config::read_file(path).map_err(io::Error::from);
    let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.map_err(|source| StartError::Token { path: path.to_owned(), source })?;
    Ok(text.trim().into())
}

/// The first TCP address of some.
fn tcp(addresses: &[Address]) -> Option<SocketAddr> {
    addresses.iter().find_map(|address| match address {
        Address::Tcp(text) => text.parse().ok(),
        Address::Unix(_) => None,
    })
}

/// Whether all that others can reach asks for a credential, or is to be open.
fn is_guarded(settings: &Settings) -> Result<(), StartError> {
    let Settings { http, grpc, resp, debug, .. } = settings;
    for (protocol, addresses, password) in [
        (Protocol::Http, http, ""),
        (Protocol::Http, debug, ""),
        (Protocol::Grpc, grpc, ""),
        (Protocol::Resp, resp, ", or a --resp-password"),
    ] {
        let Some(address) = addresses.iter().find(|address| !address.is_local()) else { continue };
        if has_credentials(settings, protocol) {
            continue;
        }
        if !settings.insecure_no_auth {
            return Err(StartError::NoCredentials { address: address.clone(), password });
        }
        warn!(%address, "all clients that reach the server can use it, without credentials: --insecure-no-auth");
    }
    Ok(())
}

/// The configuration of all descriptor files that the settings name.
fn envoy_config(settings: &Settings) -> Result<EnvoyConfig, StartError> {
    let files = settings.descriptor_files();
    // Later a folder may be empty for a moment. One that is empty at the start is most likely the wrong one.
    if let Some(path) = files.iter().find(|path| path.is_dir() && is_empty(path)) {
        return Err(StartError::EnvoyFolder { path: path.clone() });
    }
    Ok(envoy::load(files)?)
}

/// Whether a folder has no YAML files, hidden ones aside.
fn is_empty(folder: &Path) -> bool {
    let is_yaml = |file: PathBuf| {
        let is_hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && file.extension().is_some_and(|end| end == "yaml" || end == "yml")
    };
    let Ok(mut entries) = folder.read_dir() else { return false };
    !entries.any(|entry| entry.is_ok_and(|entry| is_yaml(entry.path())))
}

/// The files of TLS that the settings name, if they name any.
fn tls_files(settings: &Settings) -> Result<Option<TlsFiles>, TlsError> {
    let (client_ca, client_crls) = (settings.tls_client_ca.clone(), settings.tls_client_crl.clone());
    match (settings.tls_certificate.clone(), settings.tls_key.clone()) {
        _ if client_ca.is_none() && !client_crls.is_empty() => Err(TlsError::ListsOnly),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key, client_ca, client_crls })),
        (None, None) if client_ca.is_some() => Err(TlsError::ClientsOnly),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(TlsError::Half),
    }
}

/// Listens on an address, with TLS if there is any.
async fn listen(
    flag: &'static str,
    address: &Address,
    tls: Option<&Tls>,
    protocols: Protocols,
) -> Result<Listener, StartError> {
    let bound = Listener::bind(address, tls.map(|tls| tls.speaking(protocols))).await;
    bound.map_err(|source| StartError::Listen { flag, address: address.clone(), source })
}
