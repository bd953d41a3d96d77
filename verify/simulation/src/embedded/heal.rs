//! States from the future, around the instant from which they count as such.

use std::time::Duration;

use tidegate::kernel::{LimitKernel, Verb};
use tidegate::{Limit, Micros};
use tidegate_testkit::{Ask, Oracle};

use super::account::Account;
use super::store::Settings;
use super::{START, limits};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: false };

/// It sees time in coarse steps, though it drains within a second.
const QUICK_AND_COARSE: Limit =
    Limit::token_bucket(10_000_000_001, Duration::from_micros(999_983)).burst(10_000_000_000);

/// The same of a window.
const QUICK_AND_COARSE_WINDOW: Limit = Limit::sliding_counter(9_000_000_007, Duration::from_micros(399_990));

#[test]
pub(super) fn a_state_heals_from_the_same_microsecond_on_as_by_the_oracle() {
    for limit in limits().into_iter().chain([QUICK_AND_COARSE, QUICK_AND_COARSE_WINDOW]) {
        let (horizon, tick) = match limit.kernel() {
            LimitKernel::Bucket(bucket) => (bucket.full().div_ceil(bucket.drain()) * bucket.tick(), bucket.tick()),
            LimitKernel::Window(window) => (2 * window.period_in_ticks() * window.tick(), window.tick()),
            LimitKernel::Log(log) => (log.period(), 1),
        };
        let graces = [1_000_000, 1_000_000 + horizon, horizon / 2, horizon, 2 * horizon];
        let around =
            |grace: u64| [0, 1, tick, 2 * tick].into_iter().flat_map(move |by| [grace + by, grace.saturating_sub(by)]);
        for back in graces.into_iter().flat_map(around) {
            for verb in [Verb::Charge, Verb::Peek, Verb::Report, Verb::Refund, Verb::Reset] {
                go_back(limit, back, verb);
            }
        }
    }
}

/// Everything is charged, the clock goes back, and a check follows.
fn go_back(limit: Limit, back: u64, verb: Verb) {
    let account = Account::new(limit, SETTINGS);
    let mut oracle = Oracle::new();
    let mut agree = |now: u64, verb: Verb, cost: u64| {
        let check = account.check(verb, cost);
        let right = oracle.decide(&[Ask::of(&check).expect("a limit of ours")], Micros::new(now))[0];
        assert_eq!(account.ask(now, verb, cost), right, "{limit}: {verb:?} {cost} at {now}, back by {back}");
    };
    agree(START, Verb::Charge, limit.capacity());
    let now = START - back;
    agree(now, verb, u64::from(verb != Verb::Reset));
    if verb == Verb::Charge {
        examine_healed(&account, limit, now);
    }
    for later in [0, 1, 1_000] {
        agree(now + later, Verb::Peek, 1);
    }
    agree(START, Verb::Charge, 1);
}

/// A state that was healed is kept as long as it matters, and as much longer as it should be.
fn examine_healed(account: &Account, limit: Limit, now: u64) {
    let (horizon, beyond) = match limit.kernel() {
        LimitKernel::Bucket(bucket) => {
            let horizon = bucket.full().div_ceil(bucket.drain()) * bucket.tick();
            (horizon, horizon - bucket.tick()..=horizon)
        }
        LimitKernel::Window(window) => (2 * window.period_in_ticks() * window.tick(), 0..=0),
        LimitKernel::Log(log) => (log.period(), 0..=log.period()),
    };
    let (forget_at, kept_until) = (account.forget_at().get(), account.kept_until().expect("it is kept").get());
    if forget_at <= now + horizon {
        let kept = kept_until - forget_at - SETTINGS.kept_longer_ms * 1_000;
        let (least, most) = (*beyond.start(), beyond.end() + 1_000);
        assert!((least..=most).contains(&kept), "{limit}: healed at {now}, kept for {kept} us too long");
    }
}
