//! What is asked next, and when: wherever the answers are about to change.

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::{Algorithm, Limit, Micros};

use crate::random::Random;

const SECOND: u64 = 1_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;

/// One key under one limit, and what was last heard of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) meter: usize,
    pub(super) key: usize,
    pub(super) limit: Limit,
    last: Verdict,
    last_cost: u64,
    heard_at: u64,
    /// The latest charges.
    charged: [Charged; 4],
}

impl Subject {
    pub(super) fn new(meter: usize, key: usize, limit: Limit) -> Subject {
        let (last, charged) = (Verdict::default(), [Charged::default(); 4]);
        Subject { meter, key, limit, last, last_cost: 1, heard_at: 0, charged }
    }

    pub(super) fn hear(&mut self, now: Micros, verb: Verb, cost: u64, verdict: Verdict) {
        let charged = match verb {
            Verb::Charge if cost > 0 => Some(cost),
            Verb::Renew(charged) if charged.cost > 0 => Some(charged.cost),
            _ => None,
        };
        if let Some(cost) = charged.filter(|_| verdict.allowed) {
            self.charged.rotate_right(1);
            self.charged[0] = Charged { at: now.saturating_add(verdict.ahead), cost };
        }
        (self.last, self.last_cost, self.heard_at) = (verdict, cost, now.get());
    }

    /// What a class leaves to others: mostly nothing, or some share of the limit.
    pub(super) fn floor(&self, random: &mut Random) -> u64 {
        let capacity = self.limit.capacity();
        match random.within(0..=9) {
            0..6 => 0,
            6 => capacity.div_ceil(5),
            7 => capacity.div_ceil(2),
            8 => random.magnitude(1..=capacity),
            _ => random.within(0..=capacity),
        }
        .min(capacity - 1)
    }

    /// When the last refusal, if it was one, said to come again.
    fn promised_at(&self) -> u64 {
        self.heard_at + self.last.retry_after.get()
    }

    /// When the key will be as if never used.
    fn reset_at(&self) -> u64 {
        self.heard_at + self.last.reset_after.get()
    }

    /// The period as the limit sees it, in microseconds.
    fn period(&self) -> u64 {
        let tick = self.tick();
        (self.limit.period().as_micros() as u64).div_ceil(tick) * tick
    }

    fn tick(&self) -> u64 {
        self.limit.resolution().as_micros() as u64
    }

    /// How long a full state takes to be forgotten: whole ticks.
    fn horizon(&self) -> u64 {
        let (capacity, count) = (u128::from(self.limit.capacity()), u128::from(self.limit.count()));
        let ticks = u128::from(self.period() / self.tick());
        match self.limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (capacity * ticks).div_ceil(count) as u64 * self.tick(),
            Algorithm::FixedWindow | Algorithm::SlidingLog => self.period(),
            Algorithm::SlidingCounter => 2 * self.period(),
        }
    }

    /// Before about this instant, the state is one from the future.
    fn healed_before(&self) -> u64 {
        let grace = self.horizon().max(SECOND).max(self.tick());
        self.reset_at().saturating_sub(self.horizon() + grace)
    }

    /// The next instant: often the same, often one at which an answer changes.
    pub(super) fn next_instant(&self, random: &mut Random, now: Micros, mood: Mood) -> Micros {
        let now = now.get();
        let next = match (mood, random.within(0..=99)) {
            (Mood::Pressing, 0..55) | (Mood::Patient, 0..15) => now,
            (Mood::Pressing, 55..70) => self.creep(random, now),
            (Mood::Pressing, 70..82) => self.jump_to_edge(random, now),
            (Mood::Pressing, 82..92) => self.go_back(random, now),
            (Mood::Patient, 15..40) => self.promised_at().max(now),
            (Mood::Patient, 40..50) => self.creep(random, now),
            (Mood::Patient, 50..75) => self.jump_to_edge(random, now),
            (Mood::Patient, 75..79) => self.go_back(random, now),
            (Mood::Patient, 79..97) | (Mood::Pressing, 92..99) => now + random.magnitude(1..=2 * self.horizon()),
            (Mood::Patient | Mood::Pressing, _) => now + random.within(0..=2 * YEAR),
        };
        Micros::new(next).min(Micros::LATEST)
    }

    fn creep(&self, random: &mut Random, now: u64) -> u64 {
        now + match random.within(0..=3) {
            0 => random.within(1..=3),
            1 => self.tick(),
            2 => (self.period() / self.limit.count()).max(1),
            _ => random.magnitude(1..=self.period()),
        }
    }

    fn jump_to_edge(&self, random: &mut Random, now: u64) -> u64 {
        let period = self.period();
        let window = now - now % period;
        let edge = match random.within(0..=6) {
            0 | 1 => self.promised_at(),
            2 => self.reset_at(),
            3 => window + period,
            4 => window + 2 * period,
            5 => window,
            _ => self.healed_before(),
        };
        (edge + random.within(0..=2)).saturating_sub(1)
    }

    fn go_back(&self, random: &mut Random, now: u64) -> u64 {
        let length = match random.within(0..=7) {
            0 => 1,
            1 => random.within(1..=1_000),
            2 => random.within(1..=1_000_000),
            3 => random.magnitude(1..=self.period()),
            4 => self.period(),
            5 => random.magnitude(1..=2 * self.horizon()),
            6 => 3 * self.horizon().max(SECOND),
            _ => random.within(0..=now),
        };
        now.saturating_sub(length)
    }

    /// At what cost: small ones, those that just fit, and those that just do not.
    pub(super) fn cost(&self, random: &mut Random, verb: Verb, mood: Mood) -> u64 {
        let (capacity, remaining) = (self.limit.capacity(), self.last.remaining);
        let cost = match (verb, random.within(0..=99)) {
            (Verb::Reset | Verb::Renew(_), _) => 0,
            (Verb::Settle(charged), 0..20) => return charged.cost,
            (Verb::Settle(_), 20..30) => 0,
            (Verb::Settle(charged), 30..75) => return random.within(0..=charged.cost),
            (Verb::Settle(charged), _) => return charged.cost.saturating_add(random.magnitude(1..=2 * capacity)),
            (Verb::Charge | Verb::Peek | Verb::Report | Verb::Refund, 0..3) => 0,
            (Verb::Charge | Verb::Peek | Verb::Report | Verb::Refund, 3..18) => self.last_cost,
            // All that is left and some more, all that can be owed, and more than that.
            (Verb::Report, 18..40) => return remaining.saturating_add(random.within(0..=capacity)),
            (Verb::Report, 40..50) => return random.magnitude(1..=u64::MAX),
            (Verb::Report | Verb::Refund, _) => random.magnitude(1..=capacity),
            // A large limit is never used up by small costs.
            (Verb::Charge | Verb::Peek, 18..50) if mood == Mood::Pressing && capacity > 20 => {
                remaining + random.within(0..=1)
            }
            (Verb::Charge | Verb::Peek, 18..55) => 1,
            (Verb::Charge | Verb::Peek, 55..65) => random.within(1..=5),
            (Verb::Charge | Verb::Peek, 65..75) => remaining,
            (Verb::Charge | Verb::Peek, 75..83) => remaining + 1,
            (Verb::Charge | Verb::Peek, 83..88) => capacity - random.within(0..=1),
            (Verb::Charge | Verb::Peek, _) => random.magnitude(1..=capacity),
        };
        cost.min(capacity)
    }
}

/// Which way the probes lean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Towards being refused.
    Pressing,
    /// Towards being admitted.
    Patient,
}

/// When a scenario starts.
pub(super) fn first_instant(random: &mut Random) -> Micros {
    let latest = Micros::LATEST.get();
    Micros::new(match random.within(0..=9) {
        0 => 0,
        1 => random.within(0..=100),
        2..=6 => 1_700_000_000 * SECOND + random.within(0..=YEAR),
        7 => latest - random.magnitude(1..=YEAR),
        _ => random.within(0..=latest),
    })
}

/// What to do: mostly to charge.
pub(super) fn verb(random: &mut Random, subject: &Subject) -> Verb {
    let charged = subject.charged[random.within(0..=3) as usize];
    match random.within(0..=99) {
        0..8 => Verb::Settle(charged),
        8..12 if subject.limit.algorithm() == Algorithm::SlidingLog => Verb::Renew(charged),
        12 => Verb::Renew(charged),
        8..82 => Verb::Charge,
        82..87 => Verb::Report,
        87..93 => Verb::Peek,
        93..98 => Verb::Refund,
        _ => Verb::Reset,
    }
}
