//! What the script is told of a verb.

use tidegate::Micros;
use tidegate::kernel::{Charged, Verb};
use tidegate::store::Check;

use super::once::is_by_id;

/// What the script is told of a verb: its letter, of how much, and a text.
pub(super) struct Sent {
    pub(super) letter: u8,
    /// In units.
    pub(super) cost: u64,
    pub(super) text: Note,
}

/// What follows the numbers of a check.
pub(super) enum Note {
    None,
    Cost,
    /// What is left to others.
    Floor(u64),
    Ceiling,
    /// When a charge was made, and what is kept of it.
    Charge(Charged, u64),
    /// When a charge was made.
    Time(Micros),
    /// What a unit is, beside the ceiling, and what should have been charged.
    Actual(u64),
}

impl Sent {
    /// No more is sent than could matter: numbers that a script counts exactly.
    pub(super) fn new(check: &Check<'_>, ceiling: u64) -> Sent {
        let cost = check.cost();
        let floor = if cost > 0 { check.meter().floor() } else { 0 };
        let (letter, cost, text) = match check.verb() {
            Verb::Charge if floor > 0 => (b'c', cost, Note::Floor(floor)),
            Verb::Charge => (b'C', cost, Note::Cost),
            // Beside corrections, it only says how things stand.
            Verb::Peek if check.is_correction() => (b'U', 0, Note::None),
            Verb::Peek if floor > 0 => (b'p', cost, Note::Floor(floor)),
            Verb::Peek => (b'P', cost, Note::Cost),
            Verb::Refund => (b'R', cost, Note::Cost),
            Verb::Reset => (b'X', cost, Note::Cost),
            Verb::Report => (b'D', cost.min(ceiling), Note::Ceiling),
            Verb::Settle(_) if is_by_id(check) => (b'S', ceiling, Note::Actual(cost)),
            Verb::Renew(_) if is_by_id(check) => (b'E', 0, Note::None),
            Verb::Settle(charged) if cost > charged.cost => (b'D', (cost - charged.cost).min(ceiling), Note::Ceiling),
            Verb::Settle(charged) => (b'U', charged.cost - cost, Note::Charge(charged, cost)),
            Verb::Renew(charged) => (b'E', charged.cost, Note::Time(charged.at)),
        };
        Sent { letter, cost, text }
    }

    /// What of the cost was not sent, of a check that makes debt.
    pub(super) fn unsent(check: &Check<'_>, ceiling: u64) -> u64 {
        let asked = match check.verb() {
            Verb::Settle(charged) => check.cost().saturating_sub(charged.cost),
            _ => check.cost(),
        };
        asked.saturating_sub(ceiling)
    }

    /// The text, of a limit whose unit is so much.
    pub(super) fn text(&self, ceiling: u64, unit: u64) -> String {
        match self.text {
            Note::None => String::new(),
            Note::Cost => self.cost.saturating_mul(unit).to_string(),
            Note::Floor(floor) => floor.saturating_mul(unit).to_string(),
            Note::Ceiling => ceiling.to_string(),
            Note::Charge(charged, kept) => format!("{}:{}", charged.at.get(), kept.saturating_mul(unit)),
            Note::Time(at) => at.get().to_string(),
            Note::Actual(cost) => format!("{ceiling}:{unit}:{cost}"),
        }
    }
}
