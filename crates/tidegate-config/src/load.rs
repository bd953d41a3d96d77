//! Files read, with what they include.

mod build;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use tidegate::Policy;

use crate::file::PolicyFile;
use crate::report::{Collector, Mistake, Problem, Report};
use crate::source::{Place, Source};
use crate::tree::{self, Node, Texts};

/// The most bytes of a file.
pub(crate) const LARGEST_FILE: usize = 16 << 20;
/// The most bytes of all files of a policy.
const LARGEST_POLICY: usize = 64 << 20;
/// How deep includes may nest.
const DEEPEST_INCLUDE: usize = 8;
/// The most files of a policy.
const MOST_FILES: usize = 1_000;

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// YAML 1.2, and so JSON.
    Yaml,
}

impl Format {
    /// The format that a file's name tells.
    #[must_use]
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "toml" => Some(Format::Toml),
            "yaml" | "yml" | "json" => Some(Format::Yaml),
            _ => None,
        }
    }
}

/// The policy of a file, and of those that it includes.
///
/// # Errors
/// A report of all that is wrong.
pub fn load(path: impl AsRef<Path>) -> Result<Policy, Report> {
    let mut loader = Loader::default();
    loader.file(path.as_ref(), None);
    loader.finish()
}

/// The policy of a text, which can include nothing; mistakes are told under
/// the name.
///
/// # Errors
/// A report of all that is wrong.
pub fn parse(text: &str, format: Format, name: &Path) -> Result<Policy, Report> {
    let mut loader = Loader::default();
    if let Some(part) = Part::read(name, text.to_owned(), format, &mut loader.mistakes) {
        if let Some(include) = part.tree.entry("include") {
            let message = "only a file can include others: load it from where it is".to_owned();
            loader.mistakes.add(Mistake::at(&part.source, &include.key_span, Problem::Invalid { message }));
        }
        loader.parts.push(part);
    }
    loader.finish()
}

/// The JSON Schema of a policy file, for editors.
#[must_use]
pub fn schema() -> String {
    format!("{:#}", schemars::schema_for!(PolicyFile).as_value())
}

impl PolicyFile {
    /// What a text says, without making a policy of it.
    ///
    /// # Errors
    /// A report of what is wrong with its shape, its limits and its networks.
    pub fn parse(text: &str, format: Format, name: &Path) -> Result<PolicyFile, Report> {
        let mut mistakes = Collector::default();
        let part = Part::read(name, text.to_owned(), format, &mut mistakes);
        mistakes.finish(part.map(|part| part.file))
    }
}

/// A file that was read, and the tree that knows its places.
pub(crate) struct Part {
    source: Source,
    tree: Node,
    file: PolicyFile,
}

impl Part {
    fn read(name: &Path, text: String, format: Format, mistakes: &mut Collector) -> Option<Part> {
        let source = Source::new(name, text);
        if source.text().len() > LARGEST_FILE {
            mistakes.add(Mistake::at(&source, &(0..0), too_large()));
            return None;
        }
        let mut tree = match format {
            Format::Toml => tree::parse_toml(&source, mistakes),
            Format::Yaml => tree::parse_yaml(&source, mistakes),
        }?;
        let file = tree::read(&mut tree, Texts::Quoted, &source, mistakes)?;
        Some(Part { source, tree, file })
    }
}

fn too_large() -> Problem {
    Problem::TooMuch { what: "the file has too many bytes", bound: LARGEST_FILE }
}

/// The text of a file, if it is text and not too long.
pub(crate) fn read_text(path: &Path, place: Option<&Place>) -> Result<String, Box<Mistake>> {
    let unreadable = |source| Problem::Unreadable { path: path.display().to_string(), source };
    let mut bytes = Vec::new();
    let most = LARGEST_FILE as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(Box::new(Mistake::placed(place, unreadable(error))));
    }
    if bytes.len() > LARGEST_FILE {
        return Err(Box::new(Mistake::placed(place, too_large())));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Box::new(Mistake::at(&Source::new(path, text), &(valid..valid + 1), Problem::NotUtf8))
    })
}

#[derive(Default)]
struct Loader {
    mistakes: Collector,
    parts: Vec<Part>,
    /// The files that are being read, each included by the one before.
    open: Vec<PathBuf>,
    bytes: usize,
}

impl Loader {
    /// Reads a file, which another asks for at a place, and what it includes.
    fn file(&mut self, path: &Path, place: Option<&Place>) {
        if let Err(mistake) = self.try_file(path, place) {
            self.mistakes.add(*mistake);
        }
    }

    fn try_file(&mut self, path: &Path, place: Option<&Place>) -> Result<(), Box<Mistake>> {
        let refuse = |problem| Err(Box::new(Mistake::placed(place, problem)));
        let shown = || path.display().to_string();
        let Some(format) = Format::of(path) else { return refuse(Problem::UnknownFormat { path: shown() }) };
        let same = match fs::canonicalize(path) {
            Ok(same) => same,
            Err(source) => return refuse(Problem::Unreadable { path: shown(), source }),
        };
        if self.open.contains(&same) {
            return refuse(Problem::Cycle { path: shown() });
        }
        if self.open.len() > DEEPEST_INCLUDE {
            return refuse(Problem::TooMuch { what: "includes are nested too deep", bound: DEEPEST_INCLUDE });
        }
        if self.parts.len() >= MOST_FILES {
            return refuse(Problem::TooMuch { what: "the policy has too many files", bound: MOST_FILES });
        }
        let text = read_text(path, place)?;
        self.bytes += text.len();
        if self.bytes > LARGEST_POLICY {
            return refuse(Problem::TooMuch { what: "the files have too many bytes in all", bound: LARGEST_POLICY });
        }
        let Some(part) = Part::read(path, text, format, &mut self.mistakes) else { return Ok(()) };
        let folder = path.parent().unwrap_or(Path::new(""));
        let asked = part.tree.at(&["include"]).map(Node::items).unwrap_or_default();
        let asked: Vec<(PathBuf, Place)> = part
            .file
            .include
            .iter()
            .zip(asked)
            .map(|(path, node)| (folder.join(path), part.source.place(&node.span)))
            .collect();
        self.parts.push(part);
        self.open.push(same);
        for (path, place) in asked {
            if self.mistakes.is_full() {
                break;
            }
            self.file(&path, Some(&place));
        }
        self.open.pop();
        Ok(())
    }

    fn finish(mut self) -> Result<Policy, Report> {
        let policy = match self.parts.is_empty() {
            true => None,
            false => build::policy(&self.parts, &mut self.mistakes),
        };
        self.mistakes.finish(policy)
    }
}
