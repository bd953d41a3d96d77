//! The faults of a scenario, each at its time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::fault::{Fault, Former, Kind};
use super::judge::{Event, What};
use super::process::Processes;
use super::server::READ_ONLY;
use super::world::{State, World};

/// Lets everything happen in its time.
pub(super) async fn happen(world: Arc<World>, processes: Processes) {
    let began = Instant::now();
    let faults = &world.scenario.faults;
    let begins = faults.iter().enumerate().map(|(number, fault)| (fault.from_ms, number, Phase::Begins));
    let ends = faults.iter().enumerate().map(|(number, fault)| (fault.to_ms, number, Phase::Ends));
    let mut moments: Vec<_> = begins.chain(ends).collect();
    moments.sort_by_key(|(at_ms, number, phase)| (*at_ms, *number, *phase == Phase::Ends));
    for (at_ms, number, phase) in moments {
        sleep_until(began + Duration::from_millis(at_ms)).await;
        let fault = faults[number];
        {
            let mut state = world.lock();
            state.note(format_args!("{phase:?}: {:?}", fault.kind));
            match phase {
                Phase::Begins => state.begin(number, &fault),
                Phase::Ends => state.finish(number, &fault),
            }
        }
        if let (Kind::ProcessEnds { process, gracefully }, Phase::Begins) = (fault.kind, phase) {
            processes.restart(process, gracefully).await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    Ends,
}

impl State {
    fn begin(&mut self, number: usize, fault: &Fault) {
        self.tally.faults += 1;
        let primary = self.primary;
        let lasts = Duration::from_millis(fault.to_ms - fault.from_ms);
        match fault.kind {
            Kind::Network(condition) => self.conditions.push((number, condition)),
            Kind::Stops => self.servers[primary].stopped_until = Some(Instant::now() + lasts),
            Kind::Restarts | Kind::Crashes => {
                self.servers[primary].is_down = true;
                self.cut_all(primary);
                self.servers[primary].forget_scripts();
                if matches!(fault.kind, Kind::Crashes) {
                    self.lose();
                    let history = self.random.number();
                    self.servers[primary].lose_everything(history);
                }
            }
            Kind::Flushed => {
                self.lose();
                self.servers[primary].flush();
            }
            Kind::ScriptsFlushed => self.servers[primary].forget_scripts(),
            Kind::Refuses(words) => self.servers[primary].refuses = Some(words),
            Kind::FailsOver { is_clean, former, ahead } => self.fail_over(is_clean, former, ahead),
            Kind::ClockSet { by } => {
                self.servers[primary].ahead += by;
                self.clock_set(by);
            }
            Kind::ProcessEnds { .. } => {}
        }
    }

    fn finish(&mut self, number: usize, fault: &Fault) {
        match fault.kind {
            Kind::Network(_) => self.conditions.retain(|(other, _)| *other != number),
            Kind::Restarts | Kind::Crashes => self.servers.iter_mut().for_each(|server| server.is_down = false),
            Kind::Refuses(words) => {
                let over = self.servers.iter_mut().filter(|server| server.refuses == Some(words));
                over.for_each(|server| server.refuses = None);
            }
            Kind::FailsOver { former: Former::HasNotHeard, .. } => self.former_primaries_follow(),
            Kind::Stops
            | Kind::Flushed
            | Kind::ScriptsFlushed
            | Kind::FailsOver { .. }
            | Kind::ClockSet { .. }
            | Kind::ProcessEnds { .. } => {}
        }
    }

    fn fail_over(&mut self, is_clean: bool, former: Former, ahead: i64) {
        // Of several that were replaced, only the last one may not have heard.
        self.former_primaries_follow();
        let old = self.primary;
        if is_clean {
            self.servers[old].replicate();
        }
        let (history, ahead_of_world) = (self.random.number(), self.servers[old].ahead + ahead);
        let promoted = self.servers[old].promoted(history, ahead_of_world);
        self.servers.push(promoted);
        self.primary = self.servers.len() - 1;
        match former {
            Former::Dies => {
                self.servers[old].refuses = Some(READ_ONLY);
                self.cut_all(old);
            }
            Former::Follows => self.servers[old].refuses = Some(READ_ONLY),
            Former::HasNotHeard => {}
        }
        if !is_clean {
            let loss = self.lose();
            self.two_answer = (former == Former::HasNotHeard).then_some(loss);
        }
        if ahead != 0 {
            self.clock_set(ahead);
        }
    }

    fn former_primaries_follow(&mut self) {
        for former in 0..self.primary {
            self.servers[former].refuses = Some(READ_ONLY);
        }
        if let Some(loss) = self.two_answer.take() {
            let now = self.now();
            self.judge.lasted(loss, now);
        }
    }

    /// States are lost, by an event of this number.
    fn lose(&mut self) -> usize {
        self.tally.losses += 1;
        let at = self.instant();
        self.judge.happened(Event { from: at, to: at, what: What::Loss })
    }

    fn clock_set(&mut self, by: i64) {
        let at = self.instant();
        if by > 0 {
            self.judge.happened(Event { from: at, to: at, what: What::Leap(by.unsigned_abs()) });
        }
        self.judge.happened(Event { from: at, to: at, what: What::Realigned });
    }
}
