//! Periods of calendars as Python and PostgreSQL found them, see `verify/calendar`.
//!
//! Numbers are in base 36. A line has a tick in seconds and a calendar in words. The lines below it are periods: the ticks
//! from the last start to this one, the ticks from its start to its end, and instants in it, in seconds from its start. `-`
//! after an instant means the microsecond before it.

use std::{env, fs};

use tidegate::{Calendar, Micros};

/// As recorded; `TIDEGATE_CALENDAR` names a file of more.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/calendar-edges.txt");

/// An instant, and where its period starts and ends.
type Case = (Micros, Micros, Micros);

#[test]
fn every_period_is_as_python_and_postgresql_found_it() {
    let path = env::var("TIDEGATE_CALENDAR").unwrap_or_else(|_| RECORDED.to_owned());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (written, rest) = text.split_once('\n').expect("a line that says how many cases there are");
    let mut lines = rest.lines().peekable();
    let (mut asked, mut differing) = (0, Vec::new());
    while let Some(line) = lines.next() {
        let (tick, words) = line.split_once(' ').expect(line);
        let (tick, calendar): (u64, Calendar) = (number(tick), words.parse().expect(words));
        let (mut cases, mut last) = (Vec::new(), 0);
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            last = read(line, tick, last, &mut cases);
        }
        asked += cases.len();
        // Once more in an order in which the thread does not remember the period from the case before.
        let again = (0..cases.len()).map(|place| &cases[place * 17 % cases.len()]);
        for &(at, start, end) in cases.iter().chain(again) {
            let found = calendar.period_of(at);
            if found != (start, end) {
                differing.push(format!("{words} at {at:?}: {found:?}, not {:?}", (start, end)));
            }
        }
    }
    assert!(written.starts_with(&format!("# {asked} cases")) && asked > 0, "{asked} cases read of {written}");
    println!("{asked} cases, {} differences", differing.len());
    assert!(
        differing.is_empty(),
        "{}\n{} differences. If the time zone database has a new version, record them anew: verify/calendar/README.md",
        differing[..differing.len().min(20)].join("\n"),
        differing.len(),
    );
}

/// Reads the cases of a period, and returns the second of its start.
fn read(line: &str, tick: u64, last: u64, cases: &mut Vec<Case>) -> u64 {
    let second = |second: u64| Micros::new(second * 1_000_000);
    let mut numbers = line.split_whitespace();
    let mut next = || tick * number(numbers.next().expect(line));
    let start = last + next();
    let end = start + next();
    for instant in numbers {
        let at = match instant.strip_suffix('-') {
            Some(digits) => Micros::new((start + number(digits)) * 1_000_000 - 1),
            None => second(start + number(instant)),
        };
        cases.push((at, second(start), second(end)));
    }
    start
}

fn number(digits: &str) -> u64 {
    u64::from_str_radix(digits, 36).expect(digits)
}
