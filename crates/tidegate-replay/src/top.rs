//! The most frequent of many, in bounded memory: the space-saving sketch of
//! Metwally, Agrawal and El Abbadi (2005).
//!
//! What is not counted yet takes the place of the one with the least count,
//! and inherits it as its error. Whatever makes up more than one in
//! `capacity` of all that is counted is always there.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Counts, the largest first, of at most so many items.
///
/// ```
/// use tidegate_replay::Top;
///
/// let mut top = Top::new(2);
/// for word in ["a", "b", "a", "c", "a"] {
///     top.count(word.as_bytes()[0].into(), || word);
/// }
/// let first = top.iter().next().expect("something was counted");
/// assert_eq!((first.item, first.count, first.error), ("a", 3, 0));
/// ```
#[derive(Debug)]
pub struct Top<T> {
    capacity: usize,
    /// Largest count first.
    entries: Vec<Counted<T>>,
    /// Where the entry of a hash is.
    places: HashMap<u64, usize, RandomState>,
}

/// An item, and how often it was there.
#[derive(Clone, Debug)]
pub struct Counted<T> {
    /// What was counted.
    pub item: T,
    /// How often, at most.
    pub count: u64,
    /// By how much that may be too high.
    pub error: u64,
    hash: u64,
}

impl<T> Top<T> {
    /// Counts `capacity` items at a time.
    #[must_use]
    pub fn new(capacity: usize) -> Top<T> {
        Top { capacity: capacity.max(1), entries: Vec::new(), places: HashMap::default() }
    }

    /// Counts an item, by a hash that no other item has; the item itself is
    /// made only if it is not there yet.
    pub fn count(&mut self, hash: u64, item: impl FnOnce() -> T) {
        let place = match self.places.get(&hash) {
            Some(place) => *place,
            None => self.take_place(hash, item()),
        };
        // The first of those with the same count is as good a place, and there
        // it can grow without passing anyone.
        let count = self.entries[place].count;
        let first = self.entries.partition_point(|entry| entry.count > count);
        self.entries.swap(place, first);
        self.places.insert(self.entries[place].hash, place);
        self.places.insert(hash, first);
        self.entries[first].count += 1;
    }

    /// A place at the end, with the count of its former item.
    fn take_place(&mut self, hash: u64, item: T) -> usize {
        let last = match self.entries.last() {
            Some(last) if self.entries.len() >= self.capacity => {
                let (count, gone) = (last.count, last.hash);
                self.places.remove(&gone);
                self.entries.pop();
                count
            }
            _ => 0,
        };
        self.entries.push(Counted { item, count: last, error: last, hash });
        self.entries.len() - 1
    }

    /// All that are counted, the most frequent first.
    pub fn iter(&self) -> impl Iterator<Item = &Counted<T>> {
        self.entries.iter()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tidegate_testkit::Random;

    use super::*;

    #[test]
    fn counts_are_exact_while_there_is_room_and_bounded_beyond() {
        let mut random = Random::new(3);
        for (kinds, capacity) in [(20, 50), (50, 50), (500, 50), (100_000, 50)] {
            let (mut top, mut truth) = (Top::new(capacity), HashMap::<u64, u64>::new());
            for _ in 0..20_000 {
                let item = random.magnitude(1..=kinds);
                top.count(item, || item);
                *truth.entry(item).or_default() += 1;
            }
            assert!(top.iter().count() <= capacity);
            assert!(top.iter().is_sorted_by(|one, next| one.count >= next.count));
            for entry in top.iter() {
                let true_count = truth[&entry.item];
                assert!(entry.count - entry.error <= true_count && true_count <= entry.count);
                assert!(kinds > capacity as u64 || entry.error == 0);
            }
            let frequent = truth.iter().filter(|(_, count)| **count > 20_000 / capacity as u64);
            for (item, count) in frequent {
                assert!(top.iter().any(|entry| entry.item == *item), "{item}, {count} times, is missing");
            }
        }
    }
}
