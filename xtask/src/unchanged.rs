//! What need not run again: jobs that only some parts of the tree can change.
//!
//! One table says which parts. When such a job passes, the digest of its parts is recorded in `verify/passed.txt`, which
//! is committed with the change; ci skips the job while the digest stays the same. `cargo xtask ci --all` runs it anyway.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::run::{Failure, root};

/// The digests of the parts with which jobs last passed.
const RECORDED: &str = "verify/passed.txt";

const LIBRARY: &str = "crates/tidegate/src";
const TABLE: [&str; 4] = [
    "crates/tidegate/src/store/memory.rs",
    "crates/tidegate/src/store/memory",
    "crates/tidegate/src/sync.rs",
    "crates/tidegate/tests/concurrency.rs",
];
/// The public API as it is recorded: what other crates can see of the libraries.
const API: &str = "verify/api";

/// Each job, and the parts of the tree that can change what it finds.
const PARTS: [(&str, &[&str]); 10] = [
    ("schedules", &[LIBRARY]),
    ("miri", &TABLE),
    ("lemmas", &["verify/lemmas"]),
    ("models", &["verify/models", "crates/tidegate/src/kernel", "crates/tidegate/src/limiter", API]),
    ("limitador", &["verify/limitador", "crates/tidegate-config/src", API]),
    ("actix", &["examples/actix", "crates/tidegate-tower/src", API]),
    ("pingora", &["examples/pingora", "crates/tidegate-tower/src", API]),
    ("bench", &["verify/bench", API]),
    (
        "generated code",
        &["verify/proto", "crates/tidegate-server/proto", "crates/tidegate-server/src/wire/grpc/generated"],
    ),
    ("Rust versions", &["Cargo.lock", "Cargo.toml", LIBRARY, "crates/*/Cargo.toml"]),
];

/// Whether nothing has changed since a job last passed.
pub(crate) fn is_unchanged(job: &str) -> bool {
    digest(job).is_ok_and(|now| now.is_some() && recorded().get(job) == now.as_ref())
}

/// Records that a job has passed, if it has parts.
pub(crate) fn record(job: &str) -> Result<(), Failure> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let Some(now) = digest(job)? else { return Ok(()) };
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = recorded();
    all.retain(|name, _| PARTS.iter().any(|(known, _)| known == name));
    all.insert(job.to_owned(), now);
    let text: String = all.iter().map(|(job, digest)| format!("{digest} {job}\n")).collect();
    fs::write(root().join(RECORDED), text).map_err(|error| format!("cannot write {RECORDED}: {error}"))
}

fn recorded() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(RECORDED)).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once(' ')).map(|(digest, job)| (job.into(), digest.into())).collect()
}

/// What the parts of a job are now, committed or not; none for a job that always runs.
fn digest(job: &str) -> Result<Option<String>, Failure> {
    let Some((_, parts)) = PARTS.iter().find(|(name, _)| *name == job) else { return Ok(None) };
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"];
    let names = git(&[&list[..], parts].concat(), "")?;
    let names: String =
        names.lines().filter(|name| root().join(name).is_file()).map(|name| format!("{name}\n")).collect();
    let hashes = git(&["hash-object", "--stdin-paths"], &names)?;
    Ok(Some(git(&["hash-object", "--stdin"], &(names + &hashes))?.trim().to_owned()))
}

fn git(arguments: &[&str], input: &str) -> Result<String, Failure> {
    let run = || {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(root()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        // On a thread of its own: git answers while it still reads.
        let mut stdin = child.stdin.take();
        let input = input.to_owned();
        let writer = std::thread::spawn(move || stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(input.as_bytes())));
        let output = child.wait_with_output()?;
        drop(writer.join());
        Ok::<_, std::io::Error>(output)
    };
    let output = run().map_err(|error| format!("could not run git: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("failed: git {}", arguments.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_there() {
        for (job, parts) in PARTS {
            for part in parts.iter().filter(|part| !part.contains('*')) {
                assert!(root().join(part).exists(), "{job}: {part} is not there");
            }
        }
    }

    #[test]
    fn a_job_without_parts_is_never_unchanged() {
        assert!(!is_unchanged("format"));
    }
}
