//! JSON objects that are objects: serde would take `["alice", 3]` for one as
//! well, by the order of its fields.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// What may only come as an object.
pub(crate) trait Shape {
    /// What is expected, for those who wrote something else.
    const EXPECTED: &'static str;
}

/// A value that came as an object.
#[derive(Debug)]
pub(crate) struct FromObject<T>(pub(crate) T);

impl<'de, T: Shape + Deserialize<'de>> Deserialize<'de> for FromObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FromObject<T>, D::Error> {
        struct ObjectOf<T>(PhantomData<T>);

        impl<'de, T: Shape + Deserialize<'de>> Visitor<'de> for ObjectOf<T> {
            type Value = FromObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<FromObject<T>, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(FromObject)
            }
        }

        deserializer.deserialize_map(ObjectOf(PhantomData))
    }
}
