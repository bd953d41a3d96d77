//! The text of numbers and addresses, as `Display` prints it: written by hand,
//! because formatting costs more than the rest of a check.

use std::net::IpAddr;

/// A short text, in place.
#[derive(Clone)]
pub(super) struct Inline {
    buffer: [u8; INLINE],
    length: u8,
}

/// Enough for a user and an endpoint, and for every number and address.
const INLINE: usize = 46;

impl Default for Inline {
    fn default() -> Inline {
        Inline { buffer: [0; INLINE], length: 0 }
    }
}

/// The smallest number of one digit, and of each count of digits more.
const POWERS: [u64; 20] = {
    let mut powers = [0; 20];
    let mut digits = 1;
    while digits < 20 {
        powers[digits] = 10_u64.pow(digits as u32);
        digits += 1;
    }
    powers
};

/// Numbers below 100, in two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Bytes in two hexadecimal digits.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte / 16], digits[byte % 16]];
        byte += 1;
    }
    pairs
};

/// Bytes in as many decimal digits as they need, and a dot.
const OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[b'.'; 4]; 256];
    let mut byte = 0;
    while byte < 256 {
        let [hundreds, tens, ones] =
            [b'0' + (byte / 100) as u8, b'0' + (byte / 10 % 10) as u8, b'0' + (byte % 10) as u8];
        octets[byte] = match byte {
            0..10 => [ones, b'.', 0, 0],
            10..100 => [tens, ones, b'.', 0],
            _ => [hundreds, tens, ones, b'.'],
        };
        byte += 1;
    }
    octets
};

impl Inline {
    /// What is written by this. It is written in place: to return a text that was
    /// just written takes longer than to write it.
    #[inline(always)]
    pub(super) fn with(write: impl FnOnce(&mut Inline)) -> Inline {
        let mut text = Inline::default();
        write(&mut text);
        text
    }

    #[inline(never)]
    pub(super) fn number(&mut self, number: u64) {
        self.length = digits(number, &mut self.buffer, 0) as u8;
    }

    #[inline(never)]
    pub(super) fn negative(&mut self, number: i64) {
        self.buffer[0] = b'-';
        self.length = digits(number.unsigned_abs(), &mut self.buffer, 1) as u8;
    }

    /// As bits they are passed on in registers: an address is copied in pieces.
    #[inline(always)]
    pub(super) fn address(&mut self, address: IpAddr) {
        self.length = match address {
            IpAddr::V4(address) => ipv4(address.to_bits(), &mut self.buffer, 0) as u8,
            IpAddr::V6(address) => ipv6(address.to_bits(), &mut self.buffer) as u8,
        };
    }

    /// Adds bytes, if there is room for them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let start = usize::from(self.length);
        let room = self.buffer.get_mut(start..start + bytes.len());
        let has_room = room.map(|room| room.copy_from_slice(bytes)).is_some();
        self.length += if has_room { bytes.len() as u8 } else { 0 };
        has_room
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.buffer[..usize::from(self.length)]
    }
}

/// Writes a number, and returns where it ends.
fn digits(mut number: u64, buffer: &mut [u8; INLINE], start: usize) -> usize {
    // The length follows from that in bits: a bit is 1233 / 4096 of a digit.
    let estimate = ((number | 1).ilog2() as usize + 1) * 1233 / 4096;
    let end = start + estimate + usize::from(number >= POWERS[estimate]);
    let mut place = end;
    while number >= 10 {
        place -= 2;
        buffer[place..place + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if place > start {
        buffer[start] = b'0' + number as u8;
    }
    end
}

#[inline(never)]
fn ipv4(address: u32, buffer: &mut [u8; INLINE], start: usize) -> usize {
    let mut end = start;
    for octet in address.to_be_bytes() {
        buffer[end..end + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
        end += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
    }
    // Without the last dot.
    end - 1
}

/// RFC 5952: the longest run of zeros, the first of several, is `::`.
#[inline(never)]
fn ipv6(address: u128, buffer: &mut [u8; INLINE]) -> usize {
    const MAPPED: &[u8; 7] = b"::ffff:";
    if address >> 32 == 0xffff {
        buffer[..MAPPED.len()].copy_from_slice(MAPPED);
        return ipv4(address as u32, buffer, MAPPED.len());
    }
    let all: [u16; 8] = std::array::from_fn(|group| (address >> (112 - 16 * group)) as u16);
    let zeros = zeros(all);
    let mut end = groups(&all[..zeros.start], buffer, 0);
    if zeros.is_empty() {
        return end - 1;
    }
    if zeros.start == 0 {
        buffer[0] = b':';
        end = 1;
    }
    buffer[end] = b':';
    end = groups(&all[zeros.end..], buffer, end + 1);
    // Without the last colon, unless it is of the zeros.
    if zeros.end == all.len() { end } else { end - 1 }
}

/// Writes groups with a colon after each, and returns where they end.
#[inline]
fn groups(groups: &[u16], buffer: &mut [u8; INLINE], start: usize) -> usize {
    let mut end = start;
    for group in groups {
        let [high, low] = group.to_be_bytes().map(|byte| HEX[usize::from(byte)]);
        let text = u64::from_le_bytes([high[0], high[1], low[0], low[1], b':', 0, 0, 0]);
        // Of four digits, those after the first that is not zero, and always one.
        let more = u32::from(group | 1).ilog2() / 4;
        buffer[end..end + 8].copy_from_slice(&(text >> (8 * (3 - more))).to_le_bytes());
        end += 2 + more as usize;
    }
    end
}

/// The longest run of at least two groups that are zero, the first of several;
/// if there is none, what is behind the last group.
#[inline]
fn zeros(groups: [u16; 8]) -> std::ops::Range<usize> {
    // A bit for each group where as many zeros begin.
    let mut begin = groups.iter().rev().fold(0_u32, |bits, group| 2 * bits + u32::from(*group == 0));
    let mut length = 1;
    while let next @ 1.. = begin & (begin >> 1) {
        begin = next;
        length += 1;
    }
    let start = begin.trailing_zeros() as usize;
    if length > 1 { start..start + length } else { 8..8 }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tidegate_testkit::Random;

    use super::*;

    fn same(text: &Inline, shown: &impl ToString) {
        assert_eq!(String::from_utf8_lossy(text.as_bytes()), shown.to_string());
    }

    #[test]
    fn numbers_of_every_length_are_as_displayed() {
        for power in 0..20 {
            let power = 10_u64.pow(power);
            for number in [power - 1, power, power + 1, power.saturating_mul(9), u64::MAX / power] {
                same(&Inline::with(|text| text.number(number)), &number);
            }
        }
        for number in [-1, -9, -10, -99, -100, i64::MIN, i64::MIN + 1] {
            same(&Inline::with(|text| text.negative(number)), &number);
        }
    }

    #[test]
    fn special_addresses_are_as_displayed() {
        let texts = "0.0.0.0 255.255.255.255 1.10.100.9 127.0.0.1 :: ::1 1:: ::ffff:1.2.3.4 ::ffff:255.255.255.255 \
                     ::ffff:0.0.0.0 ::1.2.3.4 ::fffe:1.2.3.4 1:0:0:2:0:0:3:4 1:0:0:2:0:0:0:3 1:0:2:3:4:5:6:7 0:1:2:3:4:5:6:0 \
                     0:0:1:2:3:0:0:4 1:2:3:4:5:6:0:0 0:1:0:1:0:1:0:1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe80::1:2 \
                     64:ff9b::1.2.3.4 1:20:300:4000:5:60:700:8000";
        for text in texts.split_whitespace() {
            let address: IpAddr = text.parse().expect("an address");
            same(&Inline::with(|text| text.address(address)), &address);
        }
        // Zeros in every combination of groups.
        for zeros in 0..256_u16 {
            let groups: [u16; 8] =
                std::array::from_fn(|index| if zeros >> index & 1 == 1 { 0 } else { 0x1f0 << index });
            same(&Inline::with(|text| text.address(Ipv6Addr::from(groups).into())), &Ipv6Addr::from(groups));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and no unsafe code in sight")]
    fn any_number_and_address_is_as_displayed() {
        let random = &mut Random::new(0);
        for _ in 0..1_000 {
            let number = random.magnitude(0..=u64::MAX);
            same(&Inline::with(|text| text.number(number)), &number);
            let negative = -((number >> 1) as i64) - 1;
            same(&Inline::with(|text| text.negative(negative)), &negative);
            let v4 = Ipv4Addr::from(random.number() as u32);
            same(&Inline::with(|text| text.address(v4.into())), &v4);
            let group = |_| if random.percent(50) { 0 } else { random.magnitude(0..=0xffff) as u16 };
            let v6 = Ipv6Addr::from(std::array::from_fn::<u16, 8, _>(group));
            same(&Inline::with(|text| text.address(v6.into())), &v6);
        }
    }
}
