//! Flat files of settings, and what is told of their errors.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use tidegate_config::Report;
use tidegate_config::settings::{self, Setting};

const NAMES: [&str; 3] = ["threads", "listen", "quiet"];

fn load(name: &str, text: &str) -> Result<Vec<(String, Vec<String>)>, Report> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    let accept = |setting: &Setting| match (setting.name.as_str(), setting.values[0].parse::<u64>()) {
        ("threads", Err(_)) => Err("a number of threads is needed".to_owned()),
        _ => Ok(()),
    };
    let settings = settings::load(&path, &NAMES, accept)?;
    Ok(settings.into_iter().map(|Setting { name, values, .. }| (name, values)).collect())
}

fn told(name: &str, text: &str) -> String {
    load(name, text).expect_err("the file is wrong").to_string()
}

#[test]
fn toml_and_yaml_say_the_same() {
    let toml = load("same.toml", "threads = 4\nlisten = ['a:1', 'b:2']\nquiet = true\n").unwrap();
    let yaml = load("same.yaml", "threads: 4\nlisten: ['a:1', 'b:2']\nquiet: true\n").unwrap();
    assert_eq!(toml, yaml);
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
    assert_eq!(
        toml,
        [
            ("threads".into(), texts(&["4"])),
            ("listen".into(), texts(&["a:1", "b:2"])),
            ("quiet".into(), texts(&["true"]))
        ]
    );
    assert_eq!(load("empty.yaml", "").unwrap(), []);
    assert_eq!(load("empty.toml", "# nothing\n").unwrap(), []);
}

#[test]
fn errors_are_told_all_at_once_each_at_its_place() {
    let report = told("wrong.toml", "thread = 4\nquiet = 0.5\n\nthreads = 'many'\n");
    for words in ["wrong.toml:1:1", "did you mean \"threads\"?", "wrong.toml:2:9", "found 0.5", "wrong.toml:4:11"] {
        assert!(report.contains(words), "{words}: {report}");
    }
    assert!(told("list.yaml", "- threads\n").contains("expected names and values, found a list"));
    assert!(told("table.toml", "[threads]\ncount = 1\n").contains("found a table"));
    assert!(told("syntax.toml", "threads = \n").contains("syntax.toml:1:"));
    assert!(told("settings.ini", "").contains("name it .toml"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let report = settings::load("/no/such/settings.toml".as_ref(), &NAMES, |_| Ok(())).unwrap_err();
    assert!(report.to_string().contains("/no/such/settings.toml"), "{report}");
}
