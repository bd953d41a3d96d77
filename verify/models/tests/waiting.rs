//! `acquire_async`, poll by poll: waiters who are polled, dropped, overtaken and
//! forgotten in any order that a seed can think of, on one thread and by a
//! clock that is moved by hand.
//!
//! Beside the limiter is a twin without waiters. It is asked what the waiters ask
//! whenever they do, and the two never differ: so a waiter that is cancelled, at
//! whichever poll, has taken nothing. Whenever no woken waiter is left, no waiter
//! may be left that could go on: no wake-up is lost. And no waiter is admitted
//! before an earlier one.
//!
//! `TIDEGATE_WAITS` says how many stories, `TIDEGATE_SEED` which ones.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, Store, StoreError};
use tidegate::{AcquireError, Algorithm, Clock, Decision, Limit, Limiter, ManualClock, MemoryStore, Micros, Request};
use tidegate_testkit::Random;

const START: u64 = 1_700_000_003_123_457;

type Outcome = Result<Decision, AcquireError>;

/// A memory store that lets its callers wait for a few polls before it decides,
/// as a store far away does.
struct Hesitant {
    store: MemoryStore,
    polls: u32,
}

impl Store for Hesitant {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut left = self.polls;
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.store.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A waiter.
struct Waiter {
    key: &'static str,
    cost: u64,
    future: Pin<Box<dyn Future<Output = Outcome>>>,
    woken: Arc<Woken>,
    polls: u32,
    /// The number among all, since it was first polled.
    place: Option<u64>,
    deadline: Micros,
    timeout: Micros,
    /// When it will look again, since it was first in line and looked.
    told: Option<Micros>,
}

/// When a waiter is to give up: which one, and after how many polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaver {
    waiter: usize,
    polls: u32,
}

/// What became of a story.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    polls: u64,
    admitted: u64,
    timed_out: u64,
    dropped: u64,
    /// How often each of the first waiters was polled.
    polled: [u32; 4],
}

/// A limiter, its twin, and everyone who waits.
struct Line {
    random: Random,
    clock: ManualClock,
    limiter: Limiter<Hesitant>,
    twin: Limiter,
    waiters: Vec<Option<Waiter>>,
    places: u64,
    leaver: Option<Leaver>,
    tally: Tally,
}

fn limit(random: &mut Random) -> Limit {
    let (count, period) = (random.within(1..=4), Duration::from_micros(random.within(1..=1_000)));
    let burst = random.within(1..=4);
    match random.choose(&Algorithm::ALL) {
        Algorithm::TokenBucket => Limit::token_bucket(count, period).burst(burst),
        Algorithm::LeakyBucket => Limit::leaky_bucket(count, period).queue(burst),
        Algorithm::FixedWindow => Limit::fixed_window(count, period),
        Algorithm::SlidingLog => Limit::sliding_log(count, period),
        Algorithm::SlidingCounter => Limit::sliding_counter(count, period),
    }
}

impl Line {
    fn new(seed: u64, leaver: Option<Leaver>) -> Line {
        let mut random = Random::new(seed);
        let clock = ManualClock::at(Micros::new(START));
        let store = || MemoryStore::builder().max_keys(8).clock(clock.clone()).build().expect("valid settings");
        let limit = limit(&mut random);
        let hesitant = Hesitant { store: store(), polls: random.within(0..=2) as u32 };
        let limiter = Limiter::with_store(limit, hesitant).expect("a valid policy");
        let twin = Limiter::with_store(limit, store()).expect("a valid policy");
        Line { random, clock, limiter, twin, waiters: Vec::new(), places: 0, leaver, tally: Tally::default() }
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Something happens, and every waiter that it wakes is polled until it rests.
    fn act(&mut self) {
        match self.random.within(0..=19) {
            0..=4 => self.come(),
            5 | 6 => self.poll_any(),
            7 | 8 => self.drop_any(),
            9 => self.overtake(),
            10 => self.give_back(),
            11 if self.random.percent(50) => self.change_the_limit(),
            _ => self.pass_time(),
        }
        self.rest();
    }

    fn come(&mut self) {
        if self.waiters.iter().flatten().count() >= 6 {
            return;
        }
        let key = self.random.choose(&["alice", "alice", "alice", "bob"]);
        let cost = self.random.within(1..=2);
        let timeout = Micros::new(self.random.magnitude(1..=10_000));
        let limiter = self.limiter.clone();
        let request = Request::new(key).cost(cost);
        let future = Box::pin(async move { limiter.acquire_async(request, timeout.to_duration()).await });
        let waiter = Waiter {
            key,
            cost,
            future,
            woken: Arc::default(),
            polls: 0,
            place: None,
            deadline: Micros::MAX,
            timeout,
            told: None,
        };
        self.waiters.push(Some(waiter));
        // Some are never polled, or not at once.
        if self.random.percent(80) {
            self.poll(self.waiters.len() - 1);
        }
    }

    fn any(&mut self) -> Option<usize> {
        let present: Vec<usize> = (0..self.waiters.len()).filter(|index| self.waiters[*index].is_some()).collect();
        (!present.is_empty()).then(|| self.random.choose(&present))
    }

    fn poll_any(&mut self) {
        if let Some(index) = self.any() {
            self.poll(index);
        }
    }

    fn drop_any(&mut self) {
        if let Some(index) = self.any() {
            self.waiters[index] = None;
            self.tally.dropped += 1;
        }
    }

    /// A caller checks without waiting.
    fn overtake(&mut self) {
        let request = || Request::new("alice").cost(1);
        let decision = block_on(self.limiter.check_async(request()));
        same(decision, self.twin.check(request()), "a check");
    }

    fn give_back(&mut self) {
        if self.random.percent(70) {
            let request = || Request::new("alice").cost(1);
            same(
                block_on(self.limiter.refund_async(request())).map(Decision::from),
                self.twin.refund(request()).map(Decision::from),
                "a refund",
            );
        } else {
            same(
                block_on(self.limiter.reset_async("alice")).map(Decision::from),
                self.twin.reset("alice").map(Decision::from),
                "a reset",
            );
        }
        self.may_be_more("alice");
    }

    /// The first in line asks again, before its `retry_after`.
    fn may_be_more(&mut self, key: &str) {
        let waiting = self.waiters.iter_mut().flatten().filter(|waiter| waiter.key == key && waiter.place.is_some());
        if let Some(first) = waiting.min_by_key(|waiter| waiter.place) {
            let is_asleep = first.told.take().is_some();
            assert!(!is_asleep || first.woken.0.load(Ordering::SeqCst), "the first in line was not woken");
        }
    }

    /// Where the store hesitates, a charge may be made by a limit that was
    /// changed meanwhile, and given back: a waiter that leaves in between loses it.
    fn change_the_limit(&mut self) {
        if self.limiter.store().polls > 0 {
            return;
        }
        let limit = limit(&mut self.random);
        let changed = (self.limiter.set_policy(limit), self.twin.set_policy(limit));
        assert_eq!(changed.0, changed.1);
        ["alice", "bob"].into_iter().for_each(|key| self.may_be_more(key));
    }

    /// To the next instant that matters, shortly before it, or to any other.
    fn pass_time(&mut self) {
        let now = self.now();
        let next = self.next_instant().filter(|_| self.random.percent(70));
        let next = next.unwrap_or_else(|| now.saturating_add(Micros::new(self.random.magnitude(1..=5_000))));
        let just_before = Micros::new(next.get().saturating_sub(1));
        self.clock.set(if self.random.percent(20) && just_before > now { just_before } else { next });
    }

    /// When a waiter has to be woken next.
    fn next_instant(&self) -> Option<Micros> {
        let waiting = self.waiters.iter().flatten().filter(|waiter| waiter.place.is_some());
        waiting.map(|waiter| waiter.told.unwrap_or(waiter.deadline)).min()
    }

    /// Whether no waiter is before this one in the queue of its key.
    fn is_first(&self, index: usize) -> bool {
        let waiter = self.waiters[index].as_ref().expect("it waits");
        let others = self.waiters.iter().flatten().filter(|other| other.key == waiter.key);
        others.filter_map(|other| other.place).min() == waiter.place
    }

    fn poll(&mut self, index: usize) {
        let now = self.now();
        let Some(waiter) = &mut self.waiters[index] else { return };
        if waiter.place.is_none() {
            waiter.place = Some(self.places);
            waiter.deadline = now.saturating_add(waiter.timeout);
            self.places += 1;
        }
        waiter.woken.0.store(false, Ordering::SeqCst);
        waiter.polls += 1;
        self.tally.polls += 1;
        if let Some(polled) = self.tally.polled.get_mut(index) {
            *polled = waiter.polls;
        }
        let waker = Waker::from(Arc::clone(&waiter.woken));
        match waiter.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => self.ends(index, &outcome),
            Poll::Pending => self.goes_on(index),
        }
        let is_over = |waiter: &Waiter| self.leaver == Some(Leaver { waiter: index, polls: waiter.polls });
        if self.waiters[index].as_ref().is_some_and(is_over) {
            self.waiters[index] = None;
            self.tally.dropped += 1;
        }
    }

    fn ends(&mut self, index: usize, outcome: &Outcome) {
        let is_first = self.is_first(index);
        let now = self.now();
        let waiter = self.waiters[index].take().expect("it waited");
        let request = || Request::new(waiter.key).cost(waiter.cost);
        match outcome {
            Ok(decision) => {
                assert!(is_first, "admitted before an earlier waiter");
                assert_eq!(self.twin.check(request()).ok(), Some(decision.clone()), "the twin is asked for the same");
                self.tally.admitted += 1;
            }
            Err(AcquireError::Timeout { .. }) => {
                // Only the first in line has asked.
                let told = is_first.then(|| self.twin.check(request()).expect("it can be"));
                let in_vain =
                    told.is_some_and(|told| !told.is_allowed() && now.saturating_add(wait(&told)) > waiter.deadline);
                assert!(in_vain || (!is_first && now >= waiter.deadline), "it gives up though there is time");
                self.tally.timed_out += 1;
            }
            Err(AcquireError::Check(_)) => {
                assert!(self.twin.check(request()).is_err(), "what cannot be, cannot be for the twin");
            }
            Err(error) => panic!("nothing else can happen: {error}"),
        }
    }

    fn goes_on(&mut self, index: usize) {
        let (is_first, now) = (self.is_first(index), self.now());
        let waiter = self.waiters[index].as_ref().expect("it waits");
        let hesitates = waiter.woken.0.load(Ordering::SeqCst);
        let has_looked = waiter.told.is_some_and(|told| now < told);
        if !is_first || hesitates || has_looked {
            return;
        }
        let told = self.twin.check(Request::new(waiter.key).cost(waiter.cost)).expect("it can be");
        assert!(!told.is_allowed(), "it waits though there is room");
        let told = now.saturating_add(wait(&told));
        if let Some(waiter) = &mut self.waiters[index] {
            assert!(told <= waiter.deadline, "it waits in vain");
            waiter.told = Some(told);
        }
    }

    /// Polls woken waiters until none is left; then none could go on.
    fn rest(&mut self) {
        loop {
            let is_woken = |waiter: &Option<Waiter>| {
                waiter.as_ref().is_some_and(|waiter| waiter.place.is_some() && waiter.woken.0.load(Ordering::SeqCst))
            };
            let woken: Vec<usize> = (0..self.waiters.len()).filter(|index| is_woken(&self.waiters[*index])).collect();
            if woken.is_empty() {
                break;
            }
            let index = self.random.choose(&woken);
            self.poll(index);
        }
        for index in 0..self.waiters.len() {
            let Some(waiter) = self.waiters[index].as_ref().filter(|waiter| waiter.place.is_some()) else { continue };
            let until = if self.is_first(index) { waiter.told } else { Some(waiter.deadline) };
            assert!(until.is_some_and(|until| self.now() < until), "waiter {index} was not woken");
        }
        for key in ["alice", "bob"] {
            let decision = block_on(self.limiter.peek_async(key));
            same(decision, self.twin.peek(key), "what is left");
        }
    }

    /// Lets time pass until no waiter is left.
    fn end(mut self) -> Tally {
        // A waiter that was never polled is in no queue.
        self.waiters
            .iter_mut()
            .filter(|waiter| waiter.as_ref().is_some_and(|waiter| waiter.place.is_none()))
            .for_each(|waiter| *waiter = None);
        while let Some(next) = self.next_instant() {
            assert!(next > self.now(), "time passes");
            self.clock.set(next);
            self.rest();
        }
        assert!(self.waiters.iter().all(Option::is_none));
        self.tally
    }
}

fn wait(refused: &Decision) -> Micros {
    Micros::from_duration(refused.retry_after().expect("a wait"))
}

fn same<E>(one: Result<Decision, E>, other: Result<Decision, E>, what: &str) {
    assert_eq!(one.ok(), other.ok(), "{what} differs from the twin's");
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

/// The story of a seed, in which a waiter may leave at a certain poll.
fn story(seed: u64, leaver: Option<Leaver>) -> Tally {
    let mut line = Line::new(seed, leaver);
    for _ in 0..30 {
        line.act();
    }
    line.end()
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Says which story it was, if one fails.
struct Telling(u64, Option<Leaver>);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Telling(seed, leaver) = self;
            println!("in the story of TIDEGATE_SEED={seed} TIDEGATE_WAITS=1, {leaver:?}");
        }
    }
}

#[test]
fn a_waiter_cancelled_at_any_poll_takes_nothing_and_blocks_no_other() {
    let (first, count) = (number("TIDEGATE_SEED", 1), number("TIDEGATE_WAITS", 40_000));
    let mut sum = Tally::default();
    for seed in first..first + count {
        let _telling = Telling(seed, None);
        let Tally { polls, admitted, timed_out, dropped, .. } = story(seed, None);
        sum.polls += polls;
        sum.admitted += admitted;
        sum.timed_out += timed_out;
        sum.dropped += dropped;
    }
    let Tally { polls, admitted, timed_out, dropped, .. } = sum;
    println!(
        "{count} stories from {first}: {polls} polls, {dropped} dropped, {admitted} admitted, {timed_out} timed out"
    );
    assert!(count < 100 || (dropped > 0 && admitted > 0 && timed_out > 0), "all of it happens");
}

/// Each of the first waiters of a story leaves after each of its polls, from
/// none to all of them.
#[test]
fn every_poll_is_one_to_leave_at() {
    let (first, count) = (number("TIDEGATE_SEED", 1), number("TIDEGATE_WAITS", 40_000) / 20);
    let mut left = 0;
    for seed in first..first + count {
        let Tally { polled, .. } = story(seed, None);
        for (waiter, most) in polled.into_iter().enumerate() {
            for polls in 1..=most {
                let leaver = Some(Leaver { waiter, polls });
                let _telling = Telling(seed, leaver);
                story(seed, leaver);
                left += 1;
            }
        }
    }
    println!("{count} stories from {first}, told {left} times more: a waiter leaves at each poll there is");
}
