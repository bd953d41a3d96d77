//! Why a caller may not do what it asks for.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tonic::Code;

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
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Denied::Unauthenticated { .. } | Denied::WrongCredential => StatusCode::UNAUTHORIZED,
            Denied::Forbidden { .. } | Denied::CrossSite => StatusCode::FORBIDDEN,
            Denied::ForeignHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Denied::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Denied::TooManyFailures { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Denied::Unauthenticated { .. } | Denied::WrongCredential => Code::Unauthenticated,
            Denied::Forbidden { .. } | Denied::CrossSite | Denied::ForeignHost { .. } | Denied::ContentType => {
                Code::PermissionDenied
            }
            Denied::TooManyFailures { .. } => Code::ResourceExhausted,
        }
    }

    /// How long to wait before the answer.
    pub(crate) fn delay(&self) -> Option<Duration> {
        matches!(self, Denied::TooManyFailures { .. }).then_some(DELAY)
    }
}
