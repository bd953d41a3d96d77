//! What a rule charges: the cost, an amount of a unit, or always the same.

use super::rule::{REQUESTS, Rule, RuleCost};

impl Rule {
    /// Charges so many times the request's cost, or the amount of the [unit](Rule::unit).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("api", Limit::per_hour(10)).cost_multiplier(3));
    /// assert_eq!(limiter.check(Request::new("alice").cost(2))?.remaining(), Some(4));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn cost_multiplier(mut self, by: u64) -> Rule {
        match &mut self.cost {
            RuleCost::Of { times, .. } => *times = by,
            RuleCost::Times(_) | RuleCost::Always(_) => self.cost = RuleCost::Times(by),
        }
        self
    }

    /// Counts something else than the cost: what the request takes of it, by
    /// [`Request::amount`](crate::Request::amount), times the
    /// [multiplier](Rule::cost_multiplier). A request that does not say takes the
    /// [default amount](Rule::default_amount): nothing, or one of the unit `requests`.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("tokens", Limit::per_hour(1_000)).unit("tokens"));
    /// assert_eq!(limiter.check(Request::new("alice").amount("tokens", 400))?.remaining(), Some(600));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn unit(mut self, unit: impl Into<Box<str>>) -> Rule {
        let unit = unit.into();
        let times = match self.cost {
            RuleCost::Times(times) | RuleCost::Of { times, .. } => times,
            RuleCost::Always(_) => 1,
        };
        let otherwise = self.default_amount.unwrap_or(u64::from(*unit == *REQUESTS));
        self.cost = RuleCost::Of { unit, times, otherwise };
        self
    }

    /// What a request takes of the [unit](Rule::unit) that does not say how much: an estimate,
    /// where the amount is known only afterwards. A rule without a unit ignores it.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("tokens", Limit::per_hour(1_000)).unit("tokens").default_amount(50));
    /// assert_eq!(limiter.check("alice")?.remaining(), Some(950));
    /// # let _ = Request::new("alice");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn default_amount(mut self, amount: u64) -> Rule {
        self.default_amount = Some(amount);
        if let RuleCost::Of { otherwise, .. } = &mut self.cost {
            *otherwise = amount;
        }
        self
    }

    /// Charges at most what the limit could ever let pass: an estimate above it is not an
    /// error, and takes all of it.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("tokens", Limit::per_hour(10)).clamp_estimate());
    /// assert_eq!(limiter.check(Request::new("alice").cost(99))?.remaining(), Some(0));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn clamp_estimate(mut self) -> Rule {
        self.clamps = true;
        self
    }

    /// Charges this, whatever the request costs; what it costs
    /// [in addition](crate::Request::in_addition) is not charged.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("api", Limit::per_hour(10)).fixed_cost(2));
    /// assert_eq!(limiter.check(Request::new("alice").cost(7))?.remaining(), Some(8));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn fixed_cost(mut self, cost: u64) -> Rule {
        self.cost = RuleCost::Always(cost);
        self
    }
}
