//! Strict mode: a server that may have forgotten charges is not trusted.

use crate::support;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use tidegate::kernel::{Admission, Kernel, Reading};
use tidegate::store::Meter;
use tidegate::{Limit, Limiter, ManualClock, Micros, Name, Policy, Rule, WarmUp};
use tidegate_redis::RedisStore;
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Server, eventually};

const START: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;

fn admitted(limiter: &Limiter<RedisStore>) -> u64 {
    let mut admitted = 0;
    while block_on(limiter.check_async("alice")).expect("an answer").is_allowed() {
        admitted += 1;
    }
    admitted
}

#[test]
fn a_server_that_lost_its_states_admits_no_request_twice() {
    for words in ["5/10s", "fixed 5/10s", "fixed 5/10s from-first", "sliding 5/10s", "sliding-log 5/10s", "leaky 5/10s"]
    {
        let server = Server::start();
        let clock = ManualClock::default();
        let store = support::builder(&server.url()).clock(clock.clone()).strict();
        let limiter =
            Limiter::with_store(words.parse::<Limit>().expect(words), support::build(store)).expect("a policy");
        clock.set(Micros::new(START));
        assert_eq!(admitted(&limiter), 0, "{words}: a new server may be an old one that lost everything");
        // Twice the period is enough for every algorithm to be as if fresh.
        clock.set(Micros::new(START + 20 * SECOND));
        assert_eq!(admitted(&limiter), 5, "{words}: then it is trusted");
        server.kill();
        server.restart();
        clock.set(Micros::new(START + 21 * SECOND));
        let _ = eventually("an answer", || block_on(limiter.peek_async("alice")));
        assert_eq!(admitted(&limiter), 0, "{words}: what was charged is not known any more");
        clock.set(Micros::new(START + 41 * SECOND));
        assert_eq!(admitted(&limiter), 5, "{words}: and trusted again");
    }
}

/// Limits that the client decides, which are written by compare-and-swap: of
/// keys that warm up, and in the place of others.
#[test]
fn decisions_in_the_client_admit_no_request_twice() {
    let server = Server::start();
    let clock = ManualClock::default();
    let store = support::builder(&server.url()).clock(clock.clone()).strict();
    let store = support::build(store);
    let limiter = |rule: Rule| Limiter::with_store(Policy::new().rule(rule), store.clone()).expect("a policy");
    let limit = |words: &str| words.parse::<Limit>().expect("a limit");
    let warm_up = WarmUp::new(3, Duration::from_secs(4)).expect("a warm-up");
    let warming = limiter(Rule::new("warming", limit("5/10s debt 0")).warm_up(warm_up));
    let [old, new] = [(); 2].map(|()| limiter(Rule::new("changed", limit("5/10s"))));
    clock.set(Micros::new(START));
    assert_eq!((admitted(&warming), admitted(&old)), (0, 0), "a new server may be an old one that lost everything");
    clock.set(Micros::new(START + 20 * SECOND));
    assert!(admitted(&warming) > 0, "then it is trusted");
    new.set_policy(Policy::new().rule(Rule::new("changed", limit("fixed 50/10s")))).expect("a policy");
    server.kill();
    server.restart();
    let _ = eventually("an answer", || block_on(new.peek_async("alice")));
    assert_eq!((admitted(&warming), admitted(&new)), (0, 0), "what was charged is not known any more");
    clock.set(Micros::new(START + 22 * SECOND));
    // One process has not heard of the change yet, and leaves something to move.
    assert_eq!((admitted(&old), admitted(&new)), (1, 0), "the window in which it was lost is not over");
    clock.set(Micros::new(START + 41 * SECOND));
    assert_eq!(admitted(&new), 50, "and trusted again");
}

/// Has something happen between the look at its state and the write.
struct Meanwhile(Once, Box<dyn Fn() + Send + Sync>);

impl Kernel for Meanwhile {
    type State = ();

    fn capacity(&self) -> u64 {
        1
    }

    fn admit(&self, (): &(), _: Micros, _: u64) -> Admission {
        self.0.call_once(&self.1);
        Admission::PASS
    }

    fn charge(&self, (): &mut (), now: Micros, _: u64) -> Reading {
        self.read(&(), now)
    }

    fn read(&self, (): &(), _: Micros) -> Reading {
        Reading { remaining: 0, reset_after: Micros::ZERO }
    }

    fn forget_at(&self, (): &()) -> Micros {
        Micros::ZERO
    }

    fn encode(&self, (): &(), _: &mut Vec<u8>) {}

    fn decode(&self, bytes: &[u8]) -> Option<()> {
        bytes.is_empty().then_some(())
    }
}

/// A client that writes sends the time of its look. What was lost since was not lost then.
#[test]
fn a_history_begins_no_earlier_than_the_states_were_lost() {
    for is_known in [false, true] {
        let server = Arc::new(Server::start());
        let store = support::build(support::builder(&server.url()).strict());
        let plain = Limiter::with_store(Limit::per_hour(5), store.clone()).expect("a policy");
        let _ = block_on(plain.check_async("bob")).expect("an answer");
        let history = server.command(&["KEYS", "*"]).items()[0].text();
        let lost_at = Arc::new(AtomicU64::new(0));
        let lose = {
            let (server, lost_at) = (server.clone(), lost_at.clone());
            move || {
                server.command(&["FLUSHALL"]);
                server.command(&["REPLICAOF", "127.0.0.1", "1"]);
                server.command(&["REPLICAOF", "NO", "ONE"]);
                let time = server.command(&["TIME"]);
                let time = time.items().iter().map(|part| part.text().parse::<u64>().expect("a number"));
                lost_at.store(time.fold(0, |seconds, part| seconds * SECOND + part), Ordering::Relaxed);
                if is_known {
                    let _ = block_on(plain.check_async("bob")).expect("an answer");
                }
            }
        };
        let meter = Meter::custom(Name::literal("meanwhile"), Meanwhile(Once::new(), Box::new(lose)));
        let limiter = Limiter::with_store(Policy::new().meter(meter), store).expect("a policy");
        let _ = block_on(limiter.check_async("alice")).expect("an answer");
        let history = server.command(&["GET", &history]).text();
        let began = history.split(':').next_back().and_then(|at| at.parse::<u64>().ok()).expect("a time");
        assert!(began >= lost_at.load(Ordering::Relaxed), "{history}, and lost at {lost_at:?}");
    }
}

#[test]
fn without_it_a_loss_is_one_more_burst() {
    let server = Server::start();
    let clock = ManualClock::default();
    clock.set(Micros::new(START));
    let store = support::build(support::builder(&server.url()).clock(clock.clone()));
    let limiter = Limiter::with_store(Limit::token_bucket(5, Duration::from_secs(10)), store).expect("a policy");
    assert_eq!(admitted(&limiter), 5);
    server.kill();
    server.restart();
    let _ = eventually("an answer", || block_on(limiter.peek_async("alice")));
    assert_eq!(admitted(&limiter), 5, "the documented bound: (1 + losses) bursts");
}
