//! What became of a request of Envoy's, and its statuses on the wire.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Name, Setting};
use tidegate_config::envoy::{Metadata, Unit};
use tidegate_tower::fields;

use super::messages::rate_limit_response::rate_limit::Unit as WireUnit;
use super::messages::rate_limit_response::{Code, DescriptorStatus, RateLimit};

/// What became of a request, by a file or by the policy.
pub(super) struct EnvoyOutcome {
    pub(super) allowed: bool,
    /// One for each descriptor.
    pub(super) lines: Vec<Line>,
}

impl EnvoyOutcome {
    /// Of so many descriptors that have no limit.
    pub(super) fn unlimited(descriptors: usize) -> EnvoyOutcome {
        let line = || Line { allowed: true, ..Line::default() };
        EnvoyOutcome { allowed: true, lines: std::iter::repeat_with(line).take(descriptors).collect() }
    }
}

/// What became of a descriptor.
#[derive(Default)]
pub(super) struct Line {
    pub(super) allowed: bool,
    /// Whether it refuses only together with all others of this kind.
    pub(super) quota: bool,
    /// The limit, if there is one.
    pub(super) limit: Option<ShownLimit>,
    pub(super) remaining: u64,
    /// How long a refused request has to wait, if waiting helps.
    pub(super) retry_after: Option<Duration>,
    /// How long until nothing counts of what was charged, if that is known.
    pub(super) reset_after: Option<Duration>,
    pub(super) metadata: Option<Arc<Metadata>>,
}

/// A limit as clients are told of it.
pub(super) struct ShownLimit {
    pub(super) rule: Option<Name>,
    /// What the file calls it.
    pub(super) name: Option<Arc<str>>,
    pub(super) capacity: u64,
    /// The time that it counts for, if it is known.
    pub(super) period: Option<Duration>,
}

impl ShownLimit {
    /// What to call it.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().or(self.rule.as_ref().map(Name::as_str)).unwrap_or_default()
    }
}

impl Line {
    /// How long until more would pass than now, if that is known.
    pub(super) fn until_more(&self) -> Option<Duration> {
        if self.allowed { self.reset_after } else { self.retry_after.or(self.reset_after) }
    }

    pub(super) fn status(&self) -> DescriptorStatus {
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        DescriptorStatus {
            code: code(self.allowed).into(),
            current_limit: self.limit.as_ref().map(|limit| RateLimit {
                name: limit.name.as_deref().unwrap_or_default().to_owned(),
                requests_per_unit: short(limit.capacity),
                unit: limit.period.map_or(WireUnit::Unknown, wire_unit).into(),
            }),
            limit_remaining: short(self.remaining),
            // Without a limit nothing resets.
            duration_until_reset: self.until_more().filter(|_| self.limit.is_some()).map(whole),
            quota: None,
        }
    }
}

pub(super) fn code(allowed: bool) -> Code {
    if allowed { Code::Ok } else { Code::OverLimit }
}

/// Rounded up: Envoy drops fractions of a second from what it tells clients.
fn whole(duration: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: fields::seconds(duration).cast_signed(), nanos: 0 }
}

const UNITS: [(Unit, WireUnit); 7] = [
    (Unit::Second, WireUnit::Second),
    (Unit::Minute, WireUnit::Minute),
    (Unit::Hour, WireUnit::Hour),
    (Unit::Day, WireUnit::Day),
    (Unit::Week, WireUnit::Week),
    (Unit::Month, WireUnit::Month),
    (Unit::Year, WireUnit::Year),
];

fn wire_unit(period: Duration) -> WireUnit {
    UNITS.into_iter().find(|(unit, _)| unit.period() == period).map_or(WireUnit::Unknown, |(_, unit)| unit)
}

/// A setting as clients are told of it, if it is a limit.
pub(super) fn shown(
    setting: Setting,
    unit: Option<Unit>,
    rule: Option<Name>,
    name: Option<Arc<str>>,
) -> Option<ShownLimit> {
    let capacity = match setting {
        Setting::Limit(limit) => limit.capacity(),
        Setting::Blocked => 0,
        Setting::Unlimited => return None,
    };
    Some(ShownLimit { rule, name, capacity, period: unit.map(Unit::period) })
}
