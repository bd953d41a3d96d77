//! One timer thread for the process: wakes wakers after a while.
//!
//! It starts with the first call and sleeps until the next alarm is due. A
//! waiter who gives up leaves its alarm behind, to ring in vain; not for long,
//! because no alarm is set further ahead than [`MAX_WAIT`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

struct DueAlarm {
    due: Instant,
    waker: Waker,
}

impl PartialEq for DueAlarm {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for DueAlarm {}
impl PartialOrd for DueAlarm {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DueAlarm {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

struct Timer {
    alarms: Mutex<BinaryHeap<Reverse<DueAlarm>>>,
    changed: Condvar,
}

/// `None` where the operating system refused the thread.
static TIMER: LazyLock<Option<&'static Timer>> = LazyLock::new(|| {
    let timer: &'static Timer =
        Box::leak(Box::new(Timer { alarms: Mutex::new(BinaryHeap::new()), changed: Condvar::new() }));
    let started = thread::Builder::new().name("tidegate-timer".into()).spawn(|| timer.run());
    started.is_ok().then_some(timer)
});

/// A longer wait is woken meanwhile, and asks again.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Wakes `waker` after `wait`, or earlier.
pub(crate) fn wake_after(wait: Duration, waker: &Waker) {
    match *TIMER {
        Some(timer) if !wait.is_zero() => {
            let alarm = DueAlarm { due: Instant::now() + wait.min(MAX_WAIT), waker: waker.clone() };
            timer.alarms.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse(alarm));
            timer.changed.notify_one();
        }
        // Without a timer the waiter polls: slow, but it does arrive.
        _ => waker.wake_by_ref(),
    }
}

impl Timer {
    fn run(&self) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let next = alarms.peek().map(|Reverse(alarm)| alarm.due);
            alarms = match next {
                None => self.changed.wait(alarms).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    self.changed.wait_timeout(alarms, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let alarm = alarms.pop();
                    // A waker is foreign code: it runs without our lock, and its
                    // panic must not end the only timer.
                    drop(alarms);
                    if let Some(Reverse(alarm)) = alarm {
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| alarm.waker.wake()));
                    }
                    self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}
