//! The report for a terminal.

use std::fmt::{self, Write};
use std::time::Duration;

use super::words::{count, duration, in_words, peak, share, short};
use super::{Broken, Change, Example, KeyReport, Report, Timings, Titles};
use crate::source::Compression;

/// Keys that are listed: the rest is in the other outputs.
const MAX_LISTED_KEYS: usize = 10;
/// Columns of the picture of when.
const COLUMNS: usize = 60;
/// Characters of a key or limit that are shown.
const WIDEST: usize = 44;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { source, line, reason, text } = self;
        write!(f, "{source}:{line}: {reason}")?;
        if text.is_empty() { Ok(()) } else { write!(f, "\n    {text}") }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(verdict) = self.verdict() {
            writeln!(f, "{verdict}\n")?;
        }
        self.write_titles(f)?;
        self.write_sources(f)?;
        self.write_totals(f)?;
        self.write_undecided(f)?;
        self.write_when(f)?;
        self.write_limits(f)?;
        write_keys(f, "Refused most", &self.refused_keys)?;
        write_examples(f, "The first refusals", &self.refused_examples)?;
        if let Some(against) = &self.against {
            write_change(f, "Newly refused", "refused now by", &against.newly_refused)?;
            write_change(f, "Newly admitted", "refused before by", &against.newly_admitted)?;
        }
        self.write_notes(f)
    }
}

impl Report {
    /// How long it took, for a line on a terminal.
    #[must_use]
    pub fn timings_in_words(&self) -> String {
        let Timings { decided_us, processor_us, searched_us, whole_us } = self.timings;
        let micros = Duration::from_micros;
        let a_second = |micros: u64| count((self.lines as f64 * 1e6 / micros.max(1) as f64) as u64);
        let mut text = format!(
            "{} lines in {}; processor time {} ({} lines a second), decisions {} of it ({} lines a second)",
            count(self.lines),
            duration(micros(whole_us - searched_us.min(whole_us))),
            duration(micros(processor_us)),
            a_second(processor_us),
            duration(micros(decided_us)),
            a_second(decided_us)
        );
        if self.at_most.is_some() {
            text += &format!("; searched for {}", duration(micros(searched_us)));
        }
        text
    }

    fn write_sources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for source in &self.sources {
            let compression = match source.compression {
                Compression::None => "",
                Compression::Gzip => ", gzip",
                Compression::Zstd => ", zstd",
            };
            write!(f, "{}: {}{compression}, {} lines", source.name, source.format, count(source.lines))?;
            if source.broken > 0 {
                write!(f, ", {} broken", count(source.broken))?;
            }
            writeln!(f)?;
            if let Some(problem) = &source.problem {
                writeln!(f, "  it could not be read to its end: {problem}")?;
            }
        }
        if let Some(span) = &self.span {
            let length = span.to.0.saturating_since(span.from.0).to_duration();
            writeln!(f, "{} to {}: {}", span.from, span.to, duration(length))?;
        }
        Ok(())
    }

    fn write_titles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Titles { policy, against, changes } = &self.titles;
        if !policy.is_empty() {
            writeln!(f, "policy: {policy}")?;
        }
        if !against.is_empty() {
            writeln!(f, "against: {against}")?;
        }
        changes.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }

    fn write_totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.requests();
        let mut table = Table::new(&["", "requests", "share"]);
        let mut row = |name: &str, number: u64| table.row([name.to_owned(), count(number), share(number, total)]);
        row("admitted", self.admitted);
        row("refused", self.refused);
        if let Some(against) = &self.against {
            row("  newly refused", against.newly_refused.count);
            row("  newly admitted", against.newly_admitted.count);
            row("refused before", against.refused);
        }
        for (name, number) in [
            ("  of them: can never pass", self.impossible),
            ("sent again, charged once", self.repeated),
            ("could not be decided", self.undecided),
        ] {
            if number > 0 {
                row(name, number);
            }
        }
        write!(f, "\n{table}")
    }

    fn write_undecided(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, reasons) in self.undecided_by_policy() {
            writeln!(f, "\n{title}")?;
            for undecided in reasons.iter().take(MAX_LISTED_KEYS) {
                writeln!(f, "  {}: {}", count(undecided.lines), undecided.example)?;
            }
        }
        Ok(())
    }

    /// Two rows of bars: what came, and what of it was refused.
    fn write_when(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bins = &self.timeline.bins;
        if bins.len() < 2 || self.refused == 0 {
            return Ok(());
        }
        let per_column = bins.len().div_ceil(COLUMNS);
        let columns = bins.chunks(per_column).map(|bins| {
            let refused: u64 = bins.iter().map(|bin| bin.refused).sum();
            (refused + bins.iter().map(|bin| bin.admitted).sum::<u64>(), refused)
        });
        let (all, refused): (Vec<u64>, Vec<u64>) = columns.unzip();
        let width = Duration::from_micros(self.timeline.width_us * per_column as u64);
        let most = |numbers: &[u64]| count(numbers.iter().copied().max().unwrap_or(0));
        writeln!(f, "\nWhen, in columns of {}", duration(width))?;
        writeln!(f, "  requests {}  {} at most", bars(&all), most(&all))?;
        writeln!(f, "  refused  {}  {} at most", bars(&refused), most(&refused))
    }

    fn write_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.limits.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&["rule", "limit", "asked", "refused", "keys", "median", "p90", "p99", "most"]);
        for limit in &self.limits {
            let shadow = if limit.shadow { " (shadow)" } else { "" };
            let keys = if limit.is_exact { count(limit.keys) } else { format!("~{}", count(limit.keys)) };
            table.row([
                short(&format!("{}{shadow}", limit.rule), WIDEST),
                short(&limit.limit, WIDEST),
                count(limit.asked),
                count(limit.refused),
                keys,
                peak(limit.peak_median),
                peak(limit.peak_p90),
                peak(limit.peak_p99),
                peak(limit.peak_most),
            ]);
        }
        write!(f, "\nHow near keys come to each limit, at their peaks\n{table}")?;
        if self.most_in_flight > 0 {
            writeln!(f, "\nMost requests in flight at once: {}", count(self.most_in_flight))?;
            for limit in &self.limits {
                limit.lasting().iter().try_for_each(|words| writeln!(f, "  {}: {words}", limit.rule))?;
            }
        }
        let Some(at_most) = self.at_most else { return Ok(()) };
        let mut table = Table::new(&["rule", "limit", "smallest", "refuses", "share"]);
        for limit in &self.limits {
            let (rule, words) = (short(&limit.rule, WIDEST), short(&limit.limit, WIDEST));
            table.row(match &limit.smallest {
                Some(found) => {
                    let least = if found.is_least { "" } else { "*" };
                    let share = share(found.refused, found.asked);
                    [rule, words, format!("{}{least}", found.limit), count(found.refused), share]
                }
                None => [rule, words, "none".to_owned(), String::new(), String::new()],
            });
        }
        write!(f, "\nThe smallest limit of each kind that refuses at most {at_most}, asked alone\n{table}")?;
        if self.limits.iter().flat_map(|limit| &limit.smallest).any(|found| !found.is_least) {
            writeln!(
                f,
                "  * one less refuses more; since costs differ, or it is a sliding counter, a still smaller one might do"
            )?;
        }
        Ok(())
    }

    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for broken in &self.broken_examples {
            writeln!(f, "\n{broken}")?;
        }
        let notes = self.notes();
        if !notes.is_empty() {
            writeln!(f)?;
        }
        notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }

    /// What to bear in mind, and what to do about it.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.late > 0 {
            let by = duration(Duration::from_micros(self.late_by_us));
            notes.push(format!(
                "{} lines were late, by up to {by}, and decided at the time that was reached: --reorder holds back more",
                count(self.late)
            ));
        }
        for name in &self.missing {
            notes.push(format!("no line has {name:?}, which is needed: --map {name}=FIELD names its field"));
        }
        for name in &self.unused {
            notes.push(format!("a field was named for {name:?}, which no policy asks for"));
        }
        if self.most_in_flight == 0 && self.limits.iter().any(|limit| limit.most_in_flight.is_some()) {
            notes.push(
                "no line tells how long its request lasted, so permits of limits on requests in flight are held until \
                 they expire: name the field by --map duration=FIELD, or duration_ms=FIELD"
                    .to_owned(),
            );
        }
        if self.unsettled > 0 {
            notes.push(format!(
                "{} requests could not be settled, as more were in flight than are remembered: they stay charged as \
                 estimated, and their permits expire; replay a part of the log",
                count(self.unsettled)
            ));
        }
        if self.overflowed > 0 {
            notes.push(format!(
                "{} requests shared a state for want of room, and some may be refused in vain: --max-keys gives more",
                count(self.overflowed)
            ));
        }
        if self.search_is_partial {
            notes.push(format!("the search went by the first {} checks only", count(crate::MAX_SPOOLED)));
        }
        notes
    }
}

fn write_change(f: &mut fmt::Formatter<'_>, title: &str, by: &str, change: &Change) -> fmt::Result {
    if change.count == 0 {
        return Ok(());
    }
    let rules: Vec<String> = change.rules.iter().map(|rule| format!("{} {}", rule.rule, count(rule.refused))).collect();
    writeln!(f, "\n{title}: {}, {by} {}", count(change.count), rules.join(", "))?;
    write_keys(f, &format!("{title} most"), &change.keys)?;
    write_examples(f, &format!("{title} first"), &change.examples)
}

fn write_keys(f: &mut fmt::Formatter<'_>, title: &str, keys: &[KeyReport]) -> fmt::Result {
    if keys.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["rule", "key", "requests"]);
    for key in keys.iter().take(MAX_LISTED_KEYS) {
        // What may be too high by more than a tenth is only a bound.
        let about = if key.error > key.count / 10 { "≤ " } else { "" };
        table.row([short(&key.rule, WIDEST), short(&key.key, WIDEST), format!("{about}{}", count(key.count))]);
    }
    write!(f, "\n{title}\n{table}")
}

fn write_examples(f: &mut fmt::Formatter<'_>, title: &str, examples: &[Example]) -> fmt::Result {
    if examples.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}")?;
    for example in examples {
        let Example { at, source, line, rule, attributes, .. } = example;
        writeln!(f, "  {at} {source}:{line} by {rule}: {}", short(&in_words(attributes), 100))?;
    }
    Ok(())
}

fn bars(numbers: &[u64]) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = u128::from(numbers.iter().copied().max().unwrap_or(0).max(1));
    // Whatever is not nothing is seen.
    numbers.iter().map(|number| BARS[(u128::from(*number) * 8).div_ceil(most) as usize]).collect()
}

/// Columns of text: those of numbers on the right.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(names: &[&str]) -> Table {
        Table { rows: vec![names.iter().map(|name| (*name).to_owned()).collect()] }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let is_text =
            |column: usize| column == 0 || ["limit", "key", "smallest"].contains(&self.rows[0][column].as_str());
        for row in &self.rows {
            let mut line = String::from(" ");
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                match is_text(column) {
                    true => write!(line, " {cell:<width$}")?,
                    false => write!(line, "  {cell:>width$}")?,
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
