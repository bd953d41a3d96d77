//! Deciding on a state that is kept as bytes: for stores that can keep and
//! compare bytes, but run no kernel themselves.

use super::Check;
use super::meter::Meter;
use super::migration::{give_back, settle_former, take_over};
use crate::kernel::{self, Kernel, Verb, Verdict};
use crate::time::Micros;

/// A check on a state that is kept as bytes, decided both ways.
///
/// A store that finds every check of a slice allowed writes `after`; if any
/// was refused it writes `healed`. No bytes at all are the default state.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The answer if the check is carried out.
    pub verdict: Verdict,
    /// What to write then, if anything.
    pub after: Option<Kept>,
    /// The answer if it is not, because another check of the slice was refused.
    pub withheld: Verdict,
    /// What to write then, if anything: a state from the future is healed.
    pub healed: Option<Kept>,
    /// What is used before the check is carried out, and after it.
    pub used: [u64; 2],
}

/// A state as bytes, and how long it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Empty for the default state.
    pub bytes: Vec<u8>,
    /// From when on it equals the default state.
    pub forget_at: Micros,
}

impl Meter {
    /// Decides a check on a state kept as bytes; `None` if they are no state
    /// of this meter. The cost is at most the meter's capacity.
    #[must_use]
    pub fn decide_encoded(&self, state: &[u8], now: Micros, verb: Verb, cost: u64) -> Option<Encoded> {
        let kernel = self.kernel();
        let load = || if state.is_empty() { Some(Default::default()) } else { kernel.decode(state) };
        let before = load()?;
        let withheld = kernel::withhold(kernel, &before, now, verb, cost);
        let healed = kernel.heal(&before, now).filter(|_| kernel::may_write(verb, cost));
        let healed = healed.map(|full| self.keep(&full));
        let used_before = kernel.used(kernel.heal(&before, now).as_ref().unwrap_or(&before), now);
        let mut after = before;
        let (mut verdict, changed) = kernel::decide(kernel, &mut after, now, verb, cost);
        let used = [used_before, if changed { kernel.used(&after, now) } else { used_before }];
        verdict.crossed = self.crossed(used[0], used[1]);
        let after = changed.then(|| if verb == Verb::Reset { Kept::default() } else { self.keep(&after) });
        Some(Encoded { verdict, after, withheld, healed, used })
    }

    /// Moves what was used of a limit that this one succeeds, by states kept as
    /// bytes: what is left of both. `None` if any of them is no such state.
    #[must_use]
    pub fn take_over_encoded(&self, state: &[u8], now: Micros, from: &Meter, used: &[u8]) -> Option<(Kept, Kept)> {
        let (mut state, mut used) = (self.load_healed(state, now)?, from.load_healed(used, now)?);
        take_over(self, &mut state, now, from, &mut used);
        Some((self.keep_if_in_use(&state, now), from.keep_if_in_use(&used, now)))
    }

    /// Begins a refund, a settlement or a reset of a limit that succeeded this one with
    /// what did not fit into it, by the state that [was left](Meter::take_over_encoded):
    /// what is left now, and the verb and the cost of what is still to be done. Any other
    /// verb does nothing. `None` if it is no such state.
    #[must_use]
    pub fn give_back_encoded(&self, used: &[u8], now: Micros, verb: Verb, cost: u64) -> Option<(Kept, Verb, u64)> {
        let mut used = self.load_healed(used, now)?;
        let (verb, cost) = give_back(self, &mut used, now, verb, cost);
        Some((self.keep_if_in_use(&used, now), verb, cost))
    }

    fn load_healed(&self, state: &[u8], now: Micros) -> Option<super::MeterState> {
        let kernel = self.kernel();
        let state = if state.is_empty() { super::MeterState::Fresh } else { kernel.decode(state)? };
        Some(kernel.heal(&state, now).unwrap_or(state))
    }

    fn keep_if_in_use(&self, state: &super::MeterState, now: Micros) -> Kept {
        if self.kernel().forget_at(state) > now { self.keep(state) } else { Kept::default() }
    }

    fn keep(&self, state: &super::MeterState) -> Kept {
        let mut bytes = Vec::new();
        self.kernel().encode(state, &mut bytes);
        Kept { bytes, forget_at: self.kernel().forget_at(state) }
    }
}

impl Check<'_> {
    /// Has a [settlement](Check::settles_first) begin with a limit that its own replaced, by its state: what
    /// is left of that, and the verb and the cost of what is still to be done. `None` if it is no such state.
    #[must_use]
    pub fn settle_former_encoded(
        &self,
        from: &Meter,
        used: &[u8],
        now: Micros,
        (verb, cost): (Verb, u64),
    ) -> Option<(Kept, Verb, u64)> {
        let mut used = from.load_healed(used, now)?;
        let (verb, cost) = settle_former(self, from, &mut used, now, (verb, cost));
        Some((from.keep_if_in_use(&used, now), verb, cost))
    }
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { bytes: Vec::new(), forget_at: Micros::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Charged;
    use crate::{Limit, Name};

    const NOW: Micros = Micros::new(1_700_000_000_000_000);
    const LIMITS: [&str; 5] = ["2/s", "fixed 2/s", "sliding-log 2/s", "sliding 2/s", "leaky 2/s"];

    fn meter(words: &str) -> Meter {
        Meter::new(Name::literal("rule"), words.parse::<Limit>().expect("a limit"))
    }

    #[test]
    fn a_state_goes_through_bytes_and_comes_back() {
        for words in LIMITS {
            let meter = meter(words);
            let mut state = Vec::new();
            for allowed in [true, true, false] {
                let encoded = meter.decide_encoded(&state, NOW, Verb::Charge, 1).expect("its own bytes");
                assert_eq!(encoded.verdict.allowed, allowed, "{words}");
                assert_eq!(encoded.after.is_some(), allowed, "{words}: a refusal writes nothing");
                state = encoded.after.map_or(state, |kept| kept.bytes);
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_a_key_that_is_reset() {
        for words in LIMITS {
            let meter = meter(words);
            let charged = meter.decide_encoded(&[], NOW, Verb::Charge, 1).and_then(|encoded| encoded.after);
            let reset = meter.decide_encoded(&charged.expect("a charge").bytes, NOW, Verb::Reset, 0);
            assert_eq!(reset.and_then(|encoded| encoded.after), Some(Kept::default()), "{words}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn encoded_states_migrate() {
        for (from, to) in LIMITS.iter().flat_map(|from| LIMITS.map(|to| (meter(from), meter(to)))) {
            let words = format!("{} to {}", from.meaning(), to.meaning());
            let used = from.decide_encoded(&[], NOW, Verb::Charge, 2).and_then(|encoded| encoded.after);
            let used = used.expect("a charge");
            let (state, left) = to.take_over_encoded(&[], NOW, &from, &used.bytes).expect("states of both");
            assert_eq!(left, Kept::default(), "{words}: nothing is left");
            let encoded = to.decide_encoded(&state.bytes, NOW, Verb::Peek, 1).expect("a state");
            assert_eq!(encoded.verdict.remaining, 0, "{words}");
            // Until the very instant at which it counts no more.
            let until = Micros::new(used.forget_at.get() - 1);
            let [before, then] = [until, used.forget_at].map(|now| to.take_over_encoded(&[], now, &from, &used.bytes));
            assert!(before.is_some_and(|(state, left)| state != Kept::default() || left != Kept::default()), "{words}");
            assert_eq!(then, Some((Kept::default(), Kept::default())), "{words}");
            assert_eq!(to.take_over_encoded(b"hello", NOW, &from, &used.bytes), None, "{words}");
            assert_eq!(to.take_over_encoded(&[], NOW, &from, b"hello"), None, "{words}");
        }
    }

    #[test]
    fn unrecorded_units_are_refunded_as_far_as_possible() {
        for words in LIMITS {
            let meter = meter(words);
            let used = |cost| meter.decide_encoded(&[], NOW, Verb::Charge, cost).and_then(|encoded| encoded.after);
            let [one, two] = [1, 2].map(|cost| used(cost).expect("a charge"));
            let refund = |state: &[u8], cost| {
                let (kept, verb, left) = meter.give_back_encoded(state, NOW, Verb::Refund, cost).expect("a state");
                assert_eq!(verb, Verb::Refund);
                (kept, left)
            };
            assert_eq!(refund(&two.bytes, 0), (two.clone(), 0), "{words}");
            assert_eq!(refund(&two.bytes, 1), (one.clone(), 0), "{words}");
            for (cost, left) in [(2, 0), (3, 1), (u64::MAX, u64::MAX - 2)] {
                assert_eq!(refund(&two.bytes, cost), (Kept::default(), left), "{words}");
            }
            assert_eq!(refund(&[], 3), (Kept::default(), 3), "{words}");
            // Of three that were charged, one is here.
            let charged = |cost| Charged { at: NOW, cost };
            for (kept, left) in [(0, Verb::Settle(charged(2))), (2, Verb::Settle(charged(2)))] {
                let settled = meter.give_back_encoded(&one.bytes, NOW, Verb::Settle(charged(3)), kept);
                assert_eq!(settled, Some((Kept::default(), left, kept)), "{words}");
            }
            let more = (Verb::Settle(charged(3)), 4);
            assert_eq!(
                meter.give_back_encoded(&one.bytes, NOW, more.0, more.1),
                Some((one, more.0, more.1)),
                "{words}"
            );
        }
    }

    #[test]
    fn bytes_of_something_else_are_refused() {
        let meter = Meter::new(Name::literal("rule"), Limit::per_second(2));
        assert!(meter.give_back_encoded(b"hello", NOW, Verb::Refund, 1).is_none());
        assert!(meter.decide_encoded(b"hello", NOW, Verb::Charge, 1).is_none());
    }
}
