//! The first circle: what shows that tidegate works, from nothing, within ten minutes.
//!
//! One build of the published crates with all their features, and every test of theirs that needs no program but Redis.
//! The tests that want real peers or a browser are parts of the same programs: ci runs those.

use std::thread;

use crate::built::{self, CRATES, Program};
use crate::jobs::{self, Job};
use crate::programs;
use crate::report::{Outcome, Report};
use crate::run::{Failure, Step, logged, root};
use crate::{servers, suites, times};

/// How many random decisions are tried here; ci tries more.
const COUNTS: [(&str, &str); 2] = [("TIDEGATE_DECISIONS", "300000"), ("TIDEGATE_REDIS_DECISIONS", "60000")];

/// Programs that start servers of Redis.
const WITH_REDIS: [(&str, &[&str]); 3] = [
    ("tidegate-redis", &["all", "cluster", "hall_of_bugs"]),
    ("tidegate-testkit", &["servers"]),
    ("tidegate-tower", &["all"]),
];

/// Of a program, the tests that ci runs: those that need real peers, a browser or a checker, and those that try very much.
pub(crate) const LEFT_TO_CI: [(&str, &[&str]); 5] = [
    (
        "tidegate-server/all",
        &[
            "dropin::",
            "envoy::",
            "proxies::",
            "resp::clients::redis_py",
            "rls::addresses::six_ways",
            "server::access::every_path",
            "server::dashboard::",
            "server::deploy::alerts_are",
            "server::deploy::metrics_are",
            "server::deploy::prometheus",
            "server::deploy::promtool",
            "server::openapi::answers_are",
        ],
    ),
    ("tidegate-redis/all", &["sentinel::"]),
    ("tidegate-config/all", &["chaos::", "errors::no_number"]),
    (
        "tidegate-replay/logs",
        &["decisions::decisions_are", "decisions::lines_out_of_order", "lasting::requests_beyond"],
    ),
    ("tidegate-simulate/all", &["reservations::the_answers_are"]),
];

/// Programs of the published crates that only ci runs, because they take minutes.
pub(crate) const LONG: [(&str, &[&str]); 2] = [("tidegate-redis", &["cluster"]), ("tidegate", &["key_rotation"])];

/// The same of the library: ci runs all of its tests optimised.
const EXHAUSTIVE: [(&str, &[&str]); 1] = [(
    "tidegate/all",
    &[
        "change::nothing_is_minted",
        "ids::a_flood",
        "ids::no_more_ids",
        "log_entries::",
        "matching::patterns_of_any_shape",
        "places::very_many",
        "retry_exactness::",
    ],
)];

/// Programs whose tests wait for servers most of the time, and how many of them run at once.
const WAITING: [&str; 3] = ["tidegate-server/all", "tidegate-redis/all", "tidegate-testkit/servers"];
const WAITING_AT_ONCE: &str = "6";

/// The programs that take longest begin first.
const LONGEST: [&str; 4] = ["tidegate-server/all", "tidegate-redis/all", "tidegate-testkit/servers", "tidegate/all"];

/// All of it, with a table at the end.
pub(crate) fn run(options: &[String]) -> Result<(), Failure> {
    if !options.is_empty() {
        return Err(format!("{options:?} is not understood: cargo xtask test"));
    }
    println!(
        "Builds once, then runs every test that needs no program but Redis: on two cores 10 minutes from nothing, 2 when built."
    );
    let mut report = Report::default();
    circle(&mut report);
    println!("{}\n{}", report.shown(), report.closing());
    report.verdict(std::env::var_os("CI").is_none())
}

/// The jobs of the circle, added to a report.
pub(crate) fn circle(report: &mut Report) {
    times::begin();
    let npm = programs::npm();
    let (redis, built) = thread::scope(|scope| {
        let redis = scope.spawn(|| logged(&root().join("target/ci/redis.log"), servers::ensure));
        let command = format!("test {CRATES} --lib --bins --tests --no-run");
        report.run("build", &format!("cargo {command}"), || Step::cargo(&command).run());
        let built = built::tests(CRATES);
        (redis.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), built)
    });
    for (name, missing) in [("Redis", &redis), ("npm", &npm)] {
        if let Err(why) = missing {
            report.add("programs", Default::default(), &Outcome::skipped(format!("what needs {name}: {why}")));
        }
    }
    let programs = built.unwrap_or_default().into_iter().filter(|program| !is_in(&LONG, program));
    let (chosen, left): (Vec<Program>, Vec<Program>) =
        programs.partition(|program| redis.is_ok() || !is_in(&WITH_REDIS, program));
    if !left.is_empty() {
        let names: Vec<String> = left.iter().map(Program::label).collect();
        println!("\nSKIPPED, for they need redis-server: {}", names.join(", "));
    }
    let mut jobs: Vec<Job> = chosen.into_iter().map(job).collect();
    jobs.push(doc_tests());
    jobs.sort_by_key(|job| LONGEST.iter().position(|label| *label == job.label()).unwrap_or(LONGEST.len()));
    jobs::run(jobs, report);
    times::add("test", &report.times());
}

/// Whether a list has a program.
pub(crate) fn is_in(list: &[(&str, &[&str])], program: &Program) -> bool {
    list.iter().any(|(package, names)| *package == program.package() && names.contains(&&*program.name))
}

/// Runs a program without what is left to ci.
fn job(program: Program) -> Job {
    let (step, label) = (program.package().to_owned(), program.label());
    Job::new(&step, &label, move |log| {
        let left = LEFT_TO_CI.iter().chain(&EXHAUSTIVE).filter(|(label, _)| *label == program.label());
        let step = COUNTS.iter().fold(program.step(), |step, (name, count)| step.with(name, count));
        let waits = WAITING.contains(&&*program.label());
        let step = if waits { step.argument("--test-threads").argument(WAITING_AT_ONCE) } else { step };
        let skip = |step: Step, name: &&str| step.argument("--skip").argument(name);
        suites::run(&program, left.flat_map(|(_, names)| *names).fold(step, skip), log)
    })
}

/// The examples in the comments, the README and the book.
fn doc_tests() -> Job {
    let command = format!("test {CRATES} --doc --no-fail-fast");
    Job::new("examples in documents", "examples in documents", move |log| suites::run_cargo(&command, log))
        .that_builds()
}
