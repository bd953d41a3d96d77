//! The numbers as tables, and beside them what they ought to be.

use crate::measure::Series;

/// One workload's results, and the goals it has.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) series: Vec<Series>,
    pub(crate) goals: Vec<Goal>,
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
        Table { name: name.into(), unit: "ns", series, goals }
    }

    fn find(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// All contestants of this workload.
    pub(crate) fn to_markdown(&self) -> String {
        let ours = self.series.first();
        let value = format!("{}, median", self.unit);
        let head = ["contestant", &value, "least to most", "rounds", "times the first", "least to most"];
        let rows = self.series.iter().map(|series| {
            let times = ours.map(|ours| series.over(ours));
            [
                series.name.to_string(),
                number(series.median()),
                range(series, number),
                series.count().to_string(),
                times.as_ref().map_or_else(String::new, |times| format!("{:.2}", times.median())),
                times.as_ref().map_or_else(String::new, |times| range(times, |times| format!("{times:.2}"))),
            ]
        });
        format!("### {}\n\n{}", self.name, grid(&head, &rows.collect::<Vec<_>>()))
    }
}

/// What was reached of all goals.
pub(crate) fn goals_to_markdown(tables: &[Table]) -> String {
    let head = ["workload", "who", "measured", "rival", "ratio", "over rounds", "goal", "met"];
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
    let measured = |series: &Series| format!("{} {unit}", number(series.median()));
    let times = |times: f64| format!("{times:.2}x");
    let (ours, theirs, goal, ratio, is_met): (_, _, _, _, fn(f64, f64) -> bool) = match goal {
        Goal::TimesBelow { ours, theirs, times } => {
            let ratio = table.find(theirs)?.over(table.find(ours)?);
            (ours, Some(theirs), (format!("{times:.1}x"), times), ratio, |ratio, goal| ratio >= goal)
        }
        Goal::AtMostTimes { ours, theirs, times } => {
            let ratio = table.find(ours)?.over(table.find(theirs)?);
            (ours, Some(theirs), (format!("at most {times:.2}x"), times), ratio, |ratio, goal| ratio <= goal)
        }
        Goal::AtMost { ours, bound } => {
            let goal = (format!("at most {} {unit}", number(bound)), bound);
            let (mine, none) = (table.find(ours)?, String::from("-"));
            let met = met(mine.median(), mine.median() <= bound);
            let [rival, ratio, over_rounds] = [(); 3].map(|()| none.clone());
            return Some([table.name.clone(), ours.into(), measured(mine), rival, ratio, over_rounds, goal.0, met]);
        }
    };
    let rival = measured(table.find(theirs?)?);
    let median = ratio.median();
    Some([
        table.name.clone(),
        ours.into(),
        measured(table.find(ours)?),
        rival,
        times(median),
        range(&ratio, times),
        goal.0,
        met(median, is_met(median, goal.1)),
    ])
}

fn met(measured: f64, met: bool) -> String {
    // No round in which both had the machine to themselves.
    let words = if measured.is_nan() {
        "too busy to tell"
    } else if met {
        "yes"
    } else {
        "NO"
    };
    words.to_string()
}

/// The least and the most of all rounds.
fn range(series: &Series, shown: impl Fn(f64) -> String) -> String {
    format!("{} to {}", shown(series.percentile(0)), shown(series.percentile(100)))
}

/// The processor, as it calls itself.
pub(crate) fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = known.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}, {cores} cores", name.unwrap_or("an unknown processor"))
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
