//! The documents hold together: links lead somewhere, the folders of the map
//! exist, and no text uses a banned word. What the pictures show is tested where they are drawn.

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

/// Documents beside the book.
const BESIDE: [&str; 26] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "PROMISES.md",
    "SECURITY.md",
    "examples/shop/README.md",
    "STABILITY.md",
    "crates/tidegate/README.md",
    "crates/tidegate-config/README.md",
    "crates/tidegate-redis/README.md",
    "crates/tidegate-replay/README.md",
    "crates/tidegate-server/README.md",
    "crates/tidegate-simulate/README.md",
    "crates/tidegate-testkit/README.md",
    "crates/tidegate-tower/README.md",
    "verify/README.md",
    "verify/api/README.md",
    "verify/bench/README.md",
    "verify/chaos/README.md",
    "verify/fuzz/README.md",
    "verify/lemmas/README.md",
    "verify/limitador/README.md",
    "verify/models/README.md",
    "verify/mutants/README.md",
    "verify/simulation/README.md",
];

/// All documents, by their paths from the root: those beside the book, and its chapters.
fn documents() -> Vec<String> {
    let chapters = files_below(root().join("docs")).into_iter().filter(|file| file.extension() == Some("md".as_ref()));
    let name = |file: PathBuf| file.strip_prefix(root()).expect("it lies below").display().to_string();
    BESIDE.map(String::from).into_iter().chain(chapters.map(name)).collect()
}

#[test]
fn one_hello_program_greets_everywhere() {
    let program = |page: &str| {
        let (_, code) = page.split_once("```").expect("the page has a program");
        let (_, code) = code.split_once('\n').expect("it begins on the next line");
        code.split_once("```").expect("and ends").0.to_owned()
    };
    let hello = program(&crate_page());
    assert_eq!(hello, program(&read("README.md")));
    assert_eq!(hello, program(&read("crates/tidegate/README.md")));
    assert!(hello.lines().count() <= 10, "it is short");
}

/// Code without a language is taken for Rust by some readers and not by
/// others; the documents' doctests are among the former.
#[test]
fn every_block_of_code_in_a_document_names_its_language() {
    for document in documents() {
        let text = read(&document);
        let fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        for (index, fence) in fences.enumerate() {
            assert_eq!(fence.is_empty(), index % 2 == 1, "{document}: block {}", index / 2 + 1);
        }
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for document in documents() {
        let text = read(&document);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let folder = Path::new(&document).parent().expect("a document lies in a folder");
            let file = target.split('#').next().unwrap_or(target);
            assert!(root().join(folder).join(file).exists(), "{document} links to {target}");
        }
    }
}

#[test]
fn every_chapter_is_in_the_summary() {
    let summary = read("docs/book/src/SUMMARY.md");
    let chapters = documents().into_iter().filter_map(|path| Some(path.strip_prefix("docs/book/src/")?.to_owned()));
    for chapter in chapters.filter(|chapter| chapter != "SUMMARY.md") {
        assert!(summary.contains(&format!("]({chapter})")), "SUMMARY.md lacks {chapter}");
    }
}

/// A chapter with a Rust block that can be compiled is a doctest of a library.
#[test]
fn every_program_in_the_book_is_compiled() {
    let libraries = ["tidegate", "tidegate-tower"].map(|name| read(&format!("crates/{name}/src/lib.rs"))).concat();
    for document in documents().into_iter().filter(|path| path.starts_with("docs/")) {
        let fences = read(&document)
            .lines()
            .filter_map(|line| line.strip_prefix("```rust"))
            .map(String::from)
            .collect::<Vec<_>>();
        if fences.iter().any(|marks| !marks.contains("ignore")) {
            assert!(libraries.contains(&document), "no library has the programs of {document} among its doctests");
        }
    }
}

#[test]
fn every_folder_of_the_map_exists() {
    let map = read("ARCHITECTURE.md");
    let is_part_of_a_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let words = map.split(|letter| !is_part_of_a_path(letter)).map(|word| word.trim_end_matches(['.', '/']));
    let is_below = |word: &&str| FOLDERS.iter().any(|folder| word.split('/').next() == Some(folder));
    let named: BTreeSet<&str> = words.filter(|word| word.contains('/')).filter(is_below).collect();
    assert!(named.contains("crates/tidegate/src"), "ARCHITECTURE.md has no map: {named:?}");
    let gone: Vec<&str> = named.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names what is not there: {gone:?}");
}

/// Where Cargo does not look for tests by itself, a file that no program names would never run.
#[test]
fn every_file_of_tests_belongs_to_a_program() {
    let mut programs = 0;
    for manifest in files_below(root().join("crates")).into_iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(&manifest).expect("a manifest");
        if !text.contains("\nautotests = false") {
            continue;
        }
        let tests = manifest.with_file_name("tests");
        let all = fs::read_to_string(tests.join("all.rs")).expect("a program of all tests");
        for entry in fs::read_dir(&tests).expect("a folder of tests") {
            let path = entry.expect("its entries").path();
            let name = path.file_stem().expect("a name").display().to_string();
            let file = if path.is_dir() { format!("{name}/main.rs") } else { format!("{name}.rs") };
            let is_program = text.contains(&format!("path = \"tests/{file}\""));
            let is_module = all.lines().any(|line| line == format!("mod {name};"));
            assert!(is_program || is_module || !tests.join(&file).exists(), "{} is in no program", path.display());
            programs += usize::from(is_program);
        }
    }
    assert!(programs >= 9, "{programs} programs were found");
}

/// The folders at the root that hold the project's files.
const FOLDERS: [&str; 7] = ["crates", "examples", "verify", "xtask", "web", "deploy", "docs"];

/// New unsafe code needs an argument in the code, a number here and a line in the map.
#[test]
fn unsafe_code_is_counted_and_every_piece_of_it_argued() {
    let known = [
        ("crates/tidegate/src/store/memory/lines.rs", 7),
        // Of the benchmark only: the thread's core, and a fence.
        ("verify/bench/src/affinity.rs", 1),
        ("verify/bench/src/contestants.rs", 1),
    ];
    let mut found = Vec::new();
    let files = ["crates", "verify"].map(|folder| files_below(root().join(folder))).into_iter().flatten();
    for file in files.filter(|file| file.extension() == Some("rs".as_ref())) {
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

/// Words that the text of the project does not use, in lower case: see CONTRIBUTING.md.
const BANNED: [&str; 4] = ["whoever", "somebody", "nobody", "those who"];

/// Where they stand on purpose.
const NOT_CHECKED: [&str; 3] = [
    // They name the words.
    "CONTRIBUTING.md",
    "crates/tidegate/tests/documents.rs",
    // The name of a Unix user.
    "verify/calendar/postgres.py",
];

#[test]
fn no_text_uses_a_banned_word() {
    let is_text = |file: &PathBuf| {
        let kind = file.extension().and_then(|kind| kind.to_str());
        kind.is_some_and(|kind| {
            "rs lua md py ts mjs css html json toml yaml c proto".split(' ').any(|text| text == kind)
        })
    };
    let at_the_root = fs::read_dir(root()).expect("the root").map(|entry| entry.expect("its entries").path());
    let below = FOLDERS.map(|folder| files_below(root().join(folder))).into_iter().flatten();
    let mut found = Vec::new();
    for file in at_the_root.filter(|path| path.is_file()).chain(below).filter(is_text) {
        let name = file.strip_prefix(root()).expect("it lies below").display().to_string();
        if NOT_CHECKED.iter().any(|path| name.starts_with(path)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let is_bound = line.match_indices("MOST_").any(|(at, _)| !line[..at].ends_with(char::is_alphanumeric));
            if is_bound || BANNED.iter().any(|word| holds(&lower, word)) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "words that CONTRIBUTING.md replaces:\n{}", found.join("\n"));
}

/// Whether a line has a word, also as part of a name such as `for_nobody`.
fn holds(line: &str, word: &str) -> bool {
    [word.to_owned(), word.replace(' ', "_")].iter().any(|word| {
        let mut ends = line.match_indices(word.as_str()).map(|(at, word)| &line[at + word.len()..]);
        ends.any(|rest| !rest.starts_with(char::is_alphabetic))
    })
}

fn files_below(folder: PathBuf) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("and its entries").path();
            match path.is_dir() {
                // What a package with a workspace of its own has built, or installed.
                true if path.ends_with("target") || path.ends_with("node_modules") => {}
                true => folders.push(path),
                false => drop(files.insert(path)),
            }
        }
    }
    files
}
