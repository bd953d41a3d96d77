//! The recorded traces: the memory store and the oracle answer every one of
//! them, to the microsecond.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate::{Limit, ManualClock, MemoryStore};
use tidegate_testkit::{OracleStore, RECORDED, Recorded, Trace, trace};

fn read(recorded: &Recorded) -> Trace {
    recorded.trace().unwrap_or_else(|error| panic!("{}.trace: {error}", recorded.name))
}

#[test]
fn the_memory_store_answers_every_recorded_trace() {
    for recorded in RECORDED {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
        if let Err(mismatch) = read(recorded).replay_on(store, &clock) {
            panic!("{}.trace: {mismatch}", recorded.name);
        }
    }
}

#[test]
fn the_oracle_answers_every_recorded_trace() {
    for recorded in RECORDED {
        let clock = ManualClock::default();
        if let Err(mismatch) = read(recorded).replay_on(OracleStore::new(clock.clone()), &clock) {
            panic!("{}.trace: {mismatch}", recorded.name);
        }
    }
}

#[test]
fn a_printed_trace_parses_back_to_the_same_trace() {
    for recorded in RECORDED {
        let trace = read(recorded);
        let printed = trace.to_string();
        assert_eq!(Trace::parse(&printed).as_ref(), Ok(&trace), "{}.trace:\n{printed}", recorded.name);
    }
}

#[test]
fn every_trace_file_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-testkit/traces");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the traces are in the workspace")
        .map(|file| file.expect("a folder that can be read").path())
        .map(|path| path.file_stem().expect("files have names").to_string_lossy().into_owned())
        .collect();
    let listed: BTreeSet<String> = RECORDED.iter().map(|recorded| recorded.name.to_owned()).collect();
    assert_eq!(files, listed);
}

#[test]
fn an_inline_trace_is_a_test() {
    trace(
        Limit::per_second(2),
        "
        0ms   alice 1  allow 1
        0ms   alice 1  allow 0
        0ms   alice 1  wait 500ms
        499ms alice 1  wait 1ms
        500ms alice 1  allow 0
        ",
    );
}

#[test]
#[should_panic(
    expected = "line 3: 0s alice 1 x2 -> allow 0\n  expected allow 0\n  got      wait 1s left 0 reset 1s (2 of 2)"
)]
fn a_wrong_answer_is_told_with_its_line() {
    trace(
        Limit::per_second(1),
        "
        # one is allowed, not two
        0s alice 1 x2 -> allow 0
        ",
    );
}
