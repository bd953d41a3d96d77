//! The same policy in TOML and in YAML is the same policy, and survives being
//! written and read again.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tidegate::{CheckError, Limiter, ManualClock, MemoryStore, Policy, Request};
use tidegate_config::{Format, PolicyFile, WhenMissing, load, parse};
use tidegate_testkit::Random;

const TOML: &str = include_str!("../examples/policy.toml");
const YAML: &str = include_str!("../examples/policy.yaml");

fn read(text: &str, format: Format) -> PolicyFile {
    PolicyFile::parse(text, format, Path::new("policy")).unwrap_or_else(|report| panic!("{report}"))
}

fn limiter(policy: Policy, clock: &ManualClock) -> Limiter {
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

#[test]
fn the_examples_say_the_same() {
    assert_eq!(read(TOML, Format::Toml), read(YAML, Format::Yaml));
}

#[test]
fn the_examples_decide_the_same() {
    let clock = ManualClock::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let load = |file| load(folder.join(file)).unwrap_or_else(|report| panic!("{report}"));
    let (toml, yaml) = (limiter(load("policy.toml"), &clock), limiter(load("policy.yaml"), &clock));
    let mut random = Random::new(7);
    let mut refused = 0;
    for _ in 0..20_000 {
        let ip: IpAddr = random.choose(&["10.1.1.1", "192.0.2.1", "198.51.100.1", "2001:db8::1"]).parse().expect("one");
        let mut request = Request::new(()).with("user", random.choose(&["alice", "bob", "mallory"]));
        if random.percent(70) {
            request = request.with("ip", ip);
        }
        request = request.with("method", random.choose(&["GET", "POST"]));
        request = request.with("path", random.choose(&["/", "/api/orders/1", "/api/x/report"]));
        request = request.with("tenant", random.choose(&["acme", "acme-eu", "load-test", "other"]));
        request = request.with("plan", random.choose(&["pro", "free", "none"]));
        request = request.with("agent", random.choose(&["curl", "robot"])).with("name", random.choose(&["A", "a"]));
        clock.advance(Duration::from_millis(random.within(0..=20)));
        let (one, other) = (toml.check(request.clone()), yaml.check(request.clone()));
        let (one, other) = (one.expect("an answer"), other.expect("an answer"));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "{request:?}");
        refused += u32::from(!one.is_allowed());
    }
    assert!((2_000..18_000).contains(&refused), "{refused} refusals prove little");
}

#[test]
fn written_traces_parse_back() {
    let file = read(TOML, Format::Toml);
    // JSON is YAML.
    let written = serde_json::to_string_pretty(&file).expect("it can be written");
    assert_eq!(read(&written, Format::Yaml), file);
    let again: PolicyFile = serde_json::from_str(&written).expect("and read by others");
    assert_eq!(again, file);
}

#[test]
fn units_default_amounts_and_estimates_are_the_librarys_in_every_format() {
    let toml = "
        [rules.tokens]
        limit = '100/min'
        unit = 'tokens'
        cost = { times = 2 }
        default_amount = 5
        estimate = 'clamp'
        [rules.strict]
        limit = '100/min'
        unit = 'bytes'
        estimate = 'error'
        [rules.chats]
        limit = 'in-flight 2 for 60s'
    ";
    let json = r#"{"rules": {
        "tokens": {"limit": "100/min", "unit": "tokens", "cost": {"times": 2}, "default_amount": 5,
            "estimate": "clamp"},
        "strict": {"limit": "100/min", "unit": "bytes", "estimate": "error"},
        "chats": {"limit": "in-flight 2 for 60s"}
    }}"#;
    for (text, format) in [(toml, Format::Toml), (json, Format::Yaml)] {
        let policy = parse(text, format, Path::new("policy")).unwrap_or_else(|report| panic!("{report}"));
        let limiter = limiter(policy, &ManualClock::default());
        let left = |request: Request<'_>, rule| {
            let _ = limiter.check(request.rule(rule)).expect("an answer");
            limiter.peek(Request::new("alice").cost(0).rule(rule)).expect("an answer").remaining()
        };
        let alice = || Request::new("alice");
        assert_eq!(left(alice().amount("tokens", 20), "tokens"), Some(60));
        assert_eq!(left(alice(), "tokens"), Some(50), "the default amount, twice");
        assert_eq!(left(alice().amount("bytes", 30).cost(9), "strict"), Some(70));
        assert_eq!(left(alice().cost(9), "strict"), Some(70), "no amount, and no default");
        assert_eq!(left(alice(), "chats"), Some(1));
        let too_much = |unit, rule| limiter.check(Request::new("bob").amount(unit, 101).rule(rule));
        assert_eq!(too_much("tokens", "tokens").expect("an answer").remaining(), Some(0));
        assert!(matches!(too_much("bytes", "strict"), Err(CheckError::Unsatisfiable { .. })));
    }
}

#[test]
fn keys_and_what_is_missing_are_the_same_in_both_formats_and_written_again() {
    let toml = "
        [rules.error]
        limit = '1/h'
        key = ['user']
        missing = 'error'
        [rules.skip]
        limit = '1/h'
        key = [{ first = ['user', 'ip'], ipv4 = 24, ipv6 = 56 }, { attribute = 'path' }]
        missing = 'skip'
        [default]
        limit = '1/h'
        key = [{ first = ['user'], ignore_case = true }]
        missing = 'shared'
    ";
    let yaml = "
rules:
  error: { limit: 1/h, key: [user], missing: error }
  skip:
    limit: 1/h
    key: [{ first: [user, ip], ipv4: 24, ipv6: 56 }, { attribute: path }]
    missing: skip
default: { limit: 1/h, key: [{ first: [user], ignore_case: true }], missing: shared }
";
    let file = read(toml, Format::Toml);
    assert_eq!(file, read(yaml, Format::Yaml));
    let missing: Vec<WhenMissing> = file.rules.0.iter().map(|(_, rule)| rule.missing).collect();
    assert_eq!(missing, [WhenMissing::Error, WhenMissing::Skip]);
    let written = serde_json::to_value(&file).expect("it can be written");
    assert_eq!(written["rules"]["error"]["missing"], serde_json::Value::Null, "it is what is not said");
    assert_eq!(written["rules"]["skip"]["key"][0]["first"], serde_json::json!(["user", "ip"]));
    assert_eq!(written["default"]["missing"], "shared");
    assert_eq!(read(&written.to_string(), Format::Yaml), file);
}

#[test]
fn the_first_attribute_that_is_there_counts_and_an_address_by_its_network() {
    let text = "[rules.callers]\nlimit = '1/h'\nkey = [{ first = ['user', 'ip'], ipv4 = 24 }]\n";
    let policy = parse(text, Format::Toml, Path::new("policy")).unwrap_or_else(|report| panic!("{report}"));
    let limiter = limiter(policy, &ManualClock::default());
    let from = |ip: &'static str| Request::new(()).with("ip", ip);
    assert!(limiter.allow(from("192.0.2.1").with("user", "alice")), "a user need not be an address");
    assert!(!limiter.allow(from("198.51.100.1").with("user", "alice")));
    assert!(limiter.allow(from("192.0.2.1")) && !limiter.allow(from("192.0.2.2")));
    let missing = limiter.check(Request::new(()));
    assert!(matches!(missing, Err(CheckError::MissingAttribute { attribute, .. }) if &*attribute == "user or ip"));
    let no_address = limiter.check(from("alice"));
    assert!(matches!(no_address, Err(CheckError::NotAnAddress { .. })), "ip is an address always");
}

#[test]
fn rules_stand_in_the_order_of_the_file() {
    let names =
        |text, format| -> Vec<String> { read(text, format).rules.0.into_iter().map(|(name, _)| name).collect() };
    let toml = "[rules.b]\nlimit = '1/s'\n[rules.a.tiers]\n[rules.c]\nlimit = '1/s'\n[rules.a]\nlimit = '1/s'\n";
    assert_eq!(names(toml, Format::Toml), ["b", "c", "a"], "where its own table begins");
    let yaml = "rules: { z: { limit: 1/s }, b: { limit: 1/s }, a: { limit: 1/s } }";
    assert_eq!(names(yaml, Format::Yaml), ["z", "b", "a"]);
}

#[test]
fn the_first_pattern_of_the_file_applies() {
    for (patterns, limit) in [("'z*' = '2/h', '*' = '3/h'", 2), ("'*' = '3/h', 'z*' = '2/h'", 3)] {
        let text = format!("[default]\nlimit = '1/h'\noverrides.tenant = {{ {patterns} }}\n");
        let policy = parse(&text, Format::Toml, Path::new("policy")).unwrap_or_else(|report| panic!("{report}"));
        let limiter = limiter(policy, &ManualClock::default());
        assert_eq!(limiter.check(Request::new(()).with("tenant", "zoo")).expect("an answer").capacity(), Some(limit));
    }
}

#[test]
fn aliases_and_merge_keys_stand_for_what_they_name() {
    let yaml = "
rules:
  a: &base { limit: 5/h, key: [user], shadow: true }
  b: { <<: *base, shadow: false }
  c: *base
";
    let file = read(yaml, Format::Yaml);
    let [(_, a), (_, b), (_, c)] = file.rules.0.as_slice() else { panic!("three rules") };
    assert_eq!(a, c);
    assert!(a.shadow && !b.shadow && a.limit == b.limit && a.key == b.key);
}

#[test]
fn a_policy_without_a_rule_but_with_a_default_is_one() {
    assert!(parse("default: { limit: blocked }", Format::Yaml, Path::new("x")).is_ok());
}

#[test]
fn the_book_shows_an_error_as_it_is_reported() {
    let page = include_str!("../../../docs/book/src/reference/policies.md");
    let report = parse("[rules.orders]\nlimt = \"100/min\"\n", Format::Toml, Path::new("policy.toml"));
    let report = report.map(drop).expect_err("an error").to_string();
    assert!(page.contains(&report), "reference/policies.md should show:\n{report}");
}
