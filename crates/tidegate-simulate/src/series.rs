//! A flow over time, in a bounded number of bins of a length that reads well.

use std::time::Duration;

use tidegate::Micros;

/// A flow over time: bins of equal length, the first at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    width: Micros,
    bins: Vec<Bin>,
}

/// What passed in a bin, in units of cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// What was admitted.
    pub admitted: u64,
    /// What left: of a leaky bucket, later than it was admitted.
    pub leaving: u64,
    /// The most that had been admitted of any one client in the period before
    /// any instant of this bin.
    pub fullest_window: u64,
    /// The most requests of any one client that were in flight at once, of those that last.
    pub in_flight: u64,
}

impl Bin {
    pub(crate) fn admit(&mut self, units: u64, window: u64) {
        self.admitted += units;
        self.fullest_window = self.fullest_window.max(window);
    }

    fn and(self, next: Bin) -> Bin {
        Bin {
            admitted: self.admitted + next.admitted,
            leaving: self.leaving + next.leaving,
            fullest_window: self.fullest_window.max(next.fullest_window),
            in_flight: self.in_flight.max(next.in_flight),
        }
    }
}

impl Series {
    /// The most bins of a series.
    pub const MAX_BINS: usize = MAX_BARS * BINS_IN_A_BAR as usize;

    pub(crate) fn new(width: Micros, bins: Vec<Bin>) -> Series {
        Series { width, bins }
    }

    /// How long a bin is.
    #[must_use]
    pub fn width(&self) -> Micros {
        self.width
    }

    /// The bins, in order.
    #[must_use]
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// The same in fewer, longer bins: one for each `bins` of these.
    #[must_use]
    pub fn merged(&self, bins: usize) -> Series {
        let bins = bins.max(1);
        let merge = |bins: &[Bin]| bins.iter().copied().fold(Bin::default(), Bin::and);
        Series { width: Micros::new(self.width.get() * bins as u64), bins: self.bins.chunks(bins).map(merge).collect() }
    }

    /// The same in bins that can be told apart when drawn as bars.
    #[must_use]
    pub fn bars(&self) -> Series {
        self.merged(BINS_IN_A_BAR as usize)
    }
}

/// As many bars as can be told apart.
const MAX_BARS: usize = 50;

/// Bars are for counting, bins for curves: so many times as fine.
const BINS_IN_A_BAR: u64 = 10;

/// How a simulation's time is cut into bins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    width: u64,
    length: u64,
}

impl Grid {
    pub(crate) fn new(length: Micros, period: Duration) -> Grid {
        let (length, period) = (length.get(), Micros::from_duration(period).get());
        let shortest = length.div_ceil(MAX_BARS as u64);
        // Bars that fit into the limit's period, if there are any nearly as short.
        let fits = |time: &u64| period.is_multiple_of(*time) || time.is_multiple_of(period);
        let short = nice_times().skip_while(|time| *time < shortest);
        let bar = short.clone().take_while(|time| *time <= shortest.saturating_mul(4)).find(fits);
        let bar = bar.or_else(|| short.clone().next()).unwrap_or(shortest);
        Grid { width: bar.div_ceil(BINS_IN_A_BAR), length }
    }

    pub(crate) fn width(self) -> Micros {
        Micros::new(self.width)
    }

    pub(crate) fn bins(self) -> usize {
        self.length.div_ceil(self.width) as usize
    }

    /// The bin of a time; the last one, if it is later.
    pub(crate) fn bin(self, at: Micros) -> usize {
        ((at.get() / self.width) as usize).min(self.bins() - 1)
    }

    /// The bin of a time, if it is not after the end.
    pub(crate) fn bin_within(self, at: Micros) -> Option<usize> {
        (at.get() < self.length).then(|| self.bin(at))
    }
}

/// Lengths of time that people count in, the shortest first: microseconds.
pub(crate) fn nice_times() -> impl Iterator<Item = u64> + Clone {
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;
    let decimals = (0..6).flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)));
    let sixties = [SECOND, 60 * SECOND].into_iter().flat_map(|unit| [1, 2, 5, 10, 15, 20, 30].map(|n| n * unit));
    let hours = [1, 2, 3, 4, 6, 12].map(|hours| hours * 3_600 * SECOND);
    let days = [1, 2, 5, 7, 14, 28, 56, 112, 364, 728].map(|days| days * DAY);
    decimals.chain(sixties).chain(hours).chain(days)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::words::{print_time, read_time};

    fn bar(length: &str, period: &str) -> String {
        let (length, period) = (read_time(length).unwrap(), read_time(period).unwrap().to_duration());
        print_time(Micros::new(Grid::new(length, period).width * BINS_IN_A_BAR))
    }

    #[test]
    fn bars_are_of_a_length_that_reads_well() {
        assert_eq!(bar("3s", "1s"), "100ms");
        assert_eq!(bar("10min", "1min"), "15s");
        assert_eq!(bar("1h", "1min"), "2min");
        assert_eq!(bar("1day", "1min"), "30min");
        assert_eq!(bar("1day", "7s"), "30min");
        assert_eq!(bar("520weeks", "1day"), "16week");
        assert_eq!(bar("1s", "7ms"), "20ms");
    }

    #[test]
    fn there_are_never_more_bins_than_the_bound() {
        for length in [1, 2, 119, 121, 999, 1_000_001, 86_399_999_999, 315_360_000_000_000] {
            for period in [1, 7, 1_000_000, 3_600_000_000] {
                let grid = Grid::new(Micros::new(length), Duration::from_micros(period));
                assert!((1..=Series::MAX_BINS).contains(&grid.bins()), "{length} by {period}: {grid:?}");
                assert_eq!(grid.bin(Micros::new(length - 1)), grid.bins() - 1);
            }
        }
    }
}
