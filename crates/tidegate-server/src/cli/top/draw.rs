//! The view as a screen: rules above, latency and the store, refusals below.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};
use tidegate::Micros;
use tidegate_simulate::print_time;

use super::view::{Rates, View, decided};
use crate::screen::live::{Picture, RefusalPicture, ReservationsPicture, RulePicture, TopRefused};

/// Colours that can be read on light terminals and on dark ones.
const ADMITTED: Color = Color::LightBlue;
const REFUSED: Color = Color::Red;
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().fg(Color::Reset).add_modifier(Modifier::BOLD).remove_modifier(Modifier::DIM);

const CHOSEN: Style = Style::new().fg(Color::Black).bg(Color::LightBlue).remove_modifier(Modifier::DIM);

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    // A border and a heading, then a line for each rule; refusals get the rest.
    let rules = (view.picture.rules.len() as u16).saturating_add(3).min(frame.area().height / 2);
    let middle = 3 + u16::from(reservations(&view.picture).is_some());
    let parts = [Constraint::Length(2), Constraint::Length(rules), Constraint::Length(middle), Constraint::Min(5)];
    let [head, rules, middle, refusals, foot] =
        Layout::vertical(parts.into_iter().chain([Constraint::Length(1)])).areas(frame.area());
    let [latency, store] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(middle);
    let [top, recent] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(refusals);
    draw_head(frame, view, head);
    draw_rules(frame, view, rules);
    draw_latency(frame, view, latency);
    draw_store(frame, view, store);
    draw_top(frame, view, top);
    draw_recent(frame, view, recent);
    draw_foot(frame, view, foot);
}

fn draw_head(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let picture = &view.picture;
    let up = time_up(picture.uptime_us / 1_000_000);
    let leaving = if picture.leaving { ", leaving" } else { "" };
    let first = Line::from(vec![
        Span::styled(format!("tidegate {}", picture.version), STRONG),
        Span::raw(format!(" at {}, up {up}{leaving}, {} connections", view.server, picture.connections)),
    ]);
    let policy = &picture.policy;
    let file = policy.file.as_deref().unwrap_or("the policy that is built in or was put");
    let second = match &policy.errors {
        None => Line::styled(format!("{file}, generation {}", policy.generation), FAINT),
        Some(errors) => {
            let first = errors.lines().next().unwrap_or_default();
            Line::styled(format!("{file} is not in force: {first}"), REFUSED)
        }
    };
    frame.render_widget(Paragraph::new(vec![first, second]), area);
}

fn draw_rules(frame: &mut Frame<'_>, view: &View, area: Rect) {
    // What is left of a line when all other columns have had theirs.
    const OTHERS: u16 = 20 + 21 + 10 + 9 + 9 + 6;
    let room = area.width.saturating_sub(OTHERS).max(10) / 2;
    let row = |rule: &RulePicture| {
        let none = Rates::default();
        let rates = view.rates(&rule.rule).unwrap_or(&none);
        let now = |history: &std::collections::VecDeque<u64>| history.back().copied().unwrap_or(0);
        let name = if rule.shadow { format!("{} (shadow)", rule.rule) } else { rule.rule.clone() };
        Row::new(vec![
            Cell::from(name),
            Cell::from(Span::styled(rule.limit.clone().unwrap_or_default(), FAINT)),
            right(now(&rates.allowed).to_string(), ADMITTED),
            right(now(&rates.refused).to_string(), if now(&rates.refused) > 0 { REFUSED } else { Color::Reset }),
            right(decided(rule).1.to_string(), Color::Reset),
            Cell::from(Span::styled(sparkline(&rates.allowed, room), ADMITTED)),
            Cell::from(Span::styled(sparkline(&rates.refused, room), REFUSED)),
        ])
    };
    let widths = [20, 21, 10, 9, 9, room, room].map(Constraint::Length);
    let heads = ["rule", "limit"].map(|head| Cell::from(head.to_owned()));
    let numbers = ["admitted/s", "refused/s", "refused"].map(|head| right(head.to_owned(), Color::Reset));
    let head = heads.into_iter().chain(numbers).chain([Cell::from("admitted"), Cell::from("refused")]);
    let table = Table::new(view.picture.rules.iter().map(row), widths).header(Row::new(head).style(FAINT));
    frame.render_widget(table.block(titled("rules")), area);
}

fn right(words: String, colour: Color) -> Cell<'static> {
    Cell::from(Line::styled(words, colour).alignment(Alignment::Right))
}

fn titled(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).border_style(FAINT).title(Span::styled(format!(" {title} "), STRONG))
}

/// The latest seconds as blocks, the latest to the right, as high as the
/// highest of them.
fn sparkline(history: &std::collections::VecDeque<u64>, room: u16) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let room = usize::from(room);
    let seen: Vec<u64> = history.iter().copied().skip(history.len().saturating_sub(room)).collect();
    let highest = seen.iter().copied().max().unwrap_or(0).max(1);
    // Something is never nothing.
    let block = |value: &u64| BLOCKS[(u128::from(*value) * 8).div_ceil(u128::from(highest)) as usize];
    format!("{:>room$}", seen.iter().map(block).collect::<String>())
}

fn draw_latency(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let bound = |bound: Option<u64>| bound.map_or("beyond all bounds".to_owned(), |it| print_time(Micros::new(it)));
    let lines = view.latencies().into_iter().map(|latency| {
        let (median, p99) = (bound(latency.median_us), bound(latency.p99_us));
        Line::from(vec![
            Span::raw(format!("{} {}/s", latency.protocol, latency.per_second)),
            Span::styled(format!(", half within {median}, 99% within {p99}"), FAINT),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(titled("answers")), area);
}

fn draw_store(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let store = &view.picture.store;
    let health = match (store.reachable, store.breaker.as_deref()) {
        (true, Some("open")) => Span::styled("breaker open", REFUSED),
        (true, _) => Span::styled("answers", Color::Green),
        (false, _) => Span::styled("away", REFUSED),
    };
    let mut first = vec![Span::raw(format!("{}: ", store.kind)), health];
    if let (Some(keys), Some(most)) = (store.keys, store.max_keys) {
        first.push(Span::styled(format!(", {keys} of {most} keys, {} without room", store.overflows), FAINT));
    } else {
        let told =
            format!(", {} round trips, {} failures, {} outages", store.round_trips, store.failures, store.outages);
        first.push(Span::styled(told, FAINT));
    }
    let failures = view.picture.failures;
    let degraded: u64 = view.picture.rules.iter().map(|rule| rule.counts.degraded).sum();
    let missing: u64 = view.picture.rules.iter().map(|rule| rule.counts.missing).sum();
    let words = format!("{degraded} by a fallback, {failures} errors, {missing} missing key attributes");
    let second = (failures + degraded + missing > 0).then(|| Line::styled(words, REFUSED));
    let held = reservations(&view.picture).map(Line::from);
    let lines: Vec<Line<'_>> = [Line::from(first)].into_iter().chain(held).chain(second).collect();
    frame.render_widget(Paragraph::new(lines).block(titled("store")), area);
}

/// How many reservations are open, and who holds the oldest; none if there was none.
fn reservations(picture: &Picture) -> Option<String> {
    let ReservationsPicture { open, expired, oldest } = &picture.reservations;
    let mut words = format!("{open} {} open", if *open == 1 { "reservation" } else { "reservations" });
    if let Some(held) = oldest.first() {
        let age = time_since(picture.time_us.saturating_sub(held.since_us));
        words += &format!(", oldest {} for {age}", held.key);
    }
    if *expired > 0 {
        words += &format!(", {expired} expired");
    }
    (open + expired > 0).then_some(words)
}

fn draw_top(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let row = |it: &TopRefused| {
        let about = if it.error > 0 { "~" } else { "" };
        Row::new(vec![
            right(format!("{about}{}", it.refused), REFUSED),
            Cell::from(it.key.clone()),
            Cell::from(Span::styled(it.rule.clone(), FAINT)),
        ])
    };
    let widths = [Constraint::Length(9), Constraint::Fill(1), Constraint::Length(14)];
    let table = Table::new(view.picture.top_refused.iter().map(row), widths);
    frame.render_widget(table.block(titled("refused most")), area);
}

fn draw_recent(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let now = view.picture.time_us;
    let row = |it: &RefusalPicture| {
        let ago = time_since(now.saturating_sub(it.at_us));
        let wait = match it.retry_after_us {
            Some(wait) => format!("retry after {}", time_to_wait(wait)),
            None => "for good".to_owned(),
        };
        Row::new(vec![
            right(format!("{ago} ago"), Color::Reset),
            Cell::from(it.key.clone()),
            Cell::from(Span::styled(it.rule.clone(), FAINT)),
            right(format!("{}x", it.times), REFUSED),
            Cell::from(Span::styled(wait, FAINT)),
        ])
    };
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(7),
        Constraint::Length(20),
    ];
    let table = Table::new(view.picture.recent_refusals.iter().map(row), widths).row_highlight_style(CHOSEN);
    let mut state = TableState::new().with_selected(view.chosen().map(|(place, _)| place));
    frame.render_stateful_widget(table.block(titled("refused of late")), area, &mut state);
}

/// Units of time, in microseconds.
const UNITS: [(&str, u64); 5] =
    [("day", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];

/// The unit that tells a time in few letters: the largest that it has two of;
/// below nine seconds, milliseconds.
fn unit_of(micros: u64) -> (&'static str, u64) {
    let suits = |(name, unit): &&(&str, u64)| micros >= unit.saturating_mul(if *name == "s" { 9 } else { 2 });
    UNITS.iter().find(suits).copied().unwrap_or(("ms", 1_000))
}

/// How long to wait: never too short.
fn time_to_wait(micros: u64) -> String {
    let (name, unit) = unit_of(micros);
    format!("{}{name}", micros.div_ceil(unit))
}

/// How long ago, in seconds and more.
fn time_since(micros: u64) -> String {
    let (name, unit) = unit_of(micros.max(9_000_000));
    format!("{}{name}", micros / unit)
}

/// How long a server is up: two units, the smaller rounded down.
fn time_up(seconds: u64) -> String {
    let micros = seconds.saturating_mul(1_000_000);
    let first = UNITS.iter().position(|(_, unit)| micros >= *unit).unwrap_or(3);
    let (name, unit) = UNITS[first];
    let rest = UNITS.get(first + 1).map(|(name, smaller)| (*name, micros % unit / smaller));
    match rest.filter(|(_, count)| *count > 0 && name != "s") {
        Some((smaller, count)) => format!("{}{name} {count}{smaller}", micros / unit),
        None => format!("{}{name}", micros / unit),
    }
}

fn draw_foot(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let line = match (&view.silence, view.asked, &view.message) {
        (_, true, _) => {
            let (key, rule) = view.chosen().map_or(("", ""), |(_, it)| (&*it.key, &*it.rule));
            Line::styled(format!("forget what {key:?} has used of {rule}? y or n"), STRONG)
        }
        (Some(silence), false, _) => Line::styled(silence.as_str(), REFUSED),
        (None, false, Some(message)) => Line::styled(message.as_str(), STRONG),
        (None, false, None) => Line::styled("q leaves, arrows choose a refusal, r resets its key", FAINT),
    };
    frame.render_widget(Paragraph::new(line), area);
}
