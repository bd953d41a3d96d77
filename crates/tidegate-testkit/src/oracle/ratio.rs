//! Fractions of two integers, always in lowest terms.
//!
//! Nothing is ever rounded unless [`floor`](Ratio::floor) or
//! [`ceil`](Ratio::ceil) is called by name. Products are reduced crosswise
//! before they are multiplied, so a result that fits is always reached: an
//! instant is below 2^53 ticks with a denominator of at most 10^12, a level
//! below 2^93 with a denominator of at most ten years of microseconds.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ratio {
    numerator: i128,
    /// Above zero, and without a factor in common with the numerator.
    denominator: i128,
}

impl Ratio {
    pub(super) const ZERO: Ratio = Ratio { numerator: 0, denominator: 1 };

    pub(super) fn new(numerator: i128, denominator: i128) -> Ratio {
        assert!(denominator > 0, "the oracle divides by positive numbers only");
        let common = gcd(numerator, denominator);
        Ratio { numerator: numerator / common, denominator: denominator / common }
    }

    pub(super) fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    pub(super) fn ceil(self) -> i128 {
        -(-self.numerator).div_euclid(self.denominator)
    }
}

impl From<i128> for Ratio {
    fn from(whole: i128) -> Ratio {
        Ratio { numerator: whole, denominator: 1 }
    }
}

impl Add for Ratio {
    type Output = Ratio;

    fn add(self, other: Ratio) -> Ratio {
        let common = gcd(self.denominator, other.denominator);
        let (mine, theirs) = (self.denominator / common, other.denominator / common);
        let numerator = times(self.numerator, theirs) + times(other.numerator, mine);
        // Only factors of `common` can be left to cancel.
        let left = gcd(numerator, common);
        Ratio { numerator: numerator / left, denominator: times(self.denominator / left, theirs) }
    }
}

impl Sub for Ratio {
    type Output = Ratio;

    fn sub(self, other: Ratio) -> Ratio {
        self + Ratio { numerator: -other.numerator, ..other }
    }
}

impl Mul for Ratio {
    type Output = Ratio;

    fn mul(self, other: Ratio) -> Ratio {
        let across = gcd(self.numerator, other.denominator);
        let back = gcd(other.numerator, self.denominator);
        Ratio {
            numerator: times(self.numerator / across, other.numerator / back),
            denominator: times(self.denominator / back, other.denominator / across),
        }
    }
}

impl Div for Ratio {
    type Output = Ratio;

    fn div(self, other: Ratio) -> Ratio {
        assert!(other.numerator > 0, "the oracle divides by positive numbers only");
        self * Ratio { numerator: other.denominator, denominator: other.numerator }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Ratio) -> Ordering {
        times(self.numerator, other.denominator).cmp(&times(other.numerator, self.denominator))
    }
}

/// A product that must fit, also where overflow is not checked by default.
fn times(left: i128, right: i128) -> i128 {
    left.checked_mul(right).expect("the products of the oracle stay below 2^127")
}

/// The greatest common divisor of two numbers, not both zero; never negative.
fn gcd(left: i128, right: i128) -> i128 {
    let (mut larger, mut smaller) = (left.unsigned_abs(), right.unsigned_abs());
    while smaller > u128::from(u64::MAX) {
        (larger, smaller) = (smaller, larger % smaller);
    }
    if smaller == 0 {
        return larger as i128;
    }
    // The rest in 64 bits, where a division is ten times as fast.
    let (mut larger, mut smaller) = (smaller as u64, (larger % smaller) as u64);
    while smaller != 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    i128::from(larger)
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn fractions_add_multiply_and_compare_exactly() {
        let third = Ratio::new(1, 3);
        assert_eq!(third + Ratio::new(1, 6), Ratio::new(1, 2));
        assert_eq!(third - Ratio::new(1, 2), Ratio::new(-1, 6));
        assert_eq!(third * Ratio::new(9, 2), Ratio::new(3, 2));
        assert_eq!(third / Ratio::new(2, 3), Ratio::new(1, 2));
        assert!(third > Ratio::new(333_333_333_333, 1_000_000_000_000));
        assert_eq!(third - third, Ratio::ZERO);
    }

    #[test]
    fn rounding_is_towards_where_its_name_says() {
        for (ratio, floor, ceil) in [((7, 2), 3, 4), ((-7, 2), -4, -3), ((6, 2), 3, 3), ((0, 5), 0, 0)] {
            let ratio = Ratio::new(ratio.0, ratio.1);
            assert_eq!((ratio.floor(), ratio.ceil()), (floor, ceil), "{ratio:?}");
        }
    }

    #[test]
    fn the_largest_limit_does_not_overflow() {
        // Ten years, a prime count close to 10^12, the latest instant.
        let rate = Ratio::new(999_999_999_989, 315_360_000_000_000);
        let empty_at = Ratio::from(1 << 53) - Ratio::from(1) / rate;
        let level = empty_at * rate;
        assert_eq!(level / rate, empty_at);
        assert!(level + Ratio::from(1) > level);
    }
}
