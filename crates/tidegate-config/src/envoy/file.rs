//! The shape of a descriptor file of Envoy's rate limit service.

use std::fmt;
use std::time::Duration;

use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use tidegate::{Limit, Micros, Setting};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvoyFile {
    pub(super) domain: String,
    #[serde(default)]
    pub(super) descriptors: Vec<DescriptorFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorFile {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
    pub(super) rate_limit: Option<RateLimitFile>,
    #[serde(default)]
    pub(super) descriptors: Vec<DescriptorFile>,
    #[serde(default)]
    pub(super) shadow_mode: bool,
    #[serde(default)]
    pub(super) quota_mode: bool,
    #[serde(default)]
    pub(super) detailed_metric: bool,
    /// Names statistics, which are not ours.
    #[serde(default, rename = "value_to_metric")]
    _value_to_metric: bool,
    #[serde(default)]
    pub(super) share_threshold: bool,
    /// Anything at all: it is taken from the tree as it is.
    #[serde(default, rename = "metadata")]
    _metadata: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimitFile {
    pub(super) unit: Option<Unit>,
    #[serde(default)]
    pub(super) requests_per_unit: u32,
    #[serde(default)]
    pub(super) unlimited: bool,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) replaces: Vec<ReplacesFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacesFile {
    pub(super) name: String,
}

/// The time for which a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// 24 hours.
    Day,
    /// Seven days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    const NAMES: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];
    const ALL: [Unit; 7] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// How long it is.
    #[must_use]
    pub const fn period(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month => 30 * DAY,
            Unit::Year => 365 * DAY,
        })
    }

    /// So many requests in each of these; none at all is blocked.
    #[must_use]
    pub fn setting(self, requests: u32) -> Setting {
        match requests {
            0 => Setting::Blocked,
            // Every other number of 32 bits is one of a limit.
            requests => Setting::Limit(Limit::fixed_window(requests.into(), self.period())),
        }
    }

    /// How long it is until the next one begins.
    #[must_use]
    pub fn rest(self, now: Micros) -> Duration {
        let period = Micros::from_duration(self.period()).get();
        Duration::from_micros(period - now.get() % period)
    }
}

/// In any case, as the original takes it.
impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unit, D::Error> {
        struct Word;

        impl Visitor<'_> for Word {
            type Value = Unit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "one of {}", Unit::NAMES.join(", "))
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Unit, E> {
                let found = Unit::NAMES.iter().position(|name| name.eq_ignore_ascii_case(word));
                match found {
                    Some(position) => Ok(Unit::ALL[position]),
                    None => Err(E::unknown_variant(word, &Unit::NAMES)),
                }
            }
        }

        deserializer.deserialize_str(Word)
    }
}
