//! Charts as inline SVG: shapes only, stretched to whatever width there is.
//! Words stand beside them in HTML, so that they are as large as all others.

use std::fmt::Write;
use std::time::Duration;

use super::words::{count, duration, escape};
use super::{Report, Timeline};
use crate::when::Utc;

/// Rules that have a colour of their own; the rest share one.
const COLOURS: usize = 6;

/// Bars above one another, one row of numbers for each colour.
struct Stack<'s> {
    /// The name of each series, its class, and its numbers.
    series: Vec<(String, String, Vec<u64>)>,
    timeline: &'s Timeline,
}

/// What came, and what of it is refused.
pub(super) fn requests(report: &Report) -> String {
    let bins = &report.timeline.bins;
    let numbers = |number: fn(&super::BinReport) -> u64| bins.iter().map(number).collect();
    let series = vec![
        ("admitted".to_owned(), "admitted".to_owned(), numbers(|bin| bin.admitted)),
        ("refused".to_owned(), "refused".to_owned(), numbers(|bin| bin.refused)),
    ];
    Stack { series, timeline: &report.timeline }.draw("Requests")
}

/// What is refused, by rule: those that refuse most have their colours.
pub(super) fn refused(report: &Report) -> String {
    let timeline = &report.timeline;
    let place = |name: &str| timeline.rules.iter().position(|rule| rule == name);
    let column = |rule: usize| timeline.bins.iter().map(move |bin| bin.by_rule.get(rule).copied().unwrap_or(0));
    let mut series = Vec::new();
    for (number, rule) in report.rules.iter().enumerate() {
        let Some(place) = place(&rule.rule) else { continue };
        if number < COLOURS {
            series.push((rule.rule.clone(), format!("rule{number}"), column(place).collect::<Vec<u64>>()));
            continue;
        }
        if number == COLOURS {
            series.push(("other rules".to_owned(), format!("rule{COLOURS}"), vec![0; timeline.bins.len()]));
        }
        series[COLOURS].2.iter_mut().zip(column(place)).for_each(|(sum, more)| *sum += more);
    }
    Stack { series, timeline }.draw("Refused, by rule")
}

/// What is decided differently: newly refused upwards, newly admitted
/// downwards, by one scale.
pub(super) fn changes(report: &Report) -> String {
    let timeline = &report.timeline;
    let halves = [("newly refused", "refused", false), ("newly admitted", "admitted", true)];
    let numbers = |down: bool| -> Vec<u64> {
        timeline.bins.iter().map(|bin| if down { bin.newly_admitted } else { bin.newly_refused }).collect()
    };
    let most = nice(halves.iter().flat_map(|(.., down)| numbers(*down)).max().unwrap_or(0));
    let mut shapes = String::new();
    for (_, class, down) in halves {
        shapes += &format!("<path class='{class}' d='");
        for (place, number) in numbers(down).into_iter().enumerate() {
            let height = number as f64 / most as f64 * 50.0;
            bar(&mut shapes, (place, timeline.bins.len()), 50.0, if down { height } else { -height });
        }
        shapes += "'/>";
    }
    shapes += "<path class='axis' d='M0 50H1000'/>";
    let legend = halves.map(|(name, class, _)| (name.to_owned(), class.to_owned()));
    let hint = |place: usize| {
        let bin = &timeline.bins[place];
        format!("{} newly refused, {} newly admitted", count(bin.newly_refused), count(bin.newly_admitted))
    };
    let labels = [count(most), "0".to_owned(), count(most)];
    figure("What changes", timeline, (&legend, &labels), &(shapes + &hints(timeline, hint)))
}

impl Stack<'_> {
    fn draw(&self, title: &str) -> String {
        let bins = self.timeline.bins.len();
        let total = |place: usize| self.series.iter().map(|(.., numbers)| numbers[place]).sum::<u64>();
        let most = nice((0..bins).map(total).max().unwrap_or(0));
        let mut shapes = String::from("<path class='grid' d='M0 50H1000'/>");
        let mut levels = vec![0_u64; bins];
        for (_, class, numbers) in &self.series {
            let _ = write!(shapes, "<path class='{class}' d='");
            for (place, (level, number)) in levels.iter_mut().zip(numbers).enumerate() {
                let scale = |number: u64| number as f64 / most as f64 * 100.0;
                bar(&mut shapes, (place, bins), 100.0 - scale(*level), -scale(*number));
                *level += number;
            }
            shapes += "'/>";
        }
        shapes += "<path class='axis' d='M0 100H1000'/>";
        let hint = |place: usize| {
            let parts = self.series.iter().map(|(name, _, numbers)| format!("{} {name}", count(numbers[place])));
            parts.collect::<Vec<_>>().join(", ")
        };
        let legend: Vec<(String, String)> =
            self.series.iter().map(|(name, class, _)| (name.clone(), class.clone())).collect();
        let labels = [count(most), half(most), "0".to_owned()];
        figure(title, self.timeline, (&legend, &labels), &(shapes + &hints(self.timeline, hint)))
    }
}

/// A bar of a path: a column of many, from a height upwards or down.
fn bar(path: &mut String, (place, of): (usize, usize), from: f64, height: f64) {
    if height == 0.0 {
        return;
    }
    let width = 1_000.0 / of as f64;
    // Few bars stand apart; many make an area.
    let gap = if of <= 100 { width * 0.14 } else { 0.0 };
    let (x, width) = (place as f64 * width + gap / 2.0, width - gap);
    let _ = write!(path, "M{x:.2} {from:.2}v{height:.2}h{width:.2}V{from:.2}z");
}

/// The tooltip of each column.
fn hints(timeline: &Timeline, hint: impl Fn(usize) -> String) -> String {
    let width = 1_000.0 / timeline.bins.len().max(1) as f64;
    let mut text = String::new();
    for (place, bin) in timeline.bins.iter().enumerate() {
        let (x, hint) = (place as f64 * width, escape(&hint(place)));
        let _ = write!(
            text,
            "<rect class='hint' x='{x:.2}' y='0' width='{width:.2}' height='100'><title>{}: {hint}</title></rect>",
            bin.at
        );
    }
    text
}

fn figure(
    title: &str,
    timeline: &Timeline,
    (legend, labels): (&[(String, String)], &[String; 3]),
    shapes: &str,
) -> String {
    let mut text = format!("<figure><figcaption><strong>{}</strong>", escape(title));
    for (name, class) in legend {
        let _ = write!(text, "<span class='key'><i class='{class}'></i>{}</span>", escape(name));
    }
    let per = duration(Duration::from_micros(timeline.width_us));
    let _ = write!(text, "<span class='per'>per {per}</span></figcaption><div class='plot'><div class='y'>");
    labels.iter().for_each(|label| text += &format!("<span>{label}</span>"));
    let name = escape(title);
    let _ = write!(
        text,
        "</div><svg viewBox='0 0 1000 100' preserveAspectRatio='none' role='img' aria-label='{name} over time'>{shapes}</svg><div class='x'>"
    );
    ticks(timeline).iter().for_each(|tick| text += &format!("<span>{tick}</span>"));
    text + "</div></div></figure>"
}

/// The first, the middle and the last instant, as fine as they need to be.
fn ticks(timeline: &Timeline) -> Vec<String> {
    let (Some(first), Some(last)) = (timeline.bins.first(), timeline.bins.last()) else { return Vec::new() };
    let middle = timeline.bins.get(timeline.bins.len() / 2).filter(|_| timeline.bins.len() > 2);
    let length = last.at.0.saturating_since(first.at.0).to_duration();
    let shown = |at: Utc| {
        let ((_, month, day), (hour, minute, second)) = (at.date(), at.clock());
        let month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
            [(month as usize - 1) % 12];
        match length.as_secs() {
            ..3_600 => format!("{hour:02}:{minute:02}:{second:02}"),
            3_600..86_400 => format!("{hour:02}:{minute:02}"),
            86_400..1_209_600 => format!("{day} {month} {hour:02}:{minute:02}"),
            _ => format!("{day} {month}"),
        }
    };
    [Some(first), middle, Some(last)].into_iter().flatten().map(|bin| shown(bin.at)).collect()
}

/// The next round number: 1, 2 or 5 and zeros.
fn nice(most: u64) -> u64 {
    let mut size: u64 = 1;
    loop {
        for step in [1, 2, 5] {
            let round = size.saturating_mul(step);
            if round >= most {
                return round;
            }
        }
        size = size.saturating_mul(10);
    }
}

fn half(number: u64) -> String {
    if number.is_multiple_of(2) { count(number / 2) } else { format!("{:.1}", number as f64 / 2.0) }
}

/// How many keys came how near to a limit: a bar for each tenth, and one for
/// the refused ones.
pub(super) fn peaks(shares: &[u16; 11]) -> String {
    let most = f64::from(shares.iter().copied().max().unwrap_or(0).max(1));
    let mut shapes = String::new();
    for (place, share) in shares.iter().enumerate() {
        let class = match place {
            10 => "refused",
            8.. => "near",
            _ => "admitted",
        };
        // Whatever is not nothing is seen.
        let height = if *share == 0 { 0.0 } else { (f64::from(*share) / most * 100.0).max(2.0) };
        let _ = write!(shapes, "<path class='{class}' d='");
        bar(&mut shapes, (place, 11), 100.0, -height);
        let range = if place == 10 {
            "refused".to_owned()
        } else {
            format!("{} to {}% of the limit", place * 10, place * 10 + 10)
        };
        let (x, width) = (place as f64 * 1_000.0 / 11.0, 1_000.0 / 11.0);
        let percent = f64::from(*share) / 10.0;
        let _ = write!(
            shapes,
            "'/><rect class='hint' x='{x:.1}' y='0' width='{width:.1}' height='100'><title>{percent}% of the keys: {range}</title></rect>"
        );
    }
    format!(
        "<svg class='peaks' viewBox='0 0 1000 100' preserveAspectRatio='none' role='img' aria-label='How near keys come to the limit'>{shapes}<path class='axis' d='M0 100H1000'/></svg><div class='x'><span>0%</span><span>50%</span><span>100%</span><span>over</span></div>"
    )
}
