//! What a replay should find, by the obvious way: all lines in memory, sorted,
//! and the oracle asked about one after the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use tidegate::{CheckError, Limiter, ManualClock, Micros, Policy, Request};
use tidegate_config::{Format, parse};
use tidegate_testkit::OracleStore;

use crate::generated::Entry;

pub(crate) fn policy(text: &str) -> Policy {
    parse(text, Format::Toml, Path::new("policy.toml")).unwrap_or_else(|report| panic!("{report}"))
}

/// Which rule refuses each request; none for those that pass.
pub(crate) fn refusals(policy: Policy, entries: &[Entry]) -> Vec<Option<String>> {
    let clock = ManualClock::default();
    let limiter = Limiter::with_store(policy, OracleStore::new(clock.clone())).expect("a valid policy");
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|place| entries[*place].at);
    let mut refusals = vec![None; entries.len()];
    for place in order {
        let entry = &entries[place];
        clock.set(Micros::new(entry.at));
        let attributes = entry.attributes();
        let own_key = match entry.ip.parse() {
            // By its first 64 bits, as in the tower layer.
            Ok(IpAddr::V6(address)) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).to_string(),
            Ok(IpAddr::V4(_)) | Err(_) => entry.ip.clone(),
        };
        let mut request = Request::new(own_key.as_str()).cost(entry.cost);
        for (name, value) in &attributes {
            request = match value.parse::<IpAddr>() {
                Ok(address) => request.with(name, address),
                Err(_) => request.with(name, value.as_str()),
            };
        }
        refusals[place] = match limiter.check(request) {
            Ok(decision) => (!decision.is_allowed()).then(|| decision.rule().to_string()),
            Err(CheckError::Unsatisfiable { rule, .. }) => Some(rule.to_string()),
            Err(error) => panic!("{error}"),
        };
    }
    refusals
}

/// How many each rule refuses.
pub(crate) fn by_rule<'r>(refusals: impl IntoIterator<Item = &'r Option<String>>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for rule in refusals.into_iter().flatten() {
        *counts.entry(rule.clone()).or_default() += 1;
    }
    counts
}
