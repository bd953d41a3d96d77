//! How a service says no: a response of HTTP, or a status of gRPC.

use http::{Request, Response};

use crate::call::Refused;
use crate::grpc;
use crate::refusal::Refusal;
use crate::settings::{RespondFn, Settings};

/// Refusals are responses of HTTP, for bodies that can be made of text; to
/// requests of gRPC, a status.
#[derive(Clone, Copy, Debug)]
pub enum Http {}

/// Refusals are statuses of gRPC, for any body that can be empty.
#[derive(Clone, Copy, Debug)]
pub enum Grpc {}

/// How a service with bodies of this type says no.
pub trait Answers<R>: sealed::Answers<R> {}
impl<R, A: sealed::Answers<R>> Answers<R> for A {}

pub(crate) mod sealed {
    use super::*;

    pub trait Answers<R> {
        #[doc(hidden)]
        fn response(refusal: &Refusal, to_grpc: ToGrpc, respond: Option<&RespondFn>) -> Response<R>;
    }

    /// Whether the request is one of gRPC.
    #[derive(Clone, Copy, Debug)]
    pub struct ToGrpc(pub(crate) bool);
}

impl<R: From<String>> sealed::Answers<R> for Http {
    fn response(refusal: &Refusal, to_grpc: sealed::ToGrpc, respond: Option<&RespondFn>) -> Response<R> {
        let response = match respond {
            _ if to_grpc.0 => grpc::response(refusal),
            Some(respond) => respond(refusal),
            None => refusal.response(),
        };
        response.map(R::from)
    }
}

impl<R: Default> sealed::Answers<R> for Grpc {
    fn response(refusal: &Refusal, _: sealed::ToGrpc, _: Option<&RespondFn>) -> Response<R> {
        grpc::response(refusal)
    }
}

/// The response to a request that was refused.
pub(crate) fn refuse<A: Answers<R>, R, B>(settings: &Settings, refused: Refused, request: &Request<B>) -> Response<R> {
    let Refused { refusal, fields } = refused;
    let refusal = refusal.or_no_peer(|attribute| settings.lacks_only_peer(attribute, request));
    let to_grpc = sealed::ToGrpc(grpc::is_grpc(request.headers()));
    let mut response = A::response(&refusal, to_grpc, settings.respond.as_ref());
    refusal.tell_retry_after(response.headers_mut());
    if let Some(mut fields) = fields {
        fields.tell(response.headers_mut());
    }
    response
}
