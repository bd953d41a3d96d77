//! What else is known of a request: a few named values.

use super::key::{KeyPart, Part};

/// Named values, in the order in which they were given; the last of a name counts.
#[derive(Clone, Debug, Default)]
pub(crate) enum Attributes<'a> {
    #[default]
    None,
    /// The user, who is the key of the request as well.
    User([(&'a str, Part<'a>); 1]),
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
    /// The user, who is the key of the request as well.
    #[inline(always)]
    pub(crate) fn user(user: KeyPart<'a>) -> Attributes<'a> {
        match user.borrowed() {
            // A rule by an address may take its network.
            Some(Part::Address(_)) | None => Attributes::None.and("user", user),
            Some(part) => Attributes::User([("user", part)]),
        }
    }

    /// The value of a name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<Part<'_>> {
        if let Attributes::Many(many) = self {
            return many.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_part());
        }
        self.few().iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    #[inline(always)]
    fn few(&self) -> &[(&'a str, Part<'a>)] {
        match self {
            Attributes::None | Attributes::Many(_) => &[],
            Attributes::User(list) => list,
            Attributes::Few { list, count } => &list[..*count],
        }
    }

    fn and(mut self, name: &'a str, value: KeyPart<'a>) -> Attributes<'a> {
        self.add(name, value);
        self
    }

    #[inline]
    pub(crate) fn add(&mut self, name: &'a str, value: KeyPart<'a>) {
        match (&mut *self, value.borrowed()) {
            (Attributes::None, Some(value)) => {
                *self = Attributes::Few { list: [(name, value), EMPTY, EMPTY, EMPTY], count: 1 };
            }
            (Attributes::User([user]), Some(value)) => {
                *self = Attributes::Few { list: [*user, (name, value), EMPTY, EMPTY], count: 2 };
            }
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
            Attributes::Many(many) => many,
            few => few.few().iter().map(|(name, value)| (*name, KeyPart::from(*value))).collect(),
        };
        many.push((name, value));
        *self = Attributes::Many(many);
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a str, Part<'_>)> {
        let many = if let Attributes::Many(many) = self { many.as_slice() } else { &[] };
        self.few().iter().copied().chain(many.iter().map(|(name, value)| (*name, value.as_part())))
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
