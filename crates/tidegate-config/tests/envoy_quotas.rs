//! Quotas of descriptor files, beside what the reference service says of them, and its list of all limits.

use std::path::Path;

use tidegate::{ManualClock, MemoryStore};
use tidegate_config::envoy::{self, Descriptor, EnvoyLimiter};
use tidegate_testkit::{Random, block_on};

/// The overall code as the reference service defines it: over if any limit that is no quota is over, or if there are
/// quotas and all of them are. Unlimited descriptors are no quotas; a shadow is never over.
fn is_refused_there(kinds: &[Kind], used: &[u64], quotas_for_all: bool) -> bool {
    let (mut limits_over, mut quotas, mut quotas_over) = (0, 0, 0);
    for (kind, used) in kinds.iter().zip(used).filter(|(kind, _)| kind.capacity != Some(u64::MAX)) {
        let is_over = !kind.shadow && kind.capacity.is_some_and(|capacity| used + 1 > capacity);
        if quotas_for_all || kind.quota && kind.capacity.is_some() {
            quotas += 1;
            quotas_over += u32::from(is_over);
        } else {
            limits_over += u32::from(is_over);
        }
    }
    limits_over > 0 || quotas > 0 && quotas == quotas_over
}

/// A descriptor of a file: no limit, no end (`u64::MAX`), or so many a minute.
#[derive(Clone, Copy)]
struct Kind {
    capacity: Option<u64>,
    quota: bool,
    shadow: bool,
}

#[test]
fn requests_pass_or_not_as_the_reference_service_defines_quotas() {
    let flags = [(false, false), (true, false), (false, true), (true, true)];
    let capacities = [None, Some(u64::MAX), Some(0), Some(1), Some(2), Some(3)];
    let kinds: Vec<Kind> = capacities
        .into_iter()
        .flat_map(|capacity| flags.map(|(quota, shadow)| Kind { capacity, quota, shadow }))
        .collect();
    let mut file = "domain: edge\ndescriptors:\n".to_owned();
    for (place, Kind { capacity, quota, shadow }) in kinds.iter().enumerate() {
        let limit = match capacity {
            None => String::new(),
            Some(u64::MAX) => ", rate_limit: { unlimited: true }".to_owned(),
            Some(count) => format!(", rate_limit: {{ unit: minute, requests_per_unit: {count} }}"),
        };
        file += &format!("  - {{ key: k{place}, quota_mode: {quota}, shadow_mode: {shadow}{limit} }}\n");
    }
    let places: Vec<usize> = (0..kinds.len()).collect();
    let mut random = Random::new(7);
    let (mut passed, mut refused) = (0, 0);
    for round in 0..600 {
        let quotas_for_all = round % 2 == 1;
        let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
        let config = envoy::parse(&file, Path::new("quotas.yaml")).unwrap_or_else(|report| panic!("{report}"));
        let limiter = EnvoyLimiter::new(config, store);
        let limiter = if quotas_for_all { limiter.all_quotas() } else { limiter };
        let chosen: Vec<usize> = (0..random.within(1..=4)).map(|_| random.choose(&places)).collect();
        let entries: Vec<(String, String)> =
            chosen.iter().enumerate().map(|(place, kind)| (format!("k{kind}"), place.to_string())).collect();
        let entries: Vec<[(&str, &str); 1]> =
            entries.iter().map(|(key, value)| [(key.as_str(), value.as_str())]).collect();
        let descriptors: Vec<Descriptor<'_>> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        let chosen: Vec<Kind> = chosen.iter().map(|kind| kinds[*kind]).collect();
        let mut used = vec![0; chosen.len()];
        for _ in 0..4 {
            let answer = block_on(limiter.decide_async("edge", &descriptors)).expect("an answer").expect("the domain");
            let expected = is_refused_there(&chosen, &used, quotas_for_all);
            assert_eq!(!answer.allowed, expected, "{entries:?} in\n{file}\nafter {used:?}, {quotas_for_all}");
            *(if expected { &mut refused } else { &mut passed }) += 1;
            for (used, kind) in used.iter_mut().zip(&chosen).filter(|_| !expected) {
                *used = (*used + 1).min(kind.capacity.unwrap_or(u64::MAX));
            }
        }
    }
    assert!(passed > 300 && refused > 300, "{passed} passed, {refused} were refused");
}

#[test]
fn all_limits_are_listed_as_the_reference_service_shows_them() {
    let config = envoy::parse(
        "
domain: edge
descriptors:
  - { key: free, rate_limit: { unlimited: true } }
  - { key: model, value: large, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: watched, shadow_mode: true, rate_limit: { unit: week, requests_per_unit: 1 } }
  - { key: above, descriptors: [{ key: below, rate_limit: { unit: second, requests_per_unit: 0 } }] }
",
        Path::new("edge.yaml"),
    )
    .unwrap_or_else(|report| panic!("{report}"));
    let lines: Vec<String> = config.limits().iter().map(ToString::to_string).collect();
    let expected = [
        "edge.above.below: unit=SECOND requests_per_unit=0, shadow_mode: false, quota_mode: false",
        "edge.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false",
        "edge.model_large: unit=MINUTE requests_per_unit=2, shadow_mode: false, quota_mode: true",
        "edge.watched: unit=WEEK requests_per_unit=1, shadow_mode: true, quota_mode: false",
    ];
    assert_eq!(lines, expected);
}
