//! Why a caller may not do what it asks for.

use std::sync::Arc;
use std::time::Duration;

use crate::settings::rights::Right;

/// How long the answer to a wrong credential takes, beyond the budget of its address.
const DELAY: Duration = Duration::from_secs(1);

/// Why a caller may not do what it asks for.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Denied {
    #[error("this needs the right \"{right}\", and anonymous callers lack it: send Authorization: Bearer TOKEN")]
    Unauthenticated { right: Right },
    #[error("the credential is unknown to this server: send Authorization: Bearer TOKEN with a token that it has")]
    WrongCredential,
    #[error("\"{name}\" lacks the right \"{right}\": add it to the rights of \"{name}\" in the server's --tokens file")]
    Forbidden { name: Arc<str>, right: Right },
    #[error(
        "{host} is not a host of this server: use localhost or an address that it listens on, start it with \
         --allowed-host for another name, or send a token"
    )]
    ForeignHost { host: String },
    #[error("the request comes from a web page of another origin: send a token")]
    CrossSite,
    #[error("the content type is missing or not supported: send Content-Type: application/json, or a token")]
    ContentType,
    #[error("too many wrong credentials came from this address: retry after {} s", retry_after.as_secs().max(1))]
    TooManyFailures { retry_after: Duration },
}

impl Denied {
    /// How long to wait before the answer.
    pub(crate) fn delay(&self) -> Option<Duration> {
        matches!(self, Denied::TooManyFailures { .. }).then_some(DELAY)
    }
}
