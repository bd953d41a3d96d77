//! Every error as it is shown: `errors/` has files with errors, and beside
//! each a text that is the report on it. `warnings/` has the same for warnings. To
//! write the texts anew, run with `TIDEGATE_UPDATE=1` and look at the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_config::{
    Diagnostic, Format, Problem, Report, Validation, envoy, limitador, load_with_warnings, parse, parse_with_warnings,
};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
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
        true => envoy::parse(&text, name).map(drop).expect_err("an error"),
        false => parse(&text, format, name).map(drop).expect_err("an error"),
    }
}

/// Compares what is shown of each file of a folder with the text beside it.
fn compare(folder: &str, show: impl Fn(&Path) -> String) {
    let mut different = Vec::new();
    for file in files(folder) {
        let shown = format!("{}\n", show(&file));
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
fn each_error_is_shown_at_its_place() {
    assert!(files("tests/errors").len() > 30);
    compare("tests/errors", |file| report(file).to_string());
}

#[test]
fn each_warning_is_shown_at_its_place() {
    assert!(files("tests/warnings").len() > 3);
    compare("tests/warnings", |file| {
        let text = fs::read_to_string(file).expect("a file of text");
        let name = Path::new(file.file_name().expect("a name"));
        let loaded = parse_with_warnings(&text, Format::of(file).expect("a format"), name);
        let warnings = loaded.unwrap_or_else(|report| panic!("{report}")).warnings;
        assert!(!warnings.is_empty() && warnings.iter().all(Diagnostic::is_warning), "{}", file.display());
        warnings.iter().map(Diagnostic::to_string).collect::<Vec<String>>().join("\n\n")
    });
}

#[test]
fn no_policy_of_this_repository_gives_a_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let whole = [
        "crates/tidegate-config/examples/policy.toml",
        "crates/tidegate-config/examples/policy.yaml",
        "crates/tidegate-replay/samples/new.toml",
        "crates/tidegate-replay/samples/old.toml",
        "crates/tidegate-server/src/ask/default_policy.toml",
        "deploy/policy.toml",
    ];
    let no_warnings = |warnings: Vec<Diagnostic>| assert!(warnings.is_empty(), "{}", warnings[0]);
    for file in whole {
        let loaded = load_with_warnings(root.join(file));
        no_warnings(loaded.unwrap_or_else(|report| panic!("{report}")).warnings);
    }
    let read = |text: &str, name: &Path| {
        let loaded = parse_with_warnings(text, Format::Toml, name);
        no_warnings(loaded.unwrap_or_else(|report| panic!("{report}")).warnings);
    };
    // What a comment proposes is a policy as well.
    for file in ["crates/tidegate-server/src/ask/default_policy.toml", "deploy/policy.toml"] {
        let text = fs::read_to_string(root.join(file)).expect("a file of text");
        let proposed = |line: &&str| line.starts_with('[') || line.contains(" = ");
        let lines = text.lines().map(|line| line.strip_prefix("# ").filter(proposed).unwrap_or(line));
        read(&lines.collect::<Vec<&str>>().join("\n"), Path::new(file));
    }
    let mut blocks = 0;
    let recipes = fs::read_dir(root.join("docs/book/src/recipes")).expect("the folder of recipes");
    let recipes = recipes.map(|entry| entry.expect("its entries").path());
    for file in recipes.chain([root.join("docs/book/src/reference/policies.md")]) {
        let text = fs::read_to_string(&file).expect("a document");
        for block in text.split("```toml").skip(1) {
            let (_, policy) = block.split_once('\n').expect("it begins on the next line");
            read(policy.split("```").next().unwrap_or_default(), &file);
            blocks += 1;
        }
    }
    assert!(blocks > 5, "only {blocks} policies in the documents");
}

#[test]
fn many_patterns_without_text_give_one_warning() {
    let warnings = |count: usize, pattern: &str| {
        let rule =
            |number| format!("[rules.r{number}]\nlimit = '1/s'\nmatch = {{ path = {{ glob = '{pattern}' }} }}\n");
        let text: String = (0..count).map(rule).collect();
        let loaded = parse_with_warnings(&text, Format::Toml, Path::new("policy.toml"));
        loaded.unwrap_or_else(|report| panic!("{report}")).warnings
    };
    assert!(warnings(100, "?*").is_empty());
    assert!(warnings(200, "?*/").is_empty() && warnings(200, "").is_empty());
    let warned = warnings(200, "?*");
    assert_eq!(warned.len(), 1);
    assert!(warned[0].is_warning() && warned[0].problem().to_string().starts_with("200 patterns"));
    assert_eq!(warned[0].place().map(|place| place.line), Some(303), "the first that is too many");
}

#[test]
fn a_report_can_be_read_by_programs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/unknown-field.toml");
    let report = report(&file);
    let diagnostics: Vec<_> = report
        .diagnostics()
        .iter()
        .map(|diagnostic| {
            let place = diagnostic.place().expect("a place");
            (
                place.line,
                place.column,
                diagnostic.problem().to_string(),
                diagnostic.help().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    assert_eq!(
        diagnostics,
        [
            (3, 1, "unknown field \"mach\"".into(), "did you mean \"match\"?".into()),
            (5, 2, "unknown field \"rule\"".into(), "did you mean \"rules\"?".into()),
        ]
    );
}

#[test]
fn a_report_has_a_bound() {
    let report = report(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/many.toml"));
    assert_eq!(report.diagnostics().len(), Report::MAX);
    assert!(report.to_string().ends_with("There may be more."));
}

#[test]
fn no_number_of_errors_makes_it_run_away() {
    // It would be a matter of minutes to look for the place of each.
    let mut text = "[default]\nlimit = '1/s'\n".to_owned();
    for rule in 0..200_000 {
        text += &format!("[overrides.r{rule}.user]\na = '1/s'\n");
    }
    let report = parse(&text, Format::Toml, Path::new("policy.toml")).map(drop).expect_err("no such rules");
    assert_eq!(report.diagnostics().len(), Report::MAX);
}

#[test]
fn no_number_of_names_makes_it_run_away() {
    let mut text = String::new();
    for rule in 0..20_000 {
        text += &format!("[rules.r{rule}]\nlimit = '1/s'\nkey = ['attribute-{rule}']\n");
    }
    let loaded = parse_with_warnings(&text, Format::Toml, Path::new("policy.toml"));
    assert!(loaded.unwrap_or_else(|report| panic!("{report}")).warnings.is_empty(), "they are too many to compare");
}

#[test]
fn no_number_of_errors_makes_another_format_run_away() {
    let file = |line: fn(usize) -> String| (0..100_000).map(line).collect::<String>();
    let limits = [
        file(|_| "- { namespace: n, max_value: 1, seconds: 1 }\n".to_owned()),
        file(|number| format!("- {{ namespace: n{number}, max_value: 1, seconds: 0 }}\n")),
    ];
    for text in limits {
        let report = limitador::parse(&text, Path::new("limits.yaml")).map(drop).expect_err("errors");
        assert_eq!(report.diagnostics().len(), Report::MAX);
    }
    let descriptors = file(|number| format!("- {{ key: k{number}, rate_limit: {{ requests_per_unit: 1 }} }}\n"));
    let text = format!("domain: d\ndescriptors:\n{descriptors}");
    let report = envoy::parse(&text, Path::new("envoy.yaml")).map(drop).expect_err("no units");
    assert_eq!(report.diagnostics().len(), Report::MAX);
}

#[test]
fn no_number_of_overrides_makes_it_run_away() {
    // It would be a matter of minutes to search the table for each.
    let check = |rule: &str, limit: &str| {
        let overrides: String = (0..200_000).map(|number| format!("u{number} = '{limit}'\n")).collect();
        let text = format!("[rules.a]\nlimit = '9/s'\n{rule}\n[rules.a.overrides.user]\n{overrides}");
        Validation::new().text(&text, Format::Toml, Path::new("policy.toml"))
    };
    assert!(check("priority = { attribute = 'class', low = '10%' }", "8/s").is_ok());
    let report = check("", "sliding-log 3000000/day").expect_err("logs that are too long");
    let lines: Vec<_> = report.diagnostics().iter().filter_map(Diagnostic::place).map(|place| place.line).collect();
    assert_eq!(lines, (5..5 + Report::MAX).collect::<Vec<_>>());
}

#[test]
fn the_text_that_aliases_stand_for_has_a_bound() {
    let parse = |metadata: &str| {
        let text = format!("domain: d\ndescriptors: [{{ key: k, metadata: {{{metadata}}} }}]");
        let report = envoy::parse(&text, Path::new("envoy.yaml")).map(drop).err()?;
        let [diagnostic] = report.diagnostics() else { panic!("{report}") };
        let is_too_much = matches!(diagnostic.problem(), Problem::TooMuch { bound, .. } if *bound == 64 << 20);
        let start = text.len() - text.lines().last()?.len() + diagnostic.place()?.column - 1;
        is_too_much.then(|| text[start..].starts_with("*a"))
    };
    let (text, number) = ("x".repeat(1 << 20), "9".repeat(1 << 20));
    let times = |count: usize, part: &str| vec![part; count].join(", ");
    let within = format!("a: &a {text}, b: [{}], c: &c [&d [{text}]], e: *c", times(10, "*a"));
    assert_eq!(parse(&within), None);
    let unlike: Vec<String> = [
        format!("a: &a {text}, b: [{}]", times(100, "*a")),
        format!("a: &a {number}, b: [{}]", times(100, "*a")),
        format!("a: &a {{ ? {text} : 1 }}, b: [{}]", times(100, "*a")),
        format!("a: &a {{ k: {text} }}, b: [{}]", times(100, "{ <<: *a }")),
        format!("a: &a [{}], b: [{}]", times(4, &text), times(25, "[*a]")),
    ]
    .into_iter()
    .filter(|metadata| parse(metadata) != Some(true))
    .map(|metadata| metadata[metadata.len() - 40..].to_owned() + &metadata[..10])
    .collect();
    assert!(unlike.is_empty(), "{unlike:?}");
    let anchors: String = (0..50).map(|number| format!("&b{number} [")).collect();
    assert_eq!(parse(&format!("a: {anchors}{text}{text}{}", "]".repeat(50))), Some(false), "refused at an anchor");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    for (text, format) in [("limt = 1", Format::Toml), ("limt: 1", Format::Yaml)] {
        let shown = ["", "\u{feff}"].map(|mark| {
            let report = parse(&format!("{mark}{text}"), format, Path::new("policy")).map(drop).expect_err("unknown");
            let place = report.diagnostics()[0].place().expect("a place");
            assert_eq!((place.line, place.column), (1, 1), "{report}");
            report.to_string()
        });
        assert_eq!(shown[0], shown[1]);
    }
}

#[test]
fn bytes_that_are_not_text_are_shown_where_they_begin() {
    let file = std::env::temp_dir().join(format!("tidegate-config-{}.toml", std::process::id()));
    fs::write(&file, b"[default]\nlimit = \"1/s\xff\"\n").expect("a file");
    let report = tidegate_config::load(&file).expect_err("not text");
    fs::remove_file(&file).expect("it was there");
    let place = report.diagnostics()[0].place().expect("a place");
    assert_eq!((place.line, place.column), (2, 13));
}
