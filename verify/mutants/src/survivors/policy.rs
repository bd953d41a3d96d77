//! Those of policies, and of what they are made of.

use super::Survivor;

const BITS: &str = "No length is above that of an address.";
const NAMES: &str = "A shortcut: both ways find the same.";
const INDEX: &str = "A hint: whichever rules the index finds too many, all of their conditions are tried.";
const ROOM: &str = "How much room is asked for beforehand.";
const WITHIN: &str = "A piece may be told of more than once.";

pub const SURVIVORS: &[Survivor] = &[
    Survivor {
        file: "policy/values.rs",
        function: "Attributes::number",
        from: "if self.names.len() > FEW_NAMES {",
        to: &["if true {", "if false {"],
        why: NAMES,
    },
    Survivor {
        file: "policy/values.rs",
        function: "Attributes::number",
        from: "self.names.len() > FEW_NAMES",
        to: &["self.names.len() >= FEW_NAMES", "self.names.len() <= FEW_NAMES"],
        why: NAMES,
    },
    Survivor {
        file: "policy/history.rs",
        function: "History::changed",
        from: "Some(successor) if rule == *successor => {}",
        to: &["Some(successor) if false => {}"],
        why: "A shortcut: a rule that succeeds itself leaves nothing behind.",
    },
    Survivor {
        file: "policy/history.rs",
        function: "History::number",
        from: "self.serials += 1;",
        to: &["self.serials += 2;"],
        why: "Any other number does.",
    },
    Survivor {
        file: "policy/network.rs",
        function: "first_bits",
        from: "let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);",
        to: &["let mask = u32::MAX.checked_shl(32 - u32::from(length.min(33))).unwrap_or(0);"],
        why: BITS,
    },
    Survivor {
        file: "policy/network.rs",
        function: "first_bits",
        from: "let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);",
        to: &["let mask = u128::MAX.checked_shl(128 - u32::from(length.min(129))).unwrap_or(0);"],
        why: BITS,
    },
    Survivor {
        file: "policy/rule.rs",
        function: "KeyAttribute::new",
        from: "KeyAttribute { names, ignores_case: false, is_address: false, ipv4_bits: 32, ipv6_bits: 64 }",
        to: &["KeyAttribute { names, ignores_case: false, is_address: false, ipv4_bits: 33, ipv6_bits: 64 }"],
        why: "All of an address is no more than there is of it.",
    },
    Survivor {
        file: "policy/rule.rs",
        function: "KeyAttribute::by_network",
        from: "(self.is_address, self.ipv4_bits, self.ipv6_bits) = (true, ipv4_bits.min(32), ipv6_bits.min(128));",
        to: &[
            "(self.is_address, self.ipv4_bits, self.ipv6_bits) = (true, ipv4_bits.min(33), ipv6_bits.min(128));",
            "(self.is_address, self.ipv4_bits, self.ipv6_bits) = (true, ipv4_bits.min(32), ipv6_bits.min(129));",
        ],
        why: "All of an address is no more than there is of it.",
    },
    Survivor {
        file: "request/key.rs",
        function: "Writer::push",
        from: "if self.heap.is_empty() {",
        to: &["if false {"],
        why: "A shortcut: bytes are the same on the heap.",
    },
    Survivor {
        file: "policy/compile.rs",
        function: "Maker::meter",
        from: "if number == next {",
        to: &["if true {"],
        why: "No request has the number of such a meter.",
    },
    Survivor {
        file: "policy/compile.rs",
        function: "Maker::former",
        from: "if places.is_empty() {",
        to: &["if false {"],
        why: "A shortcut: of no place no former limit is found.",
    },
    Survivor {
        file: "policy/compiled.rs",
        function: "Direct::find",
        from: "if self.has_former {",
        to: &["if true {"],
        why: "A shortcut: where there are none, none are found.",
    },
    Survivor {
        file: "policy/compiled.rs",
        function: "Direct::find",
        from: "if self.has_attributes {",
        to: &["if true {"],
        why: "A shortcut: where there are none, none are found.",
    },
    Survivor {
        file: "policy/compiled_rule.rs",
        function: "CompiledRule::key_of",
        from: "let mut parts: Vec<KeyPart<'_>> = Vec::with_capacity(2 * attributes.len() + 1);",
        to: &[
            "let mut parts: Vec<KeyPart<'_>> = Vec::with_capacity(3 * attributes.len() + 1);",
            "let mut parts: Vec<KeyPart<'_>> = Vec::with_capacity(1 * attributes.len() + 1);",
            "let mut parts: Vec<KeyPart<'_>> = Vec::with_capacity(2 * attributes.len() + 2);",
            "let mut parts: Vec<KeyPart<'_>> = Vec::with_capacity(2 * attributes.len() + 0);",
        ],
        why: ROOM,
    },
    Survivor {
        file: "policy/compiled_rule.rs",
        function: "CompiledRule::special",
        from: "if self.has_specials() { self.specials(values).next() } else { None }",
        to: &["if true { self.specials(values).next() } else { None }"],
        why: "A shortcut: where there are none, none are found.",
    },
    Survivor {
        file: "policy/history.rs",
        function: "places",
        from: "let mut places = HashMap::with_capacity(1 + rule.overrides.len() + rule.tiers.len());",
        to: &[
            "let mut places = HashMap::with_capacity(2 + rule.overrides.len() + rule.tiers.len());",
            "let mut places = HashMap::with_capacity(0 + rule.overrides.len() + rule.tiers.len());",
        ],
        why: ROOM,
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::new",
        from: "rules.iter().flatten().for_each(|piece| *uses.entry(*piece).or_default() += 1);",
        to: &[
            "rules.iter().flatten().for_each(|piece| *uses.entry(*piece).or_default() += 2);",
            "rules.iter().flatten().for_each(|piece| *uses.entry(*piece).or_default() += 0);",
        ],
        why: "A hint: whichever pieces are the first of a set, the same sets are found.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::new",
        from: "rarest.sort_unstable_by_key(|(of, uses)| (*uses, Reverse(of.1.text.len()), *of));",
        to: &[""],
        why: "A hint: whichever pieces are the first of a set, the same sets are found.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::new",
        from: "set.truncate(MAX_PIECES);",
        to: &[""],
        why: INDEX,
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::candidates",
        from: "if self.by_attribute.is_empty() {",
        to: &["if false {"],
        why: "A shortcut: the sets without pieces are those of all rules.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::subsets",
        from: "if letters.len() < pieces.len() {",
        to: &["if true {", "if false {"],
        why: NAMES,
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::subsets",
        from: "letters.len() < pieces.len()",
        to: &["letters.len() <= pieces.len()", "letters.len() >= pieces.len()"],
        why: NAMES,
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::subsets",
        from: "self.subsets(child, &pieces[place + 1..], rules);",
        to: &["self.subsets(child, &pieces[place + 0..], rules);"],
        why: "No piece is in a set twice. It reads so in both branches, and neither makes a difference.",
    },
    Survivor {
        file: "policy/pieces.rs",
        function: "Piece::is_whole",
        from: "the whole body",
        to: &["{ false }"],
        why: "A shortcut: the automaton finds whole values as well.",
    },
    Survivor {
        file: "policy/pieces.rs",
        function: "Pieces::find",
        from: "if !self.whole.is_empty() {",
        to: &["if true {"],
        why: "A shortcut: where there are none, none are found.",
    },
    Survivor {
        file: "policy/pieces.rs",
        function: "Automaton::new",
        from: "let (piece, ending) = word.map_or((0, longest), |word| (numbers[word], child));",
        to: &["let (piece, ending) = word.map_or((1, longest), |word| (numbers[word], child));"],
        why: "Only the pieces of nodes that have one are read.",
    },
    Survivor {
        file: "policy/pieces.rs",
        function: "Automaton::find",
        from: "if node != last {",
        to: &["if true {"],
        why: WITHIN,
    },
    Survivor { file: "policy/pieces.rs", function: "Automaton::find", from: "last = node;", to: &[""], why: WITHIN },
    Survivor {
        file: "policy/trie.rs",
        function: "Trie::child",
        from: "if node == ROOT {",
        to: &["if false {"],
        why: "A shortcut: the children of the root are found among its letters as well.",
    },
];
