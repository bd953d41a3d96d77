//! Which of many pieces of text occur in a value: all of them are looked for at
//! once, in time linear in the length of the value.
//!
//! Pieces of whole values are found by their hash. For all others, this is the
//! automaton of Aho and Corasick. Its letters are bytes, and one more at either
//! end of a value for the pieces that stand there.

use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;

use super::trie::{ROOT, Trie};

/// A text that occurs in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Piece<'p> {
    pub(super) text: &'p str,
    /// Whether it stands at the start of the value.
    pub(super) at_start: bool,
    /// Whether it stands at the end of the value.
    pub(super) at_end: bool,
}

/// The letter before a value.
const START: u32 = 256;
/// The letter after a value.
const END: u32 = 257;

impl<'p> Piece<'p> {
    /// The piece that occurs in every value.
    pub(super) const ANY: Piece<'static> = Piece::prefix("");

    pub(super) const fn whole(text: &'p str) -> Piece<'p> {
        Piece { text, at_start: true, at_end: true }
    }

    pub(super) const fn prefix(text: &'p str) -> Piece<'p> {
        Piece { text, at_start: true, at_end: false }
    }

    fn is_whole(&self) -> bool {
        self.at_start && self.at_end
    }

    fn letters(&self) -> Vec<u32> {
        let start = self.at_start.then_some(START).into_iter();
        start.chain(self.text.bytes().map(u32::from)).chain(self.at_end.then_some(END)).collect()
    }
}

/// Pieces to look for, each with its number.
#[derive(Default)]
pub(super) struct Pieces {
    whole: HashMap<Box<[u8]>, u32, RandomState>,
    automaton: Option<Automaton>,
}

impl Pieces {
    pub(super) fn new(pieces: &[(Piece<'_>, u32)]) -> Pieces {
        let (whole, others): (Vec<_>, Vec<_>) = pieces.iter().partition(|(piece, _)| piece.is_whole());
        let whole = whole.into_iter().map(|(piece, number)| (piece.text.as_bytes().into(), number)).collect();
        let others: Vec<_> = others.into_iter().map(|(piece, number)| (piece.letters(), number)).collect();
        Pieces { whole, automaton: (!others.is_empty()).then(|| Automaton::new(others)) }
    }

    /// Calls `found` with the number of each piece that occurs in the value, more
    /// than once for some.
    pub(super) fn find(&self, value: &[u8], mut found: impl FnMut(u32)) {
        if !self.whole.is_empty() {
            self.whole.get(value).copied().into_iter().for_each(&mut found);
        }
        if let Some(automaton) = &self.automaton {
            automaton.find(value, found);
        }
    }
}

struct Automaton {
    trie: Trie,
    nodes: Vec<Node>,
    /// Whether all pieces stand at the start.
    only_at_start: bool,
}

/// What is known where the letters that were read last are those of a node.
#[derive(Clone, Copy, Default)]
struct Node {
    /// The piece that ends here, if one does.
    piece: u32,
    /// The node of the longest end of these letters that is a node too.
    shorter: u32,
    /// The node of the longest end of these letters that is a piece, itself
    /// included; the root if there is none.
    ending: u32,
}

impl Automaton {
    fn new(mut pieces: Vec<(Vec<u32>, u32)>) -> Automaton {
        pieces.sort_unstable();
        let (words, numbers): (Vec<Vec<u32>>, Vec<u32>) = pieces.into_iter().unzip();
        let trie = Trie::new(&words);
        let mut automaton = Automaton {
            only_at_start: trie.letters(ROOT) == [START],
            nodes: vec![Node::default(); trie.len() as usize],
            trie,
        };
        // By depth: what is shorter is known.
        for node in ROOT..automaton.trie.len() {
            for (child, letter) in automaton.trie.children(node).zip(automaton.trie.letters(node)) {
                let shorter = match node {
                    ROOT => ROOT,
                    _ => automaton.next(automaton.nodes[node as usize].shorter, *letter),
                };
                let longest = automaton.nodes[shorter as usize].ending;
                let word = automaton.trie.words(child).next();
                let (piece, ending) = word.map_or((0, longest), |word| (numbers[word], child));
                automaton.nodes[child as usize] = Node { piece, shorter, ending };
            }
        }
        automaton
    }

    /// The node after one more letter.
    #[inline(always)]
    fn next(&self, mut node: u32, letter: u32) -> u32 {
        loop {
            let child = self.trie.child(node, letter);
            if child != ROOT || node == ROOT {
                return child;
            }
            node = self.nodes[node as usize].shorter;
        }
    }

    fn find(&self, value: &[u8], mut found: impl FnMut(u32)) {
        if self.only_at_start {
            return self.find_prefixes(value, found);
        }
        let (mut node, mut letter, mut rest) = (ROOT, START, value.iter());
        // Pieces within those that were found.
        let mut within = BinaryHeap::new();
        loop {
            node = self.next(node, letter);
            let ending = self.nodes[node as usize].ending;
            if ending != ROOT {
                found(self.nodes[ending as usize].piece);
                within.extend(self.within(ending));
            }
            if letter == END {
                break;
            }
            letter = rest.next().map_or(END, |byte| u32::from(*byte));
        }
        // The deepest come first, so each is looked at once however many end in it.
        let mut last = ROOT;
        while let Some(node) = within.pop() {
            if node != last {
                found(self.nodes[node as usize].piece);
                within.extend(self.within(node));
                last = node;
            }
        }
    }

    /// [`find`](Automaton::find) where all pieces stand at the start: those that the value begins
    /// with lie on one way from the root.
    fn find_prefixes(&self, value: &[u8], mut found: impl FnMut(u32)) {
        let mut node = self.trie.child(ROOT, START);
        let mut rest = value.iter();
        while node != ROOT {
            let Node { piece, ending, .. } = self.nodes[node as usize];
            if ending == node {
                found(piece);
            }
            node = rest.next().map_or(ROOT, |byte| self.trie.child(node, u32::from(*byte)));
        }
    }

    /// The node of the longest piece that ends as the piece of this node does.
    fn within(&self, node: u32) -> Option<u32> {
        let shorter = self.nodes[node as usize].shorter;
        Some(self.nodes[shorter as usize].ending).filter(|ending| *ending != ROOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_that_occur_are_found_and_no_others() {
        let within = |text| Piece { text, at_start: false, at_end: false };
        let suffix = |text| Piece { text, at_start: false, at_end: true };
        let pieces = [
            within("x"),
            within("cab"),
            within("ab"),
            within("b"),
            suffix("ab"),
            suffix("b"),
            Piece::prefix("ca"),
            Piece::prefix(""),
            Piece::whole("cab"),
            Piece::whole(""),
        ];
        let numbered: Vec<(Piece<'_>, u32)> = pieces.into_iter().zip(0..).collect();
        let prefixes = ["c", "ca", "cabx", "x"].map(Piece::prefix);
        let prefixes: Vec<(Piece<'_>, u32)> = prefixes.into_iter().chain([Piece::whole("cab")]).zip(0..).collect();
        for numbered in [numbered, prefixes] {
            finds_each(&numbered);
        }
    }

    fn finds_each(numbered: &[(Piece<'_>, u32)]) {
        let known = Pieces::new(numbered);
        for value in ["", "a", "b", "ab", "c", "ca", "cab", "ccab", "caba", "bcab", "x", "cabx", "cabxy"] {
            let occurs = |(Piece { text, at_start, at_end }, _): &&(Piece<'_>, u32)| match (*at_start, *at_end) {
                (true, true) => value == *text,
                (true, false) => value.starts_with(text),
                (false, true) => value.ends_with(text),
                (false, false) => value.contains(text),
            };
            let expected: Vec<u32> = numbered.iter().filter(occurs).map(|(_, number)| *number).collect();
            let mut found = Vec::new();
            known.find(value.as_bytes(), |number| found.push(number));
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, expected, "{value:?}");
        }
    }
}
