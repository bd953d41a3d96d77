//! Policies that are checked and not made.

use tidegate::Limiter;
use tidegate_config::{Format, Problem, Validation, load, parse};

/// So many rules, whose names begin like that.
fn rules(prefix: &str, count: usize) -> String {
    (0..count).map(|number| format!("[rules.{prefix}{number}]\nlimit = '1/s'\n")).collect()
}

#[test]
fn policies_that_are_validated_leave_room_for_others() {
    for round in 0..11 {
        let text = rules(&format!("r{round}-"), 1_000);
        let warnings = Validation::new().text(&text, Format::Toml, "policy.toml".as_ref());
        assert!(warnings.is_ok_and(|warnings| warnings.is_empty()));
    }
    let policy = parse(&rules("real-", 1_000), Format::Toml, "policy.toml".as_ref()).expect("a policy");
    assert!(Limiter::builder(policy).build().is_ok());
}

#[test]
fn a_log_beyond_the_bound_is_told_at_its_place() {
    let text = "\
[rules.a]
limit = 'sliding-log 6/h'
candidate = 'sliding-log 7/h'
key = ['user']
tiers.plan = { pro = 'sliding-log 8/h', free = 'sliding-log 5/h' }
overrides.user = { alice = 'sliding-log 9/h' }
[default]
limit = 'sliding-log 10/h'
[overrides.a.user]
bob = 'sliding-log 11/h'
";
    let validate = |bound| Validation::new().max_log_entries(bound).text(text, Format::Toml, "policy.toml".as_ref());
    let report = validate(5).expect_err("longer than five");
    let found: Vec<_> =
        report.diagnostics().iter().map(|diagnostic| diagnostic.place().map(|place| place.line)).collect();
    assert_eq!(found, [2, 3, 5, 6, 8, 10].map(Some), "{report}");
    assert!(report.diagnostics().iter().all(|diagnostic| matches!(diagnostic.problem(), Problem::Policy(_))));
    assert!(report.to_string().contains("rule \"default\": sliding-log 10/h may keep 10 entries"), "{report}");
    assert!(validate(11).is_ok());
}

#[test]
fn files_and_texts_are_refused_as_where_they_are_made() {
    let name = std::path::Path::new("policy.toml");
    for text in ["", "[rules.a]\nlimit = 'x'\n", "[rules.a]\nlimit = '1/s'\n[rules.a]\n", "include = ['b.toml']\n"] {
        let [made, validated] =
            [parse(text, Format::Toml, name).map(drop), Validation::new().text(text, Format::Toml, name).map(drop)]
                .map(|result| result.expect_err("no policy").to_string());
        assert_eq!(made, validated);
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/policy.toml");
    assert_eq!(Validation::new().file(example).is_ok(), load(example).is_ok());
    assert!(Validation::new().file("/no/such.toml").is_err());
}
