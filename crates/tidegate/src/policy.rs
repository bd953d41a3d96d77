//! The limits that a request meets.

use crate::limit::{ConfigError, Limit};
use crate::name::Name;
use crate::store::Meter;

/// A list of named limits; every request must pass all of them.
///
/// ```
/// use tidegate::{Limit, Limiter, Policy};
///
/// let policy = Policy::new()
///     .limit("burst", Limit::per_second(2))
///     .limit("daily", Limit::fixed_window(1_000, std::time::Duration::from_secs(86_400)));
/// let limiter = Limiter::new(policy);
/// let decision = limiter.check("alice")?;
/// assert_eq!((decision.rule().as_str(), decision.remaining()), ("burst", 1));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Policy {
    meters: Vec<Meter>,
}

impl Policy {
    /// An empty policy, which no limiter takes as it is.
    pub fn new() -> Policy {
        Policy::default()
    }

    /// Adds a limit under a name.
    pub fn limit(self, name: &'static str, limit: Limit) -> Policy {
        self.meter(Meter::new(Name::literal(name), limit))
    }

    /// Adds a limit, or a custom kernel, that has its name already.
    pub fn meter(mut self, meter: Meter) -> Policy {
        self.meters.push(meter);
        self
    }

    /// The meters, each with a name of its own.
    pub(crate) fn into_meters(self) -> Result<Box<[Meter]>, ConfigError> {
        if self.meters.is_empty() {
            return Err(ConfigError::EmptyPolicy);
        }
        for (index, meter) in self.meters.iter().enumerate() {
            if self.meters[..index].iter().any(|other| other.name() == meter.name()) {
                return Err(ConfigError::DuplicateRule { name: meter.name().as_str() });
            }
        }
        Ok(self.meters.into_boxed_slice())
    }
}

/// One limit, named by its own words.
impl From<Limit> for Policy {
    fn from(limit: Limit) -> Policy {
        Policy::new().meter(Meter::unnamed(limit))
    }
}

/// Several limits, named by their own words; the same one twice is one.
impl<const N: usize> From<[Limit; N]> for Policy {
    fn from(limits: [Limit; N]) -> Policy {
        let mut meters: Vec<Meter> = Vec::with_capacity(N);
        for limit in limits {
            if !meters.iter().any(|meter| meter.limit() == Some(limit)) {
                meters.push(Meter::unnamed(limit));
            }
        }
        Policy { meters }
    }
}

impl From<Meter> for Policy {
    fn from(meter: Meter) -> Policy {
        Policy::new().meter(meter)
    }
}
