//! What is asked of each: a promise, how it is measured, and what was seen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::rivals::{Make, Outcome, Subject, Wanted};

/// A promise as it is measured.
pub(crate) struct Trial {
    /// Of PROMISES.md.
    pub(crate) promise: &'static str,
    pub(crate) asked: &'static str,
    /// What is right.
    pub(crate) right: &'static str,
    pub(crate) run: fn(Make) -> Seen,
}

/// What was seen.
pub(crate) enum Seen {
    /// What is right.
    Right(String),
    Wrong(String),
    /// It cannot be asked.
    NotAsked(&'static str),
}

impl Seen {
    fn of(is_right: bool, what: String) -> Seen {
        if is_right { Seen::Right(what) } else { Seen::Wrong(what) }
    }
}

const NO_CLOCK: Seen = Seen::NotAsked("no clock to set");
const NO_SUCH_LIMIT: Seen = Seen::NotAsked("refused: no such limit");
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn bucket(count: u32, period: Duration, burst: u32) -> Wanted {
    Wanted { count, period, burst, keys: 1_000 }
}

/// How many of cost one pass now; no more than `most` are tried.
fn taken(subject: &dyn Subject, most: u64) -> u64 {
    let mut taken = 0;
    while taken < most && subject.ask("alice", 1) == Outcome::Allowed {
        taken += 1;
    }
    taken
}

/// Takes all there is, at every microsecond, and says how much of what the
/// limit allows that was.
fn share_of_the_rate(make: Make, count: u32) -> Seen {
    const STEPS: u32 = 1_000;
    let Some(subject) = make(bucket(count, SECOND, 1_000)) else { return NO_SUCH_LIMIT };
    let mut admitted = taken(&*subject, u64::from(u32::MAX));
    for _ in 0..STEPS {
        if !subject.advance(Duration::from_micros(1)) {
            return NO_CLOCK;
        }
        admitted += taken(&*subject, 20 * u64::from(count / 1_000_000));
    }
    let allowed = 1_000 + u64::from(count) * u64::from(STEPS) / 1_000_000;
    let thousandths = admitted * 1_000 / allowed;
    Seen::of(admitted == allowed, format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000))
}

pub(crate) const TRIALS: [Trial; 13] = [
    Trial {
        promise: "P1, P2",
        asked: "600,000,000 a second, for a millisecond: admitted, of what is allowed",
        right: "1.000",
        run: |make| share_of_the_rate(make, 600_000_000),
    },
    Trial {
        promise: "P1, P2",
        asked: "300,000,001 a second, likewise",
        right: "1.000",
        run: |make| share_of_the_rate(make, 300_000_001),
    },
    Trial {
        promise: "P1, P2",
        asked: "7,000,003 a second, likewise",
        right: "1.000",
        run: |make| share_of_the_rate(make, 7_000_003),
    },
    Trial {
        promise: "P2",
        asked: "7 in 3 s with a burst of 2, asked every millisecond for ten minutes",
        right: "1,402",
        run: |make| {
            let Some(subject) = make(bucket(7, 3 * SECOND, 2)) else { return NO_SUCH_LIMIT };
            let mut admitted = taken(&*subject, 10);
            for _ in 0..600_000 {
                if !subject.advance(Duration::from_millis(1)) {
                    return NO_CLOCK;
                }
                admitted += taken(&*subject, 10);
            }
            Seen::of(admitted == 1_402, admitted.to_string())
        },
    },
    Trial {
        promise: "P2",
        asked: "1 a day with a burst of 20,000: admitted at once",
        right: "20,000",
        run: |make| {
            let Some(subject) = make(bucket(1, 24 * HOUR, 20_000)) else { return NO_SUCH_LIMIT };
            let admitted = taken(&*subject, 100_000);
            Seen::of(admitted == 20_000, admitted.to_string())
        },
    },
    Trial {
        promise: "P2",
        asked: "1 a day with a burst of 1,000,000: admitted at once",
        right: "1,000,000, or refused as a limit",
        run: |make| {
            let Some(subject) = make(bucket(1, 24 * HOUR, 1_000_000)) else {
                return Seen::Right("refused as a limit".into());
            };
            let admitted = taken(&*subject, 2_000_000);
            Seen::of(admitted == 1_000_000, admitted.to_string())
        },
    },
    Trial {
        promise: "P1",
        asked: "1 a second with a burst of 10, used up, idle for 17.9 s: admitted at once",
        right: "10",
        run: |make| {
            let Some(subject) = make(bucket(1, SECOND, 10)) else { return NO_SUCH_LIMIT };
            taken(&*subject, 100);
            if !subject.advance(Duration::from_millis(17_900)) {
                return NO_CLOCK;
            }
            let admitted = taken(&*subject, 100);
            Seen::of(admitted == 10, admitted.to_string())
        },
    },
    Trial {
        promise: "P3",
        asked: "7 in 3 s: of 1,000 who were refused and return when told, how many pass",
        right: "1,000",
        run: |make| returns(make, Duration::ZERO, true),
    },
    Trial {
        promise: "P3",
        asked: "how many of them pass a microsecond sooner",
        right: "0",
        run: |make| returns(make, Duration::from_micros(1), false),
    },
    Trial {
        promise: "P4",
        asked: "a cost above the burst",
        right: "never",
        run: |make| {
            let Some(subject) = make(bucket(10, SECOND, 10)) else { return NO_SUCH_LIMIT };
            let answer = subject.ask("alice", 11);
            let what = match answer {
                Outcome::Never => "never".to_owned(),
                Outcome::Allowed => "allowed".to_owned(),
                Outcome::Wait(wait) => format!("wait {wait:?}"),
                Outcome::Refused => "refused as any other".to_owned(),
            };
            Seen::of(answer == Outcome::Never, what)
        },
    },
    Trial {
        promise: "P1",
        asked: "8 threads, 100 an hour, 300 rounds: most that were admitted in one",
        right: "100",
        run: |make| {
            let mut most = 0;
            for _ in 0..300 {
                let Some(subject) = make(bucket(100, HOUR, 100)) else { return NO_SUCH_LIMIT };
                let (subject, admitted) = (&*subject, AtomicU64::new(0));
                thread::scope(|scope| {
                    for _ in 0..8 {
                        scope.spawn(|| {
                            let mine = (0..100).filter(|_| subject.ask("alice", 1) == Outcome::Allowed).count();
                            admitted.fetch_add(mine as u64, Ordering::Relaxed);
                        });
                    }
                });
                most = most.max(admitted.into_inner());
            }
            Seen::of(most == 100, most.to_string())
        },
    },
    Trial {
        promise: "P13",
        asked: "room for 1,000 keys, 10 an hour used up, then 50,000 other keys: admitted again",
        right: "0",
        run: |make| {
            let Some(subject) = make(bucket(10, HOUR, 10)) else { return NO_SUCH_LIMIT };
            taken(&*subject, 100);
            for number in 0..50_000 {
                subject.ask(&format!("key{number}"), 1);
            }
            let admitted = taken(&*subject, 100);
            Seen::of(admitted == 0, admitted.to_string())
        },
    },
    Trial {
        promise: "P13",
        asked: "and of 1,000 newcomers then, how many get one request through",
        right: "the more the better",
        run: |make| {
            let Some(subject) = make(bucket(10, HOUR, 10)) else { return NO_SUCH_LIMIT };
            for number in 0..50_000 {
                subject.ask(&format!("key{number}"), 1);
            }
            let newcomers = (0..1_000).filter(|number| subject.ask(&format!("new{number}"), 1) == Outcome::Allowed);
            Seen::Right(newcomers.count().to_string())
        },
    },
];

/// How many of the refused requests pass on a retry.
fn returns(make: Make, sooner: Duration, should_pass: bool) -> Seen {
    const RETURNS: u64 = 1_000;
    let Some(subject) = make(bucket(7, 3 * SECOND, 5)) else { return NO_SUCH_LIMIT };
    let mut passed = 0;
    for _ in 0..RETURNS {
        taken(&*subject, 100);
        // A time that is no multiple of anything.
        if !subject.advance(Duration::from_micros(10_007)) {
            return NO_CLOCK;
        }
        let Outcome::Wait(wait) = subject.ask("alice", 2) else { return Seen::Wrong("not refused".into()) };
        subject.advance(wait.saturating_sub(sooner));
        passed += u64::from(subject.ask("alice", 2) == Outcome::Allowed);
        subject.advance(sooner);
    }
    Seen::of(passed == if should_pass { RETURNS } else { 0 }, passed.to_string())
}
