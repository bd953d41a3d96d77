//! A fixed number of checks for an instruction counter to count.

use crate::contestants::{Contestant, DIRECT, KEYED, Make, Terms};
use crate::{layer, visits};

/// How many checks are counted.
const CHECKS: usize = 200_000;
/// Few enough that filling is quick even under an emulator.
const KEYS: usize = 100_000;

/// Which visits.
#[derive(Clone, Copy)]
pub(crate) enum Workload {
    Uniform,
    HotKey,
    Refused,
    NewKeys,
    NoKeys,
    Layer,
}

impl Workload {
    pub(crate) const NAMES: [(&str, Workload); 6] = [
        ("uniform", Workload::Uniform),
        ("hot", Workload::HotKey),
        ("refused", Workload::Refused),
        ("new", Workload::NewKeys),
        ("no-keys", Workload::NoKeys),
        ("layer", Workload::Layer),
    ];
}

/// Runs the checks of one contestant; `None` if the name is unknown.
pub(crate) fn run(workload: Workload, contestant: &str) -> Option<()> {
    let find = |makes: &[(&str, Make)]| makes.iter().find(|(name, _)| *name == contestant).map(|(_, make)| *make);
    let make = match workload {
        Workload::Layer => return layer::count(contestant),
        Workload::NoKeys => find(&DIRECT)?,
        Workload::Uniform | Workload::HotKey | Workload::Refused | Workload::NewKeys => find(&KEYED)?,
    };
    let hot = || vec![visits::key(0); CHECKS];
    let (terms, known, visits) = match workload {
        Workload::Uniform => (Terms::LIVE, KEYS, visits::uniform(KEYS, CHECKS)),
        Workload::HotKey | Workload::NoKeys | Workload::Layer => (Terms::GENEROUS, 1, hot()),
        Workload::Refused => (Terms::REFUSING, 1, hot()),
        Workload::NewKeys => (Terms::LIVE, 0, visits::each(0..CHECKS)),
    };
    let contestant = make(terms, if known == 0 { CHECKS } else { KEYS });
    contestant.check_each(&visits::each(0..known));
    let allowed = counted(&*contestant, &visits);
    println!("{allowed} of {CHECKS} checks were allowed: divide the instructions by {CHECKS}");
    Some(())
}

/// What is counted, under a name that `--toggle-collect` finds.
#[inline(never)]
fn counted(contestant: &dyn Contestant, visits: &[String]) -> usize {
    contestant.check_each(visits)
}
