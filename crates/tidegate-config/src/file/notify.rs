//! Thresholds in a file: a list of percentages.

#[cfg(test)]
use std::borrow::Cow;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
#[cfg(test)]
use tidegate::store::MAX_THRESHOLDS;
use tidegate::store::Thresholds;

use super::words::{InWords, Words};

/// A percentage from 1% to 100%.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u8);

impl InWords for Percent {
    const WHAT: &'static str = "a percentage, such as \"80%\"";
    const EXAMPLES: &'static [&'static str] = &["50%", "80%", "100%"];

    fn from_words(text: &str) -> Result<Percent, String> {
        let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let percent = digits.and_then(|digits| digits.parse().ok()).filter(|percent| (1..=100).contains(percent));
        percent.map(Percent).ok_or_else(|| format!("cannot read {text:?} as a threshold: give 1% to 100%"))
    }

    fn to_words(&self) -> String {
        format!("{}%", self.0)
    }
}

/// The thresholds of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify(pub Thresholds);

impl Notify {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Notify {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.percents().iter().map(|percent| Words(Percent(*percent))))
    }
}

impl<'de> Deserialize<'de> for Notify {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Notify, D::Error> {
        let percents = Vec::<Words<Percent>>::deserialize(deserializer)?;
        Thresholds::new(percents.iter().map(|percent| percent.0.0)).map(Notify).map_err(D::Error::custom)
    }
}

#[cfg(test)]
impl JsonSchema for Notify {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Notify".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "items": { "type": "string", "examples": Percent::EXAMPLES },
            "maxItems": MAX_THRESHOLDS,
            "uniqueItems": true,
        })
    }
}
