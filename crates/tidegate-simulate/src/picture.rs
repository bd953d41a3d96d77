//! A report drawn: for each limit, what came and what was admitted over time,
//! and below it how much had been admitted within the period before each
//! instant.
//!
//! The drawing is a list of shapes in whole numbers, so that every machine
//! draws the same; SVG and PNG are two ways to write it down.

#[cfg(feature = "png")]
mod png;
mod svg;

#[cfg(feature = "png")]
pub use self::png::PngError;

use tidegate::{Algorithm, Micros};

use crate::report::{Outcome, Report};
use crate::series::nice_times;
use crate::table::{label, number, peak, percent, short};
use crate::words::{print_rounded, print_time};

/// A drawing of a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    height: u32,
    /// What is seen, in words.
    words: String,
    shapes: Vec<Shape>,
}

impl Report {
    /// What happened over time, drawn.
    #[must_use]
    pub fn picture(&self) -> Picture {
        Picture::of(self)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Box {
        ink: Ink,
        x: u32,
        y: u32,
        width: u32,
        height: u32,
    },
    Line {
        ink: Ink,
        from: (u32, u32),
        to: (u32, u32),
    },
    /// Boxes side by side, the first from here on.
    Area {
        ink: Ink,
        from: u32,
        steps: Vec<Step>,
    },
    Text {
        ink: Ink,
        x: u32,
        y: u32,
        anchor: Anchor,
        words: String,
    },
}

/// One box of an area, from where the last one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    to: u32,
    top: u32,
    bottom: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// What a shape stands for; how that looks is said once, in [`Ink::colours`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ink {
    Paper,
    Title,
    Text,
    Admitted,
    Refused,
    Leaving,
    Within,
    Above,
    /// What a bucket admits beyond its count as it is meant to: its burst.
    Burst,
    Edge,
    Rule,
    Limit,
    Worst,
}

impl Ink {
    const ALL: [Ink; 13] = [
        Ink::Paper,
        Ink::Title,
        Ink::Text,
        Ink::Admitted,
        Ink::Refused,
        Ink::Leaving,
        Ink::Within,
        Ink::Above,
        Ink::Burst,
        Ink::Edge,
        Ink::Rule,
        Ink::Limit,
        Ink::Worst,
    ];

    fn class(self) -> &'static str {
        match self {
            Ink::Paper => "paper",
            Ink::Title => "title",
            Ink::Text => "text",
            Ink::Admitted => "admitted",
            Ink::Refused => "refused",
            Ink::Leaving => "leaving",
            Ink::Within => "within",
            Ink::Above => "above",
            Ink::Burst => "burst",
            Ink::Edge => "edge",
            Ink::Rule => "rule",
            Ink::Limit => "limit",
            Ink::Worst => "worst",
        }
    }

    /// On light paper, and on dark: the dashboard's colours, which a test compares.
    fn colours(self) -> [u32; 2] {
        match self {
            Ink::Paper => [0xfbfcfb, 0x0f1e24],
            Ink::Title | Ink::Limit | Ink::Leaving => [0x12262e, 0xdfeaea],
            Ink::Text | Ink::Rule => [0x54686f, 0x8ea5ab],
            Ink::Admitted => [0x0b7a80, 0x45c4bd],
            // What is admitted, a third as strong on the paper.
            Ink::Within => [0xabd1d2, 0x215557],
            Ink::Refused | Ink::Above | Ink::Worst => [0xc03d26, 0xff8266],
            Ink::Burst => [0x946400, 0xe3b458],
            Ink::Edge => [0xd7e0dd, 0x1d333b],
        }
    }
}

const WIDTH: u32 = 720;
const LEFT: u32 = 48;
const RIGHT: u32 = 24;
const PLOT: u32 = WIDTH - LEFT - RIGHT;
/// Letters of a line of the heading: those of the widest font still fit.
const LETTERS: usize = 84;
const LINE: u32 = 17;

/// The heights of a panel's parts, from its top.
const PANEL_TITLE: u32 = 14;
const BARS_TOP: u32 = 26;
const BARS: u32 = 60;
const LEAVING: u32 = 18;
/// As deep as a column of what leaves can be.
const DEEPEST: u32 = LEAVING - 5;
const BRACKET: u32 = 26;
const CURVE: u32 = 48;
const PANEL_GAP: u32 = 22;

impl Picture {
    /// How wide it is.
    pub const WIDTH: u32 = WIDTH;

    /// How high it is.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    pub(crate) fn of(report: &Report) -> Picture {
        let mut picture = Picture { height: 0, words: spoken(report), shapes: Vec::new() };
        let scale = Scale::of(report);
        let mut y = picture.heading(report);
        for (index, outcome) in report.outcomes.iter().enumerate() {
            y += if index == 0 { 0 } else { PANEL_GAP };
            y = picture.panel(report, outcome, &scale, y);
        }
        picture.times(&scale, y + LINE);
        picture.height = y + LINE + 14;
        picture
    }

    fn heading(&mut self, report: &Report) -> u32 {
        let mut y = 26;
        for line in lines(&report.traffic.to_string()) {
            self.text(Ink::Title, (LEFT, y), Anchor::Start, line);
            y += LINE + 2;
        }
        let requests = number(report.offered.passed.requests);
        let column = print_time(report.offered.series.bars().width());
        let length = print_rounded(report.length);
        let words = format!("{requests} requests in {length}, seed {}. A column is {column}.", report.seed);
        self.text(Ink::Text, (LEFT, y), Anchor::Start, words);
        y += LINE + 4;
        let period = report.outcomes.first().map(|outcome| outcome.limit.period()).unwrap_or_default();
        let in_flight = report.outcomes.iter().filter(|outcome| outcome.counts_in_flight()).count();
        let within = match report.outcomes.iter().all(|outcome| outcome.limit.period() == period) {
            _ if in_flight == report.outcomes.len() => "in flight".to_owned(),
            _ if in_flight > 0 => "in the last period, or in flight".to_owned(),
            true => format!("admitted in the last {}", print_time(Micros::from_duration(period))),
            false => "admitted in the last period".to_owned(),
        };
        let mut entries = vec![(Ink::Admitted, "admitted".to_owned()), (Ink::Refused, "refused".to_owned())];
        if report.delays() {
            entries.push((Ink::Leaving, "leaving".to_owned()));
        }
        entries.push((Ink::Within, within));
        let shown = |ink| {
            let is_above = |outcome: &&Outcome| outcome.peak() > outcome.limit.count();
            report.outcomes.iter().filter(is_above).any(|outcome| beyond(outcome, Ink::Above, Ink::Burst) == ink)
        };
        let beyond = [(Ink::Burst, "burst"), (Ink::Above, "more than the limit")];
        entries.extend(beyond.into_iter().filter(|(ink, _)| shown(*ink)).map(|(ink, words)| (ink, words.to_owned())));
        let mut x = LEFT;
        for (ink, words) in entries {
            self.fill(ink, (x, y - 9), (10, 10));
            // Room for the widest font.
            let room = 7 * words.len() as u32 + 34;
            self.text(Ink::Text, (x + 16, y), Anchor::Start, words);
            x += room;
        }
        y + 26
    }

    fn panel(&mut self, report: &Report, outcome: &Outcome, scale: &Scale, top: u32) -> u32 {
        let admitted = outcome.flow.passed.requests;
        let offered = outcome.offered.requests;
        let summary = format!("{} of {} admitted, {}", number(admitted), number(offered), percent(admitted, offered));
        self.text(Ink::Title, (LEFT, top + PANEL_TITLE), Anchor::Start, label(outcome));
        self.text(Ink::Text, (WIDTH - RIGHT, top + PANEL_TITLE), Anchor::End, summary);
        let floor = top + BARS_TOP + BARS;
        let below = if outcome.delays() { LEAVING } else { 0 };
        let curve_top = floor + below + BRACKET;
        let bottom = curve_top + CURVE;
        for tick in scale.ticks() {
            let x = scale.x(tick);
            self.line(Ink::Edge, (x, top + BARS_TOP), (x, floor + below));
            self.line(Ink::Edge, (x, curve_top), (x, bottom));
        }
        self.bars(report, outcome, scale, floor);
        self.curve(outcome, scale, curve_top);
        bottom
    }

    /// What was admitted, and on top of it what was refused; below the line,
    /// what leaves later than it came.
    fn bars(&mut self, report: &Report, outcome: &Outcome, scale: &Scale, floor: u32) {
        let (offered, admitted) = (report.offered_of(outcome).series.bars(), outcome.flow.series.bars());
        let width = offered.width().get();
        let most_leaving = admitted.bins().iter().map(|bin| bin.leaving).max().unwrap_or(0).max(1);
        self.text(Ink::Text, (LEFT - 8, floor - BARS + 9), Anchor::End, short(scale.tallest));
        for (index, (offered, admitted)) in offered.bins().iter().zip(admitted.bins()).enumerate() {
            let (from, to) = (scale.x(index as u64 * width), scale.x((index as u64 + 1) * width));
            let (x, width) = (from + 1, (to - from).saturating_sub(2).max(1));
            let units = (admitted.admitted, offered.admitted.max(admitted.admitted));
            let height = |units: u64| (u128::from(units) * u128::from(BARS) / u128::from(scale.tallest)) as u32;
            match scale.tallest <= MAX_BLOCKS {
                // So few that each can be counted.
                true => {
                    for unit in 0..units.1 {
                        let (low, high) = (height(unit), height(unit + 1));
                        let ink = if unit < units.0 { Ink::Admitted } else { Ink::Refused };
                        self.fill(ink, (x, floor - high), (width, high - low - 1));
                    }
                }
                false => {
                    let (admitted, all) = (height(units.0).max(u32::from(units.0 > 0)), height(units.1));
                    self.fill(Ink::Refused, (x, floor - all.max(admitted)), (width, all.saturating_sub(admitted)));
                    self.fill(Ink::Admitted, (x, floor - admitted), (width, admitted));
                }
            }
            if outcome.delays() {
                let deep = u128::from(admitted.leaving) * u128::from(DEEPEST) / u128::from(most_leaving);
                self.fill(Ink::Leaving, (x, floor + 2), (width, (deep as u32).max(u32::from(admitted.leaving > 0))));
            }
        }
        self.line(Ink::Rule, (LEFT, floor), (WIDTH - RIGHT, floor));
    }

    /// How much had been admitted within the period before each instant, or was in flight.
    fn curve(&mut self, outcome: &Outcome, scale: &Scale, top: u32) {
        let bottom = top + CURVE;
        let height = |units: u64| (u128::from(units) * u128::from(CURVE) / u128::from(scale.fullest)) as u32;
        let limit = height(outcome.limit.count());
        let series = &outcome.flow.series;
        let (mut within, mut above, mut index) = (Vec::new(), Vec::new(), 0);
        for run in series.bins().chunk_by(|one, next| outcome.peak_of(one) == outcome.peak_of(next)) {
            index += run.len();
            let (level, to) = (height(outcome.peak_of(&run[0])), scale.x(index as u64 * series.width().get()));
            within.push(Step { to, top: bottom - level.min(limit), bottom });
            above.push(Step { to, top: bottom - level.max(limit), bottom: bottom - limit });
        }
        self.shapes.push(Shape::Area { ink: Ink::Within, from: LEFT, steps: within });
        self.shapes.push(Shape::Area { ink: beyond(outcome, Ink::Above, Ink::Burst), from: LEFT, steps: above });
        self.line(Ink::Limit, (LEFT, bottom - limit), (WIDTH - RIGHT, bottom - limit));
        self.text(Ink::Text, (LEFT - 8, bottom - limit + 4), Anchor::End, short(outcome.limit.count()));
        self.line(Ink::Rule, (LEFT, bottom), (WIDTH - RIGHT, bottom));
        self.worst_window(outcome, scale, top - 4);
    }

    fn worst_window(&mut self, outcome: &Outcome, scale: &Scale, y: u32) {
        let worst = outcome.flow.worst_window;
        if worst.units == 0 {
            return;
        }
        let period = Micros::from_duration(outcome.limit.period());
        let is_beyond = outcome.peak() > outcome.limit.count();
        let ink = if is_beyond { beyond(outcome, Ink::Worst, Ink::Text) } else { Ink::Text };
        let words = format!("up to {}", peak(outcome));
        if outcome.counts_in_flight() {
            return self.text(ink, (LEFT, y - 6), Anchor::Start, words);
        }
        let (from, to) = (scale.x(worst.from.get()), scale.x(worst.from.saturating_add(period).get()));
        self.line(ink, (from, y), (to.max(from + 1), y));
        self.line(ink, (from, y - 3), (from, y + 3));
        self.line(ink, (to.max(from + 1), y - 3), (to.max(from + 1), y + 3));
        // Half of the words' width, in the widest font, on either side.
        let half = 4 * words.len() as u32;
        let middle = ((from + to) / 2).clamp(LEFT + half, WIDTH - RIGHT - half);
        self.text(ink, (middle, y - 6), Anchor::Middle, words);
    }

    fn times(&mut self, scale: &Scale, y: u32) {
        for tick in scale.ticks() {
            let words = if tick == 0 { "0".to_owned() } else { spaced(&print_rounded(Micros::new(tick))) };
            self.text(Ink::Text, (scale.x(tick), y), Anchor::Middle, words);
        }
    }

    fn fill(&mut self, ink: Ink, (x, y): (u32, u32), (width, height): (u32, u32)) {
        if width > 0 && height > 0 {
            self.shapes.push(Shape::Box { ink, x, y, width, height });
        }
    }

    fn line(&mut self, ink: Ink, from: (u32, u32), to: (u32, u32)) {
        self.shapes.push(Shape::Line { ink, from, to });
    }

    fn text(&mut self, ink: Ink, (x, y): (u32, u32), anchor: Anchor, words: String) {
        self.shapes.push(Shape::Text { ink, x, y, anchor, words });
    }
}

/// Up to so many in a column are drawn one by one.
const MAX_BLOCKS: u64 = 10;

/// From times and units to places: the same for every panel.
struct Scale {
    length: u64,
    /// The most in a column, and in a window.
    tallest: u64,
    fullest: u64,
}

impl Scale {
    fn of(report: &Report) -> Scale {
        let tallest = report.offered.series.bars().bins().iter().map(|bin| bin.admitted).max().unwrap_or(0);
        let windows = report.outcomes.iter().map(|it| it.peak().max(it.limit.count()));
        Scale { length: report.length.get(), tallest: tallest.max(1), fullest: windows.max().unwrap_or(1).max(1) }
    }

    fn x(&self, time: u64) -> u32 {
        LEFT + (u128::from(time.min(self.length)) * u128::from(PLOT) / u128::from(self.length)) as u32
    }

    /// Up to ten times that read well.
    fn ticks(&self) -> impl Iterator<Item = u64> + use<> {
        let step = nice_times().find(|time| self.length / time <= 10).unwrap_or(self.length);
        (0..=self.length).step_by(step as usize)
    }
}

/// A number and its unit, apart.
fn spaced(time: &str) -> String {
    let unit = time.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(time.len());
    format!("{} {}", &time[..unit], &time[unit..])
}

/// The ink of what is beyond the count: a bucket admits its burst by design, others should not.
fn beyond(outcome: &Outcome, others: Ink, bucket: Ink) -> Ink {
    match outcome.limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket,
        _ => others,
    }
}

/// What the picture shows, as text for screen readers.
fn spoken(report: &Report) -> String {
    let outcome = |outcome: &Outcome| {
        format!("{} admits {}, up to {}", label(outcome), number(outcome.flow.passed.requests), peak(outcome))
    };
    let outcomes: Vec<String> = report.outcomes.iter().map(outcome).collect();
    format!("Of {} requests ({}): {}", number(report.offered.passed.requests), report.traffic, outcomes.join("; "))
}

/// Words in lines that fit; of very many, only the first.
fn lines(words: &str) -> Vec<String> {
    const MAX_LINES: usize = 4;
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < LETTERS => {
                let gap = if line.is_empty() { "" } else { " " };
                line.extend([gap, word]);
            }
            Some(_) | None => lines.push(word.chars().take(LETTERS).collect()),
        }
    }
    if lines.len() > MAX_LINES {
        lines.truncate(MAX_LINES);
        lines.iter_mut().skip(MAX_LINES - 1).for_each(|line| line.push_str(" .."));
    }
    lines
}
