//! The report as one page: no script, nothing from anywhere else, and all that
//! a log says is escaped.

use std::fmt::Write;
use std::time::Duration;

use super::words::{count, duration, escape, in_words, peak, share};
use super::{Broken, Change, Example, KeyReport, LimitReport, Report, Titles, chart};

const STYLE: &str = include_str!("page.css");

/// Nothing is loaded, and nothing runs, whatever got through.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(super) fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n\
         <meta http-equiv='Content-Security-Policy' content=\"{POLICY}\">\n\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\n\
         <meta name='color-scheme' content='light dark'>\n\
         <title>tidegate replay</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    head(&mut page, report);
    tiles(&mut page, report);
    notes(&mut page, report);
    undecided(&mut page, report);
    when(&mut page, report);
    if let Some(against) = &report.against {
        change(&mut page, ("Newly refused", "is-refused"), "They pass today, and would not.", &against.newly_refused);
        change(
            &mut page,
            ("Newly admitted", "is-admitted"),
            "They are refused today, and would pass.",
            &against.newly_admitted,
        );
    }
    limits(&mut page, report);
    if !report.refused_keys.is_empty() {
        page += "<section><h2>Who is refused</h2>";
        keys(&mut page, "is-refused", &report.refused_keys);
        examples(&mut page, &report.refused_examples);
        page += "</section>\n";
    }
    broken(&mut page, report);
    foot(&mut page, report);
    page + "</main>\n</body>\n</html>\n"
}

fn head(page: &mut String, report: &Report) {
    let names: Vec<String> =
        report.sources.iter().map(|source| format!("<code>{}</code>", escape(&source.name))).collect();
    let _ = write!(page, "<header><p class='brand'>tidegate replay</p><h1>{}</h1>", headline(report));
    if let Some(verdict) = report.verdict() {
        let class = if report.refuses_too_many() { "is-refused" } else { "is-admitted" };
        let _ = write!(page, "<p class='verdict {class}'>{}</p>", escape(&verdict));
    }
    titles(page, report);
    let _ = write!(page, "<p>{}", names.join(", "));
    if let Some(span) = &report.span {
        let length = duration(span.to.0.saturating_since(span.from.0).to_duration());
        let _ = write!(page, "<br><time>{}</time> to <time>{}</time>, {length}", span.from, span.to);
    }
    *page += "</p></header>\n";
}

fn titles(page: &mut String, report: &Report) {
    let Titles { policy, against, changes } = &report.titles;
    if !policy.is_empty() {
        let _ = write!(page, "<p>Policy <code>{}</code>", escape(policy));
        if !against.is_empty() {
            let _ = write!(page, ", against <code>{}</code>", escape(against));
        }
        *page += "</p>";
    }
    if !changes.is_empty() {
        *page += "<ul class='changes'>";
        changes.iter().for_each(|line| *page += &format!("<li>{}</li>", escape(line)));
        *page += "</ul>";
    }
}

/// The one thing to know.
fn headline(report: &Report) -> String {
    if let Some(first) = report.inconclusive.as_ref().and_then(|why| why.lines().next()) {
        return escape(first);
    }
    match &report.against {
        Some(against) if against.newly_refused.count == 0 && against.newly_admitted.count == 0 => {
            "The two policies decide alike".to_owned()
        }
        Some(against) => format!(
            "{} newly refused, {} newly admitted",
            count(against.newly_refused.count),
            count(against.newly_admitted.count)
        ),
        None if report.refused == 0 => "No request would be refused".to_owned(),
        None => format!("{} of all requests would be refused", share(report.refused, report.requests())),
    }
}

fn tiles(page: &mut String, report: &Report) {
    let total = report.requests();
    *page += "<div class='tiles'>";
    let mut tile = |name: &str, number: u64, class: &str, below: String| {
        let _ = write!(
            page,
            "<div class='tile {class}'><span>{name}</span><b>{}</b><small>{below}</small></div>",
            count(number)
        );
    };
    let broken = if report.broken > 0 {
        format!("and {} broken lines", count(report.broken))
    } else {
        "no broken line".to_owned()
    };
    tile("requests", total, "", broken);
    tile("admitted", report.admitted, "is-admitted", share(report.admitted, total));
    tile("refused", report.refused, "is-refused", share(report.refused, total));
    if let Some(against) = &report.against {
        tile("refused before", against.refused, "", share(against.refused, total));
        tile("newly refused", against.newly_refused.count, "is-refused", share(against.newly_refused.count, total));
        tile("newly admitted", against.newly_admitted.count, "is-admitted", share(against.newly_admitted.count, total));
    }
    for (name, number) in
        [("can never pass", report.impossible), ("sent again", report.repeated), ("undecided", report.undecided)]
    {
        if number > 0 {
            tile(name, number, "", share(number, total));
        }
    }
    *page += "</div>\n";
}

fn notes(page: &mut String, report: &Report) {
    let notes = report.notes();
    if !notes.is_empty() {
        *page += "<ul class='notes'>";
        notes.iter().for_each(|note| *page += &format!("<li>{}</li>", escape(note)));
        *page += "</ul>\n";
    }
}

fn when(page: &mut String, report: &Report) {
    if report.timeline.bins.is_empty() {
        return;
    }
    *page += "<section><h2>When</h2>";
    *page += &chart::requests(report);
    if report.refused > 0 {
        *page += &chart::refused(report);
    }
    if report.against.as_ref().is_some_and(|old| old.newly_refused.count + old.newly_admitted.count > 0) {
        *page += &chart::changes(report);
    }
    *page += "</section>\n";
}

fn change(page: &mut String, (title, class): (&str, &str), meaning: &str, change: &Change) {
    if change.count == 0 {
        return;
    }
    let rules: Vec<String> = change
        .rules
        .iter()
        .map(|rule| format!("<code>{}</code> {}", escape(&rule.rule), count(rule.refused)))
        .collect();
    let _ = write!(page, "<section><h2>{title}</h2><p>{meaning} By rule: {}.</p>", rules.join(", "));
    keys(page, class, &change.keys);
    examples(page, &change.examples);
    *page += "</section>\n";
}

fn limits(page: &mut String, report: &Report) {
    if report.limits.is_empty() {
        return;
    }
    *page += "<section><h2>Headroom</h2><p>How near keys come to each limit, at their peaks.</p><div class='cards'>";
    report.limits.iter().for_each(|limit| card(page, report, limit));
    *page += "</div></section>\n";
}

fn card(page: &mut String, report: &Report, limit: &LimitReport) {
    let shadow = if limit.shadow { " <em>shadow</em>" } else { "" };
    let about = if limit.is_exact { "" } else { "about " };
    let keys = if limit.keys == 1 { "key" } else { "keys" };
    let _ = write!(
        page,
        "<article><h3>{}{shadow}</h3><p><code>{}</code></p><p class='dim'>asked {} times, refused {} ({}), {about}{} {keys}</p>",
        escape(&limit.rule),
        escape(&limit.limit),
        count(limit.asked),
        count(limit.refused),
        share(limit.refused, limit.asked),
        count(limit.keys)
    );
    for words in limit.lasting() {
        let _ = write!(page, "<p class='dim'>{words}</p>");
    }
    *page += &chart::peaks(&limit.peaks);
    *page += "<dl>";
    for (name, thousandths) in
        [("median", limit.peak_median), ("p90", limit.peak_p90), ("p99", limit.peak_p99), ("busiest", limit.peak_most)]
    {
        let class = if thousandths > 1_000 { " class='over'" } else { "" };
        let _ = write!(page, "<div><dt>{name}</dt><dd{class}>{}</dd></div>", peak(thousandths));
    }
    *page += "</dl>";
    match (&limit.smallest, report.at_most) {
        (Some(found), Some(at_most)) => {
            let or_less = if found.is_least { "" } else { "; a still smaller one might do" };
            let _ = write!(
                page,
                "<p class='smallest'>To refuse at most {at_most}: <code>{}</code><small>refuses {} of {} by itself{or_less}</small></p>",
                escape(&found.limit),
                count(found.refused),
                count(found.asked)
            );
        }
        (None, Some(at_most)) => {
            let _ = write!(page, "<p class='smallest'>No limit of this shape refuses at most {at_most}.</p>");
        }
        (_, None) => {}
    }
    if !limit.nearest.is_empty() {
        *page += "<details><summary>the busiest keys</summary><ul class='nearest'>";
        for near in &limit.nearest {
            let _ = write!(page, "<li><code>{}</code> {}</li>", escape(&near.key), peak(near.peak));
        }
        *page += "</ul></details>";
    }
    *page += "</article>";
}

fn keys(page: &mut String, class: &str, keys: &[KeyReport]) {
    let most = keys.first().map_or(1, |key| key.count.max(1));
    *page += "<div class='wide'><table><thead><tr><th>key</th><th>rule</th><th class='number'>requests</th><th class='bar'></th></tr></thead><tbody>";
    for key in keys {
        // What may be too high by more than a tenth is only a bound.
        let about = if key.error > key.count / 10 { "≤ " } else { "" };
        let width = key.count as f64 / most as f64 * 100.0;
        let _ = write!(
            page,
            "<tr><td><code>{}</code></td><td>{}</td><td class='number'>{about}{}</td><td class='bar {class}'><i style='width:{width:.1}%'></i></td></tr>",
            escape(&key.key),
            escape(&key.rule),
            count(key.count)
        );
    }
    *page += "</tbody></table></div>";
}

fn examples(page: &mut String, examples: &[Example]) {
    if examples.is_empty() {
        return;
    }
    *page += "<details><summary>the first of them</summary><div class='wide'><table><thead><tr><th>when</th><th>line</th><th>rule</th><th>request</th></tr></thead><tbody>";
    for example in examples {
        let _ = write!(
            page,
            "<tr><td><time>{}</time></td><td>{}:{}</td><td>{}</td><td><code>{}</code></td></tr>",
            example.at,
            escape(&example.source),
            example.line,
            escape(&example.rule),
            escape(&in_words(&example.attributes))
        );
    }
    *page += "</tbody></table></div></details>";
}

fn broken(page: &mut String, report: &Report) {
    if report.broken_examples.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<section><h2>Broken lines</h2><p>{} were left out; the first of them:</p><ul class='broken'>",
        count(report.broken)
    );
    report.broken_examples.iter().for_each(|broken| left_out(page, broken));
    *page += "</ul></section>\n";
}

fn undecided(page: &mut String, report: &Report) {
    for (title, reasons) in report.undecided_by_policy() {
        let _ = write!(page, "<section><h2>{title}</h2>");
        for undecided in reasons {
            let _ = write!(page, "<p>{} lines; the first of them:</p><ul class='broken'>", count(undecided.lines));
            left_out(page, &undecided.example);
            *page += "</ul>";
        }
        *page += "</section>\n";
    }
}

fn left_out(page: &mut String, Broken { source, line, reason, text }: &Broken) {
    let [source, reason, text] = [source, reason, text].map(|text| escape(text));
    let _ = write!(page, "<li><b>{source}:{line}</b> {reason}<br><code>{text}</code></li>");
}

fn foot(page: &mut String, report: &Report) {
    *page += "<footer><p>";
    for source in &report.sources {
        let _ =
            write!(page, "<code>{}</code>: {}, {} lines. ", escape(&source.name), source.format, count(source.lines));
    }
    let _ = writeln!(
        page,
        "Times are UTC. Decided in {} by tidegate {}.</p></footer>",
        duration(Duration::from_micros(report.timings.decided_us)),
        env!("CARGO_PKG_VERSION")
    );
}
