//! Jobs, two at a time: most tests wait for servers, and while they do another
//! job can compute.
//!
//! A job that fails stops no other. Each writes to a log of its own below
//! `target/ci`, of which the end is shown if it fails.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::report::{Outcome, Report};
use crate::run::{Failure, logged, root};

const WORKERS: usize = 2;

/// How much of the log of a failed job is shown.
const SHOWN_LINES: usize = 120;

/// Something to run, on a thread of its own.
pub(crate) struct Job {
    /// The row of the table that it counts in.
    step: String,
    label: String,
    work: Box<dyn FnOnce(&Path) -> Outcome + Send>,
    /// Whether it has cargo build in `target/`: only one can, and others would only wait.
    builds: bool,
}

impl Job {
    /// A job that tells itself what became of it; it is handed its log.
    pub(crate) fn new(step: &str, label: &str, work: impl FnOnce(&Path) -> Outcome + Send + 'static) -> Job {
        Job { step: step.to_owned(), label: label.to_owned(), work: Box::new(work), builds: false }
    }

    /// A job that passes or fails as a whole, and the command that repeats it.
    pub(crate) fn whole(name: &str, rerun: &str, work: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Job {
        let rerun = rerun.to_owned();
        Job::new(name, name, move |log| Outcome::of(logged(log, work), &rerun))
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn that_builds(mut self) -> Job {
        self.builds = true;
        self
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    is_building: bool,
}

impl Queue {
    fn next(&mut self) -> Option<Job> {
        let index = self.waiting.iter().position(|job| !(job.builds && self.is_building))?;
        let job = self.waiting.remove(index)?;
        self.is_building |= job.builds;
        Some(job)
    }
}

/// Runs all jobs, in their order as far as that goes, and adds them to the report; returns the labels of those that
/// passed.
pub(crate) fn run(jobs: Vec<Job>, report: &mut Report) -> Vec<String> {
    let count = jobs.len();
    let queue = Mutex::new(Queue { waiting: jobs.into(), is_building: false });
    let (freed, ended) = (Condvar::new(), Mutex::new((0, report, Vec::new())));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
                    let stuck = |queue: &mut Queue| {
                        queue.is_building && !queue.waiting.is_empty() && queue.waiting.iter().all(|job| job.builds)
                    };
                    let mut guard = freed.wait_while(guard, stuck).unwrap_or_else(PoisonError::into_inner);
                    let Some(job) = guard.next() else { return };
                    drop(guard);
                    let (step, label, builds) = (job.step.clone(), job.label.clone(), job.builds);
                    let (took, outcome, log) = execute(job);
                    if builds {
                        queue.lock().unwrap_or_else(PoisonError::into_inner).is_building = false;
                    }
                    freed.notify_all();
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.0 += 1;
                    println!("[{:>3}/{count}] {label}: {}, {} s", ended.0, outcome.shown(), took.as_secs());
                    if !outcome.failed.is_empty() {
                        println!("{}", end_of(&log));
                    }
                    ended.1.add(&step, took, &outcome);
                    if outcome.failed.is_empty() && outcome.skipped.is_empty() {
                        ended.2.push(label);
                    }
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner).2
}

fn execute(job: Job) -> (Duration, Outcome, PathBuf) {
    let log = root().join("target/ci").join(format!("{}.log", job.label.replace(['/', ' '], "-")));
    let began = Instant::now();
    let outcome = (job.work)(&log);
    (began.elapsed(), outcome, log)
}

fn end_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    format!("---- the end of {}\n{}\n----", log.display(), end.join("\n"))
}
