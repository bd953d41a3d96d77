"""Sliding counter: `crates/tidegate/src/kernel/window.rs`, the style `Sliding`.

The previous window counts by how much of it the last period still covers; the comparison is multiplied out.
"""

from collections import namedtuple

from z3 import And, If, Implies, Or

from lemma import lemma, less_or_zero

State = namedtuple("State", "start current previous")
View = namedtuple("View", "start current previous elapsed")


class Sliding:
    def __init__(self, world):
        self.world = world
        self.count = world.int("count", 1)
        self.period = world.int("period", 1)

    def state(self):
        """Windows that were charged: they start where windows do."""
        number = self.world.int("number", 0)
        current, previous = self.world.int("current", 0), self.world.int("previous", 0)
        self.world.assume(current <= self.count, previous <= self.count)
        return State(number * self.period, current, previous)

    def view(self, state, tick):
        """The state brought up to a tick; a clock that is behind finds the window just begun."""
        age = less_or_zero(tick, state.start)
        used = Or(state.current > 0, state.previous > 0)
        this = tick - self.world.div(tick, self.period)[1]
        stays = And(used, age < self.period)
        return View(
            If(stays, state.start, this),
            If(stays, state.current, 0),
            If(stays, state.previous, If(age < 2 * self.period, state.current, 0)),
            If(stays, age, tick - this),
        )

    def weight(self, view, cost):
        return view.previous * (self.period - view.elapsed) + (view.current + cost) * self.period

    def admits(self, state, tick, cost):
        return self.weight(self.view(state, tick), cost) <= self.count * self.period

    def most_of_a_window(self):
        return self.count

    def first_tick_with_room(self, view, cost):
        following = view.start + self.period
        here = self.world.div((self.count - view.current - cost) * self.period, If(view.previous > 0, view.previous, 1))
        there = self.world.div((self.count - cost) * self.period, If(view.current > 0, view.current, 1))
        return If(view.current + cost <= self.count, following - here[0], following + self.period - there[0])

    def remaining(self, view):
        room = less_or_zero(self.count * self.period, self.weight(view, 0))
        return self.world.div(room, self.period)[0]

    def forget_at(self, state):
        windows = If(state.current > 0, 2, 1)
        return If(And(state.current == 0, state.previous == 0), 0, state.start + windows * self.period)


class WeighsTheWrongWay(Sliding):
    """The previous window counts by what has passed of it, not by what is left (upstash/ratelimit-js#61)."""

    def weight(self, view, cost):
        return view.previous * view.elapsed + (view.current + cost) * self.period


class ForgetsThePreviousWindow(Sliding):
    """A fixed window in all but name."""

    def weight(self, view, cost):
        return (view.current + cost) * self.period


class WaitsATickLess(Sliding):
    def first_tick_with_room(self, view, cost):
        return super().first_tick_with_room(view, cost) - 1


class WaitsForTheEdge(Sliding):
    """Whoever is refused waits for the next window, room or not."""

    def first_tick_with_room(self, view, cost):
        return view.start + 2 * self.period


class ForgetsWithTheWindow(Sliding):
    """The state is dropped when its own window ends, though it counts in the next one."""

    def forget_at(self, state):
        return state.start + self.period


class IgnoresThePreviousInRemaining(Sliding):
    """What remains does not know of the weighted window (upstash/ratelimit-js#61)."""

    def remaining(self, view):
        return self.count - view.current


@lemma(Sliding, WeighsTheWrongWay)
def what_could_pass_can_pass_later(w, k):
    """With nothing charged, whoever may pass now may pass at every later time, also beyond the edge."""
    state, tick, later, cost = k.state(), w.int("tick", 0), w.int("later", 0), w.int("cost", 1)
    w.assume(tick >= state.start, k.admits(state, tick, cost))
    return k.admits(state, tick + later, cost)


class StartsAnewWhenTheClockGoesBack(Sliding):
    def view(self, state, tick):
        view = super().view(state, tick)
        behind = tick < state.start
        return View(view.start, If(behind, 0, view.current), If(behind, 0, view.previous), view.elapsed)


@lemma(Sliding, StartsAnewWhenTheClockGoesBack)
def a_clock_that_goes_back_grants_nothing(w, k):
    """Whoever passes at a time before the window's start passes at its start."""
    state, back, cost = k.state(), w.int("back", 0), w.int("cost", 1)
    w.assume(state.current > 0, state.start - back >= 0, k.admits(state, state.start - back, cost))
    return k.admits(state, state.start, cost)


def _refused(w, k):
    """A view of a tick, of any state, in which a cost that can ever pass does not."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    cost = w.int("cost", 1)
    w.assume(view.current <= k.count, view.previous <= k.count, view.elapsed < k.period, cost <= k.count)
    w.assume(k.weight(view, cost) > k.count * k.period)
    return view, cost, k.first_tick_with_room(view, cost)


def _view_later(k, view, tick):
    """The view of a later tick, in this window or the next, or of the tick at which the next one ends."""
    following = view.start + k.period
    return View(
        If(tick < following, view.start, If(tick < following + k.period, following, following + k.period)),
        If(tick < following, view.current, 0),
        If(tick < following, view.previous, If(tick < following + k.period, view.current, 0)),
        If(tick < following, tick - view.start,
           If(tick < following + k.period, tick - following, tick - following - k.period)),
    )


@lemma(Sliding, WaitsATickLess)
def whoever_returns_when_told_is_admitted(w, k):
    """At the promised instant, in this window or the next, the same request passes."""
    view, cost, ready = _refused(w, k)
    return And(
        ready > view.start + view.elapsed,
        ready <= view.start + 2 * k.period,
        k.weight(_view_later(k, view, ready), cost) <= k.count * k.period,
    )


@lemma(Sliding, WaitsForTheEdge)
def whoever_returns_a_tick_sooner_is_refused(w, k):
    """A tick before the promised instant the same request is still refused."""
    view, cost, ready = _refused(w, k)
    return k.weight(_view_later(k, view, ready - 1), cost) > k.count * k.period


@lemma(Sliding, IgnoresThePreviousInRemaining)
def remaining_is_the_largest_cost_that_passes(w, k):
    """So many units pass at this instant as are said to remain, and not one more."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    w.assume(view.elapsed < k.period, k.weight(view, 0) <= k.count * k.period)
    remaining = k.remaining(view)
    most = k.count * k.period
    return And(k.weight(view, remaining) <= most, k.weight(view, remaining + 1) > most)


@lemma(Sliding, ForgetsWithTheWindow)
def a_state_whose_time_has_come_means_the_same_as_none(w, k):
    """From `forget_at` on neither window counts."""
    state, later = k.state(), w.int("later", 0)
    view = k.view(state, k.forget_at(state) + later)
    return And(view.current == 0, view.previous == 0)


@lemma(Sliding, ForgetsThePreviousWindow)
def across_an_edge_no_more_passes_than_the_limit_and_the_rate(w, k):
    """Of an interval over one edge: admitted <= count + count x time / period, as of a token bucket.

    `before` of the previous window fall into the interval, which ends with an admission.
    """
    total, before, current = w.int("previous", 0), w.int("before", 0), w.int("current", 1)
    begins, elapsed = w.int("begins", 0), w.int("elapsed", 0)
    w.assume(before <= total, total <= k.count, begins <= k.period, elapsed < k.period)
    w.assume(k.weight(View(0, current - 1, total, elapsed), 1) <= k.count * k.period)
    length = k.period - begins + elapsed
    return (before + current) * k.period <= k.count * k.period + k.count * length


class CountsAWindowTwice(Sliding):
    def most_of_a_window(self):
        return 2 * self.count


@lemma(Sliding, CountsAWindowTwice)
def a_window_more_adds_no_more_than_its_share(w, k):
    """A whole window before an interval that is within the bound leaves it within the bound: so all longer ones are."""
    admitted, length, more = w.int("admitted", 0), w.int("length", 0), w.int("more", 0)
    w.assume(more <= k.most_of_a_window())
    w.assume(admitted * k.period <= k.count * k.period + k.count * length)
    return (admitted + more) * k.period <= k.count * k.period + k.count * (length + k.period)


@lemma(Sliding, WeighsTheWrongWay)
def a_window_never_counts_more_than_its_limit(w, k):
    """Every aligned window holds at most the count, whatever came before it."""
    current, previous, elapsed, cost = w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0), w.int("cost", 1)
    w.assume(elapsed < k.period, k.weight(View(0, current, previous, elapsed), cost) <= k.count * k.period)
    # With nothing of the window passed the previous one counts whole: the two together are within the count.
    return And(current + cost <= k.count, Implies(elapsed == 0, previous + current + cost <= k.count))
