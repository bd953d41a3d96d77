//! The documents hold together: links lead somewhere, the map shows every
//! file. What the pictures show is tested where they are drawn.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The comment at the head of the crate, as Markdown.
fn crate_page() -> String {
    let source = read("crates/tidegate/src/lib.rs");
    let page = source.lines().map_while(|line| line.strip_prefix("//!"));
    page.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

const DOCUMENTS: [&str; 11] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "PROMISES.md",
    "docs/algorithms.md",
    "docs/chaos.md",
    "docs/commands.md",
    "docs/compare.md",
    "docs/evidence.md",
    "docs/replay.md",
];

#[test]
fn one_hello_program_greets_everywhere() {
    let program = |page: &str| {
        let (_, code) = page.split_once("```").expect("the page has a program");
        let (_, code) = code.split_once('\n').expect("it begins on the next line");
        code.split_once("```").expect("and ends").0.to_owned()
    };
    let hello = program(&crate_page());
    assert_eq!(hello, program(&read("README.md")));
    assert!(hello.lines().count() <= 10, "it is short");
}

/// Code without a language is taken for Rust by some readers and not by
/// others; the documents' doctests are among the former.
#[test]
fn every_block_of_code_in_a_document_names_its_language() {
    for document in DOCUMENTS {
        let text = read(document);
        let fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        for (index, fence) in fences.enumerate() {
            assert_eq!(fence.is_empty(), index % 2 == 1, "{document}: block {}", index / 2 + 1);
        }
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for document in DOCUMENTS {
        let text = read(document);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let folder = Path::new(document).parent().expect("a document lies in a folder");
            let file = target.split('#').next().unwrap_or(target);
            assert!(root().join(folder).join(file).exists(), "{document} links to {target}");
        }
    }
}

#[test]
fn the_map_shows_every_file() {
    let map = read("ARCHITECTURE.md");
    // Where files lie, and what their names in the map are relative to.
    let places = [
        ("crates/tidegate/src", "crates/tidegate/src"),
        ("crates/tidegate-redis/src", "crates/tidegate-redis"),
        ("crates/tidegate-redis/lua", "crates/tidegate-redis"),
        ("crates/tidegate-config/src", "crates/tidegate-config"),
        ("crates/tidegate-tower/src", "crates/tidegate-tower"),
        ("crates/tidegate-simulate/src", "crates/tidegate-simulate"),
        ("crates/tidegate-replay/src", "crates/tidegate-replay"),
        ("crates/tidegate-server/src", "crates/tidegate-server/src"),
        ("crates/tidegate-chaos/src", "crates/tidegate-chaos"),
        ("crates/tidegate-proof/src", "."),
        ("proof", "."),
        ("xtask/src", "xtask/src"),
    ];
    let mut missing = Vec::new();
    for (place, base) in places {
        let base = root().join(base);
        for file in files_below(root().join(place)) {
            let name = file.strip_prefix(&base).expect("it lies below").display().to_string().replace('\\', "/");
            let hidden = name.split('/').any(|part| {
                part.starts_with('.') || part == "generated" || part == "tests.rs" || part == "__pycache__"
            });
            if !hidden && !map.contains(&format!("`{name}`")) {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "tell in ARCHITECTURE.md what these are for: {missing:?}");
    let is_file = |word: &&str| (word.ends_with(".rs") || word.ends_with(".lua")) && !word.contains(' ');
    for file in map.split('`').filter(is_file) {
        let folders = [
            "crates/tidegate/src",
            "crates/tidegate-redis",
            "crates/tidegate-redis/lua",
            "crates/tidegate-config",
            "crates/tidegate-tower",
            "crates/tidegate-simulate",
            "crates/tidegate-replay",
            "crates/tidegate-server/src",
            "crates/tidegate-chaos",
            "crates",
            "xtask/src",
            ".",
        ];
        let exists = folders.iter().any(|folder| root().join(folder).join(file).exists());
        assert!(exists, "ARCHITECTURE.md tells of {file}, which is gone");
    }
}

/// Whoever adds to these argues for it in the code, here and in the map.
#[test]
fn unsafe_code_is_counted_and_every_piece_of_it_argued() {
    let known = [
        ("crates/tidegate/src/store/memory/lines.rs", 7),
        // Of the benchmark only: the thread's core, and a fence.
        ("crates/tidegate-bench/src/affinity.rs", 1),
        ("crates/tidegate-bench/src/contestants.rs", 1),
    ];
    let mut found = Vec::new();
    for file in files_below(root().join("crates")).into_iter().filter(|file| file.extension() == Some("rs".as_ref())) {
        let name = file.strip_prefix(root()).expect("it lies below").display().to_string();
        let source = fs::read_to_string(&file).expect("source is text");
        let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
        let is_unsafe = |line: &str| ["{", "impl", "fn"].iter().any(|what| line.contains(&format!("unsafe {what} ")));
        let count = lines.iter().filter(|line| !line.starts_with("//") && is_unsafe(line)).count();
        if count > 0 && !name.ends_with("tests/documents.rs") {
            let argued = lines.iter().filter(|line| line.starts_with("// SAFETY: ")).count();
            assert!(argued >= count, "{name} has {count} pieces of unsafe code and {argued} arguments");
            found.push((name, count));
        }
    }
    found.sort();
    let mut known = known.map(|(name, count)| (name.to_owned(), count));
    known.sort();
    assert_eq!(found, known);
}

fn files_below(folder: PathBuf) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("and its entries").path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(files.insert(path)),
            }
        }
    }
    files
}
