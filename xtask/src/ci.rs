//! The second circle: what must pass before a change lands.
//!
//! It is the first circle, and then lints, real servers and proxies, a browser, documents, packages and the short forms
//! of the campaigns. What a change cannot have broken does not run again: see [`unchanged`].

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::built::{self, CRATES, FULL, FULL_SERVER, Program, REST};
use crate::instructions::instructions;
use crate::jobs::{self, Job};
use crate::load::Load;
use crate::report::{Outcome, Report};
use crate::run::{Failure, Step, logged, root};
use crate::test::{self, LEFT_TO_CI, LONG};
use crate::{api, checks, docs, lua, msrv, package, programs, proof, servers, suites, times, unchanged, verify, web};

const USAGE: &str = "cargo xtask ci [--rest] [--all] [--under-load] [--only WORD]";

/// Of the Redis store, the tests that are about its answers: they run on Valkey as well.
const ON_VALKEY: [&str; 7] = ["conformance::", "custom::", "failure::", "leases::", "servers::", "strict::", "twin::"];

/// The jobs that take longest begin first, and those that build, one at a time, beside others: so that none of them is
/// left alone at the end.
const LONG_JOBS: [&str; 15] = [
    "lints",
    "build",
    "miri",
    "library",
    "simulation",
    "documents",
    "features",
    "book",
    "instructions",
    "packages",
    "public API",
    "schedules",
    "tidegate-server/all with all features",
    "tidegate-redis/cluster",
    "tidegate-chaos/quick",
];

/// What a call asks for.
#[derive(Default)]
struct Options {
    /// Without the first circle, which has run.
    rest: bool,
    /// Also what cannot have changed.
    all: bool,
    under_load: bool,
    /// Only jobs of the rest whose names have this in them.
    only: Option<String>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, Failure> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rest" => options.rest = true,
                "--all" => options.all = true,
                "--under-load" => options.under_load = true,
                "--only" => {
                    options.only = Some(words.next().ok_or(format!("--only needs a word: {USAGE}"))?.clone());
                    (options.rest, options.all) = (true, true);
                }
                other => return Err(format!("{other:?} is not understood: {USAGE}")),
            }
        }
        Ok(options)
    }
}

/// The servers that there are, or what is missing.
struct Found {
    redis: Result<(), Failure>,
    valkey: Result<PathBuf, Failure>,
    others: Result<(), Failure>,
}

/// Everything. What fails stops nothing else; a table at the end tells all.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let options = Options::read(words)?;
    println!("On two cores this takes 30 minutes from a clean clone, and half of that when all is built.");
    let load = options.under_load.then(Load::start).transpose()?;
    let began = Instant::now();
    let mut report = Report::default();
    if !options.rest {
        test::circle(&mut report);
    }
    let mut rest = Report::default();
    circle(&options, &mut rest);
    times::add("ci", &rest.times());
    report.extend(rest);
    drop(load);
    println!("{}", report.shown());
    println!("after {} min", began.elapsed().as_secs().div_ceil(60));
    println!("{}", report.closing());
    report.verdict(std::env::var_os("CI").is_none())
}

/// What follows the first circle.
fn circle(options: &Options, report: &mut Report) {
    let is_wanted = |label: &str| options.only.as_ref().is_none_or(|word| label.contains(word.as_str()));
    let needs_tests = options.only.is_none() || !whole_jobs().iter().any(|job| is_wanted(job.label()));
    let (found, tests, full_server) = thread::scope(|scope| {
        let found = scope.spawn(find_programs);
        let mut build = |packages: &str| if needs_tests { build(packages, report) } else { Vec::new() };
        let (tests, full_server) = (build(&format!("{CRATES} {REST}")), build(FULL_SERVER));
        (found.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), tests, full_server)
    });
    for (name, missing) in [("Redis", &found.redis), ("programs", &found.others)] {
        if let Err(why) = missing {
            report.add("programs", Duration::ZERO, &Outcome::skipped(format!("what needs {name}: {why}")));
        }
    }
    let mut jobs = left_to_ci(&tests);
    jobs.extend(full_server.into_iter().map(with_all_features));
    jobs.push(on_valkey(&tests, found.valkey));
    jobs.extend(tests.into_iter().filter(is_of_the_rest).map(of_the_rest));
    jobs.extend(whole_jobs());
    jobs.retain(|job| is_wanted(job.label()));
    let (skipped, mut jobs): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|job| !options.all && unchanged::is_unchanged(job.label()));
    if !skipped.is_empty() {
        let names: Vec<&str> = skipped.iter().map(Job::label).collect();
        println!("\nUnchanged since they passed, see verify/passed.txt: {}", names.join(", "));
    }
    jobs.sort_by_key(|job| LONG_JOBS.iter().position(|label| *label == job.label()).unwrap_or(LONG_JOBS.len()));
    for job in jobs::run(jobs, report) {
        if let Err(failure) = unchanged::record(&job) {
            println!("{failure}");
        }
    }
}

/// The jobs that pass or fail as a whole.
fn whole_jobs() -> Vec<Job> {
    let again = |name: &str| format!("cargo xtask ci --only {name:?}");
    let job = |name: &'static str, work: fn() -> Result<(), Failure>| Job::whole(name, &again(name), work);
    vec![
        job("format", || Step::cargo("fmt --all --check").run()),
        job("lints", lints).that_builds(),
        job("miri", verify::miri),
        job("schedules", || verify::loom(2)),
        job("documents", documents).that_builds(),
        Job::new("book", "book", book).that_builds(),
        job("features", checks::features).that_builds(),
        job("without features", checks::without_features).that_builds(),
        job("examples", checks::examples).that_builds(),
        job("scripts", lua::lint).that_builds(),
        Job::new("library", "library", checks::library).that_builds(),
        Job::new("simulation", "simulation", checks::simulation).that_builds(),
        job("instructions", || instructions(&[])).that_builds(),
        job("lemmas", || proof::lemmas(&[])),
        job("dashboard", web::test),
        job("packages", package::all).that_builds(),
        job("public API", || api::compare(false)).that_builds(),
        job("Rust versions", msrv::check),
        Job::new("models", "models", |log| checks::apart("tidegate-proof", log)).that_builds(),
        Job::new("limitador", "limitador", |log| checks::apart("tidegate-limitador", log)).that_builds(),
        Job::new("actix", "actix", |log| checks::apart("tidegate-example-actix", log)).that_builds(),
        Job::new("bench", "bench", |log| checks::apart("tidegate-bench", log)).that_builds(),
        Job::new("generated code", "generated code", |log| checks::apart("tidegate-proto", log)).that_builds(),
        Job::new("pingora", "pingora", pingora),
    ]
}

fn find_programs() -> Found {
    let find = || Ok(Found { redis: servers::ensure(), valkey: servers::valkey(), others: programs::ensure() });
    logged(&root().join("target/ci/programs.log"), find).unwrap_or_else(|failure| {
        let failed = || Err(failure.clone());
        Found { redis: failed(), valkey: Err(failure.clone()), others: failed() }
    })
}

/// Builds the test programs that the first circle has not, beside those that it has.
fn build(packages: &str, report: &mut Report) -> Vec<Program> {
    let command = format!("test {packages} --lib --bins --tests --no-run");
    report.run("build", &format!("cargo {command}"), || Step::cargo(&command).run());
    built::tests(packages).unwrap_or_default()
}

/// All tests of the server, as it is handed out.
fn with_all_features(program: Program) -> Job {
    let (step, label) = (program.package().to_owned(), format!("{} with all features", program.label()));
    let left = LEFT_TO_CI.iter().filter(|(label, _)| *label == program.label()).flat_map(|(_, names)| *names);
    let left: Vec<&str> = left.copied().collect();
    Job::new(&step, &label, move |log| some_of_each(suites::run(&program, program.step(), log), log, &left))
}

/// Of the programs of the first circle, the tests that it left out; and those that it ran with smaller counts.
fn left_to_ci(tests: &[Program]) -> Vec<Job> {
    // The server's are among those with all features.
    let left = LEFT_TO_CI.iter().filter(|(label, _)| !label.starts_with("tidegate-server/"));
    let left = left.map(|(label, names)| (*label, *names, "in ci"));
    let whole = [("tidegate-redis/all", &["twin::"][..], "with all decisions")];
    let job = |(label, names, what): (&str, &'static [&'static str], &str)| {
        let program = tests.iter().find(|program| program.label() == label)?.clone();
        let (step, label) = (program.package().to_owned(), format!("{label} {what}"));
        Some(Job::new(&step, &label, move |log| {
            let step = names.iter().fold(program.step(), |step, name| step.argument(name));
            some_of_each(suites::run(&program, step, log), log, names)
        }))
    };
    left.chain(whole).filter_map(job).collect()
}

/// A name of no tests chooses none, and says nothing.
fn some_of_each(mut outcome: Outcome, log: &Path, names: &[&str]) -> Outcome {
    let printed = fs::read_to_string(log).unwrap_or_default();
    let idle = names.iter().filter(|name| !printed.contains(&format!("\ntest {name}")));
    outcome.failed.extend(idle.map(|name| format!("no test of {name} ran")));
    outcome
}

fn is_of_the_rest(program: &Program) -> bool {
    // The library runs optimised, as a job of its own.
    program.package() != "tidegate"
        && (test::is_in(&LONG, program) || REST.split_whitespace().any(|word| word == program.package()))
}

fn of_the_rest(program: Program) -> Job {
    let (step, label) = (program.package().to_owned(), program.label());
    Job::new(&step, &label, move |log| suites::run(&program, program.step(), log))
}

/// The tests of the Redis store that are about its answers, on Valkey.
fn on_valkey(tests: &[Program], valkey: Result<PathBuf, Failure>) -> Job {
    let program = tests.iter().find(|program| program.label() == "tidegate-redis/all").cloned();
    Job::new("on Valkey", "on Valkey", move |log| match (program, valkey) {
        (Some(program), Ok(valkey)) => {
            let step = ON_VALKEY.into_iter().fold(program.step(), Step::argument);
            let step = step.with("TIDEGATE_REDIS_SERVER", &valkey.display().to_string());
            let outcome = suites::run(&program, step.with("TIDEGATE_REDIS_DECISIONS", "60000"), log);
            some_of_each(outcome, log, &ON_VALKEY)
        }
        (_, Err(why)) => Outcome::skipped(format!("the Redis store on Valkey: {why}")),
        (None, Ok(_)) => Outcome::skipped("the Redis store on Valkey: its tests are not built"),
    })
}

fn lints() -> Result<(), Failure> {
    Step::cargo(&format!("clippy {CRATES} {REST} {FULL} --all-targets -- -D warnings")).run()?;
    // What a newcomer builds has fewer features.
    Step::cargo("clippy -p tidegate-server -- -D warnings").run()
}

fn documents() -> Result<(), Failure> {
    Step::cargo(&format!("doc {CRATES} {REST} {FULL} --no-deps")).with("RUSTDOCFLAGS", "-D warnings").run()
}

fn book(log: &Path) -> Outcome {
    match logged(log, docs::programs) {
        Ok(_) => Outcome::of(logged(log, || docs::check(&[])), "cargo xtask docs"),
        Err(why) => Outcome::skipped(format!("the book: {why}")),
    }
}

fn pingora(log: &Path) -> Outcome {
    match logged(log, programs::cmake) {
        Ok(()) => Outcome::of(logged(log, checks::pingora), "cargo xtask ci --only pingora"),
        Err(why) => Outcome::skipped(format!("the proxy of pingora: {why}")),
    }
}
