//! What is counted of quotas.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::register;
use crate::quota::Action;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAction {
    action: &'static str,
}

/// Streams of quotas, and what is said on them.
#[derive(Clone)]
pub(crate) struct QuotaMetrics {
    pub(crate) streams: Gauge,
    pub(crate) buckets: Gauge,
    pub(crate) reports: Counter,
    /// Buckets for which there was no room.
    pub(crate) refused: Counter,
    assignments: Family<ByAction, Counter>,
}

impl QuotaMetrics {
    pub(super) fn new(registry: &mut Registry) -> QuotaMetrics {
        QuotaMetrics {
            streams: register(registry, "rlqs_streams", "Streams of quotas that are open"),
            buckets: register(registry, "rlqs_buckets", "Buckets that clients of quotas have subscribed to"),
            reports: register(registry, "rlqs_reports", "Reports of buckets by clients of quotas"),
            refused: register(registry, "rlqs_buckets_refused", "Reports of buckets that were refused at a bound"),
            assignments: register(registry, "rlqs_assignments", "What clients of quotas were told, by action"),
        }
    }

    pub(crate) fn assigned(&self, action: Action) {
        let action = match action {
            Action::AllowAll => "allow-all",
            Action::DenyAll => "deny-all",
            Action::Assign(_) => "share",
            Action::Abandon => "abandon",
        };
        self.assignments.get_or_create(&ByAction { action }).inc();
    }
}
