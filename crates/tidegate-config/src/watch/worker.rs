//! The thread that waits for changes, reads, and applies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::ConfigError;

use super::bell::Woken;
use super::record::{Record, Recorder};
use super::sight::Sight;
use super::{Builder, Outcome, Read, Shared};
use crate::reader::Disk;
use crate::report::{Diagnostic, Problem, Report};

/// Files that are never left alone are read after this long all the same.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(10);
/// How often files are read again that cannot be watched, or that were not
/// accepted only for now.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(super) struct Worker<T> {
    settings: Builder<T>,
    shared: Arc<Shared>,
    sight: Sight,
    /// Whether the system would not tell of changes when it was last asked to.
    is_in_trouble: bool,
    /// Whether what was read last may be accepted later, as it is.
    is_put_off: bool,
    /// What was read last.
    last: Arc<Record>,
    in_force: Arc<Record>,
    /// About what is in force, and not told yet.
    warnings: Vec<Diagnostic>,
}

/// What was read, and what it means.
struct Reading<T> {
    record: Arc<Record>,
    loaded: Read<T>,
}

impl<T: 'static> Worker<T> {
    pub(super) fn new(settings: Builder<T>, shared: Arc<Shared>) -> Worker<T> {
        let (last, in_force, warnings) = Default::default();
        let (is_in_trouble, is_put_off) = (false, false);
        Worker { settings, shared, sight: Sight::blind(), is_in_trouble, is_put_off, last, in_force, warnings }
    }

    /// The first reading, which has to succeed.
    pub(super) fn begin(&mut self) -> Result<(), Report> {
        let reading = self.read();
        self.last = Arc::clone(&reading.record);
        match self.judge(reading) {
            Outcome::Refused(report) => Err(report),
            outcome @ (Outcome::Applied | Outcome::Unchanged | Outcome::Warning(_) | Outcome::Polling(_)) => {
                self.tell(&outcome);
                Ok(())
            }
        }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.shared.bell.wait(self.interval()) {
                Woken::Stopped => return,
                Woken::Rung => {}
                Woken::InVain => {
                    let mut reader = Recorder::new(self.new_sight());
                    if self.last.is_current(&mut reader) {
                        self.see(reader.sight);
                        self.offer_again();
                        continue;
                    }
                }
            }
            let Some(reading) = self.read_settled() else { return };
            // The file system may have taken so long that the watch is gone.
            if self.shared.bell.is_stopped() {
                return;
            }
            self.last = Arc::clone(&reading.record);
            let outcome = self.judge(reading);
            self.tell(&outcome);
        }
    }

    /// How long to wait for a change before looking for one.
    fn interval(&self) -> Option<Duration> {
        let again = (self.is_in_trouble || self.is_put_off).then_some(LOOK_AGAIN);
        self.settings.poll.into_iter().chain(again).min()
    }

    /// Whether changes are not told of.
    fn is_blind(&self) -> bool {
        self.settings.poll.is_some() || self.is_in_trouble
    }

    /// Offers what was not accepted for now once more; only news are told.
    fn offer_again(&mut self) {
        if !self.is_put_off {
            return;
        }
        let reading = self.read();
        self.last = Arc::clone(&reading.record);
        let outcome = self.judge(reading);
        if !self.is_put_off {
            self.tell(&outcome);
        }
    }

    /// Reads once the files are left alone, and again if they were not while
    /// they were read; nothing if it is time to stop.
    fn read_settled(&mut self) -> Option<Reading<T>> {
        let deadline = Instant::now() + MAX_SETTLE_TIME;
        let may_wait = || Instant::now() < deadline;
        loop {
            match self.shared.bell.wait(Some(self.settings.debounce)) {
                Woken::Stopped => return None,
                Woken::Rung if may_wait() => continue,
                Woken::Rung | Woken::InVain => {}
            }
            let reading = self.read();
            let has_changed = match self.is_blind() {
                false => self.shared.bell.is_rung(),
                true => {
                    if self.shared.bell.wait(Some(self.settings.debounce)) == Woken::Stopped {
                        return None;
                    }
                    !reading.record.is_current(&mut Disk)
                }
            };
            if !(has_changed && may_wait()) {
                return Some(reading);
            }
        }
    }

    fn read(&mut self) -> Reading<T> {
        let mut reader = Recorder::new(self.new_sight());
        let loaded = (self.settings.load)(&mut reader);
        let Recorder { sight, record } = reader;
        self.see(sight);
        Reading { record: Arc::new(record), loaded }
    }

    fn new_sight(&self) -> Sight {
        match self.settings.poll {
            Some(_) => Sight::blind(),
            None => Sight::new(Arc::clone(&self.shared.bell)),
        }
    }

    fn see(&mut self, mut sight: Sight) {
        let trouble = sight.trouble();
        let was_in_trouble = std::mem::replace(&mut self.is_in_trouble, trouble.is_some());
        self.sight = sight;
        if let (Some(error), false) = (trouble, was_in_trouble) {
            self.tell(&Outcome::Polling(error));
        }
    }

    /// Applies what was read, if it is good and new.
    fn judge(&mut self, reading: Reading<T>) -> Outcome {
        let Reading { record, loaded } = reading;
        self.is_put_off = false;
        let (value, warnings) = match loaded {
            Ok(_) if record == self.in_force => return Outcome::Unchanged,
            Ok(read) => read,
            Err(report) => return Outcome::Refused(report),
        };
        let apply = &mut self.settings.apply;
        match catch_unwind(AssertUnwindSafe(|| apply(value))) {
            Ok(Ok(())) => {
                (self.in_force, self.warnings) = (record, warnings);
                Outcome::Applied
            }
            Ok(Err(error)) => {
                self.is_put_off = matches!(error, ConfigError::TooManyChanges { .. });
                Outcome::Refused(Problem::Policy(error).into())
            }
            Err(_) => {
                let message = "the program panicked when it was to apply them".to_owned();
                Outcome::Refused(Problem::Invalid { message }.into())
            }
        }
    }

    fn tell(&mut self, outcome: &Outcome) {
        self.shared.note(outcome);
        let tell = &mut self.settings.tell;
        // The callback may panic; the files are watched all the same.
        drop(catch_unwind(AssertUnwindSafe(|| tell(outcome))));
        for warning in std::mem::take(&mut self.warnings) {
            self.tell(&Outcome::Warning(warning.into()));
        }
    }
}
