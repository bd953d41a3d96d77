//! Keys: rows 72 to 81.

use std::collections::BTreeSet;

use tidegate::{KeyAttribute, Limit, Limiter, MemoryStore, Missing, Overflow, Policy, Request, Rule};

use crate::{limit, limiter};

/// Kilobytes that this process has in memory.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4
}

/// gofiber/fiber#4677, n8n-io/n8n#24636: keys of any length were kept as they were.
#[cfg(target_os = "linux")]
#[test]
fn row_72_long_keys_are_not_kept() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    let mut key = vec![b'x'; 1 << 20];
    assert!(limiter.allow(key.as_slice()));
    let before = resident();
    for number in 0..500_u32 {
        key[..4].copy_from_slice(&number.to_le_bytes());
        assert!(limiter.allow(key.as_slice()), "another key");
        assert!(!limiter.allow(key.as_slice()), "and it is known");
    }
    let grown = resident().saturating_sub(before);
    // Other tests run beside this one, and a sanitizer keeps what was freed for a while.
    assert!(grown < 300 * 1_024, "half a gigabyte of keys took {grown} KiB");
}

/// grafana/loki#22435, better-auth/better-auth#7470: parts were joined by a
/// separator that they might contain.
#[test]
fn row_73_parts_of_a_key_are_not_mixed_up() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    let pairs = [("a:b", "c"), ("a", "b:c"), ("a:b:c", ""), ("", "a:b:c"), ("a", "b"), ("ab", ""), ("", "ab")];
    for pair in pairs {
        assert!(limiter.allow(pair), "{pair:?}");
    }
    assert!(pairs.iter().all(|pair| !limiter.allow(*pair)));
    assert!(limiter.allow("a:b:c") && limiter.allow("ab"), "and one part is not two");
}

/// ashita-ai/tessera#185: keys were cut off, so that all tenants shared one.
#[test]
fn row_74_long_keys_differ_in_their_last_byte() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    for length in [31, 63, 64, 65, 255, 4_096] {
        let prefix = "k".repeat(length);
        for last in ["a", "b", "ab", ""] {
            assert!(limiter.allow(format!("{prefix}{last}").as_str()), "{length} and {last:?}");
        }
    }
}

/// coder/coder#27273, rack/rack-attack#493, growilabs/growi#11755: another
/// spelling was another key. What is the same is the service's to know; where it
/// says that case does not matter, it does not.
#[test]
fn row_75_spellings_that_mean_the_same_are_one_key_where_told() {
    let rule = Rule::new("login", Limit::per_hour(1)).key([KeyAttribute::new("email").ignoring_case()]);
    let (limiter, _) = limiter(Policy::new().rule(rule));
    let spellings = ["Alice@Example.com", "alice@example.com", "ALICE@EXAMPLE.COM", "aLiCe@example.com"];
    let admitted = spellings.iter().filter(|email| limiter.allow(Request::new("").with("email", **email)));
    assert_eq!(admitted.count(), 1);
}

/// nestjs/throttler#2695, better-auth/better-auth#7509, mholt/caddy-ratelimit#97:
/// a subscriber with a /64 has 2^64 addresses; and an address of IPv4 written as
/// one of IPv6 was another.
#[test]
fn row_76_a_network_is_one_caller() {
    let rule = Rule::new("client", Limit::per_hour(1)).key([KeyAttribute::new("ip").by_network(32, 64)]);
    let (limiter, _) = limiter(Policy::new().rule(rule));
    let asks = |address: &str| limiter.allow(Request::new("").with("ip", address));
    let admitted = (0..10_000_u32).filter(|host| asks(&format!("2001:db8::{:x}:{:x}", host >> 8, host & 0xff)));
    assert_eq!(admitted.count(), 1, "ten thousand addresses of one network");
    assert!(asks("2001:db8:0:1::1"), "and one of another");
    assert!(asks("192.0.2.1") && !asks("::ffff:192.0.2.1"));
}

/// thunderbird/thunderbolt#993, elizaOS/eliza#11162: requests without an address
/// shared the key "unknown", or were not limited. Ours is an error, unless the rule
/// says what it should be, and a missing value is never taken for a value.
#[test]
fn row_78_a_missing_attribute_is_not_a_value() {
    let make = |missing| {
        let rule = Rule::new("client", Limit::per_hour(1)).key(["ip"]).missing(missing);
        limiter(Policy::new().rule(rule)).0
    };
    let without = || Request::new("alice").with("user", "alice");
    assert!(make(Missing::Error).check(without()).is_err());
    let shares = make(Missing::Shared);
    assert!(shares.allow(without()) && !shares.allow(without()), "one limit for all without");
    for no_address in ["", "unknown", "null"] {
        assert!(shares.check(Request::new("bob").with("ip", no_address)).is_err(), "{no_address:?} is not an address");
    }
    let skips = make(Missing::Skip);
    assert!((0..10).all(|_| skips.allow(without())), "if the rule is told to be skipped");
}

/// redis/redis#663, firedancer-io/firedancer#4830: keys could be chosen to fall
/// into one bucket of the map. Where ours fall differs from store to store.
#[test]
fn row_81_the_slot_of_a_key_is_unpredictable() {
    let refused_by_one_store = || -> BTreeSet<u64> {
        let store = MemoryStore::builder().max_keys(1_000).overflow(Overflow::Refuse).build().expect("valid settings");
        let limiter = Limiter::with_store(limit("1/h"), store).expect("a valid policy");
        (0..3_000_u64).filter(|key| !limiter.allow(*key)).collect()
    };
    let (one, other) = (refused_by_one_store(), refused_by_one_store());
    assert!(one.len() > 500 && other.len() > 500, "both were full");
    let both = one.intersection(&other).count();
    assert!(both < one.len() - 50, "{both} of {} fell alike", one.len());
}
