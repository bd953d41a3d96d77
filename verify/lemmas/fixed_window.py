"""Fixed windows: `crates/tidegate/src/kernel/window.rs`, the styles `FixedFromEpoch` and `FixedFromFirst`."""

from collections import namedtuple

from z3 import And, If, Implies, Or

from lemma import lemma, less_or_zero

State = namedtuple("State", "start current")


class FromEpoch:
    """Windows that start at multiples of the period."""

    def __init__(self, world):
        self.world = world
        self.count = world.int("count", 1)
        self.period = world.int("period", 1)
        self.ceiling = world.int("ceiling", 1)
        world.assume(self.ceiling >= self.count)

    def start_of_window(self, tick):
        return tick - self.world.div(tick, self.period)[1]

    def state(self):
        """A window that was charged: it starts where windows do."""
        start, current = self.world.int("start", 0), self.world.int("current", 0)
        self.world.assume(current <= self.ceiling, self.start_of_window(start) == start)
        return State(start, current)

    def is_over(self, state, tick):
        return Or(state.current == 0, less_or_zero(tick, state.start) >= self.period)

    def view(self, state, tick):
        over = self.is_over(state, tick)
        return State(If(over, self.start_of_window(tick), state.start), If(over, 0, state.current))

    def admits(self, state, tick, cost):
        return self.view(state, tick).current + cost <= self.count

    def charge(self, state, tick, cost):
        view = self.view(state, tick)
        return State(view.start, view.current + cost)

    def first_tick_with_room(self, state, tick):
        return self.view(state, tick).start + self.period

    def remaining(self, state, tick):
        return less_or_zero(self.count, self.view(state, tick).current)

    def forget_at(self, state):
        return If(state.current == 0, 0, state.start + self.period)

    def refund(self, state, tick, cost):
        view = self.view(state, tick)
        return State(view.start, less_or_zero(view.current, cost))


class FromFirst(FromEpoch):
    """Windows that start with their first request."""

    def start_of_window(self, tick):
        return tick

    def state(self):
        start, current = self.world.int("start", 0), self.world.int("current", 0)
        self.world.assume(current <= self.ceiling)
        return State(start, current)


class EndsATickEarly(FromEpoch):
    def is_over(self, state, tick):
        return Or(state.current == 0, less_or_zero(tick, state.start) >= self.period - 1)


class EndsATickEarlyFromFirst(FromFirst):
    is_over = EndsATickEarly.is_over


class CountsBeforeItAdds(FromEpoch):
    """The comparison does not know of the cost (the race of check and increment, without a race)."""

    def admits(self, state, tick, cost):
        return self.view(state, tick).current < self.count


class StartsAnewWhenTheClockGoesBack(FromEpoch):
    """A clock before the window's start begins another window."""

    def is_over(self, state, tick):
        return Or(state.current == 0, tick < state.start, tick - state.start >= self.period)


class WaitsFromNow(FromEpoch):
    """The wait is a whole period from now instead of the rest of the window."""

    def first_tick_with_room(self, state, tick):
        return tick + self.period


class WaitsATickLess(FromEpoch):
    def first_tick_with_room(self, state, tick):
        return super().first_tick_with_room(state, tick) - 1


class ForgetsTooSoon(FromEpoch):
    """A time to live that is shorter than the window (apache/apisix#12605)."""

    def forget_at(self, state):
        return super().forget_at(state) - 1


class RefundsWithoutEnd(FromEpoch):
    """More comes back than was taken: the count goes below zero."""

    def refund(self, state, tick, cost):
        view = self.view(state, tick)
        return State(view.start, view.current - cost)


@lemma(FromEpoch, CountsBeforeItAdds)
def a_window_never_counts_more_than_its_limit(w, k):
    """Whatever is admitted, no window holds more than the count."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(k.admits(state, tick, cost))
    return k.charge(state, tick, cost).current <= k.count


@lemma(FromEpoch, EndsATickEarly)
def a_charge_of_this_window_is_added_to_it(w, k):
    """While a window lasts, everything that is admitted in it is counted in it: its sum is what was admitted."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(state.current > 0, tick >= state.start, tick < state.start + k.period)
    after = k.charge(state, tick, cost)
    return And(after.start == state.start, after.current == state.current + cost)


@lemma(FromEpoch, StartsAnewWhenTheClockGoesBack)
def a_window_is_not_left_by_a_clock_that_goes_back(w, k):
    """A time before the window's start is taken for its start: nothing is forgotten by it."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(state.current > 0, tick < state.start, k.admits(state, tick, cost))
    return k.charge(state, tick, cost).current == state.current + cost


class AlignsToTheRequest(FromEpoch):
    def start_of_window(self, tick):
        return tick

    def state(self):
        start, current = self.world.int("start", 0), self.world.int("current", 0)
        self.world.assume(current <= self.count)
        return State(start, current)


@lemma(FromEpoch, AlignsToTheRequest)
def windows_start_at_multiples_of_the_period(w, k):
    """A window from the epoch contains the tick, and starts at a multiple of the period."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(tick >= state.start)
    after = k.charge(state, tick, cost)
    multiple = w.int("multiple")
    w.assume(multiple * k.period <= tick, tick < (multiple + 1) * k.period)
    return after.start == multiple * k.period


@lemma(FromFirst, EndsATickEarlyFromFirst)
def windows_from_the_first_request_do_not_overlap(w, k):
    """Where a charge starts another window, the one before is over: any two of them are a period apart at least."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(state.current > 0)
    after = k.charge(state, tick, cost)
    return Or(after.start == state.start, after.start >= state.start + k.period)


@lemma(FromEpoch, WaitsATickLess)
def admitted_after_retry_after(w, k):
    """At the promised instant, which is still to come, any cost that can ever pass does."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(cost <= k.count, state.current + cost > k.count, k.view(state, tick).current + cost > k.count)
    ready = k.first_tick_with_room(state, tick)
    return And(ready > tick, k.admits(state, ready, cost))


@lemma(FromEpoch, WaitsFromNow)
def refused_a_tick_before_retry_after(w, k):
    """A tick before the promised instant the same request is still refused."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(cost <= k.count, k.view(state, tick).current + cost > k.count)
    ready = k.first_tick_with_room(state, tick)
    return k.view(state, ready - 1).current + cost > k.count


@lemma(FromEpoch, ForgetsTooSoon)
def a_state_whose_time_has_come_means_the_same_as_none(w, k):
    """From `forget_at` on a window counts nothing."""
    state, later = k.state(), w.int("later", 0)
    tick = k.forget_at(state) + later
    return Implies(tick >= 0, k.view(state, tick).current == 0)


@lemma(FromEpoch, RefundsWithoutEnd)
def a_refund_gives_no_more_than_was_taken(w, k):
    """However much is given back, no more can remain than the limit is."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    after = k.refund(state, tick, cost)
    return And(after.current >= 0, k.remaining(after, tick) <= k.count)


class HoldsTwice(FromEpoch):
    def admits(self, state, tick, cost):
        return self.view(state, tick).current + cost <= 2 * self.count


@lemma(FromEpoch, HoldsTwice)
def as_many_windows_as_an_interval_touches(w, k):
    """An interval touches at most its length in periods, rounded up, and one window more; each holds at most the count."""
    start, length = w.int("start", 0), w.int("length", 0)
    first, last = w.div(start, k.period)[0], w.div(start + length, k.period)[0]
    touched = last - first + 1
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(k.admits(state, tick, cost))
    in_one = k.charge(state, tick, cost).current
    return And(touched <= w.div_ceil(length, k.period) + 1, in_one <= k.count)
