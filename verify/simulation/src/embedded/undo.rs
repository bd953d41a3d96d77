//! Taking a charge back, beside an account that was never charged it.

use std::time::Duration;

use tidegate::Limit;
use tidegate::kernel::{LimitKernel, Verdict};
use tidegate_testkit::Random;

use super::account::Account;
use super::store::Settings;
use super::{START, limits};

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
                let gained = charged.remaining > spared.remaining || charged.reset_after < spared.reset_after;
                assert!(!admits_more && !gained, "{words}\n{charged:?}\n{spared:?}");
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
fn undo_one(limit: Limit, seed: u64) {
    let mut random = Random::new(seed);
    let period = limit.period().as_micros() as u64;
    let start = match random.within(0..=9) {
        0 | 1 => 0,
        // The last microsecond of a window.
        2 | 3 => START.next_multiple_of(period) - 1,
        _ => START + random.magnitude(1..=period),
    };
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
        pair.now += random.magnitude(1..=period) + if random.percent(15) { period } else { 0 };
    }
    pair.undo(cost, charged_at);
    let exactly = at_once || pair.is_exact();
    pair.compare(&mut random, exactly);
}

#[test]
fn a_charge_undone_was_never_there_or_more_is_refused() {
    play(500);
}

/// So many charges to each limit.
pub(super) fn play(seeds: u64) {
    for limit in limits() {
        for seed in 0..seeds {
            undo_one(limit, seed);
        }
    }
}

/// So many entries on either side that they are written in several commands.
#[test]
pub(super) fn an_entry_within_a_long_log_is_undone() {
    let limit = Limit::sliding_log(1_000_000, Duration::from_secs(10));
    for before in [260, 270] {
        let mut pair = Pair::new(limit, START);
        for entry in 0..530 {
            pair.now = START + entry * 1_000;
            if entry == before {
                pair.charged.charge(pair.now, 7);
            } else {
                pair.charge_both(1 + entry % 3);
            }
        }
        pair.undo(7, START + before * 1_000);
        let words = |account: &Account| {
            let length = account.store.keyspace().call(b"LLEN", &[&account.key()]).map(|length| format!("{length:?}"));
            length.expect("a list")
        };
        assert_eq!(words(&pair.charged), words(&pair.spared), "nothing is left of the entry");
        // Each entry that leaves shows its time and its size.
        let mut most = 0;
        while most < limit.capacity() {
            let [charged, spared] = [&pair.charged, &pair.spared].map(|account| account.peek(pair.now, most + 1));
            assert_eq!(charged, spared, "{before} before");
            pair.now += spared.retry_after.get();
            most = pair.spared.peek(pair.now, 0).remaining;
        }
    }
}

/// To the microsecond: what has drained of a charge is not given back, and the rest is.
#[test]
pub(super) fn a_bucket_gives_back_what_has_not_drained() {
    // A unit of the first drains in 200,000 ticks of a microsecond, seven units of the second in 100,000 of ten.
    let coarse = Limit::token_bucket(7, Duration::from_secs(1)).burst(12_000_000_000);
    for (limit, cost, ticks, tick) in [(Limit::per_second(5), 1, 200_000, 1), (coarse, 7, 100_000, 10)] {
        for later in [0, 1, ticks - 1, ticks, ticks + 1] {
            let account = Account::new(limit, SETTINGS);
            account.charge(START, 3 * cost);
            account.charge(START, cost);
            let now = START + later * tick;
            let before = account.peek(now, 0).reset_after.get();
            account.undo(now, cost, START);
            let given_back = before - account.peek(now, 0).reset_after.get();
            assert_eq!(given_back, (ticks - later.min(ticks)) * tick, "{limit}: {later} ticks later");
        }
    }
}

#[test]
pub(super) fn an_undo_by_a_clock_that_went_back_tells_how_things_stand() {
    for limit in limits() {
        let period = limit.period().as_micros() as u64;
        let mut pair = Pair::new(limit, START);
        pair.charge_both(1);
        let charged_at = START + period;
        if pair.charged.charge(charged_at, 1).allowed {
            pair.now = charged_at - 1;
            pair.undo(1, charged_at);
        }
    }
}

/// Of several entries, whichever is taken out whole, the others stay.
#[test]
pub(super) fn a_log_loses_the_entry_that_is_undone() {
    let limit = Limit::sliding_log(5, Duration::from_secs(10));
    for undone in 0..4 {
        let mut pair = Pair::new(limit, START);
        for entry in 0..4 {
            pair.now = START + entry;
            if entry == undone {
                assert!(pair.charged.charge(pair.now, 1).allowed);
            } else {
                pair.charge_both(1);
            }
        }
        pair.undo(1, START + undone);
        pair.compare(&mut Random::new(undone), true);
    }
}

/// Windows after windows: what is undone is taken from the one it was charged to, while that matters.
#[test]
pub(super) fn an_undo_takes_only_from_its_own_window() {
    for limit in limits().into_iter().filter(|limit| matches!(limit.kernel(), LimitKernel::Window(_))) {
        let period = limit.period().as_micros() as u64;
        for windows in 0..4 {
            // The last microsecond of a window.
            let charged_at = START.next_multiple_of(period) - 1;
            let mut pair = Pair::new(limit, charged_at);
            pair.charge_both(1);
            assert!(pair.charged.charge(charged_at, 1).allowed);
            for window in 0..windows {
                pair.now = charged_at + 1 + window * period;
                pair.charge_both(1);
            }
            pair.undo(1, charged_at);
            pair.compare(&mut Random::new(windows), true);
        }
    }
}
