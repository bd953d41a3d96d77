//! One palette: the dashboard, the pictures of a simulation and the report of a replay have the same colours for the
//! same meaning.

use std::fs;
use std::path::Path;

use tidegate::Limit;
use tidegate_simulate::Scenario;

/// A meaning: the dashboard's variable, the picture's class and property, the report's variable.
const MEANINGS: [(&str, Option<&str>, Option<&str>); 10] = [
    ("paper", None, Some("paper")),
    ("panel", Some("paper { fill"), Some("card")),
    ("well", None, Some("wash")),
    ("ink", Some("title { fill"), Some("ink")),
    ("muted", Some("text { fill"), Some("dim")),
    ("muted", Some("rule { stroke"), None),
    ("line", Some("edge { stroke"), Some("line")),
    ("sea", Some("admitted { fill"), Some("admitted")),
    ("coral", Some("refused { fill"), Some("refused")),
    ("sand", Some("burst { fill"), Some("near")),
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The colour after the words, in small letters.
fn after(text: &str, words: &str) -> String {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("no {words} in {text}"));
    let colour = rest.trim_start_matches([' ', ':']);
    colour.split([' ', ',', ';', ')', '}']).next().unwrap_or_default().to_lowercase()
}

#[test]
fn dashboard_pictures_and_report_share_their_colours() {
    let (page, report) = (read("web/src/style.css"), read("crates/tidegate-replay/src/report/page.css"));
    let scenario = Scenario::lesson(Limit::per_second(10)).expect("small numbers fit");
    let picture = scenario.run().expect("it can be simulated").picture().to_svg();
    let dark = "prefers-color-scheme: dark";
    let both = |text: &str| text.split_once(dark).map(|(light, dark)| [light.to_owned(), dark.to_owned()]);
    let (pictures, reports) = (both(&picture).expect("two papers"), both(&report).expect("two papers"));
    for (name, class, variable) in MEANINGS {
        let light = after(&page, &format!("--{name}: light-dark("));
        let dark = after(&page, &format!("--{name}: light-dark({light},"));
        for (number, colour) in [light, dark].iter().enumerate() {
            assert!(colour.starts_with('#') && colour.len() == 7, "--{name}: {colour}");
            if let Some(class) = class {
                assert_eq!(
                    &after(&pictures[number], &format!("\n.{class}")),
                    colour,
                    "{class} of a picture is --{name}"
                );
            }
            if let Some(variable) = variable {
                let found = after(&reports[number], &format!("--{variable}:"));
                assert_eq!(&found, colour, "--{variable} of the report is --{name}");
            }
        }
    }
}
