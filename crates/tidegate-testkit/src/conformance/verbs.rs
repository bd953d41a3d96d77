//! What the verbs do, and what is left after them.

use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::Store;
use tidegate::{Limit, ManualClock, Micros};

use super::{Account, Bench, limits};
use crate::random::Random;

/// Runs a test on accounts that have been used in random ways.
fn with_used<S: Store>(make: &impl Fn() -> (S, ManualClock), test: impl Fn(Limit, &Account<'_, S>, &mut Random)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let mut random = Random::new(19);
        for _ in 0..20 {
            bench.clock.advance(Duration::from_micros(random.magnitude(1..=4_000_000)));
            account.charge(random.within(1..=limit.capacity()));
            bench.clock.advance(Duration::from_micros(random.magnitude(1..=1_000_000)));
            test(limit, &account, &mut random);
        }
    }
}

/// As many requests of one unit as `remaining` says pass at that instant, and
/// the next does not.
pub fn remaining_is_how_many_more_pass<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    with_used(make, |limit, account, _| {
        let remaining = account.peek(1).remaining;
        for left in (0..remaining).rev() {
            let verdict = account.charge(1);
            assert!(verdict.allowed, "{limit}: refused with {} remaining", left + 1);
            assert_eq!(verdict.remaining, left, "{limit}");
        }
        let verdict = account.charge(1);
        assert!(!verdict.allowed && verdict.remaining == 0, "{limit}: {verdict:?} with nothing remaining");
    });
}

/// A peek answers as a charge would, and may be repeated.
pub fn a_peek_takes_nothing<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    with_used(make, |limit, account, random| {
        let cost = random.within(0..=limit.capacity());
        let peeked = account.peek(cost);
        assert_eq!(account.peek(cost), peeked, "{limit}: the second peek");
        let Verdict { allowed, retry_after, delay, .. } = account.charge(cost);
        assert_eq!((allowed, retry_after, delay), (peeked.allowed, peeked.retry_after, peeked.delay), "{limit}");
    });
}

/// What was charged last and is given back was never there.
pub fn a_refund_is_as_if_never_charged<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    with_used(make, |limit, account, random| {
        let cost = random.within(1..=limit.capacity());
        let before = account.peek(1);
        if account.charge(cost).allowed {
            let refund = account.refund(cost);
            assert!(refund.allowed && refund.retry_after == Micros::ZERO && refund.delay == Micros::ZERO, "{limit}");
            assert_eq!(refund.remaining, before.remaining, "{limit}: a refund of {cost}");
            assert_eq!(account.peek(1), before, "{limit}: a charge and a refund of {cost}");
        }
    });
}

/// However much is given back, there is never more than a new key has.
pub fn a_refund_gives_no_more_than_was_taken<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    with_used(make, |limit, account, _| {
        for cost in [limit.capacity(), limit.capacity() + 1, u64::MAX] {
            account.refund(cost);
        }
        let full = account.peek(limit.capacity());
        assert!(full.allowed, "{limit}: all was given back");
        assert_eq!((full.remaining, full.reset_after), (limit.capacity(), Micros::ZERO), "{limit}");
        assert!(account.charge(limit.capacity()).allowed, "{limit}");
        assert!(!account.charge(1).allowed, "{limit}: given back more than was taken");
    });
}

/// After a reset, a key answers as a new one does.
pub fn a_reset_forgets_everything<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (used, new) = (bench.account(limit, "used"), bench.account(limit, "new"));
        used.exhaust();
        let verdict = used.reset();
        let Verdict { allowed, remaining, retry_after, reset_after, delay, degraded, unrecorded, .. } = verdict;
        assert!(allowed && !degraded && unrecorded == 0, "{limit}");
        assert_eq!(remaining, limit.capacity(), "{limit}");
        assert_eq!([retry_after, reset_after, delay], [Micros::ZERO; 3], "{limit}");
        for cost in [1, 2, limit.capacity()] {
            assert_eq!(used.charge(cost), new.charge(cost), "{limit}: {cost} after the reset");
        }
        // Of a key that has never been seen, it is no error either.
        assert!(bench.account(limit, "unseen").reset().allowed, "{limit}");
    }
}

/// A charge or refund of nothing changes nothing, even of a full account.
pub fn a_cost_of_zero_takes_nothing<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    with_used(make, |limit, account, _| {
        let before = account.peek(1);
        for _ in 0..3 {
            assert!(account.charge(0).allowed, "{limit}: nothing always fits");
            assert!(account.refund(0).allowed, "{limit}");
        }
        assert_eq!(account.peek(1), before, "{limit}: charges and refunds of nothing");
        account.exhaust();
        assert!(account.charge(0).allowed, "{limit}: nothing fits into a full account");
    });
}
