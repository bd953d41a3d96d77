"""Sliding log: `crates/tidegate/src/kernel/log.rs`.

However many entries there are: `at(i)` is the instant of the entry with this number, `sum(i)` the cost of all before it.
"""

import z3
from z3 import And, ForAll, If, Implies, Or

from lemma import lemma, most


class Log:
    def __init__(self, world):
        self.world = world
        self.count = world.int("count", 1)
        self.period = world.int("period", 1)
        self.length = world.int("length", 0)
        self.at = z3.Function("at", z3.IntSort(), z3.IntSort())
        self.sum = z3.Function("sum", z3.IntSort(), z3.IntSort())
        world.assume(self.sum(0) == 0, Implies(self.length > 0, self.at(0) >= 0))
        self.is_in_order()

    def is_in_order(self):
        """Oldest first, one entry for an instant, and each of some cost."""
        i, j = z3.Ints("i j")
        self.world.assume(
            ForAll([i, j], Implies(And(0 <= i, i < j, j < self.length), self.at(i) < self.at(j))),
            ForAll([i, j], Implies(And(0 <= i, i < j, j <= self.length), self.sum(i) < self.sum(j))),
        )

    def newest(self):
        return If(self.length > 0, self.at(self.length - 1), 0)

    def time(self, now):
        """The state's time: it does not go back when the clock does."""
        return most(now, self.newest())

    def is_expired(self, entry, time):
        return self.at(entry) + self.period <= time

    def expired(self, time, name="expired"):
        """How many entries no longer count: `partition_point` of the entries by their instants."""
        number = self.world.int(name, 0)
        self.world.assume(
            number <= self.length,
            Implies(number > 0, self.is_expired(number - 1, time)),
            Implies(number < self.length, z3.Not(self.is_expired(number, time))),
        )
        return number

    def used(self, expired):
        return self.sum(self.length) - self.sum(expired)

    def forget_at(self):
        return self.newest() + self.period

    def frees(self, entry):
        """When this entry and all before it count no more."""
        return self.at(entry) + self.period


class Short(Log):
    """A log of three entries at most, in which Z3 looks for what a defect does."""

    def is_in_order(self):
        self.world.assume(self.length <= 3)
        for i in range(3):
            self.world.assume(Implies(i + 1 < self.length, self.at(i) < self.at(i + 1)))
            self.world.assume(Implies(i < self.length, self.sum(i) < self.sum(i + 1)))


class KeepsATickLess(Short):
    def is_expired(self, entry, time):
        return self.at(entry) + self.period <= time + 1


class GoesBackWithTheClock(Short):
    def time(self, now):
        return now


class FreesATickSooner(Short):
    def frees(self, entry):
        return super().frees(entry) - 1


class WaitsForTheNewest(Short):
    """The wait is for the newest entry instead of the one that suffices."""

    def frees(self, entry):
        return self.newest() + self.period


class CountsInstants(Short):
    """Entries count as one each, whatever they cost (sockudo/sockudo#251: 10,000 requests count as 19)."""

    def used(self, expired):
        return self.length - expired


@lemma(Log, CountsInstants)
def every_window_holds_at_most_the_count(w, k):
    """A window of one period that ends with an admission, wherever it begins, holds at most the count."""
    now, cost, first = w.int("now", 0), w.int("cost", 1), w.int("first", 0)
    time = k.time(now)
    w.assume(k.used(k.expired(time)) + cost <= k.count)
    # The first entry in (time - period, time].
    w.assume(first < k.length, k.at(first) > time - k.period)
    return k.sum(k.length) - k.sum(first) + cost <= k.count


@lemma(Log, KeepsATickLess)
def an_entry_counts_for_exactly_one_period(w, k):
    """What was admitted at an instant counts until a period later, and from that instant on no more."""
    entry, now = w.int("entry", 0), w.int("now", 0)
    w.assume(entry < k.length, now >= k.newest())
    expired = k.expired(k.time(now))
    return (expired > entry) == (now >= k.at(entry) + k.period)


@lemma(Log, GoesBackWithTheClock)
def entries_stay_in_order_though_the_clock_does_not(w, k):
    """A charge is entered at the newest instant or later, so that the oldest are always the first."""
    now = w.int("now", 0)
    w.assume(k.length > 0)
    return k.time(now) >= k.newest()


def _refused(w, k):
    """A refused cost, and the entry whose end makes room for it."""
    now, cost, last = w.int("now", 0), w.int("cost", 1), w.int("last", 0)
    w.assume(cost <= k.count)
    time = k.time(now)
    expired = k.expired(time)
    used = k.used(expired)
    w.assume(used + cost > k.count, used <= k.count)
    excess = used + cost - k.count
    # The loop ends at the first entry by which enough is free.
    w.assume(expired <= last, last < k.length, k.sum(last + 1) - k.sum(expired) >= excess)
    w.assume(Or(last == expired, k.sum(last) - k.sum(expired) < excess))
    return time, cost, k.frees(last)


@lemma(Log, FreesATickSooner)
def admitted_after_retry_after(w, k):
    """At the promised instant, which is still to come, the same request passes."""
    time, cost, ready = _refused(w, k)
    return And(ready > time, k.used(k.expired(ready, "expired_then")) + cost <= k.count)


@lemma(Log, WaitsForTheNewest)
def refused_a_microsecond_before_retry_after(w, k):
    """A microsecond before the promised instant the same request is still refused."""
    _, cost, ready = _refused(w, k)
    return k.used(k.expired(ready - 1, "expired_before")) + cost > k.count


class RunsOut(Short):
    """The state is dropped when its oldest entry ends."""

    def forget_at(self):
        return self.at(0) + self.period


@lemma(Log, RunsOut)
def a_state_whose_time_has_come_means_the_same_as_none(w, k):
    """A period after the newest entry nothing counts."""
    later = w.int("later", 0)
    w.assume(k.length > 0)
    return k.used(k.expired(k.forget_at() + later)) == 0
