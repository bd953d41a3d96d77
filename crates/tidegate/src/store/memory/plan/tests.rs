//! Which charges the planner takes, and what it leaves to the round.

use super::*;
use crate::kernel::Verb;
use crate::limit::Limit;
use crate::name::Name;
use crate::request::Key;
use crate::store::memory::Seeds;
use crate::store::{ImmediateStore, Meter, StoreError};
use crate::time::{Clock, ManualClock};

const NOW: Micros = Micros::new(1_000_000_000_000);

/// Four lines of four slots.
fn store(clock: &ManualClock) -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
    builder.build_with(Seeds::new(1, 2)).expect("valid settings")
}

fn meters() -> Vec<Meter> {
    let limit = |count| Limit::token_bucket(count, std::time::Duration::from_secs(60)).burst(5);
    let window = Limit::fixed_window(5, std::time::Duration::from_secs(60));
    (1..=9).map(limit).chain([window]).map(|limit| Meter::new(Name::literal("limit"), limit)).collect()
}

fn charge<'a>(meter: &'a Meter, key: &'a Key<'a>) -> Check<'a> {
    Check::new(meter, key, Verb::Charge, 1).expect("a cost of one")
}

fn peek(store: &MemoryStore, check: Check<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    store.decide_one_now(check.as_peek(), &mut verdict).expect("an answer");
    verdict
}

/// Charges of one key whose states are in lines that `choose` picks.
fn with_charges(choose: impl Fn(&[usize]) -> bool, ask: impl Fn(&MemoryStore, &[Check<'_>], &ManualClock)) {
    let (meters, key) = (meters(), Key::from("alice"));
    let mut found = 0;
    for first in 0..meters.len() {
        for count in 1..=USUAL_TARGETS {
            let checks: Vec<Check<'_>> =
                (0..count).map(|index| charge(&meters[(first + index * 3) % meters.len()], &key)).collect();
            let clock = ManualClock::at(NOW);
            let store = store(&clock);
            let line = |check: &Check<'_>| store.narrow.home(store.fingerprint(*check)).line;
            let lines: Vec<usize> = checks.iter().map(line).collect();
            if choose(&lines) {
                found += 1;
                checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
                ask(&store, &checks, &clock);
            }
        }
    }
    assert!(found > 0, "there are some such keys");
}

fn charge_all(store: &MemoryStore, checks: &[Check<'_>]) -> (Option<Micros>, Vec<Verdict>) {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    (store.charge_all(checks, &mut verdicts).ok(), verdicts)
}

fn are_charged_at_once(store: &MemoryStore, checks: &[Check<'_>], _: &ManualClock) {
    for left in [3, 2, 1, 0] {
        let (at, verdicts) = charge_all(store, checks);
        assert_eq!(at, Some(NOW));
        assert!(verdicts.iter().all(|verdict| verdict.allowed && verdict.remaining == left), "{verdicts:?}");
    }
    let (at, verdicts) = charge_all(store, checks);
    assert_eq!(at, Some(NOW));
    assert!(verdicts.iter().all(|verdict| !verdict.allowed && verdict.retry_after > Micros::ZERO));
}

#[test]
fn up_to_four_charges_take_the_fast_path() {
    with_charges(|lines| lines.len() == USUAL_TARGETS, are_charged_at_once);
    with_charges(|lines| lines.is_sorted() && lines.first() < lines.last(), are_charged_at_once);
    with_charges(|lines| !lines.is_sorted(), are_charged_at_once);
    with_charges(|lines| lines.len() > 1 && lines.first() == lines.last(), are_charged_at_once);
}

#[test]
fn up_to_sixteen_charges_take_the_fast_path() {
    let limit = |count| Limit::token_bucket(count, std::time::Duration::from_secs(60)).burst(5);
    let meters: Vec<Meter> = (1..=17).map(|count| Meter::new(Name::literal("limit"), limit(count))).collect();
    let mut found = 0;
    for key in (0..100_u64).map(Key::from) {
        let clock = ManualClock::at(NOW);
        let builder = MemoryStore::builder().max_keys(16).clock(clock.clone());
        let store = builder.build_with(Seeds::new(1, 2)).expect("valid settings");
        let checks: Vec<Check<'_>> = meters.iter().map(|meter| charge(meter, &key)).collect();
        let homes = checks.iter().map(|check| store.narrow.home(store.fingerprint(*check)).line);
        let mut keys = [0; 8];
        homes.for_each(|line| keys[line] += 1);
        if keys.iter().any(|keys| *keys > 4) {
            continue;
        }
        found += 1;
        checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
        are_charged_at_once(&store, &checks[..MAX_TARGETS], &clock);
        assert_eq!(charge_all(&store, &checks).0, None, "the round decides more");
        clock.advance(std::time::Duration::from_secs(300));
        checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
        let later = clock.now();
        let (at, verdicts) = charge_all(&store, &checks[..=USUAL_TARGETS]);
        assert_eq!(at, Some(later));
        assert!(verdicts.iter().all(|verdict| verdict.allowed && verdict.remaining == 3), "{verdicts:?}");
    }
    assert!(found > 0, "some keys have all their states in their home lines");
}

#[test]
fn if_one_is_refused_none_is_charged_and_each_answers_as_it_would_have() {
    with_charges(
        |lines| lines.len() > 1,
        |store, checks, _| {
            let last = checks[checks.len() - 1];
            while store.admits_now(last).is_ok_and(|admitted| admitted) {}
            let before: Vec<Verdict> = checks.iter().map(|check| peek(store, *check)).collect();
            assert_eq!(charge_all(store, checks), (Some(NOW), before.clone()));
            assert_eq!(checks.iter().map(|check| peek(store, *check)).collect::<Vec<_>>(), before);
        },
    );
}

#[test]
fn charges_that_are_not_simple_change_nothing() {
    with_charges(
        |lines| lines.len() == 2,
        |store, checks, clock| {
            let [first, second] = [checks[0], checks[1]];
            let left = || [first, second].map(|check| peek(store, check).remaining);
            let stranger = Key::from("bob");
            let free = Check::new(second.meter(), second.key(), Verb::Charge, 0).expect("no cost");
            for other in [second.as_peek(), second.as_refund(), free, charge(second.meter(), &stranger)] {
                assert_eq!(charge_all(store, &[first, other]).0, None);
                assert_eq!(charge_all(store, &[other, first]).0, None);
            }
            assert_eq!(charge_all(store, &[first, second, second, second, second]).0, None);
            assert_eq!(charge_all(store, &[first, first]).0, None, "one state twice");
            let twice = store.decide_now(&[first, first], &mut [Verdict::default(); 2]);
            assert!(matches!(twice, Err(StoreError::SameStateTwice { .. })));
            assert_eq!(left(), [4, 4]);
            // The clock was set back by hours: both states are from the future.
            clock.set(NOW.saturating_since(Micros::new(86_400_000_000)));
            assert_eq!(charge_all(store, &[first, second]).0, None);
        },
    );
}

#[test]
fn lines_are_locked_in_their_order() {
    with_charges(
        |lines| lines.len() == 2 && lines[0] != lines[1],
        |store, checks, _| {
            let reach = |check: &Check<'_>| store.narrow.reach(store.fingerprint(*check));
            let mut reached = [reach(&checks[0]), reach(&checks[1])];
            reached.sort_by_key(|reach| reach.home.line);
            let is_filled = checks.iter().all(|check| narrow_bucket(check).is_some());
            for fills in [false, is_filled] {
                let first = LockedLine::lock(reached[0].line);
                std::thread::scope(|scope| {
                    let ask =
                        || if fills { store.fill_all(checks, |_, _, _, _, _| {}) } else { charge_all(store, checks).0 };
                    let waiting = scope.spawn(ask);
                    for _ in 0..200 {
                        std::thread::yield_now();
                        let second = LockedLine::try_lock(reached[1].line);
                        assert!(second.is_some(), "a thread that waits for a line holds none behind it");
                    }
                    drop(first);
                    assert_eq!(waiting.join().expect("it ends"), Some(NOW));
                });
            }
        },
    );
}

/// The levels that were told, by check.
fn fill_all(store: &MemoryStore, checks: &[Check<'_>]) -> Option<Vec<u64>> {
    let mut levels = vec![0; checks.len()];
    store.fill_all(checks, |index, _, _, level, _| levels[index] = level)?;
    Some(levels)
}

#[test]
fn buckets_with_room_are_filled_all_at_once() {
    with_charges(
        |lines| lines.len() > 1,
        |store, checks, _| {
            let is_bucket = |check: &Check<'_>| matches!(check.meter().kernel(), MeterKernel::Bucket(_));
            if !checks.iter().all(is_bucket) {
                assert_eq!(fill_all(store, checks), None, "a window is not a bucket");
                return;
            }
            for left in [3, 2, 1, 0] {
                let levels = fill_all(store, checks).expect("there is room");
                assert!(levels.iter().all(|level| *level > 0));
                assert!(checks.iter().all(|check| peek(store, *check).remaining == left));
            }
            assert_eq!(fill_all(store, checks), None, "there is no room");
            assert!(checks.iter().all(|check| peek(store, *check).remaining == 0));
            assert_eq!(fill_all(store, &[checks[0], checks[0]]), None, "one state twice");
        },
    );
}

#[test]
fn up_to_sixteen_buckets_are_filled_all_at_once() {
    let limit = |count| Limit::token_bucket(count, std::time::Duration::from_secs(60)).burst(5);
    let meters: Vec<Meter> = (1..=17).map(|count| Meter::new("limit", limit(count))).collect();
    let (clock, key) = (ManualClock::at(NOW), Key::from("alice"));
    let store = MemoryStore::builder().max_keys(10_000).clock(clock).build().expect("valid settings");
    let checks: Vec<Check<'_>> = meters.iter().map(|meter| charge(meter, &key)).collect();
    assert_eq!(fill_all(&store, &checks[..2]), None, "the key is new");
    checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
    assert_eq!(fill_all(&store, &checks), None, "the round decides more");
    for count in [MAX_TARGETS, USUAL_TARGETS + 1, USUAL_TARGETS, 1] {
        let left = || checks[..count].iter().map(|check| peek(&store, *check).remaining).collect::<Vec<u64>>();
        let before = left();
        assert!(fill_all(&store, &checks[..count]).is_some(), "{count}");
        assert!(left().iter().zip(before).all(|(after, before)| after + 1 == before), "{count}");
    }
}

/// Of limits of every kind: states of one word, of three, and on the heap.
#[test]
fn a_former_limit_that_holds_nothing_is_no_obstacle_and_one_that_does_is() {
    use crate::store::Former;

    let hour = std::time::Duration::from_secs(3_600);
    let limits = [Limit::per_hour(5), Limit::sliding_counter(5, hour), Limit::sliding_log(5, hour)];
    let meter = |name: &str, limit: Limit| Meter::new(name, limit);
    for (own, old) in limits.iter().flat_map(|own| limits.iter().map(move |old| (*own, *old))) {
        let (own, old) = (meter("own", own), meter("old", old));
        let (clock, key) = (ManualClock::at(NOW), Key::from("alice"));
        let store = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build().expect("valid settings");
        let former = [Former { meter: &old, until: Micros::MAX }];
        let changed = charge(&own, &key).with_former(&former);
        assert_eq!(charge_all(&store, &[changed]).0, None, "the key is new");
        assert!(store.admits_now(charge(&own, &key)).is_ok_and(|admitted| admitted));
        let (at, verdicts) = charge_all(&store, &[changed]);
        assert_eq!((at, verdicts[0].remaining), (Some(NOW), 3), "{own:?} after {old:?}");
        let is_narrow = |meter: &Meter| meter.is_simple() && matches!(meter.kernel(), MeterKernel::Bucket(_));
        let filled = fill_all(&store, &[changed]);
        assert_eq!(filled.is_some(), is_narrow(&own) && is_narrow(&old), "{own:?} after {old:?}");
        let left = peek(&store, charge(&own, &key)).remaining;
        assert!(store.admits_now(charge(&old, &key)).is_ok_and(|admitted| admitted));
        assert_eq!((charge_all(&store, &[changed]).0, fill_all(&store, &[changed])), (None, None));
        assert_eq!(peek(&store, charge(&own, &key)).remaining, left, "nothing has changed");
        // Nothing of it matters after two hours, though its state is still there.
        clock.advance(2 * hour);
        assert!(store.admits_now(charge(&own, &key)).is_ok_and(|admitted| admitted));
        assert!(charge_all(&store, &[changed]).0.is_some(), "{own:?} after {old:?}");
    }
}
