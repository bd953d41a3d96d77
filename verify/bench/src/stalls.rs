//! The worst of a million: how long one caller may have to wait.
//!
//! Every operation is timed by itself. What the machine adds (others on the
//! core, interrupts, a busy host) only ever makes a time longer, so of several
//! tries the one with the shortest worst time counts, and the waits for a core
//! that the kernel admits to are taken off.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity::stay_on;
use crate::contestants::{
    COARSE_TIDEGATE, Contestant, GOVERNOR, KEYED, MUTEX_MAP, SHARDED_MAP, TIDEGATE, Terms, Tidegate, governor, tidegate,
};
use crate::measure::{Run, Waiting, race};
use crate::report::{Goal, Table};
use crate::session::Session;
use crate::visits::{self, MILLION};

/// Longer than any check that does not wait: worth a look at the kernel's
/// accounts.
const SUSPICIOUS: Duration = Duration::from_micros(15);

const GOAL: Goal = Goal::TimesBelow { ours: TIDEGATE, theirs: GOVERNOR, times: 20.0 };

/// The longest time, in microseconds, from the end of one check to the end of
/// the next.
fn longest<'k>(contestant: &dyn Contestant, keys: impl Iterator<Item = &'k String>) -> f64 {
    let mut waiting = Waiting::start();
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    for key in keys {
        contestant.check(key);
        let now = Instant::now();
        let took = now - last;
        last = now;
        if took > SUSPICIOUS {
            longest = longest.max(took.saturating_sub(waiting.since_last()));
            last = Instant::now();
        }
        longest = longest.max(took.min(SUSPICIOUS));
    }
    longest.as_nanos() as f64 / 1_000.0
}

/// The slowest single insert while an empty limiter fills.
pub(crate) fn slowest_insert(session: &mut Session) {
    const NAME: &str = "slowest insert of 10^6";
    if !session.wants(NAME) {
        return;
    }
    let keys = visits::each(0..MILLION);
    let names = [TIDEGATE, COARSE_TIDEGATE, GOVERNOR, MUTEX_MAP, SHARDED_MAP];
    let runs = KEYED
        .iter()
        .filter(|(name, _)| names.contains(name))
        .map(|(name, make)| Run { name, run: Box::new(|| longest(&*make(Terms::LIVE, MILLION), keys.iter())) });
    let series = race(session.pace.fills, runs.collect());
    session.add(Table { name: NAME.into(), unit: "us", series, goals: vec![GOAL] });
}

/// The longest stall of a check while another thread has a million keys
/// forgotten: governor by `retain_recent`, tidegate by the new keys that take
/// their places, a million of them.
pub(crate) fn longest_stall(session: &mut Session) {
    const NAME: &str = "longest stall while 10^6 keys are forgotten";
    /// The keys that go on being checked.
    const BUSY: usize = 10_000;
    if !session.wants(NAME) {
        return;
    }
    let old = visits::each(0..MILLION);
    let new = visits::each(MILLION..2 * MILLION);
    let busy = visits::each(2 * MILLION..2 * MILLION + BUSY);
    let ours = || {
        // Room for the busy keys beside a million others.
        let contestant = Tidegate(tidegate(Terms::FLEETING, MILLION + BUSY));
        contestant.check_each(&old);
        let stall = while_forgetting(&contestant, &busy, || {
            contestant.check_each(&new);
        });
        assert_eq!(contestant.0.store().overflowed(), 0, "the new keys were to take the places of the old");
        stall
    };
    let theirs = || {
        let contestant = governor(Terms::FLEETING);
        contestant.check_each(&old);
        let stall = while_forgetting(&contestant, &busy, || contestant.0.retain_recent());
        assert!(contestant.0.len() <= BUSY, "the old keys were to be forgotten");
        stall
    };
    let runs = vec![Run { name: TIDEGATE, run: Box::new(ours) }, Run { name: GOVERNOR, run: Box::new(theirs) }];
    let series = race(session.pace.fills, runs);
    session.add(Table { name: NAME.into(), unit: "us", series, goals: vec![GOAL] });
}

fn while_forgetting(contestant: &dyn Contestant, busy: &[String], forget: impl FnOnce() + Send) -> f64 {
    // All keys have been forgettable for a while, then.
    thread::sleep(10 * Terms::FLEETING.interval);
    let barrier = Barrier::new(2);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(1);
            barrier.wait();
            forget();
            over.store(true, Ordering::Relaxed);
        });
        let checking = scope.spawn(|| {
            stay_on(0);
            barrier.wait();
            longest(contestant, busy.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)))
        });
        checking.join().expect("checking does not panic")
    })
}
