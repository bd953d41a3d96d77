//! Every target on its seeds, and on seeds that were spoilt: a short run
//! without a fuzzer. `TIDEGATE_CASES` sets how many for each; 3,000 unless set.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use tidegate_fuzz::{TARGETS, Target};
use tidegate_testkit::Random;

/// No input is made longer.
const MAX_INPUT_BYTES: usize = 4_096;

fn cases() -> u64 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3_000)
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a file")).collect()
}

/// Changes an input as fuzzers do: bytes, pieces, and pieces of others.
fn spoil(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.within(0..=input.len() as u64) as usize;
    let end = (at + random.magnitude(1..=64) as usize).min(input.len());
    match random.within(0..=5) {
        0 if at < end => input[at] ^= 1 << random.within(0..=7),
        1 if at < end => input[at] = random.number() as u8,
        2 => drop(input.drain(at..end)),
        3 => {
            let copy = input[at..end].to_vec();
            drop(input.splice(at..at, copy));
        }
        4 => input.insert(at, random.choose(b"\0\n\t \"'#&*-:,=[]{}|<>!%?0129_/.")),
        _ => {
            let other = &seeds[random.within(0..=seeds.len() as u64 - 1) as usize];
            let from = random.within(0..=other.len() as u64) as usize;
            let to = (from + random.magnitude(1..=256) as usize).min(other.len());
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
    }
    input.truncate(MAX_INPUT_BYTES);
}

fn replay((name, run): Target) {
    let seeds = seeds(name);
    assert!(seeds.len() >= 3, "{name} has seeds");
    let attempt = |input: &[u8]| {
        let outcome = catch_unwind(|| run(input));
        assert!(outcome.is_ok(), "{name} fails on {:?}", String::from_utf8_lossy(input));
    };
    seeds.iter().for_each(|seed| attempt(seed));
    let mut random = Random::new(11);
    for _ in 0..cases() {
        let mut input = seeds[random.within(0..=seeds.len() as u64 - 1) as usize].clone();
        for _ in 0..random.magnitude(1..=16) {
            spoil(&mut input, &seeds, &mut random);
        }
        attempt(&input);
    }
}

#[test]
fn every_target_keeps_its_promises() {
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(|| replay(*target));
        }
    });
}

#[test]
fn every_target_is_known_to_the_fuzzer() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzzer");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzzer has a manifest");
    for (name, _) in TARGETS {
        let call = format!("tidegate_fuzz::{name}(");
        let target = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap_or_default();
        assert!(target.contains(&call) && manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
