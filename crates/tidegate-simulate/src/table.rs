//! A report as a table: numbers to the right, whole words above.

use std::fmt;

use tidegate::Micros;

use crate::measure::Flow;
use crate::report::{Outcome, Report};
use crate::words::{decimal, print_rounded, print_time};

/// A report as a table, for terminals.
///
/// What its columns mean is told at [`Flow`].
#[derive(Clone, Copy, Debug)]
pub struct Table<'r>(&'r Report);

impl Report {
    /// The numbers, side by side.
    #[must_use]
    pub fn table(&self) -> Table<'_> {
        Table(self)
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table(report) = self;
        let mut rows: Vec<Vec<String>> = HEADS.iter().map(|head| head.map(str::to_owned).to_vec()).collect();
        rows.push(offered(report));
        rows.extend(report.outcomes.iter().map(row));
        for column in (ALWAYS..HEADS[0].len()).rev() {
            if rows[HEADS.len()..].iter().all(|row| row[column].is_empty()) {
                rows.iter_mut().for_each(|row| drop(row.remove(column)));
            }
        }
        let columns = rows[0].len();
        let widths: Vec<usize> =
            (0..columns).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
        for row in rows {
            let mut line = format!("{:<width$}", row[0], width = widths[0]);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate().skip(1) {
                // A share stands close to its number.
                let gap = if SHARES.contains(&index) { 1 } else { 2 };
                line += &format!("{:gap$}{cell:>width$}", "");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

const HEADS: [[&str; 12]; 2] = [
    ["", "", "", "", "", "longest", "worst", "", "smooth-", "longest", "most in", "longest"],
    ["", "admitted", "", "refused", "", "burst", "window", "", "ness", "delay", "flight", "debt"],
];

/// The columns that are there even if they are empty.
const ALWAYS: usize = 9;

/// The columns that say more of the one before.
const SHARES: [usize; 3] = [2, 4, 7];

fn offered(report: &Report) -> Vec<String> {
    let flow = &report.offered;
    let mut cells = vec![String::new(); HEADS[0].len()];
    cells[0] = format!("offered {}", number(flow.passed.requests));
    cells[5] = number(flow.burst);
    cells[6] = number(flow.worst_window.units);
    cells[8] = smoothness(flow);
    cells[10] = in_flight(flow);
    cells
}

fn row(outcome: &Outcome) -> Vec<String> {
    let flow = &outcome.flow;
    let (offered, admitted, refused) = (outcome.offered.requests, flow.passed.requests, outcome.refused().requests);
    vec![
        label(outcome),
        number(admitted),
        percent(admitted, offered),
        number(refused),
        percent(refused, offered),
        number(flow.burst),
        number(flow.worst_window.units),
        above_limit(outcome),
        smoothness(flow),
        time(flow.longest_delay),
        in_flight(flow),
        time(flow.longest_debt),
    ]
}

fn time(time: Micros) -> String {
    if time == Micros::ZERO { String::new() } else { print_rounded(time) }
}

fn in_flight(flow: &Flow) -> String {
    if flow.most_in_flight == 0 { String::new() } else { number(flow.most_in_flight) }
}

/// [`Outcome::peak`] in words: `13 in 1s`, or `8 in flight`.
pub(crate) fn peak(outcome: &Outcome) -> String {
    let kind = match outcome.counts_in_flight() {
        true => "flight".to_owned(),
        false => print_time(Micros::from_duration(outcome.limit.period())),
    };
    format!("{} in {kind}", number(outcome.peak()))
}

/// What an outcome is called: the algorithm, the numbers of its limit, and the class if there are several.
pub(crate) fn label(outcome: &Outcome) -> String {
    let words = outcome.limit.to_string();
    // The algorithm's word comes first, if it is said at all.
    let numbers = words.find(|first: char| first.is_ascii_digit()).map_or(&*words, |at| &words[at..]);
    let class = outcome.class.as_ref().map_or_else(String::new, |class| format!(", floor {}", class.floor));
    format!("{} {numbers}{class}", outcome.name())
}

/// By how much the worst window was above what the limit says.
fn above_limit(outcome: &Outcome) -> String {
    let (worst, count) = (outcome.flow.worst_window.units, outcome.limit.count());
    match worst.saturating_sub(count) {
        // A limit on requests in flight has nothing to say of windows.
        _ if outcome.counts_in_flight() => String::new(),
        0 => String::new(),
        above => format!("+{}%", number((u128::from(above) * 100 / u128::from(count)) as u64)),
    }
}

fn smoothness(flow: &Flow) -> String {
    flow.smoothness.map_or("-".to_owned(), |thousandths| percent(u64::from(thousandths), 1_000))
}

/// A share in percent, to a tenth; only nothing is 0.0% and only all is 100.0%.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    let tenths = (part * 2_000 + whole) / (2 * whole);
    let tenths = if part > 0 && part < whole { tenths.clamp(1, 999) } else { tenths };
    format!("{}.{}%", tenths / 10, tenths % 10)
}

/// A number of at most five letters, rounded down.
pub(crate) fn short(value: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    match units.into_iter().find(|(unit, _)| value >= *unit && value >= 10_000) {
        None => number(value),
        Some((unit, name)) if value < 10 * unit => decimal(value / (unit / 10) * (unit / 10), unit, name),
        Some((unit, name)) => format!("{}{name}", value / unit),
    }
}

/// A number with a comma before each three digits.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_to_be_read() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        let shares = [(1, 3), (2, 3), (999_999, 1_000_000), (1, 1_000_000), (0, 0), (5, 5)];
        let shares = shares.map(|(part, whole)| percent(part, whole));
        assert_eq!(shares, ["33.3%", "66.7%", "99.9%", "0.1%", "0.0%", "100.0%"]);
        let short = [9_999, 10_000, 186_744, 1_000_000, 12_345_678].map(short);
        assert_eq!(short, ["9,999", "10k", "186k", "1M", "12M"]);
    }
}
