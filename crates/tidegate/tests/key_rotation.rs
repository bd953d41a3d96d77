//! An attacker with a new key for every request: memory stays as it is, and
//! limited keys stay limited, decision by decision.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::{Decision, Limit, Limiter, ManualClock, MemoryStore, Micros, Overflow, Policy};

const CAP: usize = 100_000;

fn limiter(limit: Limit, clock: &ManualClock, overflow: Overflow) -> Limiter {
    let store = MemoryStore::builder().max_keys(CAP).overflow(overflow).clock(clock.clone());
    Limiter::with_store(limit, store.build().expect("valid settings")).expect("a valid policy")
}

fn check(limiter: &Limiter, key: &str) -> Decision {
    limiter.check(key).expect("the memory store answers")
}

/// Pages of memory that this process has in use.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4_096)
}

/// Lets `keys` strangers in, and compares the victim's decisions with those
/// on a store of its own.
fn attack(limit: Limit, overflow: Overflow, keys: u64) -> Limiter {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let (attacked, quiet) = (limiter(limit, &clock, overflow), limiter(limit, &clock, overflow));
    let mut name = [0_u8; 16];
    for number in 0..keys {
        name[..8].copy_from_slice(&number.to_le_bytes());
        let _ = attacked.check(&name[..]).expect("the memory store answers");
        if number % 1_000 == 0 {
            assert_eq!(check(&attacked, "victim"), check(&quiet, "victim"), "{limit} after {number} keys");
            // Slowly enough that a hundred thousand keys matter at a time.
            clock.advance(Duration::from_millis(1));
        }
    }
    attacked
}

/// Memory is that of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn ten_million_keys_change_neither_memory_nor_a_victims_decisions() {
    let _alone = alone();
    let limit = Limit::per_minute(60);
    // The first few hundred thousand fill all that can be filled, and are
    // kept: after them a store as large as theirs is all that may be added.
    let filled = attack(limit, Overflow::Share, 3 * CAP as u64);
    let before = resident_bytes();
    let attacked = attack(limit, Overflow::Share, 10_000_000);
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let growth = after.saturating_sub(before);
        assert!(growth < 4 << 20, "memory grew by {growth} bytes");
    }
    for limiter in [filled, attacked] {
        assert!(limiter.store().overflowed() > 0, "the attack did fill the store");
    }
}

#[test]
fn other_states_are_as_safe() {
    let _alone = alone();
    let minute = Duration::from_secs(60);
    for limit in [
        Limit::sliding_counter(60, minute),
        Limit::fixed_window(60, minute),
        Limit::sliding_log(60, minute),
        Limit::token_bucket(999_983, minute).burst(30),
    ] {
        attack(limit, Overflow::Share, 5 * CAP as u64);
    }
}

#[test]
fn overflow_refuse_and_allow_change_no_decision_of_an_old_key() {
    let _alone = alone();
    for overflow in [Overflow::Refuse, Overflow::Allow] {
        let attacked = attack(Limit::per_minute(60), overflow, 5 * CAP as u64);
        let newcomer = check(&attacked, "a newcomer");
        assert!(newcomer.is_degraded());
        assert_eq!(newcomer.is_allowed(), overflow == Overflow::Allow);
    }
}

#[test]
fn sharing_never_lets_a_new_key_exceed_its_limit() {
    let _alone = alone();
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let store = MemoryStore::builder().max_keys(CAP).clock(clock.clone()).build().expect("valid settings");
    let store = Arc::new(store);
    let on_the_store = |name| {
        let policy = Policy::new().limit(name, Limit::per_hour(3));
        Limiter::with_store(policy, Arc::clone(&store)).expect("a valid policy")
    };
    // Strangers under a rule of their own, so that what newcomers share is
    // still unused.
    let strangers = on_the_store("strangers");
    for number in 0..2 * CAP as u64 {
        let _ = strangers.check(number).expect("the memory store answers");
    }
    let limiter = on_the_store("newcomers");
    let newcomers: Vec<String> = (0..200).map(|number| format!("newcomer {number}")).collect();
    let mut admitted = vec![0; newcomers.len()];
    let mut everyone_asks_four_times = || {
        for _ in 0..4 {
            for (count, key) in admitted.iter_mut().zip(&newcomers) {
                *count += u32::from(limiter.allow(key));
            }
        }
        admitted.clone()
    };
    let overflowed = store.overflowed();
    let at_first = everyone_asks_four_times();
    assert!(store.overflowed() >= overflowed + 400, "most of them found no room");
    assert!(at_first.iter().filter(|count| **count == 3).count() > 100, "most had a shared state for themselves");
    // The strangers are forgotten: there is room again, and no key may begin
    // anew. A third of an hour is worth one more.
    clock.advance(Duration::from_secs(1_200));
    let overflowed = store.overflowed();
    let in_all = everyone_asks_four_times();
    assert_eq!(store.overflowed(), overflowed, "all of them found room");
    assert!(in_all.iter().all(|count| *count <= 4), "{in_all:?}");
}

#[test]
fn a_key_that_gets_a_slot_owes_nothing_for_keys_without_one() {
    let _alone = alone();
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let limiter = limiter(Limit::per_hour(3), &clock, Overflow::Share);
    // As many as the store is made for: a few find no room, and share.
    let mut surprised = 0;
    for number in 0..CAP as u64 {
        let first = limiter.check(number).expect("the memory store answers");
        surprised += u64::from(!first.is_allowed() || first.remaining() != Some(2));
    }
    let shared = limiter.store().overflowed();
    assert!(shared > 0 && shared < CAP as u64 / 1_000, "{shared} keys found no room");
    assert!(surprised <= shared, "{surprised} new keys did not begin with a full bucket, {shared} found no room");
}

#[test]
fn checks_of_several_limits_that_find_no_room_are_counted_too() {
    let _alone = alone();
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let store = MemoryStore::builder().max_keys(100).clock(clock).build().expect("valid settings");
    let policy = Policy::new().limit("a", Limit::per_hour(3)).limit("b", Limit::per_hour(3));
    let limiter = Limiter::with_store(policy, store).expect("a valid policy");
    for number in 0..1_000_u64 {
        let _ = limiter.check(number).expect("the memory store answers");
    }
    assert!(limiter.store().overflowed() > 100, "{} found no room", limiter.store().overflowed());
}
