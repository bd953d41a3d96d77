//! Rights: what a caller may be permitted to do.

use std::fmt;

use clap::ValueEnum;
use serde::Deserialize;

/// What a caller may be permitted to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// To be told decisions: check, peek, acquire, throttle, Envoy's requests.
    Check,
    /// To change or look into counts: reset, refund, explain.
    Manage,
    /// To use the admin API.
    Admin,
    /// To read the metrics.
    Metrics,
}

impl Right {
    /// The word for it in files and flags.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Right::Check => "check",
            Right::Manage => "manage",
            Right::Admin => "admin",
            Right::Metrics => "metrics",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    pub(crate) const ALL: Rights = Rights(0b1111);

    #[inline]
    pub(crate) fn contains(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn with(self, others: Rights) -> Rights {
        Rights(self.0 | others.0)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Rights {
        Rights(rights.into_iter().fold(0, |set, right| set | (1 << right as u8)))
    }
}
