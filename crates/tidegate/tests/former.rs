//! Limits that replace each other at random, beside the oracle: it adds up, in fractions,
//! what is used of each limit.

use std::time::Duration;

use tidegate::store::ImmediateStore;
use tidegate::{
    Clock, Decision, Floor, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, PriorityClasses, Request,
    Reservation, Rule,
};
use tidegate_testkit::{OracleStore, Random};

const START: Micros = Micros::new(1_700_000_000_000_000);

/// Every algorithm, faster and slower, with room for more and for less.
const LIMITS: [&str; 13] = [
    "10/s",
    "7/min burst 20",
    "1000000/week burst 15",
    "leaky 12/s",
    "leaky 40/min queue 9",
    "fixed 11/s",
    "fixed 30/10s",
    "fixed 9/10s from-first",
    "sliding 13/s",
    "sliding 25/10s debt 40",
    "sliding-log 8/s",
    "sliding-log 16/10s",
    "in-flight 12 for 10s",
];

/// In microseconds, to go back by now and then.
const BACK: [u64; 3] = [1, 500, 400_000];

/// In microseconds, to creep and to leap.
const PAUSES: [u64; 8] = [0, 1, 999, 70_001, 250_000, 999_999, 3_000_000, 11_000_000];

fn policy(words: &str) -> Policy {
    let rule = Rule::new("rule", words.parse::<Limit>().expect("a limit"));
    let classes = PriorityClasses::by("class").class("high", Floor::NONE).class("low", Floor::Units(1));
    Policy::new().rule(rule.priority(classes).notify([50, 80, 100]).expect("percents"))
}

/// Of the class of requests that leaves a unit to others, for every third cost.
fn alice(cost: u64) -> Request<'static> {
    Request::new("alice").cost(cost).with("class", if cost % 3 == 0 { "low" } else { "high" })
}

/// What is asked of a limiter.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Check(u64),
    Peek(u64),
    Report(u64),
    Refund(u64),
    Reset,
}

fn does<S: ImmediateStore>(limiter: &Limiter<S>, deed: Deed) -> Decision {
    let done = match deed {
        Deed::Check(cost) => limiter.check(alice(cost)),
        Deed::Peek(cost) => limiter.peek(alice(cost)),
        Deed::Report(cost) => limiter.report(alice(cost)),
        Deed::Refund(cost) => limiter.refund(alice(cost)).map(Decision::from),
        Deed::Reset => limiter.reset(alice(1)).map(Decision::from),
    };
    done.expect("an answer")
}

/// The same limiter twice, on one clock: on the memory store, and on the oracle.
struct Both {
    memory: Limiter<MemoryStore>,
    oracle: Limiter<OracleStore>,
    clock: ManualClock,
    /// How many units, and by whom.
    reservations: Vec<(u64, Reservation<MemoryStore>, Reservation<OracleStore>)>,
    /// For the reader of a failure.
    log: Vec<String>,
}

impl Both {
    fn new(words: &str) -> Both {
        let clock = ManualClock::at(START);
        let memory = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
        let memory = Limiter::with_store(policy(words), memory).expect("a valid policy");
        let oracle = Limiter::with_store(policy(words), OracleStore::new(clock.clone())).expect("a valid policy");
        Both { memory, oracle, clock, reservations: Vec::new(), log: vec![words.into()] }
    }

    fn change(&mut self, words: &str) {
        // Two changes at one instant would have no order.
        self.clock.advance(Duration::from_micros(1));
        self.note(&words, &());
        self.memory.set_policy(policy(words)).expect("a valid policy");
        self.oracle.set_policy(policy(words)).expect("a valid policy");
    }

    fn note(&mut self, done: &dyn std::fmt::Debug, said: &dyn std::fmt::Debug) {
        self.log.push(format!("{}us {done:?}: {said:?}", self.clock.now().saturating_since(START)));
    }

    fn does(&mut self, deed: Deed) -> Decision {
        let said = [does(&self.memory, deed), does(&self.oracle, deed)];
        self.agree(&deed, said)
    }

    /// Both say the same, in every field.
    fn agree(&mut self, done: &dyn std::fmt::Debug, [by_memory, by_oracle]: [Decision; 2]) -> Decision {
        self.note(done, &by_oracle);
        assert_eq!(by_memory, by_oracle, "the memory store, and the oracle: {:#?}", self.log);
        by_oracle
    }

    fn reserve(&mut self, cost: u64) {
        let request = || alice(cost).lasts(Duration::from_secs(3_600));
        let memory = self.memory.reserve(request()).expect("an answer").made();
        let made = (memory, self.oracle.reserve(request()).expect("an answer").made());
        self.note(&format!("reserve {cost}"), &made.1.is_some());
        match made {
            (Some(memory), Some(oracle)) => self.reservations.push((cost, memory, oracle)),
            (None, None) => {}
            made => panic!("the memory store, and the oracle: {made:?}: {:#?}", self.log),
        }
    }

    /// To what was reserved, or less, or more.
    fn settle(&mut self, random: &mut Random) {
        let place = random.within(0..=self.reservations.len() as u64 - 1) as usize;
        let (reserved, memory, oracle) = self.reservations.swap_remove(place);
        let cost = random.within(0..=reserved + 3);
        let said = [memory.settle(cost).expect("settled"), oracle.settle(cost).expect("settled")];
        let _ = self.agree(&format!("settle {reserved} to {cost}"), said);
    }

    fn renew(&mut self, random: &mut Random) {
        let place = random.within(0..=self.reservations.len() as u64 - 1) as usize;
        let (_, memory, oracle) = &self.reservations[place];
        let said = [memory.renew().expect("an answer"), oracle.renew().expect("an answer")];
        let _ = self.agree(&"renew", said);
    }

    /// Where it is refused, the wait is tried out, beside a microsecond less.
    fn charge(&mut self, cost: u64) {
        let said = self.does(Deed::Check(cost));
        let Some(wait) = said.retry_after().filter(|_| !said.is_allowed()) else { return };
        let now = self.clock.now();
        for (wait, passes) in [(wait - Duration::from_micros(1), false), (wait, true)] {
            self.clock.set(now.saturating_add(Micros::from_duration(wait)));
            assert_eq!(self.does(Deed::Peek(cost)).is_allowed(), passes, "after {wait:?}: {:#?}", self.log);
        }
        self.clock.set(now);
    }

    fn random_step(&mut self, random: &mut Random) {
        self.clock.advance(Duration::from_micros(random.choose(&PAUSES)));
        if random.percent(6) {
            self.clock.set(Micros::new(self.clock.now().get() - random.choose(&BACK)));
        }
        match random.within(0..=11) {
            0 => self.change(random.choose(&LIMITS)),
            1 => _ = self.does(Deed::Peek(random.within(0..=8))),
            2 => _ = self.does(Deed::Refund(random.within(1..=9))),
            3 if random.percent(30) => _ = self.does(Deed::Reset),
            4 => _ = self.does(Deed::Report(random.within(1..=12))),
            5 => self.reserve(random.within(1..=6)),
            6 if !self.reservations.is_empty() => self.settle(random),
            7 if !self.reservations.is_empty() => self.renew(random),
            _ => self.charge(random.within(0..=7)),
        }
    }
}

#[test]
fn every_pair_of_limits_counts_what_the_oracle_adds_up() {
    let mut random = Random::new(41);
    for (first, second) in LIMITS.iter().flat_map(|first| LIMITS.map(|second| (first, second))) {
        let mut both = Both::new(first);
        (0..4).for_each(|_| both.charge(random.within(1..=7)));
        both.change(second);
        (0..12).for_each(|_| both.random_step(&mut random));
    }
}

#[test]
fn limits_that_are_changed_again_and_again_count_what_the_oracle_adds_up() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut both = Both::new(random.choose(&LIMITS));
        (0..100).for_each(|_| both.random_step(&mut random));
    }
}
