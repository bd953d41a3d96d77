//! The limits that a request meets.

mod compile;
mod compiled;
mod compiled_rule;
mod condition;
mod explain;
mod glob;
mod history;
mod index;
mod key_attribute;
mod network;
mod pieces;
mod priority;
mod rule;
mod rule_cost;
mod trie;
mod values;

pub(crate) use compiled::{Applied, Compiled, Direct, Resolution};
pub use condition::Condition;
pub(crate) use explain::PendingExplanation;
pub use explain::{Explanation, RuleExplanation, RuleFinding};
pub(crate) use history::History;
pub use network::Network;
pub use priority::{Floor, PriorityClasses};
pub use rule::{KeyAttribute, Missing, Rule, Setting};

use std::collections::BTreeSet;

use crate::limit::Limit;
use crate::name::Name;
use crate::store::Meter;

/// The attribute that is an address in every policy.
const ADDRESS: &str = "ip";

/// Rules; a request must pass all that apply to it, and is charged to all of
/// them or to none.
///
/// ```
/// use tidegate::{Limit, Limiter, Policy};
///
/// let policy = Policy::new()
///     .limit("burst", Limit::per_second(2))
///     .limit("daily", Limit::fixed_window(1_000, std::time::Duration::from_secs(86_400)));
/// let limiter = Limiter::new(policy);
/// let decision = limiter.check("alice")?;
/// assert_eq!((decision.rule().as_str(), decision.remaining()), ("burst", Some(1)));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
///
/// A [`Rule`] says which requests it applies to, and whose limit it is. A
/// request that no rule applies to is allowed.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Policy {
    rules: Vec<Rule>,
    fallback: Option<Rule>,
    denied: Vec<(String, Condition)>,
    allowed: Vec<(String, Condition)>,
}

impl Policy {
    /// An empty policy, which no limiter takes as it is.
    ///
    /// ```
    /// use tidegate::{ConfigError, Limiter, Policy};
    ///
    /// assert!(Limiter::builder(Policy::new()).build().is_err(), "a policy needs a rule");
    /// ```
    pub fn new() -> Policy {
        Policy::default()
    }

    /// Adds a limit on all requests, by their own keys, under a name.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let limiter = Limiter::new(Policy::new().limit("daily", Limit::per_day(1_000)));
    /// assert_eq!(limiter.check("alice")?.rule().as_str(), "daily");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn limit(self, name: impl Into<Name>, limit: Limit) -> Policy {
        self.rule(Rule::new(name, limit))
    }

    /// Adds a limit, or a custom kernel, that has its name already.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let limiter = Limiter::new(Policy::new().meter(Meter::new("daily", Limit::per_day(1_000))));
    /// assert!(limiter.allow("alice"));
    /// ```
    pub fn meter(self, meter: Meter) -> Policy {
        self.rule(Rule::of_meter(meter))
    }

    /// Adds a rule.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy, Request, Rule};
    ///
    /// let policy = Policy::new().rule(Rule::new("users", Limit::per_hour(10)).key(["user"]));
    /// assert!(Limiter::new(policy).allow(Request::user("alice")));
    /// ```
    pub fn rule(mut self, rule: Rule) -> Policy {
        self.rules.push(rule);
        self
    }

    /// The rule for requests that no other one applies to; shadows do not count.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Limiter, Policy, Request, Rule};
    ///
    /// let orders = Rule::new("orders", Limit::per_hour(10)).when("path", Condition::StartsWith("/orders".into()));
    /// let limiter = Limiter::new(Policy::new().rule(orders).otherwise(Rule::new("rest", Limit::per_hour(1))));
    /// let request = |path| Request::new("alice").with("path", path);
    /// assert_eq!(limiter.check(request("/items"))?.rule().as_str(), "rest");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn otherwise(mut self, rule: Rule) -> Policy {
        self.fallback = Some(rule);
        self
    }

    /// Refuses requests for which the condition holds, before every rule.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Limiter, Policy, Request};
    ///
    /// let network = Condition::Within("192.0.2.0/24".parse()?);
    /// let limiter = Limiter::new(Policy::new().limit("api", Limit::per_hour(10)).deny("ip", network));
    /// assert!(limiter.check(Request::new("alice").with("ip", "192.0.2.7"))?.is_blocked());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deny(mut self, attribute: impl Into<String>, condition: Condition) -> Policy {
        self.denied.push((attribute.into(), condition));
        self
    }

    /// Lets requests pass for which the condition holds, past every rule,
    /// unless they are denied.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Limiter, Policy, Request};
    ///
    /// let monitor = Condition::Equals("monitor".into());
    /// let limiter = Limiter::new(Policy::new().limit("api", Limit::per_hour(10)).allow("user", monitor));
    /// assert!(limiter.check(Request::user("monitor"))?.is_unlimited());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn allow(mut self, attribute: impl Into<String>, condition: Condition) -> Policy {
        self.allowed.push((attribute.into(), condition));
        self
    }

    /// The attributes that any rule or list asks for, in the order of their
    /// names. Requests need no others.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Policy, Rule};
    ///
    /// let orders = Rule::new("orders", Limit::per_minute(10)).key(["user"]).tier("plan", "pro", Limit::per_minute(99));
    /// let policy = Policy::new().rule(orders).deny("ip", Condition::Equals("192.0.2.1".into()));
    /// assert!(policy.attributes().into_iter().eq(["ip", "plan", "user"]));
    /// ```
    #[must_use]
    pub fn attributes(&self) -> BTreeSet<&str> {
        let lists = self.denied.iter().chain(&self.allowed).map(|(attribute, _)| attribute.as_str());
        self.rules().flat_map(Rule::attributes).chain(lists).collect()
    }

    /// The attributes that are addresses: `ip` always, and those that a rule takes
    /// [by network](KeyAttribute::by_network); some perhaps twice. A request whose
    /// value is not an address is an error.
    ///
    /// ```
    /// use tidegate::{Limit, Policy};
    ///
    /// let policy = Policy::new().limit("api", Limit::per_hour(10));
    /// assert_eq!(policy.addresses().collect::<Vec<_>>(), ["ip"]);
    /// ```
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.rules().flat_map(Rule::addresses).chain([ADDRESS])
    }

    /// The rules in their order, the one for all others last.
    ///
    /// ```
    /// use tidegate::{Limit, Policy};
    ///
    /// let policy = Policy::new().limit("burst", Limit::per_second(5)).limit("daily", Limit::per_day(100));
    /// assert_eq!(policy.rules().map(|rule| rule.name().as_str()).collect::<Vec<_>>(), ["burst", "daily"]);
    /// ```
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().chain(&self.fallback)
    }
}

/// One limit, named by its own words.
impl From<Limit> for Policy {
    fn from(limit: Limit) -> Policy {
        Policy::new().meter(Meter::unnamed(limit))
    }
}

/// Several limits, named by their own words; the same one twice is one.
impl<const N: usize> From<[Limit; N]> for Policy {
    fn from(limits: [Limit; N]) -> Policy {
        let mut policy = Policy::new();
        for (index, limit) in limits.iter().enumerate() {
            if !limits[..index].contains(limit) {
                policy = policy.meter(Meter::unnamed(*limit));
            }
        }
        policy
    }
}

impl From<Meter> for Policy {
    fn from(meter: Meter) -> Policy {
        Policy::new().meter(meter)
    }
}

impl From<Rule> for Policy {
    fn from(rule: Rule) -> Policy {
        Policy::new().rule(rule)
    }
}
