//! What a limit takes over from the one that it replaced.
//!
//! Units that were used stay used, as the old limit counts them: of a bucket
//! rounded up, of a sliding counter's previous window rounded down. As many as
//! fit into the new limit move to it; the others stay where they were, and
//! move when there is room. How soon they come back is the new limit's affair.
//! Where both limits count in the same way more is kept than the number: a
//! bucket's fractions of a unit, the windows in which something was counted,
//! the instants that a log remembers.

use super::Check;
use super::meter::Meter;
use super::meter_kernel::{MeterKernel, MeterState};
use crate::kernel::{Admission, Charged, Kernel, LimitKernel, Verb};
use crate::time::Micros;

/// A limit that another one replaced: what a key used of it counts on.
#[derive(Clone, Copy, Debug)]
pub struct Former<'a> {
    /// The limit.
    pub meter: &'a Meter,
    /// When nothing that was charged to it matters any more, by the store's clock.
    pub until: Micros,
}

impl Former<'_> {
    /// When another limit replaced it, at the latest.
    #[must_use]
    pub fn replaced_at(&self) -> Micros {
        Micros::new(self.until.get().saturating_sub(self.meter.horizon().get()))
    }
}

/// Moves what was used of one limit to the one that succeeds it.
pub(crate) fn take_over(to: &Meter, state: &mut MeterState, now: Micros, from: &Meter, used: &mut MeterState) {
    let limits = (to.limit().map(|limit| limit.kernel()), from.limit().map(|limit| limit.kernel()));
    let whole = (to.whole_kernel(), from.whole_kernel());
    match limits {
        (Some(LimitKernel::Bucket(to)), Some(LimitKernel::Bucket(from))) => {
            to.take_over(state.bucket_mut(), now, &from, used.bucket_mut());
        }
        (Some(LimitKernel::Log(to)), Some(LimitKernel::Log(from)))
            if to.take_over(state.heap_mut().get(&to), now, &from, used.heap_mut().get(&from)) => {}
        (Some(LimitKernel::Window(to)), Some(LimitKernel::Window(from))) => {
            let before = whole.0.used(state, now) + whole.1.used(used, now);
            to.take_over(state.window_mut(), now, &from, used.window_mut());
            // What the last window has no room for counts all the same, and may fit into this one.
            take_over_units(whole, state, now, used, before.saturating_sub(whole.0.used(state, now)));
        }
        (_, _) => take_over_units(whole, state, now, used, whole.1.used(used, now)),
    }
}

/// Begins what a check gives back with what is left of the limit that the check's own
/// replaced, which would come back with the next charge: what the check has still to do.
pub(crate) fn give_back(from: &Meter, used: &mut MeterState, now: Micros, verb: Verb, cost: u64) -> (Verb, u64) {
    let kernel = from.kernel();
    match verb {
        Verb::Refund => {
            let units = kernel.used(used, now).min(cost);
            if units > 0 {
                kernel.refund(used, now, units);
            }
            (verb, cost - units)
        }
        Verb::Settle(charged) if cost < charged.cost => {
            let left = charged.cost - kernel.undo(used, now, charged, cost).min(charged.cost - cost);
            (Verb::Settle(Charged { cost: left, ..charged }), cost)
        }
        Verb::Reset => {
            *used = MeterState::Fresh;
            (verb, cost)
        }
        Verb::Charge | Verb::Report | Verb::Peek | Verb::Settle(_) | Verb::Renew(_) => (verb, cost),
    }
}

/// Has a settlement begin with a limit that its own replaced: what it has still to do.
pub(crate) fn settle_former(
    check: &Check<'_>,
    from: &Meter,
    used: &mut MeterState,
    now: Micros,
    (verb, cost): (Verb, u64),
) -> (Verb, u64) {
    let bounded = left_to_settle(check, from, now, verb);
    match (verb, bounded, give_back(from, used, now, bounded, cost)) {
        (Verb::Settle(charged), Verb::Settle(before), (Verb::Settle(after), cost)) => {
            (Verb::Settle(Charged { cost: charged.cost - (before.cost - after.cost), ..charged }), cost)
        }
        (.., left) => left,
    }
}

/// What is left of a settlement where it goes on with this limit, the check's own or one that it
/// replaced. Some of the charge may have gone while another limit was in force, which this one cannot know:
/// it is told of fewer units, or, as a bucket, that they are older. A log knows the charge by its instant.
pub(super) fn left_to_settle(check: &Check<'_>, to: &Meter, now: Micros, left: Verb) -> Verb {
    let Some(place) = check.corrects else { return left };
    let charged_former = place.get().checked_sub(2).map(|place| check.former.get(place as usize));
    let (Verb::Settle(charged), Verb::Settle(rest)) = (check.verb, left) else { return left };
    let is_log = to.nominal_limit().is_some_and(|limit| matches!(limit.kernel(), LimitKernel::Log(_)));
    let is_charged = charged_former.flatten().is_some_and(|former| former.meter.is_same_as(to));
    let kept = check.cost;
    if rest.cost <= kept || is_log || is_charged {
        return left;
    }
    let excess = charged.cost - kept;
    let (mut at, mut there) = (charged.at, excess);
    let own = Former { meter: check.meter, until: Micros::MAX };
    let was_charged = charged_former.map_or(Some(own), Option::<&Former<'_>>::copied);
    let since = check.former.iter().filter(|former| former.replaced_at() >= charged.at).copied();
    for limit in was_charged.into_iter().chain(since).filter(|limit| !limit.meter.is_same_as(to)) {
        if limit.until <= now {
            there = 0;
            continue;
        }
        let age = u128::from(now.saturating_since(charged.at).get() + limit.meter.fuzz());
        match (limit.meter.drain(), to.drain()) {
            (Some(([_, most], period)), Some(([least, _], own_period))) => {
                let drained = (u128::from(most) * age).checked_mul(own_period);
                let age = drained.map(|drained| drained.div_ceil(period * u128::from(least)));
                let age = age.and_then(|age| u64::try_from(age).ok()).map(|age| age.saturating_add(to.fuzz()));
                at = at.min(Micros::new(age.map_or(0, |age| now.get().saturating_sub(age))));
            }
            (Some(([_, most], period)), None) => {
                let drained = u64::try_from((u128::from(most) * age).div_ceil(period)).unwrap_or(u64::MAX);
                there = there.min(excess.saturating_sub(drained.saturating_sub(kept)));
            }
            (None, _) => there = there.min(counts(limit.meter, now, Charged { cost: excess, ..charged })),
        }
    }
    let units = there.saturating_sub(charged.cost - rest.cost).min(rest.cost - kept);
    Verb::Settle(Charged { at, cost: kept + units })
}

/// How much of a charge counts now if it was the only one; of a window that began with another one,
/// none for certain.
fn counts(meter: &Meter, now: Micros, charged: Charged) -> u64 {
    if meter.nominal_limit().is_some_and(|limit| limit.starts_with_first_request()) {
        return 0;
    }
    let mut state = MeterState::Fresh;
    meter.whole_kernel().report(&mut state, charged.at, charged.cost);
    meter.whole_kernel().used(&state, now)
}

fn take_over_units(
    (to, from): (&MeterKernel, &MeterKernel),
    state: &mut MeterState,
    now: Micros,
    used: &mut MeterState,
    units: u64,
) {
    let fit = units.min(to.read(state, now).remaining);
    if fit > 0 && matches!(to.admit(state, now, fit), Admission::Pass { .. }) {
        to.charge(state, now, fit);
        if fit == units {
            *used = MeterState::Fresh;
        } else {
            let left = units - fit;
            take_out(from, used, now, from.used(used, now).saturating_sub(left));
        }
    }
}

fn take_out(from: &MeterKernel, used: &mut MeterState, now: Micros, units: u64) {
    match from {
        MeterKernel::Window(from) => from.take_out(used.window_mut(), now, units),
        MeterKernel::Bucket(_) | MeterKernel::Heap(_) => from.refund(used, now, units),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WarmUp;
    use crate::kernel::Reading;
    use crate::limit::Limit;
    use crate::name::Name;

    const NOW: Micros = Micros::new(1_700_000_000_900_000);

    fn meter(words: &str) -> Meter {
        Meter::unnamed(words.parse::<Limit>().expect("a limit"))
    }

    fn charged(meter: &Meter, at: Micros, cost: u64) -> MeterState {
        let mut state = MeterState::Fresh;
        if cost > 0 {
            meter.kernel().charge(&mut state, at, cost);
        }
        state
    }

    fn bytes(meter: &Meter, state: &MeterState) -> Vec<u8> {
        let mut bytes = Vec::new();
        meter.kernel().encode(state, &mut bytes);
        bytes
    }

    #[test]
    fn a_limit_matters_as_long_as_it_remembers_and_a_second() {
        let warm_up = |over: u64| WarmUp::new(1, std::time::Duration::from_secs(over)).expect("a warm-up");
        let seconds = [
            (meter("10/min"), 120),
            (meter("10/min debt 0"), 60),
            (meter("10/min burst 20"), 240),
            (meter("fixed 10/min"), 120),
            (meter("sliding 10/min"), 120),
            (meter("sliding-log 10/min"), 60),
            (meter("10/min").warming_up(warm_up(30)), 150),
            (meter("10/min debt 0").warming_up(warm_up(59)), 119),
            (meter("fixed 10/min").warming_up(warm_up(119)), 120),
            (meter("fixed 10/min").warming_up(warm_up(121)), 121),
            (Meter::custom(Name::literal("own"), Generous), 86_400),
        ];
        for (meter, seconds) in seconds {
            assert_eq!(meter.horizon(), Micros::new((seconds + 1) * 1_000_000), "{meter:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn units_move_between_limits_of_different_kinds_as_far_as_they_fit() {
        let cases = [(0, 0, 0, 0), (0, 1, 1, 0), (0, 4, 4, 0), (3, 2, 5, 0), (3, 4, 5, 2), (5, 1, 5, 1), (5, 0, 5, 0)];
        for from in ["9/min", "fixed 9/min", "sliding 9/min", "sliding-log 9/min"].map(meter) {
            for to in ["5/h", "leaky 5/h", "fixed 5/h", "sliding 5/h", "sliding-log 5/h"].map(meter) {
                for (own, units, moved, left) in cases {
                    let words = format!("{units} of {from:?} to {own} of {to:?}");
                    let (mut state, mut used) = (charged(&to, NOW, own), charged(&from, NOW, units));
                    take_over(&to, &mut state, NOW, &from, &mut used);
                    let after = (to.kernel().used(&state, NOW), from.kernel().used(&used, NOW));
                    assert_eq!(after, (moved, left), "{words}");
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn migration_of_an_empty_state_changes_nothing() {
        let limits = ["9/min", "fixed 9/min", "sliding 9/min", "sliding-log 9/min"];
        for (from, to) in limits.iter().flat_map(|from| limits.map(|to| (meter(from), meter(to)))) {
            for own in [0, 9] {
                let (mut state, mut used) = (charged(&to, NOW, own), MeterState::Fresh);
                take_over(&to, &mut state, NOW, &from, &mut used);
                assert_eq!(bytes(&to, &state), bytes(&to, &charged(&to, NOW, own)), "{from:?} to {to:?}");
                assert_eq!(bytes(&from, &used), bytes(&from, &MeterState::Fresh), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn of_a_window_before_the_whole_units_move_that_count() {
        // Nine or nineteen in the last window, of which a tenth counts now.
        for (words, units) in [("sliding 9/s", 0), ("sliding 19/s", 1)] {
            let (from, to) = (meter(words), meter("5/h"));
            let mut used = charged(&from, Micros::new(NOW.get() - 1_000_000), from.capacity());
            let mut state = MeterState::Fresh;
            take_over(&to, &mut state, NOW, &from, &mut used);
            assert_eq!((to.kernel().used(&state, NOW), from.kernel().used(&used, NOW)), (units, 0), "{words}");
        }
    }

    #[test]
    fn what_the_last_window_has_no_room_for_counts_in_this_one() {
        // Of nine a tenth is less than a unit, of 29 it is two.
        for (words, units, moved, left) in [("sliding 9/s", 9, 0, Some(9)), ("sliding 29/s", 29, 2, None)] {
            let (from, to) = (meter(words), meter("sliding 5/s"));
            let in_the_last_window = Micros::new(NOW.get() - 1_000_000);
            let [mut state, mut used] =
                [charged(&to, in_the_last_window, 5), charged(&from, in_the_last_window, units)];
            take_over(&to, &mut state, NOW, &from, &mut used);
            let window = NOW.get() - NOW.get() % 1_000_000;
            assert_eq!(bytes(&to, &state), [window, moved, 5].map(u64::to_le_bytes).concat());
            let left = left.map_or([0; 3], |left| [window, 0, left]);
            assert_eq!(bytes(&from, &used), left.map(u64::to_le_bytes).concat());
        }
    }

    /// Says that more is left than it admits.
    struct Generous;

    impl Kernel for Generous {
        type State = u64;

        fn capacity(&self) -> u64 {
            5
        }

        fn admit(&self, _: &u64, _: Micros, _: u64) -> Admission {
            Admission::Wait { retry_after: Micros::new(1) }
        }

        fn charge(&self, state: &mut u64, now: Micros, cost: u64) -> Reading {
            *state += cost;
            self.read(state, now)
        }

        fn refund(&self, state: &mut u64, _: Micros, cost: u64) {
            *state -= cost.min(*state);
        }

        fn read(&self, state: &u64, _: Micros) -> Reading {
            Reading { remaining: 5_u64.saturating_sub(*state), reset_after: Micros::ZERO }
        }

        fn forget_at(&self, _: &u64) -> Micros {
            Micros::MAX
        }

        fn encode(&self, state: &u64, bytes: &mut Vec<u8>) {
            bytes.extend(state.to_le_bytes());
        }

        fn decode(&self, bytes: &[u8]) -> Option<u64> {
            bytes.try_into().ok().map(u64::from_le_bytes)
        }
    }

    #[test]
    fn nothing_moves_to_a_kernel_that_does_not_admit_it() {
        let (from, to) = (meter("9/min"), Meter::custom(Name::literal("own"), Generous));
        let (mut state, mut used) = (MeterState::Fresh, charged(&from, NOW, 3));
        take_over(&to, &mut state, NOW, &from, &mut used);
        assert_eq!((to.kernel().used(&state, NOW), from.kernel().used(&used, NOW)), (0, 3));
    }
}
