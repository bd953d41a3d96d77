//! Planted defects: does the suite catch them?
//!
//! Each is a small change to a copy of the sources, of the kind that limiters
//! have really had. A defect that no test notices is a failure of the tests.

mod script;

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
        file: "crates/tidegate/src/kernel/bucket.rs",
        from: "if filled > self.admits {",
        to: "if filled >= self.admits {",
    },
    Defect {
        name: "one too many in the fixed window",
        file: "crates/tidegate/src/kernel/window.rs",
        from: "=> view.current + cost <= admits,",
        to: "=> view.current + cost <= admits + 1,",
    },
    Defect {
        name: "waits rounded down: floor for ceil",
        file: "crates/tidegate/src/kernel/bucket.rs",
        from: "            // Less than one tick's drain is left then, and too much.\n            state.at + 1",
        to: "            state.at",
    },
    Defect {
        name: "the sliding counter's wait rounded the wrong way",
        file: "crates/tidegate/src/kernel/window.rs",
        from: "(units * self.period - 1) / previous",
        to: "units * self.period / previous",
    },
    Defect {
        name: "the sliding counter's previous window rounded up",
        file: "crates/tidegate/src/kernel/window.rs",
        from: "self.weight(view, cost) < (admits + 1) * self.period",
        to: "self.weight(view, cost) <= admits * self.period",
    },
    Defect {
        name: "the wrong previous window",
        file: "crates/tidegate/src/kernel/window.rs",
        from: "Style::Sliding if age < 2 * self.period => current,",
        to: "Style::Sliding if age < 2 * self.period => previous,",
    },
    Defect {
        name: "an entry of the log lives a microsecond too short",
        file: "crates/tidegate/src/kernel/log.rs",
        from: "let is_over = |entry: &Entry| entry.at + self.period <= time;",
        to: "let is_over = |entry: &Entry| entry.at + self.period <= time + 1;",
    },
    Defect {
        name: "requests of one instant counted once",
        file: "crates/tidegate/src/kernel/log.rs",
        from: "Some(newest) if newest.at == at => newest.total = total,",
        to: "Some(newest) if newest.at == at => {}",
    },
    Defect {
        name: "a clock that steps back grants: the log forgets its own time",
        file: "crates/tidegate/src/kernel/log.rs",
        from: "now.get().max(state.newest())",
        to: "now.get()",
    },
    Defect {
        name: "a clock that steps back grants: the window starts over",
        file: "crates/tidegate/src/kernel/window.rs",
        from: "let age = tick.saturating_sub(start);",
        to: "let age = if tick < start { 2 * self.period } else { tick - start };",
    },
    Defect {
        name: "a state from the future is never healed",
        file: "crates/tidegate/src/kernel/bucket.rs",
        from: "(state.at > tick + self.reach() + grace).then_some(",
        to: "(state.at > tick + self.reach() + grace && false).then_some(",
    },
    Defect {
        name: "a refused check is charged",
        file: "crates/tidegate/src/store/memory/plan.rs",
        from: "        if filled.is_some() {\n            Table::<1>::write(&line, slot, bucket.pack(&state));\n        }",
        to: "        let at = state.at + u64::from(filled.is_none());\n        Table::<1>::write(&line, slot, bucket.pack(&BucketState { at, ..state }));",
    },
    Defect {
        name: "several limits: the first is charged although the second refuses",
        file: "crates/tidegate/src/store/slice.rs",
        from: "let is_refused = cells.iter().any(Cell::refuses);",
        to: "let is_refused = cells.iter().take(1).any(Cell::refuses);",
    },
    Defect {
        name: "a slot is given away a microsecond before its state is zero",
        file: "crates/tidegate/src/store/memory/table.rs",
        from: "        let free = now.get() << FRACTION_BITS;\n        let places",
        to: "        let free = (now.get() + 1_000_000) << FRACTION_BITS;\n        let places",
    },
    Defect {
        name: "the store is full: the oldest is evicted, and so reset",
        file: "crates/tidegate/src/store/memory/table.rs",
        from: "if self.overflow != Overflow::EvictOldest {",
        to: "if self.overflow == Overflow::Refuse {",
    },
    Defect {
        name: "a newcomer who finds room begins anew",
        file: "crates/tidegate/src/store/memory/overflow.rs",
        from: "used.map(|entry| kernel.copy(&entry.state, now)).unwrap_or_default()",
        to: "used.filter(|_| false).map(|entry| kernel.copy(&entry.state, now)).unwrap_or_default()",
    },
    Defect {
        name: "the second line is not searched",
        file: "crates/tidegate/src/store/memory/table.rs",
        from: "Self::find(&away_line, home.tag | AWAY)",
        to: "Self::find(&away_line, home.tag | AWAY).filter(|_| false)",
    },
    Defect {
        name: "composite keys joined without telling them from single ones",
        file: "crates/tidegate/src/store/memory.rs",
        from: "meter.identity() ^ u64::from(key.is_composite())",
        to: "meter.identity()",
    },
    Defect {
        name: "the same key under two rules is one",
        file: "crates/tidegate/src/store/meter.rs",
        from: "    hash.write(name.as_str().as_bytes());\n",
        to: "",
    },
    Defect {
        name: "a cancelled waiter wakes no other",
        file: "crates/tidegate/src/limiter/acquire.rs",
        from: "if let Some(next) = next {",
        to: "if let Some(next) = next.filter(|_| false) {",
    },
    Defect {
        name: "the first waiter to poll is admitted first",
        file: "crates/tidegate/src/limiter/acquire.rs",
        from: "if queue.front().is_none_or(|first| first.ticket == self.number) {",
        to: "if true || queue.front().is_none_or(|first| first.ticket == self.number) {",
    },
    Defect {
        name: "a refund gives back more than its cost",
        file: "crates/tidegate/src/kernel/window.rs",
        from: "let from_previous = (cost - from_current).min(previous);",
        to: "let from_previous = previous;",
    },
    Defect {
        name: "an observer that panics is felt by the caller",
        file: "crates/tidegate/src/observe.rs",
        from: "let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));",
        to: "let _ = AssertUnwindSafe(()); let _ = catch_unwind(|| ()); observer.observe(event);",
    },
];

/// Plants them one by one; all, or those in files whose path contains a word.
pub(crate) fn all(words: &[String]) -> Result<(), Failure> {
    let word = words.first().map_or("", String::as_str);
    let chosen = |defect: &&Defect| defect.file.contains(word);
    let defects: Vec<&Defect> = DEFECTS.iter().chain(script::DEFECTS).filter(chosen).collect();
    let copy = root().join("target/defects/sources");
    copy_sources(&copy)?;
    for is_scripted in [false, true] {
        if defects.iter().any(|defect| defect.is_scripted() == is_scripted) {
            let (passed, printed) =
                if is_scripted { script_tests(&copy).ask()? } else { library_tests(&copy).ask()? };
            let failed = || format!("the tests fail without any planted defect: mend that first\n{printed}");
            passed.then_some(()).ok_or_else(failed)?;
        }
    }
    let mut missed = Vec::new();
    for defect in &defects {
        let (passed, printed) = defect.plant(&copy)?;
        if printed.contains("error: could not compile") {
            return Err(format!("{}: it does not compile: update the list\n{printed}", defect.name));
        }
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
    println!("\n{} planted, {} caught", defects.len(), defects.len() - missed.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join("; "))) }
}

impl Defect {
    /// Runs the tests with the defect in place.
    fn plant(&self, copy: &Path) -> Result<(bool, String), Failure> {
        let file = copy.join(self.file);
        let text = self.place_in(copy)?;
        if self.is_scripted() {
            // The tests put it in place themselves: nothing is compiled again.
            let step = script_tests(copy).with("TIDEGATE_PLANTED_FROM", self.from);
            return step.with("TIDEGATE_PLANTED_TO", self.to).ask();
        }
        write(&file, &text.replace(self.from, self.to))?;
        let outcome = library_tests(copy).ask();
        write(&file, &text)?;
        outcome
    }

    /// The text of its file in these sources, in which its place is there once.
    fn place_in(&self, sources: &Path) -> Result<String, Failure> {
        let file = sources.join(self.file);
        let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        if text.matches(self.from).count() != 1 {
            return Err(format!("{}: its place in {} is not there once: update the list", self.name, self.file));
        }
        Ok(text)
    }

    fn is_scripted(&self) -> bool {
        self.file.starts_with(script::FOLDER)
    }
}

fn library_tests(copy: &Path) -> Step {
    tests(copy, "--package tidegate --lib --tests").with("TIDEGATE_DECISIONS", "300000")
}

fn script_tests(copy: &Path) -> Step {
    tests(copy, "--package tidegate-simulation --lib embedded").with("TIDEGATE_DECISIONS", "30000")
}

fn tests(copy: &Path, which: &str) -> Step {
    let target = root().join("target/defects/target");
    Step::cargo(&format!("test --profile checked {which}"))
        .within(copy)
        .with("CARGO_TARGET_DIR", &target.display().to_string())
}

/// What a failed run said last: a defect may also end it.
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

#[cfg(test)]
mod tests {
    use super::{DEFECTS, root, script};

    #[test]
    fn every_defect_has_its_place() {
        for defect in DEFECTS.iter().chain(script::DEFECTS) {
            if let Err(why) = defect.place_in(&root()) {
                panic!("{why}");
            }
            assert_ne!(defect.from, defect.to, "{}", defect.name);
        }
    }
}
