//! A slice: one contestant checks visit after visit until its time is up.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::affinity::stay_on;
use crate::contestants::{Contestant, Entry};
use crate::measure::{Lap, Pace, Run, Series, Stopwatch, race};

/// The task of every contestant.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) visits: &'a [String],
    pub(crate) manner: Manner,
    pub(crate) answer: Outcome,
}

/// How the visits come.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// One thread, one check after the other.
    BackToBack,
    /// One thread; each check begins when the one before it is done.
    InTurn,
    /// Two threads, each back to back.
    TwoThreads,
}

/// What the answers are meant to be: a workload that drifts is no workload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Refused,
}

/// Visits between two looks at the time: a divisor of all lengths of visits,
/// a multiple of all batches.
const RUN: usize = 256;

/// A slice of two threads in which one waited for a core longer than this part
/// of it is tried again, and in the end not counted: a thread that runs while
/// the other waits meets no contention.
const TOLERABLE_WAIT: f64 = 0.05;
const ATTEMPTS: usize = 6;

impl<'a> Course<'a> {
    /// Nanoseconds per check, as each thread sees it, of every contestant.
    pub(crate) fn contest(self, pace: Pace, entries: &'a [Entry]) -> Vec<Series> {
        let runs = entries.iter().map(|(name, contestant)| self.turn(pace, name, &**contestant));
        race(pace.rounds, runs.collect())
    }

    /// Nanoseconds per check of one contestant.
    pub(crate) fn turn(self, pace: Pace, name: &'static str, contestant: &'a dyn Contestant) -> Run<'a> {
        let mut runner = Runner { course: self, contestant, pace, next: 0 };
        Run { name, run: Box::new(move || runner.nanos_per_check()) }
    }
}

/// One contestant on its way through the visits, over and over.
struct Runner<'a> {
    course: Course<'a>,
    contestant: &'a dyn Contestant,
    pace: Pace,
    /// Where the next slice begins.
    next: usize,
}

struct Slice {
    lap: Lap,
    checks: usize,
}

impl Slice {
    fn is_undisturbed(&self) -> bool {
        self.lap.waited.div_duration_f64(self.lap.elapsed) <= TOLERABLE_WAIT
    }
}

impl Runner<'_> {
    /// Runs one slice; not a number if the machine was too busy for two
    /// threads.
    fn nanos_per_check(&mut self) -> f64 {
        let contestant = self.contestant;
        let slices = match self.course.manner {
            Manner::BackToBack => vec![self.slice(self.next, |keys| contestant.check_each(keys))],
            Manner::InTurn => vec![self.slice(self.next, |keys| contestant.check_each_in_turn(keys))],
            Manner::TwoThreads => {
                let mut attempts = (0..ATTEMPTS).map(|_| self.pair());
                let Some(pair) = attempts.find(|pair| pair.iter().all(Slice::is_undisturbed)) else { return f64::NAN };
                pair.into()
            }
        };
        self.next += slices[0].checks;
        let checks: usize = slices.iter().map(|slice| slice.checks).sum();
        slices.iter().map(|slice| slice.lap.nanos()).sum::<f64>() / checks as f64
    }

    /// The same on two cores at once, half a lap apart.
    fn pair(&self) -> [Slice; 2] {
        let barrier = Barrier::new(2);
        let run = |core: usize| {
            stay_on(core);
            barrier.wait();
            let start = self.next + core * self.course.visits.len() / 2;
            self.slice(start, |keys| self.contestant.check_each(keys))
        };
        thread::scope(|scope| {
            let threads = [0, 1].map(|core| scope.spawn(move || run(core)));
            threads.map(|thread| thread.join().expect("a slice does not panic"))
        })
    }

    fn slice(&self, start: usize, check: impl Fn(&[String]) -> usize) -> Slice {
        let warm_up = self.run(start, self.pace.warm_up, &check);
        self.run(start + warm_up.checks, self.pace.slice, &check)
    }

    fn run(&self, start: usize, length: Duration, check: impl Fn(&[String]) -> usize) -> Slice {
        let Course { visits, answer, .. } = self.course;
        let stopwatch = Stopwatch::start();
        let (mut checks, mut allowed) = (0, 0);
        while stopwatch.elapsed() < length {
            let at = (start + checks) % visits.len() / RUN * RUN;
            allowed += check(&visits[at..at + RUN]);
            checks += RUN;
        }
        let lap = stopwatch.stop();
        let expected = match answer {
            Outcome::Allowed => checks,
            Outcome::Refused => 0,
        };
        assert_eq!(allowed, expected, "of {checks} checks, so many were to be allowed");
        Slice { lap, checks }
    }
}
