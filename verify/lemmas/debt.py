"""Reports and debt: `report` of the kernels in `crates/tidegate/src/kernel/`.

A report adds what has been spent to the state, up to a ceiling above the limit. Nothing else changes: the same drain, the same
comparison, the same wait.
"""

from z3 import And, If, Implies, Not

from bucket import Bucket
from fixed_window import FromEpoch, State as WindowState
from lemma import least, lemma, less_or_zero, most
from log import Log, Short
from sliding_counter import Sliding


class Owing(Bucket):
    def room(self, state, tick):
        return less_or_zero(self.ceiling, self.level(state, tick))

    def report(self, state, tick, added):
        """Unchanged if there is no room at all."""
        room = self.room(state, tick)
        after = self.with_level(self.level(state, tick) + least(added, room), tick)
        return type(state)(If(room > 0, after.at, state.at), If(room > 0, after.fraction, state.fraction))


class ReportsBeyondTheCeiling(Owing):
    """Debt without a bound: one wrong report locks a key for as long as it takes to pay."""

    def report(self, state, tick, added):
        return self.charge(state, tick, added)


class DropsWhatDoesNotFit(Owing):
    """A report that does not fit costs nothing: 1,200 tokens with 200 left are free."""

    def report(self, state, tick, added):
        after, fits = self.charge(state, tick, added), self.level(state, tick) + added <= self.full
        return type(state)(If(fits, after.at, state.at), If(fits, after.fraction, state.fraction))


class ForgivesAtOnce(Owing):
    """The level is never seen above full."""

    def level(self, state, tick):
        return least(super().level(state, tick), self.full)


class WaitsAsIfFull(Owing):
    """The wait does not know of the debt: it is that of a bucket which is full now."""

    def first_tick_with_room(self, state, added):
        return super().first_tick_with_room(self.with_level(self.full, self.now), added)


class HealsDebt(Owing):
    """What is owed is taken for a state from the future, and forgiven."""

    def reach(self):
        return 0


@lemma(Owing, ReportsBeyondTheCeiling)
def a_report_adds_its_cost_up_to_the_ceiling(w, b):
    """The level after a report is the level before it and the cost, or the ceiling; one above the ceiling stays."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 0)
    level = b.level(state, tick)
    return b.level(b.report(state, tick, added), tick) == most(level, least(level + added, b.ceiling))


@lemma(Owing, DropsWhatDoesNotFit)
def what_is_reported_keeps_the_account(w, b):
    """A report moves the instant at which the bucket is empty on by all that it records.

    So an admission after it keeps the bound of every interval for what was charged and recorded together: the account of
    `the_account_bounds_what_is_admitted_in_every_interval`, with the report among the charges.
    """
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 0)
    recorded = least(added, b.room(state, tick))
    return b.empty_at(b.report(state, tick, added)) >= b.empty_at(state) + recorded


@lemma(Owing, ForgivesAtOnce)
def debt_is_paid_at_the_rate(w, b):
    """What is above full after a report drains by `drain` a tick like everything else, and nothing is admitted before."""
    state, tick, later, added = b.state(), w.int("tick", 0), w.int("later", 0), w.int("added", 0)
    w.assume(b.level(state, tick) <= b.full)
    owed = least(b.level(state, tick) + added, b.ceiling)
    after = b.report(state, tick, added)
    left = less_or_zero(owed, later * b.drain)
    return And(b.level(after, tick + later) == left, Implies(left > b.full, Not(b.admits(after, tick + later, 0))))


@lemma(Owing, WaitsAsIfFull)
def the_wait_in_debt_is_exact(w, b):
    """After a report, the first tick with room is the first at which the cost is admitted."""
    state, tick, spent, added = b.state(), w.int("tick", 0), w.int("spent", 0), w.int("added", 1)
    b.now = tick
    after = b.report(state, tick, spent)
    w.assume(added <= b.full, b.level(after, tick) > b.full)
    first = b.first_tick_with_room(after, added)
    return And(first > tick, b.admits(after, first, added), Not(b.admits(after, first - 1, added)))


@lemma(Owing, HealsDebt)
def what_this_clock_has_reported_is_not_healed(w, b):
    """A state that a report left at an instant which is not after now lies within the reach, and stays as it is."""
    state, tick, later, added = b.state(), w.int("tick", 0), w.int("later", 0), w.int("added", 1)
    w.assume(b.level(state, tick) <= b.full)
    return Not(b.is_from_the_future(b.report(state, tick, added), tick + later))


class OwingWindow(FromEpoch):
    def report(self, state, tick, cost):
        view = self.view(state, tick)
        return WindowState(view.start, view.current + least(cost, less_or_zero(self.ceiling, view.current)))


class CarriesOver(OwingWindow):
    """What is above the count is left for the next window."""

    def view(self, state, tick):
        view = super().view(state, tick)
        over = And(state.current > self.count, tick >= state.start + self.period)
        return WindowState(view.start, If(over, state.current - self.count, view.current))


@lemma(OwingWindow, CarriesOver)
def a_window_in_debt_ends_as_any_other(w, k):
    """What was reported counts until the window ends, at most the ceiling, and the next window begins with nothing."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    after = k.report(state, tick, cost)
    ends = after.start + k.period
    return And(
        after.current <= k.ceiling,
        after.current == least(k.view(state, tick).current + cost, most(k.ceiling, k.view(state, tick).current)),
        k.view(after, most(tick, ends - 1)).current == after.current,
        k.view(after, ends).current == 0,
    )


class OwingCounter(Sliding):
    def checked_debt(self):
        """What `Window::debt_bound` keeps below 2^53."""
        return (2 * self.ceiling + self.count) * self.period


class ChecksWithoutDebt(OwingCounter):
    def checked_debt(self):
        return 4 * self.count * self.period


@lemma(OwingCounter, ChecksWithoutDebt)
def no_weight_of_a_window_in_debt_is_larger_than_what_was_checked(w, k):
    """Whatever two windows owe, the left side of the comparison is at most what the bound of debt was made for."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 0)
    view = k.view(state, tick)
    w.assume(cost <= k.count, view.elapsed < k.period, view.current <= k.ceiling, view.previous <= k.ceiling)
    return k.weight(view, cost) <= k.checked_debt()


class OwingLog(Log):
    def recorded(self, used, cost):
        return least(cost, less_or_zero(self.ceiling(), used))

    def ceiling(self):
        ceiling = self.world.int("ceiling", 1)
        self.world.assume(ceiling >= self.count)
        return ceiling


class LogsEverything(Short, OwingLog):
    def recorded(self, used, cost):
        return cost


@lemma(OwingLog, LogsEverything)
def a_log_counts_no_more_than_its_ceiling(w, k):
    """After a report, a period holds at most the ceiling, and so many entries at most."""
    now, cost = w.int("now", 0), w.int("cost", 1)
    used = k.used(k.expired(k.time(now)))
    w.assume(used <= k.ceiling())
    return used + k.recorded(used, cost) <= k.ceiling()
