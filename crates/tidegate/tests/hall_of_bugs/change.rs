//! Changes of configuration, and memory: rows 64 to 71.

use std::time::{Duration, Instant};

use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Micros, Overflow, Policy};

use crate::{START, every_algorithm, limit, limiter, passes, remaining, takes};

fn named(limit: Limit) -> Policy {
    Policy::new().limit("rule", limit)
}

/// symfony/symfony#65796, ravangen/graphql-rate-limit#129: the first limit was
/// charged though the second refused, so a throttled client used up what it shared.
#[test]
fn row_64_a_request_that_one_limit_refuses_charges_none() {
    for (first, second) in every_algorithm().into_iter().zip(every_algorithm().into_iter().rev()) {
        for policy in [
            Policy::new().limit("loose", first).limit("tight", Limit::per_hour(1)),
            Policy::new().limit("tight", Limit::per_hour(1)).limit("loose", second),
        ] {
            let (limiter, clock) = limiter(policy);
            assert_eq!(passes(&limiter, 100), 1);
            clock.advance(Duration::from_secs(3_600));
            // Had the refused ones been charged, the loose limit would refuse now.
            assert!(takes(&limiter, 1));
        }
    }
}

/// nuetzliches/hookaido#239: every reload filled every bucket, so frequent
/// reloads meant no limit.
#[test]
fn row_65_a_reload_fills_nothing() {
    for limit in every_algorithm() {
        let (limiter, _) = limiter(named(limit));
        assert_eq!(passes(&limiter, 9), 5);
        for _ in 0..100 {
            limiter.set_policy(named(limit)).expect("a valid policy");
            assert_eq!(passes(&limiter, 3), 0, "{limit}");
        }
        // Nor does a change there and back.
        limiter.set_policy(named(Limit::per_hour(1_000))).expect("a valid policy");
        assert_eq!(remaining(&limiter), 995, "{limit}");
        limiter.set_policy(named(limit)).expect("a valid policy");
        assert_eq!(passes(&limiter, 3), 0, "{limit}: there and back");
    }
}

/// thingsboard/tbmq#355, scality/cloudserver#6046: keys that had been seen kept
/// their old limit for ever.
#[test]
fn row_66_a_change_is_seen_by_the_next_check() {
    let (limiter, _) = limiter(named(Limit::per_hour(100)));
    for key in 0..1_000_u64 {
        assert!(limiter.allow(key));
    }
    limiter.set_policy(named(Limit::per_hour(3))).expect("a valid policy");
    for key in 0..1_000_u64 {
        let decision = limiter.check(key).expect("an answer");
        assert_eq!((decision.capacity(), decision.remaining()), (Some(3), Some(1)), "{key}");
    }
}

/// brandur/redis-cell#54, OpenZeppelin/contracts-sui#350: what was owed under the
/// old rate was counted in time, and so priced at the new one. Here it is counted in
/// units, which come back at the rate of the limit that admitted them.
#[test]
fn row_67_what_was_used_is_units_and_not_time() {
    let (limiter, clock) = limiter(named(limit("10/h")));
    assert!(takes(&limiter, 10));
    limiter.set_policy(named(limit("20/s"))).expect("a valid policy");
    assert_eq!(remaining(&limiter), 10, "ten of twenty, not an hour of debt");
    assert!(takes(&limiter, 10));
    clock.advance(Duration::from_millis(500));
    assert_eq!(remaining(&limiter), 10, "half a second gives back the ten of the new limit");
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(remaining(&limiter), 15, "and half an hour five of the ten of the old one");
    limiter.set_policy(named(limit("20/h"))).expect("a valid policy");
    assert_eq!(remaining(&limiter), 15, "and nothing else is owed for the time before");
}

/// boinkor-net/governor#171, aks129/HealthClawGuardrails#339: every key that was
/// ever seen was kept.
#[test]
fn row_68_a_million_keys_take_no_more_room_than_a_thousand() {
    let clock = ManualClock::at(Micros::new(START));
    let store = MemoryStore::builder().max_keys(1_000).clock(clock).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
    for key in 0..1_000_000_u64 {
        limiter.allow(key);
    }
    assert!(limiter.store().count_keys() < 4_000, "{} and the shared ones", limiter.store().count_keys());
    assert!(limiter.store().overflowed() > 900_000);
}

/// ralksta/immich-folio#56, #62 and #94: a full map refused every request,
/// then reset limited keys, then refused all new keys.
#[test]
fn row_69_a_full_store_harms_neither_old_keys_nor_new_ones() {
    let clock = ManualClock::at(Micros::new(START));
    let store = MemoryStore::builder().max_keys(100).clock(clock).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_hour(3), store).expect("a valid policy");
    assert_eq!(passes(&limiter, 5), 3);
    let newcomers: Vec<u64> = (0..2_000).collect();
    let admitted = newcomers.iter().filter(|key| limiter.allow(**key)).count();
    assert!(admitted > 500, "newcomers are served: {admitted}");
    assert_eq!(passes(&limiter, 5), 0, "a limited key still is");
    for key in newcomers.iter().take(50) {
        let more = (0..9).filter(|_| limiter.allow(*key)).count();
        assert!(more <= 3, "no key gets more than the limit");
    }
}

/// sethvargo/go-limiter#54, OneBusAway/maglev#593, wheels-dev/wheels#2971: a sweep
/// stopped the world, or every insertion at the cap looked at every key.
#[test]
fn row_70_a_full_store_is_not_searched() {
    for (overflow, words) in
        [(Overflow::Share, "1/h"), (Overflow::EvictOldest, "1/h"), (Overflow::EvictOldest, "sliding-log 1/h")]
    {
        let insertion = |keys: usize| {
            let clock = ManualClock::at(Micros::new(START));
            let store = MemoryStore::builder().max_keys(keys).overflow(overflow).clock(clock).build();
            let limiter = Limiter::with_store(limit(words), store.expect("valid settings")).expect("a valid policy");
            let mut newcomers = 0_u64..;
            let mut insert = |count| newcomers.by_ref().take(count).for_each(|key| _ = limiter.allow(key));
            insert(2 * keys);
            quickest(|| insert(100))
        };
        // Of a hundred times as many keys, none but those in reach are looked at. What is left is the
        // processor's cache, which holds only the small store.
        let (small, large) = (insertion(1_000), insertion(100_000));
        assert!(large < 20 * small, "{overflow:?} {words}: {large:?} for 100 insertions, {small:?} if small");
    }
}

/// The shortest of many times: whatever else the machine does only makes them longer.
fn quickest(mut round: impl FnMut()) -> Duration {
    let time = |_| {
        let began = Instant::now();
        round();
        began.elapsed()
    };
    (0..200).map(time).min().expect("there are rounds")
}

/// warcon-app/warcon#20: a sweep judged all keys by the window of one rule.
#[test]
fn row_71_each_key_is_forgotten_by_its_own_limit() {
    let policy = Policy::new().limit("second", limit("fixed 5/s")).limit("hour", limit("fixed 5/h"));
    for kind in ["", "sliding-log "] {
        let policy = if kind.is_empty() {
            policy.clone()
        } else {
            Policy::new().limit("second", limit("sliding-log 5/s")).limit("hour", limit("sliding-log 5/h"))
        };
        let (limiter, clock) = limiter(policy);
        assert!(takes(&limiter, 4));
        for second in 1..=60 {
            clock.advance(Duration::from_secs(1));
            // Others come and go, whose states are swept.
            for key in 0..100_u64 {
                limiter.allow(second * 1_000 + key);
            }
        }
        assert_eq!(passes(&limiter, 9), 1, "{kind}: four of the hour are used");
    }
}
