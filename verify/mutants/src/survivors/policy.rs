//! Those of policies, and of what they are made of.

use super::Survivor;

/// The number by which the best of a rule's conditions is chosen.
const SELECTIVITY: &str = "A hint: by whichever of its conditions a rule is found, all of them are tried.";
const BITS: &str = "No length is above that of an address.";
const NAMES: &str = "A shortcut: both ways find the same.";

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
        file: "policy/index.rs",
        function: "Index::new",
        from: "match best.filter(|(_, condition)| selectivity(condition) > 0) {",
        to: &["match best.filter(|(_, condition)| selectivity(condition) > 1) {"],
        why: "A hint: what is tried on every request is found, too.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::new",
        from: "index.by_attribute.resize_with(attribute + 1, Places::default);",
        to: &["index.by_attribute.resize_with(attribute + 2, Places::default);"],
        why: "Places without rules have nothing to be found.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::candidates",
        from: "let mut few = [0; FEW];",
        to: &["let mut few = [1; FEW];"],
        why: "Only those that were found are looked at.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "Index::candidates",
        from: "if many.is_empty() {",
        to: &["if false {"],
        why: "A shortcut: few are sorted as well among none.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "selectivity",
        from: "the whole body",
        to: &["{ 0 }"],
        why: "A hint: what is tried on every request is found, too.",
    },
    Survivor {
        file: "policy/index.rs",
        function: "selectivity",
        from: "Condition::StartsWith(prefix) => 2 + prefix.len(),",
        to: &[
            "Condition::StartsWith(prefix) => 3 + prefix.len(),",
            "Condition::StartsWith(prefix) => 1 + prefix.len(),",
        ],
        why: SELECTIVITY,
    },
    Survivor {
        file: "policy/index.rs",
        function: "selectivity",
        from: "Condition::Matches(pattern) => 2 + glob::literal_prefix(pattern).len(),",
        to: &[
            "Condition::Matches(pattern) => 3 + glob::literal_prefix(pattern).len(),",
            "Condition::Matches(pattern) => 1 + glob::literal_prefix(pattern).len(),",
        ],
        why: SELECTIVITY,
    },
    Survivor {
        file: "policy/index.rs",
        function: "selectivity",
        from: "Condition::Within(_) => 2,",
        to: &["Condition::Within(_) => 3,", "Condition::Within(_) => 1,"],
        why: SELECTIVITY,
    },
    Survivor {
        file: "policy/index.rs",
        function: "selectivity",
        from: "Condition::Present => 1,",
        to: &["Condition::Present => 2,", "Condition::Present => 0,"],
        why: SELECTIVITY,
    },
    Survivor {
        file: "policy/index.rs",
        function: "Places::put",
        from: "if prefix.is_empty() {",
        to: &["if true {", "if false {"],
        why: "A hint: whatever is there begins with nothing, and a rule may be tried in vain.",
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
        function: "KeyPart::write_text",
        from: "writer.push(bytes);",
        to: &[""],
        why: "Bytes are borrowed, and never written: only numbers and addresses are.",
    },
    Survivor {
        file: "request/key.rs",
        function: "Writer::default",
        from: "Writer { buffer: [0; INLINE], length: 0, heap: Vec::new() }",
        to: &["Writer { buffer: [1; INLINE], length: 0, heap: Vec::new() }"],
        why: "Only what was written is read.",
    },
    Survivor {
        file: "request/key.rs",
        function: "Writer::written",
        from: "if self.heap.is_empty() { &self.buffer[..self.length] } else { &self.heap }",
        to: &["if true { &self.buffer[..self.length] } else { &self.heap }"],
        why: "The text of a number or of an address fits into the buffer.",
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
        why: "A meter whose number nobody has is not asked.",
    },
];
