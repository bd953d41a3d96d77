//! What a store answers where no kernel does, and by which clock.

use super::overflow::Full;
use super::*;
use crate::kernel::Verb;
use crate::limit::Limit;
use crate::store::{Meter, RequestId};
use crate::time::ManualClock;

/// A clock that goes on by a second whenever it is read.
#[derive(Default)]
struct Ticking(std::sync::atomic::AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Micros {
        Micros::new(1_000_000 * (1 + self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
    }
}

fn store(overflow: Overflow) -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(1).overflow(overflow).clock(Ticking::default());
    builder.build_with(Seeds::new(1, 2)).expect("valid settings")
}

fn meter(limit: Limit) -> Meter {
    Meter::new(Name::literal("limit"), limit)
}

fn charge<'a>(meter: &'a Meter, key: &'a Key<'a>, cost: u64) -> Check<'a> {
    Check::new(meter, key, Verb::Charge, cost).expect("a small cost")
}

#[test]
fn a_store_is_for_one_key_to_four_billion() {
    assert_eq!(check_max_keys(0), Err(ConfigError::Zero { field: "max_keys" }));
    assert_eq!([1, 1 << 32].map(check_max_keys), [Ok(()), Ok(())]);
    let (value, bound) = ((1 << 32) + 1, 1 << 32);
    let refused = Err(ConfigError::TooLarge { field: "max_keys", value, bound });
    assert_eq!(check_max_keys((1 << 32) + 1), refused);
}

#[test]
fn nothing_has_overflowed_in_a_new_store_and_only_what_is_needed_is_made() {
    let store = store(Overflow::Share);
    assert_eq!((store.overflowed(), store.count_keys()), (0, 0));
    let second = Duration::from_secs(1);
    let meters = [Limit::per_second(5), Limit::fixed_window(5, second)].map(meter);
    let key = Key::from("alice");
    for meter in &meters {
        let check = charge(meter, &key, 1);
        store.decide_now(&[check], &mut [Verdict::default()]).expect("an answer");
        store.decide_now(&[check.as_peek()], &mut [Verdict::default()]).expect("an answer");
        store.decide_each_now(&[check, check.as_peek()], &mut [Verdict::default(); 2]).expect("an answer");
    }
    let both = meters.each_ref().map(|meter| charge(meter, &key, 1));
    store.decide_now(&both.map(|check| check.as_peek()), &mut [Verdict::default(); 2]).expect("an answer");
    let bob = Key::from("bob");
    let both = meters.each_ref().map(|meter| charge(meter, &bob, 1));
    store.decide_now(&both, &mut [Verdict::default(); 2]).expect("an answer");
    assert!(store.wide.get().is_none() && store.heap.get().is_none(), "narrow states are in the narrow table");
    assert!(store.shared.get().is_none(), "everyone has found room");
}

#[test]
fn for_lack_of_room_a_key_waits_for_the_first_free_slot_or_passes_unlimited() {
    let (meter, key) = (meter(Limit::per_second(5)), Key::from("alice"));
    let check = charge(&meter, &key, 2);
    let answer = |overflow, until, now| {
        let store = store(overflow);
        let (full, now) = (Full { until: Micros::new(until) }, Micros::new(now));
        let Err(full) = store.share(None, check, full, now) else { panic!("no state is shared") };
        let verdict = store.without_room(check, full, now);
        assert_eq!(store.overflowed(), 1);
        verdict
    };
    let waits = |micros| {
        let wait = Micros::new(micros);
        Verdict { retry_after: wait, reset_after: wait, degraded: true, ..Verdict::default() }
    };
    assert_eq!(answer(Overflow::Refuse, 150, 100), waits(50));
    assert_eq!(answer(Overflow::Refuse, 101, 100), waits(1));
    for until in [100, 99] {
        assert_eq!(answer(Overflow::Refuse, until, 100), waits(1), "a refusal never says at once");
    }
    let passes = Verdict { allowed: true, remaining: 3, degraded: true, ..Verdict::default() };
    assert_eq!(answer(Overflow::Allow, 150, 100), passes);
}

#[test]
fn limits_without_keys_are_counted_apart_and_found_again_in_a_snapshot() {
    let builder = || MemoryStore::builder().max_keys(100).clock(ManualClock::at(Micros::new(1_000_000_000_000)));
    let store = builder().build_with(Seeds::new(1, 2)).expect("valid settings");
    let meters = [Limit::per_day(5), Limit::per_day(7)].map(meter);
    let keys = [Key::from(()), Key::of([])];
    let checks = || meters.iter().flat_map(|meter| keys.iter().map(move |key| charge(meter, key, 1)));
    for (used, check) in checks().enumerate() {
        let fingerprint =
            store.seeds.fingerprint(check.meter().identity() ^ u64::from(check.key().is_composite()), &[]);
        (0..3).for_each(|_| assert_eq!(store.fingerprint(check), fingerprint, "first, and again"));
        (0..=used).for_each(|_| assert!(store.admits_now(check).is_ok_and(|admitted| admitted)));
    }
    let mut snapshot = Vec::new();
    store.snapshot(&mut snapshot).expect("room in memory");
    let restored = builder().restore(&*snapshot).expect("its own snapshot");
    for store in [&store, &restored] {
        for (used, check) in checks().enumerate() {
            let mut verdict = Verdict::default();
            store.decide_one_now(check.as_peek(), &mut verdict).expect("an answer");
            assert_eq!(verdict.remaining, check.meter().largest_cost() - used as u64 - 1);
        }
    }
}

#[test]
fn waits_that_begin_later_are_told_from_now() {
    let of = |retry_after, reset_after, delay| {
        let [retry_after, reset_after, delay] = [retry_after, reset_after, delay].map(Micros::new);
        Verdict { remaining: 3, retry_after, reset_after, delay, ..Verdict::default() }
    };
    let seen = |at, verdict| crate::store::seen_from(Micros::new(100), Micros::new(at), verdict);
    for at in [90, 100] {
        assert_eq!(seen(at, of(5, 7, 9)), of(5, 7, 9));
    }
    assert_eq!(seen(130, of(5, 7, 9)), of(35, 37, 39));
    assert_eq!(seen(130, of(0, 7, 0)), of(0, 37, 0), "at once is at once");
    let ahead = |ahead| Verdict { allowed: true, ahead: Micros::new(ahead), ..of(0, 7, 0) };
    assert_eq!(seen(130, ahead(4)).ahead, Micros::new(34), "what was charged lies as much later");
    assert_eq!(seen(130, Verdict { allowed: false, ..ahead(4) }).ahead, Micros::new(4), "nothing was charged");
}

#[test]
fn a_request_with_an_id_is_charged_once_whatever_way_it_comes() {
    let store = store(Overflow::Share);
    let (meter, key) = (meter(Limit::per_hour(5)), Key::from("alice"));
    let id = RequestId::once("a", 1);
    let check = charge(&meter, &key, 1).with_id(&id);
    let left = || {
        let mut verdict = Verdict::default();
        store.decide_one_now(check.as_peek(), &mut verdict).expect("an answer");
        verdict.remaining
    };
    let mut verdicts = [Verdict::default(); 3];
    store.decide_one_now(check, &mut verdicts[0]).expect("an answer");
    store.decide_one_now(check, &mut verdicts[1]).expect("an answer");
    assert!(verdicts[1].repeated && !verdicts[0].repeated);
    assert!(store.admits_now(check).is_ok_and(|admitted| admitted));
    assert!(store.admits_all_now(&[check]).is_ok_and(|admitted| admitted));
    store.decide_now(&[check], &mut verdicts[..1]).expect("an answer");
    assert_eq!(left(), 4);
    store.decide_each_now(&[check, check.without_id(), check], &mut verdicts).expect("an answer");
    assert_eq!(verdicts.map(|verdict| verdict.repeated), [true, false, true]);
    assert_eq!(left(), 3);
    let mut admitted = [false; 3];
    store.admits_each_now(&[check, check.without_id(), check], &mut admitted).expect("an answer");
    assert_eq!((admitted, left()), ([true; 3], 2));
}

#[test]
fn a_batch_is_decided_at_one_time_and_says_which() {
    let store = store(Overflow::Share);
    let (meter, key) = (meter(Limit::per_hour(1_000)), Key::from("alice"));
    let check = charge(&meter, &key, 1);
    let mut verdicts = [Verdict::default(); 70];
    let now = store.decide_each_now(&[check; 70], &mut verdicts).expect("an answer");
    assert_eq!(now, Micros::new(1_000_000));
    let resets: Vec<u64> = verdicts.iter().map(|verdict| verdict.reset_after.get()).collect();
    assert!(resets.iter().zip(1..).all(|(reset, charged)| *reset == charged * 3_600_000), "{resets:?}");
    assert_eq!(store.decide_each_now(&[], &mut []).expect("an answer"), Micros::new(2_000_000));
    // Those with ids are decided one by one: the time is that of the last.
    let ids = ["a", "b"].map(|text| RequestId::once(text, 1));
    let checks = ids.each_ref().map(|id| check.with_id(id));
    let now = store.decide_each_now(&checks, &mut verdicts[..2]).expect("an answer");
    assert_eq!(now.saturating_add(verdicts[1].reset_after), Micros::new(1_000_000 + 72 * 3_600_000));
}

#[test]
#[cfg_attr(miri, ignore = "many keys, and nothing that is not tried elsewhere")]
fn states_on_the_heap_are_given_back_though_several_limits_are_asked_at_once() {
    let clock = crate::time::ManualClock::at(Micros::new(1_000_000_000));
    let store = MemoryStore::builder().max_keys(800).clock(clock.clone()).build().expect("valid settings");
    let meters = [Limit::sliding_log(5, Duration::from_secs(1)), Limit::per_second(5)].map(meter);
    let mut entries = Vec::new();
    for round in 0..10_u64 {
        for number in 0..200 {
            let key = Key::from((round, number));
            let both = meters.each_ref().map(|meter| charge(meter, &key, 1));
            store.decide_now(&both, &mut [Verdict::default(); 2]).expect("an answer");
        }
        clock.advance(Duration::from_secs(2));
        let mut kept = 0;
        store.heap().for_each(Micros::ZERO, |_| kept += 1);
        entries.push(kept);
    }
    // One that is new finds time to look at one more place, of a hundred.
    assert!(entries.iter().all(|kept| *kept <= 600), "{entries:?}");
}
