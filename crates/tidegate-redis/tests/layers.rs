//! The layers of the store, each alone over memory: what they promise needs no
//! server.

mod support;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::RUNTIME;
use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, RequestId, Store, StoreError, Thresholds};
use tidegate::{Clock, Key, Limit, ManualClock, MemoryStore, Micros, Name};
use tidegate_redis::layer::{Leased, Leases, RefusalCache, RefusalSettings, Refusals};
use tidegate_redis::{Lease, RedisFailure};
use tidegate_testkit::block_on;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

const START: Micros = Micros::new(1_700_000_000_000_000);
const LEASE: Lease = Lease { chunk: 10, ttl: Duration::from_secs(5) };

/// The store below, which the tests can ask past the layer.
type Memory = Arc<MemoryStore>;

fn memory() -> (Memory, ManualClock) {
    let clock = ManualClock::at(START);
    let store = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build().expect("valid settings");
    (Arc::new(store), clock)
}

fn remembering(settings: RefusalSettings) -> (RefusalCache<Memory>, ManualClock) {
    let (memory, clock) = memory();
    let leases = Leases::new([], Duration::from_secs(60));
    (RefusalCache::new(memory, Refusals::new(settings, Arc::new(leases))), clock)
}

fn leasing(rules: &[&str]) -> (Leased<Memory>, ManualClock) {
    let (memory, clock) = memory();
    let rules = rules.iter().map(|rule| ((*rule).to_owned(), LEASE));
    // No request waits for another one here, on any machine.
    let leases = Leases::new(rules, Duration::from_secs(60));
    (Leased::new(memory, Arc::new(leases), RUNTIME.handle().clone()), clock)
}

thread_local! {
    /// For how long refusals are remembered by the stores that this thread makes.
    static MAX_AGE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

// Remembered for no time: the answers are all the store's own.
tidegate_testkit::conformance!(refusal_cache, || {
    remembering(RefusalSettings { max_age: MAX_AGE.get(), ..RefusalSettings::default() })
});

/// Refusals are repeated within their instant. Of what is charged in between
/// for other costs a repeated refusal says nothing, and the oracle does.
#[test]
fn repeated_refusals_keep_every_promise_but_that_of_the_oracle() {
    MAX_AGE.set(Duration::from_micros(1));
    for (name, promise) in refusal_cache::ALL {
        println!("{name}");
        if !["every_verdict_is_that_of_the_oracle", "every_crossing_is_that_of_the_oracle"].contains(name) {
            promise();
        }
    }
}

tidegate_testkit::conformance!(refusal_cache_that_is_off, || {
    let (memory, clock) = memory();
    (RefusalCache::new(memory, None), clock)
});

// The rules of the suite are not among these: with a lease, the bound of leases
// takes the place of exactness.
tidegate_testkit::conformance!(leased, || leasing(&["another rule"]));

fn meter(rule: &'static str, limit: Limit) -> Meter {
    Meter::new(Name::literal(rule), limit)
}

fn check<'a>(meter: &'a Meter, key: &'a Key<'a>, verb: Verb, cost: u64) -> Check<'a> {
    Check::new(meter, key, verb, cost).expect("the cost is within the capacity")
}

fn decide(store: &impl Store, checks: &[Check<'_>]) -> Result<Vec<Verdict>, StoreError> {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    block_on(store.decide(checks, &mut verdicts)).map(|_| verdicts)
}

fn ask(store: &impl Store, check: Check<'_>) -> Verdict {
    decide(store, &[check]).expect("an answer")[0]
}

fn wait_of(store: &impl Store, check: Check<'_>) -> Option<u64> {
    Some(ask(store, check)).filter(|verdict| !verdict.allowed).map(|verdict| verdict.retry_after.get())
}

#[test]
fn a_refusal_is_repeated_until_retry_after() {
    let (store, clock) = remembering(RefusalSettings::default());
    let (meter, alice) = (meter("rule", Limit::per_second(2)), Key::from("alice"));
    let charge = |cost| check(&meter, &alice, Verb::Charge, cost);
    assert!(ask(&store, charge(2)).allowed);
    assert_eq!(wait_of(&store, charge(1)), Some(500_000));
    // What is given back past the layer shows who answers.
    assert!(ask(store.inner(), check(&meter, &alice, Verb::Reset, 0)).allowed);
    for (micros, wait) in [(0, Some(500_000)), (1, Some(499_999)), (499_999, Some(1)), (500_000, None)] {
        clock.set(START.saturating_add(Micros::new(micros)));
        assert_eq!(wait_of(&store, charge(1)), wait, "after {micros} us");
    }
    assert_eq!(store.repeated(), 3);
}

#[test]
fn ids_peeks_and_exempt_slices_are_always_asked_about() {
    let (memory, _) = memory();
    let leases = Leases::new([("exempt".to_owned(), LEASE)], Duration::from_secs(60));
    let store = RefusalCache::new(memory, Refusals::new(RefusalSettings::default(), Arc::new(leases)));
    let (rule, exempt, alice) =
        (meter("rule", Limit::per_hour(1)), meter("exempt", Limit::per_hour(1)), Key::from("alice"));
    let charge = |meter| check(meter, &alice, Verb::Charge, 1);
    for meter in [&rule, &exempt] {
        assert!(ask(&store, charge(meter)).allowed);
    }
    let once = RequestId::once("once", 1);
    for asked in [charge(&rule).with_id(&once), charge(&rule).as_peek(), charge(&exempt)] {
        assert!(!ask(&store, asked).allowed && !ask(&store, asked).allowed);
    }
    assert_eq!(store.repeated(), 0);
    assert!(!ask(&store, charge(&rule)).allowed && !ask(&store, charge(&rule)).allowed);
    assert_eq!(store.repeated(), 1);
}

#[test]
fn a_refund_and_a_reset_are_seen_at_once() {
    let (store, _) = remembering(RefusalSettings::default());
    let (meter, alice) = (meter("rule", Limit::per_hour(1)), Key::from("alice"));
    let ask = |verb| ask(&store, check(&meter, &alice, verb, 1)).allowed;
    for verb in [Verb::Refund, Verb::Reset] {
        assert!(ask(Verb::Charge) && !ask(Verb::Charge) && !ask(Verb::Charge), "{verb:?}");
        assert!(ask(verb) && ask(Verb::Charge), "{verb:?}");
        assert!(ask(Verb::Reset), "{verb:?}");
    }
}

/// Has asked for a key as often as it takes to borrow for it.
fn asked_often<S: Store>(store: &Leased<S>, meter: &Meter, key: &Key<'_>) {
    for _ in 0..2 {
        assert!(ask(store, check(meter, key, Verb::Charge, 1)).allowed);
    }
    assert!(ask(store.inner(), check(meter, key, Verb::Reset, 1)).allowed);
}

#[test]
fn the_third_request_within_the_time_of_a_lease_borrows() {
    let (store, clock) = leasing(&["rule"]);
    let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    let left = || ask(store.inner(), check(&meter, &alice, Verb::Peek, 0)).remaining;
    let mut trace = Vec::new();
    for seconds in [0, 4, 5, 9, 9, 9] {
        clock.set(START.saturating_add(Micros::new(seconds * 1_000_000)));
        // To look is not to ask.
        assert!(ask(&store, check(&meter, &alice, Verb::Peek, 1)).allowed);
        assert!(ask(&store, check(&meter, &alice, Verb::Charge, 1)).allowed);
        trace.push((left(), store.units()));
    }
    assert_eq!(trace, [(99, 0), (98, 0), (97, 0), (96, 0), (86, 9), (86, 8)]);
}

#[test]
fn callers_do_not_wait_for_a_runtime_that_is_gone() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
    let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::from_secs(60));
    let store = Leased::new(memory().0, Arc::new(leases), runtime.handle().clone());
    let (meter, key) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &key);
    runtime.shutdown_background();
    assert!(decide(&store, &[check(&meter, &key, Verb::Charge, 1)]).is_err());
}

/// Memory that answers as long as it is awake.
struct Drowsy(Memory, Arc<AtomicBool>);

impl Store for Drowsy {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        if self.1.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.0.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

/// Also one that comes when those that the call is for have given up.
#[tokio::test(start_paused = true)]
async fn no_caller_waits_for_units_longer_than_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(20);
    let is_asleep = Arc::new(AtomicBool::new(false));
    let leases = Leases::new([("rule".to_owned(), LEASE)], DEADLINE);
    let store = Leased::new(Drowsy(memory().0, Arc::clone(&is_asleep)), Arc::new(leases), Handle::current());
    let (meter, key) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &key);
    is_asleep.store(true, Ordering::Relaxed);
    for pause in [0, 5, 0, 30] {
        sleep(Duration::from_millis(pause)).await;
        let (began, charge, mut verdicts) =
            (Instant::now(), check(&meter, &key, Verb::Charge, 1), [Verdict::default()]);
        let answer = timeout(DEADLINE * 10, store.decide(&[charge], &mut verdicts)).await;
        assert!(answer.is_ok_and(|answer| answer.is_err()), "there is no answer");
        assert_eq!(began.elapsed(), DEADLINE, "after a pause of {pause} ms");
    }
}

/// The reset is never answered.
#[tokio::test(start_paused = true)]
async fn a_reset_that_fails_keeps_the_deadline_and_the_units() {
    const DEADLINE: Duration = Duration::from_millis(20);
    let is_asleep = Arc::new(AtomicBool::new(false));
    let leases = Leases::new([("rule".to_owned(), LEASE)], DEADLINE);
    let store = Leased::new(Drowsy(memory().0, Arc::clone(&is_asleep)), Arc::new(leases), Handle::current());
    let (ten, key) = (meter("rule", Limit::per_hour(10)), Key::from("alice"));
    asked_often(&store, &ten, &key);
    let mut verdicts = [Verdict::default()];
    store.decide(&[check(&ten, &key, Verb::Charge, 1)], &mut verdicts).await.expect("an answer");
    assert_eq!(store.units(), 9);
    is_asleep.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let reset = [check(&ten, &key, Verb::Reset, 0)];
    assert!(timeout(DEADLINE * 10, store.decide(&reset, &mut verdicts)).await.is_ok_and(|answer| answer.is_err()));
    assert_eq!((began.elapsed(), store.units()), (DEADLINE, 9), "what was not reset is still held");
}

/// Memory whose answers take a second.
struct Late(Memory);

impl Store for Late {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let at = self.0.decide(checks, verdicts).await;
        sleep(Duration::from_secs(1)).await;
        at
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

#[tokio::test(start_paused = true)]
async fn a_slice_whose_caller_is_late_or_gone_is_charged_nothing() {
    for (deadline, waits) in [(Duration::from_millis(1_500), 10_000), (Duration::from_secs(60), 500)] {
        let memory = memory().0;
        let leases = Leases::new([("leased".to_owned(), LEASE)], deadline);
        let store = Leased::new(Late(Arc::clone(&memory)), Arc::new(leases), Handle::current());
        let [leased, plain] = ["leased", "plain"].map(|rule| meter(rule, Limit::per_hour(100)));
        let alice = Key::from("alice");
        let mut verdicts = [Verdict::default(); 2];
        for _ in 0..3 {
            let charge = [check(&leased, &alice, Verb::Charge, 1)];
            store.decide(&charge, &mut verdicts[..1]).await.expect("an answer");
        }
        assert_eq!(store.units(), 9);
        // It waits for units first, and then for the other limit.
        let slice = [check(&leased, &alice, Verb::Charge, 11), check(&plain, &alice, Verb::Charge, 3)];
        let decided = timeout(Duration::from_millis(waits), store.decide(&slice, &mut verdicts)).await;
        assert!(decided.is_err() || decided.is_ok_and(|decided| decided.is_err()), "there is no decision");
        sleep(Duration::from_secs(10)).await;
        store.close().await;
        let left = [&leased, &plain].map(|meter| ask(&memory, check(meter, &alice, Verb::Peek, 0)).remaining);
        assert_eq!((store.units(), left), (0, [97, 100]), "with a deadline of {deadline:?}");
    }
}

#[test]
fn a_refused_slice_tells_what_remains_uncharged() {
    let (store, _) = leasing(&["rule"]);
    let (leased, plain) = (meter("rule", Limit::per_hour(20)), meter("plain", Limit::per_hour(1)));
    let alice = Key::from("alice");
    asked_often(&store, &leased, &alice);
    let slice = |cost| [check(&leased, &alice, Verb::Charge, cost), check(&plain, &alice, Verb::Charge, 1)];
    let verdicts = decide(&store, &slice(2)).expect("an answer");
    assert_eq!((verdicts[0].remaining, verdicts[1].allowed), (18, true));
    for cost in [2, 12] {
        let verdicts = decide(&store, &slice(cost)).expect("an answer");
        assert_eq!((verdicts[0].allowed, verdicts[0].remaining), (true, 18), "for a cost of {cost}");
        assert!(!verdicts[1].allowed);
    }
}

/// Memory that takes a second for an answer about some verbs.
struct Slow(Memory, fn(Verb) -> bool);

impl Store for Slow {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        if checks.iter().any(|check| self.1(check.verb())) {
            sleep(Duration::from_secs(1)).await;
        }
        self.0.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

/// The one that the units were asked for is gone before they are there.
#[tokio::test(start_paused = true)]
async fn one_that_is_there_hears_of_a_threshold() {
    let memory = memory().0;
    let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::from_secs(60));
    let store = Leased::new(Slow(Arc::clone(&memory), |_| true), Arc::new(leases), Handle::current());
    let meter = meter("rule", Limit::per_hour(10)).notify(Thresholds::new([50]).expect("a percentage"));
    let key = Key::from("alice");
    let charge = |cost| {
        let (store, charge) = (&store, check(&meter, &key, Verb::Charge, cost));
        async move {
            let mut verdicts = [Verdict::default()];
            store.decide(&[charge], &mut verdicts).await.expect("an answer");
            verdicts[0]
        }
    };
    for _ in 0..2 {
        assert_eq!(charge(1).await.crossed, 0);
    }
    let (gone, there) = (timeout(Duration::from_millis(1), charge(1)), charge(1));
    let (gone, there) = tokio::join!(gone, there);
    assert!(gone.is_err());
    assert_eq!((there.allowed, there.remaining, there.crossed), (true, 7, 1));
    assert_eq!(charge(1).await.crossed, 0, "it was told once");
}

/// Units that are borrowed by one count would be used of the others.
#[test]
fn limits_that_share_a_state_are_decided_by_the_store() {
    let (store, _) = leasing(&["rule"]);
    let by_period = |words: &str| meter("rule", words.parse().expect("a limit")).by_period();
    let ([five, twenty], alice) = (["fixed 5/h", "fixed 20/h"].map(by_period), Key::from("alice"));
    asked_often(&store, &twenty, &alice);
    let asked = [(&twenty, 1), (&five, 4), (&five, 1), (&twenty, 15)].map(|(meter, cost)| {
        let verdict = ask(&store, check(meter, &alice, Verb::Charge, cost));
        (verdict.allowed, verdict.remaining)
    });
    assert_eq!((asked, store.units()), ([(true, 19), (true, 0), (false, 0), (true, 0)], 0));
}

#[test]
fn a_deadline_can_be_as_long_as_any_duration() {
    let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::MAX);
    let store = Leased::new(memory().0, Arc::new(leases), RUNTIME.handle().clone());
    let (meter, key) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &key);
    assert!(ask(&store, check(&meter, &key, Verb::Charge, 1)).allowed);
}

#[test]
fn nothing_is_borrowed_for_keys_that_are_seen_once() {
    let (store, _) = leasing(&["rule"]);
    let meter = meter("rule", Limit::per_hour(100));
    for number in 0..1_000 {
        let user = Key::from(format!("user {number}"));
        assert!(ask(&store, check(&meter, &user, Verb::Charge, 1)).allowed);
        assert_eq!(ask(store.inner(), check(&meter, &user, Verb::Peek, 0)).remaining, 99);
    }
    assert_eq!(store.units(), 0);
}

#[test]
fn a_chunk_is_borrowed_and_handed_out_without_asking() {
    for words in ["100/h", "fixed 100/h", "sliding 100/h", "sliding-log 100/h"] {
        let (store, _) = leasing(&["rule"]);
        let (meter, alice) = (meter("rule", words.parse().expect("a limit")), Key::from("alice"));
        let left = || ask(store.inner(), check(&meter, &alice, Verb::Peek, 0)).remaining;
        asked_often(&store, &meter, &alice);
        for number in 1..=100 {
            let verdict = ask(&store, check(&meter, &alice, Verb::Charge, 1));
            assert_eq!((verdict.allowed, verdict.remaining), (true, 100 - number), "{words}");
            assert_eq!(left(), 100 - number.next_multiple_of(10), "{words}");
        }
        assert!(!ask(&store, check(&meter, &alice, Verb::Charge, 1)).allowed, "{words}");
        assert_eq!((store.answered(), store.units()), (90, 0), "{words}");
    }
}

#[test]
fn leased_units_are_returned() {
    let (store, clock) = leasing(&["rule"]);
    let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    let left = || ask(store.inner(), check(&meter, &alice, Verb::Peek, 0)).remaining;
    asked_often(&store, &meter, &alice);
    assert!(ask(&store, check(&meter, &alice, Verb::Charge, 3)).allowed);
    assert_eq!((left(), store.units()), (90, 7));
    block_on(store.close());
    assert_eq!((left(), store.units()), (97, 0));
    // Before more is borrowed, too, when the time is over.
    assert!(ask(&store, check(&meter, &alice, Verb::Charge, 3)).allowed);
    clock.set(START.saturating_add(Micros::from_duration(LEASE.ttl)));
    assert!(ask(&store, check(&meter, &alice, Verb::Charge, 10)).allowed);
    assert_eq!(left(), 100 - 3 - 3 - 10);
}

/// Memory that carries out nothing as long as there is a failure.
struct Failing(Memory, Arc<Mutex<Option<RedisFailure>>>);

impl Store for Failing {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let failure = self.1.lock().expect("no panic").clone();
        match failure {
            Some(failure) => Err(failure.into()),
            None => self.0.decide(checks, verdicts).await,
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

#[tokio::test(start_paused = true)]
async fn units_that_the_store_did_not_take_back_are_returned_later() {
    let refused = redis::RedisError::from((redis::ErrorKind::Extension, "out of memory"));
    for failure in [
        RedisFailure::Away { next_attempt: Duration::from_secs(1) },
        RedisFailure::Refused { source: Arc::new(refused) },
        RedisFailure::Contended { tries: 1 },
    ] {
        let (memory, failing) = (memory().0, Arc::default());
        let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::from_secs(60));
        let store = Failing(memory, Arc::clone(&failing));
        let store = Leased::new(store, Arc::new(leases), Handle::current());
        let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
        asked_often(&store, &meter, &alice);
        let mut verdicts = [Verdict::default()];
        store.decide(&[check(&meter, &alice, Verb::Charge, 1)], &mut verdicts).await.expect("an answer");
        *failing.lock().expect("no panic") = Some(failure.clone());
        store.close().await;
        assert_eq!(store.units(), 9, "{failure}");
        *failing.lock().expect("no panic") = None;
        store.close().await;
        let left = ask(store.inner(), check(&meter, &alice, Verb::Peek, 0)).remaining;
        assert_eq!((store.units(), left), (0, 99), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_loans_at_a_time_are_two_chunks_at_most() {
    let (memory, clock) = memory();
    let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::from_secs(60));
    let store =
        Leased::new(Slow(Arc::clone(&memory), |verb| verb == Verb::Refund), Arc::new(leases), Handle::current());
    let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &alice);
    let left = || ask(&memory, check(&meter, &alice, Verb::Peek, 0)).remaining;
    let charge = async || {
        let mut verdicts = [Verdict::default()];
        store.decide(&[check(&meter, &alice, Verb::Charge, 1)], &mut verdicts).await.expect("an answer");
        (verdicts[0].allowed, left())
    };
    assert_eq!(charge().await, (true, 90));
    clock.advance(LEASE.ttl);
    // The one that is over is on its way back when the next one is there.
    let ((), next) = tokio::join!(store.close(), charge());
    assert_eq!((next, store.units(), left()), ((true, 80), 9, 89));
}

/// Memory that takes nothing back as long as it says so.
struct Keeping(Memory, Arc<AtomicBool>);

impl Store for Keeping {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        if self.1.load(Ordering::Relaxed) && checks.iter().any(|check| check.verb() == Verb::Refund) {
            return Err(RedisFailure::Contended { tries: 1 }.into());
        }
        self.0.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_borrowed_before_the_rest_of_a_lease_is_taken_back() {
    let ((memory, clock), is_keeping) = (memory(), Arc::new(AtomicBool::new(false)));
    let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::from_secs(60));
    let store = Keeping(memory, Arc::clone(&is_keeping));
    let store = Leased::new(store, Arc::new(leases), Handle::current());
    let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &alice);
    let charge = [check(&meter, &alice, Verb::Charge, 1)];
    let mut verdicts = [Verdict::default()];
    store.decide(&charge, &mut verdicts).await.expect("an answer");
    is_keeping.store(true, Ordering::Relaxed);
    clock.advance(LEASE.ttl);
    assert!(store.decide(&charge, &mut verdicts).await.is_err());
    assert_eq!(store.units(), 9);
    is_keeping.store(false, Ordering::Relaxed);
    store.decide(&charge, &mut verdicts).await.expect("an answer");
    store.close().await;
    assert_eq!(ask(store.inner(), charge[0].as_peek()).remaining, 98);
}

#[test]
fn a_slice_with_leases_is_all_or_nothing() {
    let (store, _) = leasing(&["leased"]);
    let (leased, plain, alice) =
        (meter("leased", Limit::per_hour(20)), meter("plain", Limit::per_hour(1)), Key::from("alice"));
    asked_often(&store, &leased, &alice);
    let slice = [check(&leased, &alice, Verb::Charge, 2), check(&plain, &alice, Verb::Charge, 1)];
    let allowed = || decide(&store, &slice).expect("an answer").iter().map(|verdict| verdict.allowed).collect();
    let both: Vec<Vec<bool>> = vec![allowed(), allowed()];
    assert_eq!(both, [[true, true], [true, false]]);
    assert_eq!(ask(&store, check(&leased, &alice, Verb::Peek, 0)).remaining, 18, "what was taken is put back");
}

#[test]
fn one_leased_state_twice_in_a_slice_is_an_error() {
    let (store, _) = leasing(&["rule"]);
    let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &alice);
    assert!(ask(&store, check(&meter, &alice, Verb::Charge, 1)).allowed);
    for verb in [Verb::Charge, Verb::Peek, Verb::Refund] {
        let twice = [check(&meter, &alice, Verb::Charge, 1), check(&meter, &alice, verb, 1)];
        assert!(matches!(decide(&store, &twice), Err(StoreError::SameStateTwice { .. })), "{verb:?}");
    }
    assert_eq!(store.units(), 9, "nothing was taken");
}

/// What was borrowed of the former limit counts until it is given back, and what was used of it goes on counting for
/// the new one, which is leased as well.
#[test]
fn a_changed_limit_takes_over_what_was_used_and_not_what_was_borrowed() {
    for words in ["200/h", "sliding-log 50/h", "leaky 50/h", "5/h"] {
        let (store, clock) = leasing(&["rule"]);
        let (old, new, alice) =
            (meter("rule", Limit::per_hour(100)), meter("rule", words.parse().expect("a limit")), Key::from("alice"));
        let former = [Former { meter: &old, until: clock.now().saturating_add(old.horizon()) }];
        let changed = |verb, cost| check(&new, &alice, verb, cost).with_former(&former);
        asked_often(&store, &old, &alice);
        assert!(ask(&store, check(&old, &alice, Verb::Charge, 1)).allowed);
        assert_eq!(store.units(), 9);
        let left = || ask(&store, changed(Verb::Peek, 0)).remaining;
        assert_eq!(left(), new.capacity().saturating_sub(10), "{words}");
        block_on(store.close());
        assert_eq!((left(), store.units()), (new.capacity() - 1, 0), "{words}");
        assert!(ask(&store, changed(Verb::Charge, 1)).allowed, "{words}");
        block_on(store.close());
        assert_eq!(left(), new.capacity() - 2, "{words}");
    }
}

/// What was used of it in the meantime was not borrowed.
#[test]
fn units_of_a_former_limit_do_not_go_back_to_the_new_one() {
    let (old, new, alice) =
        (meter("rule", Limit::per_second(100)), meter("rule", Limit::per_hour(100)), Key::from("alice"));
    let former = [Former { meter: &old, until: Micros::MAX }];
    let (store, clock) = leasing(&["rule"]);
    asked_often(&store, &old, &alice);
    assert!(ask(&store, check(&old, &alice, Verb::Charge, 1)).allowed);
    clock.advance(LEASE.ttl / 2);
    // By a process that knows the new limit.
    assert!(ask(store.inner(), check(&new, &alice, Verb::Charge, 50).with_former(&former)).allowed);
    block_on(store.close());
    let left = ask(&store, check(&new, &alice, Verb::Peek, 0).with_former(&former)).remaining;
    assert_eq!((store.units(), left), (0, 50));
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_after_a_change_lose_no_units() {
    let memory = memory().0;
    let leases = Leases::new([("rule".to_owned(), LEASE)], Duration::from_secs(60));
    let store = Leased::new(Slow(Arc::clone(&memory), |_| true), Arc::new(leases), Handle::current());
    let ([old, new], alice) = ([100, 200].map(|count| meter("rule", Limit::per_hour(count))), Key::from("alice"));
    let former = [Former { meter: &old, until: Micros::MAX }];
    let decided = async |check: Check<'_>| {
        let mut verdicts = [Verdict::default()];
        store.decide(&[check], &mut verdicts).await.expect("an answer");
        verdicts[0]
    };
    for _ in 0..3 {
        assert!(decided(check(&old, &alice, Verb::Charge, 1)).await.allowed);
    }
    assert_eq!(store.units(), 9);
    let charge = check(&new, &alice, Verb::Charge, 1).with_former(&former);
    let (first, second) = tokio::join!(decided(charge), decided(charge));
    assert!(first.allowed && second.allowed);
    store.close().await;
    let left = decided(check(&new, &alice, Verb::Peek, 0).with_former(&former)).await.remaining;
    assert_eq!((store.units(), left), (0, 200 - 3 - 2));
}

/// What was borrowed has come back by itself when the lease ends.
#[test]
fn a_limit_that_lent_nothing_gets_nothing_back() {
    let (old, new, alice) =
        (meter("rule", Limit::per_hour(100)), meter("rule", Limit::per_second(10)), Key::from("alice"));
    let former = [Former { meter: &old, until: Micros::MAX }];
    let (store, clock) = leasing(&["rule"]);
    let left = |meter| ask(store.inner(), check(meter, &alice, Verb::Peek, 0)).remaining;
    asked_often(&store, &new, &alice);
    assert!(ask(&store, check(&new, &alice, Verb::Charge, 1).with_former(&former)).allowed);
    // By a process that does not know the new limit yet.
    assert!(ask(store.inner(), check(&old, &alice, Verb::Charge, 60)).allowed);
    clock.advance(LEASE.ttl);
    block_on(store.close());
    assert_eq!((store.units(), left(&old), left(&new)), (0, 40, 10));
}

/// One of the two is leased, or both are.
#[test]
fn a_former_limit_that_is_asked_in_another_part_keeps_what_it_has() {
    let ([old, new], alice) = ([100, 200].map(|count| meter("rule", Limit::per_hour(count))), Key::from("alice"));
    let former = [Former { meter: &old, until: Micros::MAX }];
    let charges = [check(&old, &alice, Verb::Charge, 1), check(&new, &alice, Verb::Charge, 1).with_former(&former)];
    for often in [vec![&old], vec![&new], vec![&old, &new]] {
        let (store, _) = leasing(&["rule"]);
        often.iter().for_each(|meter| asked_often(&store, meter, &alice));
        assert!(ask(&store, charges[0]).allowed);
        for _ in 0..2 {
            let verdicts = decide(&store, &charges).expect("an answer");
            assert!(verdicts.iter().all(|verdict| verdict.allowed));
        }
        block_on(store.close());
        let left = [&old, &new].map(|meter| ask(store.inner(), check(meter, &alice, Verb::Peek, 0)).remaining);
        assert_eq!(left, [100 - 3, 200 - 2], "{often:?}");
    }
}

#[test]
fn a_request_with_an_id_takes_nothing_from_the_lease() {
    let (store, _) = leasing(&["rule"]);
    let (meter, alice) = (meter("rule", Limit::per_hour(100)), Key::from("alice"));
    asked_often(&store, &meter, &alice);
    let charge = check(&meter, &alice, Verb::Charge, 1);
    assert!(ask(&store, charge).allowed);
    let id = RequestId::once("once", 1);
    let once = charge.with_id(&id);
    assert!(!ask(&store, once).repeated && ask(&store, once).repeated);
    assert_eq!((store.units(), store.answered()), (9, 0));
}
