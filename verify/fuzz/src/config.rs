//! Policies, and the descriptor files of Envoy's rate limit service.

use std::path::Path;

use tidegate::explain::RuleFinding;
use tidegate::{CheckError, Limiter, ManualClock, MemoryStore, Policy, Request};
use tidegate_config::{Format, PolicyFile, Problem, Report, envoy, parse};

/// A policy in TOML.
pub fn policy_toml(input: &[u8]) {
    policy(input, Format::Toml);
}

/// A policy in YAML.
pub fn policy_yaml(input: &[u8]) {
    policy(input, Format::Yaml);
}

/// A policy that is read can be written and read again, and a limiter takes
/// it; one that is not gets a report that can be shown.
fn policy(input: &[u8], format: Format) {
    let Ok(text) = str::from_utf8(input) else { return };
    let name = Path::new("policy");
    match parse(text, format, name) {
        Ok(policy) => decide(policy),
        Err(report) => return shown(&report, text),
    }
    let read = |text: &str, format| PolicyFile::parse(text, format, name).unwrap_or_else(|report| panic!("{report}"));
    let file = read(text, format);
    let written = serde_json::to_string(&file).expect("what was read can be written");
    assert_eq!(read(&written, Format::Yaml), file, "{written}");
}

/// A report says something, of places that exist.
fn shown(report: &Report, text: &str) {
    assert!((1..=Report::MAX).contains(&report.diagnostics().len()));
    assert!(!report.to_string().is_empty());
    let lines = text.lines().count().max(1);
    for diagnostic in report.diagnostics() {
        assert!(!diagnostic.problem().to_string().is_empty());
        if let Some(place) = diagnostic.place() {
            // The end of a text may be a line of its own.
            assert!((1..=lines + 1).contains(&place.line) && place.column >= 1, "{place:?} of {lines} lines\n{report}");
        } else {
            let problem = diagnostic.problem();
            assert!(matches!(problem, Problem::Invalid { .. }), "{problem} has no place");
        }
    }
}

/// Requests of a few kinds are decided as it is explained that they would be.
fn decide(policy: Policy) {
    let store = MemoryStore::builder().max_keys(16).clock(ManualClock::default()).build().expect("valid settings");
    let limiter = Limiter::with_store(policy, store).expect("a policy that was read is one that a limiter takes");
    let requests = [
        Request::new("alice"),
        Request::user("alice").with("path", "/api/orders").with("method", "POST").with("ip", "192.0.2.1").cost(2),
        Request::new(()).with("tenant", "acme-eu").with("plan", "pro").with("agent", "a bot").with("ip", "2001:db8::1"),
    ];
    for request in requests {
        let explained = match limiter.explain(request.clone()) {
            Ok(explained) => explained,
            Err(error) => {
                let checked = limiter.check(request).expect_err("a check says the same");
                assert_eq!(checked.reason(), error.reason());
                continue;
            }
        };
        assert!(!explained.to_string().is_empty());
        let of_rule = |name| explained.rules.iter().find(|rule| rule.rule == name).map(|rule| &rule.finding);
        match limiter.check(request) {
            Ok(decision) => {
                assert_eq!(decision.is_allowed(), explained.decision.is_allowed(), "{explained}");
                // An explanation charges nothing, so the limit that has least left may be another one after the charge.
                let left = |say: &RuleFinding| match say {
                    RuleFinding::Answers { answer, cost, .. } => {
                        answer.remaining().map(|remaining| remaining.saturating_sub(*cost))
                    }
                    _ => None,
                };
                let enforced = explained.rules.iter().filter(|rule| !rule.shadow);
                let least = enforced.filter_map(|rule| left(&rule.finding)).min();
                let binds = of_rule(decision.rule().clone()).and_then(left);
                let is_same = decision.rule() == explained.decision.rule();
                assert!(is_same || decision.is_allowed() && binds == least, "{} binds: {explained}", decision.rule());
            }
            Err(CheckError::Unsatisfiable { rule, .. }) => {
                assert!(matches!(of_rule(rule), Some(RuleFinding::Unsatisfiable { .. })), "{explained}");
            }
            Err(CheckError::MissingAttribute { rule, .. }) => {
                assert!(matches!(of_rule(rule), Some(RuleFinding::MissingAttribute { .. })), "{explained}");
            }
            Err(error) => panic!("{error}: {explained}"),
        }
    }
}

/// A descriptor file that is read answers for any descriptor; one that is not
/// gets a report that can be shown.
pub fn envoy_yaml(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let config = match envoy::parse(text, Path::new("envoy.yaml")) {
        Ok(config) => config,
        Err(report) => return shown(&report, text),
    };
    let entries = [("remote_address", "50.0.0.5"), ("path", "/foo/bar"), ("k", "v")];
    for domain in config.domains() {
        let limits = config.limits_for(domain, &[&entries, &entries[..1], &entries[1..], &[]]);
        assert!(limits.iter().all(|limit| limit.path.starts_with(domain)), "{limits:?}");
        for length in 0..=entries.len() {
            let found = config.limit_for(domain, &entries[..length]);
            assert!(found.is_none_or(|found| found.key.len() == length));
        }
    }
    assert!(config.limit_for("unknown domain\0", &entries).is_none());
}
