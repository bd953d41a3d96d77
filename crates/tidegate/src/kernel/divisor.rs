//! Division by a number that is known beforehand, as a multiplication.
//!
//! A limit divides by the same number at every decision, and the processor takes several times
//! as long for a division.

use super::EXACT;

/// A number that numbers below 2^53 are divided by.
///
/// `multiplier` is 2^(63 + bits) / divisor, rounded up, where the divisor is at most 2^bits. So it is too
/// large by less than one part in 2^63, and of a number below 2^53 that makes less than the
/// quotient lacks to the next whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Divisor {
    multiplier: u64,
    bits: u32,
}

impl Divisor {
    /// Of a number between 1 and 2^53.
    pub(super) const fn new(divisor: u64) -> Divisor {
        let bits = u64::BITS - (divisor - 1).leading_zeros();
        Divisor { multiplier: (1_u128 << (63 + bits)).div_ceil(divisor as u128) as u64, bits }
    }

    /// The quotient of a number below 2^53, rounded down.
    #[inline(always)]
    pub(super) const fn quotient(self, number: u64) -> u64 {
        debug_assert!(number < EXACT);
        let product = (number << 1) as u128 * self.multiplier as u128;
        (product >> u64::BITS) as u64 >> self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quotient_is_that_of_a_division() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Of any number of bits.
            (random >> 11) >> (random % 53)
        };
        let edges = [1, 2, 3, 7, 10, 641, 1 << 31, (1 << 32) - 1, (1 << 52) - 1, 1 << 52, EXACT - 1, EXACT];
        let divisors: Vec<u64> = edges.into_iter().chain((0..2_000).map(|_| next().max(1))).collect();
        for divisor in divisors {
            let by = Divisor::new(divisor);
            let multiples =
                (0..50).map(|_| next() / divisor * divisor).flat_map(|number| [number, number.wrapping_sub(1)]);
            let numbers: Vec<u64> = multiples.chain([0, 1, divisor - 1, divisor, EXACT - 1]).collect();
            for number in numbers.into_iter().filter(|number| *number < EXACT) {
                assert_eq!(by.quotient(number), number / divisor, "{number} / {divisor}");
            }
        }
    }
}
