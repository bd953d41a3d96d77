//! Planted mistakes: does the suite catch them?
//!
//! Each is a small change to a copy of the sources, of the kind that limiters
//! have really had. A mistake that no test notices is a failure of the tests.

use std::fs;
use std::path::Path;

use crate::run::{Failure, Step, root};

struct Defect {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const DEFECTS: &[Defect] = &[
    Defect {
        name: "one too few: `<` for `<=` in the bucket",
        file: "kernel/bucket.rs",
        from: "if filled > self.full {",
        to: "if filled >= self.full {",
    },
    Defect {
        name: "one too many in the fixed window",
        file: "kernel/window.rs",
        from: "(view.current + cost <= self.count, view.start + self.period)",
        to: "(view.current + cost <= self.count + 1, view.start + self.period)",
    },
    Defect {
        name: "waits rounded down: floor for ceil",
        file: "kernel/bucket.rs",
        from: "            // Less than one tick's drain is left then, and too much.\n            state.at + 1",
        to: "            state.at",
    },
    Defect {
        name: "the sliding counter's wait rounded the wrong way",
        file: "kernel/window.rs",
        from: "next - room / view.previous",
        to: "next - room.div_ceil(view.previous)",
    },
    Defect {
        name: "the wrong previous window",
        file: "kernel/window.rs",
        from: "Style::Sliding if age < 2 * self.period => current,",
        to: "Style::Sliding if age < 2 * self.period => previous,",
    },
    Defect {
        name: "an entry of the log lives a microsecond too short",
        file: "kernel/log.rs",
        from: "state.entries.partition_point(|entry| entry.at + self.period <= time)",
        to: "state.entries.partition_point(|entry| entry.at + self.period <= time + 1)",
    },
    Defect {
        name: "requests of one instant counted once",
        file: "kernel/log.rs",
        from: "Some(newest) if newest.at == at => newest.cost += cost,",
        to: "Some(newest) if newest.at == at => newest.cost = newest.cost.max(cost),",
    },
    Defect {
        name: "a clock that steps back grants: the log forgets its own time",
        file: "kernel/log.rs",
        from: "now.get().max(state.newest())",
        to: "now.get()",
    },
    Defect {
        name: "a clock that steps back grants: the window starts over",
        file: "kernel/window.rs",
        from: "let age = tick.saturating_sub(start);",
        to: "let age = if tick < start { 2 * self.period } else { tick - start };",
    },
    Defect {
        name: "a state from the future is never healed",
        file: "kernel/bucket.rs",
        from: "(state.at > tick + self.horizon + grace).then_some(",
        to: "(state.at > tick + self.horizon + grace && false).then_some(",
    },
    Defect {
        name: "a refused check is charged",
        file: "store/memory/single.rs",
        from: "    if filled.is_some() {\n        Table::<1>::write(line, slot, bucket.pack(&state));\n    } else if",
        to: "    state.at += u64::from(filled.is_none());\n    Table::<1>::write(line, slot, bucket.pack(&state));\n    if filled.is_some() {\n    } else if",
    },
    Defect {
        name: "several limits: the first is charged although the second refuses",
        file: "store/memory/several.rs",
        from: "let all_pass = !turns.iter().any(refuses);",
        to: "let all_pass = !refuses(&turns[0]);",
    },
    Defect {
        name: "a slot is given away a microsecond before its state is zero",
        file: "store/memory/table.rs",
        from: "        let free = now.get() << FRACTION_BITS;\n        let seats",
        to: "        let free = (now.get() + 1_000_000) << FRACTION_BITS;\n        let seats",
    },
    Defect {
        name: "the store is full: the oldest is evicted, and so reset",
        file: "store/memory/table.rs",
        from: "Some((_, line, seat, slot)) if self.overflow == Overflow::EvictOldest => {",
        to: "Some((_, line, seat, slot)) if self.overflow != Overflow::Refuse => {",
    },
    Defect {
        name: "a newcomer who finds room begins anew",
        file: "store/memory/single.rs",
        from: "Some(shared) if shared.matters(at) => {",
        to: "Some(shared) if false && shared.matters(at) => {",
    },
    Defect {
        name: "the second line is not searched",
        file: "store/memory/table.rs",
        from: "Self::find(away, home.tag | AWAY).map(|slot| (away, slot))",
        to: "Self::find(away, home.tag | AWAY).map(|slot| (away, slot)).filter(|_| false)",
    },
    Defect {
        name: "composite keys joined without telling them from single ones",
        file: "store/memory.rs",
        from: "check.meter().identity() ^ u64::from(check.key().is_composite())",
        to: "check.meter().identity()",
    },
    Defect {
        name: "the same key under two rules is one",
        file: "store/meter.rs",
        from: "    hash.write(name.as_str().as_bytes());\n",
        to: "",
    },
    Defect {
        name: "a waiter who leaves wakes nobody",
        file: "limiter/acquire.rs",
        from: "if let Some(next) = next {",
        to: "if let Some(next) = next.filter(|_| false) {",
    },
    Defect {
        name: "whoever polls first is admitted first",
        file: "limiter/acquire.rs",
        from: "if queue.front().is_none_or(|first| first.ticket == self.number) {",
        to: "if true || queue.front().is_none_or(|first| first.ticket == self.number) {",
    },
    Defect {
        name: "a refund gives back more than its cost",
        file: "kernel/window.rs",
        from: "let from_previous = (cost - from_current).min(previous);",
        to: "let from_previous = previous;",
    },
    Defect {
        name: "an observer that panics is felt by the caller",
        file: "observe.rs",
        from: "let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));",
        to: "let _ = AssertUnwindSafe(()); let _ = catch_unwind(|| ()); observer.observe(event);",
    },
];

pub(crate) fn all() -> Result<(), Failure> {
    let copy = root().join("target/defects/sources");
    copy_sources(&copy)?;
    tests(&copy)?.0.then_some(()).ok_or("the tests fail without any planted defect: mend that first")?;
    let mut missed = Vec::new();
    for defect in DEFECTS {
        let file = copy.join("crates/tidegate/src").join(defect.file);
        let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        if text.matches(defect.from).count() != 1 {
            return Err(format!("{}: its place in {} is not there once: update the list", defect.name, defect.file));
        }
        write(&file, &text.replace(defect.from, defect.to))?;
        let (passed, printed) = tests(&copy)?;
        write(&file, &text)?;
        let caught_by = printed.lines().find(|line| line.starts_with("test ") && line.ends_with("FAILED"));
        match (passed, caught_by) {
            (false, Some(test)) => {
                println!("caught   {}\n         by {}", defect.name, test.trim_end_matches(" ... FAILED"));
            }
            (false, None) => println!("caught   {}\n         by {}", defect.name, last_words(&printed)),
            (true, _) => {
                println!("MISSED   {}", defect.name);
                missed.push(defect.name);
            }
        }
    }
    println!("\n{} planted, {} caught", DEFECTS.len(), DEFECTS.len() - missed.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join("; "))) }
}

fn tests(copy: &Path) -> Result<(bool, String), Failure> {
    let target = root().join("target/defects/target");
    Step::cargo("test --package tidegate --lib --tests")
        .within(copy)
        .with("CARGO_TARGET_DIR", &target.display().to_string())
        .with("TIDEGATE_DECISIONS", "300000")
        .ask()
}

/// What a failed run said last: a defect may also be one that does not compile.
fn last_words(printed: &str) -> &str {
    printed.lines().rev().find(|line| line.starts_with("error")).unwrap_or("the run ended")
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Copies what git knows of, and what it does not ignore.
fn copy_sources(copy: &Path) -> Result<(), Failure> {
    let (listed, files) = Step::new("git", &["ls-files", "--cached", "--others", "--exclude-standard"]).ask()?;
    if !listed {
        return Err(format!("git could not list the sources: {files}"));
    }
    let _ = fs::remove_dir_all(copy);
    for file in files.lines() {
        let (from, to) = (root().join(file), copy.join(file));
        let made = to.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| if from.is_file() { fs::copy(&from, &to).map(drop) } else { Ok(()) })
            .map_err(|error| format!("cannot copy {file}: {error}"))?;
    }
    Ok(())
}
