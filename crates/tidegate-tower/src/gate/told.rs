//! What a caller is told of the limits that a request has met.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use http::HeaderValue;
use tidegate::store::{Meter, Store};
use tidegate::{Decision, Key, Limiter, Name};

use super::Gate;
use crate::call::{Call, Put};
use crate::fields::{Fields, QuotaStatus, binds, write_policy};
use crate::head::Text;
use crate::line::Line;
use crate::partition::hash_of;

/// The limits that requests have to pass.
pub(super) trait Meters {
    /// What tells the only one from every other, if there is no other.
    fn only(&self) -> Option<u64>;
    /// Each of them, and whose it is.
    fn for_each(&self, request: Put<'_>, show: &mut dyn FnMut(&Meter, &Key<'_>));
}

impl<S: Store> Meters for Limiter<S> {
    #[inline]
    fn only(&self) -> Option<u64> {
        self.with_only_meter(Meter::identity)
    }

    fn for_each(&self, request: Put<'_>, show: &mut dyn FnMut(&Meter, &Key<'_>)) {
        self.for_each_limit(request, show);
    }
}

/// The policy of a limiter that has one limit, written down once.
#[derive(Clone)]
pub(super) struct OnlyPolicy {
    /// Of the meter whose it is.
    identity: u64,
    rule: Name,
    capacity: Option<u64>,
    /// The rule's name, as it stands in a field.
    name: Box<[u8]>,
    field: HeaderValue,
}

impl Gate {
    /// What the caller is told of the limits that a request has met.
    #[inline]
    pub(super) fn fields(&self, decision: &Decision, call: &Call<'_>, meters: &impl Meters) -> Option<Fields> {
        if self.settings.styles.is_empty() || decision.is_unlimited() || decision.is_blocked() {
            return None;
        }
        // Mostly there is one limit, and its policy was written down before.
        if let Some(only) = self.only_policy.get().filter(|only| only.is_all(decision, meters)) {
            return Some(only.status(decision).fields(&self.settings.styles));
        }
        self.fields_of_any(decision, call, meters)
    }

    #[inline(never)]
    fn fields_of_any(&self, decision: &Decision, call: &Call<'_>, meters: &impl Meters) -> Option<Fields> {
        let mut text = Text::default();
        let (mut identity, mut partition, mut line) = (None, None, Line::new());
        meters.for_each(Put { call, settings: &self.settings, text: &mut text }, &mut |meter, key| {
            identity = Some(meter.identity());
            let hash = self.settings.secret.as_ref().map(|secret| hash_of(secret, key));
            if binds(meter, decision) {
                partition = hash;
            }
            write_policy(&mut line, meter, hash.as_ref());
        });
        let policies = line.to_header().filter(|field| !field.is_empty());
        // Unless another policy came in between.
        let only = identity.filter(|identity| meters.only() == Some(*identity));
        if let (Some(identity), Some(field), None) = (only, &policies, &self.settings.secret) {
            let (rule, capacity) = (decision.rule().clone(), decision.capacity());
            let (name, field) = (Line::new().quoted(rule.as_str()).as_bytes().into(), lasting(field.clone()));
            // Of two threads the first one's is kept; both are right.
            let _ = self.only_policy.set(OnlyPolicy { identity, rule, capacity, name, field });
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
    /// Whether it is the policy of this decision, and there is no other.
    #[inline]
    fn is_all(&self, decision: &Decision, meters: &impl Meters) -> bool {
        (&self.rule, self.capacity) == (decision.rule(), decision.capacity()) && meters.only() == Some(self.identity)
    }

    #[inline]
    fn status<'s>(&'s self, decision: &'s Decision) -> QuotaStatus<'s> {
        let OnlyPolicy { name, field, .. } = self;
        QuotaStatus { decision, name: Some(&**name), policies: Some(field.clone()), partition: None }
    }
}
