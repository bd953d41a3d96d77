//! A table by itself: where keys are stored, which key is evicted, and what is
//! remembered of those that were forgotten.

use super::*;
use crate::name::Name;
use crate::request::Key;

/// Four lines, the fewest there are.
fn small<const STATE: usize>(overflow: Overflow) -> Table<STATE> {
    Table::new(1, overflow, false)
}

/// A key of a table of four lines: the upper bits of a fingerprint say in
/// which of them it is at home, the lowest how far it is to the other one
/// (1 or 3).
fn key(home: u64, distance: u64, number: u64) -> u64 {
    home << 62 | number << 2 | distance
}

/// A state that matters until `micros`, and whose other words tell it apart.
fn state<const STATE: usize>(fingerprint: u64, micros: u64) -> [u64; STATE] {
    let mut state = [fingerprint; STATE];
    state[0] = micros << FRACTION_BITS;
    state
}

impl<const STATE: usize> Table<STATE> {
    /// Gives a key a state until `micros`; or says when there will be room.
    fn put(&self, now: u64, fingerprint: u64, micros: u64) -> Result<(), u64> {
        self.put_words(now, fingerprint, state(fingerprint, micros), None)
    }

    fn put_words(&self, now: u64, fingerprint: u64, state: [u64; STATE], label: Option<Label<'_>>) -> Result<(), u64> {
        let (home, now) = (self.home(fingerprint), Micros::new(now));
        self.enter(home, now, label, state).map_err(|full| full.until.get())
    }

    /// The state of a key, which is zero if it has none.
    fn state_of(&self, now: u64, fingerprint: u64) -> [u64; STATE] {
        match self.look_up(self.home(fingerprint), Micros::new(now)) {
            Found::Slot(line, slot) => Self::read(&line, slot),
            Found::Free(..) | Found::Absent => [0; STATE],
        }
    }

    fn assert_holds(&self, now: u64, keys: &[(u64, u64)]) {
        for (fingerprint, micros) in keys {
            assert_eq!(self.state_of(now, *fingerprint), state(*fingerprint, *micros), "{fingerprint:x}");
        }
        let mut listed = Vec::new();
        self.for_each(Micros::new(now), |fingerprint, state, _| listed.push((fingerprint, state[0] >> FRACTION_BITS)));
        let mut keys = keys.to_vec();
        listed.sort_unstable();
        keys.sort_unstable();
        assert_eq!(listed, keys, "each is there once, and no other");
    }

    fn sends_away(&self, line: usize) -> bool {
        Self::has_sent_away(&self.lock(line))
    }

    /// Fills a line with keys that could only sit in it and `distance` on.
    fn fill(&self, now: u64, line: u64, distance: u64, micros: u64) -> Vec<(u64, u64)> {
        let keys = (0..Self::SLOTS as u64).map(|number| (key(line, distance, 100 + number), micros));
        keys.inspect(|(key, micros)| self.put(now, *key, *micros).expect("there is room")).collect()
    }
}

#[test]
fn a_key_costs_22_bytes_and_a_wide_one_64() {
    let bytes = |lines: usize, keys: usize| lines * size_of::<[u64; WORDS]>() / keys;
    for keys in [2_048, 204_800] {
        let narrow = Table::<1>::new(keys, Overflow::Share, false);
        assert_eq!(bytes(narrow.lines.count(), keys), 22);
        let wide = Table::<3>::new(keys, Overflow::Share, false);
        assert_eq!(bytes(wide.lines.count(), keys), 64);
    }
    let lines = |keys| Table::<1>::new(keys, Overflow::Share, false).lines.count();
    assert_eq!([187, 188].map(lines), [64, 128], "a part of a line is a line, and of a block a block");
    assert_eq!(small::<1>(Overflow::Share).lines.count(), 4);
    assert_eq!(small::<3>(Overflow::Share).lines.count(), 4);
}

#[test]
fn a_key_has_two_lines_and_either_tells_its_fingerprint() {
    for lines in [4, 8, 64, 192, 1_024] {
        let table = Table::<1>::with_lines(lines, Overflow::Share, false);
        assert_eq!(table.lines.count(), lines);
        let mut homes = vec![0; lines];
        let mut fingerprint = 1_u64;
        for _ in 0..if cfg!(miri) { 20 } else { 100 * lines } {
            fingerprint = fingerprint.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let home = table.home(fingerprint);
            let away = table.other(home);
            homes[home.line] += 1;
            assert_ne!(away.line, home.line);
            assert_eq!(away.line / lines.min(64), home.line / lines.min(64), "in one page of memory");
            assert_eq!((home.tag & 3, away.tag & 3), (0, AWAY));
            assert!(table.other(away) == home, "the other of the other is the first");
            assert_eq!([table.fingerprint(home), table.fingerprint(away)], [fingerprint; 2]);
        }
        assert!(cfg!(miri) || homes.iter().all(|keys| (50..=150).contains(keys)), "evenly spread: {homes:?}");
    }
    assert_eq!(Table::<1>::with_lines(65, Overflow::Share, false).lines.count(), 128, "blocks are whole");
}

#[test]
fn a_state_matters_until_its_time_has_come() {
    let table = small::<1>(Overflow::Share);
    table.put(1, key(0, 1, 1), 100).expect("there is room");
    table.assert_holds(99, &[(key(0, 1, 1), 100)]);
    table.assert_holds(100, &[]);
}

fn a_full_line_sends_newcomers_to_their_other_line<const STATE: usize>() {
    let table = small::<STATE>(Overflow::Refuse);
    let mut keys = table.fill(1, 2, 3, 100);
    assert!(!table.sends_away(2), "no key is in its other line");
    let newcomer = key(2, 3, 1);
    table.put(1, newcomer, 200).expect("there is room in the other line");
    assert_eq!((table.sends_away(2), table.sends_away(1)), (true, false));
    keys.push((newcomer, 200));
    table.assert_holds(1, &keys);
    // Its home line has room again, and it is found all the same.
    table.assert_holds(100, &[(newcomer, 200)]);
    table.put(100, newcomer, 300).expect("it has a slot");
    table.assert_holds(100, &[(newcomer, 300)]);
}

#[test]
fn a_new_key_gets_a_slot_in_either_line() {
    a_full_line_sends_newcomers_to_their_other_line::<1>();
    a_full_line_sends_newcomers_to_their_other_line::<3>();
}

/// Lines 0 and 1 are full; in the line `from` sits a key that could sit in
/// line 3 or 2 as well.
fn moves_for_a_newcomer<const STATE: usize>(from: u64) {
    let table = small::<STATE>(Overflow::Refuse);
    let movable = key(from, 3, 1);
    table.put(1, movable, 200).expect("there is room");
    let mut keys = vec![(movable, 200)];
    for line in [0, 1] {
        for number in (0..4).take_while(|_| !table.is_full(line as usize)) {
            let settled = key(line, 1, 10 + number);
            table.put(1, settled, 100).expect("there is room");
            keys.push((settled, 100));
        }
    }
    let newcomer = key(0, 1, 2);
    table.put(1, newcomer, 300).expect("one can move");
    keys.push((newcomer, 300));
    table.assert_holds(1, &keys);
    assert!(table.is_full(from as usize), "who moved has made room for one");
    // When those that stayed are forgotten, neither of the two is lost.
    table.assert_holds(100, &[(movable, 200), (newcomer, 300)]);
    table.assert_holds(200, &[(newcomer, 300)]);
}

impl<const STATE: usize> Table<STATE> {
    fn is_full(&self, line: usize) -> bool {
        Self::oldest(&self.lock(line)).1 > 0
    }
}

#[test]
fn a_key_moves_to_its_other_line_to_make_room() {
    for from in [0, 1] {
        moves_for_a_newcomer::<1>(from);
        moves_for_a_newcomer::<3>(from);
    }
}

#[test]
fn a_key_moves_back_home_to_make_room() {
    let table = small::<1>(Overflow::Refuse);
    table.fill(1, 3, 3, 50);
    let movable = key(3, 3, 1);
    table.put(1, movable, 400).expect("there is room in line 0");
    for number in 0..7 {
        table.put(60, key(0, 1, 10 + number), 100).expect("there is room");
    }
    let newcomer = key(1, 1, 2);
    table.put(60, newcomer, 300).expect("one can move home");
    table.assert_holds(100, &[(movable, 400), (newcomer, 300)]);
    assert!(LockedLine::lock(table.lines.line(3)).get(0) != 0);
    assert_eq!(table.glance(table.reach(movable)), Some(state(movable, 400)), "it sits at home");
}

#[test]
fn no_key_moves_to_a_locked_or_full_line() {
    let table = small::<1>(Overflow::Refuse);
    table.put(1, key(0, 3, 1), 200).expect("there is room");
    for number in 0..7 {
        table.put(1, key(0, 1, 10 + number), 100 + number).expect("there is room");
    }
    let busy = table.lock(3);
    assert_eq!(table.put(1, key(0, 1, 2), 300), Err(100));
    drop(busy);
    table.fill(1, 3, 1, 2);
    assert_eq!(table.put(1, key(0, 1, 2), 300), Err(100), "the other line is full too");
    table.put(2, key(0, 1, 2), 300).expect("from then on it is not");
    table.assert_holds(150, &[(key(0, 1, 2), 300), (key(0, 3, 1), 200)]);
}

#[test]
fn retry_after_of_a_key_without_a_slot_is_when_the_first_becomes_free() {
    for (word, free_at) in [(50 << FRACTION_BITS, 50), (50 << FRACTION_BITS | 1, 51), (50 << FRACTION_BITS | 2_047, 51)]
    {
        for line in [0, 1] {
            let table = small::<1>(Overflow::Refuse);
            let _ = [0, 1].map(|full| table.fill(1, full, 1, if full == line { 99 } else { 100 }));
            let soonest = key(line, 1, 102);
            table.put_words(1, soonest, [word], None).expect("it has a slot");
            let newcomer = key(0, 1, 1);
            assert_eq!(table.put(1, newcomer, 300), Err(free_at));
            assert_eq!(table.put(free_at - 1, newcomer, 300), Err(free_at));
            assert_eq!(table.put(free_at, newcomer, 300), Ok(()));
            assert_eq!(table.state_of(free_at, newcomer), state(newcomer, 300));
            assert_eq!(table.evicted(), 0);
        }
    }
}

#[test]
fn the_soonest_to_be_forgotten_of_both_lines_makes_room() {
    for line in [0, 1] {
        let table = small::<1>(Overflow::EvictOldest);
        let mut keys = [0, 1].map(|full| table.fill(1, full, 1, 100)).concat();
        let soonest = key(line, 1, 102);
        table.put(1, soonest, 50).expect("it has a slot");
        let newcomer = key(0, 1, 1);
        table.put(1, newcomer, 300).expect("a key is evicted");
        assert_eq!(table.evicted(), 1);
        assert_eq!(table.state_of(1, soonest), [0]);
        keys.retain(|(key, _)| *key != soonest);
        keys.push((newcomer, 300));
        table.assert_holds(1, &keys);
        assert_eq!(table.recall(table.home(newcomer), Micros::new(1)), Micros::new(1), "nothing was forgotten in time");
        table.assert_holds(100, &[(newcomer, 300)]);
    }
}

#[test]
fn nothing_is_taken_back_of_what_was_forgotten() {
    let now = 10_000_000_000;
    for line in [0, 1] {
        let table = small::<1>(Overflow::Refuse);
        let recalled =
            |home: u64, distance: u64, at: u64| table.recall(table.home(key(home, distance, 1)), Micros::new(at)).get();
        for number in 0..4 {
            let word = now << FRACTION_BITS | number;
            table.put_words(1, key(line, 1, number), [word], None).expect("there is room");
        }
        assert_eq!(recalled(line, 1, 1), 1, "nothing is forgotten yet");
        table.put(now + 1, key(line, 1, 10), now + 100).expect("there is room");
        assert_eq!(recalled(line, 1, now - 10), now, "the first mattered until then");
        table.put(now + 1, key(line, 1, 11), now + 100).expect("there is room");
        let latest = now + 1;
        for (home, distance) in [(line, 1), (line, 3), (line ^ 1, 1), (line ^ 3, 3)] {
            let recalled = |at| recalled(home, distance, at);
            assert_eq!(recalled(latest - 1), latest, "the second, a fraction longer");
            assert_eq!(recalled(latest), latest);
            assert_eq!(recalled(latest + 1), latest + 1, "time has gone on");
            assert_eq!(recalled(latest - MAX_CLOCK_STEP_BACK), latest);
            assert_eq!(
                recalled(latest - MAX_CLOCK_STEP_BACK - 1),
                latest - MAX_CLOCK_STEP_BACK - 1,
                "a clock that was set"
            );
        }
        assert_eq!(recalled(line ^ 2, 1, latest - 1), latest - 1, "neither of its lines has forgotten anything");
    }
}

#[test]
fn after_a_clock_step_back_no_live_slot_is_reused() {
    let table = small::<1>(Overflow::Refuse);
    table.fill(1, 0, 1, 1_000);
    table.put(1_000, key(0, 1, 1), 2_000).expect("there is room");
    let (used, newcomer) = (key(0, 1, 2), key(0, 1, 3));
    table.put(500, used, 600).expect("there is room in the other line");
    table.put(501, newcomer, 700).expect("there is room in the other line");
    for (key, until) in [(used, 600), (newcomer, 700)] {
        assert_eq!(table.state_of(501, key), state(key, until));
    }
}

#[test]
fn the_latest_expiry_of_overwritten_states_is_kept() {
    let table = small::<1>(Overflow::Refuse);
    table.fill(1, 0, 1, 100);
    table.fill(1, 1, 1, 50);
    // Both lines give up slots, first the one that mattered longer.
    for (line, until) in [(0, 100), (1, 50)] {
        table.put(100, key(line, 1, 1), 200).expect("there is room");
        assert_eq!(table.stripe(line as usize).forgotten.load(Ordering::Relaxed), until);
    }
    assert_eq!(table.recall(table.home(key(1, 1, 2)), Micros::new(20)), Micros::new(100));
    table.put(100, key(0, 1, 2), 200).expect("there is room");
    assert_eq!(table.stripe(0).forgotten.load(Ordering::Relaxed), 100);
}

#[test]
fn a_glance_sees_the_state_of_a_key_at_home_and_nothing_of_others() {
    let table = small::<1>(Overflow::Refuse);
    let keys = table.fill(1, 0, 1, 100);
    let away = key(0, 1, 1);
    table.put(1, away, 100).expect("there is room in the other line");
    let glance = |fingerprint| table.glance(table.reach(fingerprint));
    for (key, until) in keys {
        assert_eq!(glance(key), Some(state(key, until)));
    }
    assert_eq!(glance(away), None);
    assert_eq!(glance(key(0, 1, 2)), None);
    let busy = table.lock(0);
    assert_eq!(glance(key(0, 1, 100)), None);
    drop(busy);
    assert!(glance(key(0, 1, 100)).is_some());
}

#[test]
fn every_reused_slot_is_counted_for_lock_free_reads() {
    let table = small::<1>(Overflow::EvictOldest);
    let taken = |line: usize| table.stripe(line).taken.load(Ordering::Relaxed);
    table.fill(1, 0, 1, 100);
    assert_eq!([taken(0), taken(1)], [4, 0]);
    table.put(1, key(0, 1, 100), 200).expect("it has a slot");
    assert_eq!([taken(0), taken(1)], [4, 0], "a key's own slot is not given away");
    table.put(1, key(0, 1, 1), 200).expect("there is room in the other line");
    assert_eq!([taken(0), taken(1)], [4, 1]);
}

#[test]
fn whether_the_latest_charge_was_refused_is_no_part_of_a_tag() {
    let table = small::<1>(Overflow::Refuse);
    let keys = table.fill(1, 0, 1, 100);
    for refused in [true, true, false, false, true] {
        Table::note_refused(&table.lock(0), refused);
        assert_eq!(Table::has_refused(table.lines.line(0)), refused);
        assert!(!Table::has_refused(table.lines.line(1)));
        table.assert_holds(1, &keys);
    }
    // Nor does it go with the slot.
    table.put(100, key(0, 1, 1), 200).expect("there is room");
    assert!(Table::has_refused(table.lines.line(0)));
}

#[test]
fn a_name_moves_with_its_key() {
    let table = Table::<1>::new(1, Overflow::EvictOldest, true);
    let rule = Name::literal("rule");
    let names: Vec<Key<'_>> = (0..40_u64).map(Key::from).collect();
    let mut listed = 0;
    for (number, name) in names.iter().enumerate() {
        let fingerprint = key(number as u64 % 4, 1 + number as u64 / 4 % 2 * 2, number as u64);
        let state = state(fingerprint, 100 + number as u64);
        table.put_words(1, fingerprint, state, Some((&rule, name))).expect("another key makes room");
        listed = 0;
        table.for_each(Micros::new(1), |fingerprint, _, label| {
            let number = fingerprint << 2 >> 4;
            assert_eq!(label, Some((rule.clone(), names[number as usize].clone())));
            listed += 1;
        });
    }
    assert_eq!(listed, 16, "every slot is in use");
}

#[test]
fn a_key_that_moves_while_all_are_visited_is_visited_once() {
    let table = small::<1>(Overflow::Refuse);
    let (watched, movable) = (key(1, 1, 1), key(3, 3, 1));
    for settled in [watched, movable] {
        table.put(1, settled, 200).expect("there is room");
    }
    table.fill(1, 2, 1, 100);
    for number in 0..3 {
        table.put(1, key(3, 1, 10 + number), 100).expect("there is room");
    }
    let mut visited = Vec::new();
    table.for_each(Micros::new(1), |fingerprint, _, _| {
        if fingerprint == watched {
            table.put(1, key(2, 1, 1), 300).expect("one can move to the first line");
        }
        visited.push(fingerprint);
    });
    assert_eq!(visited.iter().filter(|fingerprint| **fingerprint == movable).count(), 1);
    assert!(
        table.is_full(2) && table.is_full(3) && Table::<1>::find(&table.lock(0), movable << TAG_SHIFT | AWAY).is_some()
    );
}

/// Looks at a line every millisecond until it was as `is_locked` says for ten
/// times in a row; gives up after minutes.
fn wait_until_it_stays(table: &Table<1>, line: usize, is_locked: bool) -> bool {
    let mut times = 0;
    for _ in 0..300_000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        let is_so = LockedLine::try_lock(table.lines.line(line)).is_none() == is_locked;
        times = if is_so { times + 1 } else { 0 };
        if times == 10 {
            return true;
        }
    }
    false
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn locks_lines_in_order_and_keeps_the_first() {
    for home in [0, 1] {
        let table = small::<1>(Overflow::Refuse);
        table.fill(1, home, 1, 100);
        let newcomer = key(home, 1, 1);
        let busy = table.lock(1 - home as usize);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| table.put(1, newcomer, 200));
            assert!(wait_until_it_stays(&table, home as usize, home == 0), "from line {home}");
            drop(busy);
            assert_eq!(waiting.join().expect("it ends"), Ok(()));
        });
        assert_eq!(table.state_of(1, newcomer), state(newcomer, 200));
    }
}
