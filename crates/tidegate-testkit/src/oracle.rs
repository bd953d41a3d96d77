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
mod store;
mod thresholds;

use std::collections::HashMap;
use std::fmt;

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::Check;
use tidegate::{Algorithm, Calendar, Key, Limit, Micros, Name};

use self::bucket::Bucket;
use self::counter::Counter;
use self::fixed::Fixed;
use self::log::Log;
use self::ratio::Ratio;
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
/// let ask = Ask { rule: &rule, limit, key: &key, verb, cost: 1, floor: 0, notify: &[] };
/// assert!(oracle.decide(&[ask], Micros::new(0))[0].allowed);
/// assert_eq!(oracle.decide(&[ask], Micros::new(1))[0].retry_after, Micros::new(999_999));
/// ```
#[derive(Debug, Default)]
pub struct Oracle {
    rules: HashMap<(Name, Limit), Rule>,
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
}

impl<'a> Ask<'a> {
    /// The same ask as a check; none if its kernel is a custom one.
    #[must_use]
    pub fn of(check: &Check<'a>) -> Option<Ask<'a>> {
        let (meter, key) = (check.meter(), check.key());
        let (verb, cost, floor) = (check.verb(), check.cost(), meter.floor());
        let (limit, notify) = (meter.limit()?, meter.thresholds().percents());
        Some(Ask { rule: meter.name(), limit, key, verb, cost, floor, notify })
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
        let known = rule.and_then(|rule| Some((rule.accounts.get(&label(ask.key))?, rule.terms.at(now))));
        known.is_some_and(|(account, at)| account.heal(at).is_some())
    }

    /// What the limit would answer, before anything is carried out.
    fn look<'a>(&mut self, ask: Ask<'a>, now: Micros) -> Step<'a> {
        let rule = self.rules.entry((ask.rule.clone(), ask.limit)).or_insert_with(|| Rule::new(&ask.limit));
        let at = rule.terms.at(now);
        let cost = match ask.verb {
            Verb::Charge | Verb::Peek => ask.needs(),
            Verb::Report | Verb::Settle(_) => 0,
            Verb::Refund | Verb::Reset | Verb::Renew(_) => i128::from(ask.cost),
        };
        assert!(cost <= rule.terms.capacity, "a check's cost is at most the capacity above its floor");
        let known = rule.accounts.get(&label(ask.key)).map(|account| account.copy());
        let known = known.unwrap_or_else(|| rule.terms.fresh());
        let (account, is_changed) = match known.heal(at) {
            Some(full) => (full, ask.writes()),
            None => (known, false),
        };
        let (delay, retry_after, unrecorded, ahead) = (0, 0, 0, 0);
        let mut step =
            Step { ask, account, is_changed, allowed: true, delay, retry_after, unrecorded, ahead, crossed: 0 };
        if let Verb::Renew(charged @ Charged { cost: 1.., .. }) = ask.verb {
            step.allowed = step.account.holds(at, instant(charged.at), i128::from(charged.cost));
        }
        if matches!(ask.verb, Verb::Charge | Verb::Peek) {
            step.allowed = step.account.admits(at, cost);
            if step.allowed {
                step.delay = step.account.delay(at);
            } else {
                step.retry_after = step.tried_retry_after(at);
            }
        }
        step
    }

    /// Carries a step out, and finds out which thresholds it crossed.
    fn carry_out_and_tell(&mut self, step: &mut Step<'_>, now: Micros) {
        let name = (step.ask.rule.clone(), step.ask.limit);
        let left = |oracle: &Oracle, step: &Step<'_>| step.account.remaining(oracle.rules[&name].terms.at(now));
        let before = left(self, step);
        self.carry_out(step, now);
        if step.ask.writes() {
            let after = left(self, step);
            let rule = self.rules.get_mut(&name).expect("it was looked at a moment ago");
            step.crossed = rule.told.tell(&rule.terms, &step.ask, [before, after], instant(now));
        }
    }

    fn carry_out(&self, step: &mut Step<'_>, now: Micros) {
        let terms = &self.rules[&(step.ask.rule.clone(), step.ask.limit)].terms;
        let (at, cost) = (terms.at(now), i128::from(step.ask.cost));
        if step.ask.writes() {
            match step.ask.verb {
                Verb::Charge => step.account.charge(at, cost),
                Verb::Report => step.unrecorded = step.account.report(at, cost),
                Verb::Refund => step.account.refund(at, cost),
                Verb::Reset => step.account = terms.fresh(),
                Verb::Settle(charged) if ask_more(cost, charged) > 0 => {
                    step.unrecorded = step.account.report(at, ask_more(cost, charged));
                }
                Verb::Settle(charged) => {
                    step.account.undo(
                        at,
                        instant(charged.at),
                        Undone { charged: i128::from(charged.cost), kept: cost },
                    );
                }
                Verb::Renew(charged) => {
                    let cost = i128::from(charged.cost);
                    step.account.undo(at, instant(charged.at), Undone { charged: cost, kept: 0 });
                    step.account.charge(at, cost);
                }
                Verb::Peek => {}
            }
            if matches!(step.ask.verb, Verb::Charge | Verb::Renew(_)) {
                step.ahead = step.account.ahead(at);
            }
            step.is_changed = true;
        }
    }

    /// Keeps what has changed, and says how things stand.
    fn conclude(&mut self, step: Step<'_>, now: Micros) -> Verdict {
        let Step { ask, account, is_changed, allowed, delay, retry_after, unrecorded, ahead, crossed } = step;
        let rule = self.rules.get_mut(&(ask.rule.clone(), ask.limit)).expect("it was looked at a moment ago");
        let at = rule.terms.at(now);
        let verdict = Verdict {
            allowed,
            remaining: whole((account.remaining(at) - i128::from(ask.floor)).max(0)),
            retry_after: micros(retry_after),
            reset_after: micros(account.reset_after(at)),
            delay: micros(delay),
            degraded: false,
            repeated: false,
            unrecorded: whole(unrecorded),
            ahead: micros(ahead),
            crossed,
        };
        if is_changed {
            rule.accounts.insert(label(ask.key), account);
        }
        verdict
    }
}

/// A limit under a name, and what its keys have used.
#[derive(Debug)]
struct Rule {
    terms: Terms,
    accounts: HashMap<Vec<u8>, Box<dyn Account>>,
    told: Told,
}

impl Rule {
    fn new(limit: &Limit) -> Rule {
        Rule { terms: Terms::of(limit), accounts: HashMap::new(), told: Told::default() }
    }
}

/// One ask of a slice, and what is found out about it.
struct Step<'a> {
    ask: Ask<'a>,
    /// The state, healed if it has to be.
    account: Box<dyn Account>,
    is_changed: bool,
    allowed: bool,
    delay: i128,
    retry_after: i128,
    unrecorded: i128,
    ahead: i128,
    crossed: u8,
}

impl Step<'_> {
    /// The waiting time of a refusal, proven to be the least one.
    fn tried_retry_after(&self, at: Moment<'_>) -> i128 {
        let cost = self.ask.needs();
        let wait = self.account.retry_after(at, cost);
        let passes_after = |wait: i128| self.account.admits(Moment { now: at.now + wait, ..at }, cost);
        assert!(wait > 0 && passes_after(wait), "{:?} does not pass after {wait}", self.account);
        assert!(!passes_after(wait - 1), "{:?} passes before {wait}", self.account);
        wait
    }
}

/// What one key has used of one limit. Lengths of time are in microseconds; a
/// cost is at most the capacity.
trait Account: fmt::Debug + Send {
    /// The full account, if this one is from a future that no clock explains.
    fn heal(&self, at: Moment<'_>) -> Option<Box<dyn Account>>;

    /// Whether `cost` may pass.
    fn admits(&self, at: Moment<'_>, cost: i128) -> bool;

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

    /// How much may pass in units of one.
    fn remaining(&self, at: Moment<'_>) -> i128;

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

    fn at(&self, now: Micros) -> Moment<'_> {
        Moment { terms: self, now: i128::from(now.min(Micros::LATEST).get()) }
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
