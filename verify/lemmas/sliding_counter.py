"""Sliding counter: `crates/tidegate/src/kernel/window.rs`, the style `Sliding`.

The previous window counts by how much of it the last period still covers, rounded down; the comparison is multiplied out.
"""

from collections import namedtuple

from z3 import And, If, Implies, Not, Or

from lemma import lemma, less_or_zero

State = namedtuple("State", "start current previous")
View = namedtuple("View", "start current previous elapsed")


class Sliding:
    def __init__(self, world):
        self.world = world
        self.count = world.int("count", 1)
        self.ceiling = world.int("ceiling", 1)
        world.assume(self.ceiling >= self.count)
        self.period = world.int("period", 1)

    def state(self):
        """Windows that were charged: they start where windows do."""
        number = self.world.int("number", 0)
        current, previous = self.world.int("current", 0), self.world.int("previous", 0)
        self.world.assume(current <= self.ceiling, previous <= self.ceiling)
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

    def fits(self, view, cost):
        return self.weight(view, cost) < (self.count + 1) * self.period

    def admits(self, state, tick, cost):
        return self.fits(self.view(state, tick), cost)

    def most_of_a_window(self):
        return self.count

    def checked(self):
        """What `Window::new` keeps below 2^53."""
        return 4 * self.count * self.period

    def falls_below(self, start, previous, units):
        """The first tick of the window from `start` at which fewer units of the previous one count; at its end none does."""
        return start + self.period - self.world.div(units * self.period - 1, If(previous > 0, previous, 1))[0]

    def first_tick_with_room(self, view, cost):
        here = self.falls_below(view.start, view.previous, self.count + 1 - view.current - cost)
        there = self.falls_below(view.start + self.period, view.current, self.count + 1 - cost)
        return If(view.current + cost <= self.count, here, there)

    def remaining(self, view):
        room = less_or_zero((self.count + 1) * self.period - 1, self.weight(view, 0))
        return self.world.div(room, self.period)[0]

    def reset_at(self, state):
        later = self.falls_below(state.start + self.period, state.current, 1)
        sooner = self.falls_below(state.start, state.previous, 1)
        return If(state.current > 0, later, sooner)

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


class RoundsUp(Sliding):
    """A part of a unit counts as a whole one: of a count of 1 every second window stays empty."""

    def fits(self, view, cost):
        return self.weight(view, cost) <= self.count * self.period


class AdmitsOneMore(Sliding):
    """`<=` for `<` in the comparison."""

    def fits(self, view, cost):
        return self.weight(view, cost) <= (self.count + 1) * self.period


class WaitsATickLess(Sliding):
    def first_tick_with_room(self, view, cost):
        return super().first_tick_with_room(view, cost) - 1


class WaitsForTheEdge(Sliding):
    """A refused request waits for the next window, room or not."""

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


def _view_later(k, view, tick):
    """The view of a later tick, in this window or the next, or after both."""
    following = view.start + k.period
    return View(
        If(tick < following, view.start, If(tick < following + k.period, following, following + k.period)),
        If(tick < following, view.current, 0),
        If(tick < following, view.previous, If(tick < following + k.period, view.current, 0)),
        If(tick < following, tick - view.start,
           If(tick < following + k.period, tick - following, tick - following - k.period)),
    )


@lemma(Sliding, RoundsUp)
def the_comparison_is_that_of_the_rounded_share(w, k):
    """A cost passes if and only if floor(previous x (period - elapsed) / period) + current + cost <= count."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    cost = w.int("cost", 0)
    w.assume(view.elapsed < k.period)
    share, _ = w.div(view.previous * (k.period - view.elapsed), k.period)
    return k.fits(view, cost) == (share + view.current + cost <= k.count)


class KeepsTheFormerPrevious(Sliding):
    """The window before the last counts on when the next one begins."""

    def view(self, state, tick):
        view = super().view(state, tick)
        return view._replace(previous=If(tick < state.start + 2 * self.period, state.previous, 0))


@lemma(Sliding, KeepsTheFormerPrevious)
def windows_follow_each_other(w, k):
    """What counts at a later tick: this window and the last; then the last and a new one; then nothing."""
    state, later = k.state(), w.int("later", 0)
    w.assume(Or(state.current > 0, state.previous > 0))
    tick = state.start + later
    # How many windows ahead the tick is. It assumes nothing: `q * p - n * p` is `(q - n) * p`, which Z3 does not try.
    ahead, window = w.int("ahead"), w.div(tick, k.period)[0]
    w.assume(ahead == window - w.int("number"), window * k.period - state.start == ahead * k.period)
    seen, expected = k.view(state, tick), _view_later(k, View(*state, 0), tick)
    counts = Or(expected.current > 0, expected.previous > 0)
    return And(
        seen.current == expected.current,
        seen.previous == expected.previous,
        Implies(counts, And(seen.start == expected.start, seen.elapsed == expected.elapsed)),
    )


@lemma(Sliding, WeighsTheWrongWay)
def what_could_pass_can_pass_later(w, k):
    """With nothing charged, a cost that passes now passes at every later time, also beyond the edge."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    later, cost = w.int("later", 0), w.int("cost", 1)
    w.assume(view.elapsed < k.period, k.fits(view, cost))
    return k.fits(_view_later(k, view, view.start + view.elapsed + later), cost)


class StartsAnewWhenTheClockGoesBack(Sliding):
    def view(self, state, tick):
        view = super().view(state, tick)
        behind = tick < state.start
        return View(view.start, If(behind, 0, view.current), If(behind, 0, view.previous), view.elapsed)


@lemma(Sliding, StartsAnewWhenTheClockGoesBack)
def a_clock_that_goes_back_grants_nothing(w, k):
    """A request that passes before the window's start passes at its start."""
    state, back, cost = k.state(), w.int("back", 0), w.int("cost", 1)
    w.assume(state.current > 0, state.start - back >= 0, k.admits(state, state.start - back, cost))
    return k.admits(state, state.start, cost)


def _refused(w, k):
    """A view of a tick, of any state, in which a cost that can ever pass does not."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    cost = w.int("cost", 1)
    w.assume(view.current <= k.count, view.previous <= k.count, view.elapsed < k.period, cost <= k.count)
    w.assume(Not(k.fits(view, cost)))
    return view, cost, k.first_tick_with_room(view, cost)


@lemma(Sliding, WaitsATickLess)
def admitted_after_retry_after(w, k):
    """At the promised instant, in this window or the next, the same request passes."""
    view, cost, ready = _refused(w, k)
    return And(
        ready > view.start + view.elapsed,
        ready <= view.start + 2 * k.period,
        k.fits(_view_later(k, view, ready), cost),
    )


@lemma(Sliding, WaitsForTheEdge)
def refused_a_tick_before_retry_after(w, k):
    """A tick before the promised instant the same request is still refused."""
    view, cost, ready = _refused(w, k)
    return Not(k.fits(_view_later(k, view, ready - 1), cost))


@lemma(Sliding, IgnoresThePreviousInRemaining)
def remaining_is_the_largest_cost_that_passes(w, k):
    """So many units pass at this instant as are said to remain, and not one more."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    w.assume(view.elapsed < k.period, k.fits(view, 0))
    remaining = k.remaining(view)
    return And(k.fits(view, remaining), Not(k.fits(view, remaining + 1)))


@lemma(Sliding, ForgetsWithTheWindow)
def a_state_whose_time_has_come_means_the_same_as_none(w, k):
    """From `forget_at` on neither window counts."""
    state, later = k.state(), w.int("later", 0)
    view = k.view(state, k.forget_at(state) + later)
    return And(view.current == 0, view.previous == 0)


class ResetsWithTheWindow(Sliding):
    """The state is as if never used when its own window ends."""

    def reset_at(self, state):
        return state.start + self.period


class ResetsAtTheEdge(Sliding):
    """The state is as if never used when its windows have passed, though no whole unit of it counts from sooner on."""

    def reset_at(self, state):
        return state.start + If(state.current > 0, 2, 1) * self.period


def _counts(k, view):
    """Whether a whole unit counts."""
    return Or(view.current > 0, view.previous * (k.period - view.elapsed) >= k.period)


@lemma(Sliding, ResetsWithTheWindow)
def nothing_counts_after_the_reset(w, k):
    """From `reset_at` on no whole unit counts: every cost passes that passes for a key never seen."""
    state, later = k.state(), w.int("later", 0)
    w.assume(Or(state.current > 0, state.previous > 0))
    return Not(_counts(k, _view_later(k, View(*state, 0), k.reset_at(state) + later)))


@lemma(Sliding, ResetsAtTheEdge)
def something_counts_until_the_reset(w, k):
    """A tick before `reset_at` a whole unit still counts."""
    state = k.state()
    w.assume(Or(state.current > 0, state.previous > 0))
    return _counts(k, _view_later(k, View(*state, 0), k.reset_at(state) - 1))


def _within_the_bound(k, admitted, length):
    """admitted <= count + ceil(count x (length - 1) / period), for a length of a tick or more."""
    return (admitted - k.count) * k.period < k.count * (length - 1) + k.period


@lemma(Sliding, ForgetsThePreviousWindow)
def across_an_edge_no_more_passes_than_the_limit_and_the_rate(w, k):
    """Of an interval over one edge: admitted <= count + ceil(count x (time - 1) / period).

    `before` of the previous window fall into the interval, which ends with an admission.
    """
    total, before, current = w.int("previous", 0), w.int("before", 0), w.int("current", 1)
    begins, elapsed = w.int("begins", 0), w.int("elapsed", 0)
    w.assume(before <= total, total <= k.count, begins < k.period, elapsed < k.period)
    w.assume(k.fits(View(0, current - 1, total, elapsed), 1))
    return _within_the_bound(k, before + current, k.period - begins + elapsed)


class CountsAWindowTwice(Sliding):
    def most_of_a_window(self):
        return 2 * self.count


@lemma(Sliding, CountsAWindowTwice)
def a_window_more_adds_no_more_than_its_share(w, k):
    """A whole window before an interval that is within the bound leaves it within the bound: so all longer ones are."""
    admitted, length, more = w.int("admitted", 0), w.int("length", 1), w.int("more", 0)
    w.assume(more <= k.most_of_a_window(), _within_the_bound(k, admitted, length))
    return _within_the_bound(k, admitted + more, length + k.period)


@lemma(Sliding, RoundsUp)
def the_bound_across_an_edge_is_met(w, k):
    """After `count` in the last tick of a window, every unit of the next that is within the bound passes: the bound is tight.

    The interval begins a tick before the edge.
    """
    elapsed, current = w.int("elapsed", 0), w.int("current", 1)
    w.assume(elapsed < k.period, _within_the_bound(k, k.count + current, elapsed + 1))
    return k.fits(View(0, current - 1, k.count, elapsed), 1)


@lemma(Sliding, RoundsUp)
def under_pressure_every_window_gets_its_count(w, k):
    """By its last tick a window has room for the whole count, whatever was in the one before: no less than the rate passes.

    As long as a unit of the rate takes more than a tick.
    """
    previous = w.int("previous", 0, k.count)
    w.assume(k.count < k.period)
    return k.fits(View(0, k.count - 1, previous, k.period - 1), 1)


@lemma(Sliding, RoundsUp)
def even_traffic_at_the_rate_is_never_refused(w, k):
    """Requests a gap of period / count apart all pass, unless one comes in the very first tick of a window."""
    gap, before, phase = w.int("gap", 1), w.int("before", 0), w.int("phase", 1)
    w.assume(k.period == gap * k.count, phase < gap, before < k.count)
    return k.fits(View(0, before, k.count, phase + before * gap), 1)


class ChecksTwoWindows(Sliding):
    def checked(self):
        return 2 * self.count * self.period


@lemma(Sliding, ChecksTwoWindows)
def no_product_is_larger_than_what_was_checked_when_the_limit_was_made(w, k):
    """Both sides of the comparison are below what decides how coarse the limit sees time."""
    view = View(0, w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    cost = w.int("cost", 0)
    w.assume(view.current <= k.count, view.previous <= k.count, view.elapsed < k.period, cost <= k.count)
    return And(k.weight(view, cost) < k.checked(), (k.count + 1) * k.period < k.checked())


@lemma(Sliding, AdmitsOneMore)
def a_window_never_counts_more_than_its_limit(w, k):
    """Every aligned window holds at most the count, whatever came before it."""
    current, previous, elapsed, cost = w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0), w.int("cost", 1)
    w.assume(elapsed < k.period, k.fits(View(0, current, previous, elapsed), cost))
    # With nothing of the window passed the previous one counts whole: the two together are within the count.
    return And(current + cost <= k.count, Implies(elapsed == 0, previous + current + cost <= k.count))
