//! What stands between a client and the limits: rights, the audit log, and the bounds of what clients may make the server do.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tidegate_tower::ClientIp;

use super::audit::Audit;
use super::{Access, TokensFile};
use crate::run::admission::Admission;
use crate::run::buffered::Buffered;
use crate::run::connections::{Connections, Drain};
use crate::run::shares::Shares;
use crate::settings::Settings;

/// Streams of quotas that may be open at a time: of all addresses, and of one.
const MAX_QUOTA_STREAMS: usize = 1_024;
const MAX_QUOTA_STREAMS_PER_ADDRESS: usize = 256;

/// Clients that may watch health over gRPC at a time: of all addresses, and of one.
const MAX_HEALTH_WATCHES: usize = 256;
const MAX_HEALTH_WATCHES_PER_ADDRESS: usize = 32;

/// Streams of gRPC reflection that may be open at a time: of all addresses, and of one.
const MAX_REFLECTIONS: usize = 16;
const MAX_REFLECTIONS_PER_ADDRESS: usize = 4;

/// Buckets that clients of quotas may have: of all addresses, and of one.
const MAX_QUOTA_BUCKETS: usize = 65_536;
const MAX_QUOTA_BUCKETS_PER_ADDRESS: usize = 16_384;

/// What guards one server.
pub struct Guards {
    /// Who is connected.
    pub connections: Arc<Connections>,
    /// Says when the server leaves.
    pub drain: Drain,
    /// Who may do what.
    pub(crate) access: Access,
    /// The proxies that are believed, and what their clients' addresses are.
    pub(crate) proxies: ClientIp,
    pub(crate) audit: Audit,
    /// The bytes that clients make the server hold.
    pub(crate) buffered: Arc<Buffered>,
    /// The work that is in flight.
    pub(crate) admission: Admission,
    pub(crate) quota_streams: Arc<Shares>,
    pub(crate) quota_buckets: Arc<Shares>,
    /// Streams of gRPC beside those of quotas, over all listeners.
    pub(crate) health_watches: Arc<Shares>,
    pub(crate) reflections: Arc<Shares>,
}

impl Guards {
    /// Guards that count what they shed.
    pub(crate) fn new(
        settings: &Settings,
        (tokens, audit): (TokensFile, Audit),
        connections: Connections,
        (buffered, shed): (Arc<Buffered>, Counter),
    ) -> Guards {
        Guards {
            drain: connections.drain.clone(),
            connections: Arc::new(connections),
            access: Access::new(settings, tokens),
            proxies: ClientIp::behind_any_of(settings.trusted_proxy.iter().copied()),
            audit,
            admission: Admission::new(settings.max_batch, Arc::clone(&buffered), shed),
            buffered,
            quota_streams: Shares::new(MAX_QUOTA_STREAMS, MAX_QUOTA_STREAMS_PER_ADDRESS),
            quota_buckets: Shares::new(MAX_QUOTA_BUCKETS, MAX_QUOTA_BUCKETS_PER_ADDRESS),
            health_watches: Shares::new(MAX_HEALTH_WATCHES, MAX_HEALTH_WATCHES_PER_ADDRESS),
            reflections: Shares::new(MAX_REFLECTIONS, MAX_REFLECTIONS_PER_ADDRESS),
        }
    }
}
