//! Every mistake as it is shown: `mistakes/` has files with mistakes, and beside
//! each a text that is the report on it. To write the texts anew, run with
//! `TIDEGATE_UPDATE=1` and look at the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_config::{Format, Report, envoy, parse};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| Format::of(file).is_some());
    files.sort();
    files
}

fn report(file: &Path) -> Report {
    let text = fs::read_to_string(file).expect("a file of text");
    let name = Path::new(file.file_name().expect("a name"));
    let format = Format::of(file).expect("a format");
    match name.to_string_lossy().starts_with("envoy-") {
        true => envoy::parse(&text, name).map(drop).expect_err("a mistake"),
        false => parse(&text, format, name).map(drop).expect_err("a mistake"),
    }
}

#[test]
fn each_mistake_is_shown_at_its_place() {
    let files = files();
    assert!(files.len() > 30, "the folder has {} files", files.len());
    let mut different = Vec::new();
    for file in files {
        let shown = format!("{}\n", report(&file));
        let expected = file.with_extension(format!("{}.txt", file.extension().expect("one").display()));
        if std::env::var_os("TIDEGATE_UPDATE").is_some() {
            fs::write(&expected, &shown).expect("the text can be written");
        }
        if fs::read_to_string(&expected).unwrap_or_default() != shown {
            different.push(format!("{}:\n{shown}", file.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn a_report_can_be_read_by_programs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes/unknown-field.toml");
    let report = report(&file);
    let mistakes: Vec<_> = report
        .mistakes()
        .iter()
        .map(|mistake| {
            let place = mistake.place().expect("a place");
            (place.line, place.column, mistake.problem().to_string(), mistake.help().unwrap_or_default().to_owned())
        })
        .collect();
    assert_eq!(
        mistakes,
        [
            (3, 1, "unknown field \"mach\"".into(), "did you mean \"match\"?".into()),
            (5, 2, "unknown field \"rule\"".into(), "did you mean \"rules\"?".into()),
        ]
    );
}

#[test]
fn a_report_has_a_bound() {
    let report = report(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes/many.toml"));
    assert_eq!(report.mistakes().len(), Report::MOST);
    assert!(report.to_string().ends_with("There may be more."));
}

#[test]
fn no_number_of_mistakes_makes_it_run_away() {
    // It would be a matter of minutes to look for the place of each.
    let mut text = "[default]\nlimit = '1/s'\n".to_owned();
    for rule in 0..200_000 {
        text += &format!("[overrides.r{rule}.user]\na = '1/s'\n");
    }
    let report = parse(&text, Format::Toml, Path::new("policy.toml")).map(drop).expect_err("no such rules");
    assert_eq!(report.mistakes().len(), Report::MOST);
}

#[test]
fn bytes_that_are_not_text_are_shown_where_they_begin() {
    let file = std::env::temp_dir().join(format!("tidegate-config-{}.toml", std::process::id()));
    fs::write(&file, b"[default]\nlimit = \"1/s\xff\"\n").expect("a file");
    let report = tidegate_config::load(&file).expect_err("not text");
    fs::remove_file(&file).expect("it was there");
    let place = report.mistakes()[0].place().expect("a place");
    assert_eq!((place.line, place.column), (2, 13));
}
