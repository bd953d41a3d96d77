"""Windows of the calendar: `crates/tidegate/src/kernel/window.rs`, the style `Calendar`.

Of the calendar nothing is known but that its periods follow each other: an instant lies in one of them, and two are the
same or do not overlap. How long they are is left open. `usual` is a length that some have.
"""

from collections import namedtuple

from z3 import And, If, Implies, Or

from lemma import lemma, less_or_zero

State = namedtuple("State", "start current")
Period = namedtuple("Period", "start end")


class ByCalendar:
    """A fixed window that is a period of the calendar."""

    def __init__(self, world):
        self.world = world
        self.count = world.int("count", 1)
        self.usual = world.int("usual", 1)
        self.periods = []

    def period_of(self, tick):
        """The period that a tick lies in."""
        number = len(self.periods)
        period = Period(self.world.int(f"start_{number}", 0), self.world.int(f"end_{number}"))
        self.world.assume(period.start <= tick, tick < period.end)
        for other in self.periods:
            same = And(other.start == period.start, other.end == period.end)
            self.world.assume(Or(same, other.end <= period.start, period.end <= other.start))
        self.periods.append(period)
        return period

    def state(self):
        """A period that was charged: it starts where one does."""
        start, current = self.world.int("start", 0), self.world.int("current", 0)
        self.world.assume(current <= self.count, self.period_of(start).start == start)
        return State(start, current)

    def is_over(self, state, tick):
        return Or(state.current == 0, state.start < self.period_of(tick).start)

    def view(self, state, tick):
        over = self.is_over(state, tick)
        return State(If(over, self.period_of(tick).start, state.start), If(over, 0, state.current))

    def admits(self, state, tick, cost):
        return self.view(state, tick).current + cost <= self.count

    def charge(self, state, tick, cost):
        view = self.view(state, tick)
        return State(view.start, view.current + cost)

    def first_tick_with_room(self, state, tick):
        return self.period_of(self.view(state, tick).start).end

    def forget_at(self, state):
        return If(state.current == 0, 0, self.period_of(state.start).end)

    def remaining(self, state, tick):
        return less_or_zero(self.count, self.view(state, tick).current)

    def accepts(self, given, now):
        """Whether the script decides by the period that it was given."""
        return And(given.start <= now, now < given.end)


class CountsBeforeItAdds(ByCalendar):
    """The comparison does not know of the cost."""

    def admits(self, state, tick, cost):
        return self.view(state, tick).current < self.count


class LastsAsLongAsUsual(ByCalendar):
    """A day of 25 hours is over after 24."""

    def is_over(self, state, tick):
        return Or(state.current == 0, less_or_zero(tick, state.start) >= self.usual)


class StartsAnewWhenTheClockGoesBack(ByCalendar):
    def is_over(self, state, tick):
        return Or(state.current == 0, state.start != self.period_of(tick).start)


class WaitsAsLongAsUsual(ByCalendar):
    """A month from its start, whatever its length."""

    def first_tick_with_room(self, state, tick):
        return self.view(state, tick).start + self.usual


class WaitsForThePeriodOfTheClock(ByCalendar):
    """A state that is ahead of the clock is taken to end when the clock's period does."""

    def first_tick_with_room(self, state, tick):
        return self.period_of(tick).end


class ForgetsAsUsual(ByCalendar):
    def forget_at(self, state):
        return If(state.current == 0, 0, state.start + self.usual)


class BelievesTheClient(ByCalendar):
    """The script takes the period that it is given."""

    def accepts(self, given, now):
        return given.start <= now


@lemma(ByCalendar, CountsBeforeItAdds)
def a_period_never_counts_more_than_its_limit(w, k):
    """Whatever is admitted, no period holds more than the count."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(k.admits(state, tick, cost))
    return k.charge(state, tick, cost).current <= k.count


@lemma(ByCalendar, LastsAsLongAsUsual)
def a_charge_of_this_period_is_added_to_it(w, k):
    """While a period lasts, however long it is, everything that is admitted in it is counted in it."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(state.current > 0, tick >= state.start, tick < k.period_of(state.start).end)
    after = k.charge(state, tick, cost)
    return And(after.start == state.start, after.current == state.current + cost)


@lemma(ByCalendar, LastsAsLongAsUsual)
def a_period_that_has_begun_owes_nothing_to_the_last(w, k):
    """From the first tick of another period on, nothing of the one before counts."""
    state, tick = k.state(), w.int("tick", 0)
    w.assume(tick >= k.period_of(state.start).end)
    return And(k.view(state, tick).current == 0, k.view(state, tick).start == k.period_of(tick).start)


@lemma(ByCalendar, StartsAnewWhenTheClockGoesBack)
def a_period_is_not_left_by_a_clock_that_goes_back(w, k):
    """A time before the period's start is taken for its start: nothing is forgotten by it."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(state.current > 0, tick < state.start, k.admits(state, tick, cost))
    return k.charge(state, tick, cost).current == state.current + cost


@lemma(ByCalendar, WaitsForThePeriodOfTheClock)
def a_request_that_returns_when_told_is_admitted_in_the_next_period(w, k):
    """At the promised instant, which is still to come, any cost that can ever pass does."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(cost <= k.count, k.view(state, tick).current + cost > k.count)
    ready = k.first_tick_with_room(state, tick)
    return And(ready > tick, k.admits(state, ready, cost))


@lemma(ByCalendar, WaitsAsLongAsUsual)
def a_request_that_returns_in_the_same_period_is_refused(w, k):
    """A tick before the promised instant the same request is still refused."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(cost <= k.count, k.view(state, tick).current + cost > k.count)
    ready = k.first_tick_with_room(state, tick)
    return k.view(state, ready - 1).current + cost > k.count


@lemma(ByCalendar, ForgetsAsUsual)
def a_period_whose_time_has_come_means_the_same_as_none(w, k):
    """From `forget_at` on a state counts nothing."""
    state, later = k.state(), w.int("later", 0)
    tick = k.forget_at(state) + later
    return Implies(tick >= 0, k.view(state, tick).current == 0)


@lemma(ByCalendar, BelievesTheClient)
def the_script_decides_by_the_period_of_the_servers_time(w, k):
    """Whatever instant a client took for the server's time: what is decided by its period is decided by the server's."""
    believed, now = w.int("believed", 0), w.int("now", 0)
    given = k.period_of(believed)
    w.assume(k.accepts(given, now))
    actual = k.period_of(now)
    return And(given.start == actual.start, given.end == actual.end)
