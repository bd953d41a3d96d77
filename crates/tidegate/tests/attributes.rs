//! Attributes: what becomes of a request that lacks one, and addresses in any spelling.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use tidegate::explain::RuleFinding;
use tidegate::{
    CheckError, Condition, ConfigError, Event, KeyAttribute, Limit, Limiter, ManualClock, MemoryStore, Missing, Name,
    Observer, Policy, Request, Rule, Setting,
};
use tidegate_testkit::Random;

const ONE: Limit = Limit::per_hour(1);

fn limiter(policy: impl Into<Policy>) -> Limiter {
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn equals(value: &str) -> Condition {
    Condition::Equals(value.into())
}

fn lacks(error: &CheckError, of: &str, what: &str) -> bool {
    matches!(error, CheckError::MissingAttribute { rule, attribute } if *rule == of && &**attribute == what)
}

#[test]
fn a_missing_key_attribute_is_an_error_that_names_rule_and_attribute_and_charges_nothing() {
    let policy = Policy::new().limit("all", Limit::per_hour(5)).rule(Rule::new("users", ONE).key(["user", "path"]));
    let limiter = limiter(policy);
    for request in [
        Request::new("acme"),
        Request::new("acme").with("usr", "alice").with("path", "/"),
        Request::new("acme").rule("users"),
        Request::new("acme").cost(9).with("path", "/"),
    ] {
        let errors = [
            limiter.check(request.clone()),
            limiter.peek(request.clone()),
            limiter.refund(request.clone()).map(tidegate::Decision::from),
            limiter.reset(request.clone()).map(tidegate::Decision::from),
            limiter
                .check_many([Request::new("bob").with("user", "b").with("path", "/"), request.clone()])
                .map(|all| all[0].clone()),
        ];
        for error in errors {
            let error = error.expect_err("an attribute is missing");
            assert!(lacks(&error, "users", "user"), "{error}");
            assert!(!error.is_unavailable() && error.reason() == "missing-attribute");
        }
        assert!(!limiter.allow(request.clone()));
        let explanation = limiter.explain(request).expect("an explanation");
        let users = &explanation.rules[1];
        assert!(
            matches!(&users.finding, RuleFinding::MissingAttribute { attribute } if attribute == "user"),
            "{explanation}"
        );
    }
    assert_eq!(
        limiter.peek(Request::new("acme").rule("all")).expect("an answer").remaining(),
        Some(5),
        "nothing is charged"
    );
    let error = limiter.check("acme").expect_err("an attribute is missing").to_string();
    assert!(error.contains("\"users\"") && error.contains("\"user\"") && error.contains("missing = "), "{error}");
}

#[test]
fn the_first_attribute_that_is_there_makes_the_key() {
    let rule = Rule::new("callers", ONE).key([KeyAttribute::new("user").or("ip"), "path".into()]);
    let limiter = limiter(rule);
    let of = |name: &'static str, value: &'static str| Request::new("").with("path", "/").with(name, value);
    assert!(limiter.allow(of("user", "192.0.2.1")) && limiter.allow(of("ip", "192.0.2.1")), "two keys");
    assert!(!limiter.allow(of("ip", "::ffff:192.0.2.1")), "one address");
    assert!(!limiter.allow(of("user", "192.0.2.1").with("ip", "192.0.2.7")), "the user comes first");
    let error = limiter.check(of("tenant", "acme")).expect_err("neither is there");
    assert!(lacks(&error, "callers", "user or ip"), "{error}");
    let without_path = Request::new("").with("user", "alice");
    assert!(lacks(&limiter.check(without_path).expect_err("no path"), "callers", "path"));
}

#[test]
fn a_request_without_a_key_lacks_it_for_a_rule_that_counts_by_it() {
    let plain = limiter(ONE);
    assert!(plain.allow(Request::new(())) && !plain.allow(Request::new(())), "no key is one limit for all");
    let error = plain.check(Request::without_key().with("user", "alice")).expect_err("no key");
    assert!(lacks(&error, "1/h", "key"), "{error}");
    let error = plain.check_many([Request::without_key()]).expect_err("no key");
    assert!(lacks(&error, "1/h", "key"), "{error}");
    let keyed = limiter(Rule::new("users", ONE).key(["user"]));
    assert!(keyed.allow(Request::without_key().with("user", "alice")), "nothing counts by the key");
}

#[test]
fn a_partial_request_skips_what_would_be_an_error_and_nothing_else() {
    let policy = Policy::new()
        .rule(Rule::new("users", ONE).key(["user"]))
        .rule(Rule::new("shared", Limit::per_hour(2)).key(["tenant"]).missing(Missing::Shared));
    let limiter = limiter(policy);
    let partial = || Request::new("").with("path", "/").partial();
    assert_eq!(limiter.check(partial()).expect("an answer").rule(), "shared");
    assert!(limiter.allow(partial()) && !limiter.allow(partial()));
    let whole = partial().with("user", "alice").with("tenant", "acme");
    assert!(limiter.allow(whole.clone()) && !limiter.allow(whole));
}

#[test]
fn a_shadow_rule_that_lacks_an_attribute_never_keeps_a_request_from_its_answer() {
    let shadow = Rule::new("watch", ONE).key(["user"]).shadow();
    let candidate = Rule::new("all", Limit::per_hour(3)).candidate(ONE);
    let limiter = limiter(Policy::new().rule(shadow).rule(candidate));
    assert_eq!(limiter.check("acme").expect("an answer").remaining(), Some(2));
    let explanation = limiter.explain("acme").expect("an explanation").to_string();
    assert!(explanation.contains("watch (shadow): skipped: key attribute \"user\" is missing"), "{explanation}");
}

#[test]
fn observers_are_told_of_each_request_that_lacks_an_attribute() {
    #[derive(Default)]
    struct Told(Mutex<Vec<(Name, String)>>);
    impl Observer for Told {
        fn observe(&self, event: &Event<'_>) {
            assert_ne!(event.decision.rule(), "users", "no decision was made");
        }
        fn missing(&self, rule: &Name, attribute: &str) {
            self.0.lock().expect("no panic before").push((rule.clone(), attribute.into()));
        }
    }
    let told = Arc::new(Told::default());
    let skip = Rule::new("tenants", ONE).key(["tenant"]).missing(Missing::Skip);
    let policy = Policy::new().rule(Rule::new("users", ONE).key(["user"])).rule(skip);
    let limiter = Limiter::builder(policy).observer(Arc::clone(&told)).build().expect("a valid policy");
    let told = || -> Vec<String> {
        let told = std::mem::take(&mut *told.0.lock().expect("no panic before"));
        told.iter().map(|(rule, name)| format!("{rule} {name}")).collect()
    };
    assert!(limiter.check("acme").is_err());
    assert_eq!(told(), ["users user", "tenants tenant"]);
    assert!(limiter.check(Request::new("acme").partial()).is_ok());
    assert!(told().is_empty(), "partial by design: there is nothing to tell");
}

#[test]
fn a_shared_key_is_shown_by_what_is_missing() {
    let rule = Rule::new("users", ONE).key(["tenant", "user", "path"]).missing(Missing::Shared);
    let explanation = limiter(rule).explain(Request::new("x").with("tenant", "acme")).expect("an explanation");
    assert!(explanation.to_string().contains("for \"(no user, no path) / acme\""), "{explanation}");
}

#[test]
fn a_key_that_lacks_something_has_more_parts_than_any_that_lacks_nothing() {
    let cases = [
        (KeyAttribute::new("user"), vec!["(no user)", "acme", ""]),
        (KeyAttribute::new("user").or("ip"), vec!["(no user or ip)", "acme", "", ""]),
        (KeyAttribute::new("user").or("ip").or("agent"), vec!["(no user or ip or agent)", "acme", "", ""]),
    ];
    for (attribute, expected) in cases {
        let store = MemoryStore::builder().list_keys().clock(ManualClock::default()).build().expect("valid settings");
        let rule = Rule::new("users", ONE).key([KeyAttribute::new("tenant"), attribute]).missing(Missing::Shared);
        let limiter = Limiter::with_store(rule, store).expect("a valid policy");
        let of = |tenant: &'static str| Request::new("").with("tenant", tenant);
        assert!(limiter.allow(of("acme")));
        let [(_, key)] = &limiter.store().keys()[..] else { panic!("one key is charged") };
        assert!(key.parts().eq(expected.iter().map(|part| part.as_bytes())), "{key}");
        // So no value is taken for what says that one is missing.
        assert!(limiter.allow(of("user")) && limiter.allow(of(expected[0]).with("user", "")), "{expected:?}");
    }
}

#[test]
fn text_that_is_no_address_is_an_error_where_an_address_is_meant() {
    let by_ip = limiter(Rule::new("rule", ONE).key(["ip"]));
    let other = limiter(Rule::new("rule", ONE).key([KeyAttribute::new("peer").by_network(24, 48)]));
    let text = limiter(Rule::new("rule", ONE).key(["peer"]));
    for value in ["", "unknown", "300.1.1.1", "192.0.2.1:80", "[2001:db8::1]", "192.0.2.01", " 192.0.2.1", "1.2.3"] {
        for (limiter, name) in [(&by_ip, "ip"), (&other, "peer")] {
            let error = limiter.check(Request::new("").with(name, value)).expect_err(value);
            let named = matches!(&error, CheckError::NotAnAddress { attribute, .. } if &**attribute == name);
            assert!(named && !error.is_unavailable(), "{error}");
            assert!(limiter.explain(Request::new("").with(name, value)).is_err());
        }
        assert!(text.allow(Request::new("").with("peer", value)), "another attribute is any text");
    }
}

#[test]
fn a_policy_whose_address_can_never_match_is_refused() {
    let refused = |policy: Policy| Limiter::builder(policy).build().err();
    let rule = || Rule::new("rule", ONE).key(["ip"]);
    for policy in [
        Policy::new().rule(rule()).deny("ip", equals("300.1.1.1")),
        Policy::new().rule(rule()).allow("ip", equals("10.0.0.0/8")),
        Policy::new().rule(rule().when("ip", equals("localhost"))),
        Policy::new().rule(rule().override_exactly("ip", "10.0.0.0/8", Setting::Unlimited)),
        Policy::new().rule(rule().tier("ip", "internal", Setting::Unlimited)),
    ] {
        let error = refused(policy).expect("an address that is none");
        assert!(matches!(error, ConfigError::NotAnAddress { .. }), "{error}");
    }
    let spelled = Policy::new().rule(rule().override_exactly("ip", "2001:DB8:0::1", Setting::Blocked));
    let spelled = limiter(spelled.deny("ip", equals("::ffff:192.0.2.1")));
    let from = |ip: &'static str| spelled.check(Request::new("").with("ip", ip)).expect("an answer");
    assert!(from("2001:db8::1").is_blocked() && from("192.0.2.1").is_blocked() && !from("2001:db8::2").is_blocked());
}

#[test]
fn a_missing_attribute_is_shared_or_skipped_and_never_taken_for_a_value() {
    let shared = limiter(Rule::new("rule", ONE).key(["user", "path"]).missing(Missing::Shared));
    assert!(shared.allow(Request::new("").with("path", "/")));
    assert!(!shared.allow(Request::new("other").with("path", "/")), "requests without a user share a key");
    for user in ["", "-", "(no user)", "no user", "anonymous"] {
        assert!(shared.allow(Request::user(user).with("path", "/")), "{user:?} is a value");
    }
    assert!(shared.allow(Request::user("/")), "another missing attribute is another key");
    let skipped = limiter(Rule::new("rule", ONE).key(["user"]).missing(Missing::Skip));
    assert!((0..5).all(|_| skipped.allow(Request::new("").with("path", "/"))));
}

#[test]
fn a_skipped_rule_leaves_the_request_to_the_default_rule() {
    let policy = Policy::new()
        .rule(Rule::new("users", Limit::per_hour(5)).key(["user"]).missing(Missing::Skip))
        .otherwise(Rule::new("others", ONE).key([] as [&str; 0]));
    let limiter = limiter(policy);
    assert_eq!(limiter.check(Request::user("alice")).expect("an answer").rule(), "users");
    let anonymous = || Request::new("").with("path", "/");
    let explanation = limiter.explain(anonymous()).expect("an answer");
    assert_eq!(explanation.decision.rule(), "others", "{explanation}");
    assert!(limiter.allow(anonymous()) && !limiter.allow(anonymous()), "it is one of the others");
}

#[test]
fn a_skipped_rule_does_not_block() {
    let rule = Rule::new("users", Limit::per_hour(5)).key(["user"]).missing(Missing::Skip);
    let limiter = limiter(rule.tier("plan", "none", Setting::Blocked));
    assert!(limiter.check(Request::user("alice").with("plan", "none")).expect("an answer").is_blocked());
    for anonymous in [Request::new("").with("plan", "none"), Request::new("").with("plan", "none").rule("users")] {
        assert!(limiter.check(anonymous.clone()).expect("an answer").is_unlimited());
        let explanation = limiter.explain(anonymous).expect("an answer");
        assert!(matches!(explanation.rules[0].finding, RuleFinding::NoKey { .. }), "{explanation}");
    }
}

#[test]
fn an_ip_counts_by_its_network_and_case_is_kept_unless_told() {
    let by_ip = limiter(Rule::new("rule", ONE).key(["ip"]));
    let from = |ip: &str| Request::new("").with("ip", ip.parse::<IpAddr>().expect("an address"));
    assert!(by_ip.allow(from("2001:db8::1")) && !by_ip.allow(from("2001:db8::2")), "one /64");
    assert!(by_ip.allow(from("2001:db8:0:1::1")));
    assert!(!by_ip.allow(from("2001:db8::8000:0:0:1")), "the 65th bit is not part of the key");
    assert!(by_ip.allow(from("192.0.2.1")) && by_ip.allow(from("192.0.2.2")));
    assert!(by_ip.allow(from("192.0.2.3")), "all bits count");
    assert!(!by_ip.allow(from("::ffff:192.0.2.1")), "an IPv4-mapped address is the IPv4 address");
    let wider = limiter(Rule::new("rule", ONE).key([KeyAttribute::new("ip").by_network(24, 48)]));
    assert!(wider.allow(Request::new("").with("ip", "192.0.2.1")));
    assert!(!wider.allow(Request::new("").with("ip", "192.0.2.99")), "given as text, too");
    assert!(wider.allow(from("2001:db8:7::1")) && !wider.allow(from("2001:db8:7:1::1")), "one /48");
    assert!(wider.allow(from("2001:db8:6::1")));
    let whole = limiter(Rule::new("rule", ONE).key([KeyAttribute::new("ip").by_network(32, 128)]));
    assert!(["192.0.2.2", "192.0.2.3", "2001:db8::2", "2001:db8::3"].into_iter().all(|ip| whole.allow(from(ip))));
    let exact = limiter(Rule::new("rule", ONE).key(["user"]));
    assert!(exact.allow(Request::user("Alice")) && exact.allow(Request::user("alice")));
    let several = limiter(Rule::new("rule", ONE).key(["user", "path"]));
    let to = |path: &'static str| Request::user("alice").with("path", path);
    assert!(several.allow(to("/A")) && several.allow(to("/a")) && !several.allow(to("/a")));
    let folded = limiter(Rule::new("rule", ONE).key([KeyAttribute::new("user").ignoring_case()]));
    assert!(folded.allow(Request::user("ÄLICE")) && !folded.allow(Request::user("älice")));
}

#[test]
fn ipv4_mapped_addresses_are_the_ipv4_address_in_conditions_overrides_and_lists() {
    let rule = Rule::new("rule", Limit::per_hour(5)).key(["ip"]).when("ip", Condition::StartsWith("192.0.".into()));
    let rule = rule.override_exactly("ip", "192.0.2.1", Setting::Blocked);
    let rule = rule.override_matching("ip", "192.0.3.*", Limit::per_hour(7));
    let limiter = limiter(Policy::new().rule(rule).deny("ip", equals("192.0.2.9")));
    for prefix in ["", "::ffff:"] {
        let limit = |address: &str| {
            let address: IpAddr = format!("{prefix}{address}").parse().expect("an address");
            limiter.check(Request::new("").with("ip", address)).expect("an answer").capacity()
        };
        let limits = ["192.0.2.1", "192.0.2.9", "192.0.2.2", "192.0.3.1", "198.51.100.1"].map(limit);
        assert_eq!(limits, [Some(0), Some(0), Some(5), Some(7), None], "{prefix}");
    }
}

/// An address in one of its spellings.
fn spelled(address: IpAddr, style: u8) -> String {
    match address {
        IpAddr::V4(v4) => match style % 3 {
            0 => v4.to_string(),
            1 => format!("::ffff:{v4}"),
            _ => v4.to_ipv6_mapped().segments().map(|part| format!("{part:x}")).join(":"),
        },
        IpAddr::V6(v6) => match style % 4 {
            0 => v6.to_string(),
            1 => v6.to_string().to_uppercase(),
            2 => v6.segments().map(|part| format!("{part:04x}")).join(":"),
            _ => v6.segments().map(|part| format!("{part:X}")).join(":"),
        },
    }
}

#[test]
fn one_address_is_one_key_in_every_spelling() {
    for seed in 0..500 {
        let random = &mut Random::new(seed);
        let v4 = Ipv4Addr::from(random.number() as u32);
        // Zeros and short groups, which have the most spellings. None is IPv4-mapped: those are IPv4 addresses.
        let mut v6 = [(); 8].map(|()| if random.percent(30) { 0 } else { random.magnitude(1..=0xffff) as u16 });
        v6[0] |= 0x2000;
        for address in [IpAddr::from(v4), IpAddr::from(v6)] {
            let limiter = limiter(Rule::new("rule", Limit::per_hour(2)).key(["ip"]));
            let [one, other] = [random.number() as u8, random.number() as u8].map(|style| spelled(address, style));
            assert!(limiter.allow(Request::new("").with("ip", &*one)), "{one}");
            assert!(limiter.allow(Request::new("").with("ip", &*other)), "{other}");
            assert!(!limiter.allow(Request::new("").with("ip", address)), "{one} {other}");
        }
    }
}

#[test]
fn a_limit_by_an_attribute_is_the_same_whatever_the_key_of_the_request() {
    let limiter = limiter(Rule::new("users", Limit::per_hour(5)).key(["user"]));
    let from = |key| Request::new(key).with("user", "alice");
    assert_eq!(limiter.check(from("one session")).expect("an answer").remaining(), Some(4));
    assert_eq!(limiter.check(from("another")).expect("an answer").remaining(), Some(3));
    assert!(limiter.allow(from("a third")));
    assert_eq!(limiter.peek(from("a fourth")).expect("an answer").remaining(), Some(2));
    let bob = Request::new("one session").with("user", "bob");
    assert_eq!(limiter.check(bob).expect("an answer").remaining(), Some(4));
}
