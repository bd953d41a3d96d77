//! Strict mode: a key that a lost server might have known to be at the limit, is.

use tidegate::kernel::Verb;
use tidegate::{Limit, Micros};
use tidegate_redis::internals::{Call, Form, Step, Task};
use tidegate_testkit::Random;

use super::account::Account;
use super::store::Settings;
use super::{START, limits};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: true, by_server_time: false, expires: false };

/// A new history is as if everything had been charged when it began: compared
/// with an account of which that is true.
fn all_charged_at(limit: Limit, strict: &Account, since: u64, random: &mut Random) {
    let charged = Account::new(limit, Settings { strict: false, ..SETTINGS });
    assert!(charged.charge(since, limit.capacity()).allowed);
    let refused = strict.charge(since, 1);
    assert!(!refused.allowed && refused.remaining == 0, "{limit}: {refused:?} with a new history");
    assert_eq!(refused, charged.charge(since, 1), "{limit}: at the beginning");
    // What is reported then is owed in addition.
    let (mut now, mut refused) = (since, refused);
    let period = limit.period().as_micros() as u64;
    let is_slow = period > 1_000 && since % period < period - 10;
    for _ in 0..random.within(0..=5) {
        now += if is_slow { random.within(0..=1) } else { 0 };
        let cost = random.magnitude(1..=limit.capacity());
        let reported = strict.ask(now, Verb::Report, cost);
        assert_eq!(reported, charged.ask(now, Verb::Report, cost), "{limit}: {cost} reported at {now}");
        refused = strict.charge(now, 1);
        assert_eq!(refused, charged.charge(now, 1), "{limit}: with a debt");
    }
    let promised = now + refused.retry_after.get();
    for instant in [promised - 1, promised] {
        now = instant;
        let verdict = strict.peek(now, 1);
        assert_eq!((verdict.allowed, verdict), (now == promised, charged.peek(now, 1)), "{limit}");
    }
    for _ in 0..60 {
        let cost = random.magnitude(1..=limit.capacity());
        let verb = match random.within(0..=9) {
            0..=7 => Verb::Charge,
            8 => Verb::Report,
            _ => Verb::Peek,
        };
        assert_eq!(strict.ask(now, verb, cost), charged.ask(now, verb, cost), "{limit}: {cost} at {now}");
        now += random.magnitude(1..=period / 2);
    }
}

#[test]
fn a_new_history_uses_every_limit_up_and_then_it_recovers() {
    play(20);
}

/// So many times with each limit.
pub(super) fn play(seeds: u64) {
    for limit in limits() {
        for seed in 0..seeds {
            let mut random = Random::new(seed);
            let strict = Account::new(limit, SETTINGS);
            let period = limit.period().as_micros() as u64;
            let first = match seed % 4 {
                0 => random.magnitude(1..=period),
                // The last microsecond of a window, and the first.
                1 => START.next_multiple_of(period) - 1,
                3 => START.next_multiple_of(period),
                _ => START + random.magnitude(1..=period),
            };
            all_charged_at(limit, &strict, first, &mut random);
            // Long after, with a history as it was, all is well.
            let later = first + 100 * limit.period().as_micros() as u64;
            assert!(strict.charge(later, limit.capacity()).allowed, "{limit}: never recovers");
            // Another server goes on, and it may have lost anything, of a key in use or not.
            let lost = later + random.magnitude(1..=3 * limit.period().as_micros() as u64);
            if random.percent(50) {
                strict.charge(lost - 1, random.within(1..=limit.capacity()));
            }
            strict.store.keyspace().history = "d4e5f6".into();
            all_charged_at(limit, &strict, lost, &mut random);
        }
    }
}

/// A state that is ahead of a new history, as a clock that was ahead leaves it,
/// counts as it is, and as if everything had been charged when the history began.
#[test]
pub(super) fn a_state_ahead_of_a_new_history_grants_nothing() {
    for limit in limits() {
        let period = limit.period().as_micros() as u64;
        let since = START.next_multiple_of(period) + period / 2;
        for ahead in [0, 1, period / 4, period / 2 + 1, period, 2 * period] {
            let [strict, plain, charged] = [true, false, false].map(|strict| {
                let account = Account::new(limit, Settings { strict, ..SETTINGS });
                account.peek(START - 100 * period, 0);
                account
            });
            charged.charge(since, limit.capacity());
            for (at, cost) in [(since - period, 2), (since + ahead, 1)] {
                let [one, other] = [&strict, &plain].map(|account| account.charge(at, cost).allowed);
                assert!(one && other, "{limit}: {cost} at {at}");
            }
            strict.store.keyspace().history = "d4e5f6".into();
            for later in 0..24 {
                let now = since + later * (period / 8).max(1);
                for cost in [1, limit.capacity() / 2, limit.capacity()] {
                    let [granted, by_itself, if_all] = [&strict, &plain, &charged].map(|of| of.peek(now, cost).allowed);
                    // Before the clock has caught up, only the state itself can tell.
                    let if_all = if_all || now < since + ahead;
                    assert!(!granted || (by_itself && if_all), "{limit}: {cost} at {now}, ahead by {ahead}");
                }
            }
        }
    }
}

#[test]
pub(super) fn nothing_is_given_back_while_a_history_is_new() {
    for limit in limits() {
        let strict = Account::new(limit, SETTINGS);
        strict.charge(START, 1);
        for verb in [Verb::Refund, Verb::Reset] {
            strict.ask(START, verb, limit.capacity());
            assert!(!strict.peek(START, 1).allowed, "{limit}: {verb:?}");
        }
        strict.undo(START, 1, START);
        assert!(!strict.peek(START, 1).allowed, "{limit}: undo");
    }
}

/// A client that swaps sends the time of its look: a history that began since stays as it is,
/// and one that is new begins by the server's own time.
#[test]
pub(super) fn a_look_in_the_past_moves_no_history_back() {
    let account = Account::new(limits()[0], SETTINGS);
    for (server, sent, is_past, began) in [(5, 1, true, 5), (9, 0, true, 5), (9, 3, false, 3)] {
        account.set(START + server);
        let (state, after, healed, verdict) = (Vec::new(), None, None, None);
        let task = Task::Swap { form: Form::Text, state, passes: true, after, healed, verdict };
        let call = account.store.call(vec![Step { key: b"looked at".into(), task }]);
        let call = Call { now: Some(Micros::new(START + sent)), is_past, ..call };
        account.store.run(&call).expect("a reply");
        let began = format!("a1b2c3:{}", START + began);
        let genesis = call.genesis.as_ref().expect("strict mode");
        assert_eq!(account.store.keyspace().string(genesis), Some(began.as_bytes()));
    }
}

/// A clock that is set back finds a history that has not begun yet: it begins
/// now, and every key recovers from there.
#[test]
pub(super) fn a_clock_that_steps_back_locks_no_key_out() {
    const HOUR: u64 = 3_600_000_000;
    for limit in limits() {
        let strict = Account::new(limit, SETTINGS);
        strict.charge(START, 1);
        let mut random = Random::new(limit.capacity());
        all_charged_at(limit, &strict, START - HOUR, &mut random);
        let later = START - HOUR + 100 * limit.period().as_micros() as u64;
        assert!(strict.charge(later, limit.capacity()).allowed, "{limit}: never recovers");
    }
}
