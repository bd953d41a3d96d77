//! Which servers: one, a sentinel set, or a cluster.

use std::fmt;
#[cfg(feature = "internals")]
use std::pin::Pin;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};
use tokio::sync::Mutex;

#[cfg(feature = "tls")]
use crate::certificates::Certificates;

/// Where a store keeps its states: made from a URL, or from a client of your own.
pub struct Servers(pub(crate) Topology);

pub(crate) enum Topology {
    One(Origin),
    /// Some of the nodes, at least one.
    Cluster(Vec<Client>),
}

/// Where the connections of one link come from.
pub(crate) enum Origin {
    Server(Box<ConnectionInfo>),
    /// Whichever server is the master. Each client knows one sentinel or more.
    Sentinels(Vec<Mutex<SentinelClient>>),
    /// Whichever server a simulated network leads to.
    #[cfg(feature = "internals")]
    Simulated(Box<dyn Dial>),
}

/// Why a store cannot be made. That the servers are away is no reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL names no servers.
    #[error(
        "cannot use {scheme:?} as the scheme of a URL: expected redis, rediss, redis+unix, redis+sentinel, \
         rediss+sentinel, redis+cluster or rediss+cluster"
    )]
    UnknownScheme {
        /// What was found.
        scheme: String,
    },
    /// A sentinel's URL does not say which master.
    #[error("the URL of a sentinel set must name the master: redis+sentinel://host:26379,host:26379/mymaster")]
    NoMasterName,
    /// A cluster without a node.
    #[error("a cluster must be named by at least one node: redis+cluster://host:6379,host:6379")]
    NoNodes,
    /// The client cannot use it.
    #[error("the client cannot use the URL")]
    Unusable(#[from] redis::RedisError),
    /// Certificates for a connection that has no use for them.
    #[error(
        "certificates are for servers that speak TLS: write rediss, rediss+sentinel or rediss+cluster, not {scheme:?}"
    )]
    CertificatesWithoutTls {
        /// The scheme of the URL.
        scheme: String,
    },
    /// A prefix with a brace would spoil the hash tags.
    #[error("a prefix must not contain a brace, and {prefix:?} does: choose another")]
    Prefix {
        /// The prefix.
        prefix: String,
    },
    /// The deadline is zero.
    #[error("a deadline of zero leaves no time to answer: give at least a millisecond")]
    NoTime,
    /// A lease of nothing, or for no time.
    #[error("the lease of rule {rule:?} needs a chunk and a time above zero")]
    EmptyLease {
        /// The rule.
        rule: String,
    },
    /// The operating system gave no thread to run connections on.
    #[error("cannot start a thread for the connections")]
    NoThread(#[source] std::io::Error),
}

impl Servers {
    /// The servers that a URL names:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, `rediss://..` for TLS
    /// - `redis+unix:///path/to/socket`
    /// - `redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]`
    /// - `redis+cluster://[user:password@]host[:port],host[:port][/db]`; only
    ///   clusters of Valkey 9 have more than one database
    ///
    /// The last two also as `rediss+..`.
    ///
    /// # Errors
    /// If it names none.
    pub fn parse(url: &str) -> Result<Servers, ConnectError> {
        Servers::read(url, &Opener::default())
    }

    /// The same, for servers that speak TLS with certificates of your own.
    ///
    /// # Errors
    /// If it names none, or none that speak TLS, or if the certificates cannot be read.
    #[cfg(feature = "tls")]
    pub fn parse_with_certificates(url: &str, certificates: Certificates) -> Result<Servers, ConnectError> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !matches!(scheme, "rediss" | "valkeys" | "rediss+sentinel" | "rediss+cluster") {
            // Without a scheme there may be a password before the first colon.
            return Err(ConnectError::CertificatesWithoutTls { scheme: scheme.to_owned() });
        }
        Servers::read(url, &Opener { certificates: Some(certificates.into()) })
    }

    fn read(url: &str, opener: &Opener) -> Result<Servers, ConnectError> {
        let scheme = url.split_once("://").map_or(url, |(scheme, _)| scheme);
        // Where it is missing, this may be a password.
        let scheme = scheme.rsplit_once('@').map_or(scheme, |(_, host)| host);
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix" => {
                Ok(opener.client(url)?.into())
            }
            "redis+sentinel" | "rediss+sentinel" => Servers::sentinels(url, scheme, opener),
            "redis+cluster" | "rediss+cluster" => {
                let (nodes, db) = each_host(url, scheme, 6379);
                let nodes = nodes.into_iter().map(|node| opener.client(&format!("{node}/{db}")));
                Servers::cluster(nodes.collect::<RedisResult<Vec<_>>>()?)
            }
            _ => Err(ConnectError::UnknownScheme { scheme: scheme.to_owned() }),
        }
    }

    fn sentinels(url: &str, scheme: &str, opener: &Opener) -> Result<Servers, ConnectError> {
        let (sentinels, path) = each_host(url, scheme, 26_379);
        let mut path = path.split('/');
        let master = path.next().filter(|name| !name.is_empty()).ok_or(ConnectError::NoMasterName)?;
        let node = sentinels.first().ok_or(ConnectError::NoMasterName)?;
        let node = format!("{node}/{}", path.next().unwrap_or_default()).into_connection_info()?;
        // A client for each: one that knows them all waits for a sentinel that
        // hangs before it listens to the next.
        let clients = sentinels.iter().map(|sentinel| {
            let address = sentinel.as_str().into_connection_info()?.addr().clone();
            opener.sentinel(address, master, &node).map(Mutex::new)
        });
        Ok(Servers(Topology::One(Origin::Sentinels(clients.collect::<RedisResult<_>>()?))))
    }

    /// A cluster by clients of your own for some of its nodes. The others are
    /// found, and reached as the first of these is.
    ///
    /// # Errors
    /// If there is none.
    pub fn cluster(nodes: impl IntoIterator<Item = Client>) -> Result<Servers, ConnectError> {
        let nodes: Vec<Client> = nodes.into_iter().collect();
        if nodes.is_empty() {
            return Err(ConnectError::NoNodes);
        }
        Ok(Servers(Topology::Cluster(nodes)))
    }
}

/// How clients are made of addresses.
#[derive(Default)]
struct Opener {
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
}

impl Opener {
    fn client(&self, url: &str) -> RedisResult<Client> {
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            return Client::build_with_tls(url, certificates.clone());
        }
        Client::open(url)
    }

    /// A client of one sentinel, for servers like `node`. Credentials and database
    /// are those of the servers; sentinels rarely have any.
    fn sentinel(&self, sentinel: ConnectionAddr, master: &str, node: &ConnectionInfo) -> RedisResult<SentinelClient> {
        let settings = node.redis_settings();
        let mut builder = SentinelClientBuilder::new([sentinel], master, SentinelServerType::Master)?;
        builder = builder.set_client_to_redis_db(settings.db()).set_client_to_redis_protocol(settings.protocol());
        if let Some(username) = settings.username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = settings.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if matches!(node.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            builder = builder.set_client_to_redis_certificates(certificates.clone());
            builder = builder.set_client_to_sentinel_certificates(certificates.clone());
        }
        builder.build()
    }
}

impl From<Client> for Servers {
    fn from(client: Client) -> Servers {
        Servers(Topology::One(Origin::Server(Box::new(client.get_connection_info().clone()))))
    }
}

/// The client must be one for masters.
impl From<SentinelClient> for Servers {
    fn from(client: SentinelClient) -> Servers {
        Servers(Topology::One(Origin::Sentinels(vec![Mutex::new(client)])))
    }
}

/// Opens connections on a simulated network.
#[cfg(feature = "internals")]
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection with these settings.
    fn dial(
        &self,
        settings: AsyncConnectionConfig,
    ) -> Pin<Box<dyn Future<Output = RedisResult<MultiplexedConnection>> + Send + '_>>;
}

#[cfg(feature = "internals")]
impl Servers {
    /// The server that a simulated network leads to; no stability promise.
    #[doc(hidden)]
    #[must_use]
    pub fn simulated(dialer: impl Dial) -> Servers {
        Servers(Topology::One(Origin::Simulated(Box::new(dialer))))
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Topology::One(Origin::Server(_)) => "Servers(one)",
            Topology::One(Origin::Sentinels(_)) => "Servers(sentinel set)",
            #[cfg(feature = "internals")]
            Topology::One(Origin::Simulated(_)) => "Servers(simulated)",
            Topology::Cluster(_) => "Servers(cluster)",
        })
    }
}

/// A URL for each host of one that names several, and the path.
fn each_host<'u>(url: &'u str, scheme: &str, port: u16) -> (Vec<String>, &'u str) {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = hosts.split_at(hosts.rfind('@').map_or(0, |at| at + 1));
    let scheme = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
    let urls = hosts.split(',').filter(|host| !host.is_empty()).map(|host| {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if has_port { String::new() } else { format!(":{port}") };
        format!("{scheme}://{credentials}{host}{port}")
    });
    (urls.collect(), path)
}

impl Origin {
    /// Opens a connection, without retries of any kind.
    pub(crate) async fn open(&self) -> RedisResult<MultiplexedConnection> {
        // The deadlines are our own; the client has none that could end a
        // connection which others still use.
        let settings = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let settings = settings.set_pipeline_buffer_size(PIPELINE);
        match self {
            Origin::Server(info) => {
                let client = Client::open((**info).clone())?;
                client.get_multiplexed_async_connection_with_config(&settings).await
            }
            Origin::Sentinels(clients) => {
                let opening = clients.iter().map(|client| {
                    async { client.lock().await.get_async_connection_with_config(&settings).await }.boxed()
                });
                select_ok(opening).await.map(|(connection, _)| connection)
            }
            #[cfg(feature = "internals")]
            Origin::Simulated(dialer) => dialer.dial(settings).await,
        }
    }
}

/// Commands that may be on their way to a server before others wait: the
/// client's own 50 held back 256 callers measurably.
const PIPELINE: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_every_kind_are_understood() {
        for (url, shown) in [
            ("redis://127.0.0.1", "Servers(one)"),
            ("redis://user:secret@127.0.0.1:6380/2", "Servers(one)"),
            ("redis+unix:///run/redis.sock", "Servers(one)"),
            ("redis+sentinel://127.0.0.1,127.0.0.1:26380/mymaster", "Servers(sentinel set)"),
            ("redis+sentinel://user:secret@127.0.0.1/mymaster/3", "Servers(sentinel set)"),
            ("redis+cluster://127.0.0.1:7000,127.0.0.1:7001", "Servers(cluster)"),
        ] {
            let servers = Servers::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(format!("{servers:?}"), shown, "{url}");
        }
    }

    #[test]
    fn others_are_refused_with_what_would_do() {
        for (url, expected) in [
            ("http://127.0.0.1", "cannot use \"http\" as the scheme"),
            ("127.0.0.1", "cannot use \"127.0.0.1\" as the scheme"),
            ("redis+sentinel://127.0.0.1", "must name the master"),
            ("redis+cluster://", "must be named by at least one node"),
        ] {
            let error = Servers::parse(url).expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    #[test]
    fn no_error_tells_a_password() {
        for url in [
            "default:secret@127.0.0.1:6379",
            ":secret@127.0.0.1",
            "redis:default:secret@127.0.0.1",
            "http://default:secret@127.0.0.1",
            "redis://default:secret@127.0.0.1:port",
            "redis+sentinel://default:secret@127.0.0.1",
            "redis+cluster://default:secret@127.0.0.1:port",
        ] {
            let error = Servers::parse(url).expect_err(url);
            let (words, source) = (format!("{error} {error:?}"), std::error::Error::source(&error));
            assert!(!words.contains("secret"), "{words}");
            assert!(!source.is_some_and(|source| source.to_string().contains("secret")), "{words}");
        }
    }

    #[test]
    fn a_database_is_a_number_and_is_not_overlooked() {
        assert!(Servers::parse("redis+sentinel://127.0.0.1/mymaster/three").is_err());
        assert!(Servers::parse("redis+cluster://127.0.0.1/three").is_err());
        let servers = Servers::parse("redis+cluster://127.0.0.1,127.0.0.1:7001/3").expect("a URL");
        let Topology::Cluster(nodes) = servers.0 else { panic!("a cluster") };
        assert!(nodes.iter().all(|node| node.get_connection_info().redis_settings().db() == 3));
    }

    #[test]
    fn hosts_get_the_credentials_and_a_port() {
        let (urls, path) = each_host("rediss+cluster://u:p@a,b:1/m/2", "rediss+cluster", 6379);
        assert_eq!((urls, path), (vec!["rediss://u:p@a:6379".into(), "rediss://u:p@b:1".into()], "m/2"));
    }
}
