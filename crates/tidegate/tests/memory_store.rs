//! What a memory store does besides deciding: forget, overflow, list, and
//! survive a restart.

use std::time::Duration;

use tidegate::store::memory::SnapshotError;
use tidegate::{ConfigError, Limit, Limiter, ManualClock, MemoryStore, Micros, Overflow, Policy, Request, Rule};

const START: Micros = Micros::new(1_700_000_000_000_000);

fn policy() -> Policy {
    let minute = Duration::from_secs(60);
    Policy::new()
        .limit("bucket", Limit::per_minute(30))
        .limit("wide bucket", Limit::token_bucket(999_983, minute).burst(30))
        .limit("window", Limit::fixed_window(30, minute))
        .limit("counter", Limit::sliding_counter(30, minute))
        .limit("log", Limit::sliding_log(30, minute))
}

/// Far larger than needed, so that every key finds room.
fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().max_keys(20_000).clock(clock.clone()).build().expect("valid settings")
}

#[test]
fn bounds_are_checked_when_the_store_is_built() {
    let built = |keys| MemoryStore::builder().max_keys(keys).build().map(|_| ());
    assert_eq!(built(0), Err(ConfigError::Zero { field: "max_keys" }));
    assert_eq!(built(0).expect_err("zero").to_string(), "max_keys is zero: give at least 1");
    assert!(matches!(built(usize::MAX), Err(ConfigError::TooLarge { field: "max_keys", .. })));
    assert_eq!(built(1), Ok(()));
}

#[test]
fn a_key_is_forgotten_when_nothing_of_it_matters_any_more() {
    let clock = ManualClock::at(START);
    let limiter = Limiter::with_store(policy(), store(&clock)).expect("a valid policy");
    assert!(limiter.allow("alice"));
    assert_eq!(limiter.store().count_keys(), 5);
    clock.advance(Duration::from_secs(3));
    assert_eq!(limiter.store().count_keys(), 3, "the buckets are full again");
    clock.advance(Duration::from_secs(120));
    assert_eq!(limiter.store().count_keys(), 0);
}

#[test]
fn the_store_holds_as_many_keys_as_it_was_made_for() {
    let clock = ManualClock::at(START);
    for limit in [
        Limit::per_hour(1),
        Limit::sliding_counter(1, Duration::from_secs(3_600)),
        Limit::sliding_log(1, Duration::from_secs(3_600)),
    ] {
        // So many that chance makes no difference: of the widest, six in ten thousand find no room.
        let keys = 200_000;
        let store = MemoryStore::builder().max_keys(keys).overflow(Overflow::Refuse).clock(clock.clone());
        let limiter = Limiter::with_store(limit, store.build().expect("valid settings")).expect("a valid policy");
        let seated = (0..keys as u64).filter(|key| limiter.allow(*key)).count();
        assert!(seated * 1_000 >= keys * 999, "{limit}: {seated} of {keys} found room");
        assert_eq!(limiter.store().count_keys(), seated);
        let again = (0..keys as u64).filter(|key| limiter.allow(*key)).count();
        assert_eq!(again, 0, "{limit}: every key is remembered");
    }
}

#[test]
fn the_oldest_make_room_if_they_are_to() {
    let clock = ManualClock::at(START);
    let builder = MemoryStore::builder().max_keys(100).overflow(Overflow::EvictOldest).clock(clock.clone());
    let limiter = Limiter::with_store(Limit::per_hour(1), builder.build().expect("valid")).expect("a valid policy");
    for key in 0..10_000_u64 {
        clock.advance(Duration::from_millis(1));
        assert!(limiter.allow(key));
    }
    assert!(!limiter.allow(9_999), "the latest is still known");
    assert!(limiter.allow(0), "the first is not");
    assert!(limiter.store().overflowed() > 9_000, "and that is counted");
}

#[test]
fn no_key_can_be_chosen_to_fall_on_another_rules_or_another_shape() {
    let clock = ManualClock::at(START);
    let hour = Duration::from_secs(3_600);
    // Two rules whose namespaces an attacker knows: they are computed from
    // their names. Were a key simply mixed with them, some difference of two
    // keys would undo it.
    let policy = |name| Policy::new().limit(name, Limit::fixed_window(1, hour));
    let shared = std::sync::Arc::new(store(&clock));
    let a = Limiter::with_store(policy("a"), shared.clone()).expect("a valid policy");
    let b = Limiter::with_store(policy("b"), shared.clone()).expect("a valid policy");
    assert!(a.allow("0123456789abcdef"));
    assert!(b.allow("0123456789abcdef"), "the same key under another rule");
    // A composite key and a single one whose bytes differ from it in a bit.
    assert!(a.allow(("abcdefg", "hijklmn")));
    for (index, bit) in (0..16).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
        let mut bytes = *b"\x07abcdefg\x07hijklmn";
        bytes[index] ^= 1 << bit;
        assert!(a.allow(&bytes[..]), "byte {index}, bit {bit}");
    }
    assert!(a.allow(&b"\x07abcdefg\x07hijklmn"[..]), "the very same bytes in one part");
}

#[test]
fn keys_are_listed_only_where_that_is_wanted() {
    let clock = ManualClock::at(START);
    let unlisted = Limiter::with_store(policy(), store(&clock)).expect("a valid policy");
    assert!(unlisted.allow("alice"));
    assert!(unlisted.store().keys().is_empty());

    let listing = MemoryStore::builder().max_keys(20_000).list_keys().clock(clock.clone());
    let listed = Limiter::with_store(policy(), listing.build().expect("valid settings")).expect("a valid policy");
    for key in 0..900_u64 {
        assert!(listed.allow(("user", key)));
    }
    let mut keys = listed.store().keys();
    assert_eq!(keys.len(), 5 * 900);
    keys.retain(|(rule, _)| *rule == "log");
    let mut numbers: Vec<u64> = keys
        .iter()
        .map(|(_, key)| {
            let parts: Vec<&[u8]> = key.parts().collect();
            assert_eq!(parts[0], b"user");
            String::from_utf8_lossy(parts[1]).parse().expect("the number that was given")
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..900));
    clock.advance(Duration::from_secs(200));
    assert!(listed.store().keys().is_empty(), "forgotten keys are not listed");
}

#[test]
fn a_restored_store_goes_on_where_the_old_one_stopped() {
    let clock = ManualClock::at(START);
    let before = Limiter::with_store(policy(), store(&clock)).expect("a valid policy");
    for key in 0..500_u64 {
        for _ in 0..key % 30 {
            assert!(before.allow(key));
        }
    }
    let mut bytes = Vec::new();
    before.store().snapshot(&mut bytes).expect("memory can be written");
    clock.advance(Duration::from_millis(1_500));
    // Into a larger store, so that every key finds another line.
    let builder = MemoryStore::builder().max_keys(50_000).clock(clock.clone());
    let restored = builder.restore(&bytes[..]).expect("the snapshot is whole");
    let after = Limiter::with_store(policy(), restored).expect("a valid policy");
    assert_eq!(after.store().count_keys(), before.store().count_keys());
    for key in 0..600_u64 {
        for _ in 0..3 {
            assert_eq!(after.check(key).expect("an answer"), before.check(key).expect("an answer"), "key {key}");
        }
    }
}

#[test]
fn states_outlive_one_restart_after_the_other() {
    let log = || Policy::new().limit("log", Limit::sliding_log(30, Duration::from_secs(60)));
    let log_and_more = || {
        let log = Policy::new().limit("log", Limit::sliding_log(30, Duration::from_secs(60)));
        log.limit("more", Limit::per_minute(1_000))
    };
    for policy in [policy, log, log_and_more] {
        let clock = ManualClock::at(START);
        let steady = Limiter::with_store(policy(), store(&clock)).expect("a valid policy");
        let mut restarted = Limiter::with_store(policy(), store(&clock)).expect("a valid policy");
        for restart in 0..4 {
            clock.advance(Duration::from_secs(1));
            for key in (0..20_u64).filter(|key| (key + restart) % 3 > 0) {
                let decisions = [&steady, &restarted].map(|limiter| limiter.check(key).expect("an answer"));
                assert_eq!(decisions[0], decisions[1], "key {key} after {restart} restarts");
            }
            let mut bytes = Vec::new();
            restarted.store().snapshot(&mut bytes).expect("memory can be written");
            let builder = MemoryStore::builder().max_keys(20_000).clock(clock.clone());
            let restored = builder.restore(&bytes[..]).expect("the snapshot is whole");
            restarted = Limiter::with_store(policy(), restored).expect("a valid policy");
        }
    }
}

#[test]
fn a_store_that_is_full_finds_room_for_the_same_keys_after_a_restart() {
    let hour = Duration::from_secs(3_600);
    for limit in [Limit::per_hour(1), Limit::sliding_counter(1, hour), Limit::sliding_log(1, hour)] {
        // As many keys as the store is made for, and so many that no slot is free.
        for keys in [5_000, 50_000_u64] {
            let clock = ManualClock::at(START);
            let builder = || MemoryStore::builder().max_keys(5_000).overflow(Overflow::Refuse).clock(clock.clone());
            let full = builder().build().expect("valid settings");
            let before = Limiter::with_store(limit, full).expect("a valid policy");
            let seated: Vec<u64> = (0..keys).filter(|key| before.allow(*key)).collect();
            assert_eq!(before.store().count_keys(), seated.len());
            let mut bytes = Vec::new();
            before.store().snapshot(&mut bytes).expect("memory can be written");
            let restored = builder().restore(&bytes[..]).unwrap_or_else(|error| panic!("{limit}, {keys}: {error}"));
            assert_eq!(restored.count_keys(), seated.len(), "{limit}");
            let after = Limiter::with_store(limit, restored).expect("a valid policy");
            assert!(!seated.iter().any(|key| after.allow(*key)), "{limit}: a key was forgotten");
            let evicting = builder().overflow(Overflow::EvictOldest).restore(&bytes[..]).expect("there is room");
            assert_eq!((evicting.count_keys(), evicting.overflowed()), (seated.len(), 0), "{limit}");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_refused_whole() {
    let clock = ManualClock::at(START);
    let limiter = Limiter::with_store(policy(), store(&clock)).expect("a valid policy");
    for key in 0..20_u64 {
        assert!(limiter.allow(key));
    }
    let mut whole = Vec::new();
    limiter.store().snapshot(&mut whole).expect("memory can be written");
    let restore = |bytes: &[u8]| MemoryStore::builder().max_keys(200).clock(clock.clone()).restore(bytes);
    assert!(restore(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(restore(&whole[..length]).is_err(), "cut after {length} bytes");
    }
    for index in 0..whole.len() {
        let mut altered = whole.clone();
        altered[index] ^= 0x10;
        assert!(restore(&altered).is_err(), "byte {index} altered");
    }
    assert!(matches!(restore(b"something else that is long enough"), Err(SnapshotError::Foreign)));
    let small = MemoryStore::builder().max_keys(1).clock(clock.clone()).restore(&whole[..]);
    assert!(matches!(small, Err(SnapshotError::NoRoom { max_keys: 1 })));
}

#[test]
fn a_clock_that_goes_back_revives_no_forgotten_key_with_a_full_bucket() {
    let second = Duration::from_secs(1);
    let strict = Limit::sliding_counter(1, second);
    let several = Policy::new().limit("strict", strict).limit("lax", Limit::per_second(1_000));
    for (policy, horizon) in [(Limit::per_second(1).into(), 1), (strict.into(), 2), (several, 2)] {
        let clock = ManualClock::at(START);
        let builder = MemoryStore::builder().max_keys(10).clock(clock.clone());
        let limiter = Limiter::with_store(policy, builder.build().expect("valid")).expect("a valid policy");
        let mut admitted = 0;
        // Time stands between two instants, while other keys take the slots of
        // those that are forgotten at the later one.
        for round in 0..200_u64 {
            clock.set(START);
            admitted += u32::from(limiter.allow("alice"));
            clock.set(START.saturating_add(Micros::new(horizon * 1_000_000)));
            for stranger in 0..8 {
                let _ = limiter.check((round, stranger)).expect("the memory store answers");
            }
            // There is room again for the next keys.
            for stranger in 0..8 {
                let _ = limiter.reset((round, stranger)).expect("the memory store answers");
            }
        }
        // One at each of the two instants, and what was forgotten between them
        // may count from the later one on.
        assert!(admitted <= 3, "alice was admitted {admitted} times within {horizon} s");
    }
}

/// Written by the first version of the format; a change of the format needs another version.
#[test]
fn a_snapshot_of_an_earlier_build_is_restored() {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let bytes: &[u8] = include_bytes!("data/snapshot-v1.bin");
    let store = MemoryStore::builder().max_keys(64).clock(clock).restore(bytes).expect("a snapshot of this version");
    let limit = |words: &str| words.parse::<Limit>().expect("a limit");
    let rules = [
        ("narrow", "10/h", [7, 3]),
        ("wide", "9973/h", [9_970, 9_966]),
        ("fixed", "fixed 10/h", [7, 3]),
        ("sliding", "sliding 10/h", [7, 3]),
        ("log", "sliding-log 10/h", [7, 3]),
    ];
    let policy =
        rules.iter().fold(Policy::new(), |policy, (name, words, _)| policy.rule(Rule::new(*name, limit(words))));
    let policy = policy.rule(Rule::new("keyed", limit("leaky 10/h")).key(["user"]));
    let limiter = Limiter::with_store(policy, store).expect("a valid policy");
    for (rule, left) in rules.iter().map(|(rule, _, left)| (*rule, *left)).chain([("keyed", [7, 3])]) {
        let remaining = |user| limiter.peek(Request::user(user).rule(rule)).expect("an answer").remaining();
        assert_eq!([remaining("alice"), remaining("bob")], left.map(Some), "{rule}");
    }
}
