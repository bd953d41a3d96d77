//! Rate limits of [`tidegate`] as one tower layer.

pub mod by;
pub mod client;
mod client_ip;
mod fields;
mod forwarded;
mod future;
mod gate;
mod grpc;
mod head;
mod layer;
mod line;
mod partition;
mod question;
mod refusal;
mod service;
mod settings;
pub mod settle;

pub use client_ip::ClientIp;
pub use fields::HeaderStyle;
pub use forwarded::ForwardingHeader;
pub use future::ResponseFuture;
pub use head::{Head, Value};
pub use layer::RateLimitLayer;
pub use refusal::{Reason, Refusal};
pub use service::{Answers, Grpc, Http, RateLimit};
pub use settings::Keyless;
