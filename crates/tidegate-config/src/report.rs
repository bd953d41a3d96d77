//! What is wrong with a file, all of it, each error at its place.

use std::fmt;
use std::io;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use tidegate::ConfigError;

use crate::source::{Place, Source, Span};
use crate::suggest;

/// The errors of a file and of those that it includes; never none.
///
/// Printed, it shows each error in the line where it was made.
#[derive(Debug)]
pub struct Report {
    diagnostics: Vec<Diagnostic>,
}

/// Something wrong in a file, or a [warning](Diagnostic::is_warning).
#[derive(Debug)]
pub struct Diagnostic {
    problem: Problem,
    place: Option<Place>,
    /// A few words beneath the place.
    label: Option<String>,
    help: Option<String>,
    /// Another place that has to do with it, and why.
    other: Option<(Place, &'static str)>,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file system has no such file, or will not give it.
    #[error("cannot read {path:?}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The name does not tell the format.
    #[error("cannot tell the format of {path:?}: name it .toml, .yaml or .yml")]
    UnknownFormat {
        /// The file.
        path: String,
    },
    /// The file is not text.
    #[error("the file is not UTF-8")]
    NotUtf8,
    /// There is more of something than is allowed.
    #[error("{what}: the most is {bound}")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        bound: usize,
    },
    /// The text is not TOML or YAML.
    #[error("{message}")]
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// A name that means nothing here.
    #[error("unknown {what} {found:?}")]
    Unknown {
        /// What it was taken for: a field or a value.
        what: &'static str,
        /// The name.
        found: String,
        /// The names that mean something.
        expected: &'static [&'static str],
    },
    /// A field that must be there is not.
    #[error("{field:?} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A value of another kind than is needed.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What is needed.
        expected: String,
        /// What there is.
        found: String,
    },
    /// A value of the right kind that is wrong all the same.
    #[error("{message}")]
    Invalid {
        /// Why.
        message: String,
    },
    /// Valid, and probably not meant: a warning.
    #[error("{message}")]
    Doubtful {
        /// Why.
        message: String,
    },
    /// The same thing is said twice.
    #[error("{what} {name:?} is there twice")]
    Twice {
        /// What kind of thing.
        what: &'static str,
        /// Which one.
        name: String,
    },
    /// A file that includes itself, perhaps by way of others.
    #[error("{path:?} includes itself")]
    Cycle {
        /// The file.
        path: String,
    },
    /// A policy that the library refuses.
    #[error(transparent)]
    Policy(#[from] ConfigError),
    /// The system has no thread to watch the files with.
    #[error("cannot watch the files: {source}")]
    Unwatched {
        /// Why not.
        source: io::Error,
    },
}

impl Report {
    /// The most errors that a report tells of.
    pub const MAX: usize = 20;

    /// The errors, in the order in which they were found.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// A report of what is wrong in no particular place.
impl From<Problem> for Report {
    fn from(problem: Problem) -> Report {
        Diagnostic::somewhere(problem).into()
    }
}

impl From<Diagnostic> for Report {
    fn from(diagnostic: Diagnostic) -> Report {
        Report { diagnostics: vec![diagnostic] }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        if self.diagnostics.len() >= Report::MAX {
            f.write_str("\n\nThere may be more.")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.diagnostics.first().map(|diagnostic| &diagnostic.problem as _)
    }
}

impl Diagnostic {
    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Whether the file is valid all the same.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(self.problem, Problem::Doubtful { .. })
    }

    /// Where, unless it is about a whole file.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// What to do about it, where there is something to add.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// An error of no particular place.
    pub(crate) fn somewhere(problem: Problem) -> Diagnostic {
        Diagnostic { problem, place: None, label: None, help: None, other: None }
    }

    /// An error at a place that is known already.
    pub(crate) fn placed(place: Option<&Place>, problem: Problem) -> Diagnostic {
        Diagnostic { place: place.cloned(), ..Diagnostic::somewhere(problem) }
    }

    pub(crate) fn at(source: &Source, span: &Span, problem: Problem) -> Diagnostic {
        let (label, help) = advice(&problem, source.written(span));
        Diagnostic { place: Some(source.place(span)), label, help, ..Diagnostic::somewhere(problem) }
    }

    pub(crate) fn help_with(self, help: impl Into<String>) -> Diagnostic {
        Diagnostic { help: Some(help.into()), ..self }
    }

    pub(crate) fn see(self, place: Place, why: &'static str) -> Diagnostic {
        Diagnostic { other: Some((place, why)), ..self }
    }
}

/// Words for beneath the place, and a hint for the author of the file, if there are any.
fn advice(problem: &Problem, written: &str) -> (Option<String>, Option<String>) {
    match problem {
        Problem::Unknown { found, expected, .. } => {
            let meant = suggest::nearest(found, expected.iter().copied());
            let help = meant.map(|meant| format!("did you mean {meant:?}?"));
            (Some(format!("expected one of {}", expected.join(", "))), help)
        }
        Problem::Missing { field } => (Some(format!("add {field} here")), None),
        Problem::Twice { .. } => (Some("again here".into()), None),
        // Where YAML 1.1 and 1.2 differ, and habits are older than the standard.
        Problem::Unexpected { expected, .. } => {
            let is_octal = written.len() > 1 && written.starts_with('0') && written.bytes().all(|b| b.is_ascii_digit());
            let says_yes = ["yes", "no", "on", "off"].contains(&written.to_ascii_lowercase().as_str());
            let wants_text = expected.starts_with("text");
            let is_bare = written.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-._".contains(&b));
            let help = match () {
                () if is_octal => Some("a number does not begin with 0"),
                () if says_yes && !wants_text => Some("write true or false"),
                () if wants_text && is_bare && !written.is_empty() => Some("put it in quotes"),
                () => None,
            };
            (None, help.map(str::to_owned))
        }
        Problem::Unreadable { .. }
        | Problem::UnknownFormat { .. }
        | Problem::NotUtf8
        | Problem::TooMuch { .. }
        | Problem::Syntax { .. }
        | Problem::Invalid { .. }
        | Problem::Doubtful { .. }
        | Problem::Cycle { .. }
        | Problem::Policy(_)
        | Problem::Unwatched { .. } => (None, None),
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.is_warning() { Level::WARNING } else { Level::ERROR };
        let mut group = Group::with_title(level.primary_title(self.problem.to_string()));
        if let Some(place) = &self.place {
            group = draw(group, place, AnnotationKind::Primary, self.label.as_deref());
        }
        if let Some((place, why)) = &self.other {
            group = draw(group, place, AnnotationKind::Context, Some(*why));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        f.write_str(&Renderer::plain().render(&[group]))
    }
}

fn draw<'a>(group: Group<'a>, place: &'a Place, kind: AnnotationKind, label: Option<&'a str>) -> Group<'a> {
    match &place.text {
        Some(text) => group.element(
            Snippet::source(text.as_str())
                .line_start(place.line)
                .path(place.file.as_str())
                .annotation(kind.span(place.span.clone()).label(label)),
        ),
        None => group.element(Origin::path(place.file.as_str()).line(place.line).char_column(place.column)),
    }
}

/// Collects errors, up to the most that a report tells of.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    diagnostics: Vec<Diagnostic>,
}

impl Collector {
    /// Adds one more, if there is room: finding its place takes as long as the file.
    pub(crate) fn add(&mut self, diagnostic: impl FnOnce() -> Diagnostic) {
        if !self.is_full() {
            self.diagnostics.push(diagnostic());
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.diagnostics.len() >= Report::MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// What was collected.
    pub(crate) fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// The value, if nothing is wrong.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Report> {
        let Collector { mut diagnostics } = self;
        match value {
            Some(value) if diagnostics.is_empty() => Ok(value),
            Some(_) => Err(Report { diagnostics }),
            None => {
                if diagnostics.is_empty() {
                    let message = "there is nothing to read".to_owned();
                    diagnostics.push(Diagnostic::somewhere(Problem::Invalid { message }));
                }
                Err(Report { diagnostics })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_collector_makes_no_diagnostic() {
        let (mut collector, mut made) = (Collector::default(), 0);
        for _ in 0..2 * Report::MAX {
            collector.add(|| {
                made += 1;
                Diagnostic::somewhere(Problem::NotUtf8)
            });
        }
        assert_eq!((made, collector.into_diagnostics().len()), (Report::MAX, Report::MAX));
    }
}
