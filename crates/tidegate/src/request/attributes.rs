//! What else is known of a request: a few named values.

use super::key::{KeyPart, Part};

/// Named values, in the order in which they were given; the last of a name counts.
#[derive(Clone, Debug, Default)]
pub(crate) enum Attributes<'a> {
    #[default]
    None,
    /// Enough for most, without an allocation and with nothing to free.
    Few {
        list: [(&'a str, Part<'a>); FEW],
        count: usize,
    },
    Many(Vec<(&'a str, KeyPart<'a>)>),
}

const FEW: usize = 4;
const EMPTY: (&str, Part<'static>) = ("", Part::Number(0));

impl<'a> Attributes<'a> {
    /// One value.
    #[inline(always)]
    pub(crate) fn of(name: &'a str, value: KeyPart<'a>) -> Attributes<'a> {
        match value.borrowed() {
            Some(value) => Attributes::Few { list: [(name, value), EMPTY, EMPTY, EMPTY], count: 1 },
            None => Attributes::Many(vec![(name, value)]),
        }
    }

    /// The value of a name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<Part<'_>> {
        match self {
            Attributes::None => None,
            Attributes::Few { list, count } => {
                list[..*count].iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
            }
            Attributes::Many(many) => {
                many.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_part())
            }
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, name: &'a str, value: KeyPart<'a>) {
        match (&mut *self, value.borrowed()) {
            (Attributes::None, Some(_)) => *self = Attributes::of(name, value),
            (Attributes::Few { list, count }, Some(value)) if *count < FEW => {
                list[*count] = (name, value);
                *count += 1;
            }
            (_, _) => self.add_to_many(name, value),
        }
    }

    #[cold]
    fn add_to_many(&mut self, name: &'a str, value: KeyPart<'a>) {
        let mut many = match std::mem::take(self) {
            Attributes::None => Vec::new(),
            Attributes::Few { list, count } => {
                list[..count].iter().map(|(name, value)| (*name, KeyPart::from(*value))).collect()
            }
            Attributes::Many(many) => many,
        };
        many.push((name, value));
        *self = Attributes::Many(many);
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a str, Part<'_>)> {
        let few = if let Attributes::Few { list, count } = self { &list[..*count] } else { &[] };
        let many = if let Attributes::Many(many) = self { many.as_slice() } else { &[] };
        few.iter().copied().chain(many.iter().map(|(name, value)| (*name, value.as_part())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_kept_in_order_however_many_there_are_owned_or_not() {
        let names = ["a", "b", "c", "d", "e", "f"];
        for owned in 0..=names.len() {
            let mut attributes = Attributes::default();
            for (number, name) in names.into_iter().enumerate() {
                let value = (number as u64).to_string();
                attributes.add(name, if number == owned { value.into() } else { (number as u64).into() });
                let known: Vec<&str> = attributes.iter().map(|(name, _)| name).collect();
                assert_eq!(known, names[..=number]);
            }
            for (number, (name, value)) in attributes.iter().enumerate() {
                value.with_bytes(|bytes| assert_eq!(bytes, number.to_string().as_bytes(), "{owned}"));
                assert_eq!(attributes.get(name), Some(value));
            }
        }
    }

    #[test]
    fn four_borrowed_values_need_no_allocation_and_the_last_of_a_name_counts() {
        let mut attributes = Attributes::default();
        assert_eq!(attributes.get("a"), None);
        for number in 0..FEW as u64 {
            attributes.add("a", number.into());
            assert!(matches!(attributes, Attributes::Few { .. }));
            assert_eq!((attributes.get("a"), attributes.get("b")), (Some(Part::Number(number)), None));
        }
        attributes.add("a", "last".into());
        assert!(matches!(attributes, Attributes::Many(_)));
        assert_eq!((attributes.get("a"), attributes.get("b")), (Some(Part::Bytes(b"last")), None));
    }
}
