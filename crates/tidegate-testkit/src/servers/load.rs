//! Callers that ask without end while something happens, and what became of them.
//!
//! A [`Load`] knows nothing of stores: it calls a closure again and again, from
//! a thread for each caller, and keeps what came of it. When each admission was
//! asked for and answered is kept as well: the decision was made in between, so a
//! bound on what passes in an interval can be held against every interval.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{clocks, eventually};

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes; `degraded` if the fallback decided in place of the store.
    Admitted {
        /// Whether the fallback decided.
        degraded: bool,
    },
    /// It does not pass.
    Refused {
        /// Whether the fallback decided.
        degraded: bool,
    },
    /// There was no answer, though it may have been carried out.
    InDoubt {
        /// Why.
        why: String,
    },
    /// There was no answer, and nothing was carried out.
    TurnedAway {
        /// Why.
        why: String,
    },
}

/// Identifies a call: the caller and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// The number of the caller.
    pub caller: usize,
    /// How many calls of this caller ended before.
    pub number: u64,
}

/// A call that was admitted at some time between these two.
///
/// The times are by whichever went further, the monotonic clock or the wall clock by which servers decide.
/// A wall clock that is set forwards lengthens every interval that it happens in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// When it was asked for.
    pub asked: Instant,
    /// When the answer came.
    pub answered: Instant,
    /// Whether the fallback decided.
    pub degraded: bool,
}

/// What became of a [`Load`], in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed, by the store's own word.
    pub admitted: u64,
    /// How many did not, by the store's own word.
    pub refused: u64,
    /// How many the fallback admitted.
    pub degraded_admitted: u64,
    /// How many the fallback refused.
    pub degraded_refused: u64,
    /// How many had no answer, though they may have been charged.
    pub in_doubt: u64,
    /// How many had no answer, and were charged nothing.
    pub turned_away: u64,
    /// The longest that one call took.
    pub longest: Duration,
    /// The longest time without an answer of the store to anyone.
    pub longest_gap: Duration,
    /// Why the last one that had no answer had none.
    pub last_failure: Option<String>,
}

impl Tally {
    /// How many the store answered.
    pub fn answered(&self) -> u64 {
        self.admitted + self.refused
    }

    /// How many calls there were.
    pub fn asked(&self) -> u64 {
        self.answered() + self.degraded_admitted + self.degraded_refused + self.in_doubt + self.turned_away
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { admitted, refused, degraded_admitted, degraded_refused, in_doubt, turned_away, .. } = self;
        write!(f, "{admitted} admitted, {refused} refused, {in_doubt} in doubt, {turned_away} turned away, ")?;
        write!(f, "{degraded_admitted} admitted and {degraded_refused} refused by the fallback, ")?;
        write!(f, "longest call {:?}, last failure {:?}", self.longest, self.last_failure)
    }
}

/// Callers at work, until they are told to finish.
#[derive(Debug)]
pub struct Load {
    seen: Arc<Seen>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Seen {
    over: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    tally: Tally,
    admissions: Vec<Admission>,
    /// When the store last answered anyone, or the load began.
    last_answer: Instant,
}

impl Load {
    /// So many callers, each asking again so long after its last answer.
    pub fn start(callers: usize, pause: Duration, ask: impl Fn(CallId) -> Outcome + Send + Sync + 'static) -> Load {
        let log = Log { tally: Tally::default(), admissions: Vec::new(), last_answer: clocks::now() };
        let seen = Arc::new(Seen { over: AtomicBool::new(false), log: Mutex::new(log) });
        let ask = Arc::new(ask);
        let callers = (0..callers).map(|caller| {
            let (seen, ask) = (Arc::clone(&seen), Arc::clone(&ask));
            thread::spawn(move || seen.call_until_over(caller, pause, &*ask))
        });
        let callers = callers.collect();
        Load { seen, callers }
    }

    /// What has become of it so far.
    pub fn tally(&self) -> Tally {
        self.seen.log().tally.clone()
    }

    /// Waits for so many more answers of the store; returns how long it took.
    ///
    /// # Panics
    ///
    /// When they do not come. So do the other ways to wait.
    pub fn wait_for_answers(&self, more: u64) -> Duration {
        let (began, before) = (Instant::now(), self.tally().answered());
        self.wait_until("answers", |tally| tally.answered() >= before + more);
        began.elapsed()
    }

    /// Waits until so many were admitted.
    pub fn wait_for_admitted(&self, admitted: u64) {
        self.wait_until("admissions", |tally| tally.admitted >= admitted);
    }

    /// Waits until the tally is as it should be.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Tally) -> bool) {
        eventually(what, || {
            let tally = self.tally();
            if is_so(&tally) { Ok(()) } else { Err(tally) }
        });
    }

    /// Goes on until there is nothing left to admit, and ends.
    pub fn exhaust(self) -> Tally {
        let before = self.tally().refused;
        self.wait_until("the limit to be used up", |tally| tally.refused >= before + 20);
        self.finish()
    }

    /// Ends it: every caller's last call is answered or given up.
    ///
    /// # Panics
    ///
    /// When a caller has panicked, in its words; or when its call never ends.
    pub fn finish(self) -> Tally {
        self.finish_with_admissions().0
    }

    /// The same, with everyone who was admitted.
    pub fn finish_with_admissions(self) -> (Tally, Vec<Admission>) {
        self.seen.over.store(true, Ordering::SeqCst);
        eventually("every caller's last answer", || {
            let busy = self.callers.iter().filter(|caller| !caller.is_finished()).count();
            if busy == 0 { Ok(()) } else { Err(format!("{busy} wait for ever")) }
        });
        for caller in self.callers {
            if let Err(panic) = caller.join() {
                resume_unwind(panic);
            }
        }
        let mut log = self.seen.log();
        log.note_gap(clocks::now());
        (log.tally.clone(), std::mem::take(&mut log.admissions))
    }
}

impl Seen {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call_until_over(&self, caller: usize, pause: Duration, ask: &(impl Fn(CallId) -> Outcome + ?Sized)) {
        let mut number = 0;
        while !self.over.load(Ordering::SeqCst) {
            let asked = clocks::now();
            let outcome = ask(CallId { caller, number });
            self.log().note(asked, clocks::now(), outcome);
            number += 1;
            thread::sleep(pause);
        }
    }
}

impl Log {
    fn note(&mut self, asked: Instant, answered: Instant, outcome: Outcome) {
        let tally = &mut self.tally;
        tally.longest = tally.longest.max(answered - asked);
        let by_store = match &outcome {
            Outcome::Admitted { degraded } | Outcome::Refused { degraded } => !degraded,
            Outcome::InDoubt { .. } | Outcome::TurnedAway { .. } => false,
        };
        match outcome {
            Outcome::Admitted { degraded } => {
                *(if degraded { &mut tally.degraded_admitted } else { &mut tally.admitted }) += 1;
                self.admissions.push(Admission { asked, answered, degraded });
            }
            Outcome::Refused { degraded } => {
                *(if degraded { &mut tally.degraded_refused } else { &mut tally.refused }) += 1;
            }
            Outcome::InDoubt { why } => {
                tally.in_doubt += 1;
                tally.last_failure = Some(why);
            }
            Outcome::TurnedAway { why } => {
                tally.turned_away += 1;
                tally.last_failure = Some(why);
            }
        }
        if by_store {
            self.note_gap(answered);
            self.last_answer = self.last_answer.max(answered);
        }
    }

    fn note_gap(&mut self, now: Instant) {
        self.tally.longest_gap = self.tally.longest_gap.max(now.saturating_duration_since(self.last_answer));
    }
}

#[cfg(test)]
mod tests {
    use super::{CallId, Duration, Load, Outcome, eventually};

    #[test]
    fn outcomes_are_counted_and_admissions_are_timed() {
        let load = Load::start(2, Duration::from_millis(1), |CallId { number, .. }| match number % 4 {
            0 => Outcome::Admitted { degraded: false },
            1 => Outcome::Refused { degraded: false },
            2 => Outcome::Admitted { degraded: true },
            _ => Outcome::InDoubt { why: "lost".into() },
        });
        load.wait_for_admitted(5);
        let (tally, admissions) = load.finish_with_admissions();
        assert!(tally.admitted >= 5 && tally.admitted.abs_diff(tally.refused) <= 2, "{tally}");
        assert_eq!(admissions.len() as u64, tally.admitted + tally.degraded_admitted);
        assert!(admissions.iter().all(|admission| admission.asked <= admission.answered));
        assert_eq!(tally.last_failure.as_deref(), Some("lost"));
        assert_eq!(tally.asked(), tally.answered() + tally.degraded_admitted + tally.in_doubt);
    }

    #[test]
    #[should_panic(expected = "planted")]
    fn a_caller_that_panics_is_heard_of() {
        let load = Load::start(1, Duration::from_millis(1), |_| panic!("planted"));
        // It must have asked before it is told to finish.
        eventually("the panic", || if load.callers[0].is_finished() { Ok(()) } else { Err("it asks on") });
        load.finish();
    }
}
