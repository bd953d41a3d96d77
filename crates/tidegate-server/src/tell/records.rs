//! What is told of decisions: what is counted, and who is refused.

use std::sync::Arc;

use tidegate::{Limit, LimiterBuilder};

use super::metrics::Metrics;
use super::refused::Refused;
use crate::ask::store::AnyStore;

/// What is told of one server. Cheap to clone; clones are the same records.
#[derive(Clone)]
pub struct Records {
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Who is refused most.
    pub refused: Arc<Refused>,
}

impl Records {
    /// Has a limiter tell its decisions: that of the policy, or that of a limit that came with a request.
    pub(crate) fn observe(&self, builder: LimiterBuilder<AnyStore>, inline: Option<Limit>) -> LimiterBuilder<AnyStore> {
        let (builder, refused) = (builder.observer(Arc::clone(&self.metrics)), Arc::clone(&self.refused));
        match inline {
            None => builder.observer(refused),
            Some(limit) => builder.observer(refused.by(limit)),
        }
    }
}
