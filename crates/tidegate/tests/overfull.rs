//! A store that is far too small for its keys: what it decides itself, it
//! decides like one that is large enough, and what it cannot, it says.
//!
//! Sixty keys under five limits ask for sixteen slots of one word, eight of
//! three and twenty on the heap, so keys come and go, move and wait, at every
//! step. The large store is asked for nothing that the small one withheld.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Meter};
use tidegate::{Key, Limit, ManualClock, MemoryStore, Micros, Name, Overflow};
use tidegate_testkit::Random;

const START: Micros = Micros::new(1_700_000_000_000_000);
const KEYS: u64 = 60;
const STEPS: usize = if cfg!(miri) { 200 } else { 6_000 };

struct Pair {
    clock: ManualClock,
    small: MemoryStore,
    large: MemoryStore,
    meters: Vec<Meter>,
    /// What is asked, each as often as it is named.
    verbs: &'static [Verb],
    random: Random,
    /// Answers of the small store that were its overflow policy's.
    degraded: u64,
}

fn meters() -> Vec<Meter> {
    let minute = Duration::from_secs(60);
    let meter = |name, limit| Meter::new(Name::literal(name), limit);
    vec![
        meter("bucket", Limit::per_minute(7)),
        meter("wide bucket", Limit::token_bucket(999_983, minute).burst(5)),
        meter("window", Limit::fixed_window(6, minute)),
        meter("counter", Limit::sliding_counter(6, minute)),
        meter("log", Limit::sliding_log(6, minute)),
    ]
}

const LOOKS_AND_CHARGES: &[Verb] = &[Verb::Peek, Verb::Charge, Verb::Charge, Verb::Charge, Verb::Charge];
const ALL_VERBS: &[Verb] =
    &[Verb::Peek, Verb::Charge, Verb::Charge, Verb::Charge, Verb::Charge, Verb::Refund, Verb::Reset];

impl Pair {
    fn new(overflow: Overflow, verbs: &'static [Verb]) -> Pair {
        let clock = ManualClock::at(START);
        let store = |keys| {
            let builder = MemoryStore::builder().max_keys(keys).overflow(overflow).list_keys().clock(clock.clone());
            builder.build().expect("valid settings")
        };
        let (small, large) = (store(1), store(20_000));
        Pair { small, large, clock, meters: meters(), verbs, random: Random::new(7), degraded: 0 }
    }

    /// Lets some time go by, or none, or so much that all is forgotten.
    fn wait(&mut self) {
        let micros = match self.random.within(0..=99) {
            0..=49 => 0,
            50..=98 => self.random.within(0..=4_000_000),
            _ => 200_000_000,
        };
        self.clock.advance(Duration::from_micros(micros));
    }

    /// One limit, or a few different ones.
    fn choose_meters(&mut self) -> Vec<usize> {
        let mut chosen: Vec<usize> = (0..self.meters.len()).collect();
        let most = if self.random.percent(50) { 1 } else { 3 };
        while chosen.len() > most {
            let index = self.random.within(0..=chosen.len() as u64 - 1) as usize;
            chosen.swap_remove(index);
        }
        chosen
    }

    fn step(&mut self, judge: impl Fn(&mut Pair, &[Check<'_>], &[Verdict])) {
        self.wait();
        let key = Key::from(self.random.within(1..=KEYS));
        let (verb, chosen, meters) = (self.random.choose(self.verbs), self.choose_meters(), self.meters.clone());
        // A check of cost 0 is still part of the slice.
        let check = |index| Check::new(&meters[index], &key, verb, self.random.within(0..=3)).expect("a small cost");
        let checks: Vec<Check<'_>> = chosen.into_iter().map(check).collect();
        let verdicts = decide(&self.small, &checks);
        self.degraded += verdicts.iter().filter(|verdict| verdict.degraded).count() as u64;
        judge(self, &checks, &verdicts);
    }

    fn listed(&self, store: &MemoryStore) -> Vec<(String, String)> {
        let text = |key: &Key<'_>| String::from_utf8_lossy(key.as_bytes()).into_owned();
        let mut keys: Vec<_> = store.keys().iter().map(|(rule, key)| (rule.to_string(), text(key))).collect();
        keys.sort_unstable();
        keys
    }
}

fn decide(store: &MemoryStore, checks: &[Check<'_>]) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    store.decide_now(checks, &mut verdicts).expect("the memory store answers");
    verdicts
}

fn charge<'a>(meter: &'a Meter, key: &'a Key<'a>) -> Check<'a> {
    Check::new(meter, key, Verb::Charge, 1).expect("a cost of one")
}

/// What the large store says to the checks that the small one found room for.
fn compare<'a>(pair: &mut Pair, checks: &[Check<'a>], verdicts: &[Verdict]) {
    let found_room = |(check, verdict): (&Check<'a>, &Verdict)| (!verdict.degraded).then_some((*check, *verdict));
    let (mut own, own_verdicts): (Vec<_>, Vec<_>) = checks.iter().zip(verdicts).filter_map(found_room).unzip();
    let is_withheld =
        |(check, verdict): (&Check<'_>, &Verdict)| check.verb() == Verb::Charge && verdict.degraded && !verdict.allowed;
    if checks.iter().zip(verdicts).any(is_withheld) {
        // None is carried out, and the others say what they would have said.
        own = own.iter().map(Check::as_peek).collect();
    }
    assert_eq!(own_verdicts, decide(&pair.large, &own), "{checks:?}");
    for verdict in verdicts.iter().filter(|verdict| verdict.degraded) {
        assert_eq!((verdict.retry_after, verdict.delay), (verdict.reset_after, Micros::ZERO));
    }
}

fn compare_all(overflow: Overflow) {
    let mut pair = Pair::new(overflow, ALL_VERBS);
    let mut most = 0;
    for step in 0..STEPS {
        pair.step(compare);
        if step % 100 == 0 {
            let listed = pair.listed(&pair.small);
            assert_eq!(listed, pair.listed(&pair.large), "each key is there once, under its own name");
            assert_eq!(pair.small.count_keys(), listed.len());
            assert_eq!(pair.small.overflowed(), pair.degraded);
            most = most.max(listed.len());
        }
    }
    assert_eq!(pair.large.overflowed(), 0, "the large store has room for all");
    assert!(pair.degraded > 100 || cfg!(miri), "the small one has not: {}", pair.degraded);
    assert!((20..=44).contains(&most) || cfg!(miri), "of 44 slots, {most} were in use at most");
}

#[test]
fn overflow_refuse_charges_no_state_and_affects_no_other_key() {
    compare_all(Overflow::Refuse);
}

#[test]
fn overflow_allow_charges_no_state_and_affects_no_other_key() {
    compare_all(Overflow::Allow);
}

#[test]
fn keys_that_share_a_slot_get_no_more_than_alone() {
    let mut pair = Pair::new(Overflow::Share, LOOKS_AND_CHARGES);
    for _ in 0..STEPS {
        pair.step(|pair, checks, verdicts| {
            let peeks: Vec<Check<'_>> = checks.iter().map(Check::as_peek).collect();
            let is_allowed = verdicts.iter().all(|verdict| verdict.allowed);
            let alone = decide(&pair.large, if is_allowed { checks } else { &peeks });
            for (verdict, alone) in verdicts.iter().zip(alone) {
                assert!(alone.allowed || !verdict.allowed, "{checks:?}: {verdict:?}, but alone {alone:?}");
                assert!(alone.remaining >= verdict.remaining, "{checks:?}: {verdict:?}, but alone {alone:?}");
            }
        });
    }
    assert_eq!(pair.degraded, 0, "a shared state is a limit's own answer");
    assert!(pair.small.overflowed() > 100 || cfg!(miri), "{} found no room", pair.small.overflowed());
}

#[test]
fn a_key_that_gets_a_slot_keeps_what_it_used_of_a_shared_one() {
    let (second, minute, hour) = (Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(3_600));
    let all: [fn(u64, Duration) -> Limit; 3] = [Limit::token_bucket, Limit::sliding_counter, Limit::sliding_log];
    for make in all {
        let meter = |name, limit| Meter::new(Name::literal(name), limit);
        let (crowd, own) = (meter("crowd", make(3, second)), meter("own", make(3, minute)));
        let closed = meter("closed", Limit::sliding_log(1, hour));
        let clock = ManualClock::at(START);
        let store = MemoryStore::builder().max_keys(1).clock(clock.clone()).build().expect("valid settings");
        for key in 1_000..1_200_u64 {
            decide(&store, &[charge(&crowd, &Key::from(key))]);
        }
        // Keys that shared a slot may have got less.
        let has_used_all = |name: &Key<'_>| (0..3).all(|_| decide(&store, &[charge(&own, name)])[0].allowed);
        let names: Vec<Key<'_>> = (0..40_u64).map(Key::from).filter(has_used_all).collect();
        names.iter().for_each(|name| drop(decide(&store, &[charge(&closed, name)])));
        assert!(names.len() > 20 && store.overflowed() > 20);
        // The crowd has gone.
        clock.advance(5 * second);
        for name in &names {
            let both = decide(&store, &[charge(&own, name), charge(&closed, name)]);
            assert!(!both[0].allowed, "{own:?} of {name}: {both:?}");
            assert!(!decide(&store, &[charge(&own, name)])[0].allowed, "{own:?} of {name} was used up");
            let refund = |meter| Check::new(meter, name, Verb::Refund, 1).expect("a cost of one");
            decide(&store, &[refund(&own), refund(&closed)]);
            assert!(decide(&store, &[charge(&own, name)])[0].allowed, "{own:?} of {name} was given back");
        }
    }
}

#[test]
fn eviction_resets_the_oldest_key_and_no_other() {
    let mut pair = Pair::new(Overflow::EvictOldest, LOOKS_AND_CHARGES);
    // Of a sliding counter two states can look alike and differ later.
    pair.meters.retain(|meter| meter.name() != "counter");
    let mut started_anew = 0;
    for _ in 0..STEPS {
        pair.clock.advance(Duration::from_millis(pair.random.within(0..=100)));
        let (meter, key) = (pair.random.choose(&[0, 1, 2, 3]), Key::from(pair.random.within(1..=KEYS / 3)));
        let check = charge(&pair.meters[meter], &key);
        let verdict = decide(&pair.small, &[check]);
        if verdict != decide(&pair.large, &[check]) {
            started_anew += 1;
            let reset = Check::new(check.meter(), &key, Verb::Reset, 0).expect("no cost");
            decide(&pair.large, &[reset]);
            assert_eq!(verdict, decide(&pair.large, &[check]), "as if never seen");
        }
    }
    let evicted = pair.small.overflowed();
    assert!(started_anew > 100 || cfg!(miri), "{started_anew} of {evicted}");
    assert!(started_anew <= evicted, "{started_anew} have started anew, {evicted} made room");
}

#[test]
fn limits_of_one_check_take_no_slot_from_each_other() {
    let (short, long) = (Limit::per_second(2), Limit::per_hour(2));
    for limits in [
        [short, long],
        [Limit::sliding_counter(2, Duration::from_secs(1)), Limit::sliding_counter(2, Duration::from_secs(3_600))],
        [Limit::sliding_log(2, Duration::from_secs(1)), Limit::sliding_log(2, Duration::from_secs(3_600))],
    ] {
        let [short, long] = limits.map(|limit| Meter::new(Name::literal("limit"), limit));
        for _ in 0..if cfg!(miri) { 2 } else { 50 } {
            let clock = ManualClock::at(START);
            let builder = MemoryStore::builder().max_keys(1).overflow(Overflow::Refuse).clock(clock.clone());
            let store = builder.build().expect("valid settings");
            let alice = Key::from("alice");
            decide(&store, &[charge(&short, &alice)]);
            for stranger in 1..=KEYS {
                decide(&store, &[charge(&long, &Key::from(stranger))]);
            }
            // Her slot is the only free one now, if she has one.
            clock.advance(Duration::from_secs(2));
            let both = decide(&store, &[charge(&short, &alice), charge(&long, &alice)]);
            assert!(both.iter().any(|verdict| verdict.degraded), "there is room for one of two");
            let left = decide(&store, &[charge(&short, &alice).as_peek()])[0].remaining;
            assert_eq!(left, 2, "neither was charged");
        }
    }
}

#[test]
fn a_refund_for_an_unknown_key_evicts_nothing() {
    for overflow in [Overflow::EvictOldest, Overflow::Refuse] {
        let clock = ManualClock::at(START);
        let store = MemoryStore::builder().max_keys(1).overflow(overflow).clock(clock).build().expect("valid settings");
        let meters = meters();
        let ask = |key: &Key<'_>, verb| {
            let check = |meter| Check::new(meter, key, verb, 1).expect("a cost of one");
            let checks: Vec<Check<'_>> = meters.iter().map(check).collect();
            let mut verdicts = vec![Verdict::default(); checks.len()];
            store.decide_now(&checks, &mut verdicts).expect("the memory store answers");
            verdicts
        };
        let ask_singly = |key: &Key<'_>, verb| {
            let check = |meter| Check::new(meter, key, verb, 1).expect("a cost of one");
            meters.iter().map(|meter| decide(&store, &[check(meter)])[0]).collect::<Vec<_>>()
        };
        let known = (0..100_u64).map(Key::from).filter(|key| ask(key, Verb::Charge).iter().all(|v| !v.degraded));
        let known: Vec<Key<'_>> = known.collect();
        let (overflowed, keys) = (store.overflowed(), store.count_keys());
        for stranger in 1_000..1_200_u64 {
            for verb in [Verb::Refund, Verb::Reset] {
                let stranger = Key::from(stranger);
                for verdicts in [ask(&stranger, verb), ask_singly(&stranger, verb)] {
                    assert!(verdicts.iter().all(|verdict| verdict.allowed && !verdict.degraded), "{overflow:?}");
                }
            }
        }
        assert!(!known.is_empty());
        assert_eq!((store.overflowed(), store.count_keys()), (overflowed, keys), "{overflow:?}");
    }
}
