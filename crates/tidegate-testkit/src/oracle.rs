//! The oracle: what every limit means, in exact rational arithmetic.
//!
//! It is slow, plain and written without a look at the kernels it judges.
//! Nothing is scaled, packed or approximated: a bucket is the fraction of a
//! tick at which it runs empty, a window is its counts, a log is all of its
//! entries. Every waiting time that it gives has been tried out: at that
//! instant the request passes, a microsecond earlier it does not.

mod bucket;
mod counter;
mod fixed;
mod log;
mod ratio;
mod step;
mod store;
mod thresholds;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{Check, Former, Meter};
use tidegate::{Algorithm, Calendar, Key, Limit, Micros, Name};

use self::bucket::Bucket;
use self::counter::Counter;
use self::fixed::Fixed;
use self::log::Log;
use self::ratio::Ratio;
use self::step::{Holding, Step};
pub use self::store::{CustomKernel, OracleStore};
use self::thresholds::Told;

/// The least slack, in microseconds, before a state counts as one from the
/// future.
const MIN_GRACE: i128 = 1_000_000;

/// Knows the right answer to every check.
///
/// ```
/// use tidegate::kernel::Verb;
/// use tidegate::{Key, Limit, Micros, Name};
/// use tidegate_testkit::{Ask, Oracle};
///
/// let mut oracle = Oracle::new();
/// let (rule, key) = (Name::literal("api"), Key::from("alice"));
/// let (limit, verb) = (Limit::per_second(1), Verb::Charge);
/// let ask = Ask { rule: &rule, limit, key: &key, verb, cost: 1, floor: 0, notify: &[], former: &[], corrected: None };
/// assert!(oracle.decide(&[ask], Micros::new(0))[0].allowed);
/// assert_eq!(oracle.decide(&[ask], Micros::new(1))[0].retry_after, Micros::new(999_999));
/// ```
#[derive(Debug, Default)]
pub struct Oracle {
    rules: HashMap<RuleName, Rule>,
}

/// What tells a rule from every other: a limit that replaced another one is another rule.
type RuleName = (Name, Limit);

fn rule_name(meter: &Meter) -> Option<RuleName> {
    Some((meter.name().clone(), meter.limit()?))
}

/// One limit asked about one key.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The rule that the limit belongs to; a key under two rules is two keys.
    pub rule: &'a Name,
    /// The limit.
    pub limit: Limit,
    /// Whose limit.
    pub key: &'a Key<'a>,
    /// What to do.
    pub verb: Verb,
    /// Of how much: at most the limit's capacity, unless it is a report.
    pub cost: u64,
    /// How much its class leaves to others.
    pub floor: u64,
    /// The shares of the limit, in percent, of which crossings are told; in ascending order.
    pub notify: &'a [u8],
    /// The limits that this one replaced: what the key used of them counts beside it.
    pub former: &'a [Former<'a>],
    /// The limit that was charged what this corrects, if it is a former one.
    pub corrected: Option<&'a Meter>,
}

impl<'a> Ask<'a> {
    /// The same ask as a check; none if its kernel or that of a former limit is a custom one.
    #[must_use]
    pub fn of(check: &Check<'a>) -> Option<Ask<'a>> {
        let (meter, key) = (check.meter(), check.key());
        let (verb, cost, floor) = (check.verb(), check.cost(), meter.floor());
        let (limit, notify, former) = (meter.limit()?, meter.thresholds().percents(), check.former());
        let is_known = former.iter().all(|former| former.meter.limit().is_some());
        let corrected = Some(check.corrected()).filter(|corrected| corrected.identity() != meter.identity());
        is_known.then_some(Ask { rule: meter.name(), limit, key, verb, cost, floor, notify, former, corrected })
    }

    fn name(&self) -> RuleName {
        (self.rule.clone(), self.limit)
    }

    /// Those that still matter, the newest first, and until when.
    fn former(&self, now: i128) -> Vec<(RuleName, Micros)> {
        let mut former: Vec<&Former<'_>> = self.former.iter().filter(|former| instant(former.until) > now).collect();
        former.sort_by_key(|former| Reverse(former.until.saturating_since(former.meter.horizon())));
        former.into_iter().filter_map(|former| Some((rule_name(former.meter)?, former.until))).collect()
    }

    /// What must be left for it to pass: its cost above the floor, or nothing if it takes nothing.
    fn needs(&self) -> i128 {
        if self.cost == 0 { 0 } else { i128::from(self.cost) + i128::from(self.floor) }
    }

    /// Whether it can change a state at all.
    fn writes(&self) -> bool {
        match self.verb {
            Verb::Charge | Verb::Report | Verb::Refund => self.cost > 0,
            Verb::Peek => false,
            Verb::Reset => true,
            Verb::Settle(charged) => self.cost != charged.cost,
            Verb::Renew(charged) => charged.cost > 0,
        }
    }
}

impl Oracle {
    /// An oracle that has seen no key yet.
    #[must_use]
    pub fn new() -> Oracle {
        Oracle::default()
    }

    /// Decides all of `asks`, each about another state: if every charge among
    /// them passes, all are carried out, otherwise none is.
    pub fn decide(&mut self, asks: &[Ask<'_>], now: Micros) -> Vec<Verdict> {
        let now = latest(now);
        let mut steps: Vec<Step<'_>> = asks.iter().map(|ask| self.look(*ask, now)).collect();
        let refuses = |step: &Step<'_>| matches!(step.ask.verb, Verb::Charge | Verb::Renew(_)) && !step.allowed;
        if !steps.iter().any(refuses) {
            steps.iter_mut().for_each(|step| self.carry_out_and_tell(step, now));
        }
        steps.into_iter().map(|step| self.conclude(step, now)).collect()
    }

    /// Whether the state that is asked about lies so far in the future that
    /// it is healed.
    #[must_use]
    pub fn heals(&self, ask: &Ask<'_>, now: Micros) -> bool {
        let rule = self.rules.get(&(ask.rule.clone(), ask.limit));
        let known = rule.and_then(|rule| Some((rule.accounts.get(&label(ask.key))?, rule.terms.at(latest(now)))));
        known.is_some_and(|(account, at)| account.heal(at).is_some())
    }

    /// What the limit would answer, before anything is carried out.
    fn look<'a>(&mut self, ask: Ask<'a>, now: i128) -> Step<'a> {
        let own = self.holding(ask.name(), Micros::MAX, &ask, now);
        let former: Vec<Holding> =
            ask.former(now).into_iter().map(|(name, until)| self.holding(name, until, &ask, now)).collect();
        let (delay, retry_after, unrecorded, ahead) = (0, 0, 0, 0);
        let mut step = Step { ask, own, former, allowed: true, delay, retry_after, unrecorded, ahead, crossed: 0 };
        match ask.verb {
            Verb::Renew(charged) if charged.cost > 0 => step.allowed = step.can_renew(charged, now),
            Verb::Charge | Verb::Peek if step.admits(now) => step.delay = step.delay(now),
            Verb::Charge | Verb::Peek => (step.allowed, step.retry_after) = (false, step.tried_retry_after(now)),
            Verb::Report | Verb::Refund | Verb::Reset | Verb::Settle(_) | Verb::Renew(_) => {}
        }
        step
    }

    /// What the key of an ask has used of a limit, healed if it has to be.
    fn holding(&mut self, name: RuleName, until: Micros, ask: &Ask<'_>, now: i128) -> Holding {
        let limit = name.1;
        let rule = self.rules.entry(name.clone()).or_insert_with(|| Rule::new(&limit));
        let terms = Arc::clone(&rule.terms);
        let known = rule.accounts.get(&label(ask.key)).map(|account| account.copy());
        let known = known.unwrap_or_else(|| terms.fresh());
        let (account, is_changed) = match known.heal(terms.at(now)) {
            Some(full) => (full, ask.writes()),
            None => (known, false),
        };
        Holding { name, terms, account, until, is_changed }
    }

    /// Carries a step out, and finds out which thresholds it crossed.
    fn carry_out_and_tell(&mut self, step: &mut Step<'_>, now: i128) {
        if step.ask.writes() {
            let before = step.left(now);
            step.carry_out(now);
            let left = [before, step.left(now)];
            let rule = self.rules.get_mut(&step.own.name).expect("it was looked at a moment ago");
            step.crossed = rule.told.tell(&rule.terms, &step.ask, left, now);
        }
    }

    /// Keeps what has changed, and says how things stand.
    fn conclude(&mut self, step: Step<'_>, now: i128) -> Verdict {
        let (remaining, reset_after) = (step.left(now) - i128::from(step.ask.floor), step.reset_after(now));
        let Step { ask, own, former, allowed, delay, retry_after, unrecorded, ahead, crossed } = step;
        for held in former.into_iter().chain([own]).filter(|held| held.is_changed) {
            let rule = self.rules.get_mut(&held.name).expect("it was looked at a moment ago");
            rule.accounts.insert(label(ask.key), held.account);
        }
        Verdict {
            allowed,
            remaining: whole(remaining.max(0)),
            retry_after: micros(retry_after),
            reset_after: micros(reset_after),
            delay: micros(delay),
            degraded: false,
            repeated: false,
            unrecorded: whole(unrecorded),
            ahead: micros(ahead),
            crossed,
        }
    }
}

/// A limit under a name, and what its keys have used.
#[derive(Debug)]
struct Rule {
    terms: Arc<Terms>,
    accounts: HashMap<Vec<u8>, Box<dyn Account>>,
    told: Told,
}

impl Rule {
    fn new(limit: &Limit) -> Rule {
        Rule { terms: Arc::new(Terms::of(limit)), accounts: HashMap::new(), told: Told::default() }
    }
}

/// What one key has used of one limit. Lengths of time are in microseconds; a
/// cost is at most the capacity.
trait Account: fmt::Debug + Send {
    /// The full account, if this one is from a future that no clock explains.
    fn heal(&self, at: Moment<'_>) -> Option<Box<dyn Account>>;

    /// How long until a `cost` passes that is refused now.
    fn retry_after(&self, at: Moment<'_>, cost: i128) -> i128;

    /// How long a request that passes is to be held back.
    fn delay(&self, _: Moment<'_>) -> i128 {
        0
    }

    /// Takes a `cost` that may pass.
    fn charge(&mut self, at: Moment<'_>, cost: i128);

    /// Takes a `cost` that has been spent, up to the ceiling, and says what of it was
    /// not recorded.
    fn report(&mut self, at: Moment<'_>, cost: i128) -> i128;

    /// Gives the latest `cost` back, as far as it still counts.
    fn refund(&mut self, at: Moment<'_>, cost: i128);

    /// Takes back what a charge at that instant, in microseconds, took beyond what is kept,
    /// as far as it is certainly still there.
    fn undo(&mut self, at: Moment<'_>, charged_at: i128, undone: Undone);

    /// Whether all of a charge at that instant still counts, and is known to be that charge.
    fn holds(&self, _: Moment<'_>, _charged_at: i128, _cost: i128) -> bool {
        false
    }

    /// How far its own time is ahead of the clock.
    fn ahead(&self, _: Moment<'_>) -> i128 {
        0
    }

    /// How many units count, debt included; a part of a unit counts as a whole one.
    fn used(&self, at: Moment<'_>) -> i128;

    /// How much may pass in units of one.
    fn remaining(&self, at: Moment<'_>) -> i128 {
        (at.terms.capacity - self.used(at)).max(0)
    }

    /// How long until it is as if never used.
    fn reset_after(&self, at: Moment<'_>) -> i128;

    fn copy(&self) -> Box<dyn Account>;
}

/// What a charge took, and what of it is kept.
#[derive(Clone, Copy)]
struct Undone {
    charged: i128,
    kept: i128,
}

/// A limit at an instant.
#[derive(Clone, Copy, Debug)]
struct Moment<'t> {
    terms: &'t Terms,
    /// In microseconds since the epoch.
    now: i128,
}

impl Moment<'_> {
    /// The tick that the instant lies in.
    fn tick(self) -> i128 {
        self.now.div_euclid(self.terms.tick)
    }

    /// How long until a tick begins; not at all if it has.
    fn until(self, tick: i128) -> i128 {
        (tick * self.terms.tick - self.now).max(0)
    }
}

/// The numbers of a limit.
#[derive(Debug)]
struct Terms {
    algorithm: Algorithm,
    count: i128,
    capacity: i128,
    /// The most that can be used, debt included.
    ceiling: i128,
    /// The step in which time is seen, in microseconds.
    tick: i128,
    /// In ticks, rounded up.
    period: i128,
    period_in_micros: i128,
    /// Units per tick.
    rate: Ratio,
    queues: bool,
    from_first: bool,
    calendar: Option<Calendar>,
}

impl Terms {
    fn of(limit: &Limit) -> Terms {
        let micros = |duration: std::time::Duration| duration.as_micros() as i128;
        let (count, tick) = (i128::from(limit.count()), micros(limit.resolution()));
        let period = ceil_div(micros(limit.period()), tick);
        Terms {
            algorithm: limit.algorithm(),
            count,
            capacity: i128::from(limit.capacity()),
            ceiling: i128::from(limit.capacity()) + i128::from(limit.max_debt()),
            tick,
            period,
            period_in_micros: micros(limit.period()),
            rate: Ratio::new(count, period),
            queues: limit.algorithm() == Algorithm::LeakyBucket,
            from_first: limit.starts_with_first_request(),
            calendar: limit.resets_by(),
        }
    }

    fn at(&self, now: i128) -> Moment<'_> {
        Moment { terms: self, now }
    }

    fn fresh(&self) -> Box<dyn Account> {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Box::new(Bucket::fresh()),
            Algorithm::FixedWindow => Box::new(Fixed::fresh()),
            Algorithm::SlidingLog => Box::new(Log::fresh()),
            Algorithm::SlidingCounter => Box::new(Counter::fresh()),
        }
    }
}

/// What tells a key from every other.
fn label(key: &Key<'_>) -> Vec<u8> {
    let mut label = vec![u8::from(key.is_composite())];
    label.extend_from_slice(key.as_bytes());
    label
}

fn ceil_div(dividend: i128, divisor: i128) -> i128 {
    Ratio::new(dividend, divisor).ceil()
}

/// What a charge took too little.
fn ask_more(cost: i128, charged: Charged) -> i128 {
    cost - i128::from(charged.cost)
}

fn latest(now: Micros) -> i128 {
    instant(now.min(Micros::LATEST))
}

fn instant(at: Micros) -> i128 {
    i128::from(at.get())
}

fn whole(number: i128) -> u64 {
    u64::try_from(number).expect("units are counted from zero up")
}

fn micros(length: i128) -> Micros {
    let length = Micros::new(whole(length));
    assert!(length < Micros::MAX, "no wait is as long as the time that can be told");
    length
}
