"""Floors: `with_floor` of the kernels in `crates/tidegate/src/kernel/`, and `Erased` in `crates/tidegate/src/store/erased.rs`.

A class of requests is the same kernel on the same state with less to admit into: a charge is admitted up to `admits`, which is
the whole less the floor. What is counted, drained, healed and forgotten stays that of the whole limit.
"""

from z3 import And, Implies, Not, Or

from bucket import Bucket
from fixed_window import FromEpoch
from lemma import lemma, less_or_zero
from log import Log, Short
from sliding_counter import Sliding, View, _view_later


class Class(Bucket):
    def __init__(self, world):
        super().__init__(world)
        self.floor = world.int("floor", 0)
        world.assume(self.floor < self.full)
        self.whole_admits, self.whole_first_tick, self.whole_remaining = (
            super().admits, super().first_tick_with_room, super().remaining)

    def up_to(self):
        """The level up to which a charge is admitted."""
        return self.full - self.floor

    def admits(self, state, tick, added):
        return self.level(state, tick) + added <= self.up_to()

    def first_tick_with_room(self, state, added):
        # The rest of the bucket is room that is taken.
        return super().first_tick_with_room(state, added + self.full - self.up_to())

    def remaining(self, state, tick):
        units, _ = self.world.div(less_or_zero(self.up_to(), self.level(state, tick)), self.scale)
        return units


class LooksBeforeItTakes(Class):
    """A charge is admitted while more than the floor is left before it, whatever it costs."""

    def admits(self, state, tick, added):
        return self.level(state, tick) < self.up_to()


class KeepsOneMore(Class):
    """`<` for `<=`: the last unit above the floor is never had."""

    def up_to(self):
        return self.full - self.floor - 1


class WaitsAsTheWholeLimit(Class):
    """The wait does not know of the floor: a caller that returns when told is refused again."""

    def first_tick_with_room(self, state, added):
        return self.whole_first_tick(state, added)


class TellsWhatIsLeftOfAll(Class):
    """What remains is that of the whole limit, of which the class may take less."""

    def remaining(self, state, tick):
        return self.whole_remaining(state, tick)


@lemma(Class, LooksBeforeItTakes)
def no_class_takes_below_its_floor(w, b):
    """After a charge that was admitted, at least the floor is left of a full bucket."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 1)
    w.assume(b.admits(state, tick, added))
    return b.full - b.level(b.charge(state, tick, added), tick) >= b.floor


@lemma(Class, KeepsOneMore)
def a_class_without_a_floor_is_as_if_there_were_none(w, b):
    """With a floor of zero the same charges are admitted, the waits are the same, and as much remains."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 1)
    w.assume(b.floor == 0, added <= b.full, b.level(state, tick) <= b.full)
    return And(
        b.admits(state, tick, added) == b.whole_admits(state, tick, added),
        Implies(
            Not(b.whole_admits(state, tick, added)),
            b.first_tick_with_room(state, added) == b.whole_first_tick(state, added),
        ),
    )


@lemma(Class, WaitsAsTheWholeLimit)
def the_wait_of_a_class_is_exact(w, b):
    """The first tick with room above the floor is the first at which the charge is admitted."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 1)
    w.assume(added <= b.up_to(), Not(b.admits(state, tick, added)))
    first = b.first_tick_with_room(state, added)
    return And(first > tick, b.admits(state, first, added), Not(b.admits(state, first - 1, added)))


@lemma(Class, TellsWhatIsLeftOfAll)
def remaining_is_what_the_class_may_take(w, b):
    """So many units are admitted at this instant as are said to remain, and not one more."""
    state, tick = b.state(), w.int("tick", 0)
    w.assume(b.level(state, tick) <= b.full)
    remaining = b.remaining(state, tick)
    return And(
        Or(remaining == 0, b.admits(state, tick, remaining * b.scale)),
        Not(b.admits(state, tick, (remaining + 1) * b.scale)),
    )


class WindowClass(FromEpoch):
    def __init__(self, world):
        super().__init__(world)
        self.floor = world.int("floor", 0)
        world.assume(self.floor < self.count)

    def admits(self, state, tick, cost):
        return self.view(state, tick).current + cost <= self.count - self.floor


class KeepsAShareOfWhatIsUsed(WindowClass):
    """The floor is compared with what is used instead of what is left."""

    def admits(self, state, tick, cost):
        current = self.view(state, tick).current
        return And(current + cost <= self.count, current >= self.floor)


@lemma(WindowClass, KeepsAShareOfWhatIsUsed)
def a_window_keeps_its_floor_for_others(w, k):
    """After an admitted charge the window has its floor left, and a refused one is admitted when the window ends, not before."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 1)
    w.assume(cost <= k.count - k.floor)
    ends = k.first_tick_with_room(state, tick)
    kept = k.count - k.charge(state, tick, cost).current >= k.floor
    exact = And(ends > tick, k.admits(state, ends, cost), Not(k.admits(state, ends - 1, cost)))
    return And(Implies(k.admits(state, tick, cost), kept), Implies(Not(k.admits(state, tick, cost)), exact))


class CounterClass(Sliding):
    """A sliding counter whose count is less what is kept back: its states may count more, as those in debt do."""

    def __init__(self, world):
        super().__init__(world)
        self.whole, self.floor = self.count, world.int("floor", 0)
        world.assume(self.floor < self.whole)
        self.count = self.whole - self.floor


class KeepsBackOneWindowOnly(CounterClass):
    """The floor holds of the current window, whatever the previous one counts."""

    def fits(self, view, cost):
        return And(self.weight(view, cost) < (self.whole + 1) * self.period, view.current + cost <= self.count)


@lemma(CounterClass, KeepsBackOneWindowOnly)
def a_sliding_counter_keeps_its_floor_for_others(w, k):
    """A charge is admitted exactly if the whole counter has room for it and the floor together."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    cost = w.int("cost", 1)
    w.assume(view.elapsed < k.period)
    both = k.weight(view, cost + k.floor) < (k.whole + 1) * k.period
    return k.fits(view, cost) == both


class WaitsForTheWholeCount(CounterClass):
    """The wait is for room in the whole limit."""

    def first_tick_with_room(self, view, cost):
        self.count = self.whole
        first = super().first_tick_with_room(view, cost)
        self.count = self.whole - self.floor
        return first


@lemma(CounterClass, WaitsForTheWholeCount)
def the_wait_of_a_class_of_a_sliding_counter_is_exact(w, k):
    """At the promised instant the charge is admitted, and a tick before it is refused; the others may have used all."""
    view = View(w.int("start", 0), w.int("current", 0), w.int("previous", 0), w.int("elapsed", 0))
    cost = w.int("cost", 1)
    w.assume(view.current <= k.whole, view.previous <= k.whole, view.elapsed < k.period, cost <= k.count)
    w.assume(Not(k.fits(view, cost)))
    ready = k.first_tick_with_room(view, cost)
    return And(
        ready > view.start + view.elapsed,
        k.fits(_view_later(k, view, ready), cost),
        Not(k.fits(_view_later(k, view, ready - 1), cost)),
    )


class LogClass(Log):
    def excess(self, used, cost, floor):
        """What has to expire before a charge is admitted."""
        return used + cost + floor - self.count


class FreesTheCostOnly(Short, LogClass):
    """The wait is for the first entry that makes room for the cost, below the floor."""

    def excess(self, used, cost, floor):
        return used + cost - self.count


@lemma(LogClass, FreesTheCostOnly)
def the_wait_of_a_class_is_for_as_many_entries_as_it_takes(w, k):
    """At the promised instant the charge leaves the floor, and a microsecond before it would not."""
    now, cost, floor, last = w.int("now", 0), w.int("cost", 1), w.int("floor", 0), w.int("last", 0)
    w.assume(cost + floor <= k.count)
    time = k.time(now)
    expired = k.expired(time)
    used = k.used(expired)
    w.assume(used + cost + floor > k.count, used <= k.count)
    excess = k.excess(used, cost, floor)
    w.assume(expired <= last, last < k.length, k.sum(last + 1) - k.sum(expired) >= excess)
    w.assume(Or(last == expired, k.sum(last) - k.sum(expired) < excess))
    ready = k.frees(last)
    left = lambda at, name: k.count - k.used(k.expired(at, name))
    return And(ready > time, left(ready, "then") - cost >= floor, left(ready - 1, "before") - cost < floor)
