//! What a layer was told, and the questions that follow from it.

use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Response, StatusCode};
use tidegate::{Decision, Meter, Name};

use crate::client_ip::ClientIp;
use crate::fields::{HeaderStyle, Standing, write_policy};
use crate::gate::Gate;
use crate::head::{Head, Text, Value};
use crate::line::Line;
use crate::partition::{Secret, partition};
use crate::question::{Put, Question};
use crate::refusal::Refusal;
use crate::settle::{Outcome, Settlement};

pub(crate) type Extract = Arc<dyn for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync>;
pub(crate) type CostFn = Arc<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
pub(crate) type RespondFn = Arc<dyn Fn(&Refusal) -> Response<String> + Send + Sync>;
pub(crate) type SettleFn = Arc<dyn Fn(Outcome<'_>) -> Settlement + Send + Sync>;

/// What becomes of a request without a key: nobody knows the client's
/// address, or the header is missing.
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
}

/// The policy of a limiter that has one limit, written down once.
#[derive(Clone)]
pub(crate) struct OnlyPolicy {
    name: Name,
    meaning: Box<str>,
    field: HeaderValue,
}

/// A request, as far as the settings have a say in it.
pub(crate) enum Described<'r> {
    Ask(Question<'r>),
    Pass,
    Refuse(StatusCode),
}

impl Settings {
    #[inline]
    pub(crate) fn describe<'r>(&self, head: Head<'r>) -> Described<'r> {
        let key = match ((self.key)(head), self.keyless) {
            (Some(key), _) => key,
            (None, Keyless::Refuse(status)) => return Described::Refuse(status),
            (None, Keyless::Pass) => return Described::Pass,
            // A key of no parts at all: nobody's value is ever taken for it.
            (None, Keyless::Share) => Value::All(Vec::new()),
        };
        let attributes = self.attributes.iter().map(|(_, extract)| extract(head)).collect();
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        let id = self.id.as_ref().and_then(|id| id(head)?.into_text());
        Described::Ask(Question { key, attributes, cost, id })
    }

    /// What the caller is told of the limits that a request has met.
    #[inline]
    pub(crate) fn standing(
        &self,
        decision: Decision,
        question: &Question<'_>,
        for_each_meter: impl FnOnce(Put<'_>, &mut dyn FnMut(&Meter)),
    ) -> Option<Standing> {
        if self.styles.is_empty() || decision.is_unlimited() || decision.is_blocked() {
            return None;
        }
        let mut text = Text::default();
        let hash = |secret| partition(secret, &question.key.to_key(self.ipv6_bits, &mut text));
        let partition = self.secret.as_ref().map(hash);
        let lists_policies = self.styles.contains(&HeaderStyle::Draft10);
        let mut limit = None;
        let (mut only, mut all) = (None, Line::new());
        let put = Put { question, settings: self, text: &mut text };
        for_each_meter(put, &mut |meter| {
            if meter.name() == decision.rule() && meter.capacity() == decision.limit() {
                limit = meter.limit();
            }
            if !lists_policies {
                return;
            }
            if only.is_none() && all.as_bytes().is_empty() && partition.is_none() {
                only = self.field_of(meter);
            } else {
                if let Some(first) = only.take() {
                    all.bytes(first.as_bytes());
                }
                write_policy(&mut all, meter, partition.as_ref());
            }
        });
        let policies = only.or_else(|| all.to_header().filter(|field| !field.is_empty()));
        Some(Standing { decision, limit, policies, partition })
    }

    /// A policy as a field by itself: that of the first is kept.
    fn field_of(&self, meter: &Meter) -> Option<HeaderValue> {
        let write = || {
            let mut line = Line::new();
            write_policy(&mut line, meter, None);
            line.to_header()
        };
        if let Some(only) = self.only_policy.get() {
            let same = only.name == meter.name() && *only.meaning == *meter.meaning();
            return if same { Some(only.field.clone()) } else { write() };
        }
        let field = write()?;
        let only = OnlyPolicy { name: meter.name(), meaning: meter.meaning().into(), field: field.clone() };
        // Whoever was first is kept; both are right.
        let _ = self.only_policy.set(only);
        Some(field)
    }
}
