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
    /// Under which id, how much, and until when that is known.
    reserved: Vec<(String, u64, Micros)>,
}

impl Pair {
    fn new(seed: u64, story: &'static Story) -> Pair {
        let ((script, clock), here) = (EmbeddedStore::manual(), ManualClock::default());
        let memory = MemoryStore::builder().clock(here.clone()).build().expect("valid settings");
        Pair { script, memory, clocks: [clock, here], random: Random::new(seed), story, reserved: Vec::new() }
    }

    fn decide(&self, check: Check<'_>) -> Verdict {
        let [mut there, mut here] = [[Verdict::default()]; 2];
        let decided =
            (block_on(self.script.decide(&[check], &mut there)), block_on(self.memory.decide(&[check], &mut here)));
        assert_eq!(decided.0.is_ok(), decided.1.is_ok(), "{decided:?}: {check:?}");
        assert_eq!(there, here, "{check:?}");
        here[0]
    }

    fn step(&mut self, meter: &Meter, former: &[Former<'_>]) {
        let key = Key::from("alice");
        let check = |verb, cost| Check::new(meter, &key, verb, cost).expect("a small cost").with_former(former);
        // When exactly an id is forgotten is the server's business.
        let now = self.clocks[0].now();
        self.reserved.retain(|(_, _, until)| *until > now);
        let cost = self.random.within(0..=self.story.most_cost.min(meter.largest_cost()));
        match self.random.within(0..=13) {
            0 => _ = self.decide(check(Verb::Refund, cost)),
            1 => _ = self.decide(check(Verb::Report, cost)),
            2 => _ = self.decide(check(Verb::Reset, 0)),
            3 | 4 => _ = self.decide(check(Verb::Peek, cost)),
            5 | 6 => {
                let text = format!("r{}", self.random.number());
                let id = RequestId { lasts_ms: self.story.ids_last_ms, ..RequestId::once(&text, 1) };
                if self.decide(check(Verb::Charge, cost).with_id(&id)).allowed {
                    let lasts = Micros::new(u64::from(self.story.ids_last_ms) * 1_000);
                    self.reserved.push((text, cost, now.saturating_add(lasts)));
                }
            }
            7..=9 if !self.reserved.is_empty() => {
                let place = self.random.within(0..=self.reserved.len() as u64 - 1) as usize;
                let (text, cost, _) = self.reserved[place].clone();
                let renews = self.random.percent(50);
                let purpose = if renews { Purpose::Renew } else { Purpose::Settle };
                let id = RequestId { lasts_ms: self.story.ids_last_ms, purpose, ..RequestId::once(&text, 1) };
                let actual = self.random.within(0..=cost + self.story.most_cost / 2);
                let verb = if renews { check(Verb::RENEW, 0) } else { check(Verb::SETTLE, actual) };
                let _ = self.decide(verb.with_id(&id));
            }
            _ => _ = self.decide(check(Verb::Charge, cost)),
        }
    }
}

/// So many keys whose limits are changed again and again.
pub(super) fn play(seeds: u64) {
    for seed in 0..seeds {
        let story = if seed % 2 == 0 { &SHORT } else { &LONG };
        let mut pair = Pair::new(seed, story);
        let meters: Vec<Meter> = story
            .limits
            .iter()
            .map(|words| {
                let meter = Meter::new("rule", words.parse::<Limit>().expect("a limit"));
                if seed % 3 == 0 { meter.notify(Thresholds::new([50, 100]).expect("two thresholds")) } else { meter }
            })
            .collect();
        let any = |random: &mut Random| random.within(0..=meters.len() as u64 - 1) as usize;
        let (mut now, mut current, mut history) = (START, any(&mut pair.random), Vec::<(usize, u64)>::new());
        for _ in 0..60 {
            now += pair.random.choose(&story.pauses);
            pair.clocks.iter().for_each(|clock| clock.set(Micros::new(now)));
            if pair.random.percent(12) {
                let next = any(&mut pair.random);
                history.retain(|(one, _)| *one != current && *one != next);
                if next != current {
                    history.push((current, now));
                }
                current = next;
            }
            let until = |meter: &Meter, at: u64| Micros::new(at).saturating_add(meter.horizon());
            let former: Vec<Former<'_>> = history
                .iter()
                .map(|(one, at)| Former { meter: &meters[*one], until: until(&meters[*one], *at) })
                .collect();
            pair.step(&meters[current], &former);
        }
    }
}

#[test]
pub(super) fn former_limits_count_as_in_memory() {
    play(600);
}
