//! The third circle: campaigns, which run before a release or when what they cover has changed.

use crate::run::{Failure, Step, root};
use crate::{attack, calendar, chaos, defects, deny, fuzz, mutants, proof, sanitize, servers, simulation};

/// Decisions of a soak unless told otherwise.
const SOAK_DECISIONS: &str = "1000000000";
const REDIS_SOAK_DECISIONS: &str = "10000000";

/// A campaign: its name, its options and what it shows, and how it runs.
type Campaign = (&'static str, &'static str, fn(&[String]) -> Result<(), Failure>);

const CAMPAIGNS: [Campaign; 14] = [
    ("attack", "bounded attacks beside an honest client: [--list] [--only WORD] [--quick]", attack::run),
    ("calendar", "calendar periods beside Python and PostgreSQL: [COUNT] [--write], or clocks", calendar::compare),
    ("chaos", "faults under load, each with its bound: [--list] [--only WORD] [--repeat N] [--seed N]", chaos::run),
    ("defects", "plants known defects and sees the tests catch each: [WORD]", defects::all),
    ("deny", "licences, sources, versions and known vulnerabilities of dependencies", |_| deny::check()),
    ("fuzz", "parsers of what clients send, by libFuzzer on nightly: [TARGET] [--runs N]", fuzz::run),
    ("histories", "threads at once, and waiters poll by poll: [COUNT] [--seed FIRST]", histories),
    ("loom", "every schedule of the locking and waiting code: [PREEMPTIONS], 4 unless told", deep_loom),
    ("miri", "the unsafe code under Miri, on nightly", |_| miri()),
    ("mutants", "every small defect in what decides: [rust [--missed] [--thorough] [FILE..]|lua]", mutants::all),
    ("proof", "the lemmas about the arithmetic, by Z3: [SUBJECT] [-v]", proof::lemmas),
    ("sanitize", "the library under ThreadSanitizer and AddressSanitizer, on nightly: [thread|address]", sanitize::all),
    ("simulation", "deployments with faults in virtual time: [COUNT] [--seed FIRST]", seeds),
    ("soak", "10^9 decisions beside the oracle: TIDEGATE_DECISIONS, TIDEGATE_SEED", |_| soak()),
];

/// `NAME [OPTIONS]`; without a name, the list.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let Some((name, options)) = words.split_first() else {
        println!("cargo xtask verify NAME [OPTIONS]\n");
        CAMPAIGNS.iter().for_each(|(name, about, _)| println!("  {name:<11} {about}"));
        println!("\n`cargo xtask evidence NAME [OPTIONS]` also records the result.");
        return Ok(());
    };
    match CAMPAIGNS.iter().find(|(known, ..)| known == name) {
        Some((.., work)) => work(options),
        None => Err(format!("there is no campaign {name:?}: `cargo xtask verify` lists them")),
    }
}

fn histories(options: &[String]) -> Result<(), Failure> {
    simulation::tell(&simulation::HISTORIES, options)
}

fn seeds(options: &[String]) -> Result<(), Failure> {
    simulation::tell(&simulation::SIMULATION, options)
}

fn deep_loom(options: &[String]) -> Result<(), Failure> {
    match options {
        [] => loom(4),
        [most] => loom(most.parse().map_err(|_| format!("{most:?} is not a number of preemptions"))?),
        other => Err(format!("{other:?} is not understood: cargo xtask verify loom [PREEMPTIONS]")),
    }
}

/// The schedule tests, with at most so many preemptions in a schedule.
pub(crate) fn loom(preemptions: usize) -> Result<(), Failure> {
    let target = root().join("target/loom");
    Step::cargo("test --release --package tidegate --lib schedules")
        .with("RUSTFLAGS", "--cfg loom")
        .with("CARGO_TARGET_DIR", &target.display().to_string())
        .with("LOOM_MAX_PREEMPTIONS", &preemptions.to_string())
        .run()
}

/// The unit tests of the memory store, which has all the unsafe code, and threads
/// that race for a limit, under Miri on the nightly toolchain.
pub(crate) fn miri() -> Result<(), Failure> {
    let (present, _) = Step::cargo("+nightly miri --version").ask()?;
    if !present {
        let arguments = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
        Step::new("rustup", &arguments).run().map_err(|failure| {
            format!("{failure}\nMiri is needed: install a nightly toolchain with the miri component")
        })?;
    }
    let target = root().join("target/miri");
    for tests in ["--lib store::memory", "--test concurrency"] {
        Step::cargo(&format!("+nightly miri test --package tidegate {tests}"))
            // Real time and the file system are used by some.
            .with("MIRIFLAGS", "-Zmiri-disable-isolation")
            .with("CARGO_TARGET_DIR", &target.display().to_string())
            .run()?;
    }
    Ok(())
}

fn soak() -> Result<(), Failure> {
    let decisions = std::env::var("TIDEGATE_DECISIONS").unwrap_or_else(|_| SOAK_DECISIONS.into());
    for tests in [
        "--profile checked --package tidegate --test all -- --nocapture differential:: retry_exactness::",
        "--profile checked --package tidegate-simulation --lib -- --nocapture",
    ] {
        Step::cargo(&format!("test {tests}")).with("TIDEGATE_DECISIONS", &decisions).run()?;
    }
    servers::ensure()?;
    Step::cargo("test --package tidegate-redis --test all -- --nocapture twin::")
        .with("TIDEGATE_REDIS_DECISIONS", REDIS_SOAK_DECISIONS)
        .run()
}
