//! The project's own tasks: `cargo xtask test` is the one to remember.

mod api;
mod attack;
mod bench;
mod built;
mod calendar;
mod chaos;
mod checks;
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
mod record;
mod release;
mod report;
mod run;
mod sanitize;
mod sbom;
mod servers;
mod shots;
mod simulation;
mod suites;
mod test;
mod times;
mod unchanged;
mod verify;
mod web;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  test      shows that tidegate works: one build, and tests of every kind that need no program but Redis.
            From a clean clone 10 minutes on two cores, 2 when built
  ci        what must pass before a change lands, 30 minutes from a clean clone: test, then lints, real
            servers and proxies, a browser, documents, packages, quick proofs.
            --rest without test; --all also what cannot have changed; --only WORD the jobs with that
            word in their names; --under-load beside busy processes
  verify    a campaign: NAME [OPTIONS]; alone, it lists them
  bench     tidegate beside its rivals: [OPTIONS]; `bench compare` asks rivals for the same promises,
            `bench instructions [PATH..]` counts the instructions of the paths that a service takes
  docs      builds the book into target/book, checks its links, runs its shell blocks: [WORD] of a path
  evidence  writes the book's page of results; NAME [OPTIONS] runs a campaign first and records it
  record    writes a file anew that is generated and committed: NAME; alone, it lists them
  release   the stripped binary, completions, the manual, the SBOM and checksums
  shots     pictures of every page at three widths, light and dark: [--docs]
  install   gets the programs that ci tests with: Redis, Valkey, Envoy, proxies, Chromium and others";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let outcome = match task.as_str() {
        "test" => test::run(&rest),
        "ci" => ci::run(&rest),
        "verify" => verify::run(&rest),
        "bench" => bench::run(&rest),
        "docs" => docs::check(&rest),
        "evidence" => evidence::write(&rest),
        "record" => record::run(&rest),
        "release" => release::write(),
        "shots" => shots::take(&rest),
        "install" => servers::all().and_then(|()| programs::ensure()),
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
