//! Names of rules: small, copyable, there for as long as the process.

use std::collections::HashSet;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::ConfigError;

/// The name of a rule.
///
/// A decision carries one, so it must cost nothing to copy. Literals are
/// borrowed; configured names are kept for the life of the process, each
/// distinct one once and at most [`Name::MOST`] of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(&'static str);

static CONFIGURED: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

impl Name {
    /// How many distinct configured names a process may make.
    pub const MOST: usize = 100_000;

    /// A name from a literal.
    #[must_use]
    pub const fn literal(name: &'static str) -> Name {
        Name(name)
    }

    /// A name from a file or a request.
    ///
    /// # Errors
    /// If the process has made [`Name::MOST`] distinct ones before.
    pub fn configured(name: &str) -> Result<Name, ConfigError> {
        let mut names = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Ok(Name(known));
        }
        if names.len() >= Name::MOST {
            return Err(ConfigError::TooManyNames { bound: Name::MOST });
        }
        let name: &'static str = Box::leak(name.into());
        names.insert(name);
        Ok(Name(name))
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Name {
        Name::literal(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}
