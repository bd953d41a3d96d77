//! The attributes that requests of a proxy have, and those of them that a policy asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate::Policy;

/// What an attribute that is a header begins with.
const HEADER: &str = "header.";

/// An attribute by its name, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    name: Box<str>,
    pub(crate) source: Source,
}

/// Where an attribute comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The address of the client.
    Ip,
    Method,
    /// `http` or `https`.
    Scheme,
    /// Without its port, in lower case.
    Host,
    /// Without its query.
    Path,
    /// A header of the client's request.
    Header,
}

impl Attribute {
    /// The attribute of this name; none if requests of proxies have no such attribute.
    pub(crate) fn named(name: &str) -> Option<Attribute> {
        let source = match name {
            "ip" => Source::Ip,
            "method" => Source::Method,
            "scheme" => Source::Scheme,
            "host" => Source::Host,
            "path" => Source::Path,
            other => other.strip_prefix(HEADER).filter(|header| !header.is_empty()).map(|_| Source::Header)?,
        };
        Some(Attribute { name: name.into(), source })
    }

    /// Those that any of the policies asks for.
    pub(crate) fn all_of<'p>(policies: impl IntoIterator<Item = &'p Policy>) -> Arc<[Attribute]> {
        let names: BTreeSet<&str> = policies.into_iter().flat_map(Policy::attributes).collect();
        names.into_iter().filter_map(Attribute::named).collect()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of the header that it is, if it is one.
    pub(crate) fn header(&self) -> &str {
        self.name.strip_prefix(HEADER).unwrap_or_default()
    }
}
