//! The id of a request in a call: what the script remembers by it, and what it corrects.

use std::time::Duration;

use tidegate::Micros;
use tidegate::kernel::{Charged, Verb};
use tidegate::store::{Check, Purpose, remembered_for};

use super::FormerStep;
use crate::key::id_key;

/// A thousand years: more than a server takes for an expiry is an error there.
const MAX_EXPIRY_MS: u64 = 1_000 * 365 * 86_400_000;

/// A request that is carried out once.
#[derive(Clone, Debug)]
pub struct Once {
    pub(crate) key: Vec<u8>,
    /// What the id stands for, and by which limits it is decided.
    pub(crate) payload: u64,
    pub(crate) limits: u64,
    pub(crate) known_for_ms: u64,
    pub(crate) purpose: Purpose,
    /// Of each step, the limit and what is charged; or the limits of which a charge is
    /// corrected.
    pub(crate) words: Vec<String>,
}

impl Once {
    /// The id under which a slice is carried out once, if it has one.
    pub fn of(checks: &[Check<'_>], prefix: &str, known_for: Duration, now: Micros) -> Option<Once> {
        let (check, id) = checks.iter().find_map(|check| Some((check, check.id()?)))?;
        // The same in every process, and no caller's choice.
        let of = |check: &Check<'_>| check.subject() ^ check.meter().floor().rotate_left(32);
        let mix = |limits: u64, check: &Check<'_>| limits.wrapping_mul(0x0100_0000_01b3) ^ of(check);
        let limits = checks.iter().fold(0, mix);
        let known_for = remembered_for(id, checks, known_for);
        let known_for_ms = u64::try_from(known_for.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_EXPIRY_MS);
        let (key, payload, purpose) = (id_key(prefix, check, id.text), id.payload, id.purpose);
        let words = checks.iter().map(|check| format!("{}{}", word(check), forgotten(check, now))).collect();
        Some(Once { key, payload, limits, known_for_ms, purpose, words })
    }

    /// Where the charges are remembered that it is to correct.
    pub(crate) fn reserved(&self) -> Option<&[u8]> {
        (self.purpose != Purpose::Once).then_some(&*self.key)
    }

    /// The words of the steps, so many, and then those of former limits.
    pub(super) fn packed(&self, steps: usize, former: &[FormerStep<'_>]) -> Vec<u8> {
        let mut words = self.words.clone();
        words.resize(words.len().max(steps), NO_CHECK.to_owned());
        words.extend(former.iter().map(|former| match former.check.verb() {
            Verb::Settle(_) | Verb::Renew(_) => word(&former.check),
            Verb::Charge | Verb::Peek | Verb::Report | Verb::Refund | Verb::Reset => NO_CHECK.to_owned(),
        }));
        format!("{:016x}{:016x} {}", self.payload, self.limits, words.join(" ")).into_bytes()
    }
}

/// Stands for a step that is no check, or one that charges and corrects nothing.
const NO_CHECK: &str = "-";

fn word(check: &Check<'_>) -> String {
    match (check.verb(), check.id().map(|id| id.purpose)) {
        (Verb::Charge, Some(Purpose::Once)) => format!("{:016x}:{}", check.subject(), check.cost()),
        (Verb::Settle(_) | Verb::Renew(_), _) => format!("{:016x}", check.subject()),
        _ => NO_CHECK.to_owned(),
    }
}

/// Which former limits of a correction are forgotten at `now`: what they were charged cannot be renewed.
fn forgotten(check: &Check<'_>, now: Micros) -> String {
    let gone = check.former().iter().filter(|former| check.is_correction() && former.until <= now);
    gone.map(|former| format!(",{:016x}", check.of_former(former).subject())).collect()
}

/// Whether the charge that a check corrects is for the script to find, under the id.
pub(super) fn is_by_id(check: &Check<'_>) -> bool {
    check.is_correction() && matches!(check.verb(), Verb::Settle(_) | Verb::Renew(_))
}

/// The charges that a request is remembered by: the limit of each, and the charge; none if
/// they were settled.
pub(crate) fn charges(record: &[u8]) -> Option<Vec<(u64, Charged)>> {
    let record = std::str::from_utf8(record).ok()?;
    let (_, charges) = record.split_once('|')?;
    let charge = |word: &str| {
        let mut parts = word.split(':');
        let limit = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (cost, at) = (parts.next()?.parse().ok()?, Micros::new(parts.next()?.parse().ok()?));
        Some((limit, Charged { at, cost }))
    };
    if charges.starts_with('=') {
        return Some(Vec::new());
    }
    // After how long they are remembered.
    charges.split_whitespace().skip(1).map(charge).collect()
}
