//! The first circle: what shows that tidegate works, from nothing, within ten minutes.
//!
//! One build of the published crates, the libraries with all features and the server as a newcomer builds it, and the tests
//! that need no program but Redis. The tests that want real peers or a browser, that wait long or try very much, are parts of
//! the same programs: ci runs those, and all of the server's with all features.

use std::thread;

use crate::built::{self, CRATES, Program};
use crate::jobs::{self, Job};
use crate::programs;
use crate::report::{Outcome, Report};
use crate::run::{Failure, Step, logged, root};
use crate::{servers, suites, times};

/// How many random decisions are tried here; ci tries more.
const COUNTS: [(&str, &str); 2] = [("TIDEGATE_DECISIONS", "100000"), ("TIDEGATE_REDIS_DECISIONS", "20000")];

/// Programs that start servers of Redis.
const WITH_REDIS: [(&str, &[&str]); 3] = [
    ("tidegate-redis", &["all", "cluster", "hall_of_bugs"]),
    ("tidegate-testkit", &["servers"]),
    ("tidegate-tower", &["all"]),
];

/// Of a program, the tests that ci runs: those that need real peers, a browser or a checker, wait long or try very much.
pub(crate) const LEFT_TO_CI: [(&str, &[&str]); 8] = [
    (
        "tidegate-server/all",
        &[
            "dropin::",
            "envoy::",
            "proxies::",
            "resp::clients::redis_py",
            "rls::addresses::six_ways",
            "server::access::every_path",
            "server::bounds::bodies_that_never_end",
            "server::dashboard::",
            "server::deploy::alerts_are",
            "server::deploy::metrics_are",
            "server::deploy::prometheus",
            "server::deploy::promtool",
            "server::drain::a_server_that_is_told_to_leave_under_load",
            "server::hall_of_bugs::row_80",
            "server::hostile::questions_with_bytes",
            "server::hostile::requests_are_served_beside_ten_thousand",
            "server::limits::a_policy_file_gains",
            "server::messages::",
            "server::openapi::answers_are",
        ],
    ),
    (
        "tidegate-server/lib",
        &[
            "tell::crossings::tests::long_keys",
            "tell::held::tests::more_than_the_bound",
            "screen::history::tests::a_day_of_history",
            "wire::http::plain::tests::whatever_arrives",
            "quota::tests::assigned_shares_never_exceed",
            "quota::tests::many_clients_share",
            "wire::resp::frame::tests::commands_are_those_of_the_naive_parser",
        ],
    ),
    (
        "tidegate-redis/all",
        &[
            "change::a_limit_that_comes_back",
            "change::a_request_that_is_repeated",
            "change::limits_changed_on_redis",
            "conformance::redis::every_crossing",
            "conformance::redis::no_class_takes",
            "custom::decides_as_the_memory_store",
            "leases::keeps_its_bound",
            "sentinel::",
            "servers::a_rejected_client",
            "servers::a_server_that_throws",
        ],
    ),
    ("tidegate-testkit/servers", &["cluster::masters_are_replaced", "sentinel::"]),
    (
        "tidegate-tower/all",
        &["server::forged_headers_of_every_shape", "server::redis::ten_thousand_concurrent_requests"],
    ),
    (
        "tidegate-config/all",
        &[
            "chaos::",
            "envoy::the_paths_of_descriptors",
            "envoy_quotas::requests_pass_or_not",
            "errors::no_number",
            "errors::the_text_that_aliases",
        ],
    ),
    (
        "tidegate-replay/logs",
        &[
            "broken::a_log_that_breaks_off",
            "decisions::changes_are_the_difference",
            "decisions::decisions_are",
            "decisions::lines_out_of_order",
            "decisions::several_logs",
            "lasting::in_flight_requests",
            "lasting::requests_beyond",
        ],
    ),
    (
        "tidegate-simulate/all",
        &["golden::a_picture_is", "properties::the_measures_are", "reservations::the_answers_are"],
    ),
];

/// Programs of the published crates that only ci runs, because they take minutes.
pub(crate) const LONG: [(&str, &[&str]); 2] = [("tidegate-redis", &["cluster"]), ("tidegate", &["key_rotation"])];

/// The same of the library: ci runs all of its tests, optimised.
const EXHAUSTIVE: [(&str, &[&str]); 2] = [
    (
        "tidegate/all",
        &[
            "change::a_policy_change_during_a_check",
            "change::nothing_is_minted",
            "change::one_of_very_many",
            "ids::a_flood",
            "ids::no_more_ids",
            "log_entries::",
            "matching::patterns_of_any_shape",
            "memory_store::the_store_holds_as_many",
            "places::very_many",
            "policy::one_of_very_many",
            "reserve::while_a_limit_warms_up",
            "retry_exactness::",
            "settled_after_change::a_settlement_after_a_change_gives_back",
        ],
    ),
    (
        "tidegate/hall_of_bugs",
        &["change::row_68_a_million_keys", "change::row_70_a_full_store", "keys::row_72_long_keys"],
    ),
];

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
        "Builds once, then runs tests of every kind that need no program but Redis: on two cores 10 minutes from nothing, 2 when built."
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
