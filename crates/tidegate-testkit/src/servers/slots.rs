//! Which slot of a cluster a key belongs to.

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: that of its hash tag, if it has one.
///
/// ```
/// use tidegate_testkit::servers::slot_of;
///
/// assert_eq!(slot_of(b"{tide}:alice"), slot_of(b"tide"));
/// ```
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS
}

/// What stands between the first `{` and the next `}`, unless it is nothing.
fn tag_of(key: &[u8]) -> &[u8] {
    let tag = || {
        let rest = &key[key.iter().position(|byte| *byte == b'{')? + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    };
    tag().unwrap_or(key)
}

/// CRC-16/XMODEM, as the cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::{crc16, slot_of, tag_of};

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
    }

    #[test]
    fn a_tag_is_the_first_one_that_is_not_empty_at_once() {
        let table = [("{a}b", "a"), ("b{a}{c}", "a"), ("{}a", "{}a"), ("{a", "{a"), ("a}b{c}", "c"), ("{{a}}", "{a")];
        for (key, tag) in table {
            assert_eq!(tag_of(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }
}
