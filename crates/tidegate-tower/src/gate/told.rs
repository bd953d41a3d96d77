//! What a caller is told of the limits that a request has met.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use http::HeaderValue;
use tidegate::Decision;
use tidegate::store::Check;

use super::Gate;
use crate::fields::{Fields, QuotaStatus, binds, write_policy};
use crate::line::HeaderLine;
use crate::partition::hash_of;

/// The policy of one limit, written down once.
#[derive(Clone)]
pub(super) struct OnlyPolicy {
    /// Of the meter whose it is.
    identity: u64,
    capacity: u64,
    /// A policy may change it and nothing else.
    unit: Option<Box<str>>,
    /// The rule's name, as it stands in a field.
    name: Box<[u8]>,
    field: HeaderValue,
}

impl Gate {
    /// What the caller is told of a decision and the limits that made it.
    #[inline]
    pub(super) fn fields(&self, decision: &Decision, limits: &[Check<'_>]) -> Option<Fields> {
        if self.settings.styles.is_empty() || decision.is_unlimited() || decision.is_blocked() {
            return None;
        }
        // Mostly there is one limit, and its policy was written down before.
        match self.only_policy.get().filter(|only| only.is_all(limits)) {
            Some(only) => Some(only.status(decision).fields(&self.settings.styles)),
            None => self.fields_of_any(decision, limits),
        }
    }

    #[inline(never)]
    fn fields_of_any(&self, decision: &Decision, limits: &[Check<'_>]) -> Option<Fields> {
        let (mut partition, mut line) = (None, HeaderLine::new());
        for limit in limits {
            let hash = self.settings.secret.as_ref().map(|secret| hash_of(secret, limit.key()));
            if binds(limit.meter(), decision) {
                partition = hash;
            }
            write_policy(&mut line, limit.meter(), hash.as_ref());
        }
        let policies = line.to_header().filter(|field| !field.is_empty());
        if let ([limit], Some(field), None) = (limits, &policies, &self.settings.secret) {
            let (identity, capacity) = (limit.meter().identity(), limit.meter().capacity());
            let unit = limit.meter().unit().map(Into::into);
            let name = HeaderLine::new().quoted(decision.rule().as_str()).as_bytes().into();
            // Of two threads the first one's is kept; both are right.
            let _ = self.only_policy.set(OnlyPolicy { identity, capacity, unit, name, field: lasting(field.clone()) });
        }
        let status = QuotaStatus { decision, name: None, policies, partition };
        Some(status.fields(&self.settings.styles))
    }
}

/// How many policies are written down for good.
const MAX_POLICIES: usize = 10_000;

/// The same field for the life of the process, each distinct one once: all
/// threads can have a copy of it without counting them. One too many is
/// counted as others are.
fn lasting(field: HeaderValue) -> HeaderValue {
    static LASTING: LazyLock<Mutex<HashMap<&'static str, HeaderValue>>> = LazyLock::new(Mutex::default);
    let Ok(text) = field.to_str() else { return field };
    let mut lasting = LASTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lasting.get(text) {
        return known.clone();
    }
    if lasting.len() >= MAX_POLICIES {
        return field;
    }
    let text: &'static str = Box::leak(text.into());
    lasting.entry(text).or_insert(HeaderValue::from_static(text)).clone()
}

impl OnlyPolicy {
    /// Whether it is the policy of all these limits: of the only one.
    #[inline]
    fn is_all(&self, limits: &[Check<'_>]) -> bool {
        let same = |limit: &Check<'_>| {
            let meter = limit.meter();
            let is_same_quota = (meter.identity(), meter.capacity()) == (self.identity, self.capacity);
            is_same_quota && meter.unit() == self.unit.as_deref()
        };
        matches!(limits, [limit] if same(limit))
    }

    #[inline]
    fn status<'s>(&'s self, decision: &'s Decision) -> QuotaStatus<'s> {
        let OnlyPolicy { name, field, .. } = self;
        QuotaStatus { decision, name: Some(&**name), policies: Some(field.clone()), partition: None }
    }
}
