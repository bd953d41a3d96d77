//! Limits that were replaced: the script counts them beside the limit in force as the memory store does.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, Purpose, RequestId, Store, Thresholds};
use tidegate::{Key, Limit, ManualClock, MemoryStore, Micros};
use tidegate_testkit::{Random, block_on};

use super::store::EmbeddedStore;

const START: u64 = 1_700_000_003_123_457;

const LIMITS: [&str; 9] = [
    "5/s",
    "1009/997ms burst 6",
    "leaky 3/s queue 5",
    "fixed 6/s",
    "fixed 7/2s from-first",
    "sliding 6/s",
    "sliding-log 5/s",
    "in-flight 4 for 1s",
    "9/hour in Asia/Kolkata",
];

/// Two stores and what was reserved in them.
struct Pair {
    script: EmbeddedStore,
    memory: MemoryStore,
    clocks: [ManualClock; 2],
    random: Random,
    reserved: Vec<(String, u64)>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let ((script, clock), here) = (EmbeddedStore::manual(), ManualClock::default());
        let memory = MemoryStore::builder().clock(here.clone()).build().expect("valid settings");
        Pair { script, memory, clocks: [clock, here], random: Random::new(seed), reserved: Vec::new() }
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
        let cost = self.random.within(0..=4);
        match self.random.within(0..=13) {
            0 => _ = self.decide(check(Verb::Refund, cost)),
            1 => _ = self.decide(check(Verb::Report, cost)),
            2 => _ = self.decide(check(Verb::Reset, 0)),
            3 | 4 => _ = self.decide(check(Verb::Peek, cost)),
            5 | 6 => {
                let text = format!("r{}", self.reserved.len());
                let id = RequestId { lasts_ms: 86_400_000, ..RequestId::once(&text, 1) };
                if self.decide(check(Verb::Charge, cost).with_id(&id)).allowed {
                    self.reserved.push((text, cost));
                }
            }
            7..=9 if !self.reserved.is_empty() => {
                let place = self.random.within(0..=self.reserved.len() as u64 - 1) as usize;
                let (text, cost) = self.reserved[place].clone();
                let renews = self.random.percent(50);
                let purpose = if renews { Purpose::Renew } else { Purpose::Settle };
                let id = RequestId { lasts_ms: 86_400_000, purpose, ..RequestId::once(&text, 1) };
                let actual = self.random.within(0..=cost + 2);
                let verb = if renews { check(Verb::RENEW, 0) } else { check(Verb::SETTLE, actual) };
                let _ = self.decide(verb.with_id(&id));
            }
            _ => _ = self.decide(check(Verb::Charge, cost)),
        }
    }
}

/// So many stories of a key whose limit is changed again and again.
pub(super) fn play(seeds: u64) {
    for seed in 0..seeds {
        let mut pair = Pair::new(seed);
        let meters = LIMITS.map(|words| {
            let meter = Meter::new("rule", words.parse::<Limit>().expect("a limit"));
            if seed % 3 == 0 { meter.notify(Thresholds::new([50, 100]).expect("two thresholds")) } else { meter }
        });
        let any = |random: &mut Random| random.within(0..=LIMITS.len() as u64 - 1) as usize;
        let (mut now, mut current, mut history) = (START, any(&mut pair.random), Vec::<(usize, u64)>::new());
        for _ in 0..60 {
            now += pair.random.choose(&[0, 1, 40_000, 200_000, 900_000]);
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
    play(300);
}
