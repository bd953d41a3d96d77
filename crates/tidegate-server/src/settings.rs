//! How a server is started: flags, and for each of them a variable of the
//! environment and a name in the settings file.

pub(crate) mod absent;
pub(crate) mod address;
pub(crate) mod envoy_ratelimit;
pub(crate) mod file;
pub(crate) mod origin;
#[cfg(test)]
mod page;
pub(crate) mod rights;
mod secret;

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, FromArgMatches, ValueEnum};
use tidegate::{FailureMode, Limit, Limiter, Network};

use self::address::Address;
pub use self::origin::{Origin, OriginError};
use self::rights::Right;
pub use self::secret::Secret;

/// How long a store on Redis may take for an answer, unless set: as long as the library's own default.
pub(crate) const STORE_DEADLINE_MS: u64 = 100;

/// The settings of a server. [`Settings::default`] is what no flags mean.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Read settings from this file, TOML or YAML; flags and the environment override it
    #[arg(long, env = "TIDEGATE_SETTINGS", value_name = "FILE")]
    pub settings: Option<PathBuf>,

    /// Replace another rate limit service: read its environment, listen on its ports, decide as it does
    #[arg(id = "as", long = "as", env = "TIDEGATE_AS", value_name = "SERVICE")]
    pub stands_in_for: Option<OtherService>,

    /// Notices about that environment, logged at the start.
    #[arg(skip)]
    pub notices: Vec<String>,

    /// HTTP address
    ///
    /// host:port or unix:/path. May be given several times.
    #[arg(
        long,
        env = "TIDEGATE_HTTP",
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7400"
    )]
    pub http: Vec<Address>,

    /// gRPC address, for Envoy
    ///
    /// host:port or unix:/path. May be given several times. HTTP listeners serve gRPC as well.
    #[arg(long, env = "TIDEGATE_GRPC", value_name = "ADDRESS", value_delimiter = ',')]
    pub grpc: Vec<Address>,

    /// RESP address, for Redis clients
    ///
    /// host:port or unix:/path. May be given several times.
    #[arg(long, env = "TIDEGATE_RESP", value_name = "ADDRESS", value_delimiter = ',')]
    pub resp: Vec<Address>,

    /// The password that RESP clients must send
    #[arg(long, env = "TIDEGATE_RESP_PASSWORD", value_name = "PASSWORD", hide_env_values = true)]
    pub resp_password: Option<Secret>,

    /// Seconds that a client of RESP may be idle between commands; 0 is for ever
    #[arg(long, env = "TIDEGATE_RESP_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 300)]
    pub resp_idle_seconds: u64,

    /// Let clients of gRPC list the services and their messages (server reflection)
    #[arg(long, env = "TIDEGATE_GRPC_REFLECTION")]
    pub grpc_reflection: bool,

    /// Serve /rlconfig and /stats here, as the reference service does on its port for debugging
    #[arg(long, env = "TIDEGATE_DEBUG", value_name = "ADDRESS", value_delimiter = ',')]
    pub debug: Vec<Address>,

    /// Threads that serve [default: one for each core]
    #[arg(long, env = "TIDEGATE_THREADS", value_name = "COUNT")]
    pub threads: Option<NonZeroUsize>,

    /// Seconds that a client may take for the head of a request, or be idle
    #[arg(long, env = "TIDEGATE_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_seconds: u64,

    /// Seconds that a client may take for the body of a request
    #[arg(long, env = "TIDEGATE_BODY_SECONDS", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub body_seconds: u64,

    /// Milliseconds from the first "not ready" to closing the listeners, so that load balancers notice
    #[arg(long, env = "TIDEGATE_DRAIN_GRACE_MS", value_name = "MS", default_value_t = 1_000)]
    pub drain_grace_ms: u64,

    /// Seconds after which a drain closes connections that are still busy
    #[arg(long, env = "TIDEGATE_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 25)]
    pub drain_seconds: u64,

    /// memory, or a URL: redis, rediss, redis+unix, redis+sentinel, redis+cluster
    ///
    /// `memory`, or a URL of Redis or Valkey: `redis://host:6379`, `rediss://host:6379` with TLS, `redis+unix:///path`,
    /// `redis+sentinel://host,host/master`, `redis+cluster://host,host`. Give a URL with a password by the variable:
    /// lists of processes show flags.
    #[arg(long, env = "TIDEGATE_STORE", value_name = "URL", default_value = "memory")]
    pub store: StoreChoice,

    /// Prefix of all keys on Redis; servers with different prefixes share nothing
    #[arg(long, env = "TIDEGATE_STORE_PREFIX", value_name = "PREFIX", default_value = "tidegate")]
    pub store_prefix: String,

    /// Milliseconds that Redis may take for an answer
    #[arg(long, env = "TIDEGATE_STORE_DEADLINE_MS", value_name = "MS", default_value_t = STORE_DEADLINE_MS)]
    pub store_deadline_ms: u64,

    /// The authorities that may sign the certificate of Redis, in PEM format, for rediss:// URLs; the system's unless set
    #[arg(long, env = "TIDEGATE_STORE_TLS_CA", value_name = "FILE")]
    pub store_tls_ca: Option<PathBuf>,

    /// The certificate chain to show to Redis, in PEM format, for rediss:// URLs
    #[arg(long, env = "TIDEGATE_STORE_TLS_CERTIFICATE", value_name = "FILE")]
    pub store_tls_certificate: Option<PathBuf>,

    /// The private key of the certificate to show to Redis, in PEM format
    #[arg(long, env = "TIDEGATE_STORE_TLS_KEY", value_name = "FILE")]
    pub store_tls_key: Option<PathBuf>,

    /// error (503), open (admit), closed (refuse), local:N (an Nth of each limit)
    ///
    /// What to do when the store fails: `error` (503), `open` (admit), `closed` (refuse), or `local:N`: decide here by an
    /// Nth of each limit, for N servers.
    #[arg(long, env = "TIDEGATE_ON_FAILURE", value_name = "MODE", default_value = "error")]
    pub on_failure: OnFailure,

    /// Live keys in memory
    ///
    /// The memory store has room for so many live keys. Memory for them is taken as they come.
    #[arg(long, env = "TIDEGATE_MAX_KEYS", value_name = "COUNT", default_value_t = 1_000_000)]
    pub max_keys: usize,

    /// Read states from this file at the start, and write them to it while running and at the end (memory store);
    /// those of limits that came with requests go to a second file, with .inline after the name
    #[arg(long, env = "TIDEGATE_SNAPSHOT", value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Seconds from one writing of the states to the next; 0 writes them only at the end
    #[arg(long, env = "TIDEGATE_SNAPSHOT_EVERY", value_name = "SECONDS", default_value_t = 60)]
    pub snapshot_every: u64,

    /// Policy file, TOML or YAML [default: built in]
    #[arg(long, env = "TIDEGATE_POLICY", value_name = "FILE")]
    pub policy: Option<PathBuf>,

    /// The limits file of limitador, YAML, in place of a policy
    #[arg(long, env = "TIDEGATE_LIMITADOR_LIMITS", value_name = "FILE", conflicts_with = "policy")]
    pub limitador_limits: Option<PathBuf>,

    /// The largest count of a sliding log, which keeps as many entries for each key
    #[arg(long, env = "TIDEGATE_MAX_LOG_ENTRIES", value_name = "COUNT", default_value_t = Limiter::DEFAULT_MAX_LOG_ENTRIES)]
    pub max_log_entries: u64,

    /// Reject limits that come with requests
    #[arg(long, env = "TIDEGATE_NO_INLINE")]
    pub no_inline: bool,

    /// Live keys of limits that come with requests, beside those of the policy
    #[arg(long, env = "TIDEGATE_INLINE_MAX_KEYS", value_name = "KEYS", default_value_t = 100_000)]
    pub inline_max_keys: usize,

    /// The longest period of a limit that comes with a request, and the longest time for its bucket to refill
    #[arg(long, env = "TIDEGATE_INLINE_MAX_PERIOD", value_name = "DURATION", default_value = "1d", value_parser = duration)]
    pub inline_max_period: Duration,

    /// The largest count or burst of a limit that comes with a request
    #[arg(long, env = "TIDEGATE_INLINE_MAX_COUNT", value_name = "COUNT", default_value_t = 1_000_000)]
    pub inline_max_count: u64,

    /// Connections of each protocol that may be open at a time; unless set, 20000, or as many as the limit on open
    /// files leaves room for
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", value_name = "COUNT")]
    pub max_connections: Option<usize>,

    /// Connections of each protocol that one IP address may have open, of IPv6 one /64 network; unless set, a quarter of
    /// --max-connections and at least 64
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "COUNT")]
    pub max_connections_per_address: Option<usize>,

    /// The longest body of a request, in bytes
    #[arg(long, env = "TIDEGATE_MAX_BODY", value_name = "BYTES", default_value_t = 256 << 10)]
    pub max_body: usize,

    /// Bytes of unfinished requests and unsent answers that the server holds in all
    #[arg(long, env = "TIDEGATE_MAX_BUFFERED", value_name = "BYTES", default_value_t = 256 << 20)]
    pub max_buffered: usize,

    /// Checks in one batch request
    #[arg(long, env = "TIDEGATE_MAX_BATCH", value_name = "COUNT", default_value_t = 1_000)]
    pub max_batch: usize,

    /// Callers that may wait for admission at the same time; more are refused at once
    #[arg(long, env = "TIDEGATE_MAX_WAITERS", value_name = "COUNT", default_value_t = 10_000)]
    pub max_waiters: u64,

    /// Certificate chain in PEM: turns on TLS
    ///
    /// The certificate chain of the server, in PEM format. All listeners then speak TLS.
    #[arg(long, env = "TIDEGATE_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key in PEM
    #[arg(long, env = "TIDEGATE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Require client certificates signed by one of these authorities, in PEM format
    #[arg(long, env = "TIDEGATE_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Refuse the certificates of clients that these lists revoke, in PEM format: one list of each authority; may be
    /// given several times
    #[arg(long, env = "TIDEGATE_TLS_CLIENT_CRL", value_name = "FILE", value_delimiter = ',')]
    pub tls_client_crl: Vec<PathBuf>,

    /// File of tokens and their rights
    ///
    /// Tokens and client certificates with their rights, TOML or YAML. Read again when it changes.
    #[arg(long, env = "TIDEGATE_TOKENS", value_name = "FILE")]
    pub tokens: Option<PathBuf>,

    /// A token with all rights
    #[arg(long, env = "TIDEGATE_ADMIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub admin_token: Option<Secret>,

    /// A file with the token that has all rights; lists of processes do not show it
    #[arg(long, env = "TIDEGATE_ADMIN_TOKEN_FILE", value_name = "FILE", conflicts_with = "admin_token")]
    pub admin_token_file: Option<PathBuf>,

    /// What callers without a credential may do: check, manage, view, admin, metrics; may be given several times
    #[arg(long, env = "TIDEGATE_ANONYMOUS", value_name = "RIGHT", value_delimiter = ',')]
    pub anonymous: Vec<Right>,

    /// Serve every client on any address without credentials
    #[arg(long, env = "TIDEGATE_INSECURE_NO_AUTH")]
    pub insecure_no_auth: bool,

    /// Serve no admin API
    #[arg(long, env = "TIDEGATE_NO_ADMIN")]
    pub no_admin: bool,

    /// Append changes and failed authentications to this file, a JSON object a line
    #[arg(long, env = "TIDEGATE_AUDIT", value_name = "FILE")]
    pub audit: Option<PathBuf>,

    /// A host that anonymous HTTP requests may name, beside localhost and the addresses of the server; may be given
    /// several times
    #[arg(long, env = "TIDEGATE_ALLOWED_HOST", value_name = "HOST", value_delimiter = ',')]
    pub allowed_host: Vec<String>,

    /// A proxy whose forwarding headers are trusted, for /v1/forward-auth: an address, or a network such as 10.0.0.0/8;
    /// may be given several times
    #[arg(long, env = "TIDEGATE_TRUSTED_PROXY", value_name = "ADDRESS_OR_NETWORK", value_delimiter = ',')]
    pub trusted_proxy: Vec<Network>,

    /// Another server that the dashboard shows, by its origin: https://host:port; may be given several times, the same
    /// list to all servers. Their pages may read this one's admin API, with a token
    #[arg(long, env = "TIDEGATE_DASHBOARD_INSTANCE", value_name = "ORIGIN", value_delimiter = ',')]
    pub dashboard_instance: Vec<Origin>,

    /// Requests that are kept for trials of other policies, in at most 16 MiB; 0 keeps none
    #[arg(long, env = "TIDEGATE_KEEP_REQUESTS", value_name = "COUNT", default_value_t = 20_000)]
    pub keep_requests: usize,

    /// Send an event to this URL when a charge crosses a threshold of its rule; signed as Standard Webhooks says
    #[arg(long, env = "TIDEGATE_WEBHOOK", value_name = "URL")]
    pub webhook: Option<String>,

    /// The secret that signs events: whsec_ and 24 to 64 bytes in base64
    #[arg(long, env = "TIDEGATE_WEBHOOK_SECRET", value_name = "SECRET", hide_env_values = true)]
    pub webhook_secret: Option<Secret>,

    /// A file with the secret that signs events; lists of processes do not show it
    #[arg(long, env = "TIDEGATE_WEBHOOK_SECRET_FILE", value_name = "FILE", conflicts_with = "webhook_secret")]
    pub webhook_secret_file: Option<PathBuf>,

    /// Let the webhook be on a loopback or private address
    #[arg(long, env = "TIDEGATE_WEBHOOK_ALLOW_PRIVATE")]
    pub webhook_allow_private: bool,

    /// Descriptor files of Envoy's rate limit service, or folders of them; may be given several times
    #[arg(long, env = "TIDEGATE_ENVOY_CONFIG", value_name = "PATH", value_delimiter = ',')]
    pub envoy_config: Vec<PathBuf>,

    /// Where the reference service looks for a folder `config` of descriptor files
    #[arg(long, env = "RUNTIME_ROOT", value_name = "FOLDER", hide = true)]
    pub runtime_root: Option<PathBuf>,

    /// A folder below that one, to look in instead
    #[arg(long, env = "RUNTIME_SUBDIRECTORY", value_name = "FOLDER", hide = true)]
    pub runtime_subdirectory: Option<PathBuf>,

    /// Rate limit headers that Envoy adds to responses
    #[arg(long, env = "TIDEGATE_ENVOY_HEADERS", value_name = "STYLE", default_value = "none")]
    pub envoy_headers: HeaderStyle,

    /// The names of the three headers of --envoy-headers reference: limit, remaining, reset
    #[arg(
        long,
        env = "TIDEGATE_ENVOY_HEADER_NAMES",
        value_name = "NAMES",
        default_value = "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset"
    )]
    pub envoy_header_names: HeaderNames,

    /// Shadow mode for Envoy: admit every request, and count what would have been refused
    #[arg(long, env = "TIDEGATE_ENVOY_SHADOW")]
    pub envoy_shadow: bool,

    /// Treat every limit of the descriptor files as a quota: refuse a request only if all of its limits refuse it
    #[arg(long, env = "TIDEGATE_ENVOY_QUOTA")]
    pub envoy_quota: bool,

    /// Send a problem document (RFC 9457) as the body of Envoy's refusals
    #[arg(long, env = "TIDEGATE_ENVOY_PROBLEM")]
    pub envoy_problem: bool,

    /// Send each decision to Envoy's other filters, as dynamic metadata
    #[arg(long, env = "TIDEGATE_ENVOY_METADATA")]
    pub envoy_metadata: bool,

    /// Seconds until an assignment to Envoy's rate limit quota filter expires; the same on all servers that share a store
    #[arg(long, env = "TIDEGATE_RLQS_TTL_SECONDS", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(4..=3_600))]
    pub rlqs_ttl_seconds: u64,

    /// Log filter, such as `info` or `tidegate_server=debug,warn`
    #[arg(long, env = "TIDEGATE_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,

    /// Format of log lines
    #[arg(long, env = "TIDEGATE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Send metrics to the collector at this URL, by OTLP over gRPC
    #[arg(long, env = "TIDEGATE_OTLP", value_name = "URL")]
    pub otlp: Option<String>,

    /// Seconds from one sending of metrics to the next
    #[arg(long, env = "TIDEGATE_OTLP_INTERVAL_SECONDS", value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub otlp_interval_seconds: u64,

    /// A header for the collector, name=value; may be given several times
    #[arg(long, env = "TIDEGATE_OTLP_HEADER", value_name = "HEADER", value_delimiter = ',', hide_env_values = true)]
    pub otlp_header: Vec<Secret>,

    /// Send a span of each decision that is sampled to the collector, too
    #[arg(long, env = "TIDEGATE_OTLP_TRACES")]
    pub otlp_traces: bool,

    /// The share of requests without a traceparent that spans are made of, from 0 to 1; others go by its sampled flag
    #[arg(long, env = "TIDEGATE_OTLP_TRACES_RATIO", value_name = "RATIO", default_value = "1", value_parser = ratio)]
    pub otlp_traces_ratio: f64,

    /// Put keys into spans: they can be personal data
    #[arg(long, env = "TIDEGATE_OTLP_TRACES_KEYS")]
    pub otlp_traces_keys: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let command = Settings::augment_args(clap::Command::new("tidegate").no_binary_name(true));
        let command = command.mut_args(|argument| argument.env(None::<&'static str>));
        let matches = command.try_get_matches_from(std::iter::empty::<&str>());
        let settings = matches.and_then(|matches| Settings::from_arg_matches(&matches));
        settings.expect("every setting has a default")
    }
}

impl Settings {
    pub(crate) fn on_failure(&self) -> Option<FailureMode> {
        match self.on_failure {
            OnFailure::Error => None,
            OnFailure::Mode(mode) => Some(mode),
        }
    }

    /// The descriptor files and folders of Envoy's rate limit service.
    pub(crate) fn descriptor_files(&self) -> Vec<PathBuf> {
        let mut paths = self.envoy_config.clone();
        // Where the reference service looks, if it is told nothing else.
        if let (true, Some(root)) = (paths.is_empty(), &self.runtime_root) {
            let below = self.runtime_subdirectory.as_deref().unwrap_or(Path::new(""));
            paths.push(root.join(below).join("config"));
        }
        paths
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.body_seconds)
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds).min(MAX_IDLE)
    }

    /// How long a client of RESP may be idle, if that has an end.
    pub(crate) fn resp_idle(&self) -> Option<Duration> {
        let idle = Duration::from_secs(self.resp_idle_seconds).min(MAX_IDLE);
        (!idle.is_zero()).then_some(idle)
    }
}

/// Why a text is not a duration.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a duration: write a number and a unit (s, min, h, day, week), such as 12h or 1d")]
struct DurationError {
    text: String,
}

/// A time as limits spell their periods.
fn duration(text: &str) -> Result<Duration, DurationError> {
    let limit = format!("1/{text}").parse::<Limit>().ok().filter(|_| !text.contains(char::is_whitespace));
    limit.map(|limit| limit.period()).ok_or_else(|| DurationError { text: text.into() })
}

/// Why a text is no share of requests.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a ratio: write a number from 0 to 1, such as 0.01")]
struct RatioError {
    text: String,
}

fn ratio(text: &str) -> Result<f64, RatioError> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| RatioError { text: text.into() })
}

/// As good as for ever, and still an instant that clocks can tell: thirty years.
const MAX_IDLE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Which store.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// In this process.
    Memory,
    /// On the servers that the URL names.
    Url(String),
}

impl fmt::Debug for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreChoice::Memory => f.write_str("Memory"),
            StoreChoice::Url(url) => f.debug_tuple("Url").field(&secret::without_password(url)).finish(),
        }
    }
}

impl FromStr for StoreChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<StoreChoice, Infallible> {
        Ok(if text == "memory" { StoreChoice::Memory } else { StoreChoice::Url(text.into()) })
    }
}

/// The fallback when the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// None: the caller gets the error.
    Error,
    /// A failure mode of the library.
    Mode(FailureMode),
}

/// Why a text names no failure mode.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a failure mode: write error, open, closed, or local:N for one of N servers")]
pub struct OnFailureError {
    text: String,
}

impl FromStr for OnFailure {
    type Err = OnFailureError;

    fn from_str(text: &str) -> Result<OnFailure, OnFailureError> {
        let local = |count: &str| count.parse().ok().filter(|count| *count > 0).map(FailureMode::local);
        match text {
            "error" => Some(OnFailure::Error),
            "open" => Some(OnFailure::Mode(FailureMode::Open)),
            "closed" => Some(OnFailure::Mode(FailureMode::Closed)),
            "local" => Some(OnFailure::Mode(FailureMode::local(1))),
            other => other.strip_prefix("local:").and_then(local).map(OnFailure::Mode),
        }
        .ok_or_else(|| OnFailureError { text: text.into() })
    }
}

/// Which headers tell a client of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HeaderStyle {
    /// None.
    None,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`
    #[value(name = "draft-3")]
    Draft3,
    /// `RateLimit-Policy` and `RateLimit`, as in the IETF's draft since version 8
    #[value(name = "draft-8")]
    Draft8,
    /// Three plain numbers under the names of --envoy-header-names, as the reference service writes them
    Reference,
}

/// The names of three headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// Of the limit.
    pub limit: String,
    /// Of the remaining hits.
    pub remaining: String,
    /// Of the seconds until the unit ends.
    pub reset: String,
}

/// Why a text is not the names of three headers.
#[derive(Debug, thiserror::Error)]
#[error(
    "{text:?} is not the names of three headers: write them with commas between, such as X-Limit,X-Remaining,X-Reset"
)]
pub struct HeaderNamesError {
    text: String,
}

impl FromStr for HeaderNames {
    type Err = HeaderNamesError;

    fn from_str(text: &str) -> Result<HeaderNames, HeaderNamesError> {
        let names: Vec<&str> = text.split(',').collect();
        match names[..] {
            [limit, remaining, reset] if names.iter().all(|name| name.parse::<http::HeaderName>().is_ok()) => {
                Ok(HeaderNames { limit: limit.into(), remaining: remaining.into(), reset: reset.into() })
            }
            _ => Err(HeaderNamesError { text: text.into() }),
        }
    }
}

/// A service whose place can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OtherService {
    /// The rate limit service of the Envoy project, envoyproxy/ratelimit
    EnvoyRatelimit,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_printed_for_debugging() {
        let settings = Settings {
            admin_token: Some("s3cret-token".into()),
            resp_password: Some("s3cret-password".into()),
            webhook_secret: Some("s3cret-hook".into()),
            otlp_header: vec!["authorization=s3cret-header".into()],
            store: "redis://user:s3cret@word@redis:6379/1".parse().unwrap_or(StoreChoice::Memory),
            ..Settings::default()
        };
        let printed = format!("{settings:?}");
        assert!(!printed.contains("s3cret") && printed.contains("redis://***@redis:6379/1"), "{printed}");
        assert!(
            printed.contains("admin_token: Some(***)") && printed.contains("resp_password: Some(***)"),
            "{printed}"
        );
    }
}
