//! Threads ask the memory store at once, and what they were told is one story:
//! there is an order of their requests, none before it was asked or after it
//! was answered, in which every answer is the right one.
//!
//! What is right, the oracle says, which shares nothing with the library. Time
//! passes between two rounds of requests. Where the limit is changed meanwhile,
//! or there is no room for all keys, the library may be stricter than the limit
//! and never laxer: then only what it lets pass has to be right.
//!
//! `TIDEGATE_HISTORIES` says how many stories of each kind, `TIDEGATE_SEED` which ones.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use tidegate::kernel::Verb;
use tidegate::{
    Clock, Decision, Key, Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Overflow, Policy, Request,
};
use tidegate_testkit::{Ask, Oracle, Random};

/// Units of each limit.
const CAPACITY: u64 = 5;
const MINUTE: Duration = Duration::from_secs(60);
const START: Micros = Micros::new(1_700_000_000_000_000);

/// An operation on the store, or on its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Charge(u64),
    Peek(u64),
    Refund(u64),
    Reset,
    /// The limit is another one now.
    Limit(u64),
    /// So many microseconds pass.
    Pass(u64),
}

/// What is answered: whether it passes, and how much is left.
type Outcome = (bool, u64);

/// What is right: all that happened so far, asked of the oracle.
#[derive(Clone, Debug)]
struct Right {
    limit: Limit,
    past: Vec<Operation>,
}

thread_local! {
    /// Answers of the oracle to whole stories: orders that are tried have much in common.
    static KNOWN: RefCell<HashMap<(Limit, Vec<Operation>), Outcome>> = RefCell::default();
}

impl SequentialSpec for Right {
    type Op = Operation;
    type Ret = Outcome;

    fn invoke(&mut self, operation: &Operation) -> Outcome {
        self.past.push(*operation);
        let story = (self.limit, self.past.clone());
        if let Some(known) = KNOWN.with_borrow(|known| known.get(&story).copied()) {
            return known;
        }
        let answer = self.tell();
        KNOWN.with_borrow_mut(|known| {
            // Stories of one history are alike, those of two are not.
            if known.len() > 10_000 {
                known.clear();
            }
            known.insert(story, answer);
        });
        answer
    }
}

impl Right {
    fn tell(&self) -> Outcome {
        let (mut oracle, key, mut now) = (Oracle::new(), Key::from("alice"), START);
        let mut answer = NOTHING;
        for operation in &self.past {
            let (verb, cost) = match *operation {
                Operation::Charge(cost) => (Verb::Charge, cost),
                Operation::Peek(cost) => (Verb::Peek, cost),
                Operation::Refund(cost) => (Verb::Refund, cost),
                Operation::Reset => (Verb::Reset, 0),
                Operation::Pass(length) => {
                    (now, answer) = (now.saturating_add(Micros::new(length)), NOTHING);
                    continue;
                }
                Operation::Limit(_) => unreachable!("the oracle knows one limit"),
            };
            let rule = &Name::literal("rule");
            let ask = Ask {
                rule,
                limit: self.limit,
                key: &key,
                verb,
                cost,
                floor: 0,
                notify: &[],
                former: &[],
                corrected: None,
            };
            let verdict = oracle.decide(&[ask], now)[0];
            answer = (verdict.allowed, verdict.remaining);
        }
        answer
    }
}

/// What is no operation has no answer.
const NOTHING: Outcome = (true, 0);

/// What is at most right while time stands still: a sum and a comparison.
#[derive(Clone, Debug)]
struct AtMost {
    used: u64,
    capacity: u64,
}

impl SequentialSpec for AtMost {
    type Op = Operation;
    type Ret = Outcome;

    fn invoke(&mut self, operation: &Operation) -> Outcome {
        let room = |cost| self.used + cost <= self.capacity;
        let passes = match *operation {
            Operation::Charge(cost) | Operation::Peek(cost) => room(cost),
            Operation::Refund(_) | Operation::Reset | Operation::Limit(_) | Operation::Pass(_) => true,
        };
        match *operation {
            Operation::Charge(cost) if passes => self.used += cost,
            Operation::Refund(cost) => self.used = self.used.saturating_sub(cost),
            Operation::Reset => self.used = 0,
            Operation::Limit(capacity) => self.capacity = capacity,
            Operation::Charge(_) | Operation::Peek(_) | Operation::Pass(_) => {}
        }
        (passes, self.capacity.saturating_sub(self.used))
    }

    fn is_valid_step(&mut self, operation: &Operation, &(passes, left): &Outcome) -> bool {
        let may_be_refused = matches!(operation, Operation::Charge(_) | Operation::Peek(_));
        if may_be_refused && !passes {
            return left <= self.capacity;
        }
        let (may_pass, most_left) = self.invoke(operation);
        may_pass && left <= most_left
    }
}

/// A operation or an answer, and when.
type Moment = (u64, usize, Result<Operation, Outcome>);

/// Whether the moments are one story.
fn is_one_story<S>(spec: S, moments: &[Moment]) -> bool
where
    S: SequentialSpec<Op = Operation, Ret = Outcome> + Clone + Debug,
{
    let mut tester = LinearizabilityTester::new(spec);
    for (_, thread, said) in moments {
        let outcome = match *said {
            Ok(operation) => tester.on_invoke(*thread, operation).map(drop),
            Err(answer) => tester.on_return(*thread, answer).map(drop),
        };
        outcome.expect("each thread asks, and then is answered");
    }
    tester.is_consistent()
}

/// A limit of so many units.
type LimitOf = fn(u64) -> Limit;

/// Whom threads ask.
struct Asked {
    limiter: Limiter,
    clock: ManualClock,
    /// What a changed limit is like.
    limit_of: LimitOf,
}

impl Asked {
    fn new(policy: Policy, max_keys: usize, overflow: Overflow) -> Asked {
        let clock = ManualClock::at(START);
        let store = MemoryStore::builder().max_keys(max_keys).overflow(overflow).clock(clock.clone()).build();
        let limiter = Limiter::with_store(policy, store.expect("valid settings")).expect("a valid policy");
        Asked { limiter, clock, limit_of: bucket }
    }

    fn ask(&self, key: &'static str, operation: Operation) -> Outcome {
        let request = |cost| Request::new(key).cost(cost);
        let decision = match operation {
            Operation::Charge(cost) => self.limiter.check(request(cost)),
            Operation::Peek(cost) => self.limiter.peek(request(cost)),
            Operation::Refund(cost) => self.limiter.refund(request(cost)).map(tidegate::Decision::from),
            Operation::Reset => self.limiter.reset(key).map(tidegate::Decision::from),
            Operation::Limit(count) => {
                let policy = Policy::new().limit("rule", (self.limit_of)(count));
                // More changes than a limit may have within its horizon are refused.
                self.limiter.set_policy(policy).expect("few changes");
                return NOTHING;
            }
            Operation::Pass(length) => {
                self.clock.set(self.clock.now().saturating_add(Micros::new(length)));
                return NOTHING;
            }
        };
        let answer = |decision: Decision| (decision.is_allowed(), decision.remaining().expect("a limit"));
        decision.map(answer).expect("a cost within the limit")
    }
}

/// A operation, and of which key.
type Asking = (&'static str, Operation);

/// Asks all of it at once, round by round, and notes for each key what was
/// said when. Between two rounds, the operations in `between` run.
fn history(asked: &Asked, rounds: &[Vec<Vec<Asking>>], between: &[Operation]) -> HashMap<&'static str, Vec<Moment>> {
    let time = AtomicU64::new(0);
    let moment = || time.fetch_add(1, Ordering::SeqCst);
    let mut moments: HashMap<&'static str, Vec<Moment>> = HashMap::new();
    for (number, threads) in rounds.iter().enumerate() {
        let gate = Barrier::new(threads.len());
        let said: Vec<(&'static str, Moment)> = thread::scope(|scope| {
            let threads: Vec<_> = threads
                .iter()
                .enumerate()
                .map(|(thread, requests)| {
                    let (gate, moment) = (&gate, &moment);
                    scope.spawn(move || {
                        gate.wait();
                        let mut said = Vec::with_capacity(2 * requests.len());
                        for (key, operation) in requests {
                            said.push((*key, (moment(), thread, Ok(*operation))));
                            let answer = asked.ask(key, *operation);
                            said.push((*key, (moment(), thread, Err(answer))));
                        }
                        said
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
        });
        said.into_iter().for_each(|(key, said)| moments.entry(key).or_default().push(said));
        if let Some(operation) = between.get(number) {
            let (before, answer, after) = (moment(), asked.ask("alice", *operation), moment());
            for said in moments.values_mut() {
                said.extend([(before, 0, Ok(*operation)), (after, 0, Err(answer))]);
            }
        }
    }
    moments.values_mut().for_each(|said| said.sort_by_key(|(time, ..)| *time));
    moments
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// How many histories of each kind, and which ones.
fn histories() -> impl Iterator<Item = (u64, Random)> {
    let (count, seed) = (number("TIDEGATE_HISTORIES", 400), number("TIDEGATE_SEED", 1));
    (0..count).map(move |round| (round, Random::new(seed.wrapping_mul(1_000_003).wrapping_add(round))))
}

fn bucket(count: u64) -> Limit {
    Limit::token_bucket(count, MINUTE)
}

fn limits() -> [(&'static str, Limit, Policy); 8] {
    let also = |limit| Policy::new().limit("rule", limit).limit("looser", Limit::sliding_log(100, MINUTE));
    let alone = |name, limit: Limit| (name, limit, limit.into());
    let (token, window) = (Limit::token_bucket(CAPACITY, MINUTE), Limit::fixed_window(CAPACITY, MINUTE));
    [
        alone("token bucket", token),
        alone("wide bucket", Limit::token_bucket(999_983, MINUTE).burst(CAPACITY)),
        alone("leaky bucket", Limit::leaky_bucket(CAPACITY, MINUTE).queue(CAPACITY)),
        alone("fixed window", window),
        alone("sliding counter", Limit::sliding_counter(CAPACITY, MINUTE)),
        alone("sliding log", Limit::sliding_log(CAPACITY, MINUTE)),
        ("two tables", token, also(token)),
        ("two shelves", window, also(window)),
    ]
}

#[test]
fn what_threads_are_told_is_one_story() {
    for (name, limit, policy) in limits() {
        for (round, mut random) in histories() {
            let asked = Asked::new(policy.clone(), 8, Overflow::Share);
            let threads = 2 + (round % 3) as usize;
            let operation = |random: &mut Random| match random.within(0..=9) {
                0..=5 => Operation::Charge(random.within(1..=3)),
                6 => Operation::Peek(random.within(1..=3)),
                7 | 8 => Operation::Refund(random.within(1..=2)),
                _ => Operation::Reset,
            };
            let rounds = rounds(&mut random, threads, [3, 2], |random| ("alice", operation(random)));
            // Up to two periods, and most often less than one.
            let between = [Operation::Pass(random.magnitude(1..=120_000_000))];
            let moments = &history(&asked, &rounds, &between)["alice"];
            let right = Right { limit, past: Vec::new() };
            assert!(is_one_story(right, moments), "{name}, round {round}: {moments:#?}");
        }
    }
    println!("{} histories of each of 8 kinds: all of them one story", histories().count());
}

/// What each thread asks, in each round.
fn rounds(
    random: &mut Random,
    threads: usize,
    requests: [usize; 2],
    mut operation: impl FnMut(&mut Random) -> Asking,
) -> Vec<Vec<Vec<Asking>>> {
    let mut ask = |count| (0..count).map(|_| operation(random)).collect();
    requests.map(|count| (0..threads).map(|_| ask(count)).collect()).into()
}

/// Every limit takes the place of another while threads ask: no request
/// passes that the limit in force would refuse.
#[test]
fn a_limit_change_admits_nothing_beyond_either_limit() {
    let kinds: [(&str, LimitOf); 4] = [
        ("token bucket", bucket),
        ("fixed window", |count| Limit::fixed_window(count, MINUTE)),
        ("sliding counter", |count| Limit::sliding_counter(count, MINUTE)),
        ("sliding log", |count| Limit::sliding_log(count, MINUTE)),
    ];
    for (name, limit_of) in kinds {
        for (round, mut random) in histories() {
            let policy = Policy::new().limit("rule", limit_of(CAPACITY));
            let asked = Asked { limit_of, ..Asked::new(policy, 8, Overflow::Share) };
            let rounds = rounds(&mut random, 2 + (round % 2) as usize, [4, 2], |random| {
                let operation = match random.within(0..=9) {
                    0..=5 => Operation::Charge(random.within(1..=3)),
                    6 => Operation::Peek(1),
                    7 => Operation::Refund(1),
                    _ => Operation::Limit(random.choose(&[3, 5, 8])),
                };
                ("alice", operation)
            });
            let moments = &history(&asked, &rounds, &[])["alice"];
            let at_most = AtMost { used: 0, capacity: CAPACITY };
            assert!(is_one_story(at_most, moments), "{name}, round {round}: {moments:#?}");
        }
    }
}

/// More keys than there is room for, so that some share a state or are refused:
/// each gets its limit at most.
#[test]
fn keys_that_find_no_room_get_their_limit_at_most() {
    const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    for (name, limit, policy) in limits() {
        for (round, mut random) in histories() {
            let overflow = if round % 2 == 0 { Overflow::Share } else { Overflow::Refuse };
            let asked = Asked::new(policy.clone(), 1, overflow);
            let rounds = rounds(&mut random, 3, [6, 4], |random| {
                let operation =
                    if random.percent(85) { Operation::Charge(random.within(1..=3)) } else { Operation::Peek(1) };
                (random.choose(&KEYS), operation)
            });
            let at_most = AtMost { used: 0, capacity: limit.capacity() };
            for (key, moments) in history(&asked, &rounds, &[]) {
                assert!(is_one_story(at_most.clone(), &moments), "{name}, round {round}, {key}: {moments:#?}");
            }
        }
    }
}

/// The judges themselves: two threads that were both told that they got the last.
#[test]
fn what_is_no_story_is_noticed() {
    let exact = || Right { limit: bucket(CAPACITY), past: Vec::new() };
    let at_most = || AtMost { used: 0, capacity: CAPACITY };
    let is_exact = |moments: &[Moment]| is_one_story(exact(), moments);
    let charge = |time, thread| (time, thread, Ok(Operation::Charge(3)));
    let told = |time, thread, left| (time, thread, Err((true, left)));
    let both_got_it = [charge(0, 0), charge(1, 1), told(2, 0, 2), told(3, 1, 2)];
    assert!(!is_exact(&both_got_it) && !is_one_story(at_most(), &both_got_it));
    // Refused before anything was charged: too strict, but not too lax.
    let for_nothing = [charge(0, 0), (1, 0, Err((false, 5)))];
    assert!(!is_exact(&for_nothing) && is_one_story(at_most(), &for_nothing));
    // Answered before it was asked for: the second sees what the first has not done yet.
    let too_soon = [(0, 0, Ok(Operation::Peek(1))), (1, 0, Err((true, 2))), charge(2, 1), told(3, 1, 2)];
    assert!(!is_exact(&too_soon));
    // By a limit that is no longer in force.
    let lowered = [(0, 0, Ok(Operation::Limit(2))), (1, 0, Err(NOTHING)), charge(2, 1), told(3, 1, 2)];
    assert!(!is_one_story(at_most(), &lowered));
    // Before the time was there.
    let pass = |length| [(4, 0, Ok(Operation::Pass(length))), (5, 0, Err(NOTHING)), charge(6, 0), told(7, 0, 0)];
    let again = |length| [[charge(0, 0), told(1, 0, 2)].as_slice(), &pass(length)].concat();
    assert!(!is_exact(&again(11_999_999)) && is_exact(&again(12_000_000)));
    let well = [charge(0, 0), charge(1, 1), told(2, 1, 2), (3, 0, Err((false, 2)))];
    assert!(is_exact(&well) && is_one_story(at_most(), &well));
}
