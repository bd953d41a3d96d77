//! One binary that serves limits.
//!
//! Every protocol is a way from wire to [`tidegate::Request`] and back; what
//! they have in common is the [`App`]. A protocol is one function that serves
//! one connection; [`Listener`] brings it connections over TCP, TLS or a Unix
//! socket, within a bound, and lets it finish when the server drains.
//!
//! [`Server::start`] runs all of it in this process, on any store and clock:
//! that is how the tests compare what the wire says with what the library says.
//!
//! ```
//! use tidegate::{ManualClock, MemoryStore};
//! use tidegate_server::{Server, Settings};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::builder().clock(ManualClock::default()).build()?;
//! let settings = Settings { http: vec!["127.0.0.1:0".parse()?], ..Settings::default() };
//! let server = Server::start(settings, store).await?;
//! println!("ask at {}", server.http()[0]);
//! assert!(server.drain().await);
//! # Ok(())
//! # }
//! ```

// In the order of their dependencies: a module uses only modules above it.
mod address;
mod attributes;
mod call;
mod causes;
mod digest;
mod held;
mod json;
mod peer;
mod protocol;
mod rights;
mod shares;
mod systemd;
mod workers;

mod audit;
mod budget;
mod buffered;
mod handshakes;
mod policy;
mod recent_requests;
mod refused;
mod request_document;

mod absent;
mod crossings;
mod settings;
mod store;
mod tls;

mod access;
mod admission;
mod connections;
mod files;
mod snapshot;
mod watchers;

mod quota;

mod inline_store;
mod trace;

mod metrics;

mod history;

mod inline;
#[cfg(feature = "otlp")]
mod otlp;
mod webhook;

mod app;
mod opening;

mod listen;
mod live;
mod watch;

mod http;

mod grpc;
pub mod resp;

mod serve;

mod cli;

pub use absent::Absent;
pub use address::{Address, AddressError};
pub use app::App;
pub use audit::AuditError;
pub use call::Call;
pub use cli::run;
pub use connections::{Admitted, Connections, Drain};
pub use files::TooFewFiles;
#[doc(hidden)]
pub use grpc::bare as envoy_message;
#[doc(hidden)]
pub use http::bare as http_question;
pub use inline::{INLINE_RULE, Inline, InlineError};
pub use listen::{Listener, Stream};
pub use metrics::{Metrics, RuleCounters};
pub use opening::OpenError;
#[cfg(feature = "otlp")]
pub use otlp::OtlpError;
pub use peer::Peer;
pub use protocol::Protocol;
pub use refused::{Refusal, Refused};
pub use rights::Right;
pub use serve::{Server, StartError};
pub use settings::{
    HeaderNames, HeaderNamesError, HeaderStyle, LogFormat, OnFailure, Origin, OriginError, OtherService, Secret,
    Settings, StoreChoice,
};
pub use snapshot::StatesError;
pub use store::{AnyStore, Health};
pub use tls::TlsError;
pub use webhook::{SecretError, TargetError, WebhookError};
