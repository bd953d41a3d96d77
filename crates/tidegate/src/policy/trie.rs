//! Words in a tree, in flat arrays: words that begin alike share nodes.

use std::ops::Range;

pub(super) struct Trie {
    /// The last letter of each node. Nodes are ordered by their depth, then by
    /// their words, so the children of a node are neighbours, in order.
    letters: Vec<u32>,
    /// The first child of each node, and where the last node's children end.
    children: Vec<u32>,
    /// The children of the root by their letters, the root where there is none:
    /// it may have very many, and is asked most often.
    roots: Vec<u32>,
    /// The words that end in each node, as they were given.
    words: Vec<Range<u32>>,
}

/// The node of the empty word.
pub(super) const ROOT: u32 = 0;

impl Trie {
    /// A trie of words that are in order.
    pub(super) fn new(words: &[Vec<u32>]) -> Trie {
        let mut trie = Trie { letters: vec![0], children: Vec::new(), roots: Vec::new(), words: Vec::new() };
        // The words that begin with each node, and its depth.
        let mut nodes = vec![(0..words.len(), 0)];
        while let Some((Range { start, end }, depth)) = nodes.get(trie.words.len()).cloned() {
            let longer = start + words[start..end].partition_point(|word| word.len() == depth);
            trie.words.push(start as u32..longer as u32);
            trie.children.push(nodes.len() as u32);
            let mut first = longer;
            for alike in words[longer..end].chunk_by(|one, next| one[depth] == next[depth]) {
                trie.letters.push(alike[0][depth]);
                nodes.push((first..first + alike.len(), depth + 1));
                first += alike.len();
            }
        }
        trie.children.push(nodes.len() as u32);
        trie.roots = vec![ROOT; trie.letters(ROOT).last().map_or(0, |last| *last as usize + 1)];
        for child in trie.children(ROOT) {
            trie.roots[trie.letters[child as usize] as usize] = child;
        }
        trie
    }

    pub(super) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    /// The words that end in a node.
    pub(super) fn words(&self, node: u32) -> Range<usize> {
        let Range { start, end } = self.words[node as usize];
        start as usize..end as usize
    }

    /// The children of a node.
    #[inline]
    pub(super) fn children(&self, node: u32) -> Range<u32> {
        self.children[node as usize]..self.children[node as usize + 1]
    }

    /// The letters of the children of a node, in order.
    #[inline]
    pub(super) fn letters(&self, node: u32) -> &[u32] {
        let Range { start, end } = self.children(node);
        &self.letters[start as usize..end as usize]
    }

    /// The child of a node by its letter; the root if there is none.
    #[inline]
    pub(super) fn child(&self, node: u32, letter: u32) -> u32 {
        if node == ROOT {
            return self.roots.get(letter as usize).copied().unwrap_or(ROOT);
        }
        let Range { start, end } = self.children(node);
        match &self.letters[start as usize..end as usize] {
            [only] if *only == letter => start,
            [] | [_] => ROOT,
            letters => letters.binary_search(&letter).map_or(ROOT, |place| start + place as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_where_its_letters_lead() {
        let words = ["", "", "a", "ab", "ab", "abc", "b", "ca"];
        let letters = words.map(|word| word.bytes().map(u32::from).collect());
        let trie = Trie::new(&letters);
        assert_eq!(trie.len(), 7, "the root, a, b, c, ab, ca, abc");
        for word in words.into_iter().chain(["c", "abcd", "bb", "z"]) {
            let next = |node, letter: u8| Some(trie.child(node, letter.into())).filter(|child| *child != ROOT);
            let node = word.bytes().try_fold(ROOT, next);
            let found = node.map(|node| &words[trie.words(node)]).unwrap_or_default();
            let same: Vec<&str> = words.into_iter().filter(|other| *other == word).collect();
            assert_eq!(found, same, "{word:?}");
        }
    }
}
