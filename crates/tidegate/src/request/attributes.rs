//! What else is known of a request: a few named values.

use super::key::KeyPart;

/// Named values, in the order in which they were given; the last of a name counts.
#[derive(Clone, Debug, Default)]
pub(crate) enum Attributes<'a> {
    #[default]
    None,
    /// Enough for most, without an allocation.
    Few([Option<Attribute<'a>>; 4]),
    Many(Vec<Attribute<'a>>),
}

type Attribute<'a> = (&'a str, KeyPart<'a>);

impl<'a> Attributes<'a> {
    pub(crate) fn add(&mut self, name: &'a str, value: KeyPart<'a>) {
        match self {
            Attributes::None => *self = Attributes::Few([Some((name, value)), None, None, None]),
            Attributes::Few(list) => match list.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = Some((name, value)),
                None => {
                    let list = std::mem::take(list).into_iter().flatten();
                    *self = Attributes::Many(list.chain([(name, value)]).collect());
                }
            },
            Attributes::Many(many) => many.push((name, value)),
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Attribute<'a>> {
        let (few, many): (&[Option<Attribute<'a>>], &[Attribute<'a>]) = match self {
            Attributes::None => (&[], &[]),
            Attributes::Few(few) => (few, &[]),
            Attributes::Many(many) => (&[], many),
        };
        few.iter().flatten().chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_kept_in_order_however_many_there_are() {
        let mut attributes = Attributes::default();
        let names = ["a", "b", "c", "d", "e", "f"];
        for (number, name) in names.into_iter().enumerate() {
            attributes.add(name, (number as u64).into());
            let known: Vec<&str> = attributes.iter().map(|(name, _)| *name).collect();
            assert_eq!(known, names[..=number]);
        }
    }
}
