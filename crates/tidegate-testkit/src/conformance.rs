//! One suite for every store: each promise of the design is a test.
//!
//! [`conformance!`](crate::conformance!) makes the tests; the functions here
//! are what they run. They drive a store through its asynchronous
//! [`decide`](tidegate::store::Store::decide), by a clock that only they move, and
//! panic with what was promised and what came.

mod bounds;
mod debt;
mod floors;
mod ids;
mod keys;
mod reservations;
mod slices;
mod threads;
mod thresholds;
mod verbs;
mod waits;
mod whole;

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store};
use tidegate::{Key, Limit, ManualClock, Micros, Name};

pub use self::bounds::*;
pub use self::debt::*;
pub use self::floors::*;
pub use self::ids::*;
pub use self::keys::*;
pub use self::reservations::*;
pub use self::slices::*;
pub use self::threads::*;
pub use self::thresholds::*;
pub use self::verbs::*;
pub use self::waits::*;
pub use self::whole::*;
use crate::block_on::block_on;

/// Makes the tests that a store keeps every promise.
///
/// Takes a name for the module of the tests, and how to make an empty store
/// with the [`ManualClock`](tidegate::ManualClock) that it decides by:
///
/// ```
/// # mod tests {
/// use tidegate::{ManualClock, MemoryStore};
///
/// tidegate_testkit::conformance!(memory, || {
///     let clock = ManualClock::default();
///     let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
///     (store.expect("valid settings"), clock)
/// });
/// # }
/// ```
#[macro_export]
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance! { tests of $make =>
                a_bucket_admits_at_most_its_burst_and_its_rate_in_every_interval
                a_sliding_log_admits_at_most_its_count_in_every_window
                a_fixed_window_admits_at_most_its_count_in_every_window
                a_sliding_counter_keeps_its_inequality
                a_sliding_counter_admits_at_most_its_count_and_its_rate_in_every_interval
                the_bound_of_a_sliding_counter_is_tight
                a_sliding_counter_under_pressure_admits_its_count_in_every_window
                a_sliding_counter_admits_even_traffic_at_its_rate
                leaky_bucket_delays_make_the_outflow_even
                refused_until_the_promised_instant
                time_going_back_grants_nothing
                a_clock_that_trembles_grants_nothing
                a_state_from_the_future_heals_within_one_horizon
                a_refused_check_changes_nothing
                a_refused_slice_charges_none_in_any_order
                an_admitted_slice_charges_all_in_any_order
                a_peek_that_waits_does_not_block_the_others
                one_state_twice_in_a_slice_is_an_error
                a_key_whose_reset_has_passed_is_as_if_never_seen
                a_cost_above_the_capacity_is_an_error
                different_keys_never_collide
                a_key_under_two_rules_is_two_keys
                a_rule_under_two_limits_is_two_rules
                remaining_is_how_many_more_pass
                a_peek_takes_nothing
                a_refund_is_as_if_never_charged
                a_refund_gives_no_more_than_was_taken
                a_reset_forgets_everything
                a_cost_of_zero_takes_nothing
                a_report_is_never_refused_and_debt_is_paid_in_time
                debt_is_bounded_and_what_is_beyond_it_is_told
                a_report_that_fits_is_a_charge
                only_a_report_makes_debt
                no_class_takes_below_its_floor
                a_class_without_a_floor_is_as_if_there_were_none
                a_class_is_refused_until_the_promised_instant
                what_costs_nothing_and_what_is_given_back_or_reported_is_not_held_back
                a_class_that_is_refused_refuses_its_slice
                a_request_with_an_id_is_charged_once
                an_id_of_a_refused_request_may_be_tried_again
                an_id_for_another_request_is_an_error
                a_reservation_that_is_settled_is_as_if_only_that_was_charged
                a_reservation_is_settled_once
                what_is_not_reserved_is_not_settled
                permits_are_given_back_and_expire_and_are_renewed
                a_reservation_made_by_a_clock_that_went_back_is_settled
                what_is_not_there_as_a_whole_is_not_renewed
                all_limits_of_a_reservation_are_settled_together
                every_correction_is_that_of_the_oracle
                each_threshold_is_told_once_in_a_period
                a_threshold_can_be_told_again_after_a_refund
                what_charges_nothing_crosses_nothing
                every_crossing_is_that_of_the_oracle
                threads_together_cross_each_threshold_once
                threads_together_get_what_one_would
                every_recorded_trace_is_answered
                every_verdict_is_that_of_the_oracle
            }
        }
    };
    (tests of $make:expr => $($promise:ident)+) => {
        $(#[test]
        fn $promise() {
            $crate::conformance::$promise(&$make);
        })+

        /// All of them, for runners other than the test harness.
        #[cfg(test)]
        #[allow(dead_code)]
        pub(super) const ALL: &[(&str, fn())] = &[$((stringify!($promise), $promise)),+];
    };
}

/// Limits of all kinds that a few requests use up; none is coarse.
const LIMITS: [Limit; 9] = [
    Limit::per_second(5),
    Limit::token_bucket(7, Duration::from_secs(3)).burst(4),
    Limit::token_bucket(1_009, Duration::from_millis(997)).burst(6),
    Limit::leaky_bucket(3, Duration::from_secs(1)).queue(5),
    Limit::fixed_window(5, Duration::from_secs(10)),
    Limit::fixed_window(4, Duration::from_micros(6_999_997)).from_first_request(),
    Limit::sliding_log(5, Duration::from_secs(10)),
    Limit::sliding_counter(5, Duration::from_secs(10)),
    Limit::sliding_counter(7, Duration::from_micros(8_999_993)),
];

/// The same, and one by the calendar, where hours begin at half past those of the epoch.
fn limits() -> Vec<Limit> {
    let calendar = "5/hour in Asia/Kolkata".parse().expect("a limit");
    LIMITS.into_iter().chain([calendar]).collect()
}

/// An instant of no importance, in 2023.
const START: u64 = 1_700_000_003_123_457;

/// A store on the bench, with its clock.
struct Bench<S> {
    store: S,
    clock: ManualClock,
}

impl<S: Store> Bench<S> {
    fn new(make: &impl Fn() -> (S, ManualClock)) -> Bench<S> {
        let (store, clock) = make();
        clock.set(Micros::new(START));
        Bench { store, clock }
    }

    fn set(&self, now: u64) {
        self.clock.set(Micros::new(now));
    }

    fn decide(&self, checks: &[Check<'_>]) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::default(); checks.len()];
        match block_on(self.store.decide(checks, &mut verdicts)) {
            Ok(_) => verdicts,
            Err(error) => panic!("the store had no answer: {error:?}"),
        }
    }

    /// One key of a limit.
    fn account<'b>(&'b self, limit: Limit, key: impl Into<Key<'b>>) -> Account<'b, S> {
        self.account_of(Meter::new(Name::literal("rule"), limit), key)
    }

    fn account_of<'b>(&'b self, meter: Meter, key: impl Into<Key<'b>>) -> Account<'b, S> {
        Account { bench: self, meter, key: key.into() }
    }
}

/// One key under one limit, on the bench.
struct Account<'b, S> {
    bench: &'b Bench<S>,
    meter: Meter,
    key: Key<'b>,
}

impl<S: Store> Account<'_, S> {
    /// Sees that a refusal of `cost` at an instant keeps its word: the same is refused until a
    /// microsecond before the promised instant, which is returned, and admitted then.
    fn sees_kept(&self, refusal: Verdict, now: u64, cost: u64) -> u64 {
        let (bench, limit) = (self.bench, self.meter.meaning());
        let promised = now + refusal.retry_after.get();
        bench.set(promised - 1);
        let early = self.charge(cost);
        assert!(!early.allowed, "{limit}: admitted a microsecond before {refusal:?} said");
        assert_eq!(early.retry_after, Micros::new(1), "{limit}: after {refusal:?}");
        bench.set(promised);
        assert!(self.charge(cost).allowed, "{limit}: refused when {refusal:?} had promised otherwise");
        promised
    }

    fn charge(&self, cost: u64) -> Verdict {
        self.ask(Verb::Charge, cost)
    }

    fn peek(&self, cost: u64) -> Verdict {
        self.ask(Verb::Peek, cost)
    }

    fn refund(&self, cost: u64) -> Verdict {
        self.ask(Verb::Refund, cost)
    }

    fn reset(&self) -> Verdict {
        self.ask(Verb::Reset, 0)
    }

    fn ask(&self, verb: Verb, cost: u64) -> Verdict {
        self.bench.decide(&[self.check(verb, cost)])[0]
    }

    fn check(&self, verb: Verb, cost: u64) -> Check<'_> {
        Check::new(&self.meter, &self.key, verb, cost).expect("the cost is within the capacity")
    }

    fn capacity(&self) -> u64 {
        self.meter.capacity()
    }

    /// Whether all of it passes at once, as it does if nothing is used.
    fn takes_all(&self) -> bool {
        self.charge(self.capacity()).allowed
    }

    /// Spends everything, and gives the answer to one more.
    fn exhaust(&self) -> Verdict {
        while self.charge(1).allowed {}
        self.charge(1)
    }
}
