//! `cargo xtask docs`: the book, built by mdBook into `target/book`.
//!
//! Its links and anchors are checked, and its shell blocks and those of the README
//! run against a real server. Its Rust blocks are doctests of the libraries, and its policies are
//! read by the tests of `tidegate-config`; `crates/tidegate/tests/documents.rs`
//! sees that none is left out.

mod blocks;
mod links;

use std::fs;
use std::path::{Path, PathBuf};

use crate::built;
use crate::packages::runs;
use crate::programs::{place, program};
use crate::run::{Failure, Step, root, say};
use crate::servers;

const MDBOOK: &str = "mdbook@0.4.52";

/// Below the workspace: the chapters, and the book that they become.
const SOURCE: &str = "docs/book/src";
const BUILT: &str = "target/book";

/// A page of the book.
struct Chapter {
    /// What its text is read from, below the workspace: its own file, or the file that it only includes.
    origin: PathBuf,
    /// Its own file, likewise.
    source: PathBuf,
    /// Its page, below the book.
    page: PathBuf,
}

/// Builds the book and checks it; with a word, runs the blocks only of pages whose path contains it.
pub(crate) fn check(options: &[String]) -> Result<(), Failure> {
    let chosen = match options {
        [] => "",
        [word] => word,
        other => return Err(format!("{other:?} is not understood: cargo xtask docs [WORD]")),
    };
    let book = root().join(BUILT);
    let folder = book.display().to_string();
    Step::new(&programs()?, &["build", "docs/book", "--dest-dir", &folder]).run()?;
    let chapters = chapters()?;
    links::check(&chapters, &book)?;
    let server = built::server(built::FULL_SERVER)?;
    let pages = std::iter::once(Path::new("README.md")).chain(chapters.iter().map(|chapter| &*chapter.origin));
    let is_chosen = |page: &&Path| page.display().to_string().contains(chosen);
    let runs = pages.filter(is_chosen).map(|page| blocks::run(page, Path::new(&server)));
    let failures: Vec<Failure> = runs.filter_map(Result::err).collect();
    if !failures.is_empty() {
        return Err(failures.join("\n\n"));
    }
    say(&format!("The book of {} chapters is in {BUILT}/index.html.", chapters.len()));
    Ok(())
}

/// mdBook, and Redis for the chapters that use it; installed if they are not there.
pub(crate) fn programs() -> Result<String, Failure> {
    servers::ensure()?;
    let place = place("mdbook");
    let installed = program(&place, "mdbook").display().to_string();
    if !runs(&installed, "--version") {
        let root = place.display().to_string();
        // Without optimisation: it builds one book, and compiles in a third of the time.
        let arguments = ["install", "--debug", "--locked", "--no-default-features", "--root", &root, MDBOOK];
        Step::new("cargo", &arguments).run()?;
    }
    Ok(installed)
}

/// All chapters that the summary names.
fn chapters() -> Result<Vec<Chapter>, Failure> {
    let summary = read(&Path::new(SOURCE).join("SUMMARY.md"))?;
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let chapter = |target: &str| {
        let source = Path::new(SOURCE).join(target);
        let text = read(&source)?;
        let included = text.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        let origin = included.zip(source.parent()).map(|(path, folder)| links::resolve(folder, path));
        let origin = origin.filter(|origin| root().join(origin).exists()).unwrap_or_else(|| source.clone());
        Ok(Chapter { origin, source, page: Path::new(target).with_extension("html") })
    };
    targets.filter(|target| target.ends_with(".md")).map(chapter).collect()
}

/// A file of the workspace.
fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
