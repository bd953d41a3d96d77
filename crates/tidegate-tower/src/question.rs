//! A request as the limiter is asked about it, and the answer.

use std::borrow::Cow;
use std::time::Duration;

use tidegate::{CheckError, Decision, Request};

use crate::fields::Standing;
use crate::head::{Text, Value};
use crate::refusal::{Reason, Refusal};
use crate::settings::Settings;

/// What is asked: whose request, what else is known of it, at what cost.
#[derive(Clone, Debug)]
pub(crate) struct Question<'r> {
    pub(crate) key: Value<'r>,
    /// One for each attribute of the settings, in their order.
    pub(crate) attributes: Vec<Option<Value<'r>>>,
    pub(crate) cost: u64,
    /// What names the request, if anything does.
    pub(crate) id: Option<Cow<'r, str>>,
}

impl Question<'_> {
    pub(crate) fn into_owned(self) -> Question<'static> {
        let owned = |value: Option<Value<'_>>| value.map(Value::into_owned);
        Question {
            key: self.key.into_owned(),
            attributes: self.attributes.into_iter().map(owned).collect(),
            cost: self.cost,
            id: self.id.map(|id| Cow::Owned(id.into_owned())),
        }
    }

    /// The question in the limiter's own words.
    #[inline]
    pub(crate) fn request<'q>(&'q self, settings: &'q Settings, text: &'q mut Text) -> Request<'q> {
        let request = self.settling(settings, text);
        match &self.id {
            Some(id) => request.id(id),
            None => request,
        }
    }

    /// The same without a name: what settles a request is no repetition of it.
    #[inline]
    pub(crate) fn settling<'q>(&'q self, settings: &'q Settings, text: &'q mut Text) -> Request<'q> {
        let mut request = Request::new(self.key.to_key(settings.ipv6_bits, text)).cost(self.cost);
        for ((name, _), value) in settings.attributes.iter().zip(&self.attributes) {
            if let Some(part) = value.as_ref().and_then(Value::to_attribute) {
                request = request.with(name, part);
            }
        }
        match &settings.rule {
            Some(rule) => request.rule(rule),
            None => request,
        }
    }
}

/// A question that is put into words only if somebody needs them.
pub(crate) struct Put<'q> {
    pub(crate) question: &'q Question<'q>,
    pub(crate) settings: &'q Settings,
    pub(crate) text: &'q mut Text,
}

impl<'q> From<Put<'q>> for Request<'q> {
    fn from(put: Put<'q>) -> Request<'q> {
        put.question.request(put.settings, put.text)
    }
}

/// What came of a question.
pub(crate) type Answer = Result<Admission, Box<Refused>>;

/// A request that may pass.
#[derive(Debug)]
pub(crate) struct Admission {
    /// How long it is to be held back.
    pub(crate) delay: Duration,
    /// Whether it was charged before, and not this time.
    pub(crate) is_repeated: bool,
    pub(crate) standing: Option<Standing>,
}

/// A request that may not.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) standing: Option<Standing>,
}

/// The answer that follows from what the limiter decided.
#[inline]
pub(crate) fn answer(
    decided: Result<Decision, CheckError>,
    stand: impl FnOnce(Decision) -> Option<Standing>,
) -> Answer {
    match decided {
        Ok(decision) if decision.is_allowed() => {
            Ok(Admission { delay: decision.delay(), is_repeated: decision.is_repeated(), standing: stand(decision) })
        }
        Ok(decision) => Err(Box::new(Refused { refusal: Refusal::by(decision), standing: stand(decision) })),
        Err(error) => Err(Box::new(Refused { refusal: Refusal::new(Reason::NoAnswer(error)), standing: None })),
    }
}
