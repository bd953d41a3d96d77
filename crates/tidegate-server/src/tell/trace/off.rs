//! No spans: the server is built without the feature `otlp`.

use http::HeaderMap;
use prometheus_client::registry::Registry;
use tidegate::{Event, Key};

use super::Decided;
use crate::run::protocol::Protocol;

/// Tells nothing.
pub(crate) struct Tracer;

impl Tracer {
    pub(crate) fn new(_: &mut Registry) -> Tracer {
        Tracer
    }

    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn origin<'h>(&self, _: impl FnOnce() -> (Protocol, Option<&'h HeaderMap>)) -> Origin {
        Origin
    }

    pub(crate) fn observe(&self, _: &Event<'_>) {}

    pub(crate) fn decided(&self, _: Decided, _: &Key<'_>) {}

    pub(crate) fn failed(&self, _: &'static str) {}
}

/// Nothing of a request.
pub(crate) struct Origin;

impl Origin {
    pub(crate) fn current() -> Origin {
        Origin
    }

    pub(crate) fn set_namespace(_: &str) {}

    pub(crate) fn scope<F: Future>(self, work: F) -> F {
        work
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::mem::size_of;

    use super::*;

    #[test]
    fn without_the_feature_a_tracer_is_empty_and_a_scope_is_the_future_itself() {
        assert_eq!((size_of::<Tracer>(), size_of::<Origin>()), (0, 0));
        let _same_type: Ready<()> = Origin.scope(ready(()));
    }
}
