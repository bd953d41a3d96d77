//! What it takes to run at all: sockets, connections and their end, threads, TLS, and the bounds of all of them.
//!
//! Nothing here knows of a limit or of a wire.

pub(crate) mod admission;
pub(crate) mod buffered;
pub(crate) mod causes;
pub(crate) mod connection_counts;
pub(crate) mod connections;
pub(crate) mod files;
mod handshakes;
pub(crate) mod listen;
pub(crate) mod peer;
pub(crate) mod protocol;
pub(crate) mod shares;
pub(crate) mod systemd;
pub(crate) mod tls;
pub(crate) mod workers;
