//! Reservations: a charge under an id is corrected once.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Purpose, RequestId, Store, StoreError};
use tidegate::{Key, Limit, ManualClock, Micros};

use super::{Account, Bench, LIMITS, START, limits};
use crate::block_on::block_on;
use crate::oracle::OracleStore;
use crate::random::Random;

const ID: RequestId<'static> = RequestId::once("r-17", 1);
const SETTLE: RequestId<'static> = RequestId { purpose: Purpose::Settle, ..ID };
const RENEW: RequestId<'static> = RequestId { purpose: Purpose::Renew, ..ID };

const IN_FLIGHT: Limit = Limit::in_flight(2, Duration::from_secs(10));

fn reserve<S: Store>(account: &Account<'_, S>, cost: u64, id: &RequestId<'_>) -> Verdict {
    account.bench.decide(&[account.check(Verb::Charge, cost).with_id(id)])[0]
}

fn settle<S: Store>(account: &Account<'_, S>, cost: u64, id: &RequestId<'_>) -> Verdict {
    account.bench.decide(&[account.check(Verb::SETTLE, cost).with_id(id)])[0]
}

/// Settled at once, a key is as if only that had been charged.
pub fn a_reservation_that_is_settled_is_as_if_only_that_was_charged<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        for actual in 0..=limit.capacity() + limit.max_debt() {
            let bench = Bench::new(make);
            let [settled, charged] = ["settled", "charged"].map(|key| bench.account(limit, key));
            assert!(reserve(&settled, 3, &ID).allowed, "{limit}");
            let after = settle(&settled, actual, &SETTLE);
            assert!(after.allowed && !after.repeated && after.unrecorded == 0, "{limit}: {actual}");
            charged.ask(Verb::Report, actual);
            assert_eq!(settled.peek(1), charged.peek(1), "{limit}: {actual}");
            assert_eq!((after.remaining, after.reset_after), {
                let peeked = settled.peek(0);
                (peeked.remaining, peeked.reset_after)
            });
        }
    }
}

/// The second time it gets the same answer, and changes nothing.
pub fn a_reservation_is_settled_once<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let reserved = reserve(&account, 3, &ID);
        let first = settle(&account, 1, &SETTLE);
        bench.clock.advance(Duration::from_millis(3));
        let before = account.peek(1);
        for actual in [0, 1, 4, 1_000] {
            assert_eq!(settle(&account, actual, &SETTLE), Verdict { repeated: true, ..first }, "{limit}");
        }
        let again = bench.decide(&[account.check(Verb::RENEW, 0).with_id(&RENEW)])[0];
        assert_eq!(again, Verdict { repeated: true, ..first }, "{limit}: what is settled is not renewed");
        // The request itself is remembered as it was.
        assert_eq!(reserve(&account, 3, &ID), Verdict { repeated: true, ..reserved }, "{limit}");
        assert_eq!(account.peek(1), before, "{limit}");
    }
}

/// What is unknown is an error, and the id of another key is unknown.
pub fn what_is_not_reserved_is_not_settled<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits().into_iter().chain([IN_FLIGHT]) {
        let bench = Bench::new(make);
        let [alice, bob] = ["alice", "bob"].map(|key| bench.account(limit, key));
        let is_refused = |account: &Account<'_, S>, verb: Verb, id: RequestId<'_>| {
            let answer =
                block_on(bench.store.decide(&[account.check(verb, 1).with_id(&id)], &mut [Verdict::default()]));
            matches!(answer, Err(StoreError::NotReserved { id: text }) if text == id.text)
        };
        assert!(is_refused(&alice, Verb::SETTLE, SETTLE), "{limit}");
        alice.charge(1);
        assert!(is_refused(&alice, Verb::SETTLE, SETTLE), "{limit}: a charge without an id");
        assert!(reserve(&bob, 1, &ID).allowed, "{limit}");
        assert!(is_refused(&alice, Verb::SETTLE, SETTLE) && is_refused(&alice, Verb::RENEW, RENEW), "{limit}");
        assert!(is_refused(&bob, Verb::SETTLE, RequestId { text: "r-18", ..SETTLE }), "{limit}");
        // One that was refused has reserved nothing.
        alice.exhaust();
        assert!(!reserve(&alice, 1, &ID).allowed && is_refused(&alice, Verb::SETTLE, SETTLE), "{limit}");
    }
}

/// A permit is held until it is settled or expires, and renewing has it held longer.
pub fn permits_are_given_back_and_expire_and_are_renewed<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let bench = Bench::new(make);
    let account = bench.account(IN_FLIGHT, "alice");
    let id = |text, purpose| RequestId { text, purpose, ..ID };
    let take = |text| reserve(&account, 1, &id(text, Purpose::Once)).allowed;
    let give = |text| settle(&account, 0, &id(text, Purpose::Settle)).allowed;
    let renew = |text| bench.decide(&[account.check(Verb::RENEW, 0).with_id(&id(text, Purpose::Renew))])[0];
    assert!(take("a") && take("b") && !take("c"));
    bench.clock.advance(Duration::from_secs(4));
    assert!(renew("b").allowed && give("a") && take("c") && !take("d"));
    // B expires with C, fourteen seconds after the start.
    bench.clock.advance(Duration::from_micros(9_999_999));
    assert!(!take("d") && renew("c").allowed && !take("d"));
    bench.clock.advance(Duration::from_micros(1));
    let refused = renew("b");
    assert!(!refused.allowed && refused.retry_after == Micros::ZERO, "it has expired");
    assert!(take("d") && !take("e"));
    // To give back what has expired gives back nothing that another holds.
    assert!(give("b") && !take("e"));
    assert!(give("c") && give("d"));
    assert_eq!(account.peek(1).remaining, 2);
}

/// A reservation that was made by a clock that had gone back is settled where it counts.
pub fn a_reservation_made_by_a_clock_that_went_back_is_settled<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let coarse = Limit::sliding_counter(9_000_000_007, Duration::from_micros(399_990));
    for limit in limits().into_iter().chain([IN_FLIGHT, coarse]) {
        let bench = Bench::new(make);
        let [account, other] = [limit, LIMITS[0]].map(|limit| bench.account(limit, ("alice", limit.to_string())));
        // Beside another limit, whose time is that of the clock.
        let other = if limit == LIMITS[0] { bench.account(LIMITS[1], ("alice", "other")) } else { other };
        let period = limit.period().as_micros() as u64;
        // Just after an edge, and then before it.
        let edge = START - START % period + 20 * period;
        bench.set(edge + 1);
        let alone = bench.account_of(other.meter.clone(), ("bob", "other"));
        [&account, &other, &alone].into_iter().for_each(|account| assert!(account.charge(1).allowed, "{limit}"));
        bench.set(edge - 1);
        let before = account.peek(1);
        let both = [&account, &other].map(|account| account.check(Verb::Charge, 1).with_id(&ID));
        assert!(bench.decide(&both).iter().all(|verdict| verdict.allowed), "{limit}");
        // The other one's charge counts by the clock, as it does alone.
        reserve(&alone, 1, &ID);
        bench.set(edge + 2);
        let both = [&account, &other].map(|account| account.check(Verb::SETTLE, 0).with_id(&SETTLE));
        assert_eq!(bench.decide(&both)[1], settle(&alone, 0, &SETTLE), "{limit}");
        bench.set(edge - 1);
        let after = account.peek(1);
        assert_eq!(after.remaining, before.remaining, "{limit}");
    }
}

/// A charge of which a part was given back is not renewed.
pub fn what_is_not_there_as_a_whole_is_not_renewed<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits().into_iter().chain([IN_FLIGHT]) {
        let bench = Bench::new(make);
        let [whole, part] = ["whole", "part"].map(|key| bench.account(limit, key));
        [&whole, &part].into_iter().for_each(|account| assert!(reserve(account, 2, &ID).allowed, "{limit}"));
        part.refund(1);
        bench.clock.advance(Duration::from_micros(1));
        let renew =
            |account: &Account<'_, S>| bench.decide(&[account.check(Verb::RENEW, 0).with_id(&RENEW)])[0].allowed;
        let is_log = limit.algorithm() == tidegate::Algorithm::SlidingLog;
        assert_eq!([&whole, &part].map(renew), [is_log, false], "{limit}");
    }
}

/// Of several limits all are corrected, each as it says, or only looked at.
pub fn all_limits_of_a_reservation_are_settled_together<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let keys = ["kept", "settled", "added"].map(|what| Key::from(("alice", what)));
        let [kept, settled, added] = keys.map(|key| bench.account(limit, key));
        let permits = bench.account(IN_FLIGHT, ("alice", "permits"));
        let all = |verbs: [(Verb, u64); 4], id| {
            let accounts = [&kept, &settled, &added, &permits];
            let checks: Vec<Check<'_>> = accounts
                .into_iter()
                .zip(verbs)
                .map(|(account, (verb, cost))| account.check(verb, cost).with_id(id))
                .collect();
            bench.decide(&checks)
        };
        let keep = (Verb::Peek, 0);
        let reserved = bench.decide(&[
            kept.check(Verb::Charge, 2).with_id(&ID),
            settled.check(Verb::Charge, 2).with_id(&ID),
            permits.check(Verb::Charge, 1).with_id(&ID),
        ]);
        assert!(reserved.iter().all(|verdict| verdict.allowed), "{limit}");
        added.charge(1);
        let before = [&kept, &added].map(|account| account.peek(0));
        let renewed = all([keep, keep, keep, (Verb::RENEW, 0)], &RENEW);
        assert!(renewed.iter().all(|verdict| verdict.allowed), "{limit}");
        // A limit that was not there then is not corrected.
        let after = all([keep, (Verb::SETTLE, 1), (Verb::SETTLE, 4), (Verb::SETTLE, 0)], &SETTLE);
        assert_eq!([after[0].remaining, after[2].remaining], before.map(|verdict| verdict.remaining), "{limit}");
        assert_eq!([&kept, &added].map(|account| account.peek(0)), before, "{limit}");
        assert_eq!(after[1].remaining, reserved[1].remaining + 1, "{limit}");
        assert_eq!(permits.peek(0).remaining, 2, "{limit}");
    }
}

/// Whatever is reserved, settled, renewed and reported, and whatever the clock does: all
/// answers are those of the oracle.
pub fn every_correction_is_that_of_the_oracle<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for seed in 0..corrections() / CORRECTIONS_OF_ONE_STORE {
        compare(make, &mut Random::new(0x5e77_1e00 + seed));
    }
}

/// How many corrections are compared: `TIDEGATE_CORRECTIONS`, or few.
fn corrections() -> u64 {
    let told = std::env::var("TIDEGATE_CORRECTIONS").ok().and_then(|text| text.parse().ok());
    told.unwrap_or(2_000).max(CORRECTIONS_OF_ONE_STORE)
}

const CORRECTIONS_OF_ONE_STORE: u64 = 200;

fn compare<S: Store>(make: &impl Fn() -> (S, ManualClock), random: &mut Random) {
    let bench = Bench::new(make);
    let clock = ManualClock::at(Micros::new(START));
    let oracle = OracleStore::new(clock.clone());
    let limits = [limits().as_slice(), &[IN_FLIGHT]].concat();
    let meters: Vec<Meter> = (0..3).map(|rule| Meter::new(format!("rule {rule}"), random.choose(&limits))).collect();
    let key = Key::from(("alice", "calls"));
    // Which limits each reservation has.
    let mut reserved: Vec<Vec<usize>> = Vec::new();
    let mut now = START;
    for _ in 0..CORRECTIONS_OF_ONE_STORE {
        // Ids are remembered for five minutes, and sometimes the clock goes back.
        now += random.magnitude(1..=2_000_000);
        now -= if random.percent(20) { random.magnitude(1..=6_000_000) } else { 0 };
        let some = || (0..meters.len()).collect::<Vec<_>>();
        let known = (!reserved.is_empty()).then(|| random.within(0..=reserved.len() as u64 - 1) as usize);
        let recent = reserved.len().checked_sub(1 + random.within(0..=3) as usize);
        let (number, purpose) = match (random.within(0..=99), known, recent.or(known)) {
            (0..45, ..) | (_, None, _) => (reserved.len(), Some(Purpose::Once)),
            (45..55, Some(known), _) => (known, Some(Purpose::Settle)),
            (55..75, _, Some(recent)) => (recent, Some(Purpose::Settle)),
            (75..88, _, Some(recent)) => (recent, Some(Purpose::Renew)),
            (88..92, ..) => (reserved.len() + 7, Some(Purpose::Settle)),
            _ => (0, None),
        };
        let text = format!("r-{number}");
        let id = purpose.map(|purpose| RequestId { text: &text, purpose, ..ID });
        let rules = match purpose {
            Some(Purpose::Once) => some().into_iter().filter(|_| random.percent(70)).collect(),
            Some(_) if random.percent(80) => reserved.get(number).cloned().unwrap_or_else(some),
            _ => some(),
        };
        let check = |rule: &usize| {
            let meter = &meters[*rule];
            let (capacity, is_log) = (meter.capacity(), meter.is_in_flight());
            let some = random.within(0..=capacity);
            let (verb, cost) = match (purpose, random.within(0..=9)) {
                (Some(Purpose::Once), 0..8) => (Verb::Charge, some.min(2)),
                (Some(Purpose::Once), _) => (Verb::Charge, some),
                (Some(Purpose::Settle), 0..2) => (Verb::Peek, 0),
                (Some(Purpose::Settle), 2..4) => (Verb::SETTLE, 3 * some),
                (Some(Purpose::Settle), _) => (Verb::SETTLE, some),
                (Some(Purpose::Renew), _) if is_log => (Verb::RENEW, 0),
                (Some(Purpose::Renew), _) => (Verb::Peek, 0),
                (None, 0..5) => (Verb::Report, some),
                (None, 5..8) => (Verb::Charge, some),
                (None, _) => (Verb::Refund, some),
            };
            let check = Check::new(meter, &key, verb, cost).expect("a cost within the capacity");
            id.as_ref().map_or(check, |id| check.with_id(id))
        };
        let checks: Vec<Check<'_>> = rules.iter().map(check).collect();
        if checks.is_empty() {
            continue;
        }
        bench.set(now);
        clock.set(Micros::new(now));
        let mut verdicts = [vec![Verdict::default(); checks.len()], vec![Verdict::default(); checks.len()]];
        let [got, right] = &mut verdicts;
        let answers = [block_on(bench.store.decide(&checks, got)), block_on(oracle.decide(&checks, right))];
        let answers = answers.map(|answer| answer.map_err(|error| error.to_string()));
        assert_eq!(answers[0], answers[1], "{checks:?}");
        assert_eq!(verdicts[0], verdicts[1], "{checks:?} at {now}");
        let is_reserved = |check: &Check<'_>, verdict: &Verdict| verdict.allowed || check.cost() == 0;
        if purpose == Some(Purpose::Once) {
            let all = checks.iter().zip(&verdicts[1]).all(|(check, verdict)| is_reserved(check, verdict));
            // The number of one that was refused is not used again: it may be tried again.
            reserved.push(if all { rules } else { some() });
        }
    }
}
