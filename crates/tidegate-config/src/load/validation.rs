//! Policies that are checked and not made.
//!
//! The names of rules are kept for as long as the process, and there is a bound
//! on them. Validation makes no rule, and so takes none of those names: however
//! many policies are validated, a policy to be applied finds as many left.

use std::path::Path;

use tidegate::Limiter;

use super::{Format, Loader, build, warnings};
use crate::reader::Disk;
use crate::report::{Diagnostic, Report};

/// Checks policies as [`load`](crate::load) and [`parse`](crate::parse) do, and
/// against the bounds of a limiter, and makes no policy of them.
///
/// ```
/// use tidegate_config::{Format, Validation};
///
/// let text = "[rules.orders]\nlimit = 'sliding-log 3000000/day'\n";
/// let report = Validation::new().text(text, Format::Toml, "policy.toml".as_ref()).unwrap_err();
/// assert_eq!(report.diagnostics()[0].place().map(|place| place.line), Some(2));
/// assert!(Validation::new().max_log_entries(3_000_000).text(text, Format::Toml, "policy.toml".as_ref()).is_ok());
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a validation does nothing until it is given a policy"]
pub struct Validation {
    max_log_entries: u64,
}

impl Default for Validation {
    fn default() -> Validation {
        Validation { max_log_entries: Limiter::DEFAULT_MAX_LOG_ENTRIES }
    }
}

impl Validation {
    /// By the default bounds.
    pub fn new() -> Validation {
        Validation::default()
    }

    /// The largest count of a sliding log, as of
    /// [`Builder::max_log_entries`](tidegate::LimiterBuilder::max_log_entries).
    pub fn max_log_entries(mut self, entries: u64) -> Validation {
        self.max_log_entries = entries;
        self
    }

    /// Checks a file, and those that it includes: the warnings about them.
    ///
    /// # Errors
    /// A report of all that is wrong.
    pub fn file(&self, path: impl AsRef<Path>) -> Result<Vec<Diagnostic>, Report> {
        self.check(|loader| loader.file(&mut Disk, path.as_ref(), None))
    }

    /// Checks a text, which can include nothing; errors are told under the name.
    ///
    /// # Errors
    /// A report of all that is wrong.
    pub fn text(&self, text: &str, format: Format, name: &Path) -> Result<Vec<Diagnostic>, Report> {
        self.check(|loader| loader.text(text, format, name))
    }

    fn check(&self, read: impl FnOnce(&mut Loader)) -> Result<Vec<Diagnostic>, Report> {
        let mut loader = Loader::default();
        read(&mut loader);
        let Loader { mut diagnostics, parts, .. } = loader;
        let checked = match parts.is_empty() {
            true => None,
            false => build::check(&parts, Some(self.max_log_entries), &mut diagnostics).map(drop),
        };
        diagnostics.finish(checked)?;
        Ok(warnings::of(&parts))
    }
}
