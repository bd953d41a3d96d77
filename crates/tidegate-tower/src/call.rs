//! A request as it is passed to the limiter, and the outcome.

use std::time::Duration;

use http::StatusCode;
use tidegate::{CheckError, Decision, Request};

use crate::fields::Fields;
use crate::head::{Text, Value};
use crate::hold::Hold;
use crate::refusal::{Reason, Refusal};
use crate::settings::Settings;

/// What the limiter decides on: the key, the attributes and the cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'q> {
    pub(crate) key: &'q Value<'q>,
    /// One for each attribute of the settings, in their order.
    pub(crate) attributes: &'q [Option<Value<'q>>],
    pub(crate) cost: u64,
    /// One for each amount of the settings, in their order.
    pub(crate) amounts: &'q [Option<u64>],
    /// What names the request, if anything does.
    pub(crate) id: Option<&'q str>,
}

/// An owned call, for settling after the request is gone.
#[derive(Debug)]
pub(crate) struct OwnedCall {
    key: Value<'static>,
    attributes: Vec<Option<Value<'static>>>,
    cost: u64,
    amounts: Vec<Option<u64>>,
    id: Option<Box<str>>,
}

impl OwnedCall {
    pub(crate) fn call(&self) -> Call<'_> {
        let OwnedCall { key, attributes, cost, amounts, id } = self;
        Call { key, attributes, cost: *cost, amounts, id: id.as_deref() }
    }
}

impl<'q> Call<'q> {
    pub(crate) fn keep(&self) -> OwnedCall {
        let keep = |value: &Value<'_>| value.clone().into_owned();
        OwnedCall {
            key: keep(self.key),
            attributes: self.attributes.iter().map(|value| value.as_ref().map(keep)).collect(),
            cost: self.cost,
            amounts: self.amounts.to_vec(),
            id: self.id.map(Box::from),
        }
    }

    /// Whether a key and a cost are all there is to it.
    #[inline]
    pub(crate) fn is_plain(&self, settings: &Settings) -> bool {
        self.attributes.is_empty() && self.amounts.is_empty() && self.id.is_none() && settings.rule.is_none()
    }

    /// The call as the limiter's request.
    pub(crate) fn request(&self, settings: &'q Settings, text: &'q mut Text) -> Request<'q> {
        let request = self.settling(settings, text);
        match self.id {
            Some(id) => request.id(id),
            None => request,
        }
    }

    /// The same without a name: what settles a request is no repetition of it.
    pub(crate) fn settling(&self, settings: &'q Settings, text: &'q mut Text) -> Request<'q> {
        let mut request = Request::new(self.key.to_key(settings.ipv6_bits, text)).cost(self.cost);
        for ((name, _), value) in settings.attributes.iter().zip(self.attributes) {
            if let Some(part) = value.as_ref().and_then(Value::to_attribute) {
                request = request.with(name, part);
            }
        }
        for ((unit, _), amount) in settings.amounts.iter().zip(self.amounts) {
            if let Some(amount) = amount {
                request = request.amount(unit, *amount);
            }
        }
        match &settings.rule {
            Some(rule) => request.rule(rule),
            None => request,
        }
    }
}

/// The outcome of a call.
pub(crate) type AdmissionResult = Result<Admission, Box<Refused>>;

/// A request that may pass.
pub(crate) struct Admission {
    /// How long it is to be held back.
    pub(crate) delay: Duration,
    /// Whether it was charged before, and not this time.
    pub(crate) is_repeated: bool,
    /// Whether the fallback decided, which charges nothing to the limit.
    pub(crate) is_degraded: bool,
    pub(crate) fields: Option<Fields>,
    /// What it holds until its response has ended, if it was reserved.
    pub(crate) hold: Option<Box<dyn Hold>>,
}

/// A request that may not.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) fields: Option<Fields>,
}

impl Refused {
    /// The request has no key.
    pub(crate) fn keyless(status: StatusCode) -> Refused {
        Refused { refusal: Refusal::new(Reason::Keyless(status)), fields: None }
    }

    /// What no admission came of.
    pub(crate) fn new(decided: Result<Decision, CheckError>, fields: Option<Fields>) -> Refused {
        match decided {
            Ok(decision) => Refused { refusal: Refusal::by(decision), fields },
            Err(error) => Refused { refusal: Refusal::new(Reason::NoAnswer(error)), fields: None },
        }
    }
}

/// The answer that follows from what the limiter decided.
#[inline]
pub(crate) fn answer(decided: Result<Decision, CheckError>, fields: Option<Fields>) -> AdmissionResult {
    match decided {
        Ok(decision) if decision.is_allowed() => Ok(Admission {
            delay: decision.delay(),
            is_repeated: decision.is_repeated(),
            is_degraded: decision.is_degraded(),
            fields,
            hold: None,
        }),
        refused => Err(Box::new(Refused::new(refused, fields))),
    }
}
