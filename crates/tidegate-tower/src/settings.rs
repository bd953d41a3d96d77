//! What a layer was told, and the questions that follow from it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use http::{HeaderValue, Request, Response, StatusCode};
use tidegate::{Decision, Limit, Name};

use crate::by;
use crate::client_ip::ClientIp;
use crate::fields::{Fields, HeaderStyle, Standing, write_policy};
use crate::gate::{Asked, Detour, Gate, Meters};
use crate::head::{Head, Text, Value};
use crate::line::Line;
use crate::partition::{Secret, hash_of};
use crate::question::{Put, Question, Refused};
use crate::refusal::Refusal;
use crate::settle::{Outcome, Settlement};

pub(crate) type Extract = Arc<dyn for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync>;
pub(crate) type CostFn = Arc<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
pub(crate) type RespondFn = Arc<dyn Fn(&Refusal) -> Response<String> + Send + Sync>;
pub(crate) type SettleFn = Arc<dyn Fn(Outcome<'_>) -> Settlement + Send + Sync>;

/// What becomes of a request without a key: the client's address is unknown,
/// or the header is missing.
///
/// This is about the layer's own [key](crate::RateLimitLayer::key). A request
/// that lacks an attribute of a rule's key is the rule's to decide:
/// [`Missing`](tidegate::Missing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyless {
    /// It is refused with this status: 500 unless you choose, because a service
    /// that does not know its clients' addresses was not set up to.
    Refuse(StatusCode),
    /// It passes without a limit.
    Pass,
    /// It shares one key with all others of its kind.
    Share,
}

impl Default for Keyless {
    fn default() -> Keyless {
        Keyless::Refuse(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// What supplies the attributes that every request of HTTP has.
pub(crate) fn http_attributes() -> Vec<(&'static str, Extract)> {
    vec![
        ("method", Arc::new(by::method())),
        ("path", Arc::new(by::path())),
        ("ip", Arc::new(by::client_ip())),
        #[cfg(feature = "axum")]
        ("route", Arc::new(by::route())),
    ]
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) gate: Gate,
    pub(crate) client_ip: ClientIp,
    pub(crate) key: Extract,
    pub(crate) keyless: Keyless,
    pub(crate) ipv6_bits: u8,
    pub(crate) attributes: Vec<(Box<str>, Extract)>,
    pub(crate) rule: Option<Box<str>>,
    pub(crate) cost: Option<CostFn>,
    pub(crate) id: Option<Extract>,
    pub(crate) styles: Vec<HeaderStyle>,
    pub(crate) secret: Option<Secret>,
    pub(crate) respond: Option<RespondFn>,
    pub(crate) settle: Option<SettleFn>,
    pub(crate) only_policy: OnceLock<OnlyPolicy>,
    /// Set once [`check_fit`](Settings::check_fit) has found nothing wrong.
    pub(crate) fits: OnceLock<()>,
}

/// The policy of a limiter that has one limit, written down once.
#[derive(Clone)]
pub(crate) struct OnlyPolicy {
    /// Of the meter whose it is.
    identity: u64,
    rule: Name,
    capacity: u64,
    limit: Option<Limit>,
    /// The rule's name, as it stands in a field.
    name: Box<[u8]>,
    field: HeaderValue,
}

/// Whose requests they are that share a key, because they have none: a key of
/// no parts at all, which nobody's value is ever taken for.
static NOBODY: Value<'static> = Value::All(Vec::new());

impl Settings {
    /// Asks about a request.
    #[inline]
    pub(crate) fn ask(self: &Arc<Self>, head: Head<'_>) -> Asked {
        let key = (self.key)(head);
        let key = match (&key, self.keyless) {
            (Some(key), _) => key,
            (None, Keyless::Refuse(status)) => return Err(Detour::Refused(Box::new(Refused::keyless(status)))),
            (None, Keyless::Pass) => return Ok(None),
            (None, Keyless::Share) => &NOBODY,
        };
        let attributes = (!self.attributes.is_empty()).then(|| self.attributes_of(head));
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        let id = self.id.as_ref().and_then(|id| id(head)?.into_text());
        self.gate.ask(
            self,
            &Question { key, attributes: attributes.as_deref().unwrap_or_default(), cost, id: id.as_deref() },
        )
    }

    #[inline(never)]
    fn attributes_of<'r>(&self, head: Head<'r>) -> Vec<Option<Value<'r>>> {
        self.attributes.iter().map(|(_, extract)| extract(head)).collect()
    }

    /// Whether a request would have an attribute that it lacks, had the server told
    /// the layer the peer's address.
    pub(crate) fn lacks_only_peer<B>(&self, attribute: &str, request: &Request<B>) -> bool {
        let told = self.client_ip.clone().peer_from(|_| Some(Ipv4Addr::UNSPECIFIED.into()));
        let mut named = self.attributes.iter().filter(|(name, _)| **name == *attribute);
        named.any(|(_, extract)| extract(Head::of(request, &told)).is_some_and(|value| value.to_attribute().is_some()))
    }

    /// What the caller is told of the limits that a request has met.
    #[inline]
    pub(crate) fn fields(&self, decision: &Decision, question: &Question<'_>, meters: &impl Meters) -> Option<Fields> {
        if self.styles.is_empty() || decision.is_unlimited() || decision.is_blocked() {
            return None;
        }
        // Mostly there is one limit, and its policy was written down before.
        if let Some(only) = self.only_policy.get().filter(|only| only.is_all(decision, meters)) {
            return Some(only.standing(decision).fields(&self.styles));
        }
        self.fields_of_any(decision, question, meters)
    }

    #[inline(never)]
    fn fields_of_any(&self, decision: &Decision, question: &Question<'_>, meters: &impl Meters) -> Option<Fields> {
        let mut text = Text::default();
        let (mut limit, mut identity, mut partition, mut line) = (None, None, None, Line::new());
        meters.for_each(Put { question, settings: self, text: &mut text }, &mut |meter, key| {
            identity = Some(meter.identity());
            let hash = self.secret.as_ref().map(|secret| hash_of(secret, key));
            if meter.name() == decision.rule() && meter.capacity() == decision.limit() {
                (limit, partition) = (meter.limit(), hash);
            }
            write_policy(&mut line, meter, hash.as_ref());
        });
        let policies = line.to_header().filter(|field| !field.is_empty());
        // Unless another policy came in between.
        let only = identity.filter(|identity| meters.only() == Some(*identity));
        if let (Some(identity), Some(field), None) = (only, &policies, &self.secret) {
            let (rule, capacity) = (decision.rule(), decision.limit());
            let (name, field) = (Line::new().quoted(rule.as_str()).as_bytes().into(), lasting(field.clone()));
            // Whoever was first is kept; both are right.
            let _ = self.only_policy.set(OnlyPolicy { identity, rule, capacity, limit, name, field });
        }
        let standing = Standing { decision, limit: limit.as_ref(), name: None, policies, partition };
        Some(standing.fields(&self.styles))
    }
}

/// How many policies are written down for good.
const MOST_LASTING: usize = 10_000;

/// The same field for the life of the process, each distinct one once: all
/// threads can have a copy of it without counting them. One too many is
/// counted as others are.
fn lasting(field: HeaderValue) -> HeaderValue {
    static LASTING: LazyLock<Mutex<HashMap<&'static str, HeaderValue>>> = LazyLock::new(Mutex::default);
    let Ok(text) = field.to_str() else { return field };
    let mut lasting = LASTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lasting.get(text) {
        return known.clone();
    }
    if lasting.len() >= MOST_LASTING {
        return field;
    }
    let text: &'static str = Box::leak(text.into());
    lasting.entry(text).or_insert(HeaderValue::from_static(text)).clone()
}

impl OnlyPolicy {
    /// Whether it is the policy of this decision, and there is no other.
    #[inline]
    fn is_all(&self, decision: &Decision, meters: &impl Meters) -> bool {
        (self.rule, self.capacity) == (decision.rule(), decision.limit()) && meters.only() == Some(self.identity)
    }

    #[inline]
    fn standing<'s>(&'s self, decision: &'s Decision) -> Standing<'s> {
        let OnlyPolicy { limit, name, field, .. } = self;
        let (limit, name) = (limit.as_ref(), Some(&**name));
        Standing { decision, limit, name, policies: Some(field.clone()), partition: None }
    }
}
