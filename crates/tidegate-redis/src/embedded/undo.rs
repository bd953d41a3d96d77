//! Taking a charge back, beside an account that was never charged it.

use tidegate::Limit;
use tidegate::kernel::{LimitKernel, Verdict};
use tidegate_testkit::Random;

use super::account::Account;
use super::store::Settings;
use super::{LIMITS, START};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: false };

/// An account that is charged too much, and one that is not.
struct Pair {
    limit: Limit,
    charged: Account,
    spared: Account,
    now: u64,
    history: String,
}

impl Pair {
    fn new(limit: Limit, now: u64) -> Pair {
        let [charged, spared] = [(); 2].map(|()| Account::new(limit, SETTINGS));
        Pair { limit, charged, spared, now, history: String::new() }
    }

    /// A few charges to both, as far as the charged one admits them.
    fn traffic(&mut self, random: &mut Random, longest_step: u64) {
        for _ in 0..random.within(0..=4) {
            if longest_step > 0 {
                self.now += random.magnitude(1..=longest_step);
            }
            self.charge_both(random.magnitude(1..=self.limit.capacity()));
        }
    }

    fn charge_both(&mut self, cost: u64) {
        if self.charged.charge(self.now, cost).allowed {
            self.history += &format!("\n  {} charge {cost} to both", self.now);
            assert!(self.spared.charge(self.now, cost).allowed, "{}:{}", self.limit, self.history);
        }
    }

    fn is_exact(&self) -> bool {
        match self.limit.kernel() {
            // It does not know what has drained away before it was empty.
            LimitKernel::Bucket(_) => false,
            LimitKernel::Window(_) | LimitKernel::Log(_) => true,
        }
    }

    /// Both are asked the same, now and then later.
    fn compare(&mut self, random: &mut Random, exactly: bool) {
        let period = self.limit.period().as_micros() as u64;
        for _ in 0..12 {
            let cost = random.within(0..=self.limit.capacity());
            let [charged, spared] = [&self.charged, &self.spared].map(|account| account.peek(self.now, cost));
            let words = format!("{}:{}\n  {} peek {cost}", self.limit, self.history, self.now);
            if exactly {
                assert_eq!(charged, spared, "{words}");
            } else {
                let admits_more = charged.allowed && !spared.allowed;
                assert!(!admits_more && charged.remaining <= spared.remaining, "{words}\n{charged:?}\n{spared:?}");
            }
            self.now += random.magnitude(1..=period / 3);
        }
    }

    /// What an undo answers is how things stand after it.
    fn undo(&mut self, cost: u64, charged_at: u64) {
        self.history += &format!("\n  {} undo {cost} of {charged_at}", self.now);
        let answer = self.charged.undo(self.now, cost, charged_at);
        let Verdict { remaining, reset_after, .. } = self.charged.peek(self.now, 0);
        let told = (answer.allowed, answer.remaining, answer.reset_after);
        assert_eq!(told, (true, remaining, reset_after), "{}:{}", self.limit, self.history);
    }
}

/// One charge that is undone: at once, or after others have come.
fn play(limit: Limit, seed: u64) {
    let mut random = Random::new(seed);
    let period = limit.period().as_micros() as u64;
    let start = if random.percent(20) { 0 } else { START + random.magnitude(1..=period) };
    let mut pair = Pair::new(limit, start);
    if random.percent(70) {
        pair.traffic(&mut random, period / 2);
    }
    if limit.starts_with_first_request() {
        // A window that the undone charge has opened stays open, for others.
        pair.charge_both(1);
    }
    let cost = random.magnitude(1..=limit.capacity());
    let charged_at = pair.now;
    if !pair.charged.charge(charged_at, cost).allowed {
        return;
    }
    pair.history += &format!("\n  {charged_at} charge {cost} to one");
    let at_once = random.percent(40);
    pair.traffic(&mut random, if at_once { 0 } else { period * 2 / 3 });
    if !at_once {
        pair.now += random.magnitude(1..=period);
    }
    pair.undo(cost, charged_at);
    let exactly = at_once || pair.is_exact();
    pair.compare(&mut random, exactly);
}

#[test]
fn a_charge_undone_was_never_there_or_more_is_refused() {
    for limit in LIMITS {
        for seed in 0..500 {
            play(limit, seed);
        }
    }
}
