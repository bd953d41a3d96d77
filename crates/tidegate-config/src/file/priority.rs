//! Classes of requests in a rule: an attribute, and a floor for each of its values.

#[cfg(test)]
use std::borrow::Cow;
use std::fmt;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate::{Floor, PriorityClasses};

use super::words::Words;

/// What an attribute's classes leave to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityFile {
    /// The attribute whose value is the class.
    pub attribute: String,
    /// The floor of each class, in the order of the file.
    pub classes: Vec<(String, Words<Floor>)>,
}

/// The field that is no class.
const ATTRIBUTE: &str = "attribute";

impl From<&PriorityFile> for PriorityClasses {
    fn from(file: &PriorityFile) -> PriorityClasses {
        let classes = file.classes.iter();
        classes.fold(PriorityClasses::by(&file.attribute), |priority, (name, floor)| priority.class(name, floor.0))
    }
}

impl Serialize for PriorityFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.classes.len()))?;
        map.serialize_entry(ATTRIBUTE, &self.attribute)?;
        self.classes.iter().try_for_each(|(name, floor)| map.serialize_entry(name, floor))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for PriorityFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PriorityFile, D::Error> {
        struct AttributeAndClasses;

        impl<'de> Visitor<'de> for AttributeAndClasses {
            type Value = PriorityFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with attribute, and a floor for each of its values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PriorityFile, A::Error> {
                let (mut attribute, mut classes) = (None, Vec::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == ATTRIBUTE {
                        attribute = Some(map.next_value()?);
                    } else {
                        classes.push((name, map.next_value()?));
                    }
                }
                match attribute {
                    Some(attribute) if !classes.is_empty() => Ok(PriorityFile { attribute, classes }),
                    Some(_) => Err(A::Error::custom("give at least one class its floor, such as low = \"50%\"")),
                    None => Err(A::Error::custom("say which attribute has the class: attribute = \"priority\"")),
                }
            }
        }

        deserializer.deserialize_map(AttributeAndClasses)
    }
}

#[cfg(test)]
impl JsonSchema for PriorityFile {
    fn schema_name() -> Cow<'static, str> {
        "Priority".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An attribute, and for each of its values how much is left to others.",
            "type": "object",
            "properties": { ATTRIBUTE: { "type": "string", "description": "The attribute whose value is the class." } },
            "required": [ATTRIBUTE],
            "minProperties": 2,
            "additionalProperties": generator.subschema_for::<Words<Floor>>(),
        })
    }
}
