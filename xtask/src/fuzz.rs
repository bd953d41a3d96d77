//! Fuzzing: the targets of `verify/fuzz/`, by libFuzzer on the nightly toolchain.
//!
//! The same targets run for a short while in an ordinary test
//! (`tidegate-fuzz`, `tests/replay.rs`), which is what ci does.

use std::fs;
use std::path::PathBuf;

use crate::run::{Failure, Step, root};

/// Runs of each target unless told otherwise.
const RUNS: u64 = 1_000_000;
/// The longest input in bytes: room for every field of a policy, and quick.
const MAX_INPUT_BYTES: usize = 1_024;
const USAGE: &str = "cargo xtask verify fuzz [TARGET] [--runs N]";

/// `[target] [--runs N]`: one target, or all of them.
pub(crate) fn run(options: &[String]) -> Result<(), Failure> {
    let (mut only, mut runs) = (None, RUNS);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--runs" => {
                let given = options.next().and_then(|given| given.parse().ok());
                runs = given.ok_or_else(|| format!("--runs wants a number: {USAGE}"))?;
            }
            target if !target.starts_with('-') && only.is_none() => only = Some(target.to_owned()),
            other => return Err(format!("{other:?} is not understood: {USAGE}")),
        }
    }
    let targets = targets()?;
    if let Some(target) = only.as_ref().filter(|target| !targets.contains(target)) {
        return Err(format!("there is no target {target:?}, but: {}", targets.join(", ")));
    }
    let fuzzer = ensure()?;
    for target in targets.iter().filter(|target| only.as_ref().is_none_or(|only| only == *target)) {
        fuzz(&fuzzer, target, runs)?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>, Failure> {
    let folder = root().join("verify/fuzz/fuzzer/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut targets: Vec<String> = names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    targets.sort();
    Ok(targets)
}

/// cargo-fuzz, built when there is none yet.
fn ensure() -> Result<String, Failure> {
    let tools = target_folder().join("tools");
    let fuzzer = tools.join("bin/cargo-fuzz").display().to_string();
    if !Step::new(&fuzzer, &["--version"]).ask().is_ok_and(|(success, _)| success) {
        let root = tools.display().to_string();
        Step::cargo("install --locked cargo-fuzz --root").argument(&root).run()?;
    }
    Ok(fuzzer)
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// What is found goes on with the next run: new inputs to the corpus, and
/// those that fail to the artifacts.
fn fuzz(fuzzer: &str, target: &str, runs: u64) -> Result<(), Failure> {
    let corpus = root().join("verify/fuzz/corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("cannot make {}: {error}", corpus.display()))?;
    let seeds = root().join("verify/fuzz/seeds").join(target);
    let (corpus, seeds) = (corpus.display().to_string(), seeds.display().to_string());
    let runs = format!("-runs={runs}");
    let longest = format!("-max_len={MAX_INPUT_BYTES}");
    // The code is safe, but for one file that Miri looks after: a sanitizer
    // would only make it slower.
    let chosen = ["run", "--fuzz-dir", "fuzzer", "--sanitizer", "none", target, &corpus, &seeds];
    let passed_on = ["--", &runs, &longest, "-print_final_stats=1"];
    let step = Step::new(fuzzer, &[&chosen[..], &passed_on[..]].concat());
    step.within(&root().join("verify/fuzz"))
        .with("RUSTUP_TOOLCHAIN", "nightly")
        .with("CARGO_TARGET_DIR", &target_folder().join("fuzz").display().to_string())
        .run()
}
