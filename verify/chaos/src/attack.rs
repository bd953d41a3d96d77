//! Attacks: bounded abuse of a server of its own, with an honest client beside it.
//!
//! An [`Attack`] is one way to hurt a server: a name, a sentence, the flags that the
//! server gets, and a function that does the harm and returns what it saw. While it
//! runs, an honest client asks 200 times a second. The server runs under a limit on
//! its address space and on its open files. What is judged is always the same:
//!
//! - the server survives, and ends in good order at SIGTERM;
//! - the honest client gets an answer to every request, and its p99 is below the
//!   stated bound (not judged by `--quick`, which runs on busy machines, nor where the
//!   same client waits too long while the server has nothing else to do);
//! - the peak of the server's memory is below the stated bound;
//! - what the attack itself claims, such as "refused with 401".
//!
//! `cargo xtask verify attack` runs all of them and prints the table; `SECURITY.md` has the
//! bounds and the flags that set them.

mod access;
mod connections;
mod files;
mod honest;
mod memory;
mod target;
mod wire;
mod work;

use std::fmt;
use std::time::{Duration, Instant};

use self::honest::Honest;
pub(crate) use self::target::Target;
use crate::findings::Findings;

/// How long the honest client asks alone, before and after the attack.
const CALM: Duration = Duration::from_millis(500);

/// For how long it asks alone beforehand to see what the machine is worth, and the part of the bound that
/// it may then take: neighbours that take the processor are no fault of the server's.
const CONTROL: Duration = Duration::from_secs(2);
const MAX_CONTROL_PART: u32 = 5;

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Short, for the command line.
    pub name: &'static str,
    /// What the attacker does.
    pub what: &'static str,
    /// Whether CI runs it: it needs a moment, and claims nothing about time.
    pub is_quick: bool,
    server: Server,
    bounds: Bounds,
    make: fn(&mut Target, &mut Findings),
}

/// How the attacked server is started.
#[derive(Clone, Copy)]
struct Server {
    flags: &'static [&'static str],
    /// The policy file.
    policy: &'static str,
    /// Whether it speaks TLS.
    tls: bool,
    /// Open files that it may have.
    files: u64,
    /// Address space that it may have, in MiB.
    address_space: u64,
}

/// What has to hold for the honest client and for the machine.
#[derive(Clone, Copy)]
struct Bounds {
    /// The 99th percentile of the honest client's latency.
    p99: Duration,
    /// The most memory that the server may ever hold, in MiB.
    peak: u64,
}

/// A policy under which the honest client is never refused.
const POLICY: &str = "[rules.everyone]\nlimit = \"1000000/s\"\n";

const SERVER: Server = Server { flags: &[], policy: POLICY, tls: false, files: 4_096, address_space: 3_000 };

const BOUNDS: Bounds = Bounds { p99: Duration::from_millis(50), peak: 256 };

/// What came of an attack.
#[derive(Debug)]
pub struct Attempt {
    name: &'static str,
    took: Duration,
    honest: honest::Tally,
    /// The honest client's p99 without an attack, if it was too long to judge the other by.
    unjudged: Option<Duration>,
    peak: u64,
    claims: Findings,
}

impl Attempt {
    /// What did not hold.
    #[must_use]
    pub fn broken(&self) -> &[String] {
        &self.claims.broken
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attempt { name, took, honest, unjudged, peak, claims } = self;
        let verdict = if claims.broken.is_empty() { "held" } else { "BROKE" };
        write!(
            f,
            "{name:<22} {verdict:<5} {:>6.1} s  {:>6} asked {:>4} errors  p50 {:>7.2} ms  p99 {:>8.2} ms  peak {peak:>5} MiB",
            took.as_secs_f64(),
            honest.asked(),
            honest.failed,
            honest.percentile(50).as_secs_f64() * 1e3,
            honest.percentile(99).as_secs_f64() * 1e3,
        )?;
        if let Some(control) = unjudged {
            write!(f, "\n    latency not judged: p99 is {control:?} on this machine without an attack")?;
        }
        claims.broken.iter().try_for_each(|broken| write!(f, "\n    {broken}"))
    }
}

/// All attacks.
#[must_use]
pub fn all() -> Vec<Attack> {
    [memory::ATTACKS, work::ATTACKS, connections::ATTACKS, access::ATTACKS, files::ATTACKS].concat()
}

/// Makes an attack; `is_timed` says whether the honest client's latency is judged.
#[must_use]
pub fn make(attack: &Attack, is_timed: bool) -> Attempt {
    let began = Instant::now();
    let mut target = Target::start(attack.server);
    let control = is_timed.then(|| {
        let control = Honest::start(&target);
        std::thread::sleep(CONTROL);
        control.finish().percentile(99)
    });
    let honest = Honest::start(&target);
    std::thread::sleep(CALM);
    let mut claims = Findings::default();
    (attack.make)(&mut target, &mut claims);
    std::thread::sleep(CALM);
    let honest = honest.finish();
    let Bounds { p99, peak: most } = attack.bounds;
    claims.claim(!target.has_ended(), || format!("the server ended: {}", target.log()));
    claims.claim(honest.failed == 0, || format!("{} honest requests failed, such as: {}", honest.failed, honest.why));
    let unjudged = control.filter(|control| *control * MAX_CONTROL_PART > p99);
    if is_timed && unjudged.is_none() {
        let seen = honest.percentile(99);
        claims.claim(seen <= p99, || format!("the honest client's p99 is {seen:?}, above {p99:?}"));
    }
    let peak = target.peak_memory();
    claims.claim(peak <= most, || format!("the server held {peak} MiB at its peak, above {most} MiB"));
    claims.claim(target.terminate(), || format!("it does not end in good order: {}", target.log()));
    Attempt { name: attack.name, took: began.elapsed(), honest, unjudged, peak, claims }
}
