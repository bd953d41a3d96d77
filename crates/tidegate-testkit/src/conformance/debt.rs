//! Reports: what is spent already is charged, even if that makes debt.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::Store;
use tidegate::{Key, ManualClock, Micros};

use super::{Account, Bench, limits};

/// A report is never refused; what does not fit is owed, and the wait is exact.
pub fn a_report_is_never_refused_and_debt_is_paid_in_time<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let over = limit.capacity() + limit.max_debt() / 2 + 1;
        let reported = account.report(over);
        assert!(reported.allowed && reported.retry_after == Micros::ZERO && !reported.degraded, "{limit}");
        assert_eq!((reported.remaining, reported.unrecorded), (0, 0), "{limit}");
        let refused = account.charge(1);
        assert!(!refused.allowed && refused.remaining == 0, "{limit}");
        assert_eq!(account.peek(1), refused, "{limit}: a refusal charges nothing");
        bench.clock.advance(refused.retry_after.to_duration() - std::time::Duration::from_micros(1));
        assert!(!account.charge(1).allowed, "{limit}: a microsecond before the debt is paid");
        bench.clock.advance(std::time::Duration::from_micros(1));
        assert!(account.charge(1).allowed, "{limit}: the debt is paid");
    }
}

/// A key owes no more than the limit says, and what is beyond that is told.
pub fn debt_is_bounded_and_what_is_beyond_it_is_told<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits().into_iter().flat_map(|limit| [limit, limit.debt(0), limit.debt(3)]) {
        let bench = Bench::new(make);
        let ceiling = limit.capacity() + limit.max_debt();
        let whole = bench.account(limit, "whole");
        assert_eq!(whole.report(ceiling).unrecorded, 0, "{limit}");
        let owed = whole.peek(1);
        let more = whole.report(7);
        assert!(more.allowed, "{limit}");
        assert_eq!((more.remaining, more.unrecorded), (0, 7), "{limit}");
        assert_eq!(whole.peek(1), owed, "{limit}: what is not recorded changes nothing");
        let parts = bench.account(limit, "parts");
        assert_eq!(parts.report(ceiling - 1).unrecorded, 0, "{limit}");
        assert_eq!(parts.report(u64::MAX).unrecorded, u64::MAX - 1, "{limit}");
        assert_eq!(parts.peek(1), owed, "{limit}: all that fits is recorded");
        assert_eq!(
            bench.account(limit, "other").peek(1).remaining,
            limit.capacity(),
            "{limit}: of another key nothing"
        );
    }
}

/// A report that fits is a charge, and a refund gives it back.
pub fn a_report_that_fits_is_a_charge<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let [reported, charged] = ["reported", "charged"].map(|key| bench.account(limit, key));
        for cost in [1, limit.capacity() - 1] {
            let (report, charge) = (reported.report(cost), charged.charge(cost));
            assert_eq!(report, Verdict { delay: Micros::ZERO, ..charge }, "{limit}: {cost}");
        }
        assert_eq!(reported.peek(1), charged.peek(1), "{limit}");
        let owing = limit.max_debt();
        reported.report(owing);
        assert_eq!(reported.refund(owing.min(limit.capacity())).remaining, 0, "{limit}: as much is owed");
        reported.report(0);
        assert_eq!(reported.peek(1), charged.peek(1), "{limit}: a report of nothing changes nothing");
        reported.report(5);
        assert_eq!(reported.reset().remaining, limit.capacity(), "{limit}: a reset forgives");
    }
}

/// A check never makes debt, and a cost that can never pass stays an error.
pub fn only_a_report_makes_debt<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        while account.charge(1).allowed {}
        let full = account.peek(1);
        for cost in 1..=limit.capacity() {
            assert!(!account.charge(cost).allowed, "{limit}");
        }
        assert_eq!(account.peek(1), full, "{limit}");
        // A charge of nothing passes where nothing is left, and not where something is owed.
        assert!(account.charge(0).allowed, "{limit}");
        account.report(1);
        let waits = [account.charge(0), account.peek(0)];
        assert!(waits.iter().all(|verdict| !verdict.allowed && verdict.retry_after > Micros::ZERO), "{limit}");
        // Beside a charge that is refused, nothing is reported.
        let other = bench.account(limit, Key::from(("alice", "other")));
        let both = bench.decide(&[other.check(Verb::Report, 1), account.check(Verb::Charge, 1)]);
        assert!(both[0].allowed && !both[1].allowed, "{limit}");
        assert_eq!(other.peek(1).remaining, limit.capacity(), "{limit}");
    }
}

impl<S: Store> Account<'_, S> {
    fn report(&self, cost: u64) -> Verdict {
        self.ask(Verb::Report, cost)
    }
}
