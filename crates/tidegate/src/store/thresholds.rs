//! Shares of a limit at which observers are told.

use std::sync::Arc;

use crate::error::ConfigError;

/// The most thresholds that one rule has: a bit of [`Verdict::crossed`](crate::kernel::Verdict::crossed) each.
pub const MAX_THRESHOLDS: usize = 8;

/// Thresholds in percent of a limit's capacity, in ascending order: usually none.
///
/// ```
/// use tidegate::store::Thresholds;
///
/// assert_eq!(Thresholds::new([100, 50, 80])?.percents(), [50, 80, 100]);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    percents: Option<Arc<[u8]>>,
}

impl Thresholds {
    /// These percentages, in any order.
    ///
    /// ```
    /// use tidegate::store::Thresholds;
    ///
    /// assert!(Thresholds::new([80, 80]).is_err() && Thresholds::new([101]).is_err());
    /// ```
    ///
    /// # Errors
    /// If one is zero, above 100, or given twice, or if there are more than [`MAX_THRESHOLDS`].
    pub fn new(percents: impl IntoIterator<Item = u8>) -> Result<Thresholds, ConfigError> {
        let mut percents: Vec<u8> = percents.into_iter().collect();
        percents.sort_unstable();
        if percents.first() == Some(&0) {
            return Err(ConfigError::Zero { field: "a threshold" });
        }
        if let Some(percent) = percents.last().filter(|percent| **percent > 100) {
            return Err(ConfigError::TooLarge { field: "a threshold", value: (*percent).into(), bound: 100 });
        }
        if let Some(twice) = percents.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::DuplicateThreshold { percent: twice[0] });
        }
        if percents.len() > MAX_THRESHOLDS {
            let (value, bound) = (percents.len() as u128, MAX_THRESHOLDS as u64);
            return Err(ConfigError::TooLarge { field: "the number of thresholds", value, bound });
        }
        Ok(Thresholds { percents: (!percents.is_empty()).then(|| percents.into()) })
    }

    /// In ascending order.
    #[must_use]
    pub fn percents(&self) -> &[u8] {
        self.percents.as_deref().unwrap_or_default()
    }

    /// Whether there are none.
    ///
    /// ```
    /// use tidegate::store::Thresholds;
    ///
    /// assert!(Thresholds::default().is_empty());
    /// ```
    #[must_use]
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.percents.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_sorted_distinct_and_few() {
        assert_eq!(Thresholds::new([100, 50, 80]).map(|made| made.percents().to_vec()), Ok(vec![50, 80, 100]));
        assert!(Thresholds::new([]).is_ok_and(|none| none.is_empty() && none == Thresholds::default()));
        assert!(Thresholds::new(1..=8).is_ok());
        let errors = [&[0_u8][..], &[101], &[50, 50], &[1, 2, 3, 4, 5, 6, 7, 8, 9]]
            .map(|percents| Thresholds::new(percents.iter().copied()).expect_err("an error").to_string());
        assert_eq!(errors[0], "a threshold is zero: give at least 1");
        assert_eq!(errors[1], "a threshold is 101: give at most 100");
        assert_eq!(errors[2], "a threshold of 50% is given twice: give each once");
        assert_eq!(errors[3], "the number of thresholds is 9: give at most 8");
    }
}
