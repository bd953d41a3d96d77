//! What a state is called in Redis: `prefix:{first}+rest:rule:limit`.
//!
//! The first part of a key is the hash tag, so all limits of one caller are
//! in one slot of a cluster. Everything that is not ours to choose is escaped,
//! so that no two different states ever have one name; what is left unescaped
//! can be read by a person with `redis-cli`.
//!
//! The colon after the prefix is the version of names and states: the first. A
//! later one would use another mark, and so would neither read these states nor
//! overwrite them.

use tidegate::Key;
use tidegate::kernel::Verb;
use tidegate::store::{Check, Meter};

/// The name of the state that `check` is about.
pub fn state_key(prefix: &str, check: &Check<'_>) -> Vec<u8> {
    key_of(prefix, check.meter(), check.key())
}

/// What a layer calls the state within this process, whatever the store below
/// it calls it: nothing to be read, and so nothing to escape.
pub(crate) fn local_key(meter: &Meter, key: &Key<'_>) -> Vec<u8> {
    let (rule, meaning) = (meter.name().as_str().as_bytes(), meter.meaning().as_bytes());
    // No two lists of parts are the same bytes, since the lengths are told.
    let lengths = [2 * rule.len() + usize::from(key.is_composite()), meaning.len()].map(usize::to_le_bytes);
    [lengths.as_flattened(), rule, meaning, key.as_bytes()].concat()
}

/// The name of the state that a key has under a limit.
pub(crate) fn key_of(prefix: &str, meter: &Meter, key: &Key<'_>) -> Vec<u8> {
    let (rule, meaning) = (meter.name().as_str(), meter.meaning());
    let mut name = tagged(prefix, key);
    if key.is_composite() {
        name.push(b'+');
        let mut separator: &[u8] = b"";
        for part in key.parts().skip(1) {
            name.extend_from_slice(separator);
            escape(part, &mut name);
            separator = b"+";
        }
    }
    name.push(b':');
    // A rule that is called by its limit's words needs no second name.
    if rule != meaning {
        escape(rule.as_bytes(), &mut name);
    }
    name.push(b':');
    name.extend_from_slice(meaning.as_bytes());
    name
}

/// Where the id of a request is remembered: beside the states of its owner.
pub fn id_key(prefix: &str, check: &Check<'_>, id: &str) -> Vec<u8> {
    let mut name = tagged(prefix, check.key());
    // No rule is ever called like this.
    name.extend_from_slice(match check.verb() {
        Verb::Refund => b"%refund:",
        Verb::Report => b"%report:",
        Verb::Charge | Verb::Peek | Verb::Reset | Verb::Settle(_) | Verb::Renew(_) => b"%id:",
    });
    escape(id.as_bytes(), &mut name);
    name
}

/// What all names begin with that concern the first part of a key.
fn tagged(prefix: &str, key: &Key<'_>) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + key.as_bytes().len() + 64);
    name.extend_from_slice(prefix.as_bytes());
    name.extend_from_slice(b":{");
    match key.parts().next() {
        Some(first) => escape(first, &mut name),
        None => name.extend_from_slice(NO_PARTS),
    }
    name.push(b'}');
    name
}

/// Where is remembered which thresholds of a state were told: beside it.
pub(crate) fn told_key(prefix: &str, state: &[u8]) -> Vec<u8> {
    let tag = prefix.len() + state[prefix.len()..].iter().position(|byte| *byte == b'}').map_or(0, |end| end + 1);
    // No key goes on like this.
    [&state[..tag], b"%told", &state[tag..]].concat()
}

/// Stands for no bytes at all, which a hash tag must not be and a part may.
const NOTHING: &[u8] = b"%";

/// Stands for a key without any parts.
const NO_PARTS: &[u8] = b"%%";

fn escape(bytes: &[u8], name: &mut Vec<u8>) {
    if bytes.is_empty() {
        name.extend_from_slice(NOTHING);
    }
    for byte in bytes {
        match byte {
            b'{' | b'}' | b':' | b'+' | b'%' | 0..=b' ' | 0x7f.. => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                name.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            byte => name.push(*byte),
        }
    }
}

/// The slot of a cluster that a name belongs to.
pub(crate) fn slot(name: &[u8]) -> u16 {
    // Our names have one tag, and it is not empty.
    let tag = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &name[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(name)) % SLOTS
}

/// Slots of every cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM, which the cluster specification prescribes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

/// A key in `slot`, to keep what concerns the whole slot.
pub fn genesis_key(prefix: &str, slot: u16) -> Vec<u8> {
    let tag = (0u32..).map(|number| number.to_string()).find(|tag| crc16(tag.as_bytes()) % SLOTS == slot);
    format!("{prefix}:{{{}}}:genesis", tag.unwrap_or_default()).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tidegate::{KeyPart, Limit, Name};

    use super::*;

    fn name_of(rule: &'static str, limit: Limit, key: &Key<'_>) -> String {
        let meter = Meter::new(Name::literal(rule), limit);
        let check = Check::new(&meter, key, Verb::Charge, 1).expect("a cost of one");
        String::from_utf8(state_key("tg", &check)).expect("text")
    }

    #[test]
    fn a_name_can_be_read() {
        let limit = Limit::per_minute(100);
        assert_eq!(name_of("daily", limit, &Key::from("alice")), "tg:{alice}:daily:100/min");
        assert_eq!(name_of("100/min", limit, &Key::from("alice")), "tg:{alice}::100/min");
        assert_eq!(name_of("daily", limit, &Key::from(("alice", "a:b"))), "tg:{alice}+a%3Ab:daily:100/min");
        assert_eq!(name_of("daily", limit, &Key::from(())), "tg:{%}:daily:100/min");
    }

    #[test]
    fn different_states_have_different_names() {
        let texts = ["", "%", "+", "a", "b", "a+b", "}", "{", ":", "a:b", "%25", " ", "é", "a}+b", "100/min"];
        let mut keys: Vec<Key<'_>> = texts.iter().map(|text| Key::from(*text)).collect();
        keys.push(Key::of([]));
        keys.extend(texts.iter().map(|text| Key::of([KeyPart::from(*text)])));
        for first in texts {
            keys.extend(texts.iter().map(|text| Key::from((first, *text))));
            keys.extend(texts.iter().map(|text| Key::from((first, *text, "a"))));
        }
        let rules = ["", "a", "b", ":", "a:", "100/min", "200/min", "%"];
        let limits = [Limit::per_minute(100), Limit::per_minute(200)];
        let (mut names, mut local) = (HashSet::new(), HashSet::new());
        for key in &keys {
            for (rule, limit) in rules.into_iter().flat_map(|rule| limits.map(|limit| (rule, limit))) {
                assert!(names.insert(name_of(rule, limit, key)), "{key:?} {rule} {limit}");
                assert!(
                    local.insert(local_key(&Meter::new(Name::literal(rule), limit), key)),
                    "{key:?} {rule} {limit}"
                );
            }
        }
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"tg:{alice}:daily:100/min"), slot(b"{alice}"));
        assert_eq!(slot(b"foo"), 12_182);
        for wanted in [0, 1, 8_191, 16_383] {
            assert_eq!(slot(&genesis_key("tg", wanted)), wanted);
        }
    }
}
