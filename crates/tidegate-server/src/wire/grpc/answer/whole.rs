//! Requests that are decided whole, as limitador decides them: all descriptors together are one request, and the limits
//! of its domain that apply are charged once.

use tidegate::kernel::Verb;
use tidegate::{CheckError, Decision, Request};
use tidegate_config::limitador::{NAMESPACE, attribute};

use super::by_policy::line_of;
use super::{MAX_DESCRIPTORS, Purpose, key};
use crate::wire::app::App;
use crate::wire::grpc::messages::{RateLimitDescriptor, RateLimitRequest};
use crate::wire::grpc::outcome::{EnvoyOutcome, Line};
use crate::wire::grpc::problem::Problem;

/// The entries of all descriptors, under the names that limits have for them.
pub(crate) struct Whole<'r> {
    domain: &'r str,
    entries: Vec<(&'r str, &'r str)>,
    /// One for each entry.
    names: Vec<String>,
}

impl<'r> Whole<'r> {
    /// # Errors
    /// If there is no domain, or there are too many descriptors.
    pub(crate) fn new(domain: &'r str, descriptors: &'r [RateLimitDescriptor]) -> Result<Whole<'r>, Problem> {
        let (count, bound) = (descriptors.len(), MAX_DESCRIPTORS);
        if domain.is_empty() {
            return Err(Problem::NoDomain);
        }
        if count > bound {
            return Err(Problem::TooManyDescriptors { count, bound });
        }
        let mut whole = Whole { domain, entries: Vec::new(), names: Vec::new() };
        for (number, descriptor) in (0..).zip(descriptors) {
            for entry in &descriptor.entries {
                whole.entries.push((entry.key.as_str(), entry.value.as_str()));
                whole.names.push(attribute(number, &entry.key));
            }
        }
        Ok(whole)
    }

    /// The request, whose attributes are the entries: by their keys for rules of a policy, by descriptor and key for
    /// limits of limitador.
    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request::new(key(self.domain, &self.entries));
        for (name, value) in &self.entries {
            request = request.with(name, *value);
        }
        for (name, (_, value)) in self.names.iter().zip(&self.entries) {
            request = request.with(name, *value);
        }
        // Last, so that no entry is taken for it.
        request.with(NAMESPACE, self.domain).partial()
    }
}

pub(super) async fn decide(app: &App, request: &RateLimitRequest, purpose: Purpose) -> Result<EnvoyOutcome, Problem> {
    let whole = Whole::new(&request.domain, &request.descriptors)?;
    let hits = u64::from(request.hits_addend.max(1));
    let (verb, cost) = match purpose {
        Purpose::Decide => (Verb::Charge, hits),
        Purpose::Check => (Verb::Peek, 1),
        Purpose::Report => (Verb::Report, hits),
    };
    let line = match decision(app, verb, whole.request().cost(cost)).await? {
        Some(decision) => line_of(&decision, decision.is_allowed() || purpose == Purpose::Report, None),
        None => Line::default(),
    };
    Ok(EnvoyOutcome { allowed: line.allowed, lines: vec![line] })
}

/// The decision on a request; none if it could never pass, which is a refusal.
pub(crate) async fn decision(app: &App, verb: Verb, request: Request<'_>) -> Result<Option<Decision>, Problem> {
    match app.decide(verb, request, None).await {
        Ok(decision) => Ok(Some(decision)),
        Err(CheckError::Unsatisfiable { .. }) => Ok(None),
        Err(error) => Err(Problem::Check(error)),
    }
}
