//! When it passes: at the promised instant, and not by turning the clock.

use std::time::Duration;

use tidegate::store::Store;
use tidegate::{Limit, ManualClock, Micros};

use super::{Bench, LIMITS, START, limits};
use crate::random::Random;

/// One that sees time in steps of ten microseconds, used up by one request.
const COARSE: Limit = Limit::per_day(999_983);

/// A caller alone on its key that returns at `now + retry_after` is admitted;
/// one microsecond earlier it is refused.
pub fn refused_until_the_promised_instant<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits().into_iter().chain([COARSE]) {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let mut random = Random::new(11);
        let mut now = START;
        for _ in 0..20 {
            let cost = random.magnitude(1..=limit.capacity());
            bench.set(now);
            account.charge(limit.capacity());
            let refusal = account.charge(cost);
            if refusal.allowed {
                now += random.magnitude(1..=1_000_000);
                continue;
            }
            assert!(refusal.retry_after > Micros::ZERO, "{limit}: {refusal:?}");
            now = account.sees_kept(refusal, now, cost) + random.within(0..=3);
        }
    }
}

/// A key that is refused stays so when the clock goes back, and is told to
/// come at the same instant as before.
pub fn time_going_back_grants_nothing<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let refusal = account.exhaust();
        let promised = START + refusal.retry_after.get();
        for back in [0, 1, 999, 1_000, 123_456, 999_999, 1_000_000] {
            bench.set(START - back);
            let earlier = account.charge(1);
            assert!(!earlier.allowed, "{limit}: admitted by going back {back} us");
            assert_eq!(earlier.remaining, 0, "{limit}: going back {back} us");
            assert_eq!(START - back + earlier.retry_after.get(), promised, "{limit}: going back {back} us");
        }
        bench.set(promised);
        assert!(account.charge(1).allowed, "{limit}: refused at the promised instant");
    }
}

/// However often a clock goes back, no more passes than by a clock that
/// stands still meanwhile.
pub fn a_clock_that_trembles_grants_nothing<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in LIMITS {
        let bench = Bench::new(make);
        let (trembling, steady) = (bench.account(limit, "trembling"), bench.account(limit, "steady"));
        trembling.exhaust();
        steady.exhaust();
        let mut random = Random::new(13);
        let (mut latest, mut passed, mut at_most) = (START, 0, 0);
        for _ in 0..200 {
            let back = random.within(0..=1_000_000);
            let now = if random.percent(50) { latest + random.within(1..=1_000_000) } else { latest - back };
            latest = latest.max(now);
            bench.set(now);
            passed += u64::from(trembling.charge(1).allowed);
            bench.set(latest);
            while steady.charge(1).allowed {
                at_most += 1;
            }
            assert!(passed <= at_most, "{limit}: {passed} instead of {at_most} by {latest}");
        }
        assert!(passed > 0, "{limit}: time that goes on grants something");
    }
}

/// A state that a faulty clock left far in the future is taken for the full
/// one: the key waits for one reset horizon at most.
pub fn a_state_from_the_future_heals_within_one_horizon<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    const FIFTY_YEARS: Duration = Duration::from_secs(50 * 365 * 86_400);
    for limit in limits().into_iter().chain([COARSE]) {
        let bench = Bench::new(make);
        let (future, full) = (bench.account(limit, "future"), bench.account(limit, "full"));
        bench.set(START + FIFTY_YEARS.as_micros() as u64);
        assert!(future.charge(limit.capacity()).allowed, "{limit}: a new key is empty");
        bench.set(START);
        assert!(full.charge(limit.capacity()).allowed, "{limit}: a new key is empty");
        let (healed, like) = (future.charge(1), full.charge(1));
        assert!(!healed.allowed, "{limit}: a clock that went back grants nothing");
        assert_eq!(healed, like, "{limit}: a healed key is like a full one");
        bench.set(START + healed.reset_after.get());
        assert!(future.charge(limit.capacity()).allowed, "{limit}: locked out for longer than a horizon");
    }
}
