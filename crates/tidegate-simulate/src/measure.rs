//! What a flow of requests is like: how much, how bursty, how even.
//!
//! All of it exact, in whole numbers, and while the requests come: nothing is
//! kept longer than a period.

use std::collections::{BTreeMap, VecDeque};

use tidegate::{Limit, Micros};

use crate::series::{Bin, Grid, Series};
use crate::traffic::Arrival;

/// Requests, and what they cost together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub requests: u64,
    /// The sum of their costs.
    pub units: u64,
}

impl Count {
    fn add(&mut self, cost: u64) {
        self.requests += 1;
        self.units = self.units.saturating_add(cost);
    }
}

/// What passed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// How much.
    pub passed: Count,
    /// The longest burst, in units of cost: what the smallest token bucket of
    /// the limit's rate would have to hold to let the same pass, of the client
    /// for whom that is most.
    pub burst: u64,
    /// Where the most passed within one period.
    pub worst_window: WorstWindow,
    /// How even it is, in thousandths: 1000 if every tenth of a period sees as
    /// much as any other, less the more they differ (Jain's index, which is
    /// `1 / (1 + v * v)` for a coefficient of variation `v`). Of a leaky bucket,
    /// what counts is when requests leave. None if nothing passed.
    pub smoothness: Option<u32>,
    /// The longest that a request was told to wait before it leaves.
    pub longest_delay: Micros,
    /// The most requests of one client that were in flight at once, of those that last.
    pub most_in_flight: u64,
    /// The longest debt: how long a client had to wait for another unit when a request had
    /// just ended that cost more than its estimate and what was left.
    pub longest_debt: Micros,
    /// The same over time.
    pub series: Series,
}

/// The most that passed of one client in any period, wherever that begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorstWindow {
    /// How much, in units of cost.
    pub units: u64,
    /// When its first request came.
    pub from: Micros,
    /// Whose.
    pub client: u32,
}

/// A flow as it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    period: u64,
    /// Whether windows count requests, whatever they cost.
    counts_requests: bool,
    passed: Count,
    clients: Vec<Client>,
    rate: Rate,
    /// The highest level of any client's bucket.
    highest: u128,
    worst: WorstWindow,
    evenness: Evenness,
    longest_delay: Micros,
    most_in_flight: u64,
    longest_debt: Micros,
    grid: Grid,
    bins: Vec<Bin>,
    /// The bin until which windows have been looked at.
    seen: usize,
}

#[derive(Clone, Debug, Default)]
struct Client {
    in_flight: u64,
    /// What passed within the last period, and when; one entry for each instant.
    recent: VecDeque<(u64, u64)>,
    units: u64,
    /// A bucket that drains at the rate and never overflows.
    level: u128,
    at: u64,
}

/// A tick drains `drain` of a level; a unit adds `scale`.
#[derive(Clone, Copy, Debug)]
struct Rate {
    drain: u64,
    scale: u64,
}

impl Measure {
    /// A flow that is measured by this limit's rate and period.
    pub(crate) fn new(limit: Limit, clients: usize, grid: Grid) -> Measure {
        let period = Micros::from_duration(limit.period()).get();
        Measure {
            period,
            counts_requests: limit.is_in_flight(),
            passed: Count::default(),
            clients: vec![Client::default(); clients],
            rate: Rate { drain: limit.count(), scale: period },
            highest: 0,
            worst: WorstWindow::default(),
            evenness: Evenness::new((period / 10).max(1)),
            longest_delay: Micros::ZERO,
            most_in_flight: 0,
            longest_debt: Micros::ZERO,
            grid,
            bins: vec![Bin::default(); grid.bins()],
            seen: 0,
        }
    }

    pub(crate) fn admit(&mut self, arrival: Arrival, delay: Micros) {
        let Arrival { at, client: number, cost, lasts, .. } = arrival;
        let leaves = at.saturating_add(delay);
        self.passed.add(cost);
        self.longest_delay = self.longest_delay.max(delay);
        self.evenness.add(at.get(), leaves.get(), cost);
        let bin = self.grid.bin(at);
        self.look_until(bin);

        let client = &mut self.clients[number as usize];
        let elapsed = u128::from(at.get() - client.at);
        let drained = client.level.saturating_sub(elapsed * u128::from(self.rate.drain));
        (client.level, client.at) = (drained + u128::from(cost) * u128::from(self.rate.scale), at.get());
        self.highest = self.highest.max(client.level);

        client.in_flight += u64::from(lasts.is_some());
        self.most_in_flight = self.most_in_flight.max(client.in_flight);
        self.bins[bin].in_flight = self.bins[bin].in_flight.max(client.in_flight);
        let units = client.admit(at.get(), if self.counts_requests { 1 } else { cost }, self.period);
        if units > self.worst.units {
            let from = client.recent.front().map_or(at.get(), |(from, _)| *from);
            self.worst = WorstWindow { units, from: Micros::new(from), client: number };
        }
        self.bins[bin].admit(cost, units);
        if let Some(bin) = self.grid.bin_within(leaves) {
            self.bins[bin].leaving += cost;
        }
    }

    /// A request of this client has ended: it was in flight until just before.
    pub(crate) fn end(&mut self, client: u32, at: Micros) {
        self.look_until(self.grid.bin(at.saturating_since(Micros::new(1))));
        self.clients[client as usize].in_flight -= 1;
    }

    /// A client has to wait so long, for it took more than was left.
    pub(crate) fn owe(&mut self, wait: Micros) {
        self.longest_debt = self.longest_debt.max(wait);
    }

    fn look_until(&mut self, bin: usize) {
        look_at_windows(&mut self.clients, &mut self.bins, (self.seen, bin), self.grid, self.period);
        self.seen = self.seen.max(bin);
    }

    pub(crate) fn count(&self) -> Count {
        self.passed
    }

    pub(crate) fn flow(&self, now: Micros) -> Flow {
        let mut bins = self.bins.clone();
        let last = self.grid.bin(now);
        look_at_windows(&mut self.clients.clone(), &mut bins, (self.seen, last), self.grid, self.period);
        Flow {
            passed: self.passed,
            burst: u64::try_from(self.highest.div_ceil(u128::from(self.rate.scale))).unwrap_or(u64::MAX),
            worst_window: self.worst,
            smoothness: self.evenness.thousandths(now.get()),
            longest_delay: self.longest_delay,
            most_in_flight: self.most_in_flight,
            longest_debt: self.longest_debt,
            series: Series::new(self.grid.width(), bins),
        }
    }
}

impl Client {
    /// What passed of this client in the period that ends at `at`, this
    /// included.
    fn admit(&mut self, at: u64, cost: u64, period: u64) -> u64 {
        self.forget(at, period);
        match self.recent.back_mut() {
            Some((newest, units)) if *newest == at => *units += cost,
            Some(_) | None => self.recent.push_back((at, cost)),
        }
        self.units += cost;
        self.units
    }

    fn forget(&mut self, now: u64, period: u64) {
        while let Some((at, units)) = self.recent.front().copied().filter(|(at, _)| at + period <= now) {
            debug_assert!(at < now);
            self.units -= units;
            self.recent.pop_front();
        }
    }
}

/// The fullest window, and the most in flight, at the beginning of each bin after the first, up to
/// the second.
fn look_at_windows(clients: &mut [Client], bins: &mut [Bin], (seen, bin): (usize, usize), grid: Grid, period: u64) {
    for (index, bin) in bins.iter_mut().enumerate().take(bin + 1).skip(seen + 1) {
        let start = index as u64 * grid.width().get();
        let fullest = clients.iter_mut().map(|client| {
            client.forget(start, period);
            client.units
        });
        bin.fullest_window = fullest.max().unwrap_or(0);
        bin.in_flight = clients.iter().map(|client| client.in_flight).max().unwrap_or(0);
        if bin.fullest_window == 0 && bin.in_flight == 0 {
            // Nothing is left that could be in a later one.
            break;
        }
    }
}

/// Sums and squares of what leaves in each tenth of a period.
#[derive(Clone, Debug)]
struct Evenness {
    width: u64,
    bin: u64,
    units: u64,
    total: u128,
    squares: u128,
    /// What will leave in later bins: only a leaky bucket's.
    later: BTreeMap<u64, u64>,
}

impl Evenness {
    fn new(width: u64) -> Evenness {
        Evenness { width, bin: 0, units: 0, total: 0, squares: 0, later: BTreeMap::new() }
    }

    /// Requests come in order of time, and leave at that time or later.
    fn add(&mut self, at: u64, leaves: u64, cost: u64) {
        let bin = at / self.width;
        if bin > self.bin {
            self.move_on(bin);
        }
        match leaves / self.width {
            leaving if leaving > bin => *self.later.entry(leaving).or_default() += cost,
            _now => self.units += cost,
        }
    }

    fn move_on(&mut self, bin: u64) {
        self.close(self.units);
        (self.bin, self.units) = (bin, 0);
        while let Some(first) = self.later.first_entry().filter(|first| *first.key() <= bin) {
            match first.remove_entry() {
                (leaving, units) if leaving == bin => self.units = units,
                (_earlier, units) => self.close(units),
            }
        }
    }

    fn close(&mut self, units: u64) {
        self.total += u128::from(units);
        self.squares += u128::from(units) * u128::from(units);
    }

    fn thousandths(&self, now: u64) -> Option<u32> {
        // What came at this very instant may have begun a bin.
        let bins = u128::from(now.div_ceil(self.width).max(self.bin + 1));
        let later = self.later.iter().filter(|(bin, _)| u128::from(**bin) < bins).map(|(_, units)| *units);
        let (total, squares) = later.chain([self.units]).fold((self.total, self.squares), |(total, squares), units| {
            (total + u128::from(units), squares + u128::from(units) * u128::from(units))
        });
        (total > 0).then(|| {
            let index = total.saturating_mul(total).saturating_mul(1_000) / bins.saturating_mul(squares);
            index as u32
        })
    }
}
