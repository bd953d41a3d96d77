//! Which rules may apply to a request: found by its values, so that a policy
//! of thousands of rules costs about as much as the few that matter.
//!
//! A condition says which pieces of text occur in a value: the value itself, a
//! prefix, or what stands between the wildcards of a pattern. So a rule is a set
//! of pieces, and a request is one too. A rule may apply if its set is part of
//! the request's. Sets are kept as words, the rarest piece first: a rule is
//! looked at only if its rarest pieces occur.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::condition::Condition;
use super::glob;
use super::pieces::{Piece, Pieces};
use super::trie::{ROOT, Trie};
use super::values::{Attribute, Values};

pub(super) struct Index {
    by_attribute: Vec<(Attribute, Pieces)>,
    /// The sets of pieces, in order.
    sets: Trie,
    /// The rule of each set.
    rules: Vec<usize>,
}

/// Pieces of a rule that are looked for, the rarest ones. More would hardly
/// tell more rules apart.
const MAX_PIECES: usize = 8;

/// Numbers of pieces or rules, few of which need no allocation.
type Numbers<T> = SmallVec<[T; 8]>;

impl Index {
    /// An index of rules with these conditions.
    pub(super) fn new<'c>(rules: impl Iterator<Item = &'c [(Attribute, Condition)]>) -> Index {
        let of_rule = |conditions: &'c [(Attribute, Condition)]| {
            let of = |(attribute, condition)| pieces(condition).into_iter().map(move |piece| (attribute, piece));
            conditions.iter().map(|(attribute, condition)| (*attribute, condition)).flat_map(of).collect()
        };
        let rules: Vec<Vec<(Attribute, Piece<'c>)>> = rules.map(of_rule).collect();
        let mut uses: HashMap<(Attribute, Piece<'c>), usize, RandomState> = HashMap::default();
        rules.iter().flatten().for_each(|piece| *uses.entry(*piece).or_default() += 1);
        let mut rarest: Vec<_> = uses.into_iter().collect();
        rarest.sort_unstable_by_key(|(of, uses)| (*uses, Reverse(of.1.text.len()), *of));
        let numbers: HashMap<_, u32, RandomState> =
            rarest.iter().enumerate().map(|(number, (piece, _))| (*piece, number as u32)).collect();

        let mut by_attribute: BTreeMap<Attribute, Vec<(Piece<'c>, u32)>> = BTreeMap::new();
        for ((attribute, piece), number) in &numbers {
            by_attribute.entry(*attribute).or_default().push((*piece, *number));
        }
        let set = |pieces: &Vec<_>| {
            let mut set: Vec<u32> = pieces.iter().map(|piece| numbers[piece]).collect();
            set.sort_unstable();
            set.dedup();
            set.truncate(MAX_PIECES);
            set
        };
        let mut sets: Vec<(Vec<u32>, usize)> = rules.iter().map(set).zip(0..).collect();
        sets.sort_unstable();
        let (sets, rules): (Vec<Vec<u32>>, Vec<usize>) = sets.into_iter().unzip();
        let by_attribute = by_attribute.iter().map(|(attribute, pieces)| (*attribute, Pieces::new(pieces))).collect();
        Index { by_attribute, sets: Trie::new(&sets), rules }
    }

    /// Calls `try_rule` for each rule that may apply, in the policy's order.
    pub(super) fn candidates(&self, values: &Values<'_>, try_rule: impl FnMut(usize)) {
        if self.by_attribute.is_empty() {
            return self.rules.iter().copied().for_each(try_rule);
        }
        let mut pieces = Numbers::new();
        for (attribute, known) in &self.by_attribute {
            if let Some(value) = values.find(*attribute) {
                value.with_bytes(|bytes| known.find(bytes, |piece| pieces.push(piece)));
            }
        }
        pieces.sort_unstable();
        pieces.dedup();
        let mut rules = Numbers::new();
        self.subsets(ROOT, &pieces, &mut rules);
        rules.sort_unstable();
        rules.into_iter().for_each(try_rule);
    }

    /// Adds the rules of all sets that begin as `node` does and go on with some of
    /// these pieces.
    fn subsets(&self, node: u32, pieces: &[u32], rules: &mut Numbers<usize>) {
        self.rules[self.sets.words(node)].iter().for_each(|rule| rules.push(*rule));
        let (children, letters) = (self.sets.children(node), self.sets.letters(node));
        // The fewer are looked up among the more.
        if letters.len() < pieces.len() {
            for (child, letter) in children.zip(letters) {
                if let Ok(place) = pieces.binary_search(letter) {
                    self.subsets(child, &pieces[place + 1..], rules);
                }
            }
        } else {
            for (place, piece) in pieces.iter().enumerate() {
                let child = self.sets.child(node, *piece);
                if child != ROOT {
                    self.subsets(child, &pieces[place + 1..], rules);
                }
            }
        }
    }
}

/// The conditions that are still to be looked at where the index has found a rule.
pub(super) fn undecided(conditions: &[(Attribute, Condition)]) -> Vec<(Attribute, Condition)> {
    let is_every_piece_found =
        conditions.iter().map(|(_, condition)| pieces(condition).len()).sum::<usize>() <= MAX_PIECES;
    let is_decided = |condition: &Condition| match condition {
        Condition::Equals(_) | Condition::StartsWith(_) | Condition::Present => is_every_piece_found,
        Condition::Matches(_) | Condition::Within(_) | Condition::Absent => false,
    };
    conditions.iter().filter(|(_, condition)| !is_decided(condition)).cloned().collect()
}

/// The pieces that occur in every value for which the condition holds.
fn pieces(condition: &Condition) -> Vec<Piece<'_>> {
    match condition {
        Condition::Equals(value) => vec![Piece::whole(value)],
        Condition::StartsWith(prefix) => vec![Piece::prefix(prefix)],
        Condition::Matches(pattern) => {
            let pieces: Vec<Piece<'_>> = glob::pieces(pattern).collect();
            if pieces.is_empty() { vec![Piece::ANY] } else { pieces }
        }
        Condition::Within(_) | Condition::Present => vec![Piece::ANY],
        Condition::Absent => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_looked_for_by_what_every_value_has_for_which_it_holds() {
        let piece = |text, at_start, at_end| Piece { text, at_start, at_end };
        let any = || vec![piece("", true, false)];
        let cases = [
            (Condition::Equals("a".into()), vec![piece("a", true, true)]),
            (Condition::StartsWith("a".into()), vec![piece("a", true, false)]),
            (Condition::Matches("a*b".into()), vec![piece("a", true, false), piece("b", false, true)]),
            (Condition::Matches("*".into()), any()),
            (Condition::Within("10.0.0.0/8".parse().expect("a network")), any()),
            (Condition::Present, any()),
            (Condition::Absent, vec![]),
        ];
        for (condition, expected) in cases {
            assert_eq!(pieces(&condition), expected, "{condition:?}");
        }
    }

    #[test]
    fn a_condition_holds_by_what_was_found_if_all_of_it_is_looked_for() {
        let patterns = |count: usize| vec![Condition::Matches("a*b".into()); count];
        let decided = [Condition::Equals("a".into()), Condition::StartsWith("a".into()), Condition::Present];
        let open = [Condition::Absent, Condition::Within("10.0.0.0/8".parse().expect("a network"))];
        let of = |conditions: Vec<Condition>| {
            let conditions: Vec<(Attribute, Condition)> = (0..).zip(conditions).collect();
            undecided(&conditions).into_iter().map(|(attribute, _)| attribute).collect::<Vec<Attribute>>()
        };
        // Three pieces that decide, two in each pattern and one in a network: eight are looked for.
        assert_eq!(of([&decided[..], &patterns(2), &open].concat()), [3, 4, 5, 6]);
        assert_eq!(of([&decided[..], &patterns(3), &open].concat()), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
