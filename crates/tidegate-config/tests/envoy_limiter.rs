//! Descriptor files that decide: in memory, on Redis, and when the store is away.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, FailureMode, ManualClock, MemoryStore, Micros, Setting, SystemClock};
use tidegate_config::envoy::{self, Descriptor, EnvoyConfig, EnvoyDecision, EnvoyLimiter, Hits, Metadata, Unit};
use tidegate_redis::{RedisStore, Servers};
use tidegate_testkit::servers::Server;
use tidegate_testkit::{MeddlingClock, Random, block_on};

const FILE: &str = "
domain: edge
descriptors:
  - { key: ip, rate_limit: { unit: minute, requests_per_unit: 3 }, metadata: { tier: free, weight: 0.5, tags: [a, 1] } }
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 5, name: per_user } }
  - { key: blocked, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: watched, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: vip, rate_limit: { unit: minute, requests_per_unit: 100, replaces: [{ name: per_user }] } }
  - { key: path, value: /a/*, share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: path, value: /b/*, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: model, value: small, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: model, value: large, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
";

fn config() -> EnvoyConfig {
    envoy::parse(FILE, Path::new("envoy.yaml")).unwrap_or_else(|report| panic!("{report}"))
}

fn in_memory(clock: &ManualClock) -> EnvoyLimiter {
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    EnvoyLimiter::new(config(), store)
}

/// Asks with descriptors in short: `ip=1`, `ip=1 user=2`, with `+3` to be
/// charged three, `?` to peek, `-2` for a refund of two.
fn ask<S: Store>(limiter: &EnvoyLimiter<S>, descriptors: &[&str]) -> Result<EnvoyDecision, StoreError> {
    ask_with(limiter, descriptors, None)
}

fn ask_with<S: Store>(
    limiter: &EnvoyLimiter<S>,
    descriptors: &[&str],
    limit: Option<(Unit, u32)>,
) -> Result<EnvoyDecision, StoreError> {
    let parsed: Vec<(Vec<(&str, &str)>, Hits)> = descriptors.iter().map(|text| parse(text)).collect();
    let asked: Vec<Descriptor<'_>> = parsed
        .iter()
        .map(|(entries, hits)| {
            let descriptor = Descriptor::new(entries).hits(*hits);
            match limit {
                Some((unit, requests)) => descriptor.limit(unit, requests),
                None => descriptor,
            }
        })
        .collect();
    block_on(limiter.decide_async("edge", &asked)).map(|answer| answer.expect("there is a file of the domain"))
}

fn parse(text: &str) -> (Vec<(&str, &str)>, Hits) {
    let (mut entries, mut hits) = (Vec::new(), Hits::Charge(1));
    for word in text.split(' ') {
        if word == "?" {
            hits = Hits::Peek;
        } else if let Some(number) = word.strip_prefix('+') {
            hits = Hits::Charge(number.parse().expect("a number"));
        } else if let Some(number) = word.strip_prefix('-') {
            hits = Hits::Refund(number.parse().expect("a number"));
        } else if let Some(number) = word.strip_prefix('!') {
            hits = Hits::Report(number.parse().expect("a number"));
        } else {
            entries.push(word.split_once('=').expect("key=value"));
        }
    }
    (entries, hits)
}

/// Whether the request passes, and what is left to each descriptor.
fn left<S: Store>(limiter: &EnvoyLimiter<S>, descriptors: &[&str]) -> (bool, Vec<u64>) {
    let answer = ask(limiter, descriptors).expect("an answer");
    (answer.allowed, answer.statuses.iter().map(|status| status.remaining).collect())
}

#[test]
fn a_refused_request_costs_no_descriptor_anything() {
    let clock = ManualClock::default();
    let limiter = in_memory(&clock);
    assert_eq!(left(&limiter, &["ip=1", "user=a"]), (true, vec![2, 4]));
    assert_eq!(left(&limiter, &["ip=1 +2", "user=a"]), (true, vec![0, 3]));
    assert_eq!(left(&limiter, &["ip=1", "user=a"]), (false, vec![0, 3]));
    assert_eq!(left(&limiter, &["user=a", "ip=1"]), (false, vec![3, 0]), "in any order");
    let refused = ask(&limiter, &["ip=1", "user=a"]).expect("an answer");
    let [ip, user] = &refused.statuses[..] else { panic!("two statuses") };
    assert_eq!((ip.allowed, ip.retry_after), (false, Some(Duration::from_secs(60))));
    assert_eq!((user.allowed, user.retry_after), (true, None));
    assert_eq!((ip.rule.clone(), user.rule.clone()), (Some("edge.ip".into()), Some("edge.user".into())));
    assert_eq!((ip.name.as_deref(), user.name.as_deref()), (None, Some("per_user")));
    clock.advance(Duration::from_secs(60));
    assert_eq!(left(&limiter, &["ip=1", "user=a"]), (true, vec![2, 4]));
}

#[test]
fn an_unknown_descriptor_is_unlimited() {
    let limiter = in_memory(&ManualClock::default());
    for _ in 0..10 {
        let answer = ask(&limiter, &["unknown=x", "ip=1 user=2", "free=x"]).expect("an answer");
        assert!(answer.allowed && answer.statuses.iter().all(|status| status.allowed));
        let settings: Vec<_> = answer.statuses.iter().map(|status| status.setting).collect();
        assert_eq!(settings, [None, None, Some(Setting::Unlimited)]);
    }
    let elsewhere = block_on(limiter.decide_async("elsewhere", &[Descriptor::new(&[("ip", "1")])]));
    assert!(elsewhere.is_ok_and(|answer| answer.is_none()), "no file is about the domain");
}

#[test]
fn a_peek_charges_nothing_and_can_refuse_the_request() {
    let limiter = in_memory(&ManualClock::default());
    assert_eq!(left(&limiter, &["ip=1 ?"]), (true, vec![3]));
    assert_eq!(left(&limiter, &["ip=1 +3"]), (true, vec![0]));
    assert_eq!(left(&limiter, &["ip=1 ?"]), (false, vec![0]), "not one more would pass");
    assert_eq!(left(&limiter, &["ip=1 ?", "user=a"]), (false, vec![0, 5]));
    assert_eq!(left(&limiter, &["user=a"]), (true, vec![4]), "the user was not charged");
}

#[test]
fn refunds_give_back_and_never_refuse() {
    let limiter = in_memory(&ManualClock::default());
    assert_eq!(left(&limiter, &["ip=1 +3"]), (true, vec![0]));
    assert_eq!(left(&limiter, &["ip=1 -2"]), (true, vec![2]));
    assert_eq!(left(&limiter, &["ip=1 -1000"]), (true, vec![3]), "no more than there is");
    assert_eq!(left(&limiter, &["ip=1 +3"]), (true, vec![0]));
    let (allowed, _) = left(&limiter, &["ip=1 -1", "user=a +6"]);
    assert!(!allowed, "the user refuses");
    assert_eq!(left(&limiter, &["ip=1 ?"]), (false, vec![0]), "and nothing was given back");
}

#[test]
fn more_than_a_limit_can_hold_is_refused_without_a_time_to_wait() {
    let limiter = in_memory(&ManualClock::default());
    let answer = ask(&limiter, &["ip=1 +4", "user=a"]).expect("an answer");
    assert!(!answer.allowed);
    assert_eq!((answer.statuses[0].allowed, answer.statuses[0].retry_after), (false, None));
    assert_eq!(left(&limiter, &["ip=1 ?", "user=a ?"]), (true, vec![3, 5]), "nothing was charged");
    let blocked = ask(&limiter, &["blocked=x", "user=a"]).expect("an answer");
    assert!(!blocked.allowed && !blocked.statuses[0].allowed && blocked.statuses[0].retry_after.is_none());
    assert_eq!(left(&limiter, &["user=a ?"]), (true, vec![5]));
    assert!(!ask(&limiter, &[&format!("ip=1 +{}", u64::MAX)]).expect("an answer").allowed);
    assert!(ask(&limiter, &["blocked=x -1"]).expect("an answer").allowed, "there is nothing to give back");
}

#[test]
fn the_same_descriptor_twice_is_charged_twice_or_not_at_all() {
    let limiter = in_memory(&ManualClock::default());
    assert_eq!(left(&limiter, &["ip=1", "ip=1"]), (true, vec![1, 1]));
    assert_eq!(left(&limiter, &["ip=1", "ip=1"]), (false, vec![1, 1]));
    assert_eq!(left(&limiter, &["ip=1 +2", "ip=1 -1"]), (true, vec![0, 0]));
    assert_eq!(left(&limiter, &["ip=1 +1", "ip=1 -3"]), (true, vec![2, 2]));
    assert_eq!(left(&limiter, &["ip=1 ?", "ip=1", "ip=1 ?"]), (true, vec![2, 1, 2]), "who asks is asked first");
    assert_eq!(left(&limiter, &["ip=1 +2", "ip=1 +2"]), (false, vec![1, 1]), "together more than the limit");
}

#[test]
fn a_request_may_bring_its_own_limit() {
    let limiter = in_memory(&ManualClock::default());
    let ten = (Unit::Hour, 10);
    let own = |descriptor: &str, limit| ask_with(&limiter, &[descriptor], Some(limit)).expect("an answer");
    assert_eq!(own("ip=1 +4", ten).statuses[0].remaining, 6);
    assert_eq!(own("unknown=key +4", ten).statuses[0].remaining, 6, "for what no file knows, too");
    assert_eq!(own("ip=2", ten).statuses[0].remaining, 9, "each has its own");
    assert_eq!(left(&limiter, &["ip=1 ?"]), (true, vec![3]), "the file's limit, of a minute, is untouched");
    assert!(!own("ip=1", (Unit::Hour, 0)).allowed);
    let watched = ask_with(&limiter, &["watched=x +11"], Some(ten)).expect("an answer");
    assert!(!watched.allowed, "a shadow of the file is none then");
}

/// As in the reference service, where the number is no part of the counter's key.
#[test]
fn a_limit_of_a_request_counts_with_that_of_the_file_if_they_have_one_unit() {
    let limiter = in_memory(&ManualClock::default());
    let own = |descriptor: &str, requests| {
        let answer = ask_with(&limiter, &[descriptor], Some((Unit::Minute, requests))).expect("an answer");
        (answer.allowed, answer.statuses[0].remaining)
    };
    assert_eq!(left(&limiter, &["user=a +3"]), (true, vec![2]));
    assert_eq!(own("user=a", 4), (true, 0), "three of four were used");
    assert_eq!(own("user=a", 4), (false, 0));
    assert_eq!(own("user=a +96", 5_000), (true, 4_900), "a wider one counts on");
    assert_eq!(left(&limiter, &["user=a"]), (false, vec![0]), "and the file's limit has none left");
    assert_eq!(own("user=a -95", 5_000), (true, 4_995));
    assert_eq!(left(&limiter, &["user=a ?"]), (false, vec![0]), "five of five are used");
    // A pattern that shares its threshold is another counter than the value.
    assert_eq!(left(&limiter, &["path=/a/1"]), (true, vec![1]));
    assert_eq!(own("path=/a/1", 2), (true, 1));
    assert_eq!(left(&limiter, &["path=/a/2"]), (true, vec![0]));
}

#[test]
fn one_request_may_have_several_limits_of_one_counter() {
    let limiter = in_memory(&ManualClock::default());
    let both = |first: &str, second: &str| {
        let parsed = [parse(first), parse(second)];
        let [file, own] = parsed.each_ref().map(|(entries, hits)| Descriptor::new(entries).hits(*hits));
        let answer = block_on(limiter.decide_async("edge", &[file, own.limit(Unit::Minute, 4)])).expect("an answer");
        let answer = answer.expect("there is a file of the domain");
        (answer.allowed, [answer.statuses[0].remaining, answer.statuses[1].remaining])
    };
    assert_eq!(both("user=a", "user=a"), (true, [3, 2]), "five and four, of which two are used");
    assert_eq!(both("user=a", "user=a +2"), (false, [3, 2]), "one too many for the narrower");
    assert_eq!(both("user=a ?", "user=a ?"), (true, [3, 2]));
    assert_eq!(both("user=a", "user=a -2"), (true, [4, 3]));
    // Beside a quota and a shadow.
    assert_eq!(both("model=large", "model=large"), (true, [0, 2]));
    assert_eq!(both("model=large", "model=large"), (false, [0, 2]));
    assert_eq!(both("watched=x", "watched=x +3"), (true, [0, 1]));
}

#[test]
fn a_limit_has_its_unit_and_the_rest_of_it() {
    let clock = ManualClock::default();
    // 20.25 seconds into a minute.
    clock.set(Micros::new(1_700_000_000_250_000));
    let limiter = in_memory(&clock);
    let shown = |descriptor: &str, limit| {
        let answer = ask_with(&limiter, &[descriptor], limit).expect("an answer");
        (answer.statuses[0].unit, answer.statuses[0].reset_after.as_millis())
    };
    for descriptor in ["ip=1 ?", "ip=1", "ip=1 +3", "ip=1 +4", "ip=1 -9", "watched=x"] {
        assert_eq!(shown(descriptor, None), (Some(Unit::Minute), 39_750), "{descriptor}");
    }
    assert_eq!(shown("blocked=x", None), (Some(Unit::Second), 750));
    assert_eq!(shown("ip=1", Some((Unit::Minute, 0))), (Some(Unit::Minute), 39_750));
    assert_eq!(shown("ip=1 ?", Some((Unit::Hour, 7))), (Some(Unit::Hour), 2_799_750));
    for descriptor in ["free=x", "unknown=x"] {
        assert_eq!(shown(descriptor, None), (None, 0), "{descriptor}");
    }
}

#[test]
fn shadow_rules_count_and_refuse_nothing() {
    let limiter = in_memory(&ManualClock::default());
    let answer = ask(&limiter, &["watched=x", "ip=1"]).expect("an answer");
    assert_eq!((answer.allowed, answer.statuses[0].shadow_refuses, answer.statuses[0].remaining), (true, false, 0));
    let answer = ask(&limiter, &["watched=x", "ip=1"]).expect("an answer");
    assert_eq!((answer.allowed, answer.statuses[0].allowed, answer.statuses[0].shadow_refuses), (true, true, true));
    assert!(!ask(&limiter, &["watched=y", "ip=1 +2"]).expect("an answer").allowed);
    assert_eq!(left(&limiter, &["watched=y ?"]), (true, vec![1]), "a refused request is not counted");
}

#[test]
fn quotas_refuse_only_together() {
    let limiter = in_memory(&ManualClock::default());
    assert_eq!(left(&limiter, &["model=small", "model=large"]), (true, vec![0, 1]));
    let answer = ask(&limiter, &["model=small", "model=large"]).expect("an answer");
    assert!(answer.allowed, "one of them is left");
    assert_eq!(answer.statuses.iter().map(|status| status.allowed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(left(&limiter, &["model=small", "model=large"]), (false, vec![0, 0]));
    assert_eq!(left(&limiter, &["model=small"]), (false, vec![0]), "alone, it is an ordinary limit");
    assert_eq!(left(&limiter, &["model=large -1", "model=small"]), (true, vec![1, 0]));
    assert_eq!(left(&limiter, &["model=large", "ip=1 +4"]), (false, vec![1, 3]), "others refuse as ever");
}

#[test]
fn replaced_limits_are_not_asked() {
    let limiter = in_memory(&ManualClock::default());
    for _ in 0..10 {
        assert!(ask(&limiter, &["user=a", "vip=a"]).expect("an answer").allowed);
    }
    assert_eq!(left(&limiter, &["user=a"]), (true, vec![4]));
}

#[test]
fn a_shared_threshold_is_one_limit_for_all_values() {
    let limiter = in_memory(&ManualClock::default());
    assert_eq!(left(&limiter, &["path=/a/1"]), (true, vec![1]));
    assert_eq!(left(&limiter, &["path=/a/2"]), (true, vec![0]));
    assert_eq!(left(&limiter, &["path=/b/1"]), (true, vec![1]));
    assert_eq!(left(&limiter, &["path=/b/2"]), (true, vec![1]));
    assert_eq!(left(&limiter, &["path=/a/3", "path=/a/4"]), (false, vec![0, 0]));
}

#[test]
fn metadata_is_what_the_file_says() {
    let limiter = in_memory(&ManualClock::default());
    let answer = ask(&limiter, &["ip=1", "user=a"]).expect("an answer");
    let text = |text: &str| Metadata::Text(text.into());
    let expected = Metadata::Table(vec![
        ("tier".into(), text("free")),
        ("weight".into(), Metadata::Number(0.5)),
        ("tags".into(), Metadata::List(vec![text("a"), Metadata::Number(1.0)])),
    ]);
    assert_eq!(answer.statuses[0].metadata.as_deref(), Some(&expected));
    assert_eq!(answer.statuses[1].metadata, None);
}

/// A store that is always away.
struct Away(ManualClock);

impl Store for Away {
    async fn decide(&self, _: &[Check<'_>], _: &mut [Verdict]) -> Result<Micros, StoreError> {
        Err(StoreError::Failed { source: "gone".into() })
    }

    fn clock(&self) -> &dyn Clock {
        &self.0
    }
}

#[test]
fn without_a_store_the_failure_mode_answers() {
    let away = || EnvoyLimiter::new(config(), Away(ManualClock::default()));
    assert!(ask(&away(), &["ip=1"]).is_err(), "without a mode there is no answer");
    assert!(ask(&away(), &["unknown=1"]).expect("no store is asked").allowed);
    let limiter = away();
    let shadow = ask(&limiter, &["watched=1"]).expect("a failed shadow rule changes nothing");
    assert!(shadow.allowed && !shadow.statuses[0].shadow_refuses);
    for (mode, allowed) in [(FailureMode::Open, true), (FailureMode::Closed, false)] {
        let limiter = away().on_failure(mode);
        for _ in 0..10 {
            let answer = ask(&limiter, &["ip=1", "user=a"]).expect("the fallback answers");
            assert_eq!((answer.allowed, answer.statuses[0].degraded), (allowed, true), "{mode:?}");
        }
        assert!(ask(&limiter, &["ip=1 -1"]).is_err(), "a refund has no fallback");
        let both = ask(&limiter, &["ip=1 -1", "user=a"]).expect("the fallback answers for the user");
        assert_eq!((both.allowed, both.statuses[0].allowed), (allowed, true), "{mode:?}");
    }
    let limiter = away().on_failure(FailureMode::local(2));
    let admitted = (0..10).filter(|_| ask(&limiter, &["user=a"]).is_ok_and(|answer| answer.allowed)).count();
    assert_eq!(admitted, 2, "half of five");
    let beyond = ask(&limiter, &["user=b +3", "ip=1"]).expect("the fallback answers");
    assert_eq!((beyond.allowed, beyond.statuses[0].allowed, beyond.statuses[1].allowed), (false, false, true));
    assert!(ask(&limiter, &["ip=1"]).expect("the fallback answers").allowed, "and nothing was charged");
    let both = |descriptor| ask(&limiter, &["user=c -5", descriptor]).expect("the fallback answers").allowed;
    assert_eq!([both("user=d +2"), both("user=d")], [true, false], "a refund refuses nothing, and gives nothing back");
}

#[test]
fn use_of_a_local_share_survives_a_unit_change() {
    let by = |unit: &str| {
        let file = format!(
            "{{ domain: edge, descriptors: [{{ key: user, rate_limit: {{ unit: {unit}, requests_per_unit: 4 }} }}] }}"
        );
        envoy::parse(&file, "edge.yaml".as_ref()).expect("a valid file")
    };
    let store = Away(ManualClock::at(SystemClock::new().now()));
    let limiter = EnvoyLimiter::new(by("day"), store).on_failure(FailureMode::local(2));
    let admitted = || (0..10).filter(|_| ask(&limiter, &["user=a"]).is_ok_and(|answer| answer.allowed)).count();
    assert_eq!(admitted(), 2, "half of four");
    limiter.set_config(by("month"));
    assert_eq!(admitted(), 0, "what was used while the store was away counts on");
}

#[test]
fn hits_that_are_reported_are_never_refused_and_make_debt() {
    let limiter = in_memory(&ManualClock::default());
    assert_eq!(left(&limiter, &["ip=1 +2", "user=a"]), (true, vec![1, 4]));
    assert_eq!(left(&limiter, &["ip=1 !3", "user=a !1"]), (true, vec![0, 3]));
    let refused = ask(&limiter, &["ip=1"]).expect("an answer");
    assert_eq!((refused.allowed, refused.statuses[0].retry_after), (false, Some(Duration::from_secs(60))));
    // Two are owed: only a refund of more than that leaves anything.
    assert_eq!(left(&limiter, &["ip=1 -2"]), (true, vec![0]));
    assert_eq!(left(&limiter, &["ip=1 -1"]), (true, vec![1]));
    assert_eq!(left(&limiter, &["ip=2 !1000"]), (true, vec![0]), "however much it is");
    // What is reported beside a charge is charged with it, all or nothing.
    assert_eq!(left(&limiter, &["ip=3 !2", "ip=3 +2"]), (false, vec![3, 3]));
    assert_eq!(left(&limiter, &["ip=3 !1", "ip=3 +2"]), (true, vec![0, 0]));
    // Beside a descriptor that refuses, nothing is reported.
    assert_eq!(left(&limiter, &["ip=1 +3", "user=b !2"]), (false, vec![1, 5]));
}

#[test]
fn use_survives_a_change_of_the_files() {
    let clock = ManualClock::default();
    clock.set(Micros::new(1_700_000_000_000_000));
    let limiter = in_memory(&clock);
    assert_eq!(left(&limiter, &["ip=1 +2", "user=a"]), (true, vec![1, 4]));
    let with = |from: &str, to: &str| {
        let text = FILE.replace(from, to);
        limiter.set_config(envoy::parse(&text, Path::new("envoy.yaml")).expect("a valid file"));
    };
    with("requests_per_unit: 3 }, metadata", "requests_per_unit: 10 }, metadata");
    assert_eq!(left(&limiter, &["ip=1 ?", "user=a ?"]), (true, vec![8, 4]), "raising mints nothing");
    with("requests_per_unit: 3 }, metadata", "requests_per_unit: 2 }, metadata");
    assert_eq!(left(&limiter, &["ip=1 ?", "user=a ?"]), (false, vec![0, 4]), "lowering holds at once");
    with("domain: edge", "domain: edge");
    assert_eq!(left(&limiter, &["ip=1 ?"]), (true, vec![1]), "back again");
    for count in 20..120 {
        with("requests_per_unit: 3 }, metadata", &format!("requests_per_unit: {count} }}, metadata"));
    }
    assert_eq!(left(&limiter, &["ip=1 ?", "user=a ?"]), (true, vec![117, 4]), "however often it changes");
    for unit in ["hour", "day", "week", "month", "year", "second"] {
        with("unit: minute", &format!("unit: {unit}"));
        assert_eq!(left(&limiter, &["ip=1 ?", "user=a ?"]), (true, vec![1, 4]), "per {unit}");
    }
    assert_eq!(left(&limiter, &["ip=1", "user=a"]), (true, vec![0, 3]));
    with("unit: minute", "unit: hour");
    assert_eq!(left(&limiter, &["ip=1 ?", "user=a ?"]), (false, vec![0, 3]), "also what others admitted");
}

#[test]
fn use_survives_a_time_without_a_limit() {
    let clock = ManualClock::default();
    clock.set(Micros::new(1_700_000_000_000_000));
    let with = |rate_limit: &str| {
        let text = format!("domain: edge\ndescriptors:\n  - {{ key: user{rate_limit} }}\n");
        envoy::parse(&text, Path::new("envoy.yaml")).unwrap_or_else(|report| panic!("{report}"))
    };
    let limit = |count: u32| format!(", rate_limit: {{ unit: hour, requests_per_unit: {count} }}");
    for between in [limit(0).as_str(), "", ", rate_limit: { unlimited: true }"] {
        let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let limiter = EnvoyLimiter::new(with(&limit(10)), store);
        assert_eq!(left(&limiter, &["user=a +8"]), (true, vec![2]));
        limiter.set_config(with(&limit(12)));
        for _ in 0..2 {
            limiter.set_config(with(between));
        }
        limiter.set_config(with(&limit(20)));
        assert_eq!(left(&limiter, &["user=a ?"]), (true, vec![12]), "after {between:?}");
        limiter.set_config(with(between));
        clock.advance(Duration::from_secs(3 * 3_600));
        limiter.set_config(with(&limit(30)));
        assert_eq!(left(&limiter, &["user=a"]), (true, vec![29]), "and is forgotten in time");
    }
}

#[test]
fn descriptors_of_the_same_path_are_told_apart_when_the_files_change() {
    let with = |first: u32, second: u32, third: u32| {
        let text = format!(
            "
domain: edge
descriptors:
  - {{ key: a_b, value: c, rate_limit: {{ unit: hour, requests_per_unit: {first} }} }}
  - {{ key: a, value: b_c, rate_limit: {{ unit: hour, requests_per_unit: {second} }} }}
  - key: a
    value: b
    descriptors: [{{ key: x, rate_limit: {{ unit: hour, requests_per_unit: {third} }} }}]
  - {{ key: a, value: b.x, rate_limit: {{ unit: hour, requests_per_unit: {third} }} }}
"
        );
        envoy::parse(&text, Path::new("envoy.yaml")).unwrap_or_else(|report| panic!("{report}"))
    };
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    let limiter = EnvoyLimiter::new(with(10, 20, 30), store);
    let asked = ["a_b=c", "a=b_c", "a=b x=1", "a=b.x"];
    let all = |hits: &str| left(&limiter, &asked.map(|entries| format!("{entries} {hits}")).each_ref().map(|it| &**it));
    assert_eq!(all("+4"), (true, vec![6, 16, 26, 26]));
    for more in 1..6 {
        limiter.set_config(with(10 + more, 20 + more, 30 + more));
        let more = u64::from(more);
        assert_eq!(all("?"), (true, vec![6 + more, 16 + more, 26 + more, 26 + more]));
    }
}

#[test]
fn on_redis_as_in_memory() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let server = Server::start();
    let clock = ManualClock::default();
    let servers = Servers::parse(&server.url()).expect("a valid URL");
    let store = RedisStore::builder(servers).deadline(Duration::from_secs(10)).clock(clock.clone());
    let redis = EnvoyLimiter::new(config(), store.build().expect("valid settings"));
    let memory = in_memory(&clock);
    let mut random = Random::new(5);
    let mut now = 1_700_000_000_000_000;
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..2_000 {
        now += random.within(0..=4_000_000);
        clock.set(Micros::new(now));
        if step % 250 == 249 {
            let count = random.within(1..=6);
            let text = FILE.replace("requests_per_unit: 5", &format!("requests_per_unit: {count}"));
            let changed = envoy::parse(&text, Path::new("envoy.yaml")).expect("a valid file");
            redis.set_config(changed.clone());
            memory.set_config(changed);
        }
        let descriptors: Vec<String> = (0..random.within(1..=3))
            .map(|_| {
                let entry = random.choose(&[
                    "ip=1",
                    "ip=2",
                    "user=a",
                    "user=b",
                    "vip=a",
                    "watched=x",
                    "path=/a/1",
                    "path=/a/2",
                    "path=/b/1",
                    "model=small",
                    "model=large",
                    "blocked=x",
                    "free=x",
                    "unknown=x",
                ]);
                let hits = random.choose(&["+1", "+1", "+1", "+2", "?", "-1", "+0"]);
                format!("{entry} {hits}")
            })
            .collect();
        let descriptors: Vec<&str> = descriptors.iter().map(String::as_str).collect();
        let unit = random.choose(&[Unit::Minute, Unit::Minute, Unit::Hour]);
        let limit = random.percent(20).then(|| (unit, random.choose(&[0, 2, 4, 6, 5_000])));
        let there = ask_with(&redis, &descriptors, limit).expect("an answer");
        let here = ask_with(&memory, &descriptors, limit).expect("an answer");
        assert_eq!(there.statuses, here.statuses, "step {step}: {descriptors:?}");
        assert_eq!(there.allowed, here.allowed, "step {step}: {descriptors:?}");
        if here.allowed { allowed += 1 } else { refused += 1 }
    }
    assert!(allowed > 400 && refused > 400, "{allowed} allowed, {refused} refused");
}

#[test]
fn the_file_of_the_document_is_one() {
    let document = include_str!("../../../docs/book/src/reference/envoy.md");
    let mut blocks = document.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().expect("a block"));
    let file = blocks.find(|block| block.starts_with("domain:")).expect("a descriptor file");
    let config = envoy::parse(file, Path::new("envoy.md")).unwrap_or_else(|report| panic!("{report}"));
    let orders = [("user", "alice"), ("path", "/orders/7")];
    assert_eq!(config.limit_for("edge", &orders).map(|matched| matched.setting), Some(Unit::Hour.setting(1000)));
}

#[test]
fn a_reload_during_a_check_admits_nothing_extra() {
    let with = |unit: &str| {
        let limit = |key: &str, count: u32| {
            format!("  - {{ key: {key}, rate_limit: {{ unit: {unit}, requests_per_unit: {count} }} }}\n")
        };
        let text = format!("domain: edge\ndescriptors:\n{}{}", limit("user", 1), limit("team", 5));
        envoy::parse(&text, Path::new("envoy.yaml")).unwrap_or_else(|report| panic!("{report}"))
    };
    let clock = MeddlingClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    let limiter = Arc::new(EnvoyLimiter::new(with("hour"), store));
    let (changed, other) = (Arc::clone(&limiter), with("day"));
    clock.first(move || {
        changed.set_config(other);
        assert_eq!(left(&changed, &["user=a", "team=t"]), (true, vec![0, 4]));
    });
    assert_eq!(left(&limiter, &["user=a", "team=t"]), (false, vec![0, 4]), "one has passed already");
    assert_eq!(left(&limiter, &["team=t ?"]), (true, vec![4]), "and nothing else was charged");
    // What was given back is not given back again.
    let (changed, other) = (Arc::clone(&limiter), with("week"));
    clock.first(move || changed.set_config(other));
    assert_eq!(left(&limiter, &["team=t +3"]), (true, vec![1]));
}
