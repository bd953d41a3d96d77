//! Bytes per key: each contestant alone in a process of its own.
//!
//! The child makes its keys one by one in a buffer, so that what its resident
//! memory grows by is what the limiter keeps.

use std::fmt::Write as _;
use std::process::Command;

use crate::contestants::{GOVERNOR, KEYED, MUTEX_MAP, Make, SHARDED_MAP, TIDEGATE, Terms};
use crate::measure::Series;
use crate::report::{Goal, Table};
use crate::session::Session;
use crate::visits::MILLION;

/// The option that makes this program the child.
pub(crate) const CHILD: &str = "--memory-child";

/// Starts a child for each contestant.
pub(crate) fn memory(session: &mut Session) {
    const NAME: &str = "memory at 10^6 live keys";
    if !session.wants(NAME) {
        return;
    }
    let names = [TIDEGATE, GOVERNOR, MUTEX_MAP, SHARDED_MAP];
    let series = names.into_iter().map(|name| Series { name, rounds: Vec::from_iter(ask_child(name)) }).collect();
    let goals = vec![Goal::AtMost { ours: TIDEGATE, bound: 24.0 }];
    session.add(Table { name: NAME.into(), unit: "bytes a key", series, goals });
}

fn ask_child(name: &str) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program).args([CHILD, name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// What the child does: fills the contestant and says what it takes.
pub(crate) fn child(name: &str) -> Option<f64> {
    let (_, make) = KEYED.iter().find(|(known, _)| *known == name)?;
    bytes_per_key(*make)
}

fn bytes_per_key(make: Make) -> Option<f64> {
    let mut key = String::with_capacity(16);
    let before = resident_bytes()?;
    let contestant = make(Terms::LIVE, MILLION);
    for index in 0..MILLION {
        key.clear();
        write!(key, "user-{index:011}").expect("a string takes any text");
        assert!(contestant.check(&key), "a new key was refused");
    }
    Some((resident_bytes()? - before) / MILLION as f64)
}

fn resident_bytes() -> Option<f64> {
    // The second field counts pages, of 4 KiB wherever this has been run.
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096.0)
}
