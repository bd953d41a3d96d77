//! What was decided, counted: in bounded memory, however long the log.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::{Amounts, CheckError, ConfigError, Decision, Reservation};
use tidegate::{Key, Limiter, ManualClock, MemoryStore, Name, Policy, Request};

use crate::report::{Broken, UndecidedReport};
use crate::spool::Spool;
use crate::top::Top;
use crate::watched::{Asking, Watched};

/// Keys that are counted at a time, in each list.
pub const MAX_COUNTED_KEYS: usize = 1_000;

/// Rules that are counted apart from the others.
const MAX_RULES: usize = 64;

/// Reasons that are told apart.
const MAX_REASONS: usize = 64;

/// A policy, and what it decided.
pub(crate) struct Side {
    pub(crate) limiter: Limiter<Watched>,
    pub(crate) admitted: u64,
    pub(crate) refused: Refusals,
    pub(crate) impossible: u64,
    pub(crate) repeated: u64,
    pub(crate) undecided: Undecided,
}

/// What a policy says of a request.
pub(crate) enum Outcome {
    Admitted,
    Refused(Refusal),
    /// There is no decision: the request lacks what the policy needs.
    Undecided(CheckError),
}

pub(crate) struct Refusal {
    pub(crate) rule: Name,
    pub(crate) key: Key<'static>,
    pub(crate) hash: u64,
}

/// Refusals by rule, and whom they hit most.
pub(crate) struct Refusals {
    pub(crate) count: u64,
    pub(crate) rules: Vec<(Name, u64)>,
    pub(crate) keys: Top<Concerned>,
}

/// A key that is refused, or no longer.
pub(crate) struct Concerned {
    pub(crate) rule: Name,
    pub(crate) key: Key<'static>,
    /// Of the first request that was counted, if they are wanted.
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { count: 0, rules: Vec::new(), keys: Top::new(MAX_COUNTED_KEYS) }
    }
}

impl Refusals {
    /// Counts one, and says the number of its rule.
    pub(crate) fn count(&mut self, refusal: &Refusal, attributes: impl FnOnce() -> BTreeMap<String, String>) -> usize {
        self.count += 1;
        let Refusal { rule, key, hash } = refusal;
        self.keys.count(*hash, || Concerned { rule: rule.clone(), key: key.clone(), attributes: attributes() });
        let rule = self.rules.iter().position(|(known, _)| *known == refusal.rule).unwrap_or_else(|| {
            if self.rules.len() < MAX_RULES {
                self.rules.push((refusal.rule.clone(), 0));
            } else if self.rules.len() == MAX_RULES {
                self.rules.push((OTHERS, 0));
            }
            self.rules.len() - 1
        });
        self.rules[rule].1 += 1;
        rule
    }
}

/// Requests that a policy could not decide, by reason.
#[derive(Default)]
pub(crate) struct Undecided {
    pub(crate) count: u64,
    pub(crate) reasons: Vec<UndecidedReport>,
}

impl Undecided {
    /// Counts one; the first of each reason is its example.
    pub(crate) fn count(&mut self, error: &CheckError, example: impl FnOnce(String) -> Broken) {
        self.count += 1;
        let (rule, attribute) = match error {
            CheckError::MissingAttribute { rule, attribute } => (Some(rule.as_str()), Some(&**attribute)),
            CheckError::NotAnAddress { attribute, .. } => (None, Some(&**attribute)),
            _ => (None, None),
        };
        let reason = error.reason();
        let is_same = |known: &&mut UndecidedReport| {
            (known.reason, known.rule.as_deref(), known.attribute.as_deref()) == (reason, rule, attribute)
        };
        if let Some(known) = self.reasons.iter_mut().find(is_same) {
            known.lines += 1;
        } else if self.reasons.len() < MAX_REASONS {
            let [rule, attribute] = [rule, attribute].map(|name| name.map(str::to_owned));
            self.reasons.push(UndecidedReport {
                reason,
                rule,
                attribute,
                lines: 1,
                example: example(error.to_string()),
            });
        }
    }
}

/// By how much a reservation outlasts its request: it is settled at the end, not after it.
const LONGER: Duration = Duration::from_secs(1);

/// The rules that are not told apart.
const OTHERS: Name = Name::literal("(other rules)");

impl Side {
    pub(crate) fn new(
        policy: Policy,
        clock: &ManualClock,
        max_keys: usize,
        spool: Option<Spool>,
    ) -> Result<Side, ConfigError> {
        let store = MemoryStore::builder().max_keys(max_keys).clock(clock.clone()).build()?;
        Ok(Side {
            // Who serves the policy sets the bound on its logs.
            limiter: Limiter::builder(policy).store(Watched::new(store, spool)).max_log_entries(u64::MAX).build()?,
            admitted: 0,
            refused: Refusals::default(),
            impossible: 0,
            repeated: 0,
            undecided: Undecided::default(),
        })
    }

    /// Decides a request, and reserves it if it lasts.
    pub(crate) fn decide(
        &mut self,
        request: Request<'_>,
        own_key: &Key<'_>,
        lasts: Option<Duration>,
    ) -> (Outcome, Option<Reservation<Watched>>) {
        let store = self.limiter.store();
        let (decided, reservation) = match lasts {
            None => (self.limiter.check(request), None),
            Some(lasts) => match self.limiter.reserve(request.lasts(lasts + LONGER)) {
                Ok(outcome) => (Ok(outcome.decision().clone()), outcome.made()),
                Err(error) => (Err(error), None),
            },
        };
        let mut seen = store.seen();
        let was_limited = decided.as_ref().is_ok_and(|decision| !decision.is_unlimited() && !decision.is_blocked());
        seen.end(was_limited);
        let mut refusal = |rule: Name| {
            // A list, or a cost that can never pass, is asked about no key.
            let (hash, key) =
                seen.refused_by(&rule).unwrap_or_else(|| (seen.hash(&rule, own_key), own_key.clone().into_owned()));
            Refusal { rule, key, hash }
        };
        self.repeated += u64::from(decided.as_ref().is_ok_and(Decision::is_repeated));
        let outcome = match decided {
            Ok(decision) if decision.is_allowed() => {
                self.admitted += 1;
                Outcome::Admitted
            }
            Ok(decision) => Outcome::Refused(refusal(decision.rule().clone())),
            Err(CheckError::Unsatisfiable { rule, .. }) => {
                self.impossible += 1;
                Outcome::Refused(refusal(rule))
            }
            Err(error) => Outcome::Undecided(error),
        };
        seen.clear();
        (outcome, reservation)
    }

    /// Settles a request that has ended, and says whether that could be done.
    pub(crate) fn settle(&self, reservation: Reservation<Watched>, estimate: u64, actual: Option<u64>) -> bool {
        let store = self.limiter.store();
        let is_beyond = actual.is_some_and(|actual| actual > estimate);
        store.seen().asking = if is_beyond { Asking::Excess } else { Asking::Settlement };
        let settled = reservation.settle(actual.map_or_else(Amounts::new, Amounts::from));
        store.seen().asking = Asking::Request;
        settled.is_ok()
    }
}
