//! A rule: to which requests a limit applies, and whose it is.

use std::fmt;

use super::condition::Condition;
pub use super::key_attribute::{KeyAttribute, Missing};
use super::priority::PriorityClasses;
use crate::error::ConfigError;
use crate::limit::Limit;
use crate::name::Name;
use crate::store::{FailureMode, Meter, Thresholds};
use crate::warm_up::WarmUp;

/// One limit, the requests that it applies to, and what makes their keys.
///
/// ```
/// use tidegate::{Condition, Limit, Limiter, Policy, Request, Rule, Setting};
///
/// let orders = Rule::new("orders", Limit::per_minute(10))
///     .when("endpoint", Condition::StartsWith("POST ".into()))
///     .key(["user"])
///     .tier("plan", "pro", Limit::per_minute(100))
///     .override_exactly("user", "load-test", Setting::Unlimited);
/// let limiter = Limiter::new(Policy::new().rule(orders));
///
/// let order = Request::user("alice").with("endpoint", "POST /orders");
/// assert_eq!(limiter.check(order.clone())?.limit(), Some(Limit::per_minute(10)));
/// assert_eq!(limiter.check(order.with("plan", "pro"))?.limit(), Some(Limit::per_minute(100)));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule does nothing until it is part of a policy"]
pub struct Rule {
    pub(super) name: Name,
    pub(super) conditions: Vec<(String, Condition)>,
    pub(super) key: RuleKey,
    pub(super) missing: Missing,
    pub(super) standard: Standard,
    pub(super) overrides: Vec<Override>,
    pub(super) tiers: Vec<Override>,
    pub(super) cost: RuleCost,
    /// For a [unit](Rule::unit) that is set later.
    pub(super) default_amount: Option<u64>,
    /// Whether a cost above the limit's largest is charged as that.
    pub(super) clamps: bool,
    pub(super) mode: Mode,
    pub(super) candidate: Option<Limit>,
    pub(super) on_failure: Option<FailureMode>,
    pub(super) warm_up: Option<WarmUp>,
    pub(super) priority: Option<PriorityClasses>,
    pub(super) thresholds: Thresholds,
}

/// What applies to a request: a limit, or one of its two extremes.
///
/// ```
/// use tidegate::{Limit, Limiter, Request, Rule, Setting};
///
/// let rule = Rule::new("api", Limit::per_hour(1)).key(["user"]);
/// let rule = rule.override_exactly("user", "monitor", Setting::Unlimited);
/// let rule = rule.override_exactly("user", "mallory", Setting::Blocked);
/// let limiter = Limiter::new(rule);
/// assert!(limiter.check(Request::user("monitor"))?.is_unlimited());
/// assert!(limiter.check(Request::user("mallory"))?.is_blocked());
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// This much.
    Limit(Limit),
    /// Any number of requests.
    Unlimited,
    /// None at all, however long one waits.
    Blocked,
}

impl From<Limit> for Setting {
    fn from(limit: Limit) -> Setting {
        Setting::Limit(limit)
    }
}

/// A limit in words, `unlimited` or `blocked`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Limit(limit) => limit.fmt(f),
            Setting::Unlimited => f.write_str("unlimited"),
            Setting::Blocked => f.write_str("blocked"),
        }
    }
}

/// What applies where nothing more special does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standard {
    Setting(Setting),
    Meter(Box<Meter>),
}

/// A setting for some values of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Override {
    pub(super) attribute: String,
    pub(super) value: Value,
    pub(super) setting: Setting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Value {
    Exactly(String),
    Matching(String),
}

/// What makes the key of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleKey {
    /// The key that the request was made with.
    Request,
    /// These attributes; none of them: one key for all.
    Attributes(Vec<KeyAttribute>),
}

/// What a rule charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleCost {
    Times(u64),
    Always(u64),
    /// So many times an amount that the request names, or this if it names none.
    Of {
        unit: Box<str>,
        times: u64,
        otherwise: u64,
    },
}

/// The unit of which every request takes one unless it says otherwise.
pub(super) const REQUESTS: &str = "requests";

/// Whether a rule decides, or is a shadow rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Enforced,
    Shadow,
}

impl Rule {
    /// A rule for all requests, with the request's own key.
    ///
    /// ```
    /// use tidegate::Rule;
    ///
    /// let rule = Rule::new(format!("tenant {}", 7), "5/min".parse()?);
    /// # assert_eq!((rule.name().as_str(), rule.in_words().as_str()), ("tenant 7", "5/min"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn new(name: impl Into<Name>, limit: Limit) -> Rule {
        Rule::with_setting(name, limit.into())
    }

    /// A rule that may also lift every limit, or block all requests, where
    /// nothing more special is set.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule, Setting};
    ///
    /// let rule = Rule::with_setting("closed beta", Setting::Blocked).key(["user"]);
    /// let limiter = Limiter::new(rule.override_exactly("user", "alice", Limit::per_hour(10)));
    /// assert!(limiter.allow(Request::user("alice")) && !limiter.allow(Request::user("bob")));
    /// ```
    pub fn with_setting(name: impl Into<Name>, setting: Setting) -> Rule {
        Rule::with(name.into(), Standard::Setting(setting))
    }

    /// A rule for a limit that is named already, or a custom kernel.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::{Limit, Rule};
    ///
    /// let rule = Rule::of_meter(Meter::new("orders", Limit::per_hour(10)));
    /// assert_eq!((rule.name().as_str(), rule.in_words().as_str()), ("orders", "10/h"));
    /// ```
    pub fn of_meter(meter: Meter) -> Rule {
        Rule::with(meter.name().clone(), Standard::Meter(Box::new(meter)))
    }

    fn with(name: Name, standard: Standard) -> Rule {
        Rule {
            name,
            conditions: Vec::new(),
            key: RuleKey::Request,
            missing: Missing::default(),
            standard,
            overrides: Vec::new(),
            tiers: Vec::new(),
            cost: RuleCost::Times(1),
            default_amount: None,
            clamps: false,
            mode: Mode::Enforced,
            candidate: None,
            on_failure: None,
            warm_up: None,
            priority: None,
            thresholds: Thresholds::default(),
        }
    }

    /// Applies only where the condition holds; several must all hold.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Limiter, Request, Rule};
    ///
    /// let uploads = Rule::new("uploads", Limit::per_hour(1)).when("method", Condition::Equals("PUT".into()));
    /// let limiter = Limiter::new(uploads);
    /// assert!(limiter.check(Request::user("alice").with("method", "GET"))?.is_unlimited());
    /// assert!(!limiter.check(Request::user("alice").with("method", "PUT"))?.is_unlimited());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn when(mut self, attribute: impl Into<String>, condition: Condition) -> Rule {
        self.conditions.push((attribute.into(), condition));
        self
    }

    /// Makes the key of these attributes; of none, one key for all requests.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("orders", Limit::per_hour(1)).key(["user", "endpoint"]));
    /// let order = |endpoint| Request::user("alice").with("endpoint", endpoint);
    /// assert!(limiter.allow(order("/orders")) && limiter.allow(order("/items")) && !limiter.allow(order("/orders")));
    /// ```
    pub fn key<A: Into<KeyAttribute>>(mut self, attributes: impl IntoIterator<Item = A>) -> Rule {
        self.key = RuleKey::Attributes(attributes.into_iter().map(Into::into).collect());
        self
    }

    /// What becomes of requests that lack an attribute of the key.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Missing, Request, Rule};
    ///
    /// let rule = Rule::new("tenant", Limit::per_hour(1)).key(["tenant"]).missing(Missing::Shared);
    /// let limiter = Limiter::new(rule);
    /// assert!(limiter.allow(Request::new("alice")) && !limiter.allow(Request::new("bob")), "one key for both");
    /// ```
    pub fn missing(mut self, missing: Missing) -> Rule {
        self.missing = missing;
        self
    }

    /// Another setting where an attribute is exactly this, also if there is a `*` in it: before any
    /// [pattern](Rule::override_matching), tier or the rule's own. In a policy file, a value with `*`
    /// or `?` is a pattern.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(1)).key(["user"]).override_exactly("user", "alice", Limit::per_hour(5));
    /// let limiter = Limiter::new(rule);
    /// assert_eq!(limiter.check(Request::user("alice"))?.capacity(), Some(5));
    /// assert_eq!(limiter.check(Request::user("bob"))?.capacity(), Some(1));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn override_exactly(
        mut self,
        attribute: impl Into<String>,
        value: impl Into<String>,
        setting: impl Into<Setting>,
    ) -> Rule {
        let value = Value::Exactly(value.into());
        self.overrides.push(Override { attribute: attribute.into(), value, setting: setting.into() });
        self
    }

    /// Another setting where an attribute matches a pattern (`*`, `?`): the
    /// first that matches, if no value is named exactly.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(1)).key(["user"]);
    /// let limiter = Limiter::new(rule.override_matching("user", "test-*", Limit::per_hour(100)));
    /// assert_eq!(limiter.check(Request::user("test-7"))?.capacity(), Some(100));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn override_matching(
        mut self,
        attribute: impl Into<String>,
        pattern: impl Into<String>,
        setting: impl Into<Setting>,
    ) -> Rule {
        let value = Value::Matching(pattern.into());
        self.overrides.push(Override { attribute: attribute.into(), value, setting: setting.into() });
        self
    }

    /// Another setting for those of a tier, such as `free` and `pro`, unless
    /// they have one of their own.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(1)).key(["user"]).tier("plan", "pro", Limit::per_hour(100));
    /// let limiter = Limiter::new(rule);
    /// assert_eq!(limiter.check(Request::user("alice").with("plan", "pro"))?.capacity(), Some(100));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn tier(mut self, attribute: impl Into<String>, tier: impl Into<String>, setting: impl Into<Setting>) -> Rule {
        let value = Value::Exactly(tier.into());
        self.tiers.push(Override { attribute: attribute.into(), value, setting: setting.into() });
        self
    }

    /// Only watches: it is charged and observers are told, and never refuses.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("tight", Limit::per_hour(1)).shadow());
    /// assert!(limiter.allow("alice") && limiter.allow("alice"), "a shadow rule refuses nothing");
    /// # let _ = Request::new("alice");
    /// ```
    pub fn shadow(mut self) -> Rule {
        self.mode = Mode::Shadow;
        self
    }

    /// Watches what another limit would do in place of this one: a shadow of
    /// the rule under the name `rule (candidate)`.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(10)).candidate(Limit::per_hour(1));
    /// let limiter = Limiter::new(rule);
    /// assert!(limiter.allow("alice") && limiter.allow("alice"), "the candidate refuses nothing");
    /// println!("{}", limiter.explain(Request::new("alice"))?);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn candidate(mut self, limit: Limit) -> Rule {
        self.candidate = Some(limit);
        self
    }

    /// Who answers for this rule when the store cannot.
    ///
    /// ```
    /// use tidegate::{FailureMode, Limit, Rule};
    ///
    /// let sign_in = Rule::new("sign-in", Limit::per_minute(5)).on_failure(FailureMode::Closed);
    /// assert_eq!(sign_in.failure_mode(), Some(FailureMode::Closed));
    /// ```
    pub fn on_failure(mut self, mode: FailureMode) -> Rule {
        self.on_failure = Some(mode);
        self
    }

    /// Who answers for this rule when the store cannot, unless the limiter says.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// assert_eq!(Rule::new("api", Limit::per_minute(5)).failure_mode(), None);
    /// ```
    #[must_use]
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.on_failure
    }

    /// Lets every limit of this rule climb for new keys, from `start` units
    /// per period in ten even steps; see [`Meter::warming_up`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter, Rule, WarmUp};
    ///
    /// let climb = WarmUp::new(10, Duration::from_secs(600))?;
    /// let limiter = Limiter::new(Rule::new("api", Limit::per_minute(100)).warm_up(climb));
    /// let decision = limiter.peek("new user").expect("an answer");
    /// assert_eq!((decision.capacity(), decision.remaining()), (Some(100), Some(10)));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn warm_up(mut self, warm_up: WarmUp) -> Rule {
        self.warm_up = Some(warm_up);
        self
    }

    /// Keeps a share of every limit of this rule, those of tiers and overrides too, back from
    /// some classes of requests: see [`PriorityClasses`]. A candidate limit has the same classes.
    ///
    /// ```
    /// use tidegate::{Floor, Limit, Limiter, PriorityClasses, Request, Rule};
    ///
    /// let classes = PriorityClasses::by("class").class("batch", Floor::Percent(50)).class("user", Floor::NONE);
    /// let limiter = Limiter::new(Rule::new("api", Limit::per_hour(2)).priority(classes));
    /// let request = |class| Request::new("acme").with("class", class);
    /// assert!(limiter.allow(request("batch")) && !limiter.allow(request("batch")) && limiter.allow(request("user")));
    /// ```
    pub fn priority(mut self, priority: PriorityClasses) -> Rule {
        self.priority = Some(priority);
        self
    }

    /// Has observers told when a charge crosses these percentages of the limit: once for
    /// each key, threshold and period; see [`Observer::crossed`](crate::Observer::crossed).
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use tidegate::{Event, Limit, Limiter, Observer, Rule, ThresholdEvent};
    ///
    /// #[derive(Default)]
    /// struct Told(Mutex<Vec<u8>>);
    ///
    /// impl Observer for Told {
    ///     fn observe(&self, _: &Event<'_>) {}
    ///     fn crossed(&self, event: &ThresholdEvent<'_>) {
    ///         self.0.lock().unwrap().push(event.percent);
    ///     }
    /// }
    ///
    /// let told = Arc::new(Told::default());
    /// let rule = Rule::new("api", Limit::per_hour(10)).notify([50, 80, 100])?;
    /// let limiter = Limiter::builder(rule).observer(told.clone()).build()?;
    /// (0..12).for_each(|_| _ = limiter.allow("alice"));
    /// assert_eq!(*told.0.lock().unwrap(), [50, 80, 100]);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If one is zero, above 100 or given twice, or if there are more than eight.
    pub fn notify(self, percents: impl IntoIterator<Item = u8>) -> Result<Rule, ConfigError> {
        Ok(self.with_thresholds(Thresholds::new(percents)?))
    }

    /// [`notify`](Rule::notify), by thresholds that are made already.
    ///
    /// ```
    /// use tidegate::store::Thresholds;
    /// use tidegate::{Limit, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(10)).with_thresholds(Thresholds::new([80, 100])?);
    /// assert_eq!(rule.thresholds().percents(), [80, 100]);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn with_thresholds(mut self, thresholds: Thresholds) -> Rule {
        self.thresholds = thresholds;
        self
    }

    /// At which shares of its limits observers are told.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// assert!(Rule::new("api", Limit::per_hour(10)).thresholds().is_empty());
    /// ```
    #[must_use]
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Its name.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// assert_eq!(Rule::new("api", Limit::per_hour(10)).name().as_str(), "api");
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Whether it only watches.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// assert!(Rule::new("api", Limit::per_hour(10)).shadow().is_shadow());
    /// ```
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// What applies where nothing more special does, in words: a limit,
    /// `unlimited` or `blocked`.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// assert_eq!(Rule::new("api", Limit::per_hour(10).burst(20)).in_words(), "10/h burst 20");
    /// ```
    #[must_use]
    pub fn in_words(&self) -> String {
        match &self.standard {
            Standard::Setting(setting) => setting.to_string(),
            Standard::Meter(meter) => meter.meaning().to_owned(),
        }
    }

    /// What applies in place of its limit: an attribute, its value or a pattern for it, and the setting. Overrides
    /// come first, then tiers.
    ///
    /// ```
    /// use tidegate::{Limit, Rule, Setting};
    ///
    /// let rule = Rule::new("orders", Limit::per_minute(10)).tier("plan", "pro", Setting::Unlimited);
    /// assert_eq!(rule.exceptions().collect::<Vec<_>>(), [("plan", "pro", Setting::Unlimited)]);
    /// ```
    pub fn exceptions(&self) -> impl Iterator<Item = (&str, &str, Setting)> {
        self.overrides.iter().chain(&self.tiers).map(|Override { attribute, value, setting }| {
            let (Value::Exactly(value) | Value::Matching(value)) = value;
            (attribute.as_str(), value.as_str(), *setting)
        })
    }

    /// The limit that is watched in place of its own, if there is one.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(10)).candidate(Limit::per_hour(5));
    /// assert_eq!(rule.candidate_limit(), Some(Limit::per_hour(5)));
    /// ```
    #[must_use]
    pub fn candidate_limit(&self) -> Option<Limit> {
        self.candidate
    }

    /// The attributes that make its keys; none if the request brings the key.
    ///
    /// ```
    /// use tidegate::{Limit, Rule};
    ///
    /// let rule = Rule::new("api", Limit::per_hour(10)).key(["tenant", "user"]);
    /// assert_eq!(rule.key_attributes().map(|attributes| attributes.len()), Some(2));
    /// ```
    #[must_use]
    pub fn key_attributes(&self) -> Option<&[KeyAttribute]> {
        match &self.key {
            RuleKey::Request => None,
            RuleKey::Attributes(attributes) => Some(attributes),
        }
    }

    /// The attributes of the key that a request must have, or the rule is an
    /// [error](Missing::Error): none of them in a shadow rule, in one that says
    /// what becomes of requests without them, or in one that sets no limit.
    ///
    /// ```
    /// use tidegate::{KeyAttribute, Limit, Missing, Rule};
    ///
    /// let rule = Rule::new("orders", Limit::per_minute(10)).key(["user"]);
    /// assert_eq!(rule.required_attributes(), [KeyAttribute::new("user")]);
    /// assert!(rule.missing(Missing::Skip).required_attributes().is_empty());
    /// ```
    #[must_use]
    pub fn required_attributes(&self) -> &[KeyAttribute] {
        let sets_limit = !matches!(self.standard, Standard::Setting(Setting::Unlimited | Setting::Blocked));
        let is_required = sets_limit && self.missing == Missing::Error && !self.is_shadow();
        self.key_attributes().filter(|_| is_required).unwrap_or_default()
    }

    /// The attributes that it uses as addresses. Of several to choose from, some may
    /// be none: a user, or else an address.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        let key = self.key_attributes().unwrap_or_default().iter();
        key.filter_map(|attribute| match &*attribute.names {
            [name] if attribute.is_address => Some(name.as_str()),
            _ => None,
        })
    }

    /// The attributes that this rule asks for, some of them perhaps twice.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &str> {
        let key = self.key_attributes().unwrap_or_default().iter().flat_map(|attribute| &attribute.names);
        let conditions = self.conditions.iter().map(|(attribute, _)| attribute.as_str());
        let settings = self.overrides.iter().chain(&self.tiers).map(|setting| setting.attribute.as_str());
        let class = self.priority.iter().map(|priority| priority.attribute.as_str());
        conditions.chain(key.map(String::as_str)).chain(settings).chain(class)
    }

    /// A meter as it is used by this rule.
    pub(super) fn made_ready(&self, meter: Meter) -> Meter {
        let meter = match self.warm_up {
            Some(warm_up) => meter.warming_up(warm_up),
            None => meter,
        };
        let meter = match &self.key {
            RuleKey::Request => meter,
            RuleKey::Attributes(attributes) => meter.keyed_by(attributes.iter().map(|attribute| &*attribute.names)),
        };
        let thresholds = if self.thresholds.is_empty() { meter.thresholds().clone() } else { self.thresholds.clone() };
        let unit = match &self.cost {
            RuleCost::Of { unit, .. } => Some(&**unit).filter(|unit| *unit != REQUESTS),
            RuleCost::Times(_) | RuleCost::Always(_) => None,
        };
        let meter = meter.notify(thresholds).counting(unit);
        match self.on_failure {
            Some(mode) => meter.on_failure(mode),
            None => meter,
        }
    }
}
