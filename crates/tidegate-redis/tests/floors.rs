//! Classes of requests on Redis: the same decisions as in memory, and what layers know of them.

use std::time::Duration;

use crate::support::{self, RUNTIME, SERVER};
use tidegate::{
    Decision, Floor, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, PriorityClasses, Request, Rule, WarmUp,
};
use tidegate_redis::{Lease, RedisStore, RefusalCache};
use tidegate_testkit::{Random, block_on};

const START: u64 = 1_700_000_000_000_000;

fn classes() -> PriorityClasses {
    PriorityClasses::by("class")
        .class("critical", Floor::NONE)
        .class("normal", Floor::Percent(20))
        .class("low", Floor::Percent(50))
}

/// A rule of every kind, one of them climbing.
fn policy(count: u64) -> Policy {
    let second = Duration::from_secs(1);
    let limits = [
        Limit::per_second(count),
        Limit::token_bucket(7, 3 * second).burst(count),
        Limit::leaky_bucket(count, second),
        Limit::fixed_window(3 * count, 2 * second),
        Limit::sliding_counter(3 * count, 2 * second),
        Limit::sliding_log(3 * count, 2 * second),
    ];
    let rule = |number: usize, limit| Rule::new(format!("rule{number}"), limit).key(["user"]).priority(classes());
    let rules = limits.into_iter().enumerate().map(|(number, limit)| rule(number, limit));
    let climb = WarmUp::new(count, second).expect("a warm-up");
    rules.fold(Policy::new(), Policy::rule).rule(rule(6, Limit::per_second(3 * count)).warm_up(climb))
}

#[test]
fn classes_are_decided_as_in_memory_also_after_a_change() {
    let (store, clock) = support::manual_store();
    clock.set(Micros::new(START));
    let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    let redis = Limiter::with_store(policy(9), store).expect("a valid policy");
    let memory = Limiter::with_store(policy(9), memory).expect("a valid policy");
    let (mut random, mut now) = (Random::new(41), START);
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..2_000 {
        now += random.within(0..=20_000);
        clock.set(Micros::new(now));
        if step % 500 == 499 {
            let other = policy(random.within(5..=12));
            redis.set_policy(other.clone()).expect("a valid policy");
            memory.set_policy(other).expect("a valid policy");
        }
        let rule = format!("rule{}", random.within(0..=6));
        let class = random.choose(&["critical", "normal", "low", "unheard-of"]);
        let request = Request::user(random.choose(&["alice", "bob"])).with("class", class).cost(random.within(0..=2));
        let request = if random.percent(80) { request.rule(&rule) } else { request };
        let (there, here) = match random.within(0..=9) {
            0 => (
                block_on(redis.refund_async(request.clone())).map(Decision::from),
                memory.refund(request.clone()).map(Decision::from),
            ),
            1 => (block_on(redis.peek_async(request.clone())), memory.peek(request.clone())),
            2 => (block_on(redis.report_async(request.clone())), memory.report(request.clone())),
            _ => (block_on(redis.check_async(request.clone())), memory.check(request.clone())),
        };
        let (there, here) = (there.expect("an answer"), here.expect("an answer"));
        assert_eq!(there, here, "step {step}: {request:?}");
        if here.is_allowed() { allowed += 1 } else { refused += 1 }
    }
    assert!(allowed > 300 && refused > 300, "{allowed} allowed, {refused} refused");
}

fn limiter(limit: Limit) -> (Limiter<RedisStore>, ManualClock) {
    let clock = ManualClock::at(Micros::new(START));
    let store = support::builder(&SERVER.url()).prefix(support::new_prefix()).clock(clock.clone());
    let store = store.lease("rule", Lease { chunk: 10, ttl: Duration::from_secs(5) });
    let store = store.remember_refusals(RefusalCache::default());
    let policy = Rule::new("rule", limit).priority(classes());
    (Limiter::with_store(policy, support::build(store)).expect("a valid policy"), clock)
}

fn by(class: &'static str) -> Request<'static> {
    Request::new("acme").with("class", class)
}

fn admits(limiter: &Limiter<RedisStore>, request: Request<'_>) -> bool {
    RUNTIME.block_on(limiter.check_async(request)).expect("an answer").is_allowed()
}

#[test]
fn units_on_lease_are_not_for_a_class_that_leaves_something_to_others() {
    let (limiter, _) = limiter(Limit::per_hour(100));
    for _ in 0..4 {
        assert!(admits(&limiter, by("critical")));
    }
    let before = limiter.store().statistics();
    assert!(before.units_on_lease > 0, "{before:?}");
    let left = 100 - 4 - before.units_on_lease;
    // Each is decided by the store, which has charged what is on lease.
    let peek = RUNTIME.block_on(limiter.peek_async(by("low"))).expect("an answer");
    assert_eq!(peek.remaining(), Some(left - 50));
    assert!(admits(&limiter, by("low").cost(left - 50)));
    assert!(!admits(&limiter, by("low")), "half is kept back");
    let after = limiter.store().statistics();
    assert_eq!((after.leased, after.units_on_lease), (before.leased, before.units_on_lease));
    assert!(admits(&limiter, by("critical")), "and there for others, on lease");
    assert_eq!(limiter.store().statistics().leased, before.leased + 1);
    // A reset by any class takes the lease with it.
    let _ = RUNTIME.block_on(limiter.reset_async(by("low"))).expect("an answer");
    let peek = RUNTIME.block_on(limiter.peek_async(by("low"))).expect("an answer");
    assert_eq!((peek.remaining(), limiter.store().statistics().units_on_lease), (Some(50), 0));
}

#[test]
fn a_remembered_refusal_of_one_class_refuses_no_other() {
    let (limiter, clock) = limiter("leaky 10/h".parse().expect("a limit"));
    assert!(admits(&limiter, by("critical").cost(5)));
    assert!(!admits(&limiter, by("low")));
    let before = limiter.store().statistics();
    assert!(!admits(&limiter, by("low")));
    assert_eq!(limiter.store().statistics().repeated, before.repeated + 1);
    assert!(admits(&limiter, by("normal")) && admits(&limiter, by("critical")));
    assert!(!admits(&limiter, by("low")));
    clock.advance(Duration::from_secs(2 * 360 + 360));
    assert!(admits(&limiter, by("low")));
}

#[test]
fn an_id_is_answered_again_though_its_floor_was_raised() {
    for limit in ["10/h", "fixed 10/h", "sliding 10/h", "sliding-log 10/h"] {
        let (limiter, _) = limiter(limit.parse().expect("a limit"));
        let request = || by("low").cost(5).id("first");
        assert!(admits(&limiter, request()));
        let again = RUNTIME.block_on(limiter.check_async(request())).expect("an answer");
        assert!(again.is_allowed() && again.is_repeated() && again.remaining() == Some(0), "{limit}");
        let higher = PriorityClasses::by("class").class("low", Floor::Units(5)).class("critical", Floor::NONE);
        let rule = Rule::new("rule", limit.parse().expect("a limit")).priority(higher.class("other", Floor::Units(9)));
        limiter.set_policy(rule).expect("a valid policy");
        assert!(RUNTIME.block_on(limiter.check_async(request())).is_ok_and(|again| again.is_repeated()), "{limit}");
        let rule = Rule::new("rule", limit.parse().expect("a limit"));
        let rule = rule.priority(PriorityClasses::by("class").class("low", Floor::Units(4)));
        limiter.set_policy(rule).expect("a valid policy");
        assert!(RUNTIME.block_on(limiter.check_async(request())).is_ok_and(|again| again.is_repeated()), "{limit}");
        let reservation = RUNTIME
            .block_on(limiter.reserve_async(by("low")))
            .expect("an answer")
            .made()
            .expect("there is one above the floor");
        let _ = RUNTIME.block_on(reservation.settle_async(3)).expect("settled");
        let peek = RUNTIME.block_on(limiter.peek_async(by("low").cost(0))).expect("an answer");
        assert!(peek.is_allowed() && peek.remaining() == Some(0), "{limit}: what was spent is charged below the floor");
    }
}
