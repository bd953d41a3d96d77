//! The project's own tasks: `cargo xtask ci` is the one to remember.

mod api;
mod attack;
mod built;
mod calendar;
mod chaos;
mod ci;
mod compare;
mod defects;
mod deny;
mod docs;
mod evidence;
mod fuzz;
mod instructions;
mod jobs;
mod load;
mod lua;
mod msrv;
mod mutants;
mod package;
mod packages;
mod programs;
mod proof;
mod release;
mod report;
mod run;
mod sanitize;
mod sbom;
mod servers;
mod shots;
mod simulation;
mod suites;
mod web;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  ci        everything that must pass before a change lands: format, lints, tests,
            documents, features, examples, schedules, Miri; --under-load runs it beside
            busy processes, to show that no test depends on an idle machine
  test      the quick one: all tests that need no servers, no browser and no Miri
  soak      the differential tests, a hundred times longer (TIDEGATE_DECISIONS, TIDEGATE_SEED)
  bench     tidegate beside its rivals; options are passed on (--quick, --only NAME, --markdown FILE)
  chaos     faults under load, each with its bound; options are passed on (--list, --only WORD, --repeat N, --seed N)
  attack    bounded attacks on a server, each with an honest client beside it and a stated bound; options are passed
            on (--list, --only WORD, --quick)
  compare   the same promises asked of tidegate and its rivals; writes the table of docs/book/src/appendix/compare.md
  loom      every schedule of the locking and waiting code, more of them than ci runs
  simulation
            processes, leases and servers with faults in virtual time: [COUNT] [--seed FIRST], 100,000 seeds unless
            told; one seed is told aloud
  histories threads at once and waiters poll by poll: [COUNT] [--seed FIRST], a million unless told
  miri      the tests of the unsafe code under Miri
  sanitize  the library's tests under ThreadSanitizer and AddressSanitizer, on nightly: [thread|address]
  fuzz      the fuzz targets by libFuzzer, on nightly: [TARGET] [--runs N], a million each unless told
  proof     the lemmas about the arithmetic, by Z3, each also with a planted defect: [SUBJECT] [-v]
  calendar  periods of random calendars by the library, by Python and by PostgreSQL: [COUNT], a million unless told;
            --write records the first tenth for the tests; clocks runs the server across edges under clocks of its own
  lua       luacheck over the scripts that run inside the servers
  defects   plants defects in a copy of the sources and sees the tests catch each one; with a word, only
            those in files whose path contains it (lua/bucket)
  mutants   makes every small defect there is in the code that decides and in the scripts, and sees the tests
            notice: [rust [--missed] [--thorough] [FILE..]|lua]
  instructions
            the instructions of the paths that a service takes, by callgrind, beside those recorded in verify/paths:
            [--write] [PATH..]
  sbom      what the server is made of, as CycloneDX 1.5, to target/sbom.json
  deny      licences, sources, versions and known vulnerabilities of all dependencies, by cargo-deny and deny.toml
  package   packs every published crate, with the dashboard in the server's, looks into the packages, and compiles the
            library from its own
  api       what the libraries make public, beside what is recorded in verify/api: [--write]
  msrv      the oldest Rust that each published crate takes, against what its dependencies say
  release   the stripped binary, completions, the manual, the SBOM and checksums, to target/release-artifacts
  servers   gets the servers that tests run on, Redis and Valkey, and prints what there is
  programs  gets the programs that the server is tested with: curl, promtool, schemathesis, redis-py, grpcio, Envoy,
            nginx, HAProxy, Traefik, Caddy, Chromium
  docs      builds the book into target/book, checks its links and runs its shell blocks: [WORD], a part of a chapter's path
  evidence  writes the book's page of results from verify/evidence; [TASK [OPTIONS]] runs a campaign first and records it
  features  every library without its default features, and with each alone
  examples  every example, to its end
  pingora   lints and tests of the proxy in examples/pingora, which takes CMake
  web       the dashboard's own tests, by npm
  shots     pictures of every view of the dashboard at three widths, light and dark, of a replay's report and of a
            simulation, to target/shots; --docs also takes those that the documents show
  proto     generates the code of Envoy's messages anew";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let outcome = match task.as_str() {
        "ci" => ci::all(&rest),
        "test" => ci::quick(),
        "soak" => ci::soak(),
        "bench" => ci::bench(&rest),
        "chaos" => chaos::run(&rest),
        "attack" => attack::run(&rest),
        "compare" => compare::write(),
        "loom" => ci::loom(None),
        "simulation" => simulation::tell(&simulation::SIMULATION, &rest),
        "histories" => simulation::tell(&simulation::HISTORIES, &rest),
        "miri" => ci::miri(),
        "sanitize" => sanitize::all(&rest),
        "fuzz" => fuzz::run(&rest),
        "calendar" => calendar::compare(&rest),
        "lua" => lua::lint(),
        "proof" => proof::lemmas(&rest),
        "defects" => defects::all(&rest),
        "instructions" => instructions::instructions(&rest),
        "mutants" => mutants::all(&rest),
        "sbom" => sbom::write(),
        "deny" => deny::check(),
        "docs" => docs::check(&rest),
        "evidence" => evidence::write(&rest),
        "shots" => shots::take(&rest),
        "package" => package::all(),
        "api" => api::compare(&rest),
        "msrv" => msrv::check(),
        "release" => release::write(),
        "servers" => servers::all(),
        "programs" => programs::ensure(),
        "pingora" => ci::pingora(),
        "web" => web::test(),
        "features" => ci::features(),
        "examples" => ci::examples(),
        "proto" => ci::proto(),
        load::BUSY => load::be_busy(&rest),
        _ => {
            println!("{HELP}");
            return if task.is_empty() || task == "help" { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\n{failure}");
            ExitCode::FAILURE
        }
    }
}
