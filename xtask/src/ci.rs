//! What must pass, and the longer campaigns beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crate::api;
use crate::built::{self, EVERYTHING, Program};
use crate::docs;
use crate::instructions::instructions;
use crate::jobs::{self, Job};
use crate::load::Load;
use crate::lua;
use crate::msrv;
use crate::package;
use crate::programs;
use crate::proof;
use crate::report::{Outcome, Report};
use crate::run::{Failure, Step, logged, root};
use crate::servers;
use crate::suites;
use crate::web;

/// Decisions that the differential tests make in all.
const CI_DECISIONS: Decisions = Decisions { memory: "10000000", lua: "300000" };
const QUICK_DECISIONS: Decisions = Decisions { memory: "1000000", lua: "100000" };
const SOAK_DECISIONS: &str = "1000000000";
const REDIS_SOAK_DECISIONS: &str = "10000000";

/// Lua decides a hundredth as fast as the memory store, and long campaigns are for `cargo xtask soak`.
#[derive(Clone, Copy)]
struct Decisions {
    memory: &'static str,
    lua: &'static str,
}

const UNDER_LOAD: &str = "--under-load";

/// Test programs that start servers, proxies or a browser.
const WITH_SERVERS: [(&str, &[&str]); 5] = [
    ("tidegate-chaos", &["attacks", "quick"]),
    ("tidegate-redis", &["all", "cluster", "hall_of_bugs"]),
    ("tidegate-server", &["dropin", "envoy", "otlp", "proxies", "resp", "rls", "server"]),
    ("tidegate-testkit", &["servers"]),
    ("tidegate-tower", &["server"]),
];

/// Of the Redis store, the tests that are about its answers: they run on Valkey as well.
const ON_VALKEY: [&str; 7] = ["conformance::", "custom::", "failure::", "leases::", "servers::", "strict::", "twin::"];

/// The jobs that take longest begin first, and those that build, one at a time, beside others: so that none of them is
/// left alone at the end.
const LONG_JOBS: [&str; 15] = [
    "miri",
    "documents",
    "features",
    "book",
    "instructions",
    "packages",
    "public API",
    "pingora",
    "tidegate-simulation/lib",
    "tidegate-server/server",
    "tidegate-redis/all",
    "tidegate-redis/cluster",
    "schedules",
    "tidegate-testkit/servers",
    "tidegate-chaos/quick",
];

/// The servers that there are, or what is missing.
struct Found {
    redis: Result<(), Failure>,
    valkey: Result<PathBuf, Failure>,
    others: Result<(), Failure>,
}

/// Everything. What fails stops nothing else; a table at the end tells all.
pub(crate) fn all(options: &[String]) -> Result<(), Failure> {
    let load = match options {
        [] => None,
        [option] if option == UNDER_LOAD => Some(Load::start()?),
        other => return Err(format!("{other:?} is not understood: cargo xtask ci [{UNDER_LOAD}]")),
    };
    println!("On two idle cores this takes about 40 minutes from a clean clone, and 20 when all is built.");
    let began = Instant::now();
    let mut report = Report::default();
    let npm = programs::npm();
    let (found, tests) = thread::scope(|scope| {
        let found = scope.spawn(find_programs);
        report.run("format", "cargo fmt --all", || Step::cargo("fmt --all --check").run());
        let lints = format!("clippy {EVERYTHING} --all-targets -- -D warnings");
        report.run("lints", &format!("cargo {lints}"), || Step::cargo(&lints).run());
        let tests = build(&mut report);
        (found.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), tests)
    });
    for (name, missing) in [("Redis", &found.redis), ("programs", &found.others), ("npm", &npm)] {
        if let Err(why) = missing {
            report.add("programs", Default::default(), &Outcome::skipped(format!("what needs {name}: {why}")));
        }
    }
    let valkey = on_valkey(&tests, found.valkey);
    let mut jobs = suites(tests, CI_DECISIONS, |program| found.redis.is_ok() || !has_servers(program));
    jobs.extend([
        valkey,
        Job::whole("miri", "cargo xtask miri", miri),
        Job::whole("schedules", "cargo xtask loom", || loom(Some(2))),
        doc_tests(),
        Job::whole("documents", "cargo doc", documents).that_builds(),
        Job::new("book", "book", book_job).that_builds(),
        Job::whole("features", "cargo xtask features", features).that_builds(),
        Job::whole("examples", "cargo xtask examples", examples).that_builds(),
        Job::whole("scripts", "cargo xtask lua", lua::lint).that_builds(),
        Job::whole("instructions", "cargo xtask instructions", || instructions(&[])).that_builds(),
        Job::whole("lemmas", "cargo xtask proof", || proof::lemmas(&[])),
        Job::whole("dashboard", "cargo xtask web", web::test),
        Job::whole("packages", "cargo xtask package", package::all).that_builds(),
        Job::whole("public API", "cargo xtask api", || api::compare(&[])).that_builds(),
        rust_versions(),
        Job::new("pingora", "pingora", pingora_job),
    ]);
    jobs.sort_by_key(|job| LONG_JOBS.iter().position(|label| *label == job.label()).unwrap_or(LONG_JOBS.len()));
    jobs::run(jobs, &mut report);
    drop(load);
    println!("{}", report.shown());
    println!("after {} min", began.elapsed().as_secs().div_ceil(60));
    report.verdict(std::env::var_os("CI").is_none())
}

/// The quick one: all tests that need neither servers nor a browser nor Miri.
pub(crate) fn quick() -> Result<(), Failure> {
    println!("About 2 minutes when all is built. `cargo xtask ci` runs everything.");
    let mut report = Report::default();
    let tests = build(&mut report);
    let mut jobs = suites(tests, QUICK_DECISIONS, |program| !has_servers(program));
    jobs.push(rust_versions());
    jobs::run(jobs, &mut report);
    println!("{}", report.shown());
    report.verdict(true)
}

fn find_programs() -> Found {
    let find = || Ok(Found { redis: servers::ensure(), valkey: servers::valkey(), others: programs::ensure() });
    logged(&root().join("target/ci/programs.log"), find).unwrap_or_else(|failure| {
        let failed = || Err(failure.clone());
        Found { redis: failed(), valkey: Err(failure.clone()), others: failed() }
    })
}

/// Builds all test programs and examples, once, for all that follows.
fn build(report: &mut Report) -> Vec<Program> {
    let command = format!("test {EVERYTHING} --no-run");
    report.run("build", &format!("cargo {command}"), || Step::cargo(&command).run());
    built::tests().unwrap_or_default()
}

fn has_servers(program: &Program) -> bool {
    WITH_SERVERS.iter().any(|(package, names)| *package == program.package() && names.contains(&&*program.name))
}

/// A job for each test program; those that are left out are not.
fn suites(tests: Vec<Program>, decisions: Decisions, is_chosen: impl Fn(&Program) -> bool) -> Vec<Job> {
    let (chosen, left_out): (Vec<Program>, Vec<Program>) = tests.into_iter().partition(is_chosen);
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(Program::label).collect();
        println!("\nLeft out: {}", names.join(", "));
    }
    let job = |program: Program| {
        let (step, label) = (program.package().to_owned(), program.label());
        let decisions = if step == "tidegate-simulation" { decisions.lua } else { decisions.memory };
        Job::new(&step, &label, move |log| {
            suites::run(&program, program.step().with("TIDEGATE_DECISIONS", decisions), log)
        })
    };
    chosen.into_iter().map(job).collect()
}

/// The tests of the Redis store that are about its answers, on Valkey.
fn on_valkey(tests: &[Program], valkey: Result<PathBuf, Failure>) -> Job {
    let program = tests.iter().find(|program| program.label() == "tidegate-redis/all").cloned();
    Job::new("on Valkey", "on Valkey", move |log| match (program, valkey) {
        (Some(program), Ok(valkey)) => {
            let step = ON_VALKEY.into_iter().fold(program.step(), Step::argument);
            let step = step.with("TIDEGATE_REDIS_SERVER", &valkey.display().to_string());
            let mut outcome = suites::run(&program, step.with("TIDEGATE_REDIS_DECISIONS", "60000"), log);
            // A name of no tests chooses none, and says nothing.
            let printed = fs::read_to_string(log).unwrap_or_default();
            let idle = ON_VALKEY.into_iter().filter(|module| !printed.contains(&format!("\ntest {module}")));
            outcome.failed.extend(idle.map(|module| format!("no test of {module} ran on Valkey")));
            outcome
        }
        (_, Err(why)) => Outcome::skipped(format!("the Redis store on Valkey: {why}")),
        (None, Ok(_)) => Outcome::skipped("the Redis store on Valkey: its tests are not built"),
    })
}

fn rust_versions() -> Job {
    Job::whole("Rust versions", "cargo xtask msrv", msrv::check)
}

/// The examples in the comments and documents.
fn doc_tests() -> Job {
    let command = format!("test {EVERYTHING} --doc --no-fail-fast");
    let job = Job::new("examples in documents", "examples in documents", move |log| suites::run_cargo(&command, log));
    job.that_builds()
}

fn documents() -> Result<(), Failure> {
    Step::cargo(&format!("doc {EVERYTHING} --no-deps")).with("RUSTDOCFLAGS", "-D warnings").run()
}

/// Every library without its default features, and with each feature alone.
pub(crate) fn features() -> Result<(), Failure> {
    for package in
        ["tidegate", "tidegate-redis", "tidegate-config", "tidegate-tower", "tidegate-simulate", "tidegate-testkit"]
    {
        Step::cargo(&format!("check --package {package} --no-default-features")).run()?;
        for feature in features_of(package)? {
            Step::cargo(&format!("check --package {package} --no-default-features --features {feature}")).run()?;
        }
    }
    Ok(())
}

fn features_of(package: &str) -> Result<Vec<String>, Failure> {
    let manifest = root().join("crates").join(package).join("Cargo.toml");
    let manifest =
        fs::read_to_string(&manifest).map_err(|error| format!("cannot read {}: {error}", manifest.display()))?;
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    Ok(lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().to_owned()).collect())
}

/// Every example runs to its end.
pub(crate) fn examples() -> Result<(), Failure> {
    for package in
        ["tidegate", "tidegate-redis", "tidegate-config", "tidegate-tower", "tidegate-simulate", "tidegate-replay"]
    {
        for example in built::examples(package)? {
            example.step().run()?;
        }
    }
    Ok(())
}

/// The proxy of pingora, which is a workspace of its own and is built below `target/pingora`.
pub(crate) fn pingora() -> Result<(), Failure> {
    programs::cmake()?;
    let target = root().join("target/pingora").display().to_string();
    let place = root().join("examples/pingora");
    Step::cargo("fmt --check").within(&place).run()?;
    // Clippy compiles it for the tests: by itself it would compile all dependencies once more.
    let step = Step::cargo("test --locked").within(&place).with("CARGO_TARGET_DIR", &target);
    step.with("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").with("RUSTFLAGS", "-D warnings").run()
}

fn pingora_job(log: &Path) -> Outcome {
    match logged(log, programs::cmake) {
        Ok(()) => Outcome::of(logged(log, pingora), "cargo xtask pingora"),
        Err(why) => Outcome::skipped(format!("the proxy of pingora: {why}")),
    }
}

fn book_job(log: &Path) -> Outcome {
    match logged(log, docs::programs) {
        Ok(_) => Outcome::of(logged(log, || docs::check(&[])), "cargo xtask docs"),
        Err(why) => Outcome::skipped(format!("the book: {why}")),
    }
}

/// The schedule tests, with at most so many preemptions in a schedule.
pub(crate) fn loom(preemptions: Option<usize>) -> Result<(), Failure> {
    let target = root().join("target/loom");
    let step = Step::cargo("test --release --package tidegate --lib schedules")
        .with("RUSTFLAGS", "--cfg loom")
        .with("CARGO_TARGET_DIR", &target.display().to_string());
    match preemptions {
        Some(most) => step.with("LOOM_MAX_PREEMPTIONS", &most.to_string()).run(),
        None => step.with("LOOM_MAX_PREEMPTIONS", "4").run(),
    }
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

/// The code of Envoy's messages, written by the test that compares it.
pub(crate) fn proto() -> Result<(), Failure> {
    Step::cargo("test --package tidegate-server --test proto").with("TIDEGATE_WRITE_PROTO", "1").run()
}

pub(crate) fn soak() -> Result<(), Failure> {
    let decisions = std::env::var("TIDEGATE_DECISIONS").unwrap_or_else(|_| SOAK_DECISIONS.into());
    for tests in [
        "--package tidegate --test all -- --nocapture differential:: retry_exactness::",
        "--package tidegate-simulation --lib -- --nocapture",
    ] {
        Step::cargo(&format!("test {tests}")).with("TIDEGATE_DECISIONS", &decisions).run()?;
    }
    servers::ensure()?;
    Step::cargo("test --package tidegate-redis --test all -- --nocapture twin::")
        .with("TIDEGATE_REDIS_DECISIONS", REDIS_SOAK_DECISIONS)
        .run()
}

pub(crate) fn bench(options: &[String]) -> Result<(), Failure> {
    let step = Step::cargo("run --profile dist --package tidegate-bench --");
    options.iter().fold(step, |step, option| step.argument(option)).run()
}
