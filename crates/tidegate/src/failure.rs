//! Who answers when the store cannot.
//!
//! A limiter without a failure mode hands the error to its caller. With one,
//! a charge or a peek that the store could not decide is answered all the
//! same, and the decision says so: it is marked
//! [degraded](crate::Decision::is_degraded). Refunds and resets have no
//! stand-in: whoever asks for one learns that it was not done.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use crate::kernel::{Verb, Verdict};
use crate::limit::{AlgorithmKind, Limit};
use crate::store::memory::MemoryStore;
use crate::store::{Check, ImmediateStore, Meter, Predecessor, StoreError};
use crate::time::Micros;

/// What to answer for a limit whose store has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// Let everything pass.
    Open,
    /// Let nothing pass.
    Closed,
    /// Let this process decide by itself, with the share of one of so many:
    /// if that is how many there are, all of them together stay within the
    /// limit, counted from when the store went away.
    Local {
        /// Processes that use the limit.
        processes: NonZeroU32,
    },
}

impl FailureMode {
    /// What a refused caller is told to wait for a store that is away.
    pub const RETRY_AFTER: Micros = Micros::new(1_000_000);

    /// [`FailureMode::Local`] from a plain number; zero is one.
    #[must_use]
    pub const fn local(processes: u32) -> FailureMode {
        match NonZeroU32::new(processes) {
            Some(processes) => FailureMode::Local { processes },
            None => FailureMode::Local { processes: NonZeroU32::MIN },
        }
    }
}

/// The stand-ins of a limiter's meters.
#[derive(Debug)]
pub(crate) struct StandIns {
    /// One for each meter of the policy, in its order.
    modes: Box<[Option<StandIn>]>,
    store: LocalStore,
}

/// The store of local stand-ins, made when it is first needed and kept when
/// the policy changes.
pub(crate) type LocalStore = Arc<OnceLock<Arc<MemoryStore>>>;

#[derive(Debug)]
enum StandIn {
    Open,
    Closed,
    Local(Meter),
}

/// Keys that a local stand-in remembers; more share a state.
const LOCAL_KEYS: usize = 100_000;

impl StandIns {
    /// The stand-ins of `meters`, or `None` if not one of them has any.
    pub(crate) fn new(meters: &[Meter], for_all: Option<FailureMode>, store: &LocalStore) -> Option<Box<StandIns>> {
        let modes: Box<[_]> = meters
            .iter()
            .map(|meter| match meter.failure_mode().or(for_all)? {
                FailureMode::Open => Some(StandIn::Open),
                FailureMode::Closed => Some(StandIn::Closed),
                FailureMode::Local { processes } => Some(StandIn::Local(local(meter, processes))),
            })
            .collect();
        let any = modes.iter().any(Option::is_some);
        any.then(|| Box::new(StandIns { modes, store: Arc::clone(store) }))
    }

    /// Answers in place of a store that failed with `error`; `numbers` are
    /// those of the checks' meters in the policy.
    pub(crate) fn decide(
        &self,
        checks: &[Check<'_>],
        numbers: &[usize],
        verdicts: &mut [Verdict],
        error: StoreError,
    ) -> Result<Micros, StoreError> {
        let askable = checks.iter().all(|check| matches!(check.verb(), Verb::Charge | Verb::Peek));
        let modes: Vec<&Option<StandIn>> = numbers.iter().filter_map(|number| self.modes.get(*number)).collect();
        let every_one = modes.iter().all(|mode| mode.is_some()) && modes.len() == checks.len();
        if !matches!(error, StoreError::Failed { .. }) || !askable || !every_one {
            return Err(error);
        }
        let store = self.store.get_or_init(|| {
            MemoryStore::builder().max_keys(LOCAL_KEYS).build().unwrap_or_else(|_| MemoryStore::default()).into()
        });
        let closed = modes.iter().any(|mode| matches!(mode, Some(StandIn::Closed)));
        let mut local = Vec::with_capacity(checks.len());
        for (index, (check, mode)) in checks.iter().zip(&modes).enumerate() {
            let mut verdict = Verdict { degraded: true, ..Verdict::default() };
            match mode {
                Some(StandIn::Open) | None => {
                    (verdict.allowed, verdict.remaining) = (true, check.meter().capacity());
                }
                Some(StandIn::Closed) => verdict.retry_after = FailureMode::RETRY_AFTER,
                Some(StandIn::Local(meter)) => match Check::new(meter, check.key(), check.verb(), check.cost()) {
                    Ok(share) => local.push((index, check.id().map_or(share, |id| share.with_id(id)))),
                    // More than the share can ever hold: the store must be back first.
                    Err(_) => verdict.retry_after = FailureMode::RETRY_AFTER,
                },
            }
            verdicts[index] = verdict;
        }
        let beyond_share = local.len() < modes.iter().filter(|m| matches!(m, Some(StandIn::Local(_)))).count();
        let asked: Vec<Check<'_>> =
            local.iter().map(|(_, check)| if closed || beyond_share { check.as_peek() } else { *check }).collect();
        let mut answers = vec![Verdict::default(); asked.len()];
        let now = store.decide_now(&asked, &mut answers)?;
        for ((index, _), answer) in local.iter().zip(answers) {
            verdicts[*index] = Verdict { degraded: true, ..answer };
        }
        Ok(now)
    }
}

/// The part of a meter that one of so many processes keeps by itself, in the
/// place of what it kept before.
fn local(meter: &Meter, processes: NonZeroU32) -> Meter {
    // A kernel of the user's own has no share that we could know.
    let share = |meter: &Meter| match meter.nominal_limit() {
        Some(limit) => Meter::new(meter.name(), limit.share(processes)),
        None => meter.clone(),
    };
    // Where shares are the same the store sees one state, and asks it once.
    let past = meter.predecessors().iter().map(|former| Predecessor::new(share(former.meter()), former.until()));
    share(meter).succeeding(past.collect())
}

impl Limit {
    /// The limit that each of so many processes may keep by itself so that
    /// together they keep this one; at least one unit at a time each.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tidegate::Limit;
    ///
    /// let four = NonZeroU32::new(4).unwrap();
    /// assert_eq!(Limit::per_second(100).share(four).to_string(), "100/4s burst 25");
    /// assert_eq!("fixed 10/min".parse::<Limit>()?.share(four).to_string(), "fixed 2/min");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn share(self, processes: NonZeroU32) -> Limit {
        let parts = u64::from(processes.get());
        let fewer = |count: u64| (count / parts).max(1);
        let slower = || self.with_numbers(self.count(), self.period() * processes.get(), fewer(self.capacity()));
        let smaller = || self.with_numbers(fewer(self.count()), self.period(), fewer(self.capacity()));
        let share = match self.algorithm() {
            // The rate of a bucket can be divided exactly, unless its period
            // becomes too long.
            AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => slower().or_else(smaller),
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingLog | AlgorithmKind::SlidingCounter => smaller(),
        };
        share.or_else(|| self.with_numbers(self.count(), self.period(), 1)).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CheckError, Clock, Key, Limiter, ManualClock, Name, Policy, Request, Rule, Store};

    /// A store that is always away.
    struct Away(ManualClock);

    #[derive(Debug, thiserror::Error)]
    #[error("gone")]
    struct Gone;

    impl Store for Away {
        async fn decide(&self, _: &[Check<'_>], _: &mut [Verdict]) -> Result<Micros, StoreError> {
            Err(StoreError::Failed { source: Box::new(Gone) })
        }

        fn clock(&self) -> &dyn Clock {
            &self.0
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => panic!("nothing here waits"),
        }
    }

    fn limiter(policy: impl Into<Policy>, mode: Option<FailureMode>) -> Limiter<Away> {
        let clock = ManualClock::default();
        let local = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
        let builder = Limiter::builder(policy).store(Away(clock)).local_store(local);
        match mode {
            Some(mode) => builder.on_failure(mode),
            None => builder,
        }
        .build()
        .expect("a valid policy")
    }

    #[test]
    fn without_a_mode_the_error_is_the_answer() {
        let limiter = limiter(Limit::per_second(2), None);
        assert!(block_on(limiter.check_async("alice")).is_err());
    }

    #[test]
    fn open_lets_pass_and_closed_does_not_and_both_say_so() {
        for (mode, allowed) in [(FailureMode::Open, true), (FailureMode::Closed, false)] {
            let limiter = limiter(Limit::per_second(2), Some(mode));
            for _ in 0..5 {
                let decision = block_on(limiter.check_async("alice")).expect("a stand-in answers");
                assert_eq!((decision.is_allowed(), decision.is_degraded()), (allowed, true));
                assert_eq!(decision.retry_after().is_zero(), allowed);
            }
            assert!(block_on(limiter.refund_async("alice")).is_err(), "a refund has no stand-in");
            assert!(block_on(limiter.reset_async("alice")).is_err(), "a reset has no stand-in");
        }
    }

    #[test]
    fn local_keeps_the_share_of_one_process() {
        let limiter = limiter(Limit::per_second(8), Some(FailureMode::local(4)));
        let admitted = (0..10).filter(|_| block_on(limiter.check_async("alice")).is_ok_and(|d| d.is_allowed()));
        assert_eq!(admitted.count(), 2);
        let beyond = block_on(limiter.check_async(Request::new("bob").cost(3))).expect("a stand-in answers");
        assert!(!beyond.is_allowed() && beyond.is_degraded(), "more than the share holds");
        assert!(
            block_on(limiter.check_async(Key::from("bob"))).is_ok_and(|d| d.is_allowed()),
            "and bob was not charged"
        );
    }

    #[test]
    fn a_request_with_an_id_is_charged_once_where_a_process_decides_by_itself() {
        let limiter = limiter(Limit::per_hour(8), Some(FailureMode::local(2)));
        let ask = |id| block_on(limiter.check_async(Request::new("alice").id(id))).expect("a stand-in answers");
        assert_eq!((ask("a").remaining(), ask("a").remaining(), ask("b").remaining()), (3, 3, 2));
        assert!(ask("a").is_repeated() && ask("a").is_degraded());
    }

    #[test]
    fn what_was_used_of_a_share_stays_used_when_the_limit_is_changed() {
        let limiter = limiter(Limit::per_hour(8), Some(FailureMode::local(2)));
        let ask = |cost| block_on(limiter.check_async(Request::new("alice").cost(cost)));
        assert_eq!(ask(3).expect("a stand-in answers").remaining(), 1);
        limiter.set_policy(Limit::per_hour(20)).expect("a valid policy");
        assert_eq!(ask(1).expect("a stand-in answers").remaining(), 6);
    }

    #[test]
    fn each_rule_has_its_own_and_one_closed_charges_nobody() {
        let policy = Policy::new()
            .meter(Meter::new(Name::literal("local"), Limit::per_second(2)).on_failure(FailureMode::local(1)))
            .meter(Meter::new(Name::literal("closed"), Limit::per_second(2)).on_failure(FailureMode::Closed));
        let limiter = limiter(policy, Some(FailureMode::Open));
        for _ in 0..5 {
            let decision = block_on(limiter.check_async("alice")).expect("a stand-in answers");
            assert_eq!((decision.is_allowed(), decision.rule().as_str()), (false, "closed"));
            assert_eq!((decision.remaining(), decision.wait()), (0, FailureMode::RETRY_AFTER));
        }
        let local = block_on(limiter.peek_async(Request::new("alice").rule("local"))).expect("a stand-in answers");
        assert_eq!((local.remaining(), local.is_degraded()), (2, true));
    }

    #[test]
    fn whoever_wants_more_than_the_share_of_one_limit_is_charged_to_no_other() {
        let policy = Policy::new().limit("small", Limit::per_second(4)).limit("large", Limit::per_second(40));
        let limiter = limiter(policy, Some(FailureMode::local(2)));
        let decision = block_on(limiter.check_async(Request::new("alice").cost(3))).expect("a stand-in answers");
        assert_eq!((decision.is_allowed(), decision.rule().as_str()), (false, "small"));
        assert_eq!(decision.wait(), FailureMode::RETRY_AFTER);
        let large = block_on(limiter.peek_async(Request::new("alice").rule("large"))).expect("a stand-in answers");
        assert_eq!(large.remaining(), 20);
    }

    #[test]
    fn a_limit_without_a_mode_leaves_all_without_an_answer() {
        let policy = Policy::new()
            .meter(Meter::new(Name::literal("open"), Limit::per_second(2)).on_failure(FailureMode::Open))
            .limit("none", Limit::per_second(2));
        let limiter = limiter(policy, None);
        assert!(block_on(limiter.check_async("alice")).is_err());
        let open = block_on(limiter.check_async(Request::new("alice").rule("open"))).expect("a stand-in answers");
        assert_eq!((open.is_allowed(), open.remaining()), (true, 2));
    }

    #[test]
    fn a_rule_has_a_mode_of_its_own() {
        let rule = Rule::new("api", Limit::per_second(2)).tier("plan", "pro", Limit::per_second(3));
        let limiter = limiter(rule.on_failure(FailureMode::Closed), Some(FailureMode::Open));
        for request in [Request::new("alice"), Request::new("alice").with("plan", "pro")] {
            assert!(!block_on(limiter.check_async(request)).expect("a stand-in answers").is_allowed());
        }
    }

    #[test]
    fn limiters_can_have_one_store_for_their_stand_ins() {
        let clock = ManualClock::default();
        let local = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
        let local = Arc::new(local);
        let admitted = [(); 2].map(|()| {
            let builder = Limiter::builder(Limit::per_second(2)).store(Away(clock.clone()));
            let limiter = builder.on_failure(FailureMode::local(1)).local_store(Arc::clone(&local)).build();
            let limiter = limiter.expect("a valid policy");
            (0..5).filter(|_| block_on(limiter.check_async("alice")).is_ok_and(|d| d.is_allowed())).count()
        });
        assert_eq!(admitted, [2, 0]);
    }

    #[test]
    fn what_the_caller_did_wrong_has_no_stand_in() {
        let store = MemoryStore::builder().max_keys(10).clock(ManualClock::default()).build().expect("valid settings");
        let builder = Limiter::builder(Limit::per_second(5)).store(store);
        let limiter = builder.on_failure(FailureMode::Open).build().expect("a valid policy");
        assert!(limiter.is_allowed(Request::new("alice").id("a")));
        let reused = limiter.check(Request::new("alice").cost(2).id("a"));
        assert!(matches!(reused, Err(CheckError::IdReused { .. })), "{reused:?}");
    }

    #[test]
    fn shares_add_up_to_no_more_than_the_limit() {
        let limits = ["100/s", "7/min burst 3", "leaky 10/s queue 4", "fixed 10/h", "sliding 9/min", "sliding-log 1/s"];
        for words in limits {
            let limit: Limit = words.parse().expect("a limit");
            for processes in [1, 2, 3, 7, 1_000, u32::MAX] {
                let share = limit.share(NonZeroU32::new(processes).expect("not zero"));
                let all = u128::from(share.capacity()) * u128::from(processes);
                assert!(
                    share.capacity() == 1 || all <= u128::from(limit.capacity()),
                    "{words} by {processes}: {share}"
                );
                assert_eq!(share.algorithm(), limit.algorithm());
            }
        }
        assert_eq!(Limit::per_second(5).share(NonZeroU32::MIN), Limit::per_second(5));
        // Neither twice as slow nor half as large is a limit.
        let slow: Limit = "3/3285day burst 23".parse().expect("a limit");
        assert_eq!(slow.share(NonZeroU32::new(2).expect("not zero")).to_string(), "3/3285day burst 1");
    }
}
