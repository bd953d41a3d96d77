//! Traffic in words: read, and printed so that the same is read again.

use std::fmt;
use std::str::FromStr;

use tidegate::{Floor, Micros};

use super::{Group, Part, Shape, Spread, Traffic, Who};
use crate::words::{Rate, print_time, read_time};

/// Why words are no traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// Something else was expected.
    #[error("cannot read {text:?} as traffic: expected {expected}, found {found:?}")]
    Unreadable {
        /// The part that cannot be read.
        text: String,
        /// What could have stood there.
        expected: &'static str,
        /// What stood there.
        found: String,
    },
    /// A burst that lasts until after the next has begun.
    #[error("a burst within {within} does not end before the next, {every} later: make it shorter, or bursts rarer")]
    Overlap {
        /// How long a burst takes.
        within: String,
        /// How far bursts are apart.
        every: String,
    },
    /// A day whose rates are the wrong way round.
    #[error("a day goes from its lower rate to its higher: write diurnal {high} to {low}")]
    Downwards {
        /// What was given as the lower rate.
        low: String,
        /// What was given as the higher rate.
        high: String,
    },
    /// Traffic that ends before it begins.
    #[error("traffic from {from} until {until} never comes: let it end after it begins")]
    Never {
        /// The beginning.
        from: String,
        /// The end.
        until: String,
    },
    /// An actual cost of requests that do not last.
    #[error("an actual cost is known when a request ends: say how long it lasts, such as actual {actual} lasting 2s")]
    NeverSettled {
        /// The actual cost.
        actual: String,
    },
    /// More clients than a simulation has room for.
    #[error("{clients} clients are too many: have at most {bound}")]
    TooManyClients {
        /// How many there would be.
        clients: u64,
        /// The number that is allowed.
        bound: u32,
    },
}

/// A day, unless told otherwise.
const DAY: u64 = 86_400_000_000;

impl FromStr for Traffic {
    type Err = TrafficError;

    fn from_str(text: &str) -> Result<Traffic, TrafficError> {
        let mut groups = text.split(';').map(group);
        let first = groups.next().unwrap_or_else(|| group(""))?;
        let traffic = Traffic { groups: vec![first] }.checked()?;
        groups.try_fold(traffic, |traffic, group| traffic.and(Traffic { groups: vec![group?] }))
    }
}

fn group(text: &str) -> Result<Group, TrafficError> {
    let (who, sent) = match text.split_once(':') {
        Some((who, sent)) => (read_who(who.trim(), text)?, sent),
        None => (Who::Someone, text),
    };
    let parts = sent.split('+').map(|part| Reader { text: part.trim(), words: part.split_whitespace() }.part());
    Ok(Group { who, parts: parts.collect::<Result<_, _>>()? })
}

fn read_who(who: &str, text: &str) -> Result<Who, TrafficError> {
    let unreadable = || TrafficError::Unreadable {
        text: text.trim().to_owned(),
        expected: "a client's name, or a number such as 20 clients, before the colon",
        found: who.to_owned(),
    };
    let mut words = who.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(number), Some("clients" | "client"), None) => match number.parse() {
            Ok(number) if number > 0 => Ok(Who::Several(number)),
            Ok(_) | Err(_) => Err(unreadable()),
        },
        (Some(_), _, _) if !who.contains(char::is_control) => Ok(Who::Named(who.to_owned())),
        (None | Some(_), _, _) => Err(unreadable()),
    }
}

/// The words of one part.
struct Reader<'t> {
    text: &'t str,
    words: std::str::SplitWhitespace<'t>,
}

impl<'t> Reader<'t> {
    fn part(mut self) -> Result<Part, TrafficError> {
        let shape = self.shape()?;
        let mut part = Part { shape, from: 0, until: None, cost: 1, floor: Floor::NONE, lasting: None, actual: None };
        while let Some(word) = self.words.next() {
            match (word, &mut part.shape) {
                ("from", _) => part.from = self.time("a time after from, such as 10s")?,
                ("until", _) => part.until = Some(self.time("a time after until, such as 2min")?),
                ("cost", _) => part.cost = self.cost()?,
                ("floor", _) => {
                    let word = self.words.next().unwrap_or_default();
                    let expected = "a share of the limit below 100%, such as 20%, or units of it";
                    part.floor = word.parse().map_err(|_| self.unreadable(expected, word))?;
                }
                ("lasting", _) => {
                    let read = |word: &str| read_time(word).map(Micros::get);
                    part.lasting = Some(self.spread("a time after lasting, such as 2s or 1s..5s", read)?);
                }
                ("actual", _) => {
                    let read = |word: &str| word.parse().ok().filter(|actual| *actual <= Traffic::MAX_COST);
                    part.actual = Some(self.spread("a cost from 0 to 1000000, such as 300 or 100..900", read)?);
                }
                ("within", Shape::Bursts { within, .. }) => *within = Some(self.time("a time after within")?),
                ("every", Shape::Diurnal { every, .. }) => *every = self.time("a time after every")?,
                (other, shape) => {
                    let expected = match shape {
                        Shape::Bursts { .. } => "within, from, until, cost, floor, lasting, actual or the end",
                        Shape::Diurnal { .. } => "every, from, until, cost, floor, lasting, actual or the end",
                        Shape::Constant(_) | Shape::Poisson(_) | Shape::OnOff { .. } => {
                            "from, until, cost, floor, lasting, actual or the end"
                        }
                    };
                    return Err(self.unreadable(expected, other));
                }
            }
        }
        valid(part)
    }

    fn shape(&mut self) -> Result<Shape, TrafficError> {
        let word = self.words.next().unwrap_or_default();
        match word {
            "constant" => Ok(Shape::Constant(self.rate()?)),
            "poisson" => Ok(Shape::Poisson(self.rate()?)),
            "bursts" | "burst" => {
                let size = self.number("how many come in a burst, such as bursts 200 every 1min")?;
                self.keyword("every", "every, and how often: bursts 200 every 1min")?;
                Ok(Shape::Bursts { size, every: self.time("a time after every, such as 1min")?, within: None })
            }
            "on-off" => {
                const PHASES: &str = "how long it is on and off, such as on-off 100/s 5s on 10s off";
                let rate = self.rate()?;
                let on = self.time(PHASES)?;
                self.keyword("on", PHASES)?;
                let off = self.time(PHASES)?;
                self.keyword("off", PHASES)?;
                Ok(Shape::OnOff { rate, on, off })
            }
            "diurnal" => {
                let low = self.rate()?;
                self.keyword("to", "to, and the higher rate: diurnal 10/s to 100/s")?;
                Ok(Shape::Diurnal { low, high: self.rate()?, every: DAY })
            }
            rate if Rate::read(rate).is_some() => Ok(Shape::Constant(self.sensible(rate)?)),
            other => {
                let expected = "constant 50/s, poisson 50/s, bursts 200 every 1min, on-off 100/s 5s on 10s off \
                                or diurnal 10/s to 100/s";
                Err(self.unreadable(expected, other))
            }
        }
    }

    fn rate(&mut self) -> Result<Rate, TrafficError> {
        let word = self.words.next().unwrap_or_default();
        self.sensible(word)
    }

    /// A rate that can be told apart in microseconds.
    fn sensible(&self, word: &str) -> Result<Rate, TrafficError> {
        let rate = Rate::read(word).ok_or_else(|| self.unreadable("a rate such as 50/s or 1/10min", word))?;
        match rate.count <= rate.period {
            true => Ok(rate),
            false => Err(self.unreadable("at most 1000000/s, as time is in microseconds; bursts can be larger", word)),
        }
    }

    fn time(&mut self, expected: &'static str) -> Result<u64, TrafficError> {
        let word = self.words.next().unwrap_or_default();
        read_time(word).map(Micros::get).ok_or_else(|| self.unreadable(expected, word))
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, TrafficError> {
        let word = self.words.next().unwrap_or_default();
        // As large as a count of a limit may be, and as it is written there.
        Rate::read(&format!("{word}/s")).map(|rate| rate.count).ok_or_else(|| self.unreadable(expected, word))
    }

    fn cost(&mut self) -> Result<u64, TrafficError> {
        let word = self.words.clone().next().unwrap_or_default();
        let cost = self.number("a cost from 1 to 1000000")?;
        match cost <= Traffic::MAX_COST {
            true => Ok(cost),
            false => Err(self.unreadable("a cost from 1 to 1000000", word)),
        }
    }

    fn spread(&mut self, expected: &'static str, read: impl Fn(&str) -> Option<u64>) -> Result<Spread, TrafficError> {
        let word = self.words.next().unwrap_or_default();
        let (least, most) = word.split_once("..").unwrap_or((word, word));
        match (read(least), read(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Spread { least, most }),
            (Some(_) | None, _) => Err(self.unreadable(expected, word)),
        }
    }

    fn keyword(&mut self, keyword: &str, expected: &'static str) -> Result<(), TrafficError> {
        match self.words.next().unwrap_or_default() {
            word if word == keyword => Ok(()),
            other => Err(self.unreadable(expected, other)),
        }
    }

    fn unreadable(&self, expected: &'static str, found: &str) -> TrafficError {
        TrafficError::Unreadable { text: self.text.to_owned(), expected, found: found.to_owned() }
    }
}

/// What no single word shows to be wrong.
fn valid(part: Part) -> Result<Part, TrafficError> {
    let print = |time: u64| print_time(Micros::new(time));
    match part.shape {
        Shape::Bursts { within: Some(within), every, .. } if within > every => {
            return Err(TrafficError::Overlap { within: print(within), every: print(every) });
        }
        Shape::Diurnal { low, high, .. } => {
            let product = |count: u64, period: u64| u128::from(count) * u128::from(period);
            if product(low.count, high.period) > product(high.count, low.period) {
                return Err(TrafficError::Downwards { low: low.print(), high: high.print() });
            }
        }
        Shape::Constant(_) | Shape::Poisson(_) | Shape::Bursts { .. } | Shape::OnOff { .. } => {}
    }
    if let (Some(actual), None) = (part.actual, part.lasting) {
        return Err(TrafficError::NeverSettled { actual: print_spread(actual, |cost| cost.to_string()) });
    }
    match part.until {
        Some(until) if until <= part.from => Err(TrafficError::Never { from: print(part.from), until: print(until) }),
        Some(_) | None => Ok(part),
    }
}

pub(super) fn print(traffic: &Traffic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, group) in traffic.groups.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { "; " })?;
        match &group.who {
            Who::Someone => {}
            Who::Named(name) => write!(f, "{name}: ")?,
            Who::Several(number) => write!(f, "{number} clients: ")?,
        }
        for (index, part) in group.parts.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " + " })?;
            print_part(part, f)?;
        }
    }
    Ok(())
}

fn print_part(part: &Part, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let time = |time: u64| print_time(Micros::new(time));
    match part.shape {
        Shape::Constant(rate) => write!(f, "constant {}", rate.print())?,
        Shape::Poisson(rate) => write!(f, "poisson {}", rate.print())?,
        Shape::Bursts { size, every, within } => {
            write!(f, "bursts {size} every {}", time(every))?;
            if let Some(within) = within {
                write!(f, " within {}", time(within))?;
            }
        }
        Shape::OnOff { rate, on, off } => write!(f, "on-off {} {} on {} off", rate.print(), time(on), time(off))?,
        Shape::Diurnal { low, high, every } => {
            write!(f, "diurnal {} to {}", low.print(), high.print())?;
            if every != DAY {
                write!(f, " every {}", time(every))?;
            }
        }
    }
    if part.from > 0 {
        write!(f, " from {}", time(part.from))?;
    }
    if let Some(until) = part.until {
        write!(f, " until {}", time(until))?;
    }
    if part.cost != 1 {
        write!(f, " cost {}", part.cost)?;
    }
    if part.floor != Floor::NONE {
        write!(f, " floor {}", part.floor)?;
    }
    if let Some(actual) = part.actual {
        write!(f, " actual {}", print_spread(actual, |cost| cost.to_string()))?;
    }
    if let Some(lasting) = part.lasting {
        write!(f, " lasting {}", print_spread(lasting, time))?;
    }
    Ok(())
}

fn print_spread(spread: Spread, print: impl Fn(u64) -> String) -> String {
    match spread {
        Spread { least, most } if least == most => print(least),
        Spread { least, most } => format!("{}..{}", print(least), print(most)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn traffic_prints_the_words_that_it_is_read_from() {
        for words in [
            "constant 50/s",
            "poisson 1/10min",
            "bursts 200 every 1min within 2s from 59s until 1h cost 3",
            "on-off 100/s 5s on 10s off",
            "poisson 2/s cost 400 actual 0..900 lasting 1s..5s",
            "constant 2/s lasting 250ms",
            "poisson 30/s floor 50% + bursts 5 every 1s cost 2 floor 200",
            "diurnal 10/s to 100/s",
            "alice: diurnal 10/s to 100/s every 1h + bursts 5 every 10s; 20 clients: constant 1/s; poisson 2/s",
        ] {
            assert_eq!(words.parse::<Traffic>().map(|traffic| traffic.to_string()), Ok(words.to_owned()));
        }
        assert_eq!("50/s".parse::<Traffic>(), "constant 50/s".parse());
        assert_eq!("a: 1/s; b: 2/s; a: 3/s".parse::<Traffic>(), "a: 1/s + 3/s; b: 2/s".parse());
    }

    #[test]
    fn a_parse_error_says_what_was_expected() {
        let long = format!("{} clients: 1/s", Traffic::MAX_CLIENTS + 1);
        for (words, said) in [
            ("", "expected constant 50/s, poisson"),
            ("poison 50/s", "found \"poison\""),
            ("poisson 50", "a rate such as 50/s or 1/10min, found \"50\""),
            ("poisson 0/s", "a rate such as"),
            ("poisson 2/us", "at most 1000000/s"),
            ("1000001/s", "at most 1000000/s"),
            ("poisson 5/s now", "from, until, cost, floor, lasting, actual or the end, found \"now\""),
            ("5/s within 1s", "found \"within\""),
            ("bursts many every 1s", "how many come in a burst"),
            ("bursts 5 each 1s", "every, and how often"),
            ("bursts 5 every 1s within 2s", "does not end before the next, 1s later"),
            ("on-off 5/s 1s 2s", "how long it is on and off"),
            ("diurnal 5/s to 2/s", "write diurnal 2/s to 5/s"),
            ("5/s from 2s until 1s", "never comes"),
            ("5/s cost 0", "a cost from 1 to 1000000"),
            ("5/s floor 100%", "a share of the limit below 100%, such as 20%, or units of it, found \"100%\""),
            ("5/s cost 1000001", "a cost from 1 to 1000000, found \"1000001\""),
            ("5/s lasting 0s", "a time after lasting, such as 2s or 1s..5s, found \"0s\""),
            ("5/s lasting 5s..1s", "found \"5s..1s\""),
            ("5/s lasting", "a time after lasting"),
            ("5/s lasting 1s actual 1000001", "a cost from 0 to 1000000"),
            ("5/s lasting 1s actual 1..", "found \"1..\""),
            ("5/s actual 3..7", "such as actual 3..7 lasting 2s"),
            ("0 clients: 5/s", "before the colon"),
            (": 5/s", "before the colon"),
            ("1/s; ", "expected constant"),
            (long.as_str(), "have at most 1000"),
            ("4294967296 clients: 1/s", "before the colon"),
        ] {
            let error = words.parse::<Traffic>().unwrap_err().to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }
}
