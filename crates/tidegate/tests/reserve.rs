//! Reservations: a charge that is corrected once.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::kernel::{Charged, LimitKernel, Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{
    AcquireError, Algorithm, Amounts, CheckError, Clock, Limit, Limiter, ManualClock, MemoryStore, Micros, Overflow,
    Policy, Request, ReserveOutcome, Rule,
};
use tidegate_testkit::{Random, block_on};

const MINUTE: Duration = Duration::from_secs(60);

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

fn left(limiter: &Limiter) -> Option<u64> {
    limiter.peek(Request::new("alice").cost(0)).expect("an answer").remaining()
}

fn left_of(limiter: &Limiter, rule: &str) -> u64 {
    limiter.peek(Request::new("alice").rule(rule).cost(0)).expect("an answer").remaining().expect("a limit")
}

/// All algorithms, as rules of the same name.
fn algorithms() -> Vec<Limit> {
    let words = ["100/min", "leaky 100/min", "fixed 100/min", "sliding 100/min", "sliding-log 100/min"];
    words.map(|words| words.parse().expect("a limit")).into()
}

#[test]
fn settle_refunds_the_excess_and_charges_the_shortfall() {
    for limit in algorithms() {
        for (actual, remaining) in [(0, 100), (10, 90), (60, 40), (70, 30), (100, 0), (130, 0)] {
            let (limiter, _) = limiter(limit);
            let reserved =
                limiter.reserve(Request::new("alice").cost(60)).expect("an answer").made().expect("a reservation");
            assert_eq!(reserved.decision().remaining(), Some(40), "{limit}");
            let settled = reserved.settle(actual).expect("settled");
            assert_eq!(settled.remaining(), Some(remaining), "{actual} of {limit}");
            assert_eq!(left(&limiter), Some(remaining), "{actual} of {limit}");
            // 130 of 100 is a debt of 30.
            let report = limiter.report(Request::new("alice").cost(200)).expect("recorded");
            assert_eq!(report.unrecorded(), actual, "{actual} of {limit}");
        }
    }
}

#[test]
fn a_reservation_is_corrected_once_and_a_second_time_is_told_the_same() {
    for limit in algorithms() {
        let (limiter, _) = limiter(limit);
        let request = || Request::new("alice").cost(60).id("r-1");
        limiter.reserve(request()).expect("an answer").made().expect("a reservation").leave_open();
        let settled = limiter.settle(request(), 20).expect("settled");
        assert_eq!((settled.remaining(), settled.is_repeated()), (Some(80), false));
        for again in [limiter.settle(request(), 50), limiter.release(request())] {
            let again = again.expect("the same answer");
            assert_eq!((again.remaining(), again.is_repeated()), (Some(80), true), "{limit}");
        }
        // The reservation itself is remembered as it was.
        let reserved = limiter.check(request()).expect("the same answer");
        assert_eq!((reserved.remaining(), reserved.is_repeated()), (Some(40), true));
        assert_eq!(left(&limiter), Some(80));
    }
}

#[test]
fn settling_needs_a_reservation() {
    let (limiter, clock) = limiter(Limit::fixed_window(100, Duration::from_secs(3_600)));
    let request = || Request::new("alice").cost(60).id("r-1");
    let is_refused = |settled| matches!(settled, Err(CheckError::NotReserved { id }) if id == "r-1");
    assert!(is_refused(limiter.settle(request(), 1)));
    assert!(is_refused(limiter.renew(request())) && is_refused(limiter.release(request())));
    limiter
        .reserve(request().lasts(Duration::from_secs(5)))
        .expect("an answer")
        .made()
        .expect("a reservation")
        .leave_open();
    // Another one's is another reservation.
    assert!(is_refused(limiter.settle(Request::new("bob").id("r-1"), 1)));
    clock.advance(Duration::from_secs(5));
    assert!(is_refused(limiter.settle(request(), 1)));
    assert_eq!(left(&limiter), Some(40), "it stays charged");
}

#[test]
fn a_bucket_gives_back_what_has_not_drained_since() {
    let (limiter, clock) = limiter(Limit::per_minute(60));
    for (waits, actual, remaining) in [(0, 0, 60), (10, 0, 60), (10, 5, 60), (10, 20, 50), (59, 30, 60)] {
        let reserved =
            limiter.reserve(Request::new("alice").cost(60)).expect("an answer").made().expect("a reservation");
        clock.advance(Duration::from_secs(waits));
        assert_eq!(reserved.settle(actual).expect("settled").remaining(), Some(remaining), "{actual} after {waits}s");
        limiter.reset("alice").expect("an answer");
    }
    // Beside another charge it is not known whose has drained: then it was this one's.
    assert!(limiter.allow(Request::new("alice").cost(30)));
    let reserved = limiter.reserve(Request::new("alice").cost(30)).expect("an answer").made().expect("a reservation");
    clock.advance(Duration::from_secs(10));
    assert_eq!(left(&limiter), Some(10));
    assert_eq!(reserved.release().expect("released").remaining(), Some(30));
}

#[test]
fn a_window_gives_back_to_the_window_that_was_charged() {
    let (limiter, clock) = limiter(Limit::fixed_window(100, MINUTE));
    let reserved = limiter.reserve(Request::new("alice").cost(60)).expect("an answer").made().expect("a reservation");
    clock.advance(MINUTE);
    assert!(limiter.allow(Request::new("alice").cost(50)));
    assert_eq!(reserved.release().expect("released").remaining(), Some(50));
}

#[test]
fn at_most_so_many_are_in_flight() {
    let (limiter, clock) = limiter(Limit::in_flight(2, MINUTE));
    let first = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    clock.advance(Duration::from_secs(10));
    let second = limiter
        .reserve(Request::new("alice").cost(9))
        .expect("an answer")
        .made()
        .expect("one permit, whatever it costs");
    let Ok(ReserveOutcome::Refused(refused)) = limiter.reserve("alice") else { panic!("both are held") };
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(50)), "when the first one expires");
    assert!(limiter.reserve("bob").expect("an answer").made().is_some());
    let _ = first.settle(0).expect("settled");
    let third = limiter.reserve("alice").expect("an answer").made().expect("the first is free");
    assert!(limiter.reserve("alice").expect("an answer").made().is_none());
    drop(second);
    assert_eq!(left(&limiter), Some(1), "a reservation that is dropped gives its permit back");
    let _ = third.release().expect("released");
    assert_eq!(left(&limiter), Some(2));
}

#[test]
fn a_permit_lasts_until_it_expires_and_longer_if_it_is_renewed() {
    let (limiter, clock) = limiter(Limit::in_flight(1, MINUTE));
    let held = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    for _ in 0..20 {
        clock.advance(Duration::from_secs(59));
        assert!(held.renew().expect("an answer").is_allowed());
        assert!(limiter.reserve("alice").expect("an answer").made().is_none());
    }
    clock.advance(MINUTE);
    assert!(!held.renew().expect("an answer").is_allowed(), "it has expired");
    let other = limiter.reserve("alice").expect("an answer").made().expect("the permit is free");
    let _ = held.settle(0).expect("settled");
    assert!(
        limiter.reserve("alice").expect("an answer").made().is_none(),
        "one that has expired gives no other's back"
    );
    drop(other);
    assert!(limiter.reserve("alice").expect("an answer").made().is_some());
}

#[test]
fn one_request_passes_all_limits_and_is_settled_in_one() {
    let policy = Policy::new()
        .limit("requests", Limit::per_minute(10))
        .rule(Rule::new("tokens", Limit::sliding_log(1_000, MINUTE)).unit("tokens").default_amount(100))
        .rule(Rule::new("money", Limit::fixed_window(50_000, MINUTE)).unit("tokens").cost_multiplier(3))
        .limit("at once", Limit::in_flight(2, MINUTE));
    let (limiter, _) = limiter(policy);
    let all = |limiter: &Limiter| ["requests", "tokens", "money", "at once"].map(|rule| left_of(limiter, rule));
    let reserved =
        limiter.reserve(Request::new("alice").amount("tokens", 400)).expect("an answer").made().expect("a reservation");
    assert_eq!(all(&limiter), [9, 600, 48_800, 1]);
    let plain = limiter.reserve("alice").expect("an answer").made().expect("a reservation");
    assert_eq!(all(&limiter), [8, 500, 48_800, 0], "what is not named is the default amount, or nothing");
    let _ = reserved.settle(Amounts::new().amount("tokens", 150)).expect("settled");
    assert_eq!(all(&limiter), [8, 750, 49_550, 1]);
    let _ = plain.settle(Amounts::new().amount("tokens", 200)).expect("settled");
    assert_eq!(all(&limiter), [8, 650, 48_950, 2]);
    let refused = limiter.reserve(Request::new("alice").amount("tokens", 700));
    assert!(matches!(refused, Ok(ReserveOutcome::Refused(_))));
    assert_eq!(all(&limiter), [8, 650, 48_950, 2], "nothing is charged");
    let _ = limiter
        .reserve(Request::new("alice").amount("tokens", 650))
        .expect("an answer")
        .made()
        .expect("a reservation")
        .release()
        .expect("released");
    assert_eq!(all(&limiter), [8, 650, 48_950, 2], "a release gives back the request itself, too");
}

#[test]
fn an_estimate_above_the_limit_is_an_error_unless_it_is_clamped() {
    let tokens = || Rule::new("tokens", Limit::per_minute(100)).unit("tokens");
    let request = || Request::new("alice").amount("tokens", 4_096);
    let (strict, _) = limiter(Policy::new().rule(tokens()));
    assert!(matches!(strict.reserve(request()), Err(CheckError::Unsatisfiable { .. })));
    let (clamped, _) = limiter(Policy::new().rule(tokens().clamp_estimate()));
    let reserved = clamped.reserve(request()).expect("an answer").made().expect("all of it");
    assert_eq!(reserved.decision().remaining(), Some(0));
    assert_eq!(reserved.settle(Amounts::new().amount("tokens", 30)).expect("settled").remaining(), Some(70));
}

#[test]
fn only_an_estimate_is_clamped() {
    let (limiter, _) = limiter(Limit::per_minute(100));
    limiter
        .set_policy(Policy::new().rule(Rule::new("all", Limit::per_minute(100)).clamp_estimate()))
        .expect("a policy");
    let reserved = limiter.reserve(Request::new("alice").cost(500)).expect("an answer").made().expect("all of it");
    assert_eq!(reserved.settle(130).expect("settled").unrecorded(), 0);
    // A debt of thirty, and seventy more can be owed.
    assert_eq!(limiter.report(Request::new("alice").cost(200)).expect("recorded").unrecorded(), 130);
}

#[test]
fn an_additional_cost_takes_no_permit_and_no_default_amount() {
    let policy = Policy::new()
        .rule(Rule::new("tokens", Limit::per_minute(100)).unit("tokens").default_amount(30))
        .limit("at once", Limit::in_flight(2, MINUTE));
    let (limiter, _) = limiter(policy);
    assert!(limiter.allow("alice") && limiter.allow(Request::new("alice").cost(5).in_addition()));
    assert_eq!(["tokens", "at once"].map(|rule| left_of(&limiter, rule)), [70, 1]);
    assert!(limiter.allow(Request::new("alice").amount("tokens", 5).in_addition()));
    assert_eq!(["tokens", "at once"].map(|rule| left_of(&limiter, rule)), [65, 1]);
}

/// Answers when it is let to, and then not before it is asked again.
struct Slow(MemoryStore);

impl Store for Slow {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let decided = self.0.decide(checks, verdicts).await;
        if checks.iter().any(|check| check.verb() == Verb::Charge) {
            std::future::pending::<()>().await;
        }
        decided
    }

    fn clock(&self) -> &dyn tidegate::Clock {
        self.0.clock()
    }
}

#[test]
fn a_reservation_that_is_cancelled_on_its_way_gives_its_permit_back() {
    let limiter = Limiter::with_store(Limit::in_flight(1, MINUTE), Slow(MemoryStore::default())).expect("a policy");
    let left = || {
        let mut peek = pin!(limiter.peek_async("alice"));
        let Poll::Ready(Ok(peeked)) = peek.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("a peek is answered at once");
        };
        peeked.remaining()
    };
    {
        let mut reserving = pin!(limiter.reserve_async("alice"));
        assert!(reserving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(left(), Some(0));
    }
    assert_eq!(left(), Some(1));
    {
        let mut waiting = pin!(limiter.acquire_reservation_async("alice", MINUTE));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(left(), Some(0));
    }
    assert_eq!(left(), Some(1));
}

#[test]
fn a_limit_that_was_changed_meanwhile_is_corrected_all_the_same() {
    for (before, after) in [
        ("fixed 100/min", "fixed 200/min"),
        ("100/min", "fixed 200/min"),
        ("sliding-log 100/min", "sliding-log 150/min"),
    ] {
        let [before, after] = [before, after].map(|words: &str| words.parse::<Limit>().expect("a limit"));
        let (limiter, _) = limiter(before);
        let reserved =
            limiter.reserve(Request::new("alice").cost(60)).expect("an answer").made().expect("a reservation");
        limiter.set_policy(after).expect("a policy");
        let settled = reserved.settle(10).expect("settled");
        assert_eq!(settled.remaining(), Some(after.capacity() - 10), "{before} to {after}");
    }
    let (limiter, _) = limiter(Limit::in_flight(2, MINUTE));
    let held = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    limiter.set_policy(Limit::in_flight(3, MINUTE)).expect("a policy");
    assert_eq!(left(&limiter), Some(2));
    let _ = held.release().expect("released");
    assert_eq!(left(&limiter), Some(3));
}

#[test]
fn a_caller_that_waits_gets_the_permit_when_it_is_given_back() {
    let (limiter, _) = limiter(Limit::in_flight(1, Duration::from_secs(3_600)));
    let held = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    let mut waiting = pin!(limiter.acquire_reservation_async("alice", Duration::from_secs(7_200)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let _ = held.release().expect("released");
    let Poll::Ready(Ok(reserved)) = waiting.as_mut().poll(&mut context) else { panic!("the permit is free") };
    assert!(limiter.reserve("alice").expect("an answer").made().is_none());
    drop(reserved);
    assert!(limiter.reserve("alice").expect("an answer").made().is_some());
}

/// A clock by which another request is faster: it is charged between two readings.
#[derive(Clone)]
struct Overtaking {
    clock: ManualClock,
    readings: Arc<AtomicU64>,
    limiter: Arc<OnceLock<Limiter>>,
}

impl Clock for Overtaking {
    fn now(&self) -> Micros {
        let now = self.clock.now();
        if self.readings.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.clock.advance(Duration::from_micros(1));
            let limiter = self.limiter.get().expect("a limiter");
            assert!(limiter.allow(Request::new("alice").cost(3)), "all has drained");
        }
        now
    }
}

#[test]
fn a_settlement_that_was_overtaken_gives_back_no_more_than_is_there() {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let overtaking = Overtaking { clock: clock.clone(), readings: Arc::default(), limiter: Arc::default() };
    let store = MemoryStore::builder().clock(overtaking.clone()).build().expect("valid settings");
    let limit = Limit::token_bucket(1, Duration::from_micros(1)).burst(3);
    let limiter = Limiter::with_store(limit, store).expect("a valid policy");
    assert!(overtaking.limiter.set(limiter.clone()).is_ok());
    let reserved = limiter.reserve(Request::new("alice").cost(3)).expect("an answer").made().expect("a reservation");
    clock.advance(Duration::from_micros(2));
    // The id is looked for by the first reading, and by the second the settlement begins.
    overtaking.readings.store(2, Ordering::Relaxed);
    assert_eq!(reserved.release().expect("released").remaining(), Some(0));
    assert!(!limiter.allow("alice"), "four of three at one instant");
}

#[test]
fn a_permit_can_be_given_back_for_as_long_as_it_is_held() {
    let (limiter, clock) = limiter(Limit::in_flight(1, Duration::from_secs(3_600)));
    let held = limiter
        .reserve(Request::new("alice").lasts(Duration::from_secs(1)))
        .expect("an answer")
        .made()
        .expect("a permit");
    clock.advance(Duration::from_secs(3_599));
    assert!(held.renew().expect("an answer").is_allowed());
    clock.advance(Duration::from_secs(3_599));
    let _ = held.release().expect("released");
    assert_eq!(left(&limiter), Some(1));
}

#[test]
fn units_admitted_on_overflow_are_not_refunded() {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let store = MemoryStore::builder().max_keys(1).overflow(Overflow::Allow).clock(clock.clone());
    let store = store.build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_hour(5), store).expect("a valid policy");
    let full = (0..100_u64).take_while(|key| !limiter.check(*key).expect("an answer").is_degraded()).count() as u64;
    let reserved = limiter.reserve(Request::new(full).cost(3)).expect("an answer").made().expect("let through");
    assert!(reserved.decision().is_degraded());
    (0..full).for_each(|key| drop(limiter.reset(key).expect("an answer")));
    clock.advance(Duration::from_micros(1));
    let charged = limiter.check(Request::new(full).cost(2)).expect("an answer");
    assert!(!charged.is_degraded(), "now there is room");
    let left = limiter.peek(full).expect("an answer").remaining();
    let _ = reserved.release().expect("released");
    assert_eq!(limiter.peek(full).expect("an answer").remaining(), left, "{charged}");
}

#[test]
fn while_a_limit_warms_up_what_is_released_was_never_charged_or_more_is_refused() {
    let warm_up = "20 over 10min".parse().expect("a warm-up");
    let mut given_back = 0;
    for limit in algorithms() {
        // What a bucket has drained of a charge is not given back.
        let is_exact = !matches!(limit.kernel(), LimitKernel::Bucket(_));
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let [(charged, clock), (spared, other_clock)] =
                [(); 2].map(|()| limiter(Policy::new().rule(Rule::new("rule", limit).warm_up(warm_up))));
            let later = |random: &mut Random| {
                let step = Duration::from_micros(random.magnitude(1..=90_000_000));
                clock.advance(step);
                other_clock.advance(step);
            };
            let both = |cost: u64| {
                if charged.allow(Request::new("alice").cost(cost)) {
                    assert!(spared.allow(Request::new("alice").cost(cost)), "{limit}, {seed}");
                }
            };
            // The warm-up of both begins here.
            both(1);
            for _ in 0..random.within(0..=3) {
                later(&mut random);
                both(random.within(1..=9));
            }
            let request = Request::new("alice").cost(random.within(1..=15)).id("r").lasts(10 * MINUTE);
            let Some(reservation) = charged.reserve(request).expect("an answer").made() else { continue };
            for _ in 0..random.within(0..=3) {
                later(&mut random);
                both(random.within(1..=9));
            }
            let before = left(&charged);
            let _ = reservation.release().expect("it is reserved");
            given_back += u64::from(left(&charged) > before);
            for _ in 0..9 {
                let asked = || Request::new("alice").cost(0);
                let [ours, theirs] = [&charged, &spared].map(|limiter| limiter.peek(asked()).expect("an answer"));
                assert!(ours.remaining() <= theirs.remaining(), "{limit}, {seed}: {ours:?}, {theirs:?}");
                assert!(!is_exact || ours.remaining() == theirs.remaining(), "{limit}, {seed}: {ours:?}, {theirs:?}");
                later(&mut random);
            }
        }
    }
    assert!(given_back > 90, "{given_back}");
}

/// A store that keeps what it was asked, and counts what it was to do in the background.
struct Recording {
    store: MemoryStore,
    asked: Mutex<Vec<(Verb, u64)>>,
    tasks: AtomicU64,
}

impl Recording {
    fn new() -> (Arc<Recording>, ManualClock) {
        let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        (Arc::new(Recording { store, asked: Mutex::default(), tasks: AtomicU64::new(0) }), clock)
    }

    /// What was asked since this was last called.
    fn asked(&self) -> Vec<(Verb, u64)> {
        std::mem::take(&mut *self.asked.lock().expect("no panic while it is locked"))
    }

    fn tasks(&self) -> u64 {
        self.tasks.load(Ordering::Relaxed)
    }
}

impl Store for Recording {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let asked = checks.iter().map(|check| (check.verb(), check.cost()));
        self.asked.lock().expect("no panic while it is locked").extend(asked);
        self.store.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        self.store.in_background(task);
    }
}

impl ImmediateStore for Recording {}

#[test]
fn only_a_reservation_that_is_dropped_open_and_holds_permits_is_given_back_in_the_background() {
    let (store, _) = Recording::new();
    let permits = Limiter::with_store(Limit::in_flight(1, MINUTE), Arc::clone(&store)).expect("a policy");
    let free = || permits.peek("alice").expect("an answer").remaining();
    let _ = permits.reserve("alice").expect("an answer").made().expect("a permit").settle(1).expect("settled");
    let _ = permits.reserve("alice").expect("an answer").made().expect("a permit").release().expect("released");
    assert_eq!((store.tasks(), free()), (0, Some(1)), "what is settled is given back once");
    let held = permits.reserve("alice").expect("an answer").made().expect("a permit");
    assert!(permits.reserve("alice").expect("an answer").made().is_none());
    assert!(block_on(permits.acquire_reservation_async("alice", Duration::ZERO)).is_err());
    assert_eq!(store.tasks(), 0, "a refusal has nothing to give back");
    drop(held);
    assert_eq!((store.tasks(), free()), (1, Some(1)));
    permits.reserve("alice").expect("an answer").made().expect("a permit").leave_open();
    assert_eq!((store.tasks(), free()), (1, Some(0)), "it is left for another process");

    let rates = Limiter::with_store(Limit::per_minute(10), Arc::clone(&store)).expect("a policy");
    drop(rates.reserve(Request::new("alice").cost(4)).expect("an answer").made().expect("a reservation"));
    assert_eq!(store.tasks(), 1, "a rate has no permits");
    assert_eq!(rates.peek("alice").expect("an answer").remaining(), Some(6));
}

#[test]
fn an_id_that_is_in_use_does_not_give_back_the_permit_of_its_reservation() {
    let (limiter, _) = limiter(Limit::in_flight(1, MINUTE));
    let held = limiter.reserve(Request::new("alice").id("r-1")).expect("an answer").made().expect("a permit");
    let other = || Request::new("alice").with("path", "/other").id("r-1");
    let reused = limiter.reserve(other());
    assert!(matches!(reused, Err(CheckError::IdReused { .. })), "{reused:?}");
    assert!(block_on(limiter.acquire_reservation_async(other(), MINUTE)).is_err());
    assert_eq!(left(&limiter), Some(0));
    drop(held);
    assert_eq!(left(&limiter), Some(1));
}

#[test]
fn an_acquired_reservation_says_what_the_limits_said() {
    let (limiter, _) = limiter(Limit::per_minute(100));
    let acquired =
        block_on(limiter.acquire_reservation_async(Request::new("alice").cost(60), MINUTE)).expect("a reservation");
    assert_eq!(acquired.decision().remaining(), Some(40));
    let refused = block_on(limiter.acquire_reservation_async(Request::new("alice").cost(60), Duration::ZERO));
    assert!(matches!(refused, Err(AcquireError::Timeout { .. })), "{refused:?}");
}

#[test]
fn a_permit_is_renewed_in_the_background() {
    let (limiter, clock) = limiter(Limit::in_flight(1, MINUTE));
    let held = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    for _ in 0..3 {
        clock.advance(Duration::from_secs(59));
        held.renew_in_background();
    }
    clock.advance(Duration::from_secs(59));
    assert!(limiter.reserve("alice").expect("an answer").made().is_none());
}

#[test]
fn a_renewal_renews_permits_and_leaves_every_other_charge_where_it_was() {
    let policy = Policy::new()
        .limit("rate", Limit::per_minute(60))
        .limit("window", Limit::sliding_log(60, MINUTE))
        .limit("at once", Limit::in_flight(1, MINUTE));
    let (limiter, clock) = limiter(policy);
    let held = limiter.reserve(Request::new("alice").cost(60)).expect("an answer").made().expect("a reservation");
    clock.advance(Duration::from_secs(59));
    assert!(held.renew().expect("an answer").is_allowed());
    clock.advance(Duration::from_secs(1));
    assert_eq!(["rate", "window", "at once"].map(|rule| left_of(&limiter, rule)), [60, 60, 0]);
}

#[test]
fn a_correction_asks_each_limit_for_what_it_is_about_and_no_more() {
    let policy = Policy::new()
        .limit("requests", Limit::per_minute(10))
        .rule(Rule::new("tokens", Limit::per_minute(1_000)).unit("tokens"))
        .limit("at once", Limit::in_flight(2, MINUTE));
    let (store, _) = Recording::new();
    let limiter = Limiter::with_store(policy, Arc::clone(&store)).expect("a policy");
    let reserved =
        limiter.reserve(Request::new("alice").amount("tokens", 400)).expect("an answer").made().expect("a reservation");
    assert_eq!(store.asked(), [(Verb::Charge, 1), (Verb::Charge, 400), (Verb::Charge, 1)]);
    assert!(reserved.renew().expect("an answer").is_allowed());
    assert_eq!(store.asked(), [(Verb::Peek, 0), (Verb::Peek, 0), (Verb::RENEW, 0)]);
    let _ = reserved.settle(Amounts::new().amount("tokens", 150)).expect("settled");
    assert_eq!(store.asked(), [(Verb::Peek, 0), (Verb::SETTLE, 150), (Verb::SETTLE, 0)]);
}

#[test]
fn a_rule_that_multiplies_takes_as_many_permits() {
    let (limiter, _) = limiter(Rule::new("at once", Limit::in_flight(5, MINUTE)).cost_multiplier(2));
    let heavy = limiter.reserve(Request::new("alice").cost(9)).expect("an answer").made().expect("two permits");
    assert_eq!(left(&limiter), Some(3));
    drop(heavy);
    assert_eq!(left(&limiter), Some(5));
}

#[test]
fn an_amount_too_large_to_multiply_is_not_taken_for_a_small_one() {
    let tokens = Rule::new("tokens", Limit::per_minute(100)).unit("tokens").cost_multiplier(2);
    let (limiter, _) = limiter(tokens);
    let refused = limiter.check(Request::new("alice").amount("tokens", 1 << 63));
    assert!(matches!(refused, Err(CheckError::Unsatisfiable { cost: u64::MAX, .. })), "{refused:?}");
}

#[test]
fn of_an_amount_that_is_named_twice_the_last_counts() {
    let policy = Policy::new()
        .rule(Rule::new("tokens", Limit::per_minute(100)).unit("tokens"))
        .rule(Rule::new("bytes", Limit::per_minute(100)).unit("bytes"));
    let (limiter, _) = limiter(policy);
    assert!(limiter.allow(Request::new("alice").amount("tokens", 9).amount("bytes", 2).amount("tokens", 5)));
    assert_eq!(["tokens", "bytes"].map(|rule| left_of(&limiter, rule)), [95, 98]);
}

#[test]
fn a_reservation_by_an_attribute_is_settled_by_it() {
    let (limiter, _) = limiter(Rule::new("users", Limit::per_minute(100)).key(["user"]));
    let reserved = limiter
        .reserve(Request::new("a session").with("user", "alice").cost(60))
        .expect("an answer")
        .made()
        .expect("a reservation");
    assert_eq!(reserved.settle(10).expect("settled").remaining(), Some(90));
    assert_eq!(limiter.peek(Request::user("alice")).expect("an answer").remaining(), Some(90));
}

/// What a call takes is often known only afterwards.
#[test]
fn a_reservation_of_nothing_is_settled_as_well() {
    for limit in algorithms() {
        let (limiter, _) = limiter(Rule::new("tokens", limit).unit("tokens"));
        let reserved = limiter.reserve("alice").expect("an answer").made().expect("a reservation");
        let settled = reserved.settle(Amounts::new().amount("tokens", 30)).expect("settled");
        assert_eq!((settled.remaining(), left(&limiter)), (Some(70), Some(70)), "{limit}");
        let request = || Request::new("alice").id("r-1");
        limiter.reserve(request()).expect("an answer").made().expect("a reservation").leave_open();
        for is_repeated in [false, true] {
            let settled = limiter.settle(request(), Amounts::new().amount("tokens", 20)).expect("settled");
            assert_eq!((settled.remaining(), settled.is_repeated()), (Some(50), is_repeated), "{limit}");
        }
    }
}

#[test]
fn a_permit_of_a_rule_that_warms_up_can_be_released_until_it_expires() {
    let hour = Duration::from_secs(3_600);
    let rule = Rule::new("jobs", Limit::in_flight(10, hour)).warm_up("2 over 1min".parse().expect("a warm-up"));
    let (limiter, clock) = limiter(rule);
    let held = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    clock.advance(hour - MINUTE);
    assert_eq!(left(&limiter), Some(9));
    let _ = held.release().expect("released");
    assert_eq!(left(&limiter), Some(2), "a key that holds nothing begins anew");
}

#[test]
fn a_request_without_an_id_has_no_reservation() {
    let one = || limiter(Limit::per_hour(100)).0;
    let two = || limiter([Limit::per_hour(100), Limit::per_minute(100)]).0;
    for limiter in [one(), two()] {
        let answers = [
            limiter.release("alice"),
            limiter.settle("alice", 30),
            limiter.renew("alice"),
            block_on(limiter.release_async("alice")),
            block_on(limiter.settle_async("alice", 30)),
            block_on(limiter.renew_async("alice")),
        ];
        assert!(answers.iter().all(|answer| matches!(answer, Err(CheckError::NotReserved { .. }))), "{answers:?}");
        assert_eq!(left(&limiter), Some(100));
    }
}

#[test]
fn more_than_a_lower_limit_holds_is_settled_as_well() {
    let lowered = |from: Limit, to: Limit| {
        let (limiter, clock) = limiter(from);
        let [first, second] = [4, 6].map(|cost| {
            clock.advance(Duration::from_secs(1));
            limiter.reserve(Request::new("alice").cost(cost)).expect("an answer").made().expect("a reservation")
        });
        limiter.set_policy(to).expect("a valid policy");
        (limiter, first, second)
    };
    for limit in algorithms() {
        let to =
            |count: u64| limit.to_string().replacen("100", &count.to_string(), 1).parse::<Limit>().expect("a limit");
        let (from, to) = (to(10), to(4));
        // A bucket that holds less may have had what drained since.
        let is_bucket = matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let (limiter, first, second) = lowered(from, to);
        assert!(first.release().expect("released").is_allowed());
        assert!(!limiter.allow("alice"), "{limit}: six are reserved");
        assert!(second.release().expect("released").is_allowed());
        let left = left(&limiter).expect("a limit");
        assert!(left == 4 || is_bucket && left == 3, "{limit}: {left}");
        let (limiter, first, second) = lowered(from, to);
        assert!(second.settle(2).expect("settled").is_allowed());
        assert!(first.settle(1).expect("settled").is_allowed());
        let left = self::left(&limiter).expect("a limit");
        assert!(left == 1 || is_bucket && left == 0, "{limit}: {left}");
    }
}

#[test]
fn a_permit_that_a_lower_limit_has_no_room_for_is_released() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for lower in [1, 2] {
            let (limiter, clock) = limiter(Limit::in_flight(3, MINUTE));
            let mut held = [(); 3].map(|()| {
                clock.advance(Duration::from_secs(1));
                Some(limiter.reserve("alice").expect("an answer").made().expect("a permit"))
            });
            limiter.set_policy(Limit::in_flight(lower, MINUTE)).expect("a valid policy");
            for (released, index) in order.into_iter().enumerate() {
                let has_room = 3 - released < lower as usize;
                assert_eq!(left(&limiter), Some(u64::from(has_room)), "{order:?}");
                let _ = held[index].take().expect("held").release().expect("released");
            }
            assert_eq!(left(&limiter), Some(lower), "{order:?}");
        }
    }
}

#[test]
fn a_renewal_of_the_only_permit_does_not_begin_the_warm_up_anew() {
    let hour = Duration::from_secs(3_600);
    let rule = Rule::new("jobs", Limit::in_flight(10, hour)).warm_up("2 over 1min".parse().expect("a warm-up"));
    let (limiter, clock) = limiter(rule);
    let held = limiter.reserve("alice").expect("an answer").made().expect("a permit");
    for _ in 0..3 {
        clock.advance(hour - MINUTE);
        assert!(held.renew().expect("renewed").is_allowed());
        assert_eq!(left(&limiter), Some(9));
    }
}

#[test]
fn a_correction_without_an_id_is_an_error_also_as_one_of_a_list() {
    for verb in [Verb::SETTLE, Verb::RENEW, Verb::Settle(Charged { at: Micros::ZERO, cost: 10 })] {
        let (limiter, _) = limiter(Limit::per_hour(100));
        for others in 0..2 {
            let asked = (0..=others)
                .map(|index| (if index == 0 { verb } else { Verb::Peek }, Request::new("alice").into_settlement(30)));
            let answers = block_on(limiter.decide_all_async(&asked.collect::<Vec<_>>()));
            assert!(matches!(answers, Err(CheckError::NotReserved { .. })), "{verb:?}: {answers:?}");
            assert_eq!(left(&limiter), Some(100), "{verb:?}");
        }
    }
}
