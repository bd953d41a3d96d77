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
//! itself. The number is therefore a target, not a bound.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use super::BETWEEN_LOOKS;

/// Enough for a cluster and two servers besides.
const MIN_SLOTS: usize = 8;

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
        let held = HELD.with_borrow(Arc::clone);
        let slots = if held.load(Ordering::Relaxed) == 0 { take(weight) } else { Vec::new() };
        held.fetch_add(weight, Ordering::Relaxed);
        Permit { _slots: slots, weight, held }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

fn take(weight: usize) -> Vec<File> {
    let directory = directory();
    let open = |name: &str| {
        let path = directory.join(name);
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        opened.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
    };
    let turn = open("turn");
    until(|| turn.try_lock().is_ok());
    let count = thread::available_parallelism().map_or(MIN_SLOTS, |cores| MIN_SLOTS.max(4 * cores.get()));
    let mut free: Vec<File> = (0..count).map(|slot| open(&slot.to_string())).collect();
    let mut taken = Vec::new();
    until(|| {
        let wanted = weight.min(count) - taken.len();
        taken.extend(free.extract_if(.., |slot| slot.try_lock().is_ok()).take(wanted));
        taken.len() == weight.min(count)
    });
    taken
}

/// Waits without a guard: others hold their slots for as long as their tests take.
fn until(mut look: impl FnMut() -> bool) {
    while !look() {
        thread::sleep(BETWEEN_LOOKS);
    }
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::Permit;

    #[test]
    fn a_heavy_permit_excludes_others_and_a_holder_does_not_wait() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let alone = usize::MAX;
        let callers: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    let _all = Permit::wait(alone);
                    assert_eq!(RUNNING.fetch_add(1, Ordering::SeqCst), 0);
                    let _more = Permit::wait(1);
                    RUNNING.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        for caller in callers {
            caller.join().expect("only one runs at a time");
        }
    }
}
