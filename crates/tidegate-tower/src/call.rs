//! A request as the limiter is asked about it, and the answer.

use std::time::Duration;

use http::StatusCode;
use tidegate::{CheckError, Decision, Request};

use crate::fields::Fields;
use crate::head::{Text, Value};
use crate::hold::Hold;
use crate::refusal::{Reason, Refusal};
use crate::settings::Settings;

/// What is asked: whose request, what else is known of it, at what cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'q> {
    pub(crate) key: &'q Value<'q>,
    /// One for each attribute of the settings, in their order.
    pub(crate) attributes: &'q [Option<Value<'q>>],
    pub(crate) cost: u64,
    /// One for each amount of the settings, in their order.
    pub(crate) amounts: &'q [Option<u64>],
    /// What names the request, if anything does.
    pub(crate) id: Option<&'q str>,
}

/// A question that has outlived its request.
#[derive(Debug)]
pub(crate) struct Kept {
    key: Value<'static>,
    attributes: Vec<Option<Value<'static>>>,
    cost: u64,
    amounts: Vec<Option<u64>>,
    id: Option<Box<str>>,
}

impl Kept {
    pub(crate) fn question(&self) -> Question<'_> {
        let Kept { key, attributes, cost, amounts, id } = self;
        Question { key, attributes, cost: *cost, amounts, id: id.as_deref() }
    }
}

impl<'q> Question<'q> {
    pub(crate) fn keep(&self) -> Kept {
        let keep = |value: &Value<'_>| value.clone().into_owned();
        Kept {
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

    /// The question in the limiter's own words.
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

/// A question that is put into words where they are needed, if they are.
pub(crate) struct Put<'q> {
    pub(crate) question: &'q Question<'q>,
    pub(crate) settings: &'q Settings,
    pub(crate) text: &'q mut Text,
}

impl<'q> From<Put<'q>> for Request<'q> {
    fn from(Put { question, settings, text }: Put<'q>) -> Request<'q> {
        question.request(settings, text)
    }
}

/// The same of a question that [is plain](Question::is_plain): a request is
/// large, and this one is never moved.
pub(crate) struct PutPlainly<'q>(pub(crate) Put<'q>);

impl<'q> From<PutPlainly<'q>> for Request<'q> {
    #[inline(always)]
    fn from(PutPlainly(Put { question, settings, text }): PutPlainly<'q>) -> Request<'q> {
        Request::new(question.key.to_key(settings.ipv6_bits, text)).cost(question.cost)
    }
}

/// What came of a question.
pub(crate) type Answer = Result<Admission, Box<Refused>>;

/// A request that may pass.
pub(crate) struct Admission {
    /// How long it is to be held back.
    pub(crate) delay: Duration,
    /// Whether it was charged before, and not this time.
    pub(crate) is_repeated: bool,
    /// Whether somebody stood in for the limit, who has charged nothing to it.
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
    /// Nobody knows whose request it is.
    pub(crate) fn keyless(status: StatusCode) -> Refused {
        Refused { refusal: Refusal::new(Reason::Keyless(status)), fields: None }
    }

    /// What no admission came of.
    pub(crate) fn new(
        decided: Result<Decision, CheckError>,
        tell: impl FnOnce(&Decision) -> Option<Fields>,
    ) -> Refused {
        match decided {
            Ok(decision) => {
                let fields = tell(&decision);
                Refused { refusal: Refusal::by(decision), fields }
            }
            Err(error) => Refused { refusal: Refusal::new(Reason::NoAnswer(error)), fields: None },
        }
    }
}

/// The answer that follows from what the limiter decided.
#[inline]
pub(crate) fn answer(decided: Result<Decision, CheckError>, tell: impl FnOnce(&Decision) -> Option<Fields>) -> Answer {
    match decided {
        Ok(decision) if decision.is_allowed() => Ok(Admission {
            delay: decision.delay(),
            is_repeated: decision.is_repeated(),
            is_degraded: decision.is_degraded(),
            fields: tell(&decision),
            hold: None,
        }),
        refused => Err(Box::new(Refused::new(refused, tell))),
    }
}
