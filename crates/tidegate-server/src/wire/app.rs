//! What every protocol needs.

use std::sync::Arc;
use std::time::Instant;

use futures_util::TryFutureExt;
use tidegate::kernel::Verb;
use tidegate::store::Check;
use tidegate::{CheckError, Decision, Explanation, Request};
use tidegate_config::Format;

use crate::access::audit::{Action, AuditOutcome, Entry};
use crate::access::guards::Guards;
use crate::access::{Caller, Denied, Identity};
use crate::ask::engine::Engine;
use crate::ask::inline::Inline;
use crate::ask::outcome::{CountedBy, Outcome};
use crate::ask::policy::{Change, PolicyError};
use crate::settings::Settings;
use crate::settings::rights::Right;
use crate::tell::records::Records;

/// One server, as its protocols share it.
pub struct App {
    /// As the server was started.
    pub settings: Settings,
    /// What decides.
    pub engine: Arc<Engine>,
    /// What guards.
    pub guards: Arc<Guards>,
    /// What is told.
    pub records: Records,
    pub(crate) started: Instant,
}

impl App {
    /// Decides a request by the limit that came with it, or else by the policy.
    ///
    /// Not an `async fn`: its future would hold a second copy of the request, which is large, for each connection.
    ///
    /// # Errors
    /// If there is no decision, which is counted.
    pub(crate) fn decide<'a>(
        &'a self,
        verb: Verb,
        request: impl Into<Request<'a>>,
        inline: Option<&'a Inline>,
    ) -> impl Future<Output = Result<Decision, CheckError>> {
        self.decide_with_limits(verb, request, inline, |_, _| {})
    }

    /// The same, and the limits that made the decision.
    pub(crate) fn decide_with_limits<'a>(
        &'a self,
        verb: Verb,
        request: impl Into<Request<'a>>,
        inline: Option<&'a Inline>,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> impl Future<Output = Result<Decision, CheckError>> {
        let began = Instant::now();
        let decided = self.engine.limiter_for(inline).decide_with_limits_async(verb, request, tell);
        let timed = decided.inspect_ok(move |decision| self.decided(verb, decision, began));
        timed.inspect_err(|error| self.records.metrics.failed(error))
    }

    /// Decides several requests, all or nothing.
    ///
    /// # Errors
    /// As [`decide`](App::decide); what is wrong with a request is its own answer.
    pub(crate) async fn decide_all(
        &self,
        requests: &[(Verb, Request<'_>)],
        inline: Option<&Inline>,
    ) -> Result<Vec<Result<Decision, CheckError>>, CheckError> {
        let began = Instant::now();
        let decided = self.engine.limiter_for(inline).decide_all_async(requests).await;
        let decided = decided.inspect_err(|error| self.records.metrics.failed(error))?;
        for ((verb, _), decided) in requests.iter().zip(&decided) {
            match decided {
                Ok(decision) => self.decided(*verb, decision, began),
                Err(error) => self.records.metrics.failed(error),
            }
        }
        Ok(decided)
    }

    /// Counts how long a charge took to be decided.
    fn decided(&self, verb: Verb, decision: &Decision, began: Instant) {
        if verb == Verb::Charge {
            self.records.metrics.decided(decision.rule(), began.elapsed());
        }
    }

    /// Says what every rule makes of a request, without a charge.
    ///
    /// # Errors
    /// As [`decide`](App::decide).
    pub(crate) fn explain<'a>(
        &'a self,
        request: impl Into<Request<'a>>,
        inline: Option<&'a Inline>,
    ) -> impl Future<Output = Result<Explanation, CheckError>> {
        let explained = self.engine.limiter_for(inline).explain_async(request);
        explained.inspect_err(|error| self.records.metrics.failed(error))
    }

    /// Puts a policy in the place of the one that applies, and counts it.
    pub(crate) fn put_policy(&self, text: String, format: Format, by: &str) -> Result<Option<Change>, PolicyError> {
        let put = self.engine.put_policy(text, format, by);
        self.records.metrics.policy_given(put.is_ok());
        put
    }

    /// Whether a caller may do it, and who it is. A wrong credential is counted.
    pub(crate) fn permit(&self, caller: &Caller<'_>, right: Right) -> Result<Identity, Denied> {
        self.guards.access.decide(caller, right).map_err(|denied| self.note(denied, caller))
    }

    /// Who a caller is. A wrong credential is counted.
    pub(crate) fn identify(&self, caller: &Caller<'_>) -> Result<Identity, Denied> {
        self.guards.access.identify(caller).map_err(|denied| self.note(denied, caller))
    }

    /// Counts a wrong credential, and keeps a record of it within the budget of its address.
    fn note(&self, denied: Denied, caller: &Caller<'_>) -> Denied {
        let denied = self.guards.access.hold_against(denied, caller.link);
        let outcome = Outcome::from(&denied);
        if outcome.counted() == CountedBy::AuthenticationFailures {
            self.records.metrics.authentication_failed(caller.protocol);
        }
        if outcome.is_audited() {
            let (peer, identity) = (Some(caller.link.peer), "unknown");
            let (action, outcome) = (Action::Authenticate, AuditOutcome::Refused);
            self.guards.audit.record(Entry { peer, identity, action, outcome, policy: None, reason: None });
        }
        denied
    }
}
