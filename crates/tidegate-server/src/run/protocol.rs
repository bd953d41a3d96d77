//! The protocols that the server speaks.

/// A way to speak with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Protocol {
    Http,
    Resp,
    Grpc,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 3] = [Protocol::Http, Protocol::Resp, Protocol::Grpc];

    /// The name, as in labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Resp => "resp",
            Protocol::Grpc => "grpc",
        }
    }
}
