//! Descriptor files of Envoy's rate limit service: which limit a request meets.
//! The policies are those that its documentation explains its rules by.

use std::path::Path;

use tidegate::{Limit, Setting};
use tidegate_config::Problem;
use tidegate_config::envoy::{self, EnvoyConfig, Unit};

fn config(text: &str) -> EnvoyConfig {
    envoy::parse(text, Path::new("envoy.yaml")).unwrap_or_else(|report| panic!("{report}"))
}

fn per(unit: Unit, count: u64) -> Option<Setting> {
    Some(Setting::Limit(Limit::fixed_window(count, unit.period())))
}

/// A descriptor in short: `key=value key=value`.
fn entries(descriptor: &str) -> Vec<(&str, &str)> {
    descriptor.split(' ').map(|entry| entry.split_once('=').expect("key=value")).collect()
}

/// What applies to a descriptor.
fn setting(config: &EnvoyConfig, domain: &str, descriptor: &str) -> Option<Setting> {
    config.limit_for(domain, &entries(descriptor)).map(|matched| matched.setting)
}

#[test]
fn keys_with_values_have_limits_of_their_own() {
    let config = config(
        "
domain: mongo_cps
descriptors:
  - { key: database, value: users, rate_limit: { unit: second, requests_per_unit: 500 } }
  - { key: database, value: default, rate_limit: { unit: second, requests_per_unit: 400 } }
",
    );
    assert_eq!(setting(&config, "mongo_cps", "database=users"), per(Unit::Second, 500));
    assert_eq!(setting(&config, "mongo_cps", "database=default"), per(Unit::Second, 400));
    assert_eq!(setting(&config, "mongo_cps", "database=other"), None);
    assert_eq!(setting(&config, "other", "database=users"), None);
    assert!(config.limit_for("mongo_cps", &[]).is_none());
    assert_eq!(config.domains().collect::<Vec<_>>(), ["mongo_cps"]);
}

#[test]
fn descriptors_nest_and_a_key_without_a_value_takes_all() {
    let config = config(
        "
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 5 }
  - key: to_number
    rate_limit: { unit: day, requests_per_unit: 100 }
",
    );
    let marketing = entries("message_type=marketing to_number=2061111111");
    let number = entries("to_number=2061111111");
    let limits = config.limits_for("messaging", &[&marketing, &number]);
    assert_eq!(limits.len(), 2);
    assert_eq!(Some(limits[0].setting), per(Unit::Day, 5));
    assert_eq!(Some(limits[1].setting), per(Unit::Day, 100));
    assert_eq!(limits[0].path, "messaging.message_type_marketing.to_number");
    assert_eq!(limits[0].key, [("message_type", "marketing".into()), ("to_number", "2061111111".into())]);
    assert_eq!(setting(&config, "messaging", "message_type=marketing"), None, "it has no limit itself");
}

#[test]
fn exact_before_pattern_before_key() {
    let config = config(
        "
domain: edge
descriptors:
  - { key: ip, rate_limit: { unit: second, requests_per_unit: 10 } }
  - { key: ip, value: 50.*, rate_limit: { unit: second, requests_per_unit: 20 } }
  - { key: ip, value: '*.5', rate_limit: { unit: second, requests_per_unit: 30 } }
  - { key: ip, value: 50.0.0.5, rate_limit: { unit: second, requests_per_unit: 0 } }
",
    );
    assert_eq!(setting(&config, "edge", "ip=50.0.0.5"), Some(Setting::Blocked));
    assert_eq!(setting(&config, "edge", "ip=50.1.1.5"), per(Unit::Second, 20), "the first pattern of the file");
    assert_eq!(setting(&config, "edge", "ip=51.0.0.5"), per(Unit::Second, 30));
    assert_eq!(setting(&config, "edge", "ip=51.0.0.6"), per(Unit::Second, 10));
}

#[test]
fn only_a_limit_at_the_depth_of_the_request_applies() {
    let shallow = config(
        "
domain: d
descriptors:
  - { key: key, value: value, rate_limit: { unit: second, requests_per_unit: 300 } }
",
    );
    assert_eq!(setting(&shallow, "d", "key=value subkey=subvalue"), None);
    let deep = config(
        "
domain: d
descriptors:
  - key: key
    value: value
    descriptors:
      - { key: subkey, rate_limit: { unit: second, requests_per_unit: 300 } }
",
    );
    assert_eq!(setting(&deep, "d", "key=value subkey=subvalue"), per(Unit::Second, 300));
    assert_eq!(setting(&deep, "d", "key=value"), None);
    assert_eq!(setting(&deep, "d", "key=other subkey=subvalue"), None);
    assert_eq!(setting(&deep, "d", "subkey=subvalue"), None);
}

/// The walk does not come back: the exact descriptor is taken although the one
/// of the key alone would lead further.
#[test]
fn the_walk_goes_one_way() {
    let config = config(
        "
domain: d
descriptors:
  - { key: a, value: x, rate_limit: { unit: second, requests_per_unit: 1 } }
  - key: a
    descriptors:
      - { key: b, rate_limit: { unit: second, requests_per_unit: 2 } }
",
    );
    assert_eq!(setting(&config, "d", "a=x b=1"), None);
    assert_eq!(setting(&config, "d", "a=y b=1"), per(Unit::Second, 2));
}

#[test]
fn unlimited_is_not_the_same_as_unknown() {
    let config = config(
        "
domain: internal
descriptors:
  - { key: ldap, rate_limit: { unlimited: true } }
  - { key: azure, rate_limit: { unit: minute, requests_per_unit: 100 } }
  - { key: friend }
",
    );
    assert_eq!(setting(&config, "internal", "ldap=x"), Some(Setting::Unlimited));
    assert_eq!(setting(&config, "internal", "azure=x"), per(Unit::Minute, 100));
    assert_eq!(setting(&config, "internal", "friend=x"), None);
}

#[test]
fn shadows_are_marked() {
    let config = config(
        "
domain: d
descriptors:
  - key: service
    descriptors:
      - { key: user, value: a, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 10 } }
      - { key: user, value: b, rate_limit: { unit: second, requests_per_unit: 20 } }
",
    );
    let shadow = |user| config.limit_for("d", &[("service", "auth"), ("user", user)]).expect("a limit").shadow;
    assert!(shadow("a") && !shadow("b"));
}

#[test]
fn a_limit_replaces_another_where_both_match() {
    let config = config(
        "
domain: d
descriptors:
  - key: key_1
    descriptors:
      - { key: user, rate_limit: { name: specific, unit: second, requests_per_unit: 5 } }
  - key: key_2
    descriptors:
      - { key: user, rate_limit: { replaces: [{ name: specific }], unit: second, requests_per_unit: 10 } }
",
    );
    let (one, two) = (entries("key_1=x user=u"), entries("key_2=x user=u"));
    let settings = |descriptors: &[&[(&'static str, &'static str)]]| -> Vec<Option<Setting>> {
        config.limits_for("d", descriptors).iter().map(|matched| Some(matched.setting)).collect()
    };
    assert_eq!(settings(&[&one]), [per(Unit::Second, 5)]);
    assert_eq!(settings(&[&two]), [per(Unit::Second, 10)]);
    assert_eq!(settings(&[&one, &two]), [per(Unit::Second, 10)]);
    assert_eq!(settings(&[&two, &one]), [per(Unit::Second, 10)]);
}

#[test]
fn values_of_a_pattern_share_a_limit_if_told_to() {
    let config = config(
        "
domain: d
descriptors:
  - { key: path, value: /a/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: path, value: /b/*, detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
",
    );
    let matched = |path| config.limit_for("d", &[("path", path)]).expect("a limit");
    assert_eq!(matched("/a/1").key, matched("/a/2").key);
    assert!(matched("/a/1").shares_threshold && !matched("/a/1").detailed_metric);
    assert_ne!(matched("/b/1").key, matched("/b/2").key);
    assert!(!matched("/b/1").shares_threshold && matched("/b/1").detailed_metric);
}

#[test]
fn units_are_those_of_the_original_in_any_case() {
    for (word, unit) in [
        ("second", Unit::Second),
        ("MINUTE", Unit::Minute),
        ("Hour", Unit::Hour),
        ("day", Unit::Day),
        ("week", Unit::Week),
        ("month", Unit::Month),
        ("YEAR", Unit::Year),
    ] {
        let text =
            format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {{ unit: {word}, requests_per_unit: 3 }} }}]");
        assert_eq!(setting(&config(&text), "d", "k=v"), per(unit, 3), "{word}");
    }
}

/// Go's reader takes a number for text where text is wanted, and files rely on it.
#[test]
fn values_are_text_as_it_is_written() {
    let config = config(
        "
domain: 1
descriptors:
  - { key: status, value: 404, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: status, value: 0500, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: status, value: yes, rate_limit: { unit: day, requests_per_unit: 3 }, metadata: { any: [thing] } }
  - { key: status, value: true, rate_limit: { unit: day, requests_per_unit: 4 }, value_to_metric: true }
  - { key: other, value: , rate_limit: { unit: day, requests_per_unit: 5 }, descriptors: }
",
    );
    for (value, count) in [("status=404", 1), ("status=0500", 2), ("status=yes", 3), ("status=true", 4), ("other=x", 5)]
    {
        assert_eq!(setting(&config, "1", value), per(Unit::Day, count), "{value}");
    }
}

#[test]
fn names_that_would_be_joined_alike_stay_apart() {
    let config = config(
        "
domain: d
descriptors:
  - { key: a_b, value: c, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, value: b_c, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    );
    assert_eq!(setting(&config, "d", "a_b=c"), per(Unit::Day, 1));
    assert_eq!(setting(&config, "d", "a=b_c"), per(Unit::Day, 2));
}

#[test]
fn a_domain_belongs_to_one_file() {
    let folder = std::env::temp_dir().join(format!("tidegate-envoy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let files = ["one.yaml", "two.yaml"].map(|name| folder.join(name));
    for file in &files {
        std::fs::write(file, "domain: edge\ndescriptors: [{ key: a }]\n").expect("a file");
    }
    let report = envoy::load(&files).map(drop).expect_err("a domain twice").to_string();
    assert!(envoy::load(&files[..1]).is_ok());
    std::fs::remove_dir_all(&folder).expect("it was there");
    assert!(report.contains("the domain \"edge\" is there twice"), "{report}");
    assert!(report.contains("one.yaml:1:9") && report.contains("two.yaml:1:9"), "{report}");
}

#[test]
fn the_paths_of_descriptors_have_a_bound() {
    let parse = |domain: usize, count: usize| {
        let descriptors: String = (0..count).map(|number| format!("- {{ key: k{number} }}\n")).collect();
        let text = format!("domain: {}\ndescriptors:\n{descriptors}", "d".repeat(domain));
        envoy::parse(&text, Path::new("envoy.yaml"))
    };
    assert!(parse(30_000, 1_000).is_ok() && parse(100, 100_000).is_ok());
    // They would take 20 GB.
    let report = parse(100_000, 100_000).map(drop).expect_err("too much");
    let [diagnostic] = report.diagnostics() else { panic!("{report}") };
    assert!(matches!(diagnostic.problem(), Problem::TooMuch { .. }), "{report}");
    assert!(diagnostic.place().is_some_and(|place| (600..700).contains(&place.line)), "{report}");
}
