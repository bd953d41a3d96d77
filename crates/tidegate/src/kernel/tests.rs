//! What every kernel has in common.

mod bounds;
mod corrections;

use super::*;

#[test]
fn a_verb_that_changes_nothing_is_not_a_write() {
    let bucket = Bucket::new(5, 1_000_000, 5, false).expect("a bucket");
    let looks = [(Verb::Peek, 0), (Verb::Peek, 1), (Verb::Charge, 0), (Verb::Report, 0), (Verb::Refund, 0)];
    let changes = [(Verb::Charge, 1), (Verb::Report, 1), (Verb::Refund, 1), (Verb::Reset, 0)];
    let cases = looks.map(|look| (look, false)).into_iter().chain(changes.map(|change| (change, true)));
    for ((verb, cost), writes) in cases {
        let (_, written) = decide(&bucket, &mut BucketState::default(), Micros::new(1), verb, cost);
        assert_eq!(written, writes, "{verb:?} {cost}");
    }
}

#[test]
fn a_state_too_far_ahead_is_replaced_by_a_change_and_kept_by_a_look() {
    let bucket = Bucket::new(5, 1_000_000, 5, false).expect("a bucket");
    let (now, mut ahead) = (Micros::new(1), BucketState::default());
    bucket.charge(&mut ahead, Micros::new(HOUR), 1);
    let full = bucket.heal(&ahead, now).expect("it is too far ahead");
    let mut refunded = full;
    bucket.refund(&mut refunded, now, 2);
    let cases = [
        (Verb::Peek, 1, ahead, 0),
        (Verb::Charge, 0, ahead, 0),
        (Verb::Refund, 0, ahead, 0),
        (Verb::Charge, 1, full, 0),
        (Verb::Refund, 2, refunded, 2),
        (Verb::Reset, 0, BucketState::default(), 5),
    ];
    for (verb, cost, after, remaining) in cases {
        let mut state = ahead;
        let (verdict, written) = decide(&bucket, &mut state, now, verb, cost);
        assert_eq!((verdict.remaining, written), (remaining, after != ahead), "{verb:?} {cost}");
        assert_eq!(state, after, "{verb:?} {cost}");
    }
}

/// A kernel that leaves everything to the provided methods that it can.
struct Plain;

impl Kernel for Plain {
    type State = u64;

    fn capacity(&self) -> u64 {
        5
    }

    fn admit(&self, state: &u64, _: Micros, cost: u64) -> Admission {
        let retry_after = Micros::new(1);
        if state + cost <= 5 { Admission::PASS } else { Admission::Wait { retry_after } }
    }

    fn charge(&self, state: &mut u64, now: Micros, cost: u64) -> Reading {
        *state += cost;
        self.read(state, now)
    }

    fn refund(&self, state: &mut u64, _: Micros, cost: u64) {
        *state -= cost.min(*state);
    }

    fn read(&self, state: &u64, _: Micros) -> Reading {
        // More than there is, as a kernel may say that grants a bonus.
        Reading { remaining: 7 - state, reset_after: Micros::ZERO }
    }

    fn forget_at(&self, _: &u64) -> Micros {
        Micros::MAX
    }

    fn encode(&self, _: &u64, _: &mut Vec<u8>) {}

    fn decode(&self, _: &[u8]) -> Option<u64> {
        None
    }
}

/// Five units an hour from the first charge on, in the five methods that are required.
struct Hourly;

const HOUR: u64 = 3_600_000_000;

impl Kernel for Hourly {
    type State = (u64, u64);

    fn admit(&self, state: &(u64, u64), now: Micros, cost: u64) -> Admission {
        let Reading { remaining, reset_after } = self.read(state, now);
        if cost <= remaining { Admission::PASS } else { Admission::Wait { retry_after: reset_after } }
    }

    fn charge(&self, state: &mut (u64, u64), now: Micros, cost: u64) -> Reading {
        let (until, used) = *state;
        *state = if until > now.get() { (until, used + cost) } else { (now.get() + HOUR, cost) };
        self.read(state, now)
    }

    fn read(&self, (until, used): &(u64, u64), now: Micros) -> Reading {
        let reset_after = Micros::new(until.saturating_sub(now.get()));
        Reading { remaining: if reset_after > Micros::ZERO { 5 - used } else { 5 }, reset_after }
    }

    fn encode(&self, (until, used): &(u64, u64), bytes: &mut Vec<u8>) {
        bytes.extend(until.to_le_bytes().into_iter().chain(used.to_le_bytes()));
    }

    fn decode(&self, bytes: &[u8]) -> Option<(u64, u64)> {
        let (until, used) = bytes.split_first_chunk()?;
        Some((u64::from_le_bytes(*until), u64::from_le_bytes(used.try_into().ok()?)))
    }
}

#[test]
fn five_methods_make_a_kernel() {
    let clock = crate::ManualClock::default();
    let store = crate::MemoryStore::builder().max_keys(4).clock(clock.clone()).build().expect("valid settings");
    let meter = crate::store::Meter::custom("hourly", Hourly);
    assert_eq!((meter.capacity(), Hourly.forget_at(&(7, 1))), (5, Micros::new(7)));
    let limiter = crate::Limiter::with_store(crate::Policy::new().meter(meter), store).expect("a good policy");
    assert!((0..5).all(|_| limiter.allow("alice")) && !limiter.allow("alice"));
    assert_eq!(limiter.refund("alice").expect("an answer").remaining(), Some(0), "nothing is given back");
    assert!(limiter.check(crate::Request::new("alice").cost(6)).is_err());
    let [fits, more] = [3, 9].map(|cost| limiter.report(crate::Request::new("bob").cost(cost)).expect("an answer"));
    let told = [fits, more].map(|decision| (decision.remaining(), decision.unrecorded()));
    assert_eq!(told, [(Some(2), 0), (Some(0), 7)], "what fits is recorded, without debt");
    let copy = Hourly.copy(&(HOUR, 5), Micros::ZERO);
    assert_eq!(copy, (HOUR, 5));
    clock.advance(std::time::Duration::from_secs(3_600));
    assert!(limiter.allow("alice"));
    assert_eq!(limiter.store().count_keys(), 1);
    clock.advance(std::time::Duration::from_secs(3_600));
    assert_eq!(limiter.store().count_keys(), 0, "its time is over");
}

#[test]
fn used_is_capacity_minus_remaining_and_never_negative() {
    assert_eq!([0, 2, 3, 7].map(|state| Plain.used(&state, Micros::ZERO)), [0, 0, 1, 5]);
}

/// The provided methods for what was spent already, and every charge that they make.
#[derive(Default)]
struct Charges {
    left: u64,
    made: std::sync::Mutex<Vec<u64>>,
}

impl Kernel for Charges {
    type State = u64;

    fn capacity(&self) -> u64 {
        self.left
    }

    fn admit(&self, state: &u64, _: Micros, cost: u64) -> Admission {
        let retry_after = Micros::new(1);
        if state + cost <= self.left { Admission::PASS } else { Admission::Wait { retry_after } }
    }

    fn charge(&self, state: &mut u64, now: Micros, cost: u64) -> Reading {
        self.made.lock().expect("no panic while it is locked").push(cost);
        *state += cost;
        self.read(state, now)
    }

    fn read(&self, state: &u64, _: Micros) -> Reading {
        Reading { remaining: self.left - state, reset_after: Micros::ZERO }
    }

    fn encode(&self, _: &u64, _: &mut Vec<u8>) {}

    fn decode(&self, _: &[u8]) -> Option<u64> {
        None
    }
}

#[test]
fn a_report_charges_what_is_left_and_nothing_where_nothing_is() {
    let cases: [(u64, u64, &[u64], u64); 6] =
        [(0, 0, &[], 0), (0, 3, &[], 3), (1, 1, &[1], 0), (1, 3, &[1], 2), (5, 3, &[3], 0), (5, 0, &[], 0)];
    for (left, cost, charges, unrecorded) in cases {
        let kernel = Charges { left, ..Charges::default() };
        assert_eq!(kernel.report(&mut 0, Micros::ZERO, cost), unrecorded, "{cost} of {left}");
        assert_eq!(*kernel.made.lock().expect("no panic while it is locked"), charges, "{cost} of {left}");
    }
}

#[test]
fn a_charge_that_a_kernel_cannot_refund_stays() {
    let (kernel, mut state) = (Charges { left: 5, ..Charges::default() }, 4);
    let charged = Charged { at: Micros::ZERO, cost: 4 };
    let (verdict, _) = decide(&kernel, &mut state, Micros::ZERO, Verb::Settle(charged), 1);
    assert_eq!((verdict.allowed, verdict.remaining, state), (true, 1, 4));
    assert!(!decide(&kernel, &mut state, Micros::ZERO, Verb::Renew(charged), 0).0.allowed);
}

#[test]
fn of_two_limits_the_report_that_recorded_less_is_told() {
    let said = |unrecorded| Verdict { allowed: true, unrecorded, ..Verdict::default() };
    assert_eq!([(3, 0), (0, 3), (2, 3)].map(|(one, other)| said(one).and(said(other)).0.unrecorded), [3; 3]);
}
