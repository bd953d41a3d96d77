//! The sample that the documents show is what the generator writes, and what
//! they say of it is what a replay finds.

#[allow(dead_code)]
#[path = "../../examples/generate.rs"]
mod generate;

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_replay::{Replay, Report, Source};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name)
}

fn run() -> Report {
    let policy = |name: &str| tidegate_config::load(sample(name)).unwrap_or_else(|report| panic!("{report}"));
    let replay = Replay::new(policy("new.toml")).against(policy("old.toml")).at_most("1%".parse().expect("a share"));
    let log = fs::File::open(sample("access.log")).expect("there is a sample");
    replay.run([Source::stream("access.log", log)]).expect("it can be read")
}

#[test]
fn the_sample_is_what_the_generator_writes() {
    let mut log = Vec::new();
    generate::generate(2_000, &mut log).expect("a vector takes all");
    let kept = fs::read(sample("access.log")).unwrap_or_default();
    assert!(log == kept, "write it again: cargo run -p tidegate-replay --example generate > samples/access.log");
}

#[test]
fn the_documents_show_what_a_replay_finds_today() {
    let report = run().to_string();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(root.join("docs/book/src/reference/replay.md")).unwrap_or_default();
    assert!(
        guide.contains(&format!("```text\n{report}```\n")),
        "docs/book/src/reference/replay.md should show this:\n{report}"
    );
}
