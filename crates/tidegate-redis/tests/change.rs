//! Limits changed at run time, on Redis: the same decisions as in memory.

use crate::support;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, Store, StoreError};
use tidegate::{
    CheckError, Clock, FailureMode, Key, Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Policy, Request,
    Reservation, Rule, WarmUp,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::{Random, block_on};

const START: u64 = 1_700_000_000_000_000;

/// Limits of all kinds that a few requests use up, some alike but for a number.
const LIMITS: [&str; 18] = [
    "5/s",
    "9/s",
    "7/3s burst 4",
    "1009/997ms burst 6",
    "leaky 3/s queue 5",
    "fixed 5/s",
    "fixed 8/s",
    "fixed 6/2s from-first",
    "fixed 9/2s from-first",
    "5/hour in Asia/Kolkata",
    "9/day in Europe/Berlin from 06:00",
    "sliding 5/s",
    "sliding 9/s",
    "sliding-log 5/s",
    "sliding-log 8/s",
    "sliding-log 6/2s",
    "in-flight 5 for 1s",
    "in-flight 7 for 2s",
];

fn policy(random: &mut Random) -> Policy {
    let mut limit = || random.choose(&LIMITS).parse::<Limit>().expect("a limit");
    let (user, path) = (Rule::new("user", limit()), Rule::new("path", limit()));
    let user = user.key(["user"]).tier("plan", "pro", limit()).notify([50, 100]).expect("two thresholds");
    let (path, watched) = (path.key(["user", "path"]), limit());
    // New keys warm up, sometimes.
    let climb = WarmUp::new(random.within(1..=3), Duration::from_secs(4)).expect("a warm-up");
    let path = if random.percent(30) { path.warm_up(climb) } else { path };
    Policy::new().rule(user).rule(path).rule(Rule::new("watch", watched).key(["path"]).shadow())
}

#[test]
fn limits_changed_on_redis_count_as_in_memory() {
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115);
    let mut random = Random::new(seed);
    let clock = ManualClock::at(Micros::new(START));
    // The server's time goes on while ours stands: neither forgets an id within this test.
    const DAY: Duration = Duration::from_secs(86_400);
    let store = support::builder(&support::SERVER.url()).clock(clock.clone()).remember_ids_for(DAY);
    let store = support::build(store);
    let memory = MemoryStore::builder().clock(clock.clone()).remember_ids_for(DAY).build().expect("valid settings");
    let first = policy(&mut random);
    let redis = Limiter::with_store(first.clone(), store).expect("a valid policy");
    let memory = Limiter::with_store(first, memory).expect("a valid policy");
    let (mut now, mut changes, mut tally, mut reserved) = (START, 0, [0, 0], 0_u64);
    for step in 0..6_000 {
        now += random.within(0..=60_000);
        if random.percent(1) {
            now += random.within(0..=3_000_000);
        }
        clock.set(Micros::new(now));
        if random.percent(5) {
            let next = policy(&mut random);
            let (there, here) = (redis.set_policy(next.clone()), memory.set_policy(next));
            assert_eq!(there, here, "seed {seed}, step {step}");
            changes += u32::from(here.is_ok());
        }
        let user = random.choose(&["alice", "bob"]);
        let mut request = Request::user(user).cost(random.within(0..=2)).with("path", random.choose(&["/a", "/b"]));
        if random.percent(30) {
            request = request.with("plan", "pro");
        }
        let id = random.within(0..=9).to_string();
        if random.percent(10) {
            request = request.id(&id);
        }
        let choice = random.within(0..=19);
        let asked = format!("{choice} {request:?}");
        let (there, here) = match choice {
            0 => {
                let request = request.cost(random.within(0..=12));
                (
                    block_on(redis.refund_async(request.clone())).map(tidegate::Decision::from),
                    memory.refund(request).map(tidegate::Decision::from),
                )
            }
            1 => (
                block_on(redis.reset_async(request.clone())).map(tidegate::Decision::from),
                memory.reset(request).map(tidegate::Decision::from),
            ),
            2..=4 => (block_on(redis.peek_async(request.clone())), memory.peek(request)),
            5 => {
                let name = format!("reserved {reserved}");
                let request = request.id(&name).cost(random.within(0..=6));
                reserved += 1;
                let there = block_on(redis.reserve_async(request.clone()));
                let there = there.map(|outcome| outcome.made().map(Reservation::leave_open));
                let here = memory.reserve(request).map(|outcome| outcome.made().map(Reservation::leave_open));
                assert_eq!(
                    there.map_err(|e| e.to_string()),
                    here.map_err(|e| e.to_string()),
                    "seed {seed}, step {step}"
                );
                continue;
            }
            6..=8 => {
                let name = format!("reserved {}", random.within(reserved.saturating_sub(5)..=reserved));
                let (request, actual) = (request.id(&name), random.within(0..=9));
                match random.within(0..=5) {
                    0 => (block_on(redis.renew_async(request.clone())), memory.renew(request)),
                    1 => (block_on(redis.release_async(request.clone())), memory.release(request)),
                    _ => (block_on(redis.settle_async(request.clone(), actual)), memory.settle(request, actual)),
                }
            }
            _ => (block_on(redis.check_async(request.clone())), memory.check(request)),
        };
        // A cost that cannot pass is an error, here as there.
        let (there, here) = (there.map_err(|e| e.to_string()), here.map_err(|e| e.to_string()));
        assert_eq!(there, here, "seed {seed}, step {step}: {asked}");
        let Ok(here) = here else { continue };
        tally[usize::from(here.is_allowed())] += 1;
    }
    assert!(changes > 150 && tally[0] > 500 && tally[1] > 500, "{changes} changes, {tally:?} decisions");
}

#[test]
fn a_request_that_is_repeated_after_a_change_gets_its_answer_again() {
    for (before, after) in LIMITS.iter().flat_map(|before| LIMITS.map(|after| (before, after))) {
        let policy = |words: &str| {
            let limit: Limit = words.parse().expect("a limit");
            let beside = Rule::new("beside", Limit::per_hour(50)).key(["user", "path"]);
            Policy::new().rule(Rule::new("changed", limit).key(["user"])).rule(beside)
        };
        let (store, clock) = support::manual_store();
        clock.set(Micros::new(START));
        let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let redis = Limiter::with_store(policy(before), store).expect("a valid policy");
        let memory = Limiter::with_store(policy(before), memory).expect("a valid policy");
        let ask = |request: Request<'static>| {
            let request = request.with("path", "/");
            let there = block_on(redis.check_async(request.clone())).expect("an answer");
            assert_eq!(there, memory.check(request).expect("an answer"), "{before} to {after}");
            there
        };
        let _ = ask(Request::user("alice"));
        redis.set_policy(policy(after)).expect("a valid policy");
        memory.set_policy(policy(after)).expect("a valid policy");
        assert!(!ask(Request::user("alice").id("once")).is_repeated());
        clock.advance(Duration::from_millis(1));
        assert!(ask(Request::user("alice").id("once")).is_repeated());
    }
}

/// A limit that is in force again counts what is charged to it, though another
/// one is its successor still.
#[test]
fn a_limit_that_comes_back_beside_its_successor_is_kept_as_in_memory() {
    for (first, second) in LIMITS.iter().flat_map(|first| LIMITS.map(|second| (first, second))) {
        let limit = |words: &str| words.parse::<Limit>().expect("a limit");
        let (store, clock) = support::manual_store();
        clock.set(Micros::new(START));
        let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let redis = Limiter::with_store(limit(first), store).expect("a valid policy");
        let memory = Limiter::with_store(limit(first), memory).expect("a valid policy");
        for policy in [Policy::from(limit(second)), Policy::from([limit(second), limit(first)])] {
            redis.set_policy(policy.clone()).expect("a valid policy");
            memory.set_policy(policy).expect("a valid policy");
            for step in 0..12 {
                clock.advance(Duration::from_micros(1));
                let there = block_on(redis.check_async("alice")).expect("an answer");
                assert_eq!(there, memory.check("alice").expect("an answer"), "{first}, {second}: {step}");
            }
        }
    }
}

#[test]
fn a_refused_slice_gives_nothing_of_a_former_limit_back() {
    let of = |name, limit| Meter::new(Name::literal(name), limit);
    let [old, new] = [100, 10].map(|count| of("changed", Limit::per_hour(count)));
    let spent = of("spent", Limit::per_hour(1));
    let former = [Former { meter: &old, until: Micros::MAX }];
    let key = Key::from("alice");
    let check = |meter, verb, cost| Check::new(meter, &key, verb, cost).expect("a small cost");
    let changed = |verb, cost| check(&new, verb, cost).with_former(&former);
    for (verb, cost) in [(Verb::Refund, 8), (Verb::Reset, 0)] {
        let (store, clock) = support::manual_store();
        clock.set(Micros::new(START));
        let memory = MemoryStore::builder().clock(clock).build().expect("valid settings");
        let ask = |checks: &[Check<'_>]| {
            let mut verdicts = [(); 2].map(|()| vec![Verdict::default(); checks.len()]);
            let [there, here] = &mut verdicts;
            block_on(store.decide(checks, there)).expect("an answer");
            block_on(memory.decide(checks, here)).expect("an answer");
            assert_eq!(there, here, "{verb:?}");
            here.iter().map(|verdict| (verdict.allowed, verdict.remaining)).collect::<Vec<_>>()
        };
        assert_eq!(ask(&[check(&old, Verb::Charge, 50), check(&spent, Verb::Charge, 1)]), [(true, 50), (true, 0)]);
        assert_eq!(ask(&[changed(Verb::Charge, 1)]), [(false, 0)]);
        assert_eq!(ask(&[check(&spent, Verb::Charge, 1), changed(verb, cost)]), [(false, 0), (true, 0)]);
        assert_eq!(ask(&[check(&old, Verb::Peek, 0)]), [(true, 50)], "{verb:?}");
    }
}

/// The charge may be of a limit that allowed far more than the one in force can be in debt.
#[test]
fn a_charge_of_a_larger_limit_is_settled_as_in_memory() {
    for (before, after) in
        [("1000/s", "10/day"), ("fixed 1000/s", "fixed 10/day"), ("sliding-log 1000/s", "10/day debt 5")]
    {
        // Later nothing of the former limit is left.
        let cases =
            [(0, 995, 0), (0, 1_500, 0), (0, 1_000, 0), (0, 0, 10), (1_100, 995, 0), (1_100, 1_500, 0), (1_100, 0, 0)];
        for (pause, actual, left) in cases {
            let limit = |words: &str| words.parse::<Limit>().expect("a limit");
            let (store, clock) = support::manual_store();
            clock.set(Micros::new(START));
            let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
            let redis = Limiter::with_store(limit(before), store).expect("a valid policy");
            let memory = Limiter::with_store(limit(before), memory).expect("a valid policy");
            let request = || Request::user("alice").id("call");
            block_on(redis.reserve_async(request().cost(1_000)))
                .expect("an answer")
                .made()
                .expect("reserved")
                .leave_open();
            memory.reserve(request().cost(1_000)).expect("an answer").made().expect("reserved").leave_open();
            redis.set_policy(limit(after)).expect("a valid policy");
            memory.set_policy(limit(after)).expect("a valid policy");
            clock.advance(Duration::from_millis(pause));
            let all = || Request::user("alice").cost(10);
            let there = block_on(redis.check_async(all())).expect("an answer");
            assert_eq!(there, memory.check(all()).expect("an answer"), "{before} to {after}");
            let there = block_on(redis.settle_async(request(), actual)).expect("settled");
            assert_eq!(there, memory.settle(request(), actual).expect("settled"), "{before} to {after}: {actual}");
            let there = block_on(redis.peek_async(Request::user("alice"))).expect("an answer");
            assert_eq!(there, memory.peek(Request::user("alice")).expect("an answer"), "{before} to {after}: {actual}");
            assert_eq!(there.remaining(), Some(left), "{before} to {after}: {actual}");
        }
    }
}

#[test]
fn what_a_former_limit_counts_is_settled_as_in_memory() {
    for (before, after) in [
        ("in-flight 3 for 60s", "in-flight 1 for 60s"),
        ("3/h", "2/h"),
        ("fixed 3/h", "fixed 2/h"),
        ("sliding 3/h", "sliding 2/h"),
        ("sliding 3/h", "2/h"),
        ("sliding-log 3/h", "sliding-log 2/h"),
    ] {
        let limit = |words: &str| words.parse::<Limit>().expect("a limit");
        let (store, clock) = support::manual_store();
        clock.set(Micros::new(START));
        let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let redis = Limiter::with_store(limit(before), store).expect("a valid policy");
        let memory = Limiter::with_store(limit(before), memory).expect("a valid policy");
        let request = |id: &'static str| Request::user("alice").id(id);
        for id in ["one", "two", "three"] {
            clock.advance(Duration::from_millis(1));
            block_on(redis.reserve_async(request(id))).expect("an answer").made().expect("reserved").leave_open();
            memory.reserve(request(id)).expect("an answer").made().expect("reserved").leave_open();
        }
        redis.set_policy(limit(after)).expect("a valid policy");
        memory.set_policy(limit(after)).expect("a valid policy");
        for id in ["three", "one", "two"] {
            let there = block_on(redis.peek_async(Request::user("alice"))).expect("an answer");
            assert_eq!(there, memory.peek(Request::user("alice")).expect("an answer"), "{before} to {after}: {id}");
            let there = block_on(redis.release_async(request(id))).expect("released");
            assert_eq!(there, memory.release(request(id)).expect("released"), "{before} to {after}: {id}");
        }
        let there = block_on(redis.peek_async(Request::user("alice"))).expect("an answer");
        // Of a bucket a little less, as what drained meanwhile may have been of each of them.
        let left = limit(after).capacity() - u64::from(before == "3/h");
        assert_eq!(there.remaining(), Some(left), "{before} to {after}");
    }
}

/// Long after a change as well, when the former limit is forgotten.
#[test]
fn permits_are_renewed_after_a_change_as_in_memory() {
    let limit = |words: &str| words.parse::<Limit>().expect("a limit");
    for after in ["in-flight 3 for 1min", "in-flight 3 for 2min", "in-flight 1 for 1min"].map(limit) {
        let (store, clock) = support::manual_store();
        clock.set(Micros::new(START));
        let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let before = limit("in-flight 2 for 1min");
        let redis = Limiter::with_store(before, store).expect("a valid policy");
        let memory = Limiter::with_store(before, memory).expect("a valid policy");
        let request = || Request::user("alice").id("job");
        block_on(redis.reserve_async(request())).expect("an answer").made().expect("reserved").leave_open();
        memory.reserve(request()).expect("an answer").made().expect("reserved").leave_open();
        redis.set_policy(after).expect("a valid policy");
        memory.set_policy(after).expect("a valid policy");
        for _ in 0..9 {
            clock.advance(Duration::from_secs(30));
            let there = block_on(redis.renew_async(request())).expect("an answer");
            assert!(there.is_allowed());
            assert_eq!(there, memory.renew(request()).expect("an answer"), "{after}");
        }
        let there = block_on(redis.reserve_async(request())).expect("an answer").made().expect("known");
        let here = memory.reserve(request()).expect("an answer").made().expect("known");
        assert_eq!(there.decision(), here.decision(), "{after}");
        there.leave_open();
        here.leave_open();
        let there = block_on(redis.release_async(request())).expect("an answer");
        assert_eq!(there, memory.release(request()).expect("an answer"), "{after}");
        assert_eq!(there.remaining(), Some(after.capacity()), "{after}");
    }
}

/// Also where the slice begins with a check that has none.
#[test]
fn a_reused_id_behind_a_reset_is_told_as_in_memory() {
    let (store, _) = support::manual_store();
    let limiter = Limiter::builder(Limit::per_hour(10)).store(store).on_failure(FailureMode::Open).build();
    let limiter = limiter.expect("a valid policy");
    let ask = |cost| {
        let charge = (Verb::Charge, Request::new("bob").cost(cost).id("order-17"));
        block_on(limiter.decide_all_async(&[(Verb::Reset, Request::new("alice")), charge]))
    };
    assert!(ask(1).is_ok());
    let reused = ask(2);
    assert!(matches!(reused, Err(CheckError::IdReused { .. })), "{reused:?}");
}

#[test]
fn processes_that_disagree_for_a_while_stay_within_both_limits() {
    let (store, clock) = support::manual_store();
    clock.set(Micros::new(START));
    let limiter = |words: &str| {
        let limit: Limit = words.parse().expect("a limit");
        let limiter: Limiter<RedisStore> =
            Limiter::with_store(Policy::new().rule(Rule::new("api", limit)), store.clone()).expect("a valid policy");
        limiter
    };
    for (before, after) in [("40/h", "30/h"), ("fixed 40/h", "sliding-log 30/h"), ("sliding-log 40/h", "60/h")] {
        clock.advance(Duration::from_secs(3 * 3_600));
        let (old, new) = (limiter(before), limiter(before));
        let allowed =
            |limiter: &Limiter<RedisStore>| block_on(limiter.check_async("alice")).is_ok_and(|d| d.is_allowed());
        let mut admitted = (0..20).filter(|_| allowed(&old)).count();
        let after: Limit = after.parse().expect("a limit");
        new.set_policy(Policy::new().rule(Rule::new("api", after))).expect("a valid policy");
        for _ in 0..200 {
            admitted += usize::from(allowed(&old)) + usize::from(allowed(&new));
        }
        let most = 40 + after.capacity() as usize;
        assert!(admitted <= most, "{before} to {after}: {admitted} of {most}");
        // And when all agree, everything has been counted.
        old.set_policy(Policy::new().rule(Rule::new("api", after))).expect("a valid policy");
        assert!(!allowed(&old) && !allowed(&new));
    }
}

/// A store on a server whose clock is a day ahead of ours.
struct Ahead(RedisStore);

impl Store for Ahead {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let at = self.0.decide(checks, verdicts).await?;
        Ok(at.saturating_add(Micros::from_duration(Duration::from_secs(86_400))))
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

#[test]
fn a_server_whose_clock_is_ahead_of_ours_forgives_nothing() {
    let (store, clock) = support::manual_store();
    clock.set(Micros::new(START));
    let limiter = Limiter::with_store(Limit::per_hour(10), Ahead(store)).expect("a valid policy");
    let left = |key: &str, cost| {
        let decision = block_on(limiter.check_async(Request::new(key).cost(cost))).expect("an answer");
        decision.remaining()
    };
    assert_eq!((left("alice", 7), left("bob", 7)), (Some(3), Some(3)));
    limiter.set_policy(Limit::per_hour(20)).expect("a valid policy");
    assert_eq!((left("alice", 1), left("bob", 1)), (Some(12), Some(12)), "all that was used, of every key");
}
