//! Which charges the planner takes, and what it leaves to the round.

use super::*;
use crate::kernel::Verb;
use crate::limit::Limit;
use crate::name::Name;
use crate::request::Key;
use crate::store::memory::Seeds;
use crate::store::{ImmediateStore, Meter, StoreError};
use crate::time::{Clock, ManualClock};

/// As many charges as most requests have at most.
const USUAL: usize = 4;
const NOW: Micros = Micros::new(1_000_000_000_000);

/// Four lines of four slots.
fn store(clock: &ManualClock) -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
    builder.build_with(Seeds::new(1, 2)).expect("valid settings")
}

/// One in which keys do not get into each other's way. Miri takes seconds for a larger one.
fn roomy(clock: &ManualClock) -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(500).clock(clock.clone());
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
        for count in 1..=USUAL {
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
    let charged = store.charge_all(checks, |index, verdict| verdicts[index] = verdict).ok();
    let at = charged.map(|(are_charged, at)| {
        assert_eq!(are_charged, verdicts.iter().all(|verdict| verdict.allowed));
        at
    });
    (at, verdicts)
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
    with_charges(|lines| lines.len() == USUAL, are_charged_at_once);
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
        let (at, verdicts) = charge_all(&store, &checks[..=USUAL]);
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
            for fills in [true, false] {
                let first = LockedLine::lock(reached[0].line);
                std::thread::scope(|scope| {
                    let ask = || if fills { fill_all(store, checks).map(|_| NOW) } else { ask_all(store, checks) };
                    let waiting = scope.spawn(ask);
                    for _ in 0..200 {
                        std::thread::yield_now();
                        let second = LockedLine::try_lock(reached[1].line);
                        assert!(second.is_some(), "a thread that waits for a line holds none behind it");
                    }
                    drop(first);
                    assert_eq!(waiting.join().expect("it ends"), Some(NOW));
                });
                while store.admits_now(checks[1]).is_ok_and(|admitted| admitted) {}
            }
        },
    );
}

/// What is told of each check if all are charged without a second look.
fn fill_all(store: &MemoryStore, checks: &[Check<'_>]) -> Option<Vec<Verdict>> {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    let mut targets = Targets::new();
    store.find_targets(checks, &mut targets).ok()?;
    let tell = |index: usize, verdict| verdicts[index] = verdict;
    Plan { store, targets: &targets, now: store.clock.now(), tell, beside: None }.fill_from(0, None)?;
    Some(verdicts)
}

/// When all are asked what they have to say, and some refuse.
fn ask_all(store: &MemoryStore, checks: &[Check<'_>]) -> Option<Micros> {
    let (mut targets, now) = (Targets::new(), store.clock.now());
    store.find_targets(checks, &mut targets).ok()?;
    Plan { store, targets: &targets, now, tell: |_, _| {}, beside: None }.ask_all().map(|()| now)
}

#[test]
fn states_with_room_are_charged_all_at_once() {
    with_charges(
        |lines| lines.len() > 1,
        |store, checks, _| {
            for left in [3, 2, 1, 0] {
                let verdicts = fill_all(store, checks).expect("there is room");
                let told = |verdict: &Verdict| verdict.allowed && verdict.remaining == left;
                assert!(verdicts.iter().all(told), "{verdicts:?}");
                assert!(checks.iter().all(|check| peek(store, *check).remaining == left));
            }
            assert_eq!(fill_all(store, checks), None, "there is no room");
            assert!(checks.iter().all(|check| peek(store, *check).remaining == 0));
            assert_eq!(fill_all(store, &[checks[0], checks[0]]), None, "one state twice");
            assert_eq!(charge_all(store, &[checks[0], checks[0]]).0, None, "one state twice");
        },
    );
}

/// Of every kind: states of one word, of three, and on the heap.
#[test]
fn charges_of_every_kind_are_one_or_none() {
    let hour = std::time::Duration::from_secs(3_600);
    let limits = [
        Limit::per_hour(5),
        Limit::token_bucket(999_983, 24 * hour).burst(5),
        Limit::fixed_window(5, hour),
        Limit::sliding_counter(5, hour),
        Limit::sliding_log(5, hour),
    ];
    let meters = limits.map(|limit| Meter::new("limit", limit));
    let (clock, key) = (ManualClock::at(NOW), Key::from("alice"));
    for last in 0..meters.len() {
        let store = roomy(&clock);
        let checks: Vec<Check<'_>> = meters.iter().map(|meter| charge(meter, &key)).collect();
        checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
        for left in [3, 2] {
            let verdicts = fill_all(&store, &checks).expect("there is room");
            assert!(verdicts.iter().all(|verdict| verdict.allowed && verdict.remaining == left), "{verdicts:?}");
            let seen: Vec<Verdict> = checks.iter().map(|check| peek(&store, *check)).collect();
            let times = |verdicts: &[Verdict]| verdicts.iter().map(|verdict| verdict.reset_after).collect::<Vec<_>>();
            assert_eq!(times(&verdicts), times(&seen));
        }
        while store.admits_now(checks[last]).is_ok_and(|admitted| admitted) {}
        let before: Vec<Verdict> = checks.iter().map(|check| peek(&store, *check)).collect();
        assert_eq!(fill_all(&store, &checks), None, "{:?} has no room", meters[last]);
        assert_eq!(charge_all(&store, &checks), (Some(NOW), before.clone()));
        assert_eq!(checks.iter().map(|check| peek(&store, *check)).collect::<Vec<_>>(), before);
    }
}

/// Those in one bucket of the heap are left to the round.
#[test]
fn several_logs_are_charged_together_or_not_at_all() {
    let hour = std::time::Duration::from_secs(3_600);
    let meters: Vec<Meter> = (5..9).map(|count| Meter::new("log", Limit::sliding_log(count, hour))).collect();
    let mut seen = [0, 0];
    for key in (0..10_u64).map(Key::from) {
        let clock = ManualClock::at(NOW);
        let builder = MemoryStore::builder().max_keys(64).clock(clock.clone());
        let store = builder.build_with(Seeds::new(1, 2)).expect("valid settings");
        let checks: Vec<Check<'_>> = meters.iter().map(|meter| charge(meter, &key)).collect();
        checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
        clock.advance(hour / 2);
        let buckets: std::collections::BTreeSet<usize> =
            checks.iter().map(|check| store.heap().bucket(store.fingerprint(*check))).collect();
        let is_apart = buckets.len() == checks.len();
        seen[usize::from(is_apart)] += 1;
        assert_eq!(charge_all(&store, &checks).0, is_apart.then(|| clock.now()));
        let left = |used: u64| (5..9).map(|count| count - used).collect::<Vec<u64>>();
        let remaining = || checks.iter().map(|check| peek(&store, *check).remaining).collect::<Vec<u64>>();
        assert_eq!(remaining(), left(1 + u64::from(is_apart)));
        // What was charged last is remembered for an hour from then on.
        clock.advance(hour * 3 / 4);
        assert_eq!((remaining(), store.count_keys()), (left(u64::from(is_apart)), if is_apart { 4 } else { 0 }));
    }
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}

#[test]
fn up_to_sixteen_buckets_are_charged_all_at_once() {
    let limit = |count| Limit::token_bucket(count, std::time::Duration::from_secs(60)).burst(5);
    let meters: Vec<Meter> = (1..=17).map(|count| Meter::new("limit", limit(count))).collect();
    let (clock, key) = (ManualClock::at(NOW), Key::from("alice"));
    let store = roomy(&clock);
    let checks: Vec<Check<'_>> = meters.iter().map(|meter| charge(meter, &key)).collect();
    assert_eq!(fill_all(&store, &checks[..2]), None, "the key is new");
    checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
    assert_eq!(fill_all(&store, &checks), None, "the round decides more");
    for count in [MAX_TARGETS, USUAL + 1, USUAL, 1] {
        let left = || checks[..count].iter().map(|check| peek(&store, *check).remaining).collect::<Vec<u64>>();
        let before = left();
        assert!(fill_all(&store, &checks[..count]).is_some(), "{count}");
        assert!(left().iter().zip(before).all(|(after, before)| after + 1 == before), "{count}");
    }
}

#[test]
fn a_former_limit_is_seen_in_whichever_slot_it_is() {
    let meters = [Limit::per_hour(5), Limit::per_minute(5)].map(|limit| Meter::new("limit", limit));
    let [own, old] = &meters;
    let former = [crate::store::Former { meter: old, until: Micros::MAX }];
    let mut slots = std::collections::BTreeSet::new();
    for key in (0..60_u64).map(Key::from) {
        let store = store(&ManualClock::at(NOW));
        // So that other slots are taken first.
        (0..4_u64).map(Key::from).for_each(|other| _ = store.admits_now(charge(own, &other)));
        let charges = [charge(own, &key), charge(old, &key)];
        charges.iter().for_each(|check| _ = store.admits_now(*check));
        let home = store.narrow.home(store.fingerprint(charges[1]));
        let slot = Table::<1>::find(&store.narrow.lock(home.line), home.tag);
        slots.extend(slot);
        assert!(slot.is_none() || fill_all(&store, &[charges[0].with_former(&former)]).is_none(), "{slot:?}");
    }
    assert!(slots.into_iter().eq(0..4), "in each of the four");
}

#[test]
fn a_former_limit_that_is_over_counts_nothing_though_it_is_in_use() {
    let limits = [Limit::per_hour(5), Limit::sliding_counter(5, std::time::Duration::from_secs(3_600))];
    for (own, old) in limits.iter().flat_map(|own| limits.iter().map(move |old| (*own, *old))) {
        let (own, old) = (Meter::new("own", own), Meter::new("old", old));
        let (store, key) = (roomy(&ManualClock::at(NOW)), Key::from("alice"));
        // Another process may still charge it.
        [&own, &old]
            .into_iter()
            .for_each(|meter| assert!(store.admits_now(charge(meter, &key)).is_ok_and(|admitted| admitted)));
        let former = [crate::store::Former { meter: &old, until: NOW }];
        let (at, verdicts) = charge_all(&store, &[charge(&own, &key).with_former(&former)]);
        assert_eq!((at, verdicts[0].remaining), (Some(NOW), 3), "{own:?} after {old:?}");
    }
}

/// Of limits of every kind: states of one word, of three, and on the heap.
#[test]
fn a_check_that_is_alone_is_charged_beside_what_a_former_limit_counts() {
    use crate::algorithm::Algorithm;
    use crate::store::Former;

    let hour = std::time::Duration::from_secs(3_600);
    let limits = [Limit::per_hour(5), Limit::sliding_counter(5, hour), Limit::sliding_log(5, hour)];
    let meter = |name: &str, limit: Limit| Meter::new(name, limit);
    for (own, old) in limits.iter().flat_map(|own| limits.iter().map(move |old| (*own, *old))) {
        let (own, old) = (meter("own", own), meter("old", old));
        let (clock, key) = (ManualClock::at(NOW), Key::from("alice"));
        let store = roomy(&clock);
        let former = [Former { meter: &old, until: Micros::MAX }];
        let changed = charge(&own, &key).with_former(&former);
        assert_eq!(charge_all(&store, &[changed]).0, None, "the key is new");
        assert!(store.admits_now(charge(&own, &key)).is_ok_and(|admitted| admitted));
        let (at, verdicts) = charge_all(&store, &[changed]);
        assert_eq!((at, verdicts[0].remaining), (Some(NOW), 3), "{own:?} after {old:?}");
        assert!(fill_all(&store, &[changed]).is_some(), "{own:?} after {old:?}");
        let left = peek(&store, charge(&own, &key)).remaining;
        assert!(store.admits_now(charge(&old, &key)).is_ok_and(|admitted| admitted));
        assert_eq!(fill_all(&store, &[changed]), None, "{own:?} after {old:?}: of several checks");
        let is_log = |meter: &Meter| meter.limit().is_some_and(|limit| limit.algorithm() == Algorithm::SlidingLog);
        let (at, verdicts) = charge_all(&store, &[changed]);
        let charged = u64::from(!is_log(&own) && !is_log(&old));
        match charged {
            0 => assert_eq!(at, None, "{own:?} after {old:?}: what is on the heap is for the round"),
            _ => assert_eq!((at, verdicts[0].remaining), (Some(NOW), 0), "{own:?} after {old:?}"),
        }
        assert_eq!(peek(&store, charge(&own, &key)).remaining, left - charged, "{own:?} after {old:?}");
        while store.admits_now(charge(&own, &key)).is_ok_and(|admitted| admitted) {}
        assert_eq!(
            charge_all(&store, &[changed]).0,
            None,
            "what former limits count is for the round where there is no room"
        );
        // Nothing of it matters after two hours, though its state is still there.
        clock.advance(2 * hour);
        assert!(store.admits_now(charge(&own, &key)).is_ok_and(|admitted| admitted));
        assert!(charge_all(&store, &[changed]).0.is_some(), "{own:?} after {old:?}");
        while store.admits_now(charge(&own, &key)).is_ok_and(|admitted| admitted) {}
        let (at, verdicts) = charge_all(&store, &[changed]);
        assert_eq!((at, verdicts[0].allowed), (Some(clock.now()), false), "{own:?} after {old:?}");
    }
}
