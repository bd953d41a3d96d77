//! Every small defect in the code that decides: do the library's tests notice?
//!
//! All defects are put into one copy of the sources, each behind a number
//! ([`mutate`]); the tests are compiled once, and run with one number after
//! the other. A defect that no test notices is a failure of the tests, unless
//! [`survivors`] says why it changes nothing.

mod mutate;
mod survivors;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use mutate::{Mutant, mutate};
use survivors::{Survivor, survivors};
use tests::{Outcome, Program};

type Failure = String;

const SOURCES: &str = "crates/tidegate/src";
/// The code that decides. Locks and lines of memory are the model checker's and Miri's.
const FILES: &[&str] = &[
    "algorithm.rs",
    "decision.rs",
    "decision/refill.rs",
    "kernel.rs",
    "kernel/bucket.rs",
    "kernel/divisor.rs",
    "kernel/log.rs",
    "kernel/window.rs",
    "layer/fallback.rs",
    "limit.rs",
    "limit/constructors.rs",
    "limit/share.rs",
    "limit/words.rs",
    "limiter.rs",
    "limiter/acquire.rs",
    "limiter/ask.rs",
    "limiter/asynchronous.rs",
    "limiter/current.rs",
    "limiter/fast.rs",
    "limiter/many.rs",
    "limiter/quick.rs",
    "limiter/reserve.rs",
    "name.rs",
    "policy.rs",
    "policy/compile.rs",
    "policy/compiled.rs",
    "policy/compiled_rule.rs",
    "policy/condition.rs",
    "policy/explain.rs",
    "policy/glob.rs",
    "policy/history.rs",
    "policy/index.rs",
    "policy/key_attribute.rs",
    "policy/network.rs",
    "policy/pieces.rs",
    "policy/rule.rs",
    "policy/rule_cost.rs",
    "policy/trie.rs",
    "policy/values.rs",
    "request.rs",
    "request/amounts.rs",
    "request/attributes.rs",
    "request/key.rs",
    "request/owned.rs",
    "request/text.rs",
    "store.rs",
    "store/demand.rs",
    "store/erased.rs",
    "store/error.rs",
    "store/memory.rs",
    "store/memory/healing.rs",
    "store/memory/heap.rs",
    "store/memory/ids.rs",
    "store/memory/overflow.rs",
    "store/memory/pack.rs",
    "store/memory/plan.rs",
    "store/memory/round.rs",
    "store/memory/shelf.rs",
    "store/memory/single.rs",
    "store/memory/snapshot.rs",
    "store/memory/table.rs",
    "store/memory/table/way.rs",
    "store/memory/step.rs",
    "store/meter.rs",
    "store/meter_kernel.rs",
    "store/slice.rs",
    "time.rs",
    "warm_up.rs",
    "warm_up/kernel.rs",
];
/// The program that has most tests, a module for each file.
const ALL: &str = "all";
/// Its modules that are asked first, and those that take long and are asked by `--thorough` only.
const TESTS: &[&str] = &[
    "traces",
    "conformance",
    "differential",
    "memory_store",
    "overfull",
    "ids",
    "policy",
    "shadows",
    "matching",
    "explain",
    "change",
    "history",
    "overtaken",
    "places",
    "observers",
    "waiting",
    "words",
    "keys",
    "check_all",
    "attributes",
    "batches",
    "reserve",
    "thresholds",
    "floors",
    "former",
    "log_entries",
];
const LONG_TESTS: &[&str] = &["retry_exactness"];
/// Other programs that take long.
const LONG_PROGRAMS: &[&str] = &["key_rotation", "concurrency", "hall_of_bugs"];
/// Tests that take long among those that do not.
const LONG: &[&str] = &[
    "no_more_ids_are_kept_than_fit",
    "one_of_very_many_overrides_is_changed_in_time",
    "very_many_overrides_are_put_in_the_place_of_others_in_time",
    "nothing_is_minted_or_lost_in_a_storm_of_changes",
    "a_policy_change_during_a_check_admits_nothing_extra",
];
/// What a defect is behind, in the copy, and what of the compiler that asks for.
const SWITCH: &str = include_str!("switch.rs.in");
const SWITCH_FEATURES: &str = "#![feature(core_intrinsics, const_eval_select)]\n";
const USAGE: &str = "[--missed] [--thorough] [FILE..], parts of paths below crates/tidegate/src";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\n{failure}");
            ExitCode::FAILURE
        }
    }
}

/// What is to be done.
struct Order {
    words: Vec<String>,
    /// Only those that were missed the last time.
    only_missed: bool,
    thorough: bool,
}

impl Order {
    /// Those that are named; the others are left as they are.
    fn files(&self) -> Vec<&'static str> {
        let is_named =
            |file: &&str| self.words.is_empty() || self.words.iter().any(|word| file.contains(word.as_str()));
        FILES.iter().copied().filter(is_named).collect()
    }
}

fn order() -> Result<Order, Failure> {
    let mut order = Order { words: Vec::new(), only_missed: false, thorough: false };
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--missed" => order.only_missed = true,
            "--thorough" => order.thorough = true,
            word if word.starts_with('-') => return Err(format!("{word} is not understood: {USAGE}")),
            word => order.words.push(word.to_owned()),
        }
    }
    Ok(order)
}

fn run() -> Result<(), Failure> {
    let order = order()?;
    let began = Instant::now();
    let place = Place::new()?;
    let files = order.files();
    place.copy_sources(&files)?;
    let (built, unviable) = place.put_in_all(&files)?;
    println!("{} mutants, {} more that do not compile ({} s)", built.len(), unviable.len(), began.elapsed().as_secs());
    let known = place.known_missed();
    let is_chosen = |mutant: &&Mutant| !order.only_missed || known.contains(&identity(mutant));
    let chosen: Vec<&Mutant> = built.iter().filter(is_chosen).collect();
    let mut programs = place.programs(order.thorough)?;
    println!("built ({} s)", began.elapsed().as_secs());
    for program in &mut programs {
        program.record(&place.folder)?;
        println!("{:>6} ms, {:>5} places  {}", program.takes.as_millis(), program.seen.len(), program.name);
    }
    programs.sort_by_key(|program| program.takes);
    let (listed, unlisted): (Vec<&Mutant>, Vec<&Mutant>) =
        chosen.iter().partition(|mutant| !order.thorough && is_listed(mutant));
    let mut fates = fates(&unlisted, &programs, began);
    fates.extend(listed.into_iter().map(|mutant| (mutant.clone(), Fate::Listed)));
    place.judge(&fates, &order, unviable.len())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Caught,
    TimedOut,
    Missed,
    /// No test even comes by.
    Unseen,
    /// It is known to be none, and no test was asked.
    Listed,
}

fn fates(mutants: &[&Mutant], programs: &[Program], began: Instant) -> Vec<(Mutant, Fate)> {
    let (next, fates) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fate = first_to_notice(programs, mutant);
            report(mutant, &fate, began);
            fates.lock().expect("not poisoned").push(((*mutant).clone(), fate));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    fates.into_inner().expect("not poisoned")
}

fn first_to_notice(programs: &[Program], mutant: &Mutant) -> Fate {
    let mut fate = Fate::Unseen;
    for program in programs.iter().filter(|program| program.seen.contains(&mutant.place)) {
        match program.run(mutant.id) {
            Outcome::Passed => fate = Fate::Missed,
            Outcome::Failed(_) => return Fate::Caught,
            Outcome::TimedOut => return Fate::TimedOut,
        }
    }
    fate
}

fn report(mutant: &Mutant, fate: &Fate, began: Instant) {
    match fate {
        Fate::Caught | Fate::Listed => {}
        Fate::TimedOut | Fate::Missed | Fate::Unseen => {
            println!("{:>5} s {fate:?} {}: {mutant}", began.elapsed().as_secs(), mutant.id);
        }
    }
}

fn identity(mutant: &Mutant) -> String {
    let Mutant { file, function, from, to, .. } = mutant;
    format!("{file}\t{function}\t{from}\t{to}")
}

fn is(mutant: &Mutant, survivor: &Survivor) -> bool {
    let Survivor { file, function, from, to, .. } = survivor;
    (mutant.file.as_str(), mutant.function.as_str()) == (*file, *function)
        && mutant.from == *from
        && to.contains(&mutant.to.as_str())
}

fn is_listed(mutant: &Mutant) -> bool {
    survivors().any(|survivor| is(mutant, survivor))
}

/// Removes the files below a folder that are not to be kept.
fn remove_files(folder: &Path, is_kept: &dyn Fn(&Path) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_files(&path, is_kept);
        } else if !is_kept(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Where sources are copied to and built.
struct Place {
    root: PathBuf,
    folder: PathBuf,
    sources: PathBuf,
}

impl Place {
    fn new() -> Result<Place, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("this is nowhere")?.to_path_buf();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("mutants");
        Ok(Place { root, sources: folder.join("sources"), folder })
    }

    /// Copies what git knows of, and what it does not ignore; what is the same stays
    /// untouched, and need not be compiled again. What is there no more goes.
    fn copy_sources(&self, mutated: &[&str]) -> Result<(), Failure> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .map_err(|error| format!("git could not be started: {error}"))?;
        let is_there = |path: &Path| path.strip_prefix(&self.sources).is_ok_and(|file| self.root.join(file).is_file());
        remove_files(&self.sources, &|path| path.file_name().is_none_or(|name| name == "Cargo.lock") || is_there(path));
        for file in String::from_utf8_lossy(&listed.stdout).lines().filter(|file| !file.starts_with(SOURCES)) {
            if let Ok(text) = fs::read(self.root.join(file)) {
                write(&self.sources.join(file), &text)?;
            }
        }
        for file in String::from_utf8_lossy(&listed.stdout).lines().filter(|file| file.starts_with(SOURCES)) {
            let is_mutated = mutated.iter().any(|known| Path::new(file) == Path::new(SOURCES).join(known));
            if !is_mutated && !file.ends_with("src/lib.rs") {
                let text = fs::read(self.root.join(file)).map_err(|error| format!("{file}: {error}"))?;
                write(&self.sources.join(file), &text)?;
            }
        }
        let lib = Path::new(SOURCES).join("lib.rs");
        let text = fs::read_to_string(self.root.join(&lib)).map_err(|error| error.to_string())?;
        write(&self.sources.join(&lib), (SWITCH_FEATURES.to_owned() + &text + SWITCH).as_bytes())
    }

    /// Puts all defects in, and takes those out again that do not compile.
    fn put_in_all(&self, files: &[&'static str]) -> Result<(Vec<Mutant>, Vec<Mutant>), Failure> {
        let mut without: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        let mut whole: Vec<Mutant> = Vec::new();
        for round in 0..12 {
            let mut mutants: Vec<Mutant> = Vec::new();
            for file in files {
                let path = Path::new(SOURCES).join(file);
                let text = fs::read_to_string(self.root.join(&path)).map_err(|error| format!("{file}: {error}"))?;
                let next = mutants.last().map_or(1, |mutant| mutant.id + 1);
                let mutated = mutate(file, &text, without.entry(file).or_default(), next);
                let mutated = mutated.map_err(|error| format!("{file} is no Rust: {error}"))?;
                write(&self.sources.join(&path), mutated.text.as_bytes())?;
                mutants.extend(mutated.mutants);
            }
            if round == 0 {
                whole.clone_from(&mutants);
            }
            let mut checked = self.cargo("check --package tidegate --lib --message-format short");
            let checked = checked.output().map_err(|error| format!("cargo could not be started: {error}"))?;
            if checked.status.success() {
                let kept: BTreeSet<(&str, usize, &str, &str)> = mutants
                    .iter()
                    .map(|mutant| (mutant.file.as_str(), mutant.line, mutant.from.as_str(), mutant.to.as_str()))
                    .collect();
                whole.retain(|mutant| {
                    !kept.contains(&(mutant.file.as_str(), mutant.line, mutant.from.as_str(), mutant.to.as_str()))
                });
                return Ok((mutants, whole));
            }
            let printed = String::from_utf8_lossy(&checked.stderr).into_owned();
            let mut found = false;
            for line in printed.lines().filter(|line| line.contains(": error")) {
                let mut words = line.split(':');
                let (path, number) =
                    (words.next().unwrap_or_default(), words.next().and_then(|word| word.parse().ok()));
                let known = files.iter().find(|file| path.ends_with(&format!("{SOURCES}/{file}")));
                if let (Some(file), Some(number)) = (known, number) {
                    println!("left out: {line}");
                    found |= without.entry(file).or_default().insert(number);
                }
            }
            if !found {
                return Err(format!("the copy does not compile:\n{printed}"));
            }
        }
        Err("the copy does not compile, whatever is left out".to_owned())
    }

    fn cargo(&self, arguments: &str) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments.split_whitespace()).current_dir(&self.sources);
        command.env("CARGO_TARGET_DIR", self.folder.join("target")).env("RUSTFLAGS", "-Awarnings");
        command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "1").env("CARGO_PROFILE_TEST_DEBUG", "0");
        // A stable compiler has what the switch asks for, and allows it with this variable.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("RUSTC_BOOTSTRAP", "tidegate");
        command
    }

    /// The test programs, with all defects in them.
    fn programs(&self, thorough: bool) -> Result<Vec<Program>, Failure> {
        let none = &[][..];
        let (long, programs, skipped) = if thorough { (LONG_TESTS, LONG_PROGRAMS, none) } else { (none, none, LONG) };
        let named: String = programs.iter().map(|name| format!(" --test {name}")).collect();
        let mut build =
            self.cargo(&format!("test --profile checked --package tidegate --lib --test {ALL}{named} --no-run --message-format json"));
        let output = build.output().map_err(|error| format!("cargo could not be started: {error}"))?;
        if !output.status.success() {
            return Err(format!("the tests do not compile:\n{}", String::from_utf8_lossy(&output.stderr)));
        }
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = |message: &str, before: &str| -> Option<String> {
            let start = message.find(before)? + before.len();
            message[start..].split('"').next().map(str::to_owned)
        };
        let program = |message: &str| {
            let path = text(message, "\"executable\":\"")?;
            Some((text(&message[message.find("\"target\":{")?..], "\"name\":\"")?, path))
        };
        let mut programs = Vec::new();
        for (name, path) in printed.lines().filter_map(program) {
            if name == ALL {
                let modules = TESTS.iter().chain(long);
                programs
                    .extend(modules.map(|module| Program::new(module, &path, Some(format!("{module}::")), skipped)));
            } else {
                programs.push(Program::new(&name, &path, None, skipped));
            }
        }
        Ok(programs)
    }

    fn known_missed(&self) -> BTreeSet<String> {
        fs::read_to_string(self.folder.join("missed")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Says what has become of them all, and whether that is well.
    fn judge(&self, fates: &[(Mutant, Fate)], order: &Order, unviable: usize) -> Result<(), Failure> {
        let count = |wanted: Fate| fates.iter().filter(|(_, fate)| *fate == wanted).count();
        let has_survived = |fate: Fate| match fate {
            Fate::Missed | Fate::Unseen | Fate::Listed => true,
            Fate::Caught | Fate::TimedOut => false,
        };
        let survived = fates.iter().filter(|(_, fate)| has_survived(*fate)).map(|(mutant, _)| mutant);
        let (listed, open): (Vec<&Mutant>, Vec<&Mutant>) = survived.partition(|mutant| is_listed(mutant));
        let known: String = open.iter().map(|mutant| identity(mutant) + "\n").collect();
        write(&self.folder.join("missed"), known.as_bytes())?;
        println!();
        for file in FILES {
            let of = |mutants: &[&Mutant]| mutants.iter().filter(|mutant| mutant.file == *file).count();
            let all = fates.iter().filter(|(mutant, _)| mutant.file == *file).count();
            let (listed, open) = (of(&listed), of(&open));
            if all > 0 {
                println!(
                    "{file:<28} {all:>4}: {:>4} noticed, {listed:>3} listed as none, {open:>3} missed",
                    all - listed - open
                );
            }
        }
        println!(
            "\n{} mutants: {} caught, {} timed out, {} listed as none, {} missed, {unviable} do not compile",
            fates.len(),
            count(Fate::Caught),
            count(Fate::TimedOut),
            listed.len(),
            open.len(),
        );
        let is_judged = |file: &str| !order.only_missed && fates.iter().any(|(mutant, _)| mutant.file == file);
        for survivor in survivors().filter(|survivor| is_judged(survivor.file)) {
            let Survivor { file, function, from, to, why } = survivor;
            for to in *to {
                let is_it = |mutant: &&&Mutant| is(mutant, survivor) && mutant.to == **to;
                // One that reads the same elsewhere in the function may well be a defect.
                match listed.iter().filter(is_it).count() {
                    1 => {}
                    many => println!("{many} instead of one ({why}): {file}, {function}:\n  - {from}\n  + {to}"),
                }
            }
        }
        match open.len() {
            0 => Ok(()),
            many => Err(format!("{many} that no test notices, and no reason why")),
        }
    }
}

/// Writes a file unless it is the same.
fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    if fs::read(path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text)).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
