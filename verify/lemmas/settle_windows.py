"""Reservations of windows: `undo` in `crates/tidegate/src/kernel/window.rs`.

A window takes back only what was charged in it. Windows from the epoch are compared by their numbers, without products:
by `ticks_compare_as_the_numbers_of_their_windows_do` each comparison of the kernel, in ticks, says the same.
"""

from collections import namedtuple

from z3 import And, If, Implies, Not, Or

from fixed_window import FromFirst, State as WindowState
from lemma import least, lemma
from settle import any_charge, in_order
from sliding_counter import Sliding, View

Numbered = namedtuple("Numbered", "number current previous")


class ByNumber:
    """A sliding counter at a time that is given as the number of its window."""

    def __init__(self, world):
        self.world = world

    def state(self):
        return Numbered(*(self.world.int(name, 0) for name in Numbered._fields))

    def former(self, state, number):
        """What the window before this one counts, if this one is a later one than the state's."""
        return If(number == state.number + 1, state.current, 0)

    def view(self, state, number):
        stays = And(Or(state.current > 0, state.previous > 0), number <= state.number)
        return Numbered(
            If(stays, state.number, number),
            If(stays, state.current, 0),
            If(stays, state.previous, self.former(state, number)),
        )

    def charge(self, state, number, cost):
        """A charge of nothing is none."""
        view = self.view(state, number)
        after = view._replace(current=view.current + cost)
        return Numbered(*(If(cost > 0, new, old) for new, old in zip(after, state)))

    def undo(self, state, number, charged, kept):
        view, cost = self.view(state, number), charged.cost - kept
        from_current, from_previous = self.taken(charged, view, cost)
        return Numbered(view.number, view.current - from_current, view.previous - from_previous)

    def taken(self, charged, view, cost):
        of_this, of_last = charged.at >= view.number, charged.at + 1 >= view.number
        from_previous = If(And(Not(of_this), of_last), least(cost, view.previous), 0)
        return If(of_this, least(cost, view.current), 0), from_previous


class FixedByNumber(ByNumber):
    def state(self):
        return super().state()._replace(previous=0)

    def former(self, state, number):
        return 0


class TakesFromThisWindow(ByNumber):
    """What was charged in the window before is taken from this one."""

    def taken(self, charged, view, cost):
        return least(cost, view.current), 0


class FixedTakesFromThisWindow(TakesFromThisWindow, FixedByNumber):
    pass


def _settled_and_direct(w, k):
    """A settled key and one that was charged `kept` in the first place, with other charges before and after."""
    state, before, after = k.state(), w.int("charged_before", 0), w.int("charged_after", 0)
    charged, kept = any_charge(w)
    between, settles, afterwards, later = (w.int(name, 0) for name in ["between", "settles", "afterwards", "later"])
    in_order(w, state.number, charged.at, between, settles, afterwards, later)
    settled, direct = (k.charge(state, charged.at, cost) for cost in [charged.cost, kept])
    settled, direct = (k.charge(each, between, before) for each in [settled, direct])
    settled = k.undo(settled, settles, charged, kept)
    settled, direct = (k.charge(each, afterwards, after) for each in [settled, direct])
    return k.view(settled, later), k.view(direct, later)


@lemma(FixedByNumber, FixedTakesFromThisWindow)
def a_settled_window_counts_as_much_as_if_only_that_had_been_charged(w, k):
    """At every later time a window counts at least as much as one that was charged `kept` instead of the estimate."""
    settled, direct = _settled_and_direct(w, k)
    return settled.current >= direct.current


@lemma(ByNumber, TakesFromThisWindow)
def so_do_both_windows_of_a_counter(w, k):
    """At every later time this window and the one before count at least as much each."""
    settled, direct = _settled_and_direct(w, k)
    return And(settled.current >= direct.current, settled.previous >= direct.previous)


class Weighs(Sliding):
    """As the kernel does."""


class WeighsTheWrongWay(Sliding):
    """The more of this window, the less it weighs."""

    def weight(self, view, cost):
        return view.previous * (self.period - view.elapsed) - view.current * self.period


@lemma(Weighs, WeighsTheWrongWay)
def a_counter_whose_windows_count_more_weighs_more(w, k):
    """So the sum that decides is at least as large, too."""
    current, previous, elapsed = w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0)
    more, more_previous = w.int("more", 0), w.int("more_previous", 0)
    w.assume(elapsed < k.period)
    fuller = View(0, current + more, previous + more_previous, elapsed)
    return k.weight(fuller, 0) >= k.weight(View(0, current, previous, elapsed), 0)


# The same in ticks.


class Ticks:
    """The comparisons of `view` and `undo`: of a tick with the start of a window, so many ticks before it."""

    def __init__(self, world):
        self.world = world
        self.period = world.int("period", 1)

    def is_later(self, ticks):
        """The tick is in this window or a later one."""
        return ticks >= 0

    def is_this_or_sooner(self, ticks):
        return ticks < self.period

    def is_next_or_sooner(self, ticks):
        return ticks < 2 * self.period

    def is_last_or_later(self, ticks):
        """The tick is in the window before this one, or in a later one."""
        return ticks + self.period >= 0


class EndsATickLate(Ticks):
    def is_this_or_sooner(self, ticks):
        return ticks <= self.period


@lemma(Ticks, EndsATickLate)
def ticks_compare_as_the_numbers_of_their_windows_do(w, k):
    """Every comparison of a tick with the start of a window says the same as that of the windows' numbers.

    The tick is in a window so many `windows` after the other, or before it if that is below zero.
    """
    windows, elapsed = w.int("windows"), w.int("elapsed", 0)
    w.assume(elapsed < k.period)
    ticks = windows * k.period + elapsed
    return And(
        k.is_later(ticks) == (windows >= 0),
        k.is_this_or_sooner(ticks) == (windows <= 0),
        k.is_next_or_sooner(ticks) == (windows <= 1),
        k.is_last_or_later(ticks) == (windows >= -1),
    )


# Windows that begin with their first request.


class SettlingFromFirst(FromFirst):
    def undo(self, state, tick, charged, kept):
        view = self.view(state, tick)
        taken = If(self.is_of(charged, view), least(charged.cost - kept, view.current), 0)
        return WindowState(view.start, view.current - taken)

    def is_of(self, charged, view):
        """Whether a charge was made in this window."""
        return charged.at >= view.start

    def charge(self, state, tick, cost):
        """A charge of nothing is none: it starts no window."""
        after = super().charge(state, tick, cost)
        return WindowState(*(If(cost > 0, new, old) for new, old in zip(after, state)))


class TakesFromAnyWindow(SettlingFromFirst):
    def is_of(self, charged, view):
        return True


@lemma(SettlingFromFirst, TakesFromAnyWindow)
def so_does_a_window_from_its_first_request(w, k):
    """The same, unless the reservation is the first request of its window and nothing of it is kept.

    `a_window_that_a_released_request_began_counts_all_others` is about that.
    """
    state, other = k.state(), w.int("other", 0)
    between, settles, later = w.int("between", 0), w.int("settles", 0), w.int("later", 0)
    charged, kept = any_charge(w)
    in_order(w, state.start, charged.at, between, settles, later)
    w.assume(Or(kept > 0, k.view(state, charged.at).current > 0))
    settled, direct = (k.charge(state, charged.at, cost) for cost in [charged.cost, kept])
    settled, direct = (k.charge(each, between, other) for each in [settled, direct])
    settled = k.undo(settled, settles, charged, kept)
    return k.view(settled, later).current >= k.view(direct, later).current


@lemma(SettlingFromFirst, TakesFromAnyWindow)
def a_window_that_a_released_request_began_counts_all_others(w, k):
    """A window that began with a released request counts every other charge until it ends: at most the count.

    It ends a period after that request, and so sooner than if the request had not been made.
    """
    state, other = k.state(), w.int("other", 1)
    between, settles = w.int("between", 0), w.int("settles", 0)
    charged, _ = any_charge(w)
    in_order(w, state.start, charged.at, between, settles)
    w.assume(charged.cost > 0, k.view(state, charged.at).current == 0)
    both = k.charge(k.charge(state, charged.at, charged.cost), between, other)
    settled = k.undo(both, settles, charged, 0)
    return Implies(settles < both.start + k.period, And(settled.start == both.start, settled.current == other))
