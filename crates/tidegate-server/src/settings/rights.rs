//! Rights: what a caller may be permitted to do.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a caller may be permitted to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// To be told decisions: check, peek, acquire, throttle, Envoy's requests.
    Check,
    /// To change or look into counts: reset, refund, explain.
    Manage,
    /// To read the admin API and the dashboard.
    View,
    /// To change the policy and to read the audit log; includes view and manage.
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
            Right::View => "view",
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
    pub(crate) const ALL: Rights = Rights(0b1_1111);

    #[inline]
    pub(crate) fn contains(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Right> {
        Right::value_variants().iter().copied().filter(move |right| self.contains(*right))
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
        let bit = |right: Right| 1 << right as u8;
        let with_included = |right| match right {
            Right::Admin => bit(Right::Admin) | bit(Right::View) | bit(Right::Manage),
            Right::Check | Right::Manage | Right::View | Right::Metrics => bit(right),
        };
        Rights(rights.into_iter().fold(0, |set, right| set | with_included(right)))
    }
}
