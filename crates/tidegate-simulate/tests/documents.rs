//! The documents show what the algorithms do today: pictures, text and numbers
//! are those that a simulation gives.

use std::fs;
use std::path::Path;

use tidegate::Limit;
use tidegate_simulate::{Outcome, Report, Scenario};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn lesson() -> Scenario {
    Scenario::lesson(Limit::per_second(10)).expect("small numbers fit")
}

fn report() -> Report {
    lesson().run().expect("it can be simulated")
}

#[test]
fn the_pictures_show_what_the_algorithms_do_today() {
    let each = report().outcomes.into_iter().map(|it| (it.name().replace(' ', "-"), lesson().limits([it.limit])));
    for (name, scenario) in each.chain([("side-by-side".to_owned(), lesson())]) {
        let path = format!("docs/book/src/concepts/algorithms/{name}.svg");
        let drawn = scenario.run().expect("it can be simulated").picture().to_svg();
        let again = "cargo run -p tidegate-simulate --example pictures -- docs/book/src/concepts";
        assert!(read(&path) == drawn, "draw {path} again: {again}");
    }
}

#[test]
fn the_page_of_the_library_shows_the_same_in_text() {
    let chart = report().chart().to_string();
    let page = read("crates/tidegate/src/lib.rs");
    let page: String = page
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .fold(String::new(), |page, line| page + line.strip_prefix(' ').unwrap_or(line) + "\n");
    assert!(page.contains(&format!("```text\n{chart}```\n")), "the page of the library should show\n{chart}");
}

#[test]
fn the_book_shows_the_table_of_the_first_run() {
    let table = report().table().to_string();
    assert!(read("docs/book/src/concepts/simulate.md").contains(&table), "simulate.md should show\n{table}");
}

#[test]
fn the_numbers_beside_the_pictures_are_theirs() {
    let report = report();
    let row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        format!("| {name} | {} |", report.outcomes.iter().map(cell).collect::<Vec<_>>().join(" | "))
    };
    let page = read("docs/book/src/concepts/algorithms.md");
    let smoothness = |outcome: &Outcome| {
        let thousandths = outcome.flow.smoothness.unwrap_or_default();
        format!("{}.{}%", thousandths / 10, thousandths % 10)
    };
    for row in [
        row("admitted of 56", &|outcome| outcome.flow.passed.requests.to_string()),
        row("worst window", &|outcome| outcome.flow.worst_window.units.to_string()),
        row("longest burst", &|outcome| outcome.flow.burst.to_string()),
        row("smoothness", &smoothness),
    ] {
        assert!(page.contains(&row), "docs/book/src/concepts/algorithms.md should say {row}");
    }
}
