"""Token bucket and leaky bucket: `crates/tidegate/src/kernel/bucket.rs`.

A tick drains `drain` of the level, a unit of cost adds `scale` to it, and `full` is the level of a full bucket. What is kept
is when the bucket will be empty: at `at + fraction / drain` ticks. `empty_at` is the same instant as one number.
"""

from collections import namedtuple

from z3 import And, If, Not

from lemma import lemma, less_or_zero, most

State = namedtuple("State", "at fraction")


class Bucket:
    def __init__(self, world):
        self.world = world
        self.drain = world.int("drain", 1)
        self.scale = world.int("scale", 1)
        self.full = world.int("full", 1)
        self.ceiling = world.int("ceiling", 1)
        world.assume(self.ceiling >= self.full)
        self._horizon = world.div_ceil(self.full, self.drain)
        self._reach = world.div_ceil(self.ceiling, self.drain)

    def state(self, name="state"):
        """Any state that `Bucket::state` takes."""
        at, fraction = self.world.int(f"{name}.at", 0), self.world.int(f"{name}.fraction", 0)
        self.world.assume(fraction < self.drain)
        return State(at, fraction)

    def level(self, state, tick):
        """What is in it; above `full` if the clock went back, which `level()` answers by `None`."""
        return If(state.at < tick, 0, (state.at - tick) * self.drain + state.fraction)

    def admits(self, state, tick, added):
        return self.level(state, tick) + added <= self.full

    def with_level(self, level, tick):
        whole, fraction = self.world.div(level, self.drain)
        return State(tick + whole, fraction)

    def charge(self, state, tick, added):
        return self.with_level(self.level(state, tick) + added, tick)

    def refund(self, state, tick, cost):
        whole, fraction = self.world.div(cost, self.drain)
        borrow = If(fraction > state.fraction, 1, 0)
        at = state.at - whole - borrow
        rest = state.fraction + borrow * self.drain - fraction
        return State(
            If(at >= tick, at, If(state.at >= tick, tick, state.at)),
            If(at >= tick, rest, If(state.at >= tick, 0, state.fraction)),
        )

    def first_tick_with_room(self, state, added):
        room = self.full - added
        ticks, _ = self.world.div(most(room - state.fraction, 0), self.drain)
        return If(room >= state.fraction, state.at - ticks, state.at + 1)

    def remaining(self, state, tick):
        units, _ = self.world.div(self.full - self.level(state, tick), self.scale)
        return units

    def forget_at(self, state):
        return state.at + If(state.fraction > 0, 1, 0)

    def empty_at(self, state):
        """When it will be empty, in parts of a tick of which there are `drain`."""
        return state.at * self.drain + state.fraction

    def horizon(self):
        return self._horizon

    def reach(self):
        """Ticks in which the highest level of a bucket in debt drains."""
        return self._reach

    def leaves_at(self, state, tick):
        """When a leaky bucket lets a request go that is admitted now."""
        return tick + self.world.div_ceil(self.level(state, tick), self.drain)

    def is_from_the_future(self, state, tick):
        """Further ahead than debt reaches and a grace, which is the horizon or more."""
        grace = self.world.int("grace", 0)
        self.world.assume(grace >= self.horizon())
        return state.at > tick + self.reach() + grace

    def healed(self, tick):
        return self.with_level(self.full, tick)


# The defects, each of which a real limiter had.


class DropsTheFraction(Bucket):
    """What is left of a tick is lost with every charge (apache/polaris#3433 and others)."""

    def with_level(self, level, tick):
        return State(super().with_level(level, tick).at, 0)


class EmptiesATickEarly(Bucket):
    def level(self, state, tick):
        return If(state.at <= tick, 0, (state.at - tick) * self.drain + state.fraction)


class GoesByTheCallersTime(Bucket):
    """A reading of the clock that arrives late moves the state back (golang/go#71360)."""

    def charge(self, state, tick, added):
        return self.with_level(added, tick)


class AdmitsOneTooMany(Bucket):
    """One more after a long time without use (boinkor-net/governor#249)."""

    def admits(self, state, tick, added):
        return self.level(state, tick) <= self.full


class RoundsTheWaitDown(Bucket):
    """A retry after `retry_after` is refused again (brandur/redis-cell#56)."""

    def first_tick_with_room(self, state, added):
        return super().first_tick_with_room(state, added) - 1


class WaitsForTheWholeBurst(Bucket):
    """The wait does not know of what is there already (antifuchs/ratelimit_meter#36)."""

    def first_tick_with_room(self, state, added):
        return self.forget_at(state)


class RoundsRemainingUp(Bucket):
    def remaining(self, state, tick):
        return self.world.div_ceil(self.full - self.level(state, tick), self.scale)


class RefundsToZero(Bucket):
    """A refund empties the bucket (golang/go#56924: too many tokens come back)."""

    def refund(self, state, tick, cost):
        return State(0, 0)


class RefundsFromThePast(Bucket):
    """A refund of what has drained away long ago takes the instant back before now."""

    def refund(self, state, tick, cost):
        return State(state.at - self.world.div_ceil(cost, self.drain), 0)


class ForgetsTheBeginningOfATick(Bucket):
    def forget_at(self, state):
        return state.at


class LeavesWithoutWaiting(Bucket):
    def leaves_at(self, state, tick):
        whole, _ = self.world.div(self.level(state, tick), self.drain)
        return tick + whole


# The lemmas.


@lemma(Bucket, DropsTheFraction)
def a_charge_adds_exactly_its_cost(w, b):
    """The level after a charge is the level before it and the cost: nothing is rounded."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 0)
    return b.level(b.charge(state, tick, added), tick) == b.level(state, tick) + added


@lemma(Bucket, EmptiesATickEarly)
def a_tick_drains_exactly_its_share(w, b):
    """However often it is read, the level falls by `drain` a tick, until it is zero."""
    state, tick, later = b.state(), w.int("tick", 0), w.int("later", 0)
    return b.level(state, tick + later) == less_or_zero(b.level(state, tick), later * b.drain)


@lemma(Bucket, AdmitsOneTooMany)
def what_is_admitted_fits(w, b):
    """A bucket into which a charge was admitted is at most full."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 0)
    w.assume(b.admits(state, tick, added))
    return b.level(b.charge(state, tick, added), tick) <= b.full


@lemma(Bucket, GoesByTheCallersTime)
def a_charge_moves_the_instant_on_whatever_the_clock_says(w, b):
    """The instant at which the bucket is empty moves on by the cost at least, in any order of clock readings."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 0)
    return b.empty_at(b.charge(state, tick, added)) >= b.empty_at(state) + added


@lemma(Bucket, DropsTheFraction)
def the_first_charge_opens_the_account(w, b):
    """After a charge at `first` the bucket is empty no sooner than the cost takes to drain from then on."""
    state, first, added = b.state(), w.int("first", 0), w.int("added", 0)
    return b.empty_at(b.charge(state, first, added)) >= first * b.drain + added


@lemma(Bucket, AdmitsOneTooMany)
def the_account_bounds_what_is_admitted_in_every_interval(w, b):
    """With `sum` charged since `first`, an admission keeps the account and sum <= burst + rate x time, exactly.

    By induction this is the promise for every interval that begins and ends with an admission, and so for every interval.
    """
    state, first, now, added = b.state(), w.int("first", 0), w.int("now", 0), w.int("added", 0)
    charged = w.int("sum", 0)
    w.assume(b.empty_at(state) >= first * b.drain + charged, b.admits(state, now, added))
    after = b.charge(state, now, added)
    account = b.empty_at(after) >= first * b.drain + charged + added
    return And(account, charged + added <= b.full + (now - first) * b.drain)


@lemma(Bucket, RefundsToZero)
def a_refund_takes_no_more_from_the_account_than_its_cost(w, b):
    """A refund moves the instant back by its cost at most, so that the bound holds for what was not refunded."""
    state, tick, cost = b.state(), w.int("tick", 0), w.int("cost", 0)
    return b.empty_at(b.refund(state, tick, cost)) >= b.empty_at(state) - cost


@lemma(Bucket, RefundsFromThePast)
def a_refund_at_once_is_as_if_never_charged(w, b):
    """A charge that is refunded leaves every later decision as it would have been."""
    state, tick, cost, later = b.state(), w.int("tick", 0), w.int("cost", 0), w.int("later", 0)
    after = b.refund(b.charge(state, tick, cost), tick, cost)
    return b.level(after, tick + later) == b.level(state, tick + later)


@lemma(Bucket, EmptiesATickEarly)
def a_refund_leaves_what_it_does_not_take(w, b):
    """The level after a refund is the level before it less the cost, or nothing."""
    state, tick, cost = b.state(), w.int("tick", 0), w.int("cost", 0)
    return b.level(b.refund(state, tick, cost), tick) == less_or_zero(b.level(state, tick), cost)


class TakesTimeForACost(Bucket):
    """Admission gets worse while time passes, as if the clock charged something."""

    def level(self, state, tick):
        return (state.at + tick) * self.drain


@lemma(Bucket, TakesTimeForACost)
def what_could_pass_can_pass_later(w, b):
    """With nothing charged, a request that may pass now may pass at every later time."""
    state, tick, added, later = b.state(), w.int("tick", 0), w.int("added", 0), w.int("later", 0)
    w.assume(b.admits(state, tick, added))
    return b.admits(state, tick + later, added)


class StartsAnewWhenTheClockGoesBack(Bucket):
    """A time before the state's own is taken for a new key's (sethvargo/go-limiter#41)."""

    def admits(self, state, tick, added):
        return If(state.at - tick > self.horizon(), added <= self.full, super().admits(state, tick, added))


@lemma(Bucket, StartsAnewWhenTheClockGoesBack)
def a_clock_that_goes_back_grants_nothing(w, b):
    """A request that passes by a clock that went back would have passed by the clock as it was."""
    state, tick, added, back = b.state(), w.int("tick", 0), w.int("added", 1), w.int("back", 0)
    w.assume(b.admits(state, tick - back, added))
    return b.admits(state, tick, added)


def _refused(w, b):
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 1)
    w.assume(added <= b.full, b.level(state, tick) + added > b.full)
    return state, tick, added, b.first_tick_with_room(state, added)


class SaysZero(Bucket):
    """`Retry-After: 0` with a refusal (benwis/tower-governor#65)."""

    def first_tick_with_room(self, state, added):
        return state.at - self.world.div_ceil(self.full - added, self.drain) - 1


@lemma(Bucket, SaysZero)
def a_wait_is_never_zero(w, b):
    """A refused request is told an instant that is still to come."""
    _, tick, _, ready = _refused(w, b)
    return ready > tick


@lemma(Bucket, RoundsTheWaitDown)
def admitted_after_retry_after(w, b):
    """At the promised instant the same request passes, if nothing was charged meanwhile."""
    state, _, added, ready = _refused(w, b)
    return b.admits(state, ready, added)


@lemma(Bucket, WaitsForTheWholeBurst)
def refused_a_tick_before_retry_after(w, b):
    """A tick before the promised instant the same request is still refused."""
    state, _, added, ready = _refused(w, b)
    return b.level(state, ready - 1) + added > b.full


@lemma(Bucket, RoundsRemainingUp)
def remaining_is_the_largest_cost_that_passes(w, b):
    """So many units pass at this instant as are said to remain, and not one more."""
    state, tick = b.state(), w.int("tick", 0)
    w.assume(b.level(state, tick) <= b.full)
    remaining = b.remaining(state, tick)
    return And(
        b.level(state, tick) + remaining * b.scale <= b.full,
        b.level(state, tick) + (remaining + 1) * b.scale > b.full,
    )


@lemma(Bucket, DropsTheFraction)
def two_charges_at_once_are_one_of_both_costs(w, b):
    """Charges of one instant can be put together: a batch decides as its parts would."""
    state, tick, one, other = b.state(), w.int("tick", 0), w.int("one", 0), w.int("other", 0)
    apart = b.charge(b.charge(state, tick, one), tick, other)
    together = b.charge(state, tick, one + other)
    return b.empty_at(apart) == b.empty_at(together)


@lemma(Bucket, ForgetsTheBeginningOfATick)
def a_state_whose_time_has_come_means_the_same_as_none(w, b):
    """From `forget_at` on a state has the level of a key that was never seen."""
    state, later = b.state(), w.int("later", 0)
    return b.level(state, b.forget_at(state) + later) == 0


class GuardsTooSoon(Bucket):
    """The level is taken for full at a distance from which it may have room."""

    def horizon(self):
        whole, _ = self.world.div(self.full, self.drain)
        return whole - 1


@lemma(Bucket, GuardsTooSoon)
def a_state_beyond_the_horizon_is_above_full(w, b):
    """The comparison that keeps products small answers as the product would have."""
    state, tick = b.state(), w.int("tick", 0)
    w.assume(state.at - tick > b.horizon())
    return b.level(state, tick) > b.full


class CountsTwoTicksMore(Bucket):
    def horizon(self):
        return self._horizon + 2


@lemma(Bucket, CountsTwoTicksMore)
def no_level_is_larger_than_what_was_checked_when_the_limit_was_made(w, b):
    """A level within the horizon is below full + 2 x drain, which is below 2^53 for every limit that can be made.
    With the ceiling for full it is the same sentence of a bucket in debt."""
    state, tick = b.state(), w.int("tick", 0)
    w.assume(state.at >= tick, state.at - tick <= b.horizon())
    return b.level(state, tick) < b.full + 2 * b.drain


@lemma(Bucket, LeavesWithoutWaiting)
def a_leaky_bucket_releases_no_request_before_its_slot(w, b):
    """Two requests of which the second comes later leave at least the first one's cost apart, but for one rounding up."""
    state, first, later, one = b.state(), w.int("first", 0), w.int("later", 0), w.int("one", 1)
    after = b.charge(state, first, one)
    leaves, follows = b.leaves_at(state, first), b.leaves_at(after, first + later)
    slot = first * b.drain + b.level(state, first)
    return And(leaves * b.drain >= slot, leaves * b.drain < slot + b.drain, follows * b.drain >= slot + one)




class HealsToEmpty(Bucket):
    """A state that is taken for nonsense is forgotten: a caller that can move the clock is unlimited."""

    def healed(self, tick):
        return State(0, 0)


@lemma(Bucket, HealsToEmpty)
def a_healed_state_is_full(w, b):
    """A state from the future becomes the full state: it grants nothing at once, and is empty within one horizon."""
    tick = w.int("tick", 0)
    healed = b.healed(tick)
    return And(b.level(healed, tick) == b.full, b.level(healed, tick + b.horizon()) == 0)


class HealsWithinTheHorizon(Bucket):
    def is_from_the_future(self, state, tick):
        return state.at > tick + self.horizon() - 1


@lemma(Bucket, HealsWithinTheHorizon)
def a_state_that_this_clock_wrote_is_not_healed(w, b):
    """Whatever was admitted at an instant that is not after now lies within the horizon, and stays as it is."""
    state, tick, later, added = b.state(), w.int("tick", 0), w.int("later", 0), w.int("added", 1)
    w.assume(b.admits(state, tick, added))
    return Not(b.is_from_the_future(b.charge(state, tick, added), tick + later))
