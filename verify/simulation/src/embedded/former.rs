//! Limits that were replaced: the script counts them beside the limit in force as the memory store does.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, Purpose, RequestId, Store, Thresholds};
use tidegate::{Clock, Key, Limit, ManualClock, MemoryStore, Micros};
use tidegate_testkit::{Random, block_on};

use super::store::EmbeddedStore;

const START: u64 = 1_700_000_003_123_457;

/// Limits that are changed into each other, and requests that matter to them.
struct Story {
    limits: &'static [&'static str],
    pauses: [u64; 5],
    most_cost: u64,
    ids_last_ms: u32,
}

const SHORT: Story = Story {
    limits: &[
        "5/s",
        "1009/997ms burst 6",
        "leaky 3/s queue 5",
        "fixed 6/s",
        "fixed 7/2s from-first",
        "sliding 6/s",
        "sliding-log 5/s",
        "in-flight 4 for 1s",
        "9/hour in Asia/Kolkata",
    ],
    pauses: [0, 1, 40_000, 200_000, 900_000],
    most_cost: 4,
    ids_last_ms: 86_400_000,
};

/// Of limits whose time is counted in coarser units than microseconds, so that all numbers stay exact.
const LONG: Story = Story {
    limits: &[
        "100003/400d burst 30000",
        "30011/365d",
        "leaky 100003/400d queue 30000",
        "fixed 30000/365d",
        "fixed 30011/90d from-first",
        "sliding 30000/365d",
        "sliding 40009/90d",
        "sliding-log 30000/90d",
    ],
    pauses: [0, 1, 3_600_000_000, 20 * DAY, 80 * DAY],
    most_cost: 20_000,
    ids_last_ms: 40 * 86_400_000,
};

const DAY: u64 = 86_400_000_000;

/// Two stores and what was reserved in them.
struct Pair {
    script: EmbeddedStore,
    memory: MemoryStore,
    clocks: [ManualClock; 2],
    random: Random,
    story: &'static Story,
    reserved: Vec<Reserved>,
}

/// What was reserved under an id.
#[derive(Clone)]
struct Reserved {
    id: String,
    /// Of which rules, in this order.
    rules: Vec<usize>,
    /// Of the first one.
    cost: u64,
    known_until: Micros,
}

impl Pair {
    fn new(seed: u64, story: &'static Story) -> Pair {
        let ((script, clock), here) = (EmbeddedStore::manual(), ManualClock::default());
        let memory = MemoryStore::builder().clock(here.clone()).build().expect("valid settings");
        Pair { script, memory, clocks: [clock, here], random: Random::new(seed), story, reserved: Vec::new() }
    }

    /// Decides the slice in both stores, and says whether it was admitted.
    fn decide(&self, checks: &[Check<'_>]) -> bool {
        let [mut there, mut here] = [0, 1].map(|_| vec![Verdict::default(); checks.len()]);
        let decided =
            (block_on(self.script.decide(checks, &mut there)), block_on(self.memory.decide(checks, &mut here)));
        assert_eq!(decided.0.is_ok(), decided.1.is_ok(), "{decided:?}: {checks:?}");
        assert_eq!(there, here, "{checks:?}");
        here.iter().all(|verdict| verdict.allowed)
    }

    /// One request to some of the rules.
    fn step(&mut self, rules: &[(&Meter, &[Former<'_>])], asked: &[usize]) {
        let key = Key::from("alice");
        // When exactly an id is forgotten is the server's business.
        let now = self.clocks[0].now();
        self.reserved.retain(|reserved| reserved.known_until > now);
        let (is_charge, choice) = (self.random.percent(40), self.random.within(0..=9));
        let mut of_each = Vec::new();
        for one in asked {
            let cost = self.random.within(0..=self.story.most_cost);
            let verbs = [Verb::Refund, Verb::Report, Verb::Reset, Verb::Peek, Verb::Charge];
            let verb = if is_charge || choice > 2 { Verb::Charge } else { self.random.choose(&verbs) };
            of_each.push(check(rules[*one], &key, verb, if verb == Verb::Reset { 0 } else { cost }));
        }
        match choice {
            3 | 4 => {
                let text = format!("r{}", self.random.number());
                let id = RequestId { lasts_ms: self.story.ids_last_ms, ..RequestId::once(&text, 1) };
                let of_each: Vec<Check<'_>> = of_each.into_iter().map(|check| check.with_id(&id)).collect();
                if self.decide(&of_each) {
                    let lasts = Micros::new(u64::from(self.story.ids_last_ms) * 1_000);
                    let (cost, known_until) = (of_each[0].cost(), now.saturating_add(lasts));
                    self.reserved.push(Reserved { id: text.clone(), rules: asked.to_vec(), cost, known_until });
                }
            }
            5..=7 if !self.reserved.is_empty() => {
                let place = self.random.within(0..=self.reserved.len() as u64 - 1) as usize;
                let Reserved { id: text, rules: of, cost, .. } = self.reserved[place].clone();
                let renews = self.random.percent(50);
                let purpose = if renews { Purpose::Renew } else { Purpose::Settle };
                let id = RequestId { lasts_ms: self.story.ids_last_ms, purpose, ..RequestId::once(&text, 1) };
                let actual = self.random.within(0..=cost + self.story.most_cost / 2);
                let (verb, cost) = if renews { (Verb::RENEW, 0) } else { (Verb::SETTLE, actual) };
                let corrected = of.iter().map(|one| check(rules[*one], &key, verb, cost).with_id(&id));
                self.decide(&corrected.collect::<Vec<_>>());
            }
            _ => _ = self.decide(&of_each),
        }
    }
}

fn check<'a>((meter, former): (&'a Meter, &'a [Former<'a>]), key: &'a Key<'a>, verb: Verb, cost: u64) -> Check<'a> {
    let cost = if verb == Verb::SETTLE { cost } else { cost.min(meter.largest_cost()) };
    Check::new(meter, key, verb, cost).expect("a small cost").with_former(former)
}

/// A rule whose limit is changed again and again.
struct Lane {
    meters: Vec<Meter>,
    current: usize,
    history: Vec<(usize, u64)>,
}

impl Lane {
    /// With thresholds, or for a class of requests that leaves some of each limit to others.
    fn new(name: &'static str, story: &Story, is_told: bool, is_class: bool) -> Lane {
        let meter = |words: &&str| {
            let meter = Meter::new(name, words.parse::<Limit>().expect("a limit"));
            let told = Thresholds::new([50, 100]).expect("two thresholds");
            let meter = if is_told { meter.notify(told) } else { meter };
            if is_class { meter.clone().with_floor(meter.capacity() / 3) } else { meter }
        };
        Lane { meters: story.limits.iter().map(meter).collect(), current: 0, history: Vec::new() }
    }

    fn change(&mut self, next: usize, now: u64) {
        self.history.retain(|(one, _)| *one != self.current && *one != next);
        if next != self.current {
            self.history.push((self.current, now));
        }
        self.current = next;
    }

    fn former(&self) -> Vec<Former<'_>> {
        let of = |(one, at): &(usize, u64)| {
            let meter = &self.meters[*one];
            Former { meter, until: Micros::new(*at).saturating_add(meter.horizon()) }
        };
        self.history.iter().map(of).collect()
    }
}

/// So many keys whose limits are changed again and again.
pub(super) fn play(seeds: u64) {
    for seed in 0..seeds {
        let story = if seed % 2 == 0 { &SHORT } else { &LONG };
        let mut pair = Pair::new(seed, story);
        let mut lanes =
            ["rule", "other"].map(|name| Lane::new(name, story, seed % 3 == 0, name == "rule" && seed % 5 < 2));
        let mut now = START;
        for _ in 0..60 {
            now += pair.random.choose(&story.pauses);
            pair.clocks.iter().for_each(|clock| clock.set(Micros::new(now)));
            for lane in &mut lanes {
                if pair.random.percent(12) {
                    lane.change(pair.random.within(0..=story.limits.len() as u64 - 1) as usize, now);
                }
            }
            let former = lanes.each_ref().map(Lane::former);
            let mut rules = Vec::new();
            for (lane, former) in lanes.iter().zip(&former) {
                rules.push((&lane.meters[lane.current], &former[..]));
            }
            let asked: &[usize] = pair.random.choose(&[&[0], &[1], &[0, 1], &[1, 0]]);
            pair.step(&rules, asked);
        }
    }
}

#[test]
pub(super) fn former_limits_count_as_in_memory() {
    play(600);
}
