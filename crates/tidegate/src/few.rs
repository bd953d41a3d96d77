//! A short list without an allocation; a longer one with.

/// Copies of some values, mostly few.
pub(crate) enum Few<T> {
    Inline([T; INLINE], usize),
    Heap(Vec<T>),
}

const INLINE: usize = 4;

impl<T: Copy> Few<T> {
    /// So many copies of one value.
    pub(crate) fn filled(value: T, count: usize) -> Few<T> {
        if count <= INLINE { Few::Inline([value; INLINE], count) } else { Few::Heap(vec![value; count]) }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Few::Inline(values, count) => &values[..*count],
            Few::Heap(values) => values,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Few::Inline(values, count) => &mut values[..*count],
            Few::Heap(values) => values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_lists_are_as_long_as_they_should_be() {
        for count in [0, 1, INLINE, INLINE + 1, 100] {
            let mut few = Few::filled(7, count);
            few.as_mut_slice().iter_mut().for_each(|value| *value += 1);
            assert_eq!(few.as_slice(), vec![8; count]);
        }
    }
}
