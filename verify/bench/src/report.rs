//! The numbers as tables, and beside them what they ought to be.

use crate::measure::Series;

/// One workload's results, and the goals it has.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) reading: Reading,
    pub(crate) series: Vec<Series>,
    pub(crate) goals: Vec<Goal>,
}

/// Which round speaks for all.
#[derive(Clone, Copy)]
pub(crate) enum Reading {
    /// The middle one.
    Median,
    /// The least: for the longest of many times, of which the machine's own
    /// hiccups can only make more.
    Least,
}

/// What is asked of a contestant.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// To be so many times below another.
    TimesBelow { ours: &'static str, theirs: &'static str, times: f64 },
    /// To be no more than so many times another.
    AtMostTimes { ours: &'static str, theirs: &'static str, times: f64 },
    /// To be no more than that.
    AtMost { ours: &'static str, bound: f64 },
}

impl Table {
    /// Nanoseconds per check.
    pub(crate) fn of_checks(name: &str, series: Vec<Series>, goals: Vec<Goal>) -> Table {
        Table { name: name.into(), unit: "ns", reading: Reading::Median, series, goals }
    }

    fn value(&self, series: &Series) -> f64 {
        match self.reading {
            Reading::Median => series.median(),
            Reading::Least => series.least(),
        }
    }

    fn find(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// All contestants of this workload.
    pub(crate) fn to_markdown(&self) -> String {
        let ours = self.series.first();
        let reading = match self.reading {
            Reading::Median => "median",
            Reading::Least => "least",
        };
        let value = format!("{}, {reading}", self.unit);
        let head = ["contestant", &value, "p10 to p90", "rounds", "times the first", "by rounds"];
        let rows = self.series.iter().map(|series| {
            let times = ours.map_or(f64::NAN, |ours| self.value(series) / self.value(ours));
            let by_rounds = ours.map_or(f64::NAN, |ours| series.over(ours).median());
            [
                series.name.to_string(),
                number(self.value(series)),
                format!("{} to {}", number(series.percentile(10)), number(series.percentile(90))),
                series.count().to_string(),
                format!("{times:.2}"),
                format!("{by_rounds:.2}"),
            ]
        });
        format!("### {}\n\n{}", self.name, grid(&head, &rows.collect::<Vec<_>>()))
    }
}

/// What was reached of all goals.
pub(crate) fn goals_to_markdown(tables: &[Table]) -> String {
    let head = ["workload", "who", "measured", "rival", "ratio", "by rounds", "goal", "met"];
    let mut rows = Vec::new();
    for table in tables {
        for goal in &table.goals {
            rows.extend(row(table, *goal));
        }
    }
    "## Goals\n\n".to_string() + &grid(&head, &rows)
}

fn row(table: &Table, goal: Goal) -> Option<[String; 8]> {
    let unit = table.unit;
    let measured = |series: &Series| format!("{} {unit}", number(table.value(series)));
    let met = |measured: f64, met: bool| {
        // No round in which both had the machine to themselves.
        let words = if measured.is_nan() {
            "too busy to tell"
        } else if met {
            "yes"
        } else {
            "NO"
        };
        words.to_string()
    };
    let workload = table.name.clone();
    Some(match goal {
        Goal::TimesBelow { ours, theirs, times } => {
            let (mine, rival) = (table.find(ours)?, table.find(theirs)?);
            let ratio = table.value(rival) / table.value(mine);
            let by_rounds = rival.over(mine).median();
            let counts = match table.reading {
                Reading::Median => by_rounds,
                Reading::Least => ratio,
            };
            [
                workload,
                ours.into(),
                measured(mine),
                measured(rival),
                format!("{ratio:.2}x"),
                format!("{by_rounds:.2}x"),
                format!("{times:.1}x"),
                met(counts, counts >= times),
            ]
        }
        Goal::AtMostTimes { ours, theirs, times } => {
            let (mine, rival) = (table.find(ours)?, table.find(theirs)?);
            let by_rounds = mine.over(rival).median();
            [
                workload,
                ours.into(),
                measured(mine),
                measured(rival),
                format!("{:.2}x", table.value(mine) / table.value(rival)),
                format!("{by_rounds:.2}x"),
                format!("at most {times:.1}x"),
                met(by_rounds, by_rounds <= times),
            ]
        }
        Goal::AtMost { ours, bound } => {
            let mine = table.find(ours)?;
            let none = || "-".to_string();
            let goal = format!("at most {} {unit}", number(bound));
            let value = table.value(mine);
            [workload, ours.into(), measured(mine), none(), none(), none(), goal, met(value, value <= bound)]
        }
    })
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// A Markdown table whose columns line up.
fn grid<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let cells: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = widths.map(|width| "-".repeat(width));
    let mut text = line(&head.map(String::from)) + &line(&rule);
    for row in rows {
        text += &line(row);
    }
    text + "\n"
}
