//! How many servers run at once, over all processes of tests.
//!
//! Servers that crowd a machine miss each other's heartbeats and their
//! clients' deadlines. So a server starts only when it holds a slot, and there
//! are only as many slots as the machine bears. A slot is a lock on a file
//! below `target/`: the system releases it when its process ends, however it
//! ends. Who needs several slots takes them together, one caller at a time, so
//! two callers never hold half of what each needs.
//!
//! A thread that holds slots already does not wait for more: it would wait for
//! itself. A process can wait for itself too, when a server that its tests share
//! holds a slot while others want all the rest, so no wait is longer than
//! [`MAX_WAIT`]. The number is therefore a target, not a bound.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use super::BETWEEN_LOOKS;

/// Enough for a cluster and two servers besides.
const MIN_SLOTS: usize = 8;

/// After which a caller goes on with the slots that it has.
const MAX_WAIT: Duration = Duration::from_secs(120);

thread_local! {
    /// The slots that servers started by this thread hold.
    static HELD: RefCell<Arc<AtomicUsize>> = RefCell::default();
}

/// Leave to run so many servers, or other heavy programs, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    /// Locked until they are closed.
    _slots: Vec<File>,
    weight: usize,
    held: Arc<AtomicUsize>,
}

impl Permit {
    /// Waits until there is room.
    ///
    /// # Panics
    ///
    /// When the files of the locks cannot be made.
    pub fn wait(weight: usize) -> Permit {
        Permit::among(&directory(), weight, MAX_WAIT)
    }

    /// Waits until there is room among the permits whose locks are in one directory.
    fn among(directory: &Path, weight: usize, longest: Duration) -> Permit {
        let held = HELD.with_borrow(Arc::clone);
        let slots = if held.load(Ordering::Relaxed) == 0 { take(directory, weight, longest) } else { Vec::new() };
        held.fetch_add(weight, Ordering::Relaxed);
        Permit { _slots: slots, weight, held }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

fn take(directory: &Path, weight: usize, longest: Duration) -> Vec<File> {
    let began = Instant::now();
    // Waits until it is so, or for as long as a wait may be.
    let until = |look: &mut dyn FnMut() -> bool| {
        while !look() && began.elapsed() < longest {
            thread::sleep(BETWEEN_LOOKS);
        }
    };
    let open = |name: &str| {
        let path = directory.join(name);
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        opened.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
    };
    let turn = open("turn");
    until(&mut || turn.try_lock().is_ok());
    let count = thread::available_parallelism().map_or(MIN_SLOTS, |cores| MIN_SLOTS.max(4 * cores.get()));
    let mut free: Vec<File> = (0..count).map(|slot| open(&slot.to_string())).collect();
    let mut taken = Vec::new();
    until(&mut || {
        let wanted = weight.min(count) - taken.len();
        taken.extend(free.extract_if(.., |slot| slot.try_lock().is_ok()).take(wanted));
        taken.len() == weight.min(count)
    });
    taken
}

/// Beside the programs of the tests, which are `target/PROFILE/deps/NAME`.
fn directory() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(3).filter(|folder| folder.ends_with("target"));
    let directory = target.map_or_else(env::temp_dir, PathBuf::from).join("tidegate-servers");
    fs::create_dir_all(&directory).unwrap_or_else(|error| panic!("cannot make {}: {error}", directory.display()));
    directory
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use std::{env, fs, process, thread};

    use super::{MAX_WAIT, Permit};

    const ALL: usize = usize::MAX;

    /// Locks of their own: with those of the other tests, this program and one that
    /// shares a server among its tests would wait for each other.
    fn locks(name: &str) -> PathBuf {
        let directory = env::temp_dir().join(format!("tidegate-gate-{name}-{}", process::id()));
        fs::create_dir_all(&directory).expect("a directory can be made");
        directory
    }

    #[test]
    fn a_heavy_permit_excludes_others_and_a_holder_does_not_wait() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let locks = locks("heavy");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _all = Permit::among(&locks, ALL, MAX_WAIT);
                    assert_eq!(RUNNING.fetch_add(1, Ordering::SeqCst), 0);
                    let _more = Permit::among(&locks, 1, MAX_WAIT);
                    RUNNING.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        fs::remove_dir_all(locks).expect("it can be removed");
    }

    #[test]
    fn a_process_that_shares_a_server_does_not_wait_for_itself_for_ever() {
        let locks = locks("shared");
        let _shared = Permit::among(&locks, 1, MAX_WAIT);
        thread::scope(|scope| {
            // It takes the turn and can never have all; the next waits for the turn.
            scope.spawn(|| Permit::among(&locks, ALL, Duration::from_millis(100)));
            scope.spawn(|| Permit::among(&locks, 1, Duration::from_millis(200)));
        });
        fs::remove_dir_all(locks).expect("it can be removed");
    }
}
