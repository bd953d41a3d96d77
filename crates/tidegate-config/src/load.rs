//! Files read, with what they include.

mod build;
mod shape;
mod validation;
mod values;
mod warnings;

use std::fs;
use std::path::{Path, PathBuf};

pub use validation::Validation;
pub use values::MAX_UNIT_LENGTH;

use tidegate::{Policy, Setting};

use crate::file::{Listed, Named, PolicyFile, RuleFile, Words};
use crate::reader::{Disk, MAX_FILES, MAX_TOTAL_BYTES, Reader, read_text};
use crate::regular::MAX_FILE;
use crate::report::{Collector, Diagnostic, Problem, Report};
use crate::source::{Place, Source};
use crate::tree::{self, Entry, Node, Texts, Value};

/// How deep includes may nest.
const DEEPEST_INCLUDE: usize = 8;
/// What the rule for all others is called.
const DEFAULT: &str = "default";

/// Settings by attribute and value.
type Overrides = Named<Named<Words<Setting>>>;

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

/// A policy, and the warnings about its files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// What is valid and probably not meant, each at its place: at most
    /// [`Report::MAX`].
    pub warnings: Vec<Diagnostic>,
}

/// The policy of a file, and of those that it includes.
///
/// # Errors
/// A report of all that is wrong.
pub fn load(path: impl AsRef<Path>) -> Result<Policy, Report> {
    load_with_warnings(path).map(|loaded| loaded.policy)
}

/// The policy of a file, and of those that it includes, with warnings.
///
/// # Errors
/// A report of all that is wrong.
pub fn load_with_warnings(path: impl AsRef<Path>) -> Result<Loaded, Report> {
    load_by(&mut Disk, path.as_ref())
}

/// The policy of a file that the reader reads.
pub(crate) fn load_by(reader: &mut dyn Reader, path: &Path) -> Result<Loaded, Report> {
    let mut loader = Loader::default();
    loader.file(reader, path, None);
    loader.finish()
}

/// The policy of a text, which can include nothing; errors are told under
/// the name.
///
/// # Errors
/// A report of all that is wrong.
pub fn parse(text: &str, format: Format, name: &Path) -> Result<Policy, Report> {
    parse_with_warnings(text, format, name).map(|loaded| loaded.policy)
}

/// The policy of a text, as by [`parse`], with warnings.
///
/// ```
/// use tidegate_config::{Format, parse_with_warnings};
///
/// let text = "[rules.orders]\nlimit = '100/min'\nkey = ['usr']\n";
/// let loaded = parse_with_warnings(text, Format::Toml, "policy.toml".as_ref())?;
/// assert_eq!(loaded.warnings[0].help(), Some("did you mean \"user\"?"));
/// # Ok::<(), tidegate_config::Report>(())
/// ```
///
/// # Errors
/// A report of all that is wrong.
pub fn parse_with_warnings(text: &str, format: Format, name: &Path) -> Result<Loaded, Report> {
    let mut loader = Loader::default();
    loader.text(text, format, name);
    loader.finish()
}

/// The JSON Schema of a policy file, for editors.
#[must_use]
pub fn schema() -> &'static str {
    include_str!("policy.schema.json")
}

impl PolicyFile {
    /// What a text says, without making a policy of it.
    ///
    /// # Errors
    /// A report of what is wrong with its shape, its limits and its networks.
    pub fn parse(text: &str, format: Format, name: &Path) -> Result<PolicyFile, Report> {
        let mut diagnostics = Collector::default();
        let part = Part::read(name, text.to_owned(), format, &mut diagnostics);
        diagnostics.finish(part.map(|part| part.file))
    }
}

/// A file that was read, and the tree that knows its places.
pub(crate) struct Part {
    source: Source,
    tree: Node,
    file: PolicyFile,
    format: Format,
}

impl Part {
    fn read(name: &Path, text: String, format: Format, diagnostics: &mut Collector) -> Option<Part> {
        let (source, mut tree) = tree_of(name, text, format, diagnostics)?;
        shape::take_out_bare_settings(&mut tree, format, &source, diagnostics);
        let file = tree::read(&mut tree, Texts::Quoted, &source, diagnostics)?;
        Some(Part { source, tree, file, format })
    }

    /// Its rules, the one for all others last, and where each stands.
    fn rules(&self) -> impl Iterator<Item = (&RuleFile, &Entry)> {
        let rules = self.file.rules.0.iter().map(|(_, rule)| rule).zip(entries(self.tree.at(&["rules"])));
        rules.chain(self.file.default.iter().zip(self.tree.entry(DEFAULT)))
    }

    /// Its overrides for rules, and where those of each rule stand.
    fn overrides(&self) -> impl Iterator<Item = (&Overrides, &Entry)> {
        let overrides = self.file.overrides.0.iter().map(|(_, overrides)| overrides);
        overrides.zip(entries(self.tree.at(&["overrides"])))
    }

    /// What its lists ask of attributes, and where.
    fn lists(&self) -> impl Iterator<Item = (&Listed, &Entry)> {
        let items = |list: &str| self.tree.at(&["lists", list]).map(Node::items).unwrap_or_default();
        let listed = self.file.lists.deny.iter().zip(items("deny"));
        let listed = listed.chain(self.file.lists.allow.iter().zip(items("allow")));
        listed.filter_map(|(listed, node)| Some((listed, entries(Some(node)).first()?)))
    }
}

/// The entries of a table, if it is one.
fn entries(table: Option<&Node>) -> &[Entry] {
    match table.map(|table| &table.value) {
        Some(Value::Table(entries)) => entries,
        _ => &[],
    }
}

/// The tree of a text, with the text whose places it knows.
pub(crate) fn tree_of(
    name: &Path,
    text: String,
    format: Format,
    diagnostics: &mut Collector,
) -> Option<(Source, Node)> {
    let source = Source::new(name, text);
    if source.text().len() > MAX_FILE {
        let too_large = Problem::TooMuch { what: "the file has too many bytes", bound: MAX_FILE };
        diagnostics.add(|| Diagnostic::at(&source, &(0..0), too_large));
        return None;
    }
    let tree = match format {
        Format::Toml => tree::parse_toml(&source, diagnostics),
        Format::Yaml => tree::parse_yaml(&source, diagnostics),
    }?;
    Some((source, tree))
}

#[derive(Default)]
struct Loader {
    diagnostics: Collector,
    parts: Vec<Part>,
    /// The files that are being read, each included by the one before.
    open: Vec<PathBuf>,
    bytes: usize,
}

impl Loader {
    /// Reads a text, which can include nothing.
    fn text(&mut self, text: &str, format: Format, name: &Path) {
        if let Some(part) = Part::read(name, text.to_owned(), format, &mut self.diagnostics) {
            if let Some(include) = part.tree.entry("include") {
                let message = "only a file can include others: load it from where it is".to_owned();
                self.diagnostics.add(|| Diagnostic::at(&part.source, &include.key_span, Problem::Invalid { message }));
            }
            self.parts.push(part);
        }
    }

    /// Reads a file, which another asks for at a place, and what it includes.
    fn file(&mut self, reader: &mut dyn Reader, path: &Path, place: Option<&Place>) {
        if let Err(diagnostic) = self.try_file(reader, path, place) {
            self.diagnostics.add(|| *diagnostic);
        }
    }

    fn try_file(&mut self, reader: &mut dyn Reader, path: &Path, place: Option<&Place>) -> Result<(), Box<Diagnostic>> {
        let refuse = |problem| Err(Box::new(Diagnostic::placed(place, problem)));
        let shown = || path.display().to_string();
        let Some(format) = Format::of(path) else { return refuse(Problem::UnknownFormat { path: shown() }) };
        if self.open.len() > DEEPEST_INCLUDE {
            return refuse(Problem::TooMuch { what: "includes are nested too deep", bound: DEEPEST_INCLUDE });
        }
        if self.parts.len() >= MAX_FILES {
            return refuse(Problem::TooMuch { what: "the policy has too many files", bound: MAX_FILES });
        }
        let text = read_text(reader, path, place)?;
        let same = match fs::canonicalize(path) {
            Ok(same) => same,
            Err(source) => return refuse(Problem::Unreadable { path: shown(), source }),
        };
        if self.open.contains(&same) {
            return refuse(Problem::Cycle { path: shown() });
        }
        self.bytes += text.len();
        if self.bytes > MAX_TOTAL_BYTES {
            return refuse(Problem::TooMuch { what: "the files have too many bytes in all", bound: MAX_TOTAL_BYTES });
        }
        let Some(part) = Part::read(path, text, format, &mut self.diagnostics) else { return Ok(()) };
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
            if self.diagnostics.is_full() {
                break;
            }
            self.file(reader, &path, Some(&place));
        }
        self.open.pop();
        Ok(())
    }

    fn finish(mut self) -> Result<Loaded, Report> {
        let policy = match self.parts.is_empty() {
            true => None,
            false => build::policy(&self.parts, &mut self.diagnostics),
        };
        let policy = self.diagnostics.finish(policy)?;
        Ok(Loaded { policy, warnings: warnings::of(&self.parts) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the schema instead of comparing it.
    const WRITE: &str = "TIDEGATE_WRITE_SCHEMA";

    #[test]
    fn the_schema_is_that_of_the_types_that_read_the_file() {
        let made = format!("{:#}\n", schemars::schema_for!(PolicyFile).as_value());
        if std::env::var_os(WRITE).is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy.schema.json");
            fs::write(path, made).expect("the sources can be written");
        } else {
            let again = format!("{WRITE}=1 cargo test -p tidegate-config --lib the_schema_is");
            assert!(schema() == made, "policy.schema.json is not that of the types: `{again}` writes it");
        }
    }
}
