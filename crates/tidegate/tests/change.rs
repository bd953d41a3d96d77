//! Limits changed at run time: what was used counts on, by the limit that admitted it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{
    ConfigError, Decision, Limit, Limiter, ManualClock, MemoryStore, Overflow, Policy, Request, Rule, Setting,
};
use tidegate_testkit::Random;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_700_000_000));
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::builder(policy).store(store).max_log_entries(120_000).build();
    (limiter.expect("a valid policy"), clock)
}

fn limit(words: &str) -> Limit {
    words.parse().expect("a limit")
}

/// What a limit says without being asked for anything.
fn peek(limiter: &Limiter, key: &str) -> Decision {
    limiter.peek(key).expect("an answer")
}

#[test]
fn former_use_counts_beside_a_limit_of_another_algorithm() {
    let limits =
        ["10/min", "leaky 10/min", "fixed 10/min", "sliding 10/min", "sliding-log 10/min", "fixed 10/min from-first"];
    for from in limits {
        for (to, remaining) in [
            ("20/h", 13),
            ("leaky 20/h", 13),
            ("fixed 20/h", 13),
            ("sliding 20/h", 13),
            ("sliding-log 20/h", 13),
            ("7/h", 0),
            ("fixed 6/h", 0),
            ("sliding-log 8/min", 1),
        ] {
            let (limiter, _) = limiter(limit(from));
            assert!(limiter.check(Request::new("alice").cost(7)).is_ok_and(|d| d.is_allowed()));
            limiter.set_policy(limit(to)).expect("a valid policy");
            assert_eq!(peek(&limiter, "alice").remaining(), Some(remaining), "{from} -> {to}");
            assert_eq!(peek(&limiter, "bob").remaining(), Some(limit(to).capacity()), "{from} -> {to}");
        }
    }
}

/// Of what was used one does not fit. A refund of more than the limit holds is
/// one of all that it holds.
#[test]
fn a_charge_can_be_refunded_after_the_limit_was_lowered() {
    let limits = ["6/h", "leaky 6/h", "fixed 6/h", "sliding 6/h", "sliding-log 6/h"];
    for (to, (cost, left)) in
        limits.into_iter().flat_map(|to| [(1, 0), (2, 1), (6, 5), (7, 5), (u64::MAX, 5)].map(|case| (to, case)))
    {
        let (limiter, _) = limiter(limit("10/min"));
        assert!(limiter.check(Request::new("alice").cost(7)).is_ok_and(|decision| decision.is_allowed()));
        limiter.set_policy(limit(to)).expect("a valid policy");
        let given_back = limiter.refund(Request::new("alice").cost(cost)).expect("a refund is never impossible");
        assert_eq!(given_back.remaining(), Some(left), "{to}: {cost}");
        assert_eq!(peek(&limiter, "alice").remaining(), Some(left), "{to}: {cost}, looked at again");
        assert!(
            limiter.refund(Request::new("alice").cost(7)).is_ok_and(|decision| decision.remaining() == Some(6)),
            "{to}"
        );
    }
}

#[test]
fn there_and_back_is_as_if_nothing_had_been() {
    // The same way of counting, and room for all that was used.
    let limits = [
        ("10/min", "10/min burst 20"),
        ("leaky 7/min", "leaky 7/min queue 20"),
        ("fixed 10/min", "fixed 20/min"),
        ("fixed 10/min from-first", "fixed 20/min from-first"),
        ("sliding 10/min", "sliding 20/min"),
        ("sliding-log 10/min", "sliding-log 20/min"),
    ];
    for (words, other) in limits {
        let (changed, clock) = limiter(limit(words));
        let (steady, steady_clock) = limiter(limit(words));
        let mut random = Random::new(7);
        for step in 0..2_000 {
            let wait = Duration::from_micros(random.within(0..=9_000_000));
            clock.advance(wait);
            steady_clock.advance(wait);
            if step % 3 == 0 {
                changed.set_policy(limit(other)).expect("a valid policy");
                if peek(&changed, "alice").remaining() < Some(20) {
                    assert!(changed.check(Request::new("alice").cost(20)).is_ok_and(|d| !d.is_allowed()));
                }
                changed.set_policy(limit(words)).expect("a valid policy");
            }
            let decisions = [&changed, &steady].map(|limiter| limiter.check("alice").expect("an answer"));
            assert_eq!(decisions[0], decisions[1], "{words} at step {step}");
        }
    }
}

#[test]
fn use_drains_as_fast_as_the_limit_says_that_admitted_it() {
    let (limiter, clock) = limiter(limit("1/h burst 100"));
    assert!(limiter.check(Request::new("alice").cost(100)).is_ok_and(|d| d.is_allowed()));
    limiter.set_policy(limit("100/s")).expect("a valid policy");
    let refused = limiter.check("alice").expect("an answer");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3_600)));
    clock.advance(Duration::from_secs(2 * 3_600));
    assert_eq!(peek(&limiter, "alice").remaining(), Some(2), "two hours drain two");
    assert_eq!(limiter.reset("alice").expect("an answer").remaining(), Some(100), "unless the key is reset");
}

#[test]
fn lowering_takes_effect_at_once_and_raising_gives_only_what_is_more() {
    let (limiter, _) = limiter(Policy::new().limit("api", limit("100/h")));
    for _ in 0..40 {
        assert!(limiter.allow("alice"));
    }
    let set = |words| limiter.set_policy(Policy::new().limit("api", limit(words))).expect("a valid policy");
    set("30/h");
    assert!(!limiter.allow("alice"));
    set("100/h");
    assert_eq!(peek(&limiter, "alice").remaining(), Some(60), "more than the lower limit holds is not forgiven");
    set("200/h");
    assert_eq!(peek(&limiter, "alice").remaining(), Some(160));
}

#[test]
fn a_reset_forgets_former_use_too() {
    for words in ["10/h", "leaky 10/h", "fixed 10/h", "sliding 10/h", "sliding-log 10/h"] {
        let (limiter, _) = limiter(limit(words));
        assert!(limiter.allow(Request::new("alice").cost(10)));
        limiter.set_policy(limit(&words.replace("10", "4"))).expect("a valid policy");
        assert_eq!(limiter.reset("alice").expect("an answer").remaining(), Some(4), "{words}");
        assert!(limiter.allow(Request::new("alice").cost(4)), "{words}: it came back");
    }
}

#[test]
fn a_refund_after_a_change_gives_back_former_use() {
    let (limiter, _) = limiter(limit("10/h"));
    assert!(limiter.check(Request::new("alice").cost(8)).is_ok_and(|decision| decision.is_allowed()));
    limiter.set_policy(limit("20/h")).expect("a valid policy");
    assert_eq!(limiter.refund("alice").expect("an answer").remaining(), Some(13));
    assert_eq!(peek(&limiter, "alice").remaining(), Some(13));
}

#[test]
fn the_same_policy_again_changes_nothing() {
    let policy =
        || Policy::new().rule(Rule::new("api", limit("10/h")).key(["user"]).tier("plan", "pro", limit("50/h")));
    let (limiter, clock) = limiter(policy());
    let request = || Request::user("alice");
    for step in 0..9 {
        assert_eq!(limiter.check(request()).expect("an answer").remaining(), Some(9 - step));
        limiter.set_policy(policy()).expect("a valid policy");
        clock.advance(SECOND);
    }
    assert_eq!(limiter.policy(), policy());
}

#[test]
fn a_policy_that_is_no_good_changes_nothing() {
    let (limiter, _) = limiter(limit("10/h"));
    assert!(limiter.allow("alice"));
    assert_eq!(limiter.set_policy(Policy::new()), Err(ConfigError::EmptyPolicy));
    assert_eq!(peek(&limiter, "alice").remaining(), Some(9));
}

#[test]
fn each_place_of_a_rule_counts_its_own_former_use() {
    let rule = |standard, pro| Rule::new("api", limit(standard)).key(["user"]).tier("plan", "pro", limit(pro));
    let (limiter, _) = limiter(Policy::from(rule("10/h", "100/h")));
    let (alice, bob) = (Request::user("alice"), Request::user("bob").with("plan", "pro"));
    let check = |request: &Request<'static>, cost| limiter.check(request.clone().cost(cost)).expect("an answer");
    assert_eq!((check(&alice, 4).remaining(), check(&bob, 30).remaining()), (Some(6), Some(70)));
    limiter.set_policy(Policy::from(rule("20/h", "200/h"))).expect("a valid policy");
    assert_eq!((check(&alice, 0).remaining(), check(&bob, 0).remaining()), (Some(16), Some(170)));
    // What was used of the limit that applied before counts beside an override ..
    let special = rule("20/h", "200/h").override_exactly("user", "alice", limit("50/h"));
    limiter.set_policy(Policy::from(special)).expect("a valid policy");
    assert_eq!(check(&alice, 0).remaining(), Some(46));
    // .. and when it is gone, beside the limit that applies then.
    limiter.set_policy(Policy::from(rule("20/h", "200/h"))).expect("a valid policy");
    assert_eq!(check(&alice, 0).remaining(), Some(16));
    // Even if it could do as it liked meanwhile.
    let unlimited = rule("20/h", "200/h").override_exactly("user", "alice", Setting::Unlimited);
    limiter.set_policy(Policy::from(unlimited)).expect("a valid policy");
    assert!(check(&alice, 1).is_unlimited());
    limiter.set_policy(Policy::from(rule("20/h", "200/h"))).expect("a valid policy");
    assert_eq!(check(&alice, 0).remaining(), Some(16));
    // A rule that was away for a while remembers, too.
    limiter.set_policy(Policy::new().limit("other", limit("5/h"))).expect("a valid policy");
    limiter.set_policy(Policy::from(rule("40/h", "200/h"))).expect("a valid policy");
    assert_eq!(check(&alice, 0).remaining(), Some(36));
}

#[test]
fn an_override_counts_former_use_of_a_tier_and_the_tier_that_of_the_override() {
    let rule = || Rule::new("api", limit("10/h")).key(["user"]).tier("plan", "pro", limit("100/h"));
    let (limiter, _) = limiter(rule());
    let alice = || Request::user("alice").with("plan", "pro");
    assert!(limiter.allow(alice().cost(30)));
    limiter.set_policy(rule().override_exactly("user", "alice", limit("50/h"))).expect("a valid policy");
    assert_eq!(limiter.check(alice()).expect("an answer").remaining(), Some(19));
    limiter.set_policy(rule()).expect("a valid policy");
    assert_eq!(limiter.check(alice()).expect("an answer").remaining(), Some(68));
    let by_pattern = || rule().override_matching("user", "a*", limit("200/h"));
    limiter.set_policy(by_pattern().override_exactly("user", "alice", limit("50/h"))).expect("a valid policy");
    assert_eq!(limiter.check(alice()).expect("an answer").remaining(), Some(17));
    limiter.set_policy(by_pattern()).expect("a valid policy");
    assert_eq!(limiter.check(alice()).expect("an answer").remaining(), Some(166));
}

#[test]
fn a_limit_that_still_applies_to_a_key_keeps_what_it_counted() {
    let rule = || Rule::new("api", limit("10/h")).key(["tenant"]);
    let (limiter, _) = limiter(rule());
    let by = |user| Request::user(user).with("tenant", "acme");
    assert!(limiter.allow(by("bob").cost(10)));
    limiter.set_policy(rule().override_exactly("user", "alice", limit("50/h"))).expect("a valid policy");
    assert!(limiter.allow(by("alice")));
    assert!(!limiter.allow(by("bob")), "the tenant has used its limit up");
}

#[test]
fn a_rule_that_was_gone_for_a_while_counts_what_was_used_in_all_its_places() {
    let rule = || Rule::new("api", limit("10/h")).key(["user"]);
    let with = |user: &str, words: &str| rule().override_exactly("user", user, limit(words));
    let pattern = || rule().override_matching("user", "b*", limit("30/h"));
    for (before, after, remaining) in [
        (rule(), rule(), 2),
        (with("bob", "100/h"), rule(), 2),
        (with("bob", "100/h"), pattern(), 22),
        (pattern(), with("bob", "100/h"), 92),
        (rule(), with("bob", "20/h"), 12),
        (with("bob", "100/h"), with("bob", "20/h"), 12),
        (with("bob", "100/h"), with("alice", "20/h"), 2),
    ] {
        let words = format!("{before:?} and {after:?}");
        let (limiter, _) = limiter(before);
        assert!(limiter.allow(Request::user("bob").cost(8)));
        limiter.set_policy(Policy::new().limit("other", limit("1000/h"))).expect("a valid policy");
        limiter.set_policy(after).expect("a valid policy");
        let bob = limiter.peek(Request::user("bob")).expect("an answer");
        assert_eq!(bob.remaining(), Some(remaining), "{words}");
    }
}

#[test]
fn limits_without_names_count_former_use_in_their_order() {
    let (limiter, _) = limiter([limit("10/h"), limit("fixed 100/h")]);
    assert!(limiter.check(Request::new("alice").cost(5)).is_ok_and(|d| d.is_allowed()));
    // The window stays; the bucket is another one.
    limiter.set_policy([limit("fixed 100/h"), limit("20/h")]).expect("a valid policy");
    assert_eq!(peek(&limiter, "alice").remaining(), Some(15));
    limiter.set_policy(limit("fixed 100/h")).expect("a valid policy");
    assert_eq!(peek(&limiter, "alice").remaining(), Some(95));
}

#[test]
fn use_goes_through_several_changes_without_a_touch() {
    let (limiter, clock) = limiter(limit("10/h"));
    assert!(limiter.check(Request::new("alice").cost(8)).is_ok_and(|d| d.is_allowed()));
    for words in ["20/h", "fixed 30/h", "sliding-log 40/h", "50/h"] {
        limiter.set_policy(limit(words)).expect("a valid policy");
    }
    assert_eq!(peek(&limiter, "alice").remaining(), Some(42));
    // And when its time has come it is forgotten, once and for all.
    clock.advance(Duration::from_secs(2 * 3_600));
    assert_eq!(peek(&limiter, "alice").remaining(), Some(50));
    assert_eq!(peek(&limiter, "alice").remaining(), Some(50));
}

#[test]
fn too_many_changes_at_once_are_refused_and_nothing_is_lost() {
    let (limiter, clock) = limiter(Policy::new().limit("api", limit("10/h")));
    assert!(limiter.allow("alice"));
    let set = |count| limiter.set_policy(Policy::new().limit("api", Limit::per_hour(count)));
    let refused = (11..100).find_map(|count| set(count).err());
    assert!(matches!(refused, Some(ConfigError::TooManyChanges { ref rule, .. }) if rule == "api"), "{refused:?}");
    let capacity = peek(&limiter, "bob").remaining().expect("a limit");
    assert_eq!(peek(&limiter, "alice").remaining(), Some(capacity - 1));
    clock.advance(Duration::from_secs(2 * 3_600 + 1));
    set(200).expect("the others have been forgotten");
}

#[test]
fn very_many_overrides_are_removed_at_once() {
    let users: Vec<String> = (0..80).map(|number| format!("user{number}")).collect();
    let with = |users: &[String]| {
        users.iter().zip(100..).fold(Rule::new("api", limit("10/h")).key(["user"]), |rule, (user, count)| {
            rule.override_exactly("user", user, Limit::per_hour(count))
        })
    };
    let (limiter, _) = limiter(with(&users));
    assert!(limiter.allow(Request::user("user0").cost(4)));
    limiter.set_policy(with(&[])).expect("a valid policy");
    assert_eq!(limiter.peek(Request::user("user0")).expect("an answer").remaining(), Some(6));
    assert_eq!(limiter.peek(Request::user("user1")).expect("an answer").remaining(), Some(10));
}

#[test]
#[cfg_attr(miri, ignore = "many overrides")]
fn one_of_very_many_overrides_is_changed_in_time() {
    // Each was compared with all others once: that would take minutes.
    let count: u64 = 100_000;
    let with = |last: u64| {
        (0..count).fold(Rule::new("api", limit("10/h")).key(["user"]), |rule, number| {
            let limit = Limit::per_hour(if number == count - 1 { last } else { 100 + number });
            rule.override_exactly("user", number.to_string(), limit)
        })
    };
    let (limiter, _) = limiter(with(20));
    let last = || Request::user("99999");
    assert!(limiter.allow(last().cost(8)));
    limiter.set_policy(with(30)).expect("a valid policy");
    assert_eq!(limiter.peek(last()).expect("an answer").remaining(), Some(22));
}

#[test]
fn keys_that_share_a_state_for_lack_of_room_are_not_reset() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(8).overflow(Overflow::Share).clock(clock).build();
    let limiter = Limiter::with_store(limit("10/h"), store.expect("valid settings")).expect("a valid policy");
    let keys: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let mut used = Vec::new();
    for key in &keys {
        if limiter.allow(&**key) {
            used.push(key);
            while limiter.allow(&**key) {}
        }
    }
    limiter.set_policy(limit("12/h")).expect("a valid policy");
    for key in used {
        let remaining = peek(&limiter, key).remaining().expect("a limit");
        assert!(remaining <= 2, "{key}: {remaining}");
    }
}

#[test]
fn nothing_is_minted_or_lost_in_a_storm_of_changes() {
    // Time stands still: whatever was admitted is used for good.
    let swaps: u32 = if cfg!(miri) { 20 } else { 100_000 };
    let words = ["100000/h", "fixed 150000/h", "sliding-log 120000/h", "leaky 110000/h"];
    let (limiter, _) = limiter(Policy::new().limit("api", limit(words[0])));
    let (done, admitted) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (limiter, done, admitted) = (&limiter, &done, &admitted);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !done.load(Ordering::Relaxed) {
                    let key = random.within(0..=3) as usize;
                    if limiter.allow(["a", "b", "c", "d"][key]) {
                        admitted[key].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for swap in 0..swaps {
            let words = words[swap as usize % words.len()];
            limiter.set_policy(Policy::new().limit("api", limit(words))).expect("a valid policy");
        }
        done.store(true, Ordering::Relaxed);
    });
    limiter.set_policy(Policy::new().limit("api", limit("fixed 150000/h"))).expect("a valid policy");
    for (key, admitted) in ["a", "b", "c", "d"].into_iter().zip(admitted) {
        let (admitted, remaining) = (admitted.into_inner(), peek(&limiter, key).remaining().expect("a limit"));
        assert!(admitted <= 150_000, "{key}: {admitted} were admitted by limits of at most 150000");
        assert!(remaining <= 150_000 - admitted, "{key}: {admitted} were admitted, {remaining} are left of 150000");
    }
}

#[test]
fn a_policy_change_during_a_check_admits_nothing_extra() {
    let rounds = if cfg!(miri) { 2 } else { 3_000 };
    for round in 0..rounds {
        let (limiter, _) = limiter(limit("200/h"));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut refused = 0;
                    while refused < 100 {
                        match limiter.allow("alice") {
                            true => _ = admitted.fetch_add(1, Ordering::Relaxed),
                            false => refused += 1,
                        }
                    }
                });
            }
            for words in ["fixed 200/h", "200/h burst 199", "sliding 200/h"] {
                limiter.set_policy(limit(words)).expect("a valid policy");
            }
        });
        assert!(admitted.into_inner() <= 200, "in round {round}");
    }
}

#[test]
fn debt_counts_beside_every_other_limit() {
    let limits = ["10/h", "leaky 10/h", "fixed 10/h", "sliding 10/h", "sliding-log 10/h"];
    for (from, to) in limits.into_iter().flat_map(|from| limits.map(|to| (from, to.replace("10", "50")))) {
        let (limiter, _) = limiter(limit(from));
        let reported = limiter.report(Request::new("alice").cost(20)).expect("recorded");
        assert_eq!(reported.unrecorded(), 0, "{from}");
        limiter.set_policy(limit(&to)).expect("a valid policy");
        assert_eq!(peek(&limiter, "alice").remaining(), Some(30), "{from} -> {to}");
        assert!(limiter.allow(Request::new("alice").cost(30)) && !limiter.allow("alice"), "{from} -> {to}");
    }
}

#[test]
fn debt_is_owed_until_it_is_paid_after_a_change() {
    let (limiter, clock) = limiter(limit("10/h debt 30"));
    assert_eq!(limiter.report(Request::new("alice").cost(40)).expect("recorded").unrecorded(), 0);
    limiter.set_policy(limit("20/h debt 30")).expect("a valid policy");
    // It drains by ten in an hour, as the limit says that recorded it.
    clock.advance(2 * 3_600 * SECOND + 2 * SECOND);
    assert_eq!(peek(&limiter, "alice").remaining(), Some(0));
    clock.advance(3_600 * SECOND);
    assert_eq!(peek(&limiter, "alice").remaining(), Some(10));
    assert!(limiter.allow(Request::new("alice").cost(10)) && !limiter.allow("alice"));
}

#[test]
fn the_share_of_a_sliding_counter_that_still_counts_is_former_use() {
    let policy = |words| Policy::new().limit("api", limit(words));
    let (limiter, clock) = limiter(policy("sliding 100/h"));
    assert!(limiter.allow(Request::new("alice").cost(100)));
    // A tenth of the next window is to come: ten count.
    clock.advance((2_800 + 3_240) * SECOND);
    limiter.set_policy(policy("9/h")).expect("a valid policy");
    assert!(!limiter.allow("alice"));
    limiter.set_policy(policy("1000/h")).expect("a valid policy");
    assert_eq!(peek(&limiter, "alice").remaining(), Some(990));
}

#[test]
fn a_sliding_counter_that_becomes_smaller_forgives_nothing() {
    for (from, to, reported, after, left) in [
        // Half of the next window: ten of the twenty count.
        ("sliding 10/h", "sliding 5/h", 20, 1_800, 0),
        // A tenth of it is to come.
        ("sliding 100/h", "sliding 9/h", 100, 3_240, 0),
        ("sliding 100/h", "sliding 12/h", 100, 3_240, 2),
    ] {
        let policy = |words| Policy::new().limit("api", limit(words));
        let (limiter, clock) = limiter(policy(from));
        assert_eq!(limiter.report(Request::new("alice").cost(reported)).expect("recorded").unrecorded(), 0);
        clock.advance((2_800 + after) * SECOND);
        limiter.set_policy(policy(to)).expect("a valid policy");
        assert_eq!(peek(&limiter, "alice").remaining(), Some(left), "{from} -> {to}");
        assert!(!limiter.allow(Request::new("alice").cost(left + 1)), "{from} -> {to}");
    }
    let (limiter, clock) = limiter(Policy::new().limit("api", limit("sliding 10/h")));
    assert_eq!(limiter.report(Request::new("alice").cost(20)).expect("recorded").unrecorded(), 0);
    limiter.set_policy(Policy::new().limit("api", limit("sliding 5/h"))).expect("a valid policy");
    assert!(!limiter.allow("alice"), "twenty count, of which five fit");
    clock.advance((2_800 + 1_800) * SECOND);
    assert_eq!(peek(&limiter, "alice").remaining(), Some(0));
}

#[test]
fn debt_of_a_limit_that_warms_up_is_owed_until_it_is_paid() {
    let warm = Rule::new("api", limit("10/h")).warm_up("1 over 2h".parse().expect("a warm-up"));
    let (limiter, clock) = limiter(warm);
    assert_eq!(limiter.report(Request::new("alice").cost(20)).expect("recorded").unrecorded(), 0);
    limiter.set_policy(Rule::new("api", limit("20/h"))).expect("a valid policy");
    // In two hours of the climb, 9.2 of the twenty drain.
    clock.advance(2 * 3_600 * SECOND + 2 * SECOND);
    assert_eq!(peek(&limiter, "alice").remaining(), Some(9));
}
