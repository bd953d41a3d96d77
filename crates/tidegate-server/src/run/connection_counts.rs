//! What is counted of connections, by protocol.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::protocol::Protocol;

/// Why a connection is turned away before its handshake is done, as in labels.
pub(super) const HANDSHAKE: &str = "handshake";

/// Why connections are turned away: no place in the pool, or none for the address, or too many handshakes.
const TURNED_AWAY: [&str; 3] = ["full", "address", HANDSHAKE];

type ProtocolLabel = [(&'static str, &'static str); 1];
type ReasonLabels = [(&'static str, &'static str); 2];

/// Numbers that a registry shows. Clones count the same.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionCounts {
    pub(crate) accepted: Family<ProtocolLabel, Counter>,
    pub(crate) open: Family<ProtocolLabel, Gauge>,
    pub(crate) refused: Family<ReasonLabels, Counter>,
}

/// A connection that is counted as open until this is dropped.
pub(super) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for ConnectionCounts {
    /// All that there will be is there from the start, so that the first one is seen as a change.
    fn default() -> ConnectionCounts {
        let counts =
            ConnectionCounts { accepted: Family::default(), open: Family::default(), refused: Family::default() };
        for protocol in Protocol::ALL {
            drop(counts.accepted.get_or_create(&of(protocol)));
            drop(counts.open.get_or_create(&of(protocol)));
            for reason in TURNED_AWAY {
                drop(counts.refused.get_or_create(&with_reason(protocol, reason)));
            }
        }
        counts
    }
}

impl ConnectionCounts {
    /// A connection was accepted, and is open until the answer is dropped.
    pub(super) fn connected(&self, protocol: Protocol) -> OpenConnection {
        self.accepted.get_or_create(&of(protocol)).inc();
        let open = self.open.get_or_create_owned(&of(protocol));
        open.inc();
        OpenConnection(open)
    }

    /// A connection was refused or dropped at a bound.
    pub(super) fn refused(&self, protocol: Protocol, reason: &'static str) {
        self.refused.get_or_create(&with_reason(protocol, reason)).inc();
    }
}

fn of(protocol: Protocol) -> ProtocolLabel {
    [("protocol", protocol.as_str())]
}

fn with_reason(protocol: Protocol, reason: &'static str) -> ReasonLabels {
    [("protocol", protocol.as_str()), ("reason", reason)]
}
