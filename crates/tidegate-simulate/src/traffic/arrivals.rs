//! Requests, one at a time, in order: whole numbers only, in constant memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use tidegate::Micros;

use super::{Part, Shape, Traffic};
use crate::random::Random;
use crate::words::Rate;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// When, from the start of the traffic.
    pub at: Micros,
    /// Whose: a number below [`Traffic::clients`].
    pub client: u32,
    /// Its cost: an estimate, if it lasts.
    pub cost: u64,
    /// How long it lasts; none if it is charged once and for all.
    pub lasts: Option<Micros>,
    /// What it has cost when it ends.
    pub actual: u64,
    /// What it leaves to others: its number in [`Traffic::classes`].
    pub class: u32,
}

/// The requests of a [`Traffic`] in order of time.
#[derive(Clone, Debug)]
pub struct Arrivals {
    sources: Vec<Source>,
    /// When each source sends next.
    next: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Arrivals {
    pub(super) fn new(traffic: &Traffic, seed: u64) -> Arrivals {
        let clients = traffic.groups.iter().flat_map(|group| (0..group.who.count()).map(|_| &group.parts));
        let parts = (0..).zip(clients).flat_map(|(client, parts)| parts.iter().map(move |part| (client, *part)));
        let classes = traffic.classes();
        let class =
            |part: &Part| (0..).zip(&classes).find(|(_, floor)| **floor == part.floor).map_or(0, |(class, _)| class);
        let source = |(index, (client, part)): (u32, (u32, Part))| Source {
            class: class(&part),
            ..Source::new(client, part, [index, !index].map(|own| Random::new(seed, own)))
        };
        let mut sources: Vec<Source> = (0..).zip(parts).map(source).collect();
        let first = sources.iter_mut().zip(0..).filter_map(|(source, index)| Some(Reverse((source.next()?, index))));
        let next = first.collect();
        Arrivals { sources, next }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let mut soonest = self.next.peek_mut()?;
        let Reverse((at, index)) = *soonest;
        let source = &mut self.sources[index as usize];
        match source.next() {
            Some(next) => *soonest = Reverse((next, index)),
            None => drop(PeekMut::pop(soonest)),
        }
        let lasts = source.part.lasting.map(|lasting| Micros::new(source.sizes.within(lasting.least, lasting.most)));
        let cost = source.part.cost;
        let actual = source.part.actual.map_or(cost, |actual| source.sizes.within(actual.least, actual.most));
        Some(Arrival { at: Micros::new(at), client: source.client, cost, lasts, actual, class: source.class })
    }
}

/// One part of a client's traffic, and how far it is.
#[derive(Clone, Debug)]
struct Source {
    client: u32,
    class: u32,
    part: Part,
    random: Random,
    /// How large requests are: apart, so that it does not change when they come.
    sizes: Random,
    /// How many have been sent.
    sent: u64,
    /// Where chance has come to: microseconds in 2^-32, or requests of a day.
    elapsed: u128,
    /// When the last one came, from the beginning of this part.
    last: u64,
    /// Of diurnal traffic.
    day: Option<Day>,
}

impl Source {
    fn new(client: u32, part: Part, [random, sizes]: [Random; 2]) -> Source {
        Source { client, class: 0, part, random, sizes, sent: 0, elapsed: 0, last: 0, day: None }
    }

    /// When the next request comes, if there is one.
    fn next(&mut self) -> Option<u64> {
        let at = match self.part.shape {
            Shape::Constant(rate) => time_of(rate, self.sent)?,
            Shape::Poisson(rate) => self.by_chance(rate)?,
            Shape::Bursts { size, every, within } => {
                let (cycle, index) = (self.sent / size, self.sent % size);
                let into = u128::from(within.unwrap_or(0)) * u128::from(index) / u128::from(size);
                cycle.checked_mul(every)?.checked_add(u64::try_from(into).ok()?)?
            }
            Shape::OnOff { rate, on, off } => {
                // Those that begin while it is on.
                let each = (u128::from(on) * u128::from(rate.count)).div_ceil(u128::from(rate.period));
                let each = u64::try_from(each).unwrap_or(u64::MAX);
                (self.sent / each).checked_mul(on + off)?.checked_add(time_of(rate, self.sent % each)?)?
            }
            Shape::Diurnal { low, high, every } => {
                self.elapsed += u128::from(self.random.exponential()) << (DAY_BITS - 32);
                let day = self.day.get_or_insert_with(|| Day::new(low, high, every));
                day.time_of(self.elapsed)?.max(self.last)
            }
        };
        (self.sent, self.last) = (self.sent + 1, at);
        let at = at.checked_add(self.part.from)?;
        let last = self.part.until.map_or(Micros::LATEST.get(), |until| until - 1);
        (at <= last).then_some(at)
    }

    /// The next time of a Poisson process.
    fn by_chance(&mut self, rate: Rate) -> Option<u64> {
        let mean = (u128::from(rate.period) << 32) / u128::from(rate.count);
        self.elapsed += (mean * u128::from(self.random.exponential())) >> 32;
        u64::try_from(self.elapsed >> 32).ok().filter(|at| *at <= Micros::LATEST.get())
    }
}

/// When the request of this number comes, at an even rate.
fn time_of(rate: Rate, number: u64) -> Option<u64> {
    match number.checked_mul(rate.period) {
        Some(product) => Some(product / rate.count),
        None => u64::try_from(u128::from(number) * u128::from(rate.period) / u128::from(rate.count)).ok(),
    }
}

/// A day's requests up to each of its times, on average.
///
/// The rate goes up and down by 3x^2 - 2x^3, which looks like a sine and is made
/// of whole numbers, and so is the sum. What comes by chance is evenly so in
/// terms of this sum: the time of each request is where the sum is reached,
/// found by halving, however long or short the day and whatever the rates.
#[derive(Clone, Debug)]
struct Day {
    /// Requests in a microsecond, in 2^-56.
    low: u128,
    above_low: u128,
    half: u64,
    /// One over the half, in 2^-96: to multiply is much quicker than to divide.
    per_half: u128,
    every: u64,
}

/// Requests are counted in 2^-56: a rate of one in ten years is still one.
const DAY_BITS: u32 = 56;

impl Day {
    fn new(low: Rate, high: Rate, every: u64) -> Day {
        let rate = |rate: Rate| (u128::from(rate.count) << DAY_BITS) / u128::from(rate.period);
        let half = every.div_ceil(2);
        let (low, high, per_half) = (rate(low), rate(high), (1 << 96) / u128::from(half));
        Day { low, above_low: high.saturating_sub(low), half, per_half, every }
    }

    /// The requests before a time of the day.
    fn sum(&self, time: u64) -> u128 {
        let rising = match time <= self.half {
            true => self.risen(time),
            // The afternoon is the morning, backwards.
            false => 2 * self.risen(self.half) - self.risen(self.every - time),
        };
        self.low * u128::from(time) + ((self.above_low * rising) >> 16)
    }

    /// The integral of the share, from the morning's beginning: in 2^-16
    /// microseconds.
    fn risen(&self, time: u64) -> u128 {
        let x = (u128::from(time) * self.per_half) >> 64;
        let cube = (((x * x) >> 32) * x) >> 32;
        (u128::from(self.half) * (cube - ((cube * x) >> 33))) >> 16
    }

    /// When so many have come.
    fn time_of(&self, requests: u128) -> Option<u64> {
        let whole = self.sum(self.every).max(1);
        let days = u64::try_from(requests / whole).ok()?;
        let rest = requests % whole;
        let (mut before, mut after) = (0, self.every);
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            match self.sum(middle) <= rest {
                true => before = middle,
                false => after = middle,
            }
        }
        days.checked_mul(self.every)?.checked_add(before)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn times(words: &str, count: usize) -> Vec<u64> {
        let traffic: Traffic = words.parse().unwrap();
        traffic.arrivals(1).take(count).map(|arrival| arrival.at.get() / 1_000).collect()
    }

    #[test]
    fn deterministic_traffic_arrives_on_schedule() {
        assert_eq!(times("3/s", 5), [0, 333, 666, 1_000, 1_333]);
        assert_eq!(times("bursts 3 every 10s", 4), [0, 0, 0, 10_000]);
        assert_eq!(times("bursts 4 every 10s within 1s from 9s", 5), [9_000, 9_250, 9_500, 9_750, 19_000]);
        assert_eq!(times("on-off 2/s 1500ms on 1s off", 5), [0, 500, 1_000, 2_500, 3_000]);
        assert_eq!(times("1/s from 2s until 5s", 9), [2_000, 3_000, 4_000]);
    }

    #[test]
    fn parts_and_clients_are_merged_in_order_of_time() {
        let traffic: Traffic = "a: 1/s cost 2; b: 1/2s + bursts 1 every 10s from 1s; 3 clients: 1/h".parse().unwrap();
        let arrivals: Vec<(u64, u32, u64)> =
            traffic.arrivals(0).take(8).map(|it| (it.at.get() / 1_000_000, it.client, it.cost)).collect();
        let expected = [(0, 0, 2), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (1, 0, 2), (1, 1, 1), (2, 0, 2)];
        assert_eq!(arrivals, expected);
        assert_eq!([0, 1, 4].map(|client| traffic.name(client)), ["a", "b", "client 5"]);
    }

    #[test]
    fn chance_keeps_to_its_rate() {
        let traffic: Traffic = "poisson 1000/s".parse().unwrap();
        let arrivals = traffic.arrivals(3).take_while(|arrival| arrival.at.get() < 100_000_000).count() as i64;
        // Three standard deviations.
        assert!((arrivals - 100_000).abs() < 950, "{arrivals}");
    }

    #[test]
    fn a_day_has_its_rates_where_it_says() {
        let traffic: Traffic = "diurnal 100/s to 1000/s every 1000s".parse().unwrap();
        let mut hundreds = [0i64; 10];
        for arrival in traffic.arrivals(3).take_while(|arrival| arrival.at.get() < 1_000_000_000) {
            hundreds[(arrival.at.get() / 100_000_000) as usize] += 1;
        }
        let all: i64 = hundreds.iter().sum();
        assert!((all - 550_000).abs() < 2_500, "the mean is in the middle: {all}");
        // The integral of 3x^2 - 2x^3 over the first fifth of a half day is 0.0072 of it.
        assert!((hundreds[0] - 13_240).abs() < 400, "{hundreds:?}");
        assert!((hundreds[0] - hundreds[9]).abs() < 500 && (hundreds[4] - hundreds[5]).abs() < 1_500, "{hundreds:?}");
    }

    #[test]
    fn a_seed_is_the_same_traffic_again_and_another_seed_is_not() {
        let arrivals =
            |words: &str, seed| words.parse::<Traffic>().unwrap().arrivals(seed).take(100).collect::<Vec<_>>();
        let words = "poisson 50/s; diurnal 1/s to 9/s";
        assert_eq!(arrivals(words, 1), arrivals(words, 1));
        assert_ne!(arrivals(words, 1), arrivals(words, 2));
        // Recorded: the same on every machine.
        assert_eq!(times("poisson 50/s", 5), [7, 8, 12, 25, 37]);
    }

    #[test]
    fn rates_without_measure_end_instead_of_going_wrong() {
        for words in [
            "1/us",
            "poisson 1/us",
            "poisson 1/520weeks",
            "bursts 1 every 520weeks",
            "diurnal 1/520weeks to 1/us every 520weeks",
            "diurnal 1/520weeks to 1/520weeks every 1us",
        ] {
            assert!(words.parse::<Traffic>().unwrap().arrivals(0).take(100).count() > 0, "{words}");
        }
    }
}
