//! A report as text: columns of blocks, for terminals and comments.

use std::fmt;

use tidegate::Micros;

use crate::report::Report;
use crate::series::{Bin, nice_times};
use crate::table::{label, number, peak};
use crate::words::print_time;

/// A report as columns of blocks: what was admitted and refused over time,
/// under each limit.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'r>(&'r Report);

impl Report {
    /// What happened over time, in letters.
    #[must_use]
    pub fn chart(&self) -> Chart<'_> {
        Chart(self)
    }
}

/// Rows of blocks under each limit.
const HEIGHT: u64 = 5;

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chart(report) = self;
        let offered = report.offered.series.bars();
        let tallest = offered.bins().iter().map(|bin| bin.admitted).max().unwrap_or(0);
        let block = tallest.div_ceil(HEIGHT).max(1);
        let unit =
            if report.offered.passed.requests == report.offered.passed.units { "request" } else { "unit of cost" };
        let block_is = match block {
            1 => format!("one {unit}"),
            several => {
                format!("up to {} {}", number(several), if unit == "request" { "requests" } else { "units of cost" })
            }
        };
        let leaving = if report.delays() { ", ▪ leaving" } else { "" };
        let column = print_time(offered.width());
        writeln!(f, "One block is {block_is}: █ admitted, ░ refused{leaving}. A column is {column}.")?;
        let axis = axis(offered.bins().len(), offered.width());
        for outcome in &report.outcomes {
            let (admitted, came) = (outcome.flow.series.bars(), report.offered_of(outcome).series.bars());
            let [passed, offers] = [outcome.flow.passed, outcome.offered].map(|count| number(count.requests));
            writeln!(f, "\n{}: {passed} of {offers} admitted, up to {}", label(outcome), peak(outcome))?;
            for row in (1..=HEIGHT).rev() {
                let mark = |(admitted, offered): (&Bin, &Bin)| match row {
                    row if row <= blocks(admitted.admitted, block) => '█',
                    row if row <= blocks(offered.admitted, block) => '░',
                    _ => ' ',
                };
                line(f, admitted.bins().iter().zip(came.bins()).map(mark))?;
            }
            writeln!(f, "{axis}")?;
            if outcome.delays() {
                line(f, admitted.bins().iter().map(|bin| if bin.leaving > 0 { '▪' } else { ' ' }))?;
            }
        }
        Ok(())
    }
}

/// Something is never nothing.
fn blocks(units: u64, block: u64) -> u64 {
    units.div_ceil(block)
}

fn line(f: &mut fmt::Formatter<'_>, marks: impl Iterator<Item = char>) -> fmt::Result {
    writeln!(f, "{}", marks.collect::<String>().trim_end())
}

/// A line with a time wherever there is room for one.
fn axis(columns: usize, width: Micros) -> String {
    let length = width.get() * columns as u64;
    // Eight letters or more from one to the next.
    let step = nice_times().find(|time| *time >= width.get() * 8 && time % width.get() == 0).unwrap_or(length);
    let mut axis = String::new();
    for time in (0..=length).step_by(step as usize) {
        let column = (time / width.get()) as usize;
        let fill = column - axis.chars().count().min(column);
        axis += &"─".repeat(fill);
        axis += &if time == 0 { "0".to_owned() } else { print_time(Micros::new(time)) };
    }
    let fill = columns.saturating_sub(axis.chars().count());
    axis + &"─".repeat(fill)
}
