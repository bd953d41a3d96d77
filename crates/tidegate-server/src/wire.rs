//! The protocols: bytes to requests, and decisions to bytes.
//!
//! A protocol is one function that serves one connection. What they have in common is the [`App`](app::App).

pub(crate) mod app;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod json;
pub mod resp;

#[cfg(test)]
mod tests;
