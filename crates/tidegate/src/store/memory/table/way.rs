//! Room for a key of a restored store, by as many moves as it takes.
//!
//! A check moves one key at most. A store that was full when its snapshot was
//! taken cannot be filled that way again, in whatever order: so here the keys
//! of a block move along until one of them comes to a free slot. If all of
//! them fit once, they do again.

use super::{Place, Table};

/// What a free slot holds: in a store that is being restored, all
/// others are in use.
const FREE: u64 = 0;

impl<const STATE: usize> Table<STATE> {
    /// Sees that a line of the key has a free slot, if there is any way to it.
    pub(in crate::store::memory) fn make_way(&self, fingerprint: u64) {
        let home = self.home(fingerprint);
        // Lines from which a free slot would help, each with the place in this
        // list and the slot that would be free then.
        let mut reached = vec![(home.line, None), (self.other(home).line, None)];
        let mut place = 0;
        while let Some((number, _)) = reached.get(place).copied() {
            let line = self.lock(number);
            if Self::oldest(&line).1 == FREE {
                drop(line);
                return self.move_along(&reached, place);
            }
            for slot in 0..Self::SLOTS {
                let other = self.other(Place { line: number, tag: Self::tag(&line, slot) }).line;
                if reached.iter().all(|(known, _)| *known != other) {
                    reached.push((other, Some((place, slot))));
                }
            }
            place += 1;
        }
    }

    /// Moves one key after the other, the last one first, into what is free.
    fn move_along(&self, reached: &[(usize, Option<(usize, usize)>)], last: usize) {
        let mut place = last;
        while let Some((before, slot)) = reached[place].1 {
            let number = reached[before].0;
            let line = self.lock(number);
            if !self.move_away(&line, number, slot, FREE) {
                return;
            }
            Self::vacate(&line, slot);
            place = before;
        }
    }
}
