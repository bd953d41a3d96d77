//! A limit was changed: what a key used of the old one moves to the new one.
//!
//! It moves when the key is next charged, and in the same step: all states are
//! locked, so no check sees it twice or not at all. A peek sees what would
//! move, and moves nothing.

use super::MemoryStore;
use super::step::{Placement, Step};
use crate::kernel::{self, Kernel, Verb};
use crate::store::{self, Check};
use crate::time::Micros;

/// Whether the limit of a check came in the place of others.
pub(super) fn has_former(check: &Check<'_>) -> bool {
    !check.former().is_empty()
}

impl MemoryStore {
    /// Adds a step for each former limit that still matters.
    pub(super) fn add_former<'a>(&self, checks: &[Check<'a>], steps: &mut Vec<Step<'a>>, now: Micros) {
        for (index, check) in checks.iter().enumerate() {
            for former in check.former().iter().filter(|former| former.until > now) {
                let mut step =
                    self.step(Check { meter: former.meter, verb: Verb::Peek, cost: 0, former: &[], ..*check });
                // One that is asked itself keeps what it has.
                if !steps.iter().any(|other| other.has_same_state(&step)) {
                    step.target = Some(index);
                    steps.push(step);
                }
            }
        }
    }
}

/// Moves what was used of a former limit to its target, one of `steps`.
pub(super) fn take_over(checks: &[Check<'_>], steps: &mut [Step<'_>], from: &mut Step<'_>) {
    let Some((check, to)) = from.target.and_then(|target| Some((checks.get(target)?, steps.get_mut(target)?))) else {
        return;
    };
    // What it used of a shared state cannot be taken from there: it counts once,
    // for a key that has nothing else.
    let is_counted = to.has_used && !matches!(from.placement, Placement::Own);
    if is_counted || matches!(to.placement, Placement::Missing(_)) {
        return;
    }
    let (to_meter, from_meter) = (to.check.meter(), from.check.meter());
    if !kernel::may_write(check.verb(), check.cost()) {
        // Where nothing is left to move there is nothing to look at: a long log is not copied once it has moved.
        if from_meter.kernel().forget_at(from.seen.as_ref().unwrap_or(&from.state)) <= to.at {
            return;
        }
        let mut seen = to_meter.kernel().duplicate(to.seen.as_ref().unwrap_or(&to.state));
        let mut used = from_meter.kernel().duplicate(from.seen.as_ref().unwrap_or(&from.state));
        store::take_over(to_meter, &mut seen, to.at, from_meter, &mut used);
        to.seen = Some(seen);
        return;
    }
    heal(from);
    store::take_over(to_meter, &mut to.state, to.at, from_meter, &mut from.state);
    (to.changed, from.changed) = (true, true);
}

fn heal(from: &mut Step<'_>) {
    if let Some(healed) = from.seen.take() {
        from.state = healed;
    }
}

/// Has what the target gives back begin with what did not fit.
pub(super) fn give_back(checks: &[Check<'_>], steps: &mut [Step<'_>], from: &mut Step<'_>) {
    let Some((check, to)) = from.target.and_then(|target| Some((checks.get(target)?, steps.get_mut(target)?))) else {
        return;
    };
    let (verb, cost) = (to.check.verb(), to.check.cost());
    if verb.may_give_back() && (verb == Verb::Reset || matches!(from.placement, Placement::Own)) {
        heal(from);
        let (meter, state, at) = (from.check.meter(), &mut from.state, from.at);
        let (verb, cost) = match check.settles_first() {
            true => store::settle_former(check, meter, state, at, (verb, cost)),
            false => store::give_back(meter, state, at, verb, cost),
        };
        (to.check.verb, to.check.cost, from.changed) = (verb, cost, true);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::{Admission, Reading, Verdict};
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Key;
    use crate::store::memory::{Overflow, Seeds};
    use crate::store::{Former, ImmediateStore, Meter};
    use crate::time::ManualClock;

    const START: Micros = Micros::new(1_700_000_000_000_000);
    const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);

    fn store(clock: &ManualClock, overflow: Overflow) -> MemoryStore {
        let builder = MemoryStore::builder().max_keys(1).overflow(overflow).clock(clock.clone());
        builder.build_with(Seeds::new(1, 2)).expect("valid settings")
    }

    /// A limit, and the one that it replaced.
    #[derive(Debug)]
    struct Limited {
        meter: Meter,
        replaced: Option<Meter>,
    }

    impl Limited {
        fn new(name: &'static str, limit: Limit) -> Limited {
            Limited { meter: Meter::new(Name::literal(name), limit), replaced: None }
        }

        fn replacing(self, other: &Limited) -> Limited {
            Limited { replaced: Some(other.meter.clone()), ..self }
        }
    }

    fn fill(store: &MemoryStore, limit: Limit) {
        let strangers = Limited::new("strangers", limit);
        (0..100_u64).for_each(|number| drop(ask(store, &[(&strangers, Verb::Charge, 1)], number)));
    }

    /// A limit and the one that replaces it, of every kind.
    fn pairs() -> [[Limited; 2]; 3] {
        let pair = |limits: [Limit; 2]| {
            let [old, new] = limits.map(|limit| Limited::new("limit", limit));
            let new = new.replacing(&old);
            [old, new]
        };
        [
            pair([Limit::per_hour(10), Limit::per_hour(20)]),
            pair([Limit::sliding_counter(10, HOUR), Limit::sliding_counter(20, HOUR)]),
            pair([Limit::sliding_log(10, HOUR), Limit::sliding_log(20, HOUR)]),
        ]
    }

    fn ask<'a>(store: &MemoryStore, checks: &[(&Limited, Verb, u64)], key: impl Into<Key<'a>>) -> Vec<Verdict> {
        let key = key.into();
        let former = |meter| Former { meter, until: START.saturating_add(meter.horizon()) };
        let former: Vec<Vec<Former<'_>>> =
            checks.iter().map(|(limited, ..)| limited.replaced.iter().map(former).collect()).collect();
        let checks = checks.iter().zip(&former).map(|((limited, verb, cost), former)| {
            Check::new(&limited.meter, &key, *verb, *cost).expect("a small cost").with_former(former)
        });
        let checks: Vec<Check<'_>> = checks.collect();
        let mut verdicts = vec![Verdict::default(); checks.len()];
        store.decide_now(&checks, &mut verdicts).expect("the memory store answers");
        verdicts
    }

    fn left(store: &MemoryStore, meter: &Limited) -> u64 {
        ask(store, &[(meter, Verb::Peek, 0)], "alice")[0].remaining
    }

    fn charge(store: &MemoryStore, meter: &Limited, cost: u64) -> Verdict {
        ask(store, &[(meter, Verb::Charge, cost)], "alice")[0]
    }

    #[test]
    fn peek_shows_the_migrated_state_and_a_charge_migrates_it() {
        for [old, new] in &pairs() {
            let store = store(&ManualClock::at(START), Overflow::Share);
            assert!(charge(&store, old, 3).allowed);
            assert_eq!([left(&store, new), left(&store, old)], [17, 7], "nothing has moved");
            assert_eq!(charge(&store, new, 1).remaining, 16);
            assert_eq!([left(&store, new), left(&store, old)], [16, 10], "what has moved is gone from there");
        }
    }

    #[test]
    fn a_batch_takes_over_what_was_used_as_well() {
        for [old, new] in &pairs() {
            let store = store(&ManualClock::at(START), Overflow::Share);
            assert!(charge(&store, old, 3).allowed);
            let key = Key::from("alice");
            let former = [Former { meter: &old.meter, until: START.saturating_add(old.meter.horizon()) }];
            let check =
                |cost| Check::new(&new.meter, &key, Verb::Charge, cost).expect("a small cost").with_former(&former);
            let mut verdicts = [Verdict::default(); 2];
            store.decide_each_now(&[check(18), check(1)], &mut verdicts).expect("the memory store answers");
            assert_eq!(verdicts.map(|verdict| (verdict.allowed, verdict.remaining)), [(false, 17), (true, 16)]);
            let mut admitted = [true, false];
            store.admits_each_now(&[check(17), check(16)], &mut admitted).expect("the memory store answers");
            assert_eq!(admitted, [false, true]);
        }
    }

    /// Counts units for ever, and how often its state is copied, byte by byte.
    #[derive(Default)]
    struct Copied(std::sync::Arc<std::sync::atomic::AtomicU64>);

    impl Kernel for Copied {
        type State = u64;

        fn capacity(&self) -> u64 {
            20
        }

        fn admit(&self, state: &u64, _: Micros, cost: u64) -> Admission {
            if state + cost <= 20 { Admission::PASS } else { Admission::Wait { retry_after: Micros::MAX } }
        }

        fn charge(&self, state: &mut u64, now: Micros, cost: u64) -> Reading {
            *state += cost;
            self.read(state, now)
        }

        fn refund(&self, state: &mut u64, _: Micros, cost: u64) {
            *state -= cost.min(*state);
        }

        fn read(&self, state: &u64, _: Micros) -> Reading {
            Reading { remaining: 20 - state, reset_after: Micros::MAX }
        }

        fn forget_at(&self, _: &u64) -> Micros {
            Micros::MAX
        }

        fn encode(&self, state: &u64, bytes: &mut Vec<u8>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            bytes.extend(state.to_le_bytes());
        }

        fn decode(&self, bytes: &[u8]) -> Option<u64> {
            bytes.try_into().ok().map(u64::from_le_bytes)
        }
    }

    #[test]
    fn a_peek_copies_a_state_only_while_there_is_something_to_move() {
        let copies = std::sync::Arc::default();
        let old = Limited::new("limit", Limit::per_hour(10));
        let meter = Meter::custom(Name::literal("limit"), Copied(std::sync::Arc::clone(&copies)));
        let new = Limited { meter, replaced: None }.replacing(&old);
        let store = store(&ManualClock::at(START), Overflow::Share);
        assert!(charge(&store, &old, 3).allowed);
        let peek = || {
            let before = copies.load(std::sync::atomic::Ordering::Relaxed);
            (left(&store, &new), copies.load(std::sync::atomic::Ordering::Relaxed) > before)
        };
        assert_eq!(peek(), (17, true));
        assert_eq!(charge(&store, &new, 1).remaining, 16);
        assert_eq!(peek(), (16, false));
    }

    /// However many entries the log has: a peek says the same as on a store that moves nothing.
    #[test]
    #[cfg_attr(miri, ignore = "hundreds of entries, and no unsafe code in sight")]
    fn a_peek_of_a_log_that_would_move_says_the_exact_wait() {
        let [old, new] = [300, 299].map(|count| Limited::new("limit", Limit::sliding_log(count, HOUR)));
        let new = new.replacing(&old);
        let clock = ManualClock::at(START);
        let store = store(&clock, Overflow::Share);
        for _ in 0..300 {
            assert!(charge(&store, &old, 1).allowed);
            clock.advance(std::time::Duration::from_secs(1));
        }
        for cost in [1, 2, 63, 64, 65, 150, 298, 299] {
            let seen = ask(&store, &[(&new, Verb::Peek, cost)], "alice")[0];
            // The oldest of 300 does not fit into 299 and stays behind; so the wait is for the next ones.
            let wait = HOUR + std::time::Duration::from_secs(cost) - std::time::Duration::from_secs(300);
            assert_eq!((seen.allowed, seen.retry_after), (false, Micros::from_duration(wait)), "{cost}");
        }
    }

    /// Of a sliding counter less than a unit may count, and move.
    #[test]
    fn a_peek_sees_what_a_charge_would_move_though_less_than_a_unit_counts() {
        let second = std::time::Duration::from_secs(1);
        let [old, new] = [10, 20].map(|count| Limited::new("limit", Limit::sliding_counter(count, second)));
        let new = new.replacing(&old);
        let clock = ManualClock::at(START);
        let store = store(&clock, Overflow::Share);
        assert!(charge(&store, &new, 1).allowed && charge(&store, &old, 9).allowed);
        clock.advance(std::time::Duration::from_millis(1_900));
        let peeked = ask(&store, &[(&new, Verb::Peek, 20)], "alice")[0];
        assert_eq!(peeked, charge(&store, &new, 20));
        assert!(!peeked.allowed && peeked.remaining == 19, "{peeked:?}");
    }

    #[test]
    fn migrated_state_stays_migrated_if_the_charge_is_refused() {
        for [old, new] in &pairs() {
            let store = store(&ManualClock::at(START), Overflow::Share);
            assert!(charge(&store, old, 3).allowed);
            assert!(!charge(&store, new, 18).allowed);
            assert_eq!([left(&store, new), left(&store, old)], [17, 10]);
        }
    }

    #[test]
    fn a_reset_that_is_not_carried_out_forgets_nothing() {
        let closed = Limited::new("closed", Limit::per_hour(1));
        for [old, new] in &pairs() {
            let store = store(&ManualClock::at(START), Overflow::Share);
            assert!(charge(&store, &closed, 1).allowed && charge(&store, old, 3).allowed);
            let withheld = ask(&store, &[(new, Verb::Reset, 0), (&closed, Verb::Charge, 1)], "alice");
            assert_eq!((withheld[0].remaining, withheld[1].allowed), (17, false));
            assert_eq!(left(&store, new), 17, "what was used still counts");
            ask(&store, &[(new, Verb::Reset, 0)], "alice");
            assert_eq!([left(&store, new), left(&store, old)], [20, 10]);
            // Nor what did not fit.
            let [large, small] = [new, old].map(|limited| Limited { meter: limited.meter.clone(), replaced: None });
            let small = small.replacing(&large);
            assert!(charge(&store, &large, 15).allowed);
            ask(&store, &[(&small, Verb::Reset, 0), (&closed, Verb::Charge, 1)], "alice");
            assert_eq!([left(&store, &small), left(&store, &large)], [0, 15]);
        }
    }

    #[test]
    fn a_state_from_the_future_migrates_as_a_full_one() {
        for [old, new] in &pairs() {
            let clock = ManualClock::at(START);
            let store = store(&clock, Overflow::Share);
            assert!(charge(&store, old, 3).allowed);
            clock.set(START.saturating_since(Micros::from_duration(24 * HOUR)));
            assert_eq!(charge(&store, new, 1).remaining, 9);
        }
    }

    #[test]
    fn a_former_limit_that_is_still_asked_keeps_its_state() {
        for [old, new] in &pairs() {
            let store = store(&ManualClock::at(START), Overflow::Share);
            assert!(charge(&store, old, 3).allowed);
            let both = ask(&store, &[(old, Verb::Charge, 1), (new, Verb::Charge, 1)], "alice");
            assert_eq!([both[0].remaining, both[1].remaining], [6, 19]);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "full stores take long there, and others are tried")]
    fn a_key_for_which_there_is_no_room_moves_nothing() {
        for ([old, new], strangers) in
            pairs().iter().zip([Limit::per_hour(1), Limit::fixed_window(3_000, HOUR), Limit::sliding_log(1, HOUR)])
        {
            let store = store(&ManualClock::at(START), Overflow::Refuse);
            assert!(charge(&store, old, 3).allowed);
            fill(&store, strangers);
            assert!(charge(&store, new, 1).degraded);
            assert_eq!(left(&store, old), 7);
            ask(&store, &[(new, Verb::Refund, 1)], "alice");
            assert_eq!(left(&store, old), 8, "but gives back where it was charged");
            let store = self::store(&ManualClock::at(START), Overflow::Allow);
            assert!(charge(&store, old, 3).allowed);
            fill(&store, strangers);
            let refund = ask(&store, &[(new, Verb::Refund, 5)], "alice")[0];
            assert_eq!((refund.remaining, refund.degraded), (18, true), "two of five could not be given back");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "full stores take long there, and others are tried")]
    fn use_of_a_shared_state_migrates_once_while_the_store_is_full() {
        for ([old, new], strangers) in
            pairs().iter().zip([Limit::per_hour(1), Limit::fixed_window(3_000, HOUR), Limit::sliding_log(1, HOUR)])
        {
            let store = store(&ManualClock::at(START), Overflow::Share);
            fill(&store, strangers);
            let before = store.overflowed();
            assert!(charge(&store, old, 10).allowed);
            assert_eq!(left(&store, new), 10, "{new:?}");
            assert_eq!(charge(&store, new, 1).remaining, 9, "{new:?}: what was used of the old one counts");
            assert_eq!(left(&store, new), 9, "{new:?}");
            assert_eq!(charge(&store, new, 1).remaining, 8, "{new:?}: but once");
            assert_eq!(store.overflowed(), before + 3, "there is no room for any of it");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "full stores take long there, and others are tried")]
    fn use_of_a_shared_state_migrates_once_to_a_new_slot() {
        for ([old, new], strangers) in pairs().iter().zip([
            Limit::per_minute(1),
            Limit::fixed_window(3_000, HOUR / 60),
            Limit::sliding_log(1, HOUR / 60),
        ]) {
            let clock = ManualClock::at(START);
            let store = store(&clock, Overflow::Share);
            fill(&store, strangers);
            let before = store.overflowed();
            assert!(charge(&store, old, 10).allowed);
            assert_eq!(store.overflowed(), before + 1, "it has no room of its own");
            clock.advance(HOUR / 30);
            let left = charge(&store, new, 1).remaining;
            assert!((9..=10).contains(&left), "the shared state counts: {left}");
            assert_eq!(charge(&store, new, 1).remaining, left - 1, "but once");
        }
    }
}
