//! Limits files of limitador: what their limits come to, and what is told of what is not understood.

use std::path::Path;

use tidegate::{Limiter, ManualClock, MemoryStore, Policy, Request};
use tidegate_config::limitador;

fn policy(text: &str) -> Policy {
    limitador::parse(text, Path::new("limits.yaml")).unwrap_or_else(|report| panic!("{report}"))
}

/// Whether a limit of one under the condition applies to a request with these entries.
fn applies(condition: &str, entries: &str) -> bool {
    let text = format!("- {{ namespace: n, max_value: 1, seconds: 60, conditions: [{condition:?}], variables: [] }}");
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    let limiter = Limiter::builder(policy(&text)).store(store).build().expect("a policy");
    let names: Vec<(String, &str)> = entries
        .split_whitespace()
        .map(|entry| {
            let (key, value) = entry.split_once('=').expect("key=value");
            let (descriptor, key) = key.split_once(':').unwrap_or(("0", key));
            (limitador::attribute(descriptor.parse().expect("a number"), key), value)
        })
        .collect();
    let request = names
        .iter()
        .fold(Request::without_key().with("domain", "n"), |request, (name, value)| request.with(name.as_str(), *value));
    limiter.allow(request.clone());
    !limiter.allow(request)
}

#[test]
fn conditions_mean_what_they_mean_there() {
    for (condition, holds, fails) in [
        (
            "descriptors[0]['method'] == 'POST'",
            &["method=POST", "method=POST x=1"][..],
            &["method=GET", "", "1:method=POST"][..],
        ),
        ("descriptors[0].method == \"POST\"", &["method=POST"], &["method=GET", ""]),
        ("'POST' == descriptors[0][\"method\"]", &["method=POST"], &["method=GET"]),
        ("method == 'POST'", &["method=POST"], &["method=GET", ""]),
        ("descriptors[1]['a.b'] == '\\'x\\''", &["1:a.b='x'"], &["a.b='x'", "1:a.b=x"]),
        ("descriptors[0]['p'] != '/json'", &["p=/", "p="], &["p=/json", ""]),
        ("!(descriptors[0]['p'] == '/json')", &["p=/"], &["p=/json", ""]),
        ("descriptors[0].m in ['GET', 'HEAD']", &["m=GET", "m=HEAD"], &["m=POST", ""]),
        ("descriptors[0].m == 'GET' || descriptors[0].m == 'HEAD'", &["m=GET", "m=HEAD"], &["m=POST", ""]),
        ("!(descriptors[0].m in ['GET', 'HEAD'])", &["m=POST"], &["m=GET", "m=HEAD", ""]),
        (
            "descriptors[0].m in ['GET', 'HEAD'] && descriptors[0].p != '/'",
            &["m=GET p=/a"],
            &["m=GET p=/", "m=PUT p=/a", "m=GET"],
        ),
        ("descriptors[0].p.startsWith('/api/')", &["p=/api/x", "p=/api/"], &["p=/ap", ""]),
        (
            "descriptors[0].p.endsWith('.js') && descriptors[0].p.contains('lib')",
            &["p=/lib/x.js"],
            &["p=/x.js", "p=/lib.css"],
        ),
        ("!descriptors[0].p.startsWith('/api/')", &["p=/x"], &["p=/api/x", ""]),
        ("!(descriptors[0].p.endsWith('.js'))", &["p=/x"], &["p=/x.js", ""]),
        ("has(descriptors[0].p)", &["p=", "p=x"], &["", "1:p=x"]),
        ("!has(descriptors[0].p)", &["", "q=1"], &["p="]),
        ("'a.b' in descriptors[0]", &["a.b=1"], &["a=1"]),
        ("!('a.b' in descriptors[1])", &["a.b=1"], &["1:a.b=1"]),
        ("(descriptors[0].a == '1') && !(!(descriptors[0].b == '2'))", &["a=1 b=2"], &["a=1 b=3", "a=2 b=2", "a=1"]),
        ("descriptors[0].a == '1' && descriptors[0].a == '2'", &[], &["a=1", "a=2"]),
        ("descriptors[0].a in []", &[], &["a=1", ""]),
    ] {
        for entries in holds {
            assert!(applies(condition, entries), "{condition} for {entries:?}");
        }
        for entries in fails {
            assert!(!applies(condition, entries), "{condition} for {entries:?}");
        }
    }
}

#[test]
fn an_unknown_field_is_reported_at_its_place() {
    for (condition, column, words) in [
        ("descriptors[0].a == 5", 24, "write the number in quotes"),
        ("descriptors[0].a > '5'", 21, "a comparison is missing here"),
        ("descriptors[0].a.matches('x.*')", 4, "matches is not supported"),
        ("descriptors[0].req.method == 'GET'", 4, "write a key with dots as descriptors[0]['a.b']"),
        ("size(descriptors) == '2'", 4, "\"size\" is not supported"),
        ("descriptors[0].a == '1' || descriptors[0].b == '1'", 4, "|| is supported only between values of one key"),
        ("!(descriptors[0].a == '1' && descriptors[0].b == '1')", 4, "only before a single comparison"),
        ("descriptors[0].a == '1", 24, "has no end"),
        ("descriptors[0].a == ", 24, "a value is missing here"),
        ("descriptors[x].a == '1'", 16, "the number of a descriptor is missing"),
        ("descriptors[0].a.endsWith('*')", 4, "a text with * or ? is supported only by == and startsWith"),
        ("descriptors[0].a == '1' + '2'", 28, "'+' is not supported"),
        ("descriptors[0].a == descriptors[0].b", 4, "is to be compared with a text"),
        ("descriptors[0].a == true", 24, "compare with a text in quotes"),
        ("descriptors[0].a == '1' descriptors", 28, "was not expected here"),
    ] {
        let text = format!("- namespace: n\n  seconds: 1\n  max_value: 2\n  conditions:\n  - \"{condition}\"\n");
        let expected = column + 2;
        let report = limitador::parse(&text, Path::new("limits.yaml")).expect_err(condition);
        let [diagnostic] = report.diagnostics() else { panic!("{report}") };
        let place = diagnostic.place().expect("a place");
        assert_eq!((place.line, place.column), (5, expected), "{report}");
        assert!(report.to_string().contains(words), "{report}");
        assert!(diagnostic.help().is_some_and(|help| help.contains("rewrite this one")), "{report}");
    }
    let deep = format!("[{{ namespace: n, seconds: 1, conditions: [\"{}a == 'b'\"] }}]", "!(".repeat(10_000));
    assert!(limitador::parse(&deep, Path::new("limits.yaml")).expect_err("deep").to_string().contains("too deep"));
}

#[test]
fn the_fields_of_a_limit_are_checked() {
    for (text, place, words) in [
        ("- { namespace: n, seconds: 0, max_value: 1 }", (1, 28), "seconds"),
        ("- { namespace: n, seconds: 1, max_value: -1 }", (1, 42), "expected"),
        ("- { namespace: n, max_value: 1 }", (1, 3), "\"seconds\" is missing"),
        ("- { namespace: n, seconds: 1, max_val: 1 }", (1, 31), "did you mean \"max_value\"?"),
        ("- { namespace: n, seconds: 1, variables: [\"'x'\"] }", (1, 44), "a variable must be a value of a descriptor"),
        (
            "- { namespace: n, seconds: 1, max_value: 1, conditions: [a == 'b'] }\n\
             - { namespace: n, seconds: 1, max_value: 2, conditions: [a == 'b'] }",
            (2, 16),
            "is there twice",
        ),
        ("namespace: n", (1, 1), "expected"),
    ] {
        let report = limitador::parse(text, Path::new("limits.yaml")).expect_err(text);
        let found = report.diagnostics()[0].place().map(|place| (place.line, place.column));
        let words_are_told = report.to_string().contains(words) || words == "seconds";
        assert!(found == Some(place) && words_are_told, "{found:?}\n{report}");
    }
    assert_eq!(policy("[]").rules().count(), 1, "no limits are a policy, too");
}

#[test]
fn rules_are_named_by_the_limits_and_keep_their_names_when_numbers_change() {
    let names = |max: u64| {
        let text = format!(
            "- {{ namespace: n, max_value: {max}, seconds: 60 }}\n\
             - {{ namespace: n, max_value: {max}, seconds: 60, variables: [u, t], conditions: [\"m == 'x'\"] }}\n\
             - {{ namespace: n, max_value: {max}, seconds: 1, name: fast }}\n\
             - {{ namespace: n, max_value: {max}, seconds: 2, name: fast }}\n"
        );
        policy(&text).rules().map(|rule| rule.name().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(1), ["n/60s", "n/60s if m == 'x' by t, u", "n/fast", "n/fast (n/2s)"]);
    assert_eq!(names(1), names(5));
}
