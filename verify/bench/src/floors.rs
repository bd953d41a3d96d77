//! What a check is made of, by itself: the lower bounds.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use tidegate::{Clock, SystemClock};

use crate::contestants::{COARSE, Contestant, Entry};
use crate::report::Table;
use crate::session::Session;
use crate::slices::{Course, Manner, Outcome};
use crate::visits::{self, Random};

/// Anything that can be done over and over.
struct Floor<F>(F);

impl<T, F: Fn() -> T + Sync> Contestant for Floor<F> {
    #[inline]
    fn check(&self, _key: &String) -> bool {
        black_box((self.0)());
        true
    }
}

/// A walk through memory in which each line says which is next.
struct Walk {
    next: Vec<Line>,
    at: AtomicUsize,
}

#[derive(Clone, Default)]
#[repr(align(64))]
struct Line(usize);

impl Walk {
    fn through(mebibytes: usize) -> Walk {
        let lines = (mebibytes << 20) / size_of::<Line>();
        // Sattolo's shuffle: one cycle through all lines.
        let mut order: Vec<usize> = (0..lines).collect();
        let mut random = Random(3);
        for last in (1..lines).rev() {
            order.swap(last, random.below(last));
        }
        Walk { next: order.into_iter().map(Line).collect(), at: AtomicUsize::new(0) }
    }
}

impl Contestant for Walk {
    fn check(&self, key: &String) -> bool {
        self.check_each(std::slice::from_ref(key)) == 1
    }

    fn check_each(&self, keys: &[String]) -> usize {
        let mut at = self.at.load(Ordering::Relaxed);
        for _ in keys {
            at = self.next[at].0;
        }
        self.at.store(at, Ordering::Relaxed);
        keys.len()
    }
}

/// Nanoseconds of each.
pub(crate) fn floors(session: &mut Session) {
    const NAME: &str = "floors";
    if !session.wants(NAME) {
        return;
    }
    let (quanta, system) = (quanta::Clock::new(), SystemClock::new());
    let raw = quanta.clone();
    let cell = AtomicU64::new(0);
    let swap = move || {
        let old = cell.load(Ordering::Relaxed);
        cell.compare_exchange(old, old + 1, Ordering::AcqRel, Ordering::Relaxed)
    };
    let mutex = Mutex::new(0);
    let lock = move || *mutex.lock().expect("not poisoned") += 1;
    let entries: Vec<Entry> = vec![
        ("Instant::now", Box::new(Floor(Instant::now))),
        ("quanta, raw", Box::new(Floor(move || raw.raw()))),
        ("quanta, now", Box::new(Floor(move || quanta.now()))),
        ("tidegate SystemClock", Box::new(Floor(move || system.now()))),
        ("tidegate CoarseClock", Box::new(Floor(|| COARSE.now()))),
        ("compare and swap, uncontended", Box::new(Floor(swap))),
        ("Mutex lock and unlock, uncontended", Box::new(Floor(lock))),
        // What tidegate takes for a million keys, and about what governor does.
        ("dependent cache miss in 20 MiB", Box::new(Walk::through(20))),
        ("dependent cache miss in 64 MiB", Box::new(Walk::through(64))),
    ];
    let course = Course { visits: &visits::hot(), manner: Manner::BackToBack, answer: Outcome::Allowed };
    let series = course.contest(session.pace, &entries);
    session.add(Table::of_checks(NAME, series, Vec::new()));
}
