//! Threads ask the memory store at once, and what they were told is one story:
//! there is an order of their questions, none before it was asked or after it
//! was answered, in which every answer is the right one.
//!
//! The clock stands still, so what is right is a sum and a comparison, which
//! share nothing with the library. `TIDEGATE_HISTORIES` says how many stories of
//! each kind, `TIDEGATE_SEED` which ones.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use tidegate::{Decision, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request};
use tidegate_testkit::Random;

/// Units of each limit.
const CAPACITY: u64 = 5;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Charge(u64),
    Peek(u64),
    Refund(u64),
    Reset,
}

/// What is answered: whether it passes, and how much is left.
type Answer = (bool, u64);

/// What is right while time stands still.
#[derive(Clone, Debug, Default)]
struct Sum(u64);

impl SequentialSpec for Sum {
    type Op = Question;
    type Ret = Answer;

    fn invoke(&mut self, question: &Question) -> Answer {
        let passes = match *question {
            Question::Charge(cost) if self.0 + cost <= CAPACITY => {
                self.0 += cost;
                true
            }
            Question::Peek(cost) => self.0 + cost <= CAPACITY,
            Question::Charge(_) => false,
            Question::Refund(cost) => {
                self.0 = self.0.saturating_sub(cost);
                true
            }
            Question::Reset => {
                self.0 = 0;
                true
            }
        };
        (passes, CAPACITY - self.0)
    }
}

/// A question or an answer, and when.
type Moment = (u64, usize, Result<Question, Answer>);

/// Whether the moments are one story.
fn is_one_story(moments: &[Moment]) -> bool {
    let mut tester = LinearizabilityTester::new(Sum::default());
    for (_, thread, said) in moments {
        let outcome = match *said {
            Ok(question) => tester.on_invoke(*thread, question).map(drop),
            Err(answer) => tester.on_return(*thread, answer).map(drop),
        };
        outcome.expect("each thread asks, and then is answered");
    }
    tester.is_consistent()
}

fn ask(limiter: &Limiter, question: Question) -> Answer {
    let request = |cost| Request::new("alice").cost(cost);
    let decision = match question {
        Question::Charge(cost) => limiter.check(request(cost)),
        Question::Peek(cost) => limiter.peek(request(cost)),
        Question::Refund(cost) => limiter.refund(request(cost)),
        Question::Reset => limiter.reset("alice"),
    };
    let answer = |decision: Decision| (decision.is_allowed(), decision.remaining());
    decision.map(answer).expect("a cost within the limit")
}

/// What each thread asks.
fn questions(random: &mut Random, threads: usize) -> Vec<Vec<Question>> {
    let question = |random: &mut Random| match random.within(0..=9) {
        0..=5 => Question::Charge(random.within(1..=3)),
        6 => Question::Peek(random.within(1..=3)),
        7 | 8 => Question::Refund(random.within(1..=2)),
        _ => Question::Reset,
    };
    (0..threads).map(|_| (0..5).map(|_| question(random)).collect()).collect()
}

/// Asks all of it at once, and notes what was said when.
fn history(limiter: &Limiter, questions: &[Vec<Question>]) -> Vec<Moment> {
    let (time, gate) = (AtomicU64::new(0), Barrier::new(questions.len()));
    let moment = || time.fetch_add(1, Ordering::SeqCst);
    let mut moments: Vec<Moment> = thread::scope(|scope| {
        let threads: Vec<_> = questions
            .iter()
            .enumerate()
            .map(|(thread, questions)| {
                let (gate, moment) = (&gate, &moment);
                scope.spawn(move || {
                    gate.wait();
                    let mut moments = Vec::with_capacity(2 * questions.len());
                    for question in questions {
                        moments.push((moment(), thread, Ok(*question)));
                        let answer = ask(limiter, *question);
                        moments.push((moment(), thread, Err(answer)));
                    }
                    moments
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    moments.sort_by_key(|(time, ..)| *time);
    moments
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn limits() -> [(&'static str, Policy); 8] {
    let minute = Duration::from_secs(60);
    let also = |policy: Policy| policy.limit("looser", Limit::sliding_log(100, minute));
    [
        ("token bucket", Limit::token_bucket(CAPACITY, minute).into()),
        ("wide bucket", Limit::token_bucket(999_983, minute).burst(CAPACITY).into()),
        ("leaky bucket", Limit::leaky_bucket(CAPACITY, minute).queue(CAPACITY).into()),
        ("fixed window", Limit::fixed_window(CAPACITY, minute).into()),
        ("sliding counter", Limit::sliding_counter(CAPACITY, minute).into()),
        ("sliding log", Limit::sliding_log(CAPACITY, minute).into()),
        ("two tables", also(Policy::new().limit("bucket", Limit::token_bucket(CAPACITY, minute)))),
        ("two shelves", also(Policy::new().limit("window", Limit::fixed_window(CAPACITY, minute)))),
    ]
}

#[test]
fn what_threads_are_told_is_one_story() {
    let (histories, seed) = (number("TIDEGATE_HISTORIES", 400), number("TIDEGATE_SEED", 1));
    for (name, policy) in limits() {
        for round in 0..histories {
            let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(round));
            let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
            let store = MemoryStore::builder().max_keys(8).clock(clock).build().expect("valid settings");
            let limiter = Limiter::with_store(policy.clone(), store).expect("a valid policy");
            let threads = 2 + (round % 3) as usize;
            let moments = history(&limiter, &questions(&mut random, threads));
            assert!(is_one_story(&moments), "{name}, TIDEGATE_SEED={seed}, round {round}: {moments:#?}");
        }
    }
    println!("{histories} histories of each of 8 kinds, seed {seed}: all of them one story");
}

/// The judge itself: two threads that were both told that they got the last.
#[test]
fn what_is_no_story_is_noticed() {
    let charge = |time, thread| (time, thread, Ok(Question::Charge(3)));
    let told = |time, thread, left| (time, thread, Err((true, left)));
    let both_got_it = [charge(0, 0), charge(1, 1), told(2, 0, 2), told(3, 1, 2)];
    assert!(!is_one_story(&both_got_it));
    // Refused before anybody had charged anything.
    assert!(!is_one_story(&[charge(0, 0), (1, 0, Err((false, 5)))]));
    // Answered before it was asked for: the second sees what the first has not done yet.
    let too_soon = [(0, 0, Ok(Question::Peek(1))), (1, 0, Err((true, 2))), charge(2, 1), told(3, 1, 2)];
    assert!(!is_one_story(&too_soon));
    let well = [charge(0, 0), charge(1, 1), told(2, 1, 2), (3, 0, Err((false, 2)))];
    assert!(is_one_story(&well));
}
