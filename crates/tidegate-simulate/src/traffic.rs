//! Who asks, and when: clients, each with traffic of its own.
//!
//! Traffic is a plain value that prints the words it was read from. What it
//! sends is made on the fly from a seed, one request at a time.

mod arrivals;
mod words;

use std::fmt;

use tidegate::{Floor, Micros};

pub use arrivals::{Arrival, Arrivals};
pub use words::TrafficError;

use crate::words::Rate;

/// The traffic of one or more clients.
///
/// ```
/// use tidegate_simulate::Traffic;
///
/// let traffic: Traffic = "poisson 50/s; bob: bursts 200 every 1min within 2s; 20 clients: 1/s".parse()?;
/// assert_eq!(traffic.clients(), 22);
/// let first: Vec<u64> = traffic.arrivals(7).take(3).map(|arrival| arrival.at.get()).collect();
/// assert_eq!(first, [0, 0, 0]);
/// # Ok::<(), tidegate_simulate::TrafficError>(())
/// ```
///
/// # The words
///
/// | words | what comes |
/// |---|---|
/// | `constant 50/s`, or only `50/s` | evenly |
/// | `poisson 50/s` | by chance, at that rate on average, each independent of all others |
/// | `bursts 200 every 1min` | 200 at once; with `within 2s`, evenly over two seconds |
/// | `on-off 100/s 5s on 10s off` | evenly for a while, then nothing for a while |
/// | `diurnal 10/s to 100/s` | by chance, from the lower rate at midnight to the higher at noon and back; `every 1h` if a day is that long |
///
/// Each can end in `from 10s`, `until 2min`, `cost 3`, `floor 50%`, `lasting 2s`, `actual 5`. A `+` joins what
/// one client sends; a `;` sets clients apart, who may have names, or a number:
///
/// ```text
/// alice: poisson 5/s + bursts 100 every 10min; 20 clients: 1/s
/// ```
///
/// Requests that last are reservations: charged their cost, which is an estimate, when they come,
/// and settled to what they actually took when they end. `1s..5s` and `100..900` are by chance,
/// both ends included:
///
/// ```text
/// poisson 2/s cost 400 actual 100..900 lasting 1s..5s
/// ```
/// Requests with a floor are a class that leaves so much of the limit to others, as by
/// [`tidegate::PriorityClasses`]. Where there are several floors, each has outcomes of its own:
///
/// ```text
/// poisson 30/s floor 50% + poisson 5/s
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    groups: Vec<Group>,
}

/// Clients who send alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    who: Who,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// One, without a name.
    Someone,
    Named(String),
    Several(u32),
}

impl Who {
    fn count(&self) -> u32 {
        match self {
            Who::Someone | Who::Named(_) => 1,
            Who::Several(number) => *number,
        }
    }
}

/// One kind of traffic of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    shape: Shape,
    /// Microseconds from the start of all traffic.
    from: u64,
    until: Option<u64>,
    cost: u64,
    /// What it leaves to others.
    floor: Floor,
    /// How long a request takes, in microseconds.
    lasting: Option<Spread>,
    /// What it costs in the end: only of one that lasts.
    actual: Option<Spread>,
}

/// A number by chance, all of these alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spread {
    least: u64,
    most: u64,
}

/// When requests come; times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Constant(Rate),
    Poisson(Rate),
    Bursts { size: u64, every: u64, within: Option<u64> },
    OnOff { rate: Rate, on: u64, off: u64 },
    Diurnal { low: Rate, high: Rate, every: u64 },
}

impl Traffic {
    /// The most clients of one traffic.
    pub const MAX_CLIENTS: u32 = 1_000;

    /// The largest cost of a request: no sum of what can be simulated is too
    /// large then.
    pub const MAX_COST: u64 = 1_000_000;

    /// This traffic and more, of further clients; of the same one, where a name
    /// is the same.
    ///
    /// # Errors
    /// If that would be more than [`MAX_CLIENTS`](Traffic::MAX_CLIENTS).
    pub fn and(mut self, more: Traffic) -> Result<Traffic, TrafficError> {
        for group in more.groups {
            match self.groups.iter_mut().find(|known| matches!(known.who, Who::Named(_)) && known.who == group.who) {
                Some(known) => known.parts.extend(group.parts),
                None => self.groups.push(group),
            }
        }
        self.checked()
    }

    fn checked(self) -> Result<Traffic, TrafficError> {
        let clients: u64 = self.groups.iter().map(|group| u64::from(group.who.count())).sum();
        if clients > u64::from(Traffic::MAX_CLIENTS) {
            return Err(TrafficError::TooManyClients { clients, bound: Traffic::MAX_CLIENTS });
        }
        Ok(self)
    }

    /// How many clients there are.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.groups.iter().map(|group| group.who.count()).sum()
    }

    /// What the client of this number is called.
    #[must_use]
    pub fn name(&self, client: u32) -> String {
        let mut first = 0;
        for group in &self.groups {
            let behind = first + group.who.count();
            if let Who::Named(name) = &group.who
                && (first..behind).contains(&client)
            {
                return name.clone();
            }
            first = behind;
        }
        format!("client {}", client + 1)
    }

    /// The largest cost of any request.
    #[must_use]
    pub fn largest_cost(&self) -> u64 {
        self.parts().map(|part| part.cost).max().unwrap_or(1)
    }

    /// What its classes leave to others, in the order of the words; one, if all do alike.
    #[must_use]
    pub fn classes(&self) -> Vec<Floor> {
        let mut classes: Vec<Floor> = Vec::new();
        for part in self.parts() {
            if !classes.contains(&part.floor) {
                classes.push(part.floor);
            }
        }
        classes
    }

    /// The largest cost of a request, and what must be left for it beside that.
    pub(crate) fn costs(&self) -> impl Iterator<Item = (u64, Floor)> {
        self.parts().map(|part| (part.cost, part.floor))
    }

    /// About how many requests are in flight at once, at most, if all are admitted.
    pub(crate) fn in_flight(&self) -> u128 {
        let in_flight = |part: &Part| {
            let lasting = u128::from(part.lasting?.most);
            Some(match part.shape {
                Shape::Bursts { size, every, .. } => u128::from(size) * lasting.div_ceil(every.into()),
                Shape::Constant(rate)
                | Shape::Poisson(rate)
                | Shape::OnOff { rate, .. }
                | Shape::Diurnal { high: rate, .. } => (u128::from(rate.count) * lasting).div_ceil(rate.period.into()),
            })
        };
        let of_group =
            |group: &Group| u128::from(group.who.count()) * group.parts.iter().filter_map(in_flight).sum::<u128>();
        self.groups.iter().map(of_group).sum()
    }

    /// After what time it repeats itself, if any part does; the longest, if
    /// several do.
    #[must_use]
    pub fn cycle(&self) -> Option<Micros> {
        let cycle = |part: &Part| match part.shape {
            Shape::Constant(_) | Shape::Poisson(_) => None,
            Shape::Bursts { every, .. } | Shape::Diurnal { every, .. } => Some(Micros::new(every)),
            Shape::OnOff { on, off, .. } => Some(Micros::new(on + off)),
        };
        self.parts().filter_map(cycle).max()
    }

    /// All that is sent, in order of time; without end, unless every part of
    /// the traffic has one.
    #[must_use]
    pub fn arrivals(&self, seed: u64) -> Arrivals {
        Arrivals::new(self, seed)
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.groups.iter().flat_map(|group| &group.parts)
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        words::print(self, f)
    }
}
