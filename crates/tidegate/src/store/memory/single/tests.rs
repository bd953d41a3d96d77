//! Keys that find no room and share a state, alone and in checks of several
//! limits; and lines in which charges are being refused.

use std::time::Duration;

use super::*;
use crate::kernel::Verb;
use crate::limit::Limit;
use crate::name::Name;
use crate::request::Key;
use crate::store::memory::Seeds;
use crate::store::{ImmediateStore, Meter, MeterState};
use crate::time::ManualClock;

const START: Micros = Micros::new(1_700_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);

fn meter(name: &'static str, limit: Limit) -> Meter {
    Meter::new(Name::literal(name), limit)
}

fn charge<'a>(meter: &'a Meter, key: &'a Key<'a>) -> Check<'a> {
    Check::new(meter, key, Verb::Charge, 1).expect("a cost of one")
}

fn decide(store: &MemoryStore, checks: &[Check<'_>]) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    store.decide_now(checks, &mut verdicts).expect("the memory store answers");
    verdicts
}

fn all_pass(store: &MemoryStore, checks: &[Check<'_>]) -> bool {
    decide(store, checks).iter().all(|verdict| verdict.allowed)
}

/// A store whose every slot is taken for an hour.
fn full_store(clock: &ManualClock) -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
    let store = builder.build_with(Seeds::new(1, 2)).expect("valid settings");
    fill(&store);
    assert_eq!(store.overflowed(), 300 - 44, "who found no room is counted once");
    store
}

fn fill(store: &MemoryStore) {
    for limit in [Limit::per_hour(1), Limit::fixed_window(3_000, HOUR), Limit::sliding_log(1, HOUR)] {
        let strangers = meter("strangers", limit);
        (0..100_u64).for_each(|number| drop(decide(store, &[charge(&strangers, &Key::from(number))])));
    }
    assert_eq!(store.count_keys(), 16 + 8 + 20);
}

/// Limits of a day or more, one for each place where states are kept.
fn daily() -> [Limit; 4] {
    let day = 24 * HOUR;
    [
        Limit::token_bucket(1, day),
        // A fraction of a microsecond that does not fit into eleven bits.
        Limit::token_bucket(2_053, 24 * HOUR * 2_053 + Duration::from_micros(1)).burst(1),
        // Of one unit nothing counts in the next window, and a day ends soon after `START`.
        Limit::sliding_counter(1, 7 * day),
        Limit::sliding_log(1, day),
    ]
}

/// Two keys that share a state.
fn companions(store: &MemoryStore, meter: &Meter) -> [Key<'static>; 2] {
    let group = |key: &Key<'_>| store.fingerprint(charge(meter, key)) % 1_024;
    let first = Key::from("first");
    let second = (0..100_000_u64).map(Key::from).find(|key| group(key) == group(&first));
    [first, second.expect("there is one")]
}

/// What `ask` is allowed: the first of two companions uses the only unit, the
/// second is refused, and then there is room.
fn newcomers(ask: impl Fn(&MemoryStore, &Meter, &Key<'_>) -> bool) {
    for limit in daily() {
        let clock = ManualClock::at(START);
        let (store, meter) = (full_store(&clock), meter("newcomers", limit));
        let [user, companion] = companions(&store, &meter);
        let peek = |key| decide(&store, &[charge(&meter, key).as_peek()])[0];
        assert!(ask(&store, &meter, &user), "{limit}");
        assert!(!ask(&store, &meter, &companion), "{limit}: they share a state");
        assert!(!ask(&store, &meter, &user), "{limit}");
        clock.advance(2 * HOUR);
        assert_eq!([peek(&user), peek(&companion)].map(|verdict| verdict.remaining), [0, 1], "{limit}");
        let keys = store.count_keys();
        assert!(!ask(&store, &meter, &user), "{limit}: who used it owes it");
        assert_eq!(store.count_keys(), keys, "{limit}: who is refused takes no room");
        assert!(ask(&store, &meter, &companion), "{limit}: who was refused owes nothing");
        assert!(!ask(&store, &meter, &companion), "{limit}");
    }
}

#[test]
fn a_key_that_gets_a_slot_owes_only_its_use_of_the_shared_state() {
    newcomers(|store, meter, key| all_pass(store, &[charge(meter, key)]));
    newcomers(|store, meter, key| store.admits_now(charge(meter, key)).expect("an answer"));
}

#[test]
fn the_same_is_so_in_checks_of_several_limits() {
    let generous = meter("generous", Limit::per_hour(1_000));
    newcomers(|store, meter, key| all_pass(store, &[charge(meter, key), charge(&generous, key)]));
    newcomers(|store, meter, key| all_pass(store, &[charge(&generous, key), charge(meter, key)]));
}

#[test]
fn no_refund_from_a_shared_state_that_the_key_did_not_use() {
    let generous = meter("generous", Limit::per_hour(1_000));
    for (limit, verb) in daily().into_iter().flat_map(|limit| [Verb::Refund, Verb::Reset].map(|verb| (limit, verb))) {
        let clock = ManualClock::at(START);
        let (store, meter) = (full_store(&clock), meter("newcomers", limit));
        let [user, companion] = companions(&store, &meter);
        assert!(all_pass(&store, &[charge(&meter, &user)]), "{limit}");
        let overflowed = store.overflowed();
        let ask = |meter, key| Check::new(meter, key, verb, 1).expect("a cost of one");
        let [alone, first] = [
            decide(&store, &[ask(&meter, &companion)])[0],
            decide(&store, &[ask(&meter, &companion), ask(&generous, &companion)])[0],
        ];
        assert_eq!(
            [alone, first].map(|verdict| (verdict.allowed, verdict.remaining, verdict.degraded)),
            [(true, 1, false); 2],
            "{limit}"
        );
        assert_eq!(store.overflowed(), overflowed, "{limit}: no key needed room");
        assert!(!all_pass(&store, &[charge(&meter, &user)]), "{limit}: used up, whatever strangers {verb:?}");
        // Who has used it may.
        assert!(all_pass(&store, &[ask(&meter, &user)]) && all_pass(&store, &[charge(&meter, &user)]), "{limit}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "looks for companions among very many keys")]
fn no_refund_from_a_shared_state_with_unknown_users() {
    let clock = ManualClock::at(START);
    let (store, meter) = (full_store(&clock), meter("newcomers", Limit::token_bucket(50, 24 * HOUR)));
    let group = |key: &Key<'_>| store.fingerprint(charge(&meter, key)) % 1_024;
    let first = Key::from("first");
    let companions: Vec<Key<'_>> =
        (0..200_000_u64).map(Key::from).filter(|key| group(key) == group(&first)).take(40).collect();
    let left = || decide(&store, &[charge(&meter, &first).as_peek()])[0].remaining;
    for user in &companions[..33] {
        assert!(all_pass(&store, &[charge(&meter, user)]));
    }
    assert!(all_pass(&store, &[charge(&meter, &first)]));
    assert_eq!(left(), 16);
    let generous = self::meter("generous", Limit::per_hour(1_000));
    for verb in [Verb::Refund, Verb::Reset] {
        let ask = |meter, key| Check::new(meter, key, verb, 9).expect("a small cost");
        let alone = decide(&store, &[ask(&meter, &companions[39])])[0];
        let beside = decide(&store, &[ask(&meter, &companions[39]), ask(&generous, &companions[39])])[0];
        assert!(alone.degraded && beside.degraded && !alone.allowed, "{verb:?}");
        assert_eq!(left(), 16, "{verb:?}");
    }
}

#[test]
fn a_clock_that_goes_back_gives_nothing_of_a_shared_state_back() {
    let second = Duration::from_secs(1);
    let generous = meter("generous", Limit::per_hour(1_000));
    let limits = [
        Limit::per_second(1),
        Limit::token_bucket(2_053, second * 2_053 + Duration::from_micros(1)).burst(1),
        Limit::sliding_counter(1, second),
        Limit::sliding_log(1, second),
    ];
    for limit in limits {
        let clock = ManualClock::at(START);
        let (store, meter, key) = (full_store(&clock), meter("newcomers", limit), Key::from("alice"));
        // Those that were forgotten left behind until when they mattered.
        clock.advance(HOUR + second);
        fill(&store);
        clock.advance(10 * second);
        assert!(all_pass(&store, &[charge(&meter, &key)]), "{limit}");
        clock.set(START.saturating_add(Micros::from_duration(HOUR / 2)));
        for _ in 0..3 {
            assert!(!all_pass(&store, &[charge(&meter, &key)]), "{limit}");
            assert!(!all_pass(&store, &[charge(&meter, &key), charge(&generous, &key)]), "{limit}");
        }
    }
}

#[test]
fn every_limit_that_finds_no_room_is_counted() {
    let clock = ManualClock::at(START);
    let store = full_store(&clock);
    let [a, b] = [meter("a", Limit::per_hour(9)), meter("b", Limit::sliding_log(9, HOUR))];
    let key = Key::from("alice");
    let before = store.overflowed();
    assert!(all_pass(&store, &[charge(&a, &key)]));
    assert_eq!(store.overflowed(), before + 1);
    assert!(all_pass(&store, &[charge(&a, &key), charge(&b, &key)]));
    assert_eq!(store.overflowed(), before + 3);
    assert!(all_pass(&store, &[charge(&a, &key).as_peek(), charge(&b, &key).as_peek()]));
    assert_eq!(store.overflowed(), before + 3, "who only looks needs no room");
    let left = [&a, &b].map(|meter| decide(&store, &[charge(meter, &key).as_peek()])[0].remaining);
    assert_eq!(left, [7, 8]);
}

#[test]
fn new_keys_are_refused_when_the_shared_states_are_full() {
    let clock = ManualClock::at(START);
    let store = full_store(&clock);
    let (newcomers, key) = (meter("newcomers", Limit::per_hour(2)), Key::from("alice"));
    let fingerprint = store.fingerprint(charge(&newcomers, &key));
    for count in 1..=256 {
        let other = meter("others", Limit::per_minute(count));
        let mut state = MeterState::Fresh;
        other.kernel().charge(&mut state, START, count);
        let mut shards = store.shared().expect("the policy is to share").lock([fingerprint]);
        shards.state(&other, fingerprint).expect("it is locked").set(other.kernel(), state, START);
    }
    let other = meter("another limit", Limit::per_hour(2));
    let before = store.overflowed();
    let refused = decide(&store, &[charge(&newcomers, &key)])[0];
    assert!(refused.degraded && !refused.allowed);
    assert_eq!((refused.retry_after.get(), refused.reset_after.get()), (60_000_000, 60_000_000));
    assert_eq!(store.overflowed(), before + 1);
    let both = decide(&store, &[charge(&newcomers, &key), charge(&other, &key)]);
    assert_eq!(both[0], refused);
    assert!(both[1].allowed && both[1].remaining == 2, "the other would have passed, and was not charged: {both:?}");
    assert_eq!(store.overflowed(), before + 3);
    clock.advance(Duration::from_secs(60));
    assert!(all_pass(&store, &[charge(&newcomers, &key), charge(&other, &key)]));
}

#[test]
fn a_forgotten_key_begins_when_it_was_forgotten_though_a_clock_went_back_and_its_line_has_room() {
    let asks: [fn(&MemoryStore, Check<'_>) -> bool; 2] = [
        |store, check| all_pass(store, &[check]),
        |store, check| store.admits_now(check).expect("the memory store answers"),
    ];
    for ask in asks {
        let clock = ManualClock::at(START);
        let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
        let store = builder.build_with(Seeds::new(1, 2)).expect("valid settings");
        let (meter, alice) = (meter("limit", Limit::per_second(1)), Key::from("alice"));
        let home = |key: &Key<'_>| store.narrow.home(store.fingerprint(charge(&meter, key))).line;
        assert!(ask(&store, charge(&meter, &alice)));
        // As many as the line has slots: the last one gets hers.
        clock.advance(Duration::from_secs(1));
        let others: Vec<Key<'_>> =
            (0..100_u64).map(Key::from).filter(|key| home(key) == home(&alice)).take(4).collect();
        for other in &others {
            assert!(ask(&store, charge(&meter, other)));
        }
        for other in &others {
            decide(&store, &[Check::new(&meter, other, Verb::Reset, 0).expect("no cost")]);
        }
        clock.set(START);
        assert!(ask(&store, charge(&meter, &alice)));
        let seen = decide(&store, &[charge(&meter, &alice).as_peek()])[0];
        assert_eq!((seen.remaining, seen.reset_after), (0, Micros::new(2_000_000)));
    }
}

#[test]
fn a_line_remembers_whether_the_latest_charge_was_refused() {
    let clock = ManualClock::at(START);
    let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
    let store = builder.build_with(Seeds::new(1, 2)).expect("valid settings");
    let (meter, key) = (meter("limit", Limit::per_second(1)), Key::from("alice"));
    let has_refused = || Table::has_refused(store.narrow.reach(store.fingerprint(charge(&meter, &key))).line);
    for _ in 0..3 {
        assert!(all_pass(&store, &[charge(&meter, &key)]));
        assert!(!all_pass(&store, &[charge(&meter, &key)]) && has_refused(), "from now on a glance is worth it");
        assert!(!all_pass(&store, &[charge(&meter, &key)]) && has_refused());
        clock.advance(Duration::from_secs(1));
        assert!(all_pass(&store, &[charge(&meter, &key)]) && !has_refused());
        clock.advance(Duration::from_secs(1));
    }
}

/// A clock that is read a day too early once: by a thread that slept before
/// it could use what it had read.
#[derive(Clone, Default)]
struct Slept(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl crate::time::Clock for Slept {
    fn now(&self) -> Micros {
        let has_slept = self.0.swap(false, std::sync::atomic::Ordering::Relaxed);
        if has_slept { START.saturating_since(Micros::from_duration(24 * HOUR)) } else { START }
    }
}

#[test]
fn a_thread_that_slept_asks_for_the_time_again_before_it_heals_a_state() {
    let limits = [Limit::per_minute(5), Limit::sliding_counter(5, HOUR), Limit::sliding_log(5, HOUR)];
    let meters = limits.map(|limit| meter("limit", limit));
    let (key, more) = (Key::from("alice"), meter("more", Limit::per_minute(5)));
    for meter in &meters {
        for checks in [vec![charge(meter, &key)], vec![charge(meter, &key), charge(&more, &key)]] {
            let clock = Slept::default();
            let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
            let store = builder.build_with(Seeds::new(1, 2)).expect("valid settings");
            assert!(all_pass(&store, &checks));
            clock.0.store(true, std::sync::atomic::Ordering::Relaxed);
            let verdicts = decide(&store, &checks);
            assert!(verdicts.iter().all(|verdict| verdict.allowed && verdict.remaining == 3), "{verdicts:?}");
        }
    }
}
