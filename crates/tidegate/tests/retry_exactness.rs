//! Every number in a verdict, checked by trying: small limits in every state
//! that a few requests can bring them into, and time stepped through
//! microsecond by microsecond. No arithmetic is involved but counting.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Meter};
use tidegate::{Algorithm, Key, Limit, Limiter, ManualClock, MemoryStore, Micros};
use tidegate::{Name, Request};

/// A key in some state, and the clock that it is asked by.
#[derive(Clone)]
struct Subject<'a> {
    limit: Limit,
    meter: &'a Meter,
    key: Key<'a>,
    store: &'a MemoryStore,
    clock: &'a ManualClock,
    now: u64,
}

impl Subject<'_> {
    /// The same at another time.
    fn at(&self, now: u64) -> Subject<'_> {
        Subject { now, ..self.clone() }
    }

    fn ask(&self, verb: Verb, cost: u64) -> Verdict {
        self.clock.set(Micros::new(self.now));
        let check = Check::new(self.meter, &self.key, verb, cost).expect("costs are within the capacity");
        let mut verdict = [Verdict::default()];
        self.store.decide_now(&[check], &mut verdict).expect("a memory store always answers");
        verdict[0]
    }

    fn peek(&self, cost: u64) -> Verdict {
        self.ask(Verb::Peek, cost)
    }

    /// How long until `happens` for the first time.
    fn first(&self, happens: impl Fn(u64) -> bool) -> Micros {
        let wait = (0..10_000).find(|wait| happens(self.now + wait));
        Micros::new(wait.unwrap_or_else(|| panic!("{}: not within ten milliseconds", self.limit)))
    }
}

/// Limits small enough to try every state of them.
fn small_limits() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (count, period) in
        (1..=3).flat_map(|count| [1, 2, 3, 5, 7].map(|period| (count, Duration::from_micros(period))))
    {
        for capacity in 1..=3 {
            limits.push(Limit::token_bucket(count, period).burst(capacity));
            limits.push(Limit::leaky_bucket(count, period).queue(capacity));
        }
        limits.push(Limit::fixed_window(count, period));
        limits.push(Limit::fixed_window(count, period).from_first_request());
        limits.push(Limit::sliding_log(count, period));
        limits.push(Limit::sliding_counter(count, period));
    }
    limits
}

/// Runs `test` in every state that four requests can lead to.
fn in_every_state(test: impl Fn(&Subject<'_>)) {
    const PAUSES: [u64; 4] = [0, 1, 2, 4];
    const REQUESTS: u32 = 4;
    for limit in small_limits() {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().max_keys(8_192).clock(clock.clone()).build().expect("valid settings");
        let meter = Meter::new(Name::literal("small"), limit);
        // Three bits for each request: a pause, and a cost of one or of all.
        for history in 0..1u64 << (3 * REQUESTS) {
            // Not all at the same place in a window.
            let now = 1_000_000 + history * 1_003;
            let mut subject =
                Subject { limit, meter: &meter, key: Key::from(history), store: &store, clock: &clock, now };
            for request in 0..REQUESTS {
                let choice = history >> (3 * request);
                subject.now += PAUSES[(choice & 3) as usize];
                let cost = if choice & 4 == 0 { 1 } else { limit.capacity() };
                subject.ask(Verb::Charge, cost);
            }
            test(&subject);
        }
    }
}

#[test]
fn the_wait_is_the_shortest_after_which_it_passes() {
    in_every_state(|subject| {
        for cost in 0..=subject.limit.capacity() {
            let told = subject.peek(cost);
            let tried = subject.first(|now| subject.at(now).peek(cost).allowed);
            assert_eq!(told.retry_after, tried, "{}: a cost of {cost} at {}", subject.limit, subject.now);
            assert_eq!(told.allowed, tried == Micros::ZERO, "{}: a cost of {cost} at {}", subject.limit, subject.now);
        }
    });
}

#[test]
fn once_it_passes_it_goes_on_passing() {
    in_every_state(|subject| {
        let cost = subject.limit.capacity();
        let promised = subject.now + subject.peek(cost).retry_after.get();
        for later in 0..20 {
            assert!(subject.at(promised + later).peek(cost).allowed, "{}: {later} us later", subject.limit);
        }
    });
}

#[test]
fn a_charge_is_refused_until_then_and_passes_then() {
    in_every_state(|subject| {
        let Subject { limit, now, .. } = *subject;
        // Both costs in one state: the first refusal must not have mattered.
        let [most, one] = [limit.capacity(), 1].map(|cost| now + subject.peek(cost).retry_after.get());
        for (cost, promised) in [(limit.capacity(), most), (1, one)] {
            let refused = promised == now || !subject.at(promised - 1).ask(Verb::Charge, cost).allowed;
            assert!(refused, "{limit}: a cost of {cost} passed before {promised}");
        }
        assert!(subject.at(one).ask(Verb::Charge, 1).allowed, "{limit}: a cost of 1 was refused at {one}");
    });
}

#[test]
fn remaining_is_the_largest_cost_that_passes() {
    in_every_state(|subject| {
        let largest = (0..=subject.limit.capacity()).rev().find(|cost| subject.peek(*cost).allowed);
        assert_eq!(Some(subject.peek(1).remaining), largest, "{} at {}", subject.limit, subject.now);
    });
}

#[test]
fn the_key_is_as_if_never_used_when_its_reset_has_come() {
    in_every_state(|subject| {
        let Subject { limit, now, .. } = *subject;
        let told = subject.peek(1).reset_after;
        let tried = subject.first(|now| subject.at(now).peek(1).reset_after == Micros::ZERO);
        assert_eq!(told, tried, "{limit} at {now}");
        let then = subject.at(now + told.get());
        let fresh = Subject { key: Key::from("never seen"), ..then.clone() };
        for (verb, cost) in [(Verb::Peek, limit.capacity()), (Verb::Charge, 1), (Verb::Charge, limit.capacity())] {
            assert_eq!(then.ask(verb, cost), fresh.ask(verb, cost), "{limit} at {}", then.now);
        }
        fresh.ask(Verb::Reset, 0);
    });
}

#[test]
fn a_leaky_bucket_lets_go_when_what_came_before_has_gone() {
    in_every_state(|subject| {
        let told = subject.peek(1);
        match subject.limit.algorithm() {
            Algorithm::LeakyBucket if told.allowed => {
                assert_eq!(told.delay, told.reset_after, "{} at {}", subject.limit, subject.now);
            }
            Algorithm::LeakyBucket
            | Algorithm::TokenBucket
            | Algorithm::FixedWindow
            | Algorithm::SlidingLog
            | Algorithm::SlidingCounter => assert_eq!(told.delay, Micros::ZERO, "{}", subject.limit),
        }
    });
}

#[test]
fn the_wait_for_several_limits_is_the_shortest_after_which_all_pass() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let limits = [
        Limit::token_bucket(3, Duration::from_micros(10)),
        Limit::fixed_window(5, Duration::from_micros(31)),
        Limit::sliding_log(4, Duration::from_micros(20)),
        Limit::sliding_counter(5, Duration::from_micros(17)),
    ];
    let limiter = Limiter::with_store(limits, store).expect("four limits are a policy");
    let mut now = 1_000_000;
    let mut refusals = 0;
    for step in 0..1_000 {
        now += step % 4;
        let request = Request::new("alice").cost(step % 3 + 1);
        let ask = |now| {
            clock.set(Micros::new(now));
            limiter.peek(request.clone()).expect("a memory store always answers")
        };
        let told = ask(now);
        let tried = (0..10_000).find(|wait| ask(now + wait).is_allowed()).expect("it passes within ten milliseconds");
        assert_eq!(told.retry_after(), Some(Duration::from_micros(tried)), "step {step}");
        refusals += u64::from(!told.is_allowed());
        clock.set(Micros::new(now));
        assert_eq!(limiter.allow(request), tried == 0, "step {step}");
    }
    assert!((300..900).contains(&refusals), "{refusals} refusals in 1000 steps");
}
