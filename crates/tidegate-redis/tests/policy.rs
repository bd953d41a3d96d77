//! Rules on Redis: the same decisions as in memory.

use crate::support;
use std::time::Duration;

use tidegate::{Condition, Limit, Limiter, MemoryStore, Micros, Policy, Request, Rule, Setting};
use tidegate_testkit::{Random, block_on};

fn policy() -> Policy {
    Policy::new()
        .deny("user", Condition::Equals("mallory".into()))
        .rule(Rule::new("user", Limit::per_second(5)).key(["user"]).tier("plan", "pro", Limit::per_second(9)))
        .rule(
            Rule::new("path", Limit::sliding_log(12, Duration::from_secs(2)))
                .when("path", Condition::StartsWith("/a".into()))
                .key(["user", "path"])
                .cost_multiplier(2),
        )
        .rule(Rule::new("all", Limit::fixed_window(40, Duration::from_secs(3))).key([] as [&str; 0]))
        .rule(Rule::new("watch", Limit::per_second(1)).key(["path"]).shadow())
        .rule(Rule::with_setting("blocked", Setting::Blocked).when("path", Condition::Equals("/no".into())))
}

#[test]
fn rules_decide_as_in_memory() {
    let (store, clock) = support::manual_store();
    clock.set(Micros::new(1_700_000_000_000_000));
    let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    let redis = Limiter::with_store(policy(), store).expect("a valid policy");
    let memory = Limiter::with_store(policy(), memory).expect("a valid policy");
    let mut random = Random::new(11);
    let mut now = 1_700_000_000_000_000;
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..3_000 {
        now += random.within(0..=60_000);
        clock.set(Micros::new(now));
        let user = random.choose(&["alice", "bob", "mallory", ""]);
        let mut request = Request::user(user).cost(random.within(0..=2));
        if random.percent(70) {
            request = request.with("path", random.choose(&["/a", "/ab", "/no", "/x"]));
        }
        if random.percent(30) {
            request = request.with("plan", "pro");
        }
        let (there, here) = match random.within(0..=9) {
            0 => (
                block_on(redis.refund_async(request.clone())).map(tidegate::Decision::from),
                memory.refund(request).map(tidegate::Decision::from),
            ),
            1 => (block_on(redis.peek_async(request.clone())), memory.peek(request)),
            _ => (block_on(redis.check_async(request.clone())), memory.check(request)),
        };
        let (there, here) = (there.expect("an answer"), here.expect("an answer"));
        assert_eq!(there, here, "step {step}");
        if here.is_allowed() { allowed += 1 } else { refused += 1 }
    }
    assert!(allowed > 500 && refused > 500, "{allowed} allowed, {refused} refused");
}
