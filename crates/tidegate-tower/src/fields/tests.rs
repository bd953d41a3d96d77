//! Every style, as an RFC 9651 parser reads it.

use sfv::{BareItem, ListEntry, Parser};
use tidegate::{Limiter, ManualClock, MemoryStore, Name, Policy, Rule};

use super::*;

/// The members of a field: the name and its parameters.
fn members(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, BareItem)>)> {
    let lines: Vec<&str> = headers.get_all(name).iter().map(|line| line.to_str().expect("text")).collect();
    let list: sfv::List = Parser::new(&lines.join(", ")).parse().unwrap_or_else(|error| panic!("{lines:?}: {error}"));
    let members = list.into_iter().map(|entry| match entry {
        ListEntry::Item(item) => {
            let name = item.bare_item.as_string().expect("a string").as_str().to_owned();
            let parameters = item.params.into_iter().map(|(key, value)| (key.as_str().to_owned(), value));
            (name, parameters.collect())
        }
        ListEntry::InnerList(_) => panic!("an inner list"),
    });
    members.collect()
}

fn integers(parameters: &[(String, BareItem)]) -> Vec<(&str, i64)> {
    let integer = |value: &BareItem| value.as_integer().map(i64::from);
    parameters.iter().filter_map(|(key, value)| Some((key.as_str(), integer(value)?))).collect()
}

/// What is told after so many requests, so long after the first.
fn told(words: &str, requests: usize, wait: Duration, style: HeaderStyle) -> HeaderMap {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(8).clock(clock.clone()).build().expect("valid settings");
    let limit: Limit = words.parse().expect(words);
    let limiter = Limiter::with_store(Policy::new().rule(Rule::new("api", limit)), store).expect("a valid policy");
    for _ in 1..requests {
        assert!(limiter.check("alice").is_ok());
    }
    clock.advance(wait);
    let decision = limiter.check("alice").expect("an answer");
    let status = QuotaStatus { decision: &decision, name: None, policies: policies(&limiter), partition: None };
    headers(status, &[style])
}

fn policies(limiter: &Limiter) -> Option<HeaderValue> {
    let mut line = HeaderLine::new();
    for limit in limiter.limits_of("alice").expect("valid").expect("not blocked") {
        write_policy(&mut line, &limit.meter, None);
    }
    line.to_header()
}

fn headers(status: QuotaStatus<'_>, styles: &[HeaderStyle]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    status.fields(styles).tell(&mut headers);
    headers
}

#[test]
fn quota_window_remaining_and_time_are_what_each_algorithm_means() {
    let second = Duration::from_secs(1);
    for (words, requests, wait, policy, state) in [
        // The bucket of 20 at 100 a minute is full after 12 s; the next unit comes in 0.6 s.
        ("100/min burst 20", 1, Duration::ZERO, [("q", 20), ("w", 12)], vec![("r", 19), ("t", 1)]),
        ("10/min burst 10", 4, Duration::ZERO, [("q", 10), ("w", 60)], vec![("r", 6), ("t", 6)]),
        ("10/min burst 10", 4, 2 * second, [("q", 10), ("w", 60)], vec![("r", 6), ("t", 4)]),
        ("10/min burst 10", 11, Duration::ZERO, [("q", 10), ("w", 60)], vec![("r", 0), ("t", 6)]),
        ("leaky 2/s queue 8", 3, Duration::ZERO, [("q", 8), ("w", 4)], vec![("r", 5), ("t", 1)]),
        ("fixed 10/min", 4, 18 * second, [("q", 10), ("w", 60)], vec![("r", 6), ("t", 42)]),
        ("fixed 10/min", 11, 18 * second, [("q", 10), ("w", 60)], vec![("r", 0), ("t", 42)]),
        ("sliding-log 10/min", 4, 18 * second, [("q", 10), ("w", 60)], vec![("r", 6), ("t", 60)]),
        ("1000/100ms", 1, Duration::ZERO, [("q", 1_000), ("w", 1)], vec![("r", 999), ("t", 1)]),
    ] {
        let headers = told(words, requests, wait, HeaderStyle::Draft10);
        let ((name, policies), (bound, states)) =
            (&members(&headers, "ratelimit-policy")[0], &members(&headers, "ratelimit")[0]);
        assert_eq!((name.as_str(), bound.as_str()), ("api", "api"), "{words}");
        assert_eq!(integers(policies), policy, "{words}");
        assert_eq!(integers(states), state, "{words} after {requests}");
    }
}

#[test]
fn numbers_are_capped_and_names_survive() {
    let name = Name::from("50 % \"off\" \\ né");
    let limiter = Limiter::new(Policy::new().rule(Rule::new(name, Limit::per_day(1_000_000_000_000))));
    let decision = limiter.check("alice").expect("an answer");
    let partition = Some(*b"\0\x01hashed");
    let status = QuotaStatus { decision: &decision, name: None, policies: policies(&limiter), partition };
    let headers = headers(status, &[HeaderStyle::Draft10]);
    let members = members(&headers, "ratelimit");
    assert_eq!(members[0].0, "50 % \"off\" \\ n%C3%A9");
    let partition = members[0].1.iter().find(|(key, _)| key == "pk").map(|(_, value)| value.clone());
    assert_eq!(partition, Some(BareItem::ByteSequence(b"\0\x01hashed".to_vec())));
}

#[test]
fn the_older_styles_are_as_they_were() {
    let told = |style| {
        let headers = told("fixed 10/min", 4, Duration::from_secs(18), style);
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
        lines.sort();
        lines
    };
    assert_eq!(told(HeaderStyle::Draft7), ["ratelimit-policy: 10;w=60", "ratelimit: limit=10, remaining=6, reset=42"]);
    assert_eq!(
        told(HeaderStyle::Draft6),
        ["ratelimit-limit: 10", "ratelimit-policy: 10;w=60", "ratelimit-remaining: 6", "ratelimit-reset: 42"]
    );
    assert_eq!(
        told(HeaderStyle::XRateLimit),
        ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 6", "x-ratelimit-reset: 42"]
    );
    let unix = || seconds(super::unix_time()) + 42;
    let earliest = unix();
    let reset = told(HeaderStyle::XRateLimitUnix).pop().expect("three lines");
    let reset: u64 = reset.strip_prefix("x-ratelimit-reset: ").expect("a reset").parse().expect("a number");
    assert!((earliest..=unix()).contains(&reset));
}

#[test]
fn the_tighter_limit_stays_and_all_policies_are_listed() {
    for (inner, outer, kept) in [(3, 5, "inner"), (5, 3, "outer")] {
        let mut headers = HeaderMap::new();
        for (name, count) in [("inner", inner), ("outer", outer)] {
            let limiter = Limiter::new(Policy::new().rule(Rule::new(name, Limit::per_minute(count))));
            let decision = limiter.check("alice").expect("an answer");
            let status = QuotaStatus { decision: &decision, name: None, policies: policies(&limiter), partition: None };
            status.fields(&[HeaderStyle::Draft10, HeaderStyle::XRateLimit]).tell(&mut headers);
        }
        let tightest = members(&headers, "ratelimit");
        assert_eq!((tightest.len(), tightest[0].0.as_str()), (1, kept));
        assert_eq!(headers["x-ratelimit-remaining"], "2");
        assert_eq!(headers["x-ratelimit-limit"], "3");
        let policies: Vec<String> = members(&headers, "ratelimit-policy").into_iter().map(|(name, _)| name).collect();
        assert_eq!(policies, ["inner", "outer"]);
    }
}

#[test]
fn of_two_styles_with_one_field_the_current_draft_writes_it() {
    let limiter = Limiter::new(Policy::new().rule(Rule::new("api", Limit::per_minute(3))));
    let decision = limiter.check("alice").expect("an answer");
    for styles in [[HeaderStyle::Draft10, HeaderStyle::Draft6], [HeaderStyle::Draft7, HeaderStyle::Draft10]] {
        let policies = policies(&limiter);
        let status = QuotaStatus { decision: &decision, name: None, policies, partition: None };
        let headers = headers(status, &styles);
        assert_eq!(members(&headers, "ratelimit")[0].0, "api");
        assert_eq!(members(&headers, "ratelimit-policy").len(), 1);
        assert_eq!(headers.contains_key("ratelimit-remaining"), styles.contains(&HeaderStyle::Draft6));
    }
}

#[test]
fn malformed_fields_are_ignored() {
    let read = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        report_of(&headers)
    };
    let report = |remaining, more_in| Some(Report { remaining, more_in });
    for (value, expected) in [
        (r#""default";r=50;t=30"#, report(50, Some(30))),
        (r#""a";r=5;t=30, "b";r=3;pk=:QXBwLTk5OQ==:"#, report(3, None)),
        (r#""a";r=0;t=1, "b";r=0;t=60, "c";r=0;t=7"#, report(0, Some(60))),
        (r#"  "a,;r=1" ; r=7 ;t=1 "#, report(7, Some(1))),
        (r#""a\"b";x="y,;\"z";r=9"#, report(9, None)),
        (r#""a";acme-soft;r=5;t=30"#, report(5, Some(30))),
        (r#""a";r=5;acme-soft, "b";r=3;t=7;x"#, report(3, Some(7))),
        (r#""a";r=5;acme-note=%"so, %22so%22; r=9""#, report(5, None)),
        (r#""a";r"#, None),
        (r#""a";r;t=5"#, None),
        (r#""a";r=5;"#, None),
        ("limit=10, remaining=5, reset=30", report(5, Some(30))),
        ("limit=10, remaining=5", report(5, None)),
        ("", None),
        ("default;r=50", None),
        (r#""a";r=-1"#, None),
        (r#""a";r=1.5"#, None),
        (r#""a";r=9999999999999999"#, None),
        (r#""a";t=5"#, None),
        (r#""a";r=5 trailing"#, None),
        (r#""a";r=5,"#, None),
        (r#""open;r=5"#, None),
    ] {
        assert_eq!(read("ratelimit", value), expected, "{value}");
    }
    assert_eq!(read("x-ratelimit-remaining", "4"), report(4, None));
    assert_eq!(read("ratelimit-remaining", "many"), None);
    let mut unix = HeaderMap::new();
    unix.insert("x-ratelimit-remaining", 0.into());
    let reset = super::unix_time().as_secs() + 30;
    unix.insert("x-ratelimit-reset", reset.into());
    let more_in = report_of(&unix).and_then(|report| report.more_in).expect("a time");
    assert!((reset.saturating_sub(super::unix_time().as_secs())..=30).contains(&more_in));
}

#[test]
fn a_unix_time_is_not_over_before_it_has_come() {
    let reset = seconds(super::unix_time()) + 30;
    let headers: HeaderMap =
        [(X_RATELIMIT_REMAINING, 0.into()), (X_RATELIMIT_RESET, reset.into())].into_iter().collect();
    let more_in = report_of(&headers).and_then(|report| report.more_in).expect("a time");
    let now = super::unix_time();
    assert!(now + Duration::from_secs(more_in) >= Duration::from_secs(reset), "{now:?} and {more_in} s");
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let read = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from_str(value).expect("a value"));
        retry_after_of(&headers, now).map(|wait| wait.as_secs())
    };
    assert_eq!(read("120"), Some(120));
    assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
    assert_eq!(read("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0), "past");
    for malformed in ["", "-1", "1.5", "soon", "+5"] {
        assert_eq!(read(malformed), None, "{malformed}");
    }
}

/// The fields after so many checks of one key, as a parser of structured
/// fields reads them: policy (name, q, w), limit (r, t), and Retry-After.
fn pairs(limit: Limit, checks: usize) -> (String, i64, i64, i64, i64, Option<String>) {
    let limiter = Limiter::new(Policy::new().limit("per \"user\" é", limit));
    let mut fields = Vec::new();
    for _ in 0..checks {
        let tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
        assert!(limiter.check_with_limits("alice", tell).is_ok());
    }
    let value = |name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone());
    let item = |name| {
        let list: sfv::List = Parser::new(&value(name).expect("valid")).parse().expect("valid");
        let [ListEntry::Item(item)] = &list[..] else { panic!("one member") };
        item.clone()
    };
    let number = |item: &sfv::Item, name: &str| {
        let key = sfv::KeyRef::from_str(name).expect("valid");
        let BareItem::Integer(number) = item.params[key] else { panic!("an integer") };
        i64::from(number)
    };
    let (policy, service) = (item("ratelimit-policy"), item("ratelimit"));
    assert_eq!(policy.bare_item, service.bare_item);
    let BareItem::String(name) = &policy.bare_item else { panic!("a string") };
    let (q, w) = (number(&policy, "q"), number(&policy, "w"));
    (name.as_str().to_owned(), q, w, number(&service, "r"), number(&service, "t"), value("retry-after"))
}

#[test]
fn fields_are_structured_and_rounded_against_the_caller() {
    let name = "per \"user\" %C3%A9".to_owned();
    // Twenty come back in 12 s; one in 0.6 s.
    let limit = Limit::per_minute(100).burst(20);
    assert_eq!(pairs(limit, 1), (name.clone(), 20, 12, 19, 1, None));
    assert_eq!(pairs(limit, 20), (name.clone(), 20, 12, 0, 1, None));
    // One in six seconds.
    let limit = Limit::per_minute(10);
    assert_eq!(pairs(limit, 4), (name.clone(), 10, 60, 6, 6, None));
    let limit = Limit::per_minute(100).burst(20);
    assert_eq!(pairs(limit, 21), (name.clone(), 20, 12, 0, 1, Some("1".into())));
    let limit = Limit::sliding_log(2, Duration::from_millis(90_500));
    let (.., w, _, t, retry_after) = pairs(limit, 3);
    assert_eq!((w, t, retry_after), (91, 91, Some("91".into())));
}

#[test]
fn numbers_are_within_what_structured_fields_hold() {
    assert_eq!(seconds(Duration::MAX), MAX_INTEGER);
    assert_eq!(seconds(Duration::from_nanos(1)), 1);
    assert_eq!(seconds(Duration::ZERO), 0);
}

#[test]
fn blocked_and_unlimited_callers_are_told_of_no_quota() {
    let policy = Policy::new()
        .limit("all", Limit::per_second(1))
        .deny("user", tidegate::Condition::Equals("mallory".into()))
        .allow("user", tidegate::Condition::Equals("root".into()));
    let limiter = Limiter::new(policy);
    for user in ["mallory", "root"] {
        let fields = rate_limit_fields(&limiter.check(tidegate::Request::user(user)).expect("valid"), &[]);
        assert!(fields.is_empty(), "{user}: {fields:?}");
    }
}

#[test]
fn a_limit_on_requests_in_flight_is_a_quota_of_concurrent_requests_without_a_window() {
    let headers = told("in-flight 10 for 60s", 1, Duration::ZERO, HeaderStyle::Draft10);
    assert_eq!(headers["ratelimit-policy"], r#""api";q=10;qu="concurrent-requests""#);
    let members = members(&headers, "ratelimit-policy");
    assert_eq!(members[0].1.len(), 2, "a structured field: {members:?}");
    for style in [HeaderStyle::Draft6, HeaderStyle::Draft7] {
        assert_eq!(told("in-flight 10 for 60s", 1, Duration::ZERO, style)["ratelimit-policy"], "10");
    }
}

#[test]
fn a_quota_of_another_unit_than_requests_names_it() {
    for (unit, told) in [
        ("requests", r#""api";q=10;w=60"#),
        ("tokens", r#""api";q=10;qu="tokens";w=60"#),
        ("bytes", r#""api";q=10;qu="content-bytes";w=60"#),
        ("\"a\\b\"\né", r#""api";q=10;qu="\"a\\b\"%0A%C3%A9";w=60"#),
    ] {
        let limiter = Limiter::new(Policy::new().rule(Rule::new("api", Limit::per_minute(10)).unit(unit)));
        let mut fields = Vec::new();
        let tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
        assert!(limiter.check_with_limits("alice", tell).is_ok());
        assert_eq!(fields[0], ("ratelimit-policy", told.to_owned()));
        let (name, value) = (HeaderName::from_static(fields[0].0), fields[0].1.parse().expect("a field"));
        assert_eq!(members(&HeaderMap::from_iter([(name, value)]), "ratelimit-policy").len(), 1, "{unit}");
    }
}

#[test]
fn a_limit_by_the_calendar_is_a_quota_whose_windows_differ_in_length() {
    let words = "10/month in Europe/Berlin";
    let headers = told(words, 1, Duration::ZERO, HeaderStyle::Draft10);
    assert_eq!(headers["ratelimit-policy"], r#""api";q=10"#);
    // From the epoch to the first of February in Berlin.
    assert_eq!(headers["ratelimit"], r#""api";r=9;t=2674800"#);
    for style in [HeaderStyle::Draft6, HeaderStyle::Draft7] {
        assert_eq!(told(words, 1, Duration::ZERO, style)["ratelimit-policy"], "10");
    }
}
