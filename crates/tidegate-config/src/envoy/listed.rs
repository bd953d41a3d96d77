//! All limits of a configuration, for people.

use std::fmt;

use tidegate::Setting;

use super::{Configured, EnvoyConfig, Level, Unit};

/// A limit of a descriptor file. It is written as the reference service shows it at `/rlconfig`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Listed<'c> {
    /// The descriptor: its domain, keys and values from the top.
    pub path: &'c str,
    /// What applies.
    pub setting: Setting,
    /// In what time; none if there is no limit.
    pub unit: Option<Unit>,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether it refuses only together with all others of this kind.
    pub quota: bool,
}

impl EnvoyConfig {
    /// All limits, by their paths.
    #[must_use]
    pub fn limits(&self) -> Vec<Listed<'_>> {
        let mut limits = Vec::new();
        self.domains.values().for_each(|level| level.list(&mut limits));
        limits.sort_unstable_by_key(|limit| limit.path);
        limits
    }
}

impl Level {
    fn list<'c>(&'c self, limits: &mut Vec<Listed<'c>>) {
        for siblings in self.by_key.values() {
            let patterns = siblings.patterns.iter().map(|(_, configured)| configured);
            for configured in siblings.exact.values().chain(patterns).chain(siblings.any.as_deref()) {
                let Configured { path, shadow, quota, .. } = configured;
                if let Some(limit) = &configured.limit {
                    let (setting, unit) = (limit.setting, limit.unit);
                    limits.push(Listed { path, setting, unit, shadow: *shadow, quota: *quota });
                }
                configured.below.list(limits);
            }
        }
    }
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Listed { path, setting, unit, shadow, quota } = self;
        let unit = unit.map_or("UNKNOWN".to_owned(), |unit| format!("{unit:?}").to_uppercase());
        let count = match setting {
            Setting::Limit(limit) => limit.count(),
            Setting::Unlimited | Setting::Blocked => 0,
        };
        write!(f, "{path}: unit={unit} requests_per_unit={count}, shadow_mode: {shadow}, quota_mode: {quota}")
    }
}
