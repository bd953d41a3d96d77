//! What was decided, counted: in bounded memory, however long the log.

use tidegate::{CheckError, ConfigError, Decision};
use tidegate::{Key, Limiter, ManualClock, MemoryStore, Name, Policy, Request};

use crate::spool::Spool;
use crate::top::Top;
use crate::watched::Watched;

/// Keys that are counted at a time, in each list.
pub const MOST_COUNTED: usize = 1_000;

/// Rules that are counted apart from the others.
const MOST_RULES: usize = 64;

/// A policy, and what it decided.
pub(crate) struct Side {
    pub(crate) limiter: Limiter<Watched>,
    pub(crate) admitted: u64,
    pub(crate) refused: Refusals,
    pub(crate) impossible: u64,
    pub(crate) repeated: u64,
    pub(crate) unanswered: u64,
}

/// What a policy says of a request.
pub(crate) enum Outcome {
    Admitted,
    Refused(Refusal),
    /// There is no answer: a request id was used for two requests.
    Unanswered,
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
    pub(crate) keys: Top<(Name, Key<'static>)>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { count: 0, rules: Vec::new(), keys: Top::new(MOST_COUNTED) }
    }
}

impl Refusals {
    /// Counts one, and says the number of its rule.
    pub(crate) fn count(&mut self, refusal: &Refusal) -> usize {
        self.count += 1;
        self.keys.count(refusal.hash, || (refusal.rule, refusal.key.clone()));
        let rule = self.rules.iter().position(|(known, _)| *known == refusal.rule).unwrap_or_else(|| {
            if self.rules.len() < MOST_RULES {
                self.rules.push((refusal.rule, 0));
            } else if self.rules.len() == MOST_RULES {
                self.rules.push((OTHERS, 0));
            }
            self.rules.len() - 1
        });
        self.rules[rule].1 += 1;
        rule
    }
}

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
            limiter: Limiter::with_store(policy, Watched::new(store, spool))?,
            admitted: 0,
            refused: Refusals::default(),
            impossible: 0,
            repeated: 0,
            unanswered: 0,
        })
    }

    /// Decides a request.
    pub(crate) fn decide(&mut self, request: Request<'_>, own_key: &Key<'_>) -> Outcome {
        let store = self.limiter.store();
        let decided = self.limiter.check(request);
        let mut seen = store.seen();
        let was_limited = decided.as_ref().is_ok_and(|decision| !decision.is_unlimited() && !decision.is_blocked());
        seen.end(was_limited);
        let mut refusal = |rule: Name| {
            // A list, or a cost that can never pass, is asked about no key.
            let (hash, key) =
                seen.refused_by(rule).unwrap_or_else(|| (seen.hash(rule, own_key), own_key.clone().into_owned()));
            Refusal { rule, key, hash }
        };
        let outcome = match decided {
            Ok(decision) if decision.is_allowed() => Outcome::Admitted,
            Ok(decision) => Outcome::Refused(refusal(decision.rule())),
            Err(CheckError::Unsatisfiable { rule, .. }) => {
                self.impossible += 1;
                Outcome::Refused(refusal(rule))
            }
            Err(_) => Outcome::Unanswered,
        };
        seen.clear();
        drop(seen);
        self.repeated += u64::from(decided.as_ref().is_ok_and(Decision::is_repeated));
        match &outcome {
            Outcome::Admitted => self.admitted += 1,
            Outcome::Unanswered => self.unanswered += 1,
            Outcome::Refused(_) => {}
        }
        outcome
    }
}
