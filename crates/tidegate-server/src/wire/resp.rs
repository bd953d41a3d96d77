//! RESP2 and RESP3: any client of Redis is a client of this server.
//!
//! | command | |
//! |---|---|
//! | `CL.THROTTLE`, `THROTTLE` | a token bucket by its numbers, as redis-cell and throttlecrab have it: [`throttle`] |
//! | `TIDEGATE.CHECK`, `.PEEK`, `.REFUND`, `.RESET`, `.EXPLAIN` | the policy, or any limit in words: [`request`] |
//! | `MULTI`, `EXEC`, `DISCARD` | commands that are queued and then answered together: [`transaction`] |
//! | `PING`, `HELLO`, `AUTH`, `CLIENT`, `COMMAND`, `INFO`, .. | what clients ask before |
//!
//! Answers come in the order of the commands, however many are sent at once. All that
//! has arrived is read, decided and answered together: throttles that follow on each
//! other are one call to the memory store.
//!
//! What a client can make the server hold is bounded: a command by
//! [`MAX_COMMAND_BYTES`](frame::MAX_COMMAND_BYTES), a transaction by
//! [`MAX_QUEUED_COMMANDS`](transaction::MAX_QUEUED_COMMANDS) and
//! [`MAX_QUEUED_BYTES`](transaction::MAX_QUEUED_BYTES), answers that it does not read by
//! [`MAX_UNSENT`](session::MAX_UNSENT), all of it by the server's [budget](crate::Settings::max_buffered), and the time
//! that it may be idle, or take for half a command, by the settings. A client that breaks the protocol is told so and disconnected, as by Redis.

mod client;
pub mod command;
pub mod connection;
mod describe;
pub mod frame;
pub mod reply;
pub mod request;
pub mod session;
pub mod throttle;
mod throttles;
pub mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::run::listen::{Listener, Stream};
use crate::run::protocol::Protocol;
use crate::tell::metrics::RuleCounters;
use crate::wire::app::App;

/// What all connections of this protocol share.
pub struct Resp {
    /// The server.
    pub app: Arc<App>,
    latest_id: AtomicU64,
    inline: Arc<RuleCounters>,
}

impl Resp {
    /// The protocol for a server.
    #[must_use]
    pub fn new(app: Arc<App>) -> Arc<Resp> {
        let inline = app.records.metrics.rule(&crate::ask::inline::INLINE_RULE);
        Arc::new(Resp { app, latest_id: AtomicU64::new(0), inline })
    }

    fn next_id(&self) -> u64 {
        self.latest_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Serves RESP on a listener until the server closes.
pub async fn serve(listener: Listener, resp: Arc<Resp>) {
    let connections = Arc::clone(&resp.app.guards.connections);
    let serve = move |stream: Stream, _| {
        let link = stream.link().clone();
        connection::serve(stream, link, Arc::clone(&resp))
    };
    listener.serve_each(connections, Protocol::Resp, serve).await;
}
