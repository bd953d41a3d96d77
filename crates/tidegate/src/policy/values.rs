//! The attributes that a policy knows, and the values that a request has of them.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::condition::address;
use crate::request::Part;
use crate::store::CheckError;

/// The attributes that a policy knows, by number.
pub(super) type Attribute = u16;

/// The names of attributes, and their numbers.
#[derive(Default)]
pub(super) struct AttributeNames {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, Attribute, RandomState>,
    /// Those that are addresses.
    addresses: Vec<Attribute>,
}

/// Names that are found sooner by trying each than by a hash.
const FEW_NAMES: usize = 8;

impl AttributeNames {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn add(&mut self, name: &str, number: Attribute) {
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
    }

    pub(super) fn mark_addresses(&mut self, names: &[&str]) {
        self.addresses = names.iter().filter_map(|name| self.number(name)).collect();
    }

    /// An address as the policy uses it: an IPv4-mapped IPv6 address is its IPv4 address.
    pub(super) fn address<'r>(&self, attribute: Attribute, value: Part<'r>) -> Result<Part<'r>, CheckError> {
        let error = || CheckError::NotAnAddress {
            attribute: self.name(attribute).into(),
            value: value.with_bytes(|bytes| String::from_utf8_lossy(bytes).into()),
        };
        Ok(Part::Address(address(value).ok_or_else(error)?.to_canonical()))
    }

    pub(super) fn is_address(&self, attribute: Attribute) -> bool {
        self.addresses.contains(&attribute)
    }

    pub(super) fn name(&self, number: Attribute) -> &str {
        self.names.get(usize::from(number)).map_or("", |name| name)
    }

    pub(super) fn number(&self, name: &str) -> Option<Attribute> {
        if self.names.len() > FEW_NAMES {
            return self.numbers.get(name).copied();
        }
        self.names.iter().position(|known| **known == *name).map(|number| number as Attribute)
    }
}

/// The values of a request, by the numbers of their attributes.
pub(super) struct Values<'r> {
    values: [Option<Part<'r>>; INLINE],
    more: Vec<Option<Part<'r>>>,
}

/// Attributes of a policy that need no allocation.
const INLINE: usize = 8;

impl<'r> Values<'r> {
    pub(super) fn new(known: usize) -> Values<'r> {
        Values { values: [None; INLINE], more: vec![None; known.saturating_sub(INLINE)] }
    }

    pub(super) fn set(&mut self, attribute: Attribute, value: Part<'r>) {
        let number = usize::from(attribute);
        match number.checked_sub(INLINE) {
            None => self.values[number] = Some(value),
            Some(number) => self.more[number] = Some(value),
        }
    }

    #[inline]
    pub(super) fn find(&self, attribute: Attribute) -> Option<&Part<'r>> {
        let number = usize::from(attribute);
        match number.checked_sub(INLINE) {
            None => self.values[number].as_ref(),
            Some(number) => self.more[number].as_ref(),
        }
    }

    pub(super) fn get(&self, attribute: Attribute) -> Option<Part<'r>> {
        self.find(attribute).copied()
    }

    /// Those that are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Attribute, Part<'r>)> {
        let all = self.values.iter().chain(&self.more).enumerate();
        all.filter_map(|(number, value)| Some((number as Attribute, (*value)?)))
    }
}
