//! PROMISES.md is true of the tree: every promise has witnesses, and every
//! witness is there.

use std::fs;
use std::path::{Path, PathBuf};

/// As many as there are.
const PROMISES: usize = 25;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A test, a lemma or a model: the file and the name of a function in it.
#[derive(Debug)]
struct Witness<'p> {
    file: &'p str,
    name: &'p str,
}

/// The witnesses that a text names: whatever is written as `file::name`.
fn witnesses(text: &str) -> Vec<Witness<'_>> {
    let words = text.split('`').skip(1).step_by(2);
    words
        .filter_map(|word| word.split_once("::"))
        .filter(|(file, _)| file.contains('/'))
        .map(|(file, name)| Witness { file, name })
        .collect()
}

impl Witness<'_> {
    /// Why it is none, if it is none.
    fn missing(&self) -> Option<String> {
        let Witness { file, name } = self;
        let Ok(source) = fs::read_to_string(root().join(file)) else { return Some(format!("{file} is not there")) };
        let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
        let is_named = |line: &&str, keyword: &str| {
            let rest = line.split_once(keyword).map(|(_, rest)| rest);
            rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with(['(', '<']))
        };
        let keyword = if file.ends_with(".py") { "def " } else { "fn " };
        let Some(line) = lines.iter().position(|line| is_named(line, keyword)) else {
            return Some(format!("{file} has no {name}"));
        };
        // A test is marked as one, and a lemma, too. The suite for stores is made of public functions.
        let marks = ["#[test]", "#[tokio::test", "@lemma("];
        let mut above =
            lines[..line].iter().rev().take_while(|line| line.starts_with(['#', '@', '/']) || line.is_empty());
        let is_marked = above.any(|line| marks.iter().any(|mark| line.starts_with(mark)));
        let of_the_suite = file.contains("/conformance/") && in_the_suite(name);
        (!is_marked && !of_the_suite).then(|| format!("{name} in {file} is no test, and no lemma"))
    }
}

/// Whether the macro makes a test of it for every store.
fn in_the_suite(name: &str) -> bool {
    let suite = fs::read_to_string(root().join("crates/tidegate-testkit/src/conformance.rs")).expect("the suite");
    suite.lines().any(|line| line.trim() == name)
}

fn page() -> String {
    fs::read_to_string(root().join("PROMISES.md")).expect("the page of promises")
}

/// The promises: number, title, text.
fn promises(page: &str) -> Vec<(usize, &str, &str)> {
    let sections = page.split("\n## P").skip(1);
    let promise = |section: &'_ str| -> Option<(usize, usize)> {
        let (number, rest) = section.split_once(". ")?;
        Some((number.parse().ok()?, section.len() - rest.len()))
    };
    sections
        .map(|section| {
            let (number, title_at) = promise(section).unwrap_or_else(|| panic!("no promise: {section:.40}"));
            let (title, text) = section[title_at..].split_once('\n').expect("a text below the title");
            (number, title, text)
        })
        .collect()
}

#[test]
fn every_promise_is_there_and_says_where_it_holds() {
    let page = page();
    let promises = promises(&page);
    assert_eq!(promises.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), (1..=PROMISES).collect::<Vec<_>>());
    for (number, title, text) in promises {
        assert!(text.contains("**Holds**"), "P{number}, {title}: where does it hold?");
        assert!(text.contains("**Shown by**"), "P{number}, {title}: by what is it shown?");
    }
}

#[test]
fn every_promise_has_witnesses_and_all_of_them_exist() {
    let page = page();
    let mut missing = Vec::new();
    for (number, title, text) in promises(&page) {
        let (_, shown) = text.split_once("**Shown by**").unwrap_or_default();
        let named = witnesses(shown);
        if named.is_empty() {
            missing.push(format!("P{number}, {title}: nothing shows it"));
        }
        missing.extend(witnesses(text).iter().filter_map(Witness::missing).map(|why| format!("P{number}: {why}")));
    }
    missing.extend(witnesses(&page).iter().filter_map(Witness::missing));
    assert!(missing.is_empty(), "PROMISES.md:\n{}", missing.join("\n"));
}

#[test]
fn an_invalid_witness_is_detected() {
    let no_witness = [
        "`crates/tidegate/tests/promises.rs::not_a_function`",
        "`crates/tidegate/tests/nowhere.rs::page`",
        "`crates/tidegate/tests/promises.rs::page`",
        "`verify/lemmas/bucket.py::_refused`",
        "`crates/tidegate-testkit/src/conformance/waits.rs::refused_until`",
    ];
    for text in no_witness {
        let named = witnesses(text);
        assert!(named.len() == 1 && named[0].missing().is_some(), "{text}");
    }
    let this = witnesses("`crates/tidegate/tests/promises.rs::an_invalid_witness_is_detected`");
    assert_eq!(this[0].missing(), None);
}
