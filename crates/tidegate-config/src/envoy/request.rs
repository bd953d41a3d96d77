//! What Envoy asks, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use tidegate::kernel::Verb;
use tidegate::{Key, Name, Setting};

use super::{Metadata, Unit};

/// A descriptor of a request: one hit, unless told otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'r> {
    pub(super) entries: &'r [(&'r str, &'r str)],
    pub(super) hits: Hits,
    pub(super) limit: Option<(Unit, u32)>,
}

impl<'r> Descriptor<'r> {
    /// Keys and their values.
    #[must_use]
    pub fn new(entries: &'r [(&'r str, &'r str)]) -> Descriptor<'r> {
        Descriptor { entries, hits: Hits::Charge(1), limit: None }
    }

    /// Sets what is to be done.
    #[must_use]
    pub fn hits(mut self, hits: Hits) -> Descriptor<'r> {
        self.hits = hits;
        self
    }

    /// Brings a limit of so many requests per unit, whatever the files say of the
    /// descriptor. It counts together with a limit of the files that has the same
    /// unit.
    #[must_use]
    pub fn limit(mut self, unit: Unit, requests: u32) -> Descriptor<'r> {
        self.limit = Some((unit, requests));
        self
    }
}

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// To be charged so many.
    Charge(u64),
    /// Whether one more hit would pass, without charging any.
    Peek,
    /// To be charged so many that are spent already, even into debt.
    Report(u64),
    /// To be given back so many.
    Refund(u64),
}

impl Hits {
    /// As a verb, and its cost.
    #[must_use]
    pub fn asks(self) -> (Verb, u64) {
        match self {
            Hits::Charge(hits) => (Verb::Charge, hits),
            Hits::Peek => (Verb::Peek, 1),
            Hits::Report(hits) => (Verb::Report, hits),
            Hits::Refund(hits) => (Verb::Refund, hits),
        }
    }

    /// Whether it can never be refused.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Hits::Report(_) | Hits::Refund(_))
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
#[must_use = "an answer that is not looked at limits nothing"]
#[non_exhaustive]
pub struct EnvoyDecision {
    /// Whether the request may pass.
    pub allowed: bool,
    /// What each of its descriptors says, in their order.
    pub statuses: Vec<Status>,
}

/// What one descriptor says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Whether it lets the request pass. A shadow always does.
    pub allowed: bool,
    /// What applies to it, if anything does.
    pub setting: Option<Setting>,
    /// In what time; none if there is no limit.
    pub unit: Option<Unit>,
    /// Which limit of which file that is: see [`Matched::path`](super::Matched::path).
    pub rule: Option<Name>,
    /// What the file calls the limit.
    pub name: Option<Arc<str>>,
    /// Whose limit it is, if it refuses.
    pub refused_key: Option<Key<'static>>,
    /// Hits that are left.
    pub remaining: u64,
    /// How long to wait for this to pass; nothing if it does, and if it never
    /// will.
    pub retry_after: Option<Duration>,
    /// How long until nothing of what was charged counts: the rest of the unit.
    pub reset_after: Duration,
    /// Whether it refuses only together with all others of this kind.
    pub quota: bool,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether it is a shadow rule that would have refused.
    pub shadow_refuses: bool,
    /// Whether the fallback decided, because the store failed.
    pub degraded: bool,
    /// What was reported and is not recorded, because all is owed that can be.
    pub unrecorded: u64,
    /// What the file wants Envoy to be told if this passes.
    pub metadata: Option<Arc<Metadata>>,
}
