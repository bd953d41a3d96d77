//! Every schedule of a few threads on a small store, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p tidegate --lib schedules`.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::line_lock::LockedLine;
use super::lines::Lines;
use super::table::{FRACTION_BITS, Table};
use super::{MemoryStore, Overflow};
use crate::kernel::{Verb, Verdict};
use crate::store::{Check, ImmediateStore, Meter};
use crate::{Key, Limit, ManualClock, Micros, Name};

/// Four lines of four slots.
fn small_store(clock: &ManualClock, overflow: Overflow) -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(1).overflow(overflow).clock(clock.clone());
    builder.build().expect("the settings are valid")
}

fn meter(name: &'static str, limit: Limit) -> Arc<Meter> {
    Arc::new(Meter::new(Name::literal(name), limit))
}

fn charge(store: &MemoryStore, meter: &Meter, key: &str) -> bool {
    ask(store, meter, Verb::Charge, key)
}

fn ask(store: &MemoryStore, meter: &Meter, verb: Verb, key: &str) -> bool {
    let key = Key::from(key);
    let check = Check::new(meter, &key, verb, 1).expect("a cost of one fits");
    let mut verdict = Verdict::default();
    store.decide_one_now(check, &mut verdict).expect("the memory store answers");
    verdict.allowed
}

fn charge_both(store: &MemoryStore, first: &Meter, second: &Meter, key: &str) -> bool {
    let key = Key::from(key);
    let check = |meter| Check::new(meter, &key, Verb::Charge, 1).expect("a cost of one fits");
    let mut verdicts = [Verdict::default(); 2];
    store.decide_now(&[check(first), check(second)], &mut verdicts).expect("the memory store answers");
    verdicts.iter().all(|verdict| verdict.allowed)
}

/// Runs `work` in two threads and counts how often it said yes.
fn yes_of_two(work: impl Fn(usize) -> bool + Send + Sync + 'static) -> usize {
    let work = Arc::new(work);
    let other = thread::spawn({
        let work = Arc::clone(&work);
        move || work(1)
    });
    let mine = work(0);
    usize::from(mine) + usize::from(other.join().expect("the other thread ends"))
}

#[test]
fn a_locked_line_is_one_threads_own() {
    loom::model(|| {
        let lines = Arc::new(Lines::zeroed(1));
        let increment = |lines: &Lines| {
            let line = LockedLine::lock(lines.line(0));
            for word in [0, 3] {
                line.set(word, line.get(word) + 2);
            }
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lines = Arc::clone(&lines);
                thread::spawn(move || increment(&lines))
            })
            .collect();
        others.into_iter().for_each(|other| other.join().expect("the thread ends"));
        let line = LockedLine::lock(lines.line(0));
        assert_eq!((line.get(0), line.get(3)), (4, 4));
    });
}

#[test]
fn two_threads_never_both_find_a_key_absent() {
    loom::model(|| {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = small_store(&clock, Overflow::Share);
        let meter = meter("one", Limit::per_second(1));
        assert_eq!(yes_of_two(move |_| charge(&store, &meter, "alice")), 1);
    });
}

#[test]
fn wide_states_are_as_safe() {
    loom::model(|| {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = small_store(&clock, Overflow::Share);
        let meter = meter("one", Limit::sliding_counter(1, Duration::from_secs(1)));
        // Makes the table, by a cell that the model checker does not know.
        charge(&store, &meter, "bob");
        assert_eq!(yes_of_two(move |_| charge(&store, &meter, "alice")), 1);
    });
}

#[test]
fn logs_are_as_safe() {
    loom::model(|| {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = small_store(&clock, Overflow::Share);
        let meter = meter("one", Limit::sliding_log(1, Duration::from_secs(1)));
        charge(&store, &meter, "bob");
        assert_eq!(yes_of_two(move |_| charge(&store, &meter, "alice")), 1);
    });
}

#[test]
fn keys_of_crossed_lines_never_deadlock() {
    // Twelve keys in four lines of four: among them are pairs whose first and
    // second lines are each other's.
    for pair in [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"], ["i", "j"], ["k", "l"]] {
        loom::model(move || {
            let clock = ManualClock::at(Micros::new(1_000_000));
            let store = small_store(&clock, Overflow::Share);
            let meter = meter("one", Limit::per_second(1));
            assert_eq!(yes_of_two(move |thread| charge(&store, &meter, pair[thread])), 2);
        });
    }
}

#[test]
fn several_limits_are_charged_together_or_not_at_all() {
    loom::model(|| {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = Arc::new(small_store(&clock, Overflow::Share));
        let (tight, loose) = (meter("tight", Limit::per_second(1)), meter("loose", Limit::per_second(2)));
        let yes = {
            let (store, tight, loose) = (Arc::clone(&store), Arc::clone(&tight), Arc::clone(&loose));
            // The two name the limits in opposite order.
            yes_of_two(move |thread| match thread {
                0 => charge_both(&store, &tight, &loose, "alice"),
                _ => charge_both(&store, &loose, &tight, "alice"),
            })
        };
        assert_eq!(yes, 1);
        assert!(charge(&store, &loose, "alice"), "the refused one has not charged the loose limit");
        assert!(!charge(&store, &loose, "alice"));
    });
}

#[test]
fn a_slot_changes_hands_without_mixing_states() {
    let mut model = loom::model::Builder::new();
    model.max_branches = 10_000;
    model.check(|| {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = Arc::new(small_store(&clock, Overflow::Refuse));
        let meter = meter("one", Limit::per_second(1));
        // Every slot is taken by a key whose time comes at two seconds.
        let old: Vec<String> = (0..16).map(|number| format!("old {number}")).collect();
        let seated = old.iter().filter(|key| charge(&store, &meter, key)).count();
        assert!(seated > 8, "most found a slot");
        clock.set(Micros::new(2_000_000));
        let yes = {
            let (store, meter) = (Arc::clone(&store), Arc::clone(&meter));
            yes_of_two(move |thread| charge(&store, &meter, ["new", "old 3"][thread]))
        };
        assert_eq!(yes, 2);
        assert!(!charge(&store, &meter, "new") && !charge(&store, &meter, "old 3"), "each was charged once");
    });
}

#[test]
fn a_refusal_without_the_lock_knows_of_every_refund_before_it() {
    loom::model(|| {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = small_store(&clock, Overflow::Share);
        let meter = meter("one", Limit::per_second(1));
        assert!(charge(&store, &meter, "alice"));
        assert!(!charge(&store, &meter, "alice"), "from now on a glance is worth it");
        let yes = yes_of_two(move |thread| {
            if thread == 0 {
                ask(&store, &meter, Verb::Refund, "alice");
            }
            charge(&store, &meter, "alice")
        });
        assert_eq!(yes, 1);
    });
}

#[test]
fn a_lock_free_read_never_returns_another_keys_state() {
    // Five keys of one line, which has four slots: the slot of the first goes
    // to the last and back to the first, whose state differs from before.
    for first in 1..=4 {
        loom::model(move || {
            let table = Arc::new(Table::<1>::new(1, Overflow::Refuse, false));
            let until = |micros: u64| micros << FRACTION_BITS;
            let put = move |table: &Table<1>, now: u64, key: u64, micros: u64| {
                let (home, now) = (table.home(key), Micros::new(now));
                assert!(table.enter(home, now, None, [until(micros)]).is_ok(), "the test makes room");
            };
            for key in 1..=4 {
                put(&table, 1, key, if key == first { 10 } else { 100 });
            }
            let glancing = thread::spawn({
                let table = Arc::clone(&table);
                move || table.glance(table.reach(first))
            });
            put(&table, 20, 5, 30);
            put(&table, 40, first, 50);
            let seen = glancing.join().expect("the thread ends");
            assert!(seen.is_none_or(|[state]| state == until(10) || state == until(50)), "{seen:?}");
            assert_eq!(table.glance(table.reach(first)), Some([until(50)]), "the slot went back");
        });
    }
}
