//! Forward auth: a proxy asks whether a request of its client may pass, by the head of that request.
//!
//! nginx (`auth_request`), Traefik (`forwardAuth`), Caddy (`forward_auth`), HAProxy and others send the head, without
//! its body, and look at the status of the answer: 204, or the status of a refusal. [`head`] reads what the client
//! asked for, [`terms`](super::terms) what the operator of the proxy wants, and [`negotiated`] writes refusals for people.

mod head;
mod negotiated;

use std::borrow::Cow;
use std::sync::{Arc, Once};
use std::time::Instant;

use axum::body::Body;
use http::header::ACCEPT;
use http::{Request as HttpRequest, Response, StatusCode};
use tidegate::kernel::Verb;
use tidegate::store::Check;
use tidegate::{Decision, Key, Request};
use tidegate_tower::fields::rate_limit_fields;
use tracing::warn;

pub(super) use self::head::Head;
use self::head::Value;
use self::negotiated::Form;
use super::answer;
use super::guard;
use super::problem::Problem;
use super::reply::{Fields, Reply};
use super::terms::{Terms, TermsError};
use crate::ask::attributes::Attribute;
use crate::ask::call::Call;
use crate::run::peer::{Peer, network_of};
use crate::run::protocol::Protocol;
use crate::wire::app::App;

pub(super) const FORWARD_AUTH: &str = "/v1/forward-auth";

/// The status that a refusal would have, where `deny-status` says another.
const TRUE_STATUS: &str = "x-tidegate-status";

/// Answers a request of a proxy. Its body is not read.
pub(super) async fn forward(app: Arc<App>, request: HttpRequest<Body>) -> Response<Body> {
    let began = Instant::now();
    let head = Head {
        peer: Peer::of(request.extensions()),
        is_tls: app.settings.tls_certificate.is_some(),
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        host: guard::host(&request),
        fields: request
            .headers()
            .iter()
            .map(|(name, value)| httparse::Header { name: name.as_str(), value: value.as_bytes() })
            .collect(),
    };
    let terms = Terms::parse(head.query);
    // On the heap, so that a wait is not as large.
    let reply = Box::pin(answer(&app, &head, terms.as_ref())).await;
    app.records.metrics.answered(Protocol::Http, began.elapsed());
    reply.response()
}

/// What a head is answered on these terms.
pub(super) async fn answer(app: &App, head: &Head<'_>, terms: Result<&Terms, &TermsError>) -> Reply {
    let answered = match terms {
        Ok(terms) => decide(app, head, terms).await,
        Err(error) => Err(Problem::Terms(error.clone())),
    };
    answered.unwrap_or_else(|problem| of_problem(&problem, form(head)))
}

async fn decide(app: &App, head: &Head<'_>, terms: &Terms) -> Result<Reply, Problem> {
    let wanted = app.engine.policy.attributes();
    let asked = Asked::read(app, head, &wanted, terms)?;
    let mut fields = Fields::new();
    let tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
    let decision = app.decide_with_limits(Verb::Charge, &asked, None, tell).await?;
    Ok(match decision.is_allowed() {
        true => Reply { status: StatusCode::NO_CONTENT, fields, ..Reply::written(Vec::new()) },
        false => refusal(&decision, fields, terms, form(head)),
    })
}

fn refusal(decision: &Decision, fields: Fields, terms: &Terms, form: Form) -> Reply {
    let mut reply = answer::reply(Call::Check, decision, fields);
    if form != Form::Json {
        let seconds = reply.fields.iter().find(|(name, _)| *name == "retry-after").map(|(_, seconds)| seconds);
        let detail = match seconds {
            Some(seconds) => format!("Retry after {seconds} seconds."),
            None => "The policy denies the request.".to_owned(),
        };
        reply.kind = form.content_type();
        reply.body = form.body(&reply.status.to_string(), &detail).into_bytes();
    }
    if let Some(status) = terms.deny_status {
        reply.fields.push((TRUE_STATUS, reply.status.as_str().to_owned()));
        reply.status = status;
    }
    reply
}

fn of_problem(problem: &Problem, form: Form) -> Reply {
    let mut reply = problem.reply();
    if form != Form::Json {
        reply.kind = form.content_type();
        reply.body = form.body(&reply.status.to_string(), &problem.document().detail).into_bytes();
    }
    reply
}

fn form(head: &Head<'_>) -> Form {
    let accept: Vec<&[u8]> = head.lines(ACCEPT.as_str()).collect();
    Form::of(&accept)
}

/// A request as the limiter is asked about it.
#[derive(Debug)]
struct Asked<'a> {
    attributes: Vec<(&'a str, Value<'a>)>,
    key: Option<Key<'a>>,
    terms: &'a Terms,
}

impl<'a> Asked<'a> {
    /// Reads what the policy asks for, and what the key is made of; nothing else is looked at.
    fn read(app: &App, head: &Head<'a>, wanted: &'a [Attribute], terms: &'a Terms) -> Result<Asked<'a>, Problem> {
        match head.is_trusted(&app.guards.proxies) {
            true if head.has_query_of_client() => return Err(Problem::QueryOfClient),
            true => {}
            false => warn_once_of_ignored_headers(head),
        }
        let mut attributes = Vec::with_capacity(wanted.len());
        for attribute in wanted {
            if let Some(value) = head.value(attribute, &app.guards.proxies)? {
                attributes.push((attribute.name(), value));
            }
        }
        let part = |attribute: &Attribute| match head.value(attribute, &app.guards.proxies)? {
            Some(Value::Address(address)) => Ok(Value::Address(network_of(address))),
            Some(text) => Ok(text),
            None => Err(Problem::NoKeyAttribute { attribute: attribute.name().to_owned() }),
        };
        let key = match terms.key.as_slice() {
            [] => head.address(&app.guards.proxies).map(|address| Key::from(network_of(address))),
            [only] => Some(match part(only)? {
                Value::Address(address) => Key::from(address),
                Value::Text(Cow::Borrowed(text)) => Key::from(text),
                Value::Text(Cow::Owned(text)) => Key::from(text),
            }),
            several => {
                let parts: Vec<Value<'_>> = several.iter().map(part).collect::<Result<_, _>>()?;
                Some(Key::of(parts.iter().map(Value::part)))
            }
        };
        Ok(Asked { attributes, key, terms })
    }
}

impl<'q> From<&'q Asked<'_>> for Request<'q> {
    fn from(Asked { attributes, key, terms }: &'q Asked<'_>) -> Request<'q> {
        let mut request = key.as_ref().map_or_else(Request::without_key, Request::new).cost(terms.cost);
        for (name, value) in attributes {
            request = request.with(name, value.part());
        }
        match &terms.rule {
            Some(rule) => request.rule(rule),
            None => request,
        }
    }
}

/// A proxy that is not named has all of its clients share the limit of its own address: its operator should know.
fn warn_once_of_ignored_headers(head: &Head<'_>) {
    static WARNED: Once = Once::new();
    if !WARNED.is_completed() && head.lines("x-forwarded-for").next().is_some() {
        let peer = head.peer;
        WARNED.call_once(
            || warn!(%peer, "X-Forwarded-For is ignored: if the peer is your proxy, name it (--trusted-proxy)"),
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
