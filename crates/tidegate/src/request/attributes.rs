//! What else is known of a request: a few named values.

use super::key::KeyPart;

/// Named values, in the order in which they were given; the last of a name counts.
#[derive(Clone, Debug, Default)]
pub(crate) enum Attributes<'a> {
    #[default]
    None,
    /// Enough for most, without an allocation.
    Few {
        list: [Attribute<'a>; FEW],
        count: usize,
    },
    Many(Vec<Attribute<'a>>),
}

type Attribute<'a> = (&'a str, KeyPart<'a>);

const FEW: usize = 4;
const EMPTY: Attribute<'static> = ("", KeyPart::Number(0));

impl<'a> Attributes<'a> {
    pub(crate) fn add(&mut self, name: &'a str, value: KeyPart<'a>) {
        match self {
            Attributes::None => {
                let mut list = [EMPTY; FEW];
                list[0] = (name, value);
                *self = Attributes::Few { list, count: 1 };
            }
            Attributes::Few { list, count } if *count < FEW => {
                list[*count] = (name, value);
                *count += 1;
            }
            Attributes::Few { list, .. } => {
                let mut many = list.to_vec();
                many.push((name, value));
                *self = Attributes::Many(many);
            }
            Attributes::Many(many) => many.push((name, value)),
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Attribute<'a>> {
        let list: &[Attribute<'a>] = match self {
            Attributes::None => &[],
            Attributes::Few { list, count } => &list[..*count],
            Attributes::Many(many) => many,
        };
        list.iter()
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
            attributes.add(name, KeyPart::Number(number as u64));
            let known: Vec<&str> = attributes.iter().map(|(name, _)| *name).collect();
            assert_eq!(known, names[..=number]);
        }
    }
}
