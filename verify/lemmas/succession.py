"""A limit takes another's place: `Bucket::take_over`, `Window::take_over`, `Log::take_over` and `store/succession.rs`.

What was used stays used, in units and rounded up. What does not fit stays where it was.
"""

from collections import namedtuple

from z3 import And, If

from lemma import lemma, least, less_or_zero

Moved = namedtuple("Moved", "own left")


class Buckets:
    """Levels: `own` of the new bucket, in which a unit is `scale`, and `level` of the old one, in which it is `was`."""

    def __init__(self, world):
        self.world = world
        self.scale, self.was = world.int("scale", 1), world.int("was", 1)
        self.full, self.old_full = world.int("full", 1), world.int("old_full", 1)

    def levels(self):
        own, level = self.world.int("own", 0), self.world.int("level", 0)
        self.world.assume(own <= self.full, level <= self.old_full)
        return own, level

    def part(self, part):
        """A part of a unit of the old bucket, in the finest unit of the new one."""
        return self.world.div_ceil(part * self.scale, self.was)

    def added(self, own, level):
        units, part = self.world.div(level, self.was)
        return least(units, self.room(own) + 1) * self.scale + self.part(part)

    def room(self, own):
        return self.world.div(self.full - own, self.scale)[0]

    def take_over(self, own, level):
        added, room = self.added(own, level), self.room(own)
        fits = own + added <= self.full
        return Moved(
            If(fits, own + added, own + room * self.scale),
            If(fits, 0, less_or_zero(level, room * self.was)),
        )


class RoundsUseDown(Buckets):
    """A part of a unit is forgiven with each change: reload often and there is no limit (nuetzliches/hookaido#239)."""

    def part(self, part):
        return 0


class CarriesTimeInsteadOfUnits(Buckets):
    """Old debt is priced at the new rate (brandur/redis-cell#54)."""

    def added(self, own, level):
        return level


class ForgetsWhatDoesNotFit(Buckets):
    def take_over(self, own, level):
        return Moved(super().take_over(own, level).own, 0)


class LooksAtOneUnitLess(Buckets):
    def added(self, own, level):
        units, part = self.world.div(level, self.was)
        return least(units, self.room(own)) * self.scale + self.part(part)


class FillsWithoutLooking(Buckets):
    def take_over(self, own, level):
        return Moved(own + self.added(own, level), 0)


@lemma(Buckets, RoundsUseDown)
def no_use_is_forgiven_by_a_change(w, b):
    """In units, what the two buckets hold together is no less after a change than before it."""
    own, level = b.levels()
    moved = b.take_over(own, level)
    # own / scale + level / was, multiplied out.
    return moved.own * b.was + moved.left * b.scale >= own * b.was + level * b.scale


@lemma(Buckets, CarriesTimeInsteadOfUnits)
def what_moves_is_rounded_by_less_than_the_finest_unit(w, b):
    """Where all of it fits, rounding up adds less than one part of a unit of which there are `scale`."""
    own, level = b.levels()
    units, _ = w.div(level, b.was)
    w.assume(units <= b.room(own))
    added = b.added(own, level)
    return And(added * b.was >= level * b.scale, (added - 1) * b.was < level * b.scale)


@lemma(Buckets, FillsWithoutLooking)
def the_new_bucket_is_never_above_full(w, b):
    """Use moves only as far as it fits."""
    own, level = b.levels()
    return b.take_over(own, level).own <= b.full


@lemma(Buckets, ForgetsWhatDoesNotFit)
def what_does_not_fit_stays(w, b):
    """Where not all of it fits, whole units move and exactly as many are taken from the old bucket."""
    own, level = b.levels()
    w.assume(own + b.added(own, level) > b.full)
    moved, room = b.take_over(own, level), b.room(own)
    return And(moved.own == own + room * b.scale, level - moved.left == least(level, room * b.was), moved.left >= 0)


@lemma(Buckets, LooksAtOneUnitLess)
def more_units_than_there_is_room_for_are_too_many_anyway(w, b):
    """Cutting the units down to one more than fit keeps the numbers small and decides the same."""
    own, level = b.levels()
    units, part = w.div(level, b.was)
    whole = units * b.scale + b.part(part)
    return (own + b.added(own, level) <= b.full) == (own + whole <= b.full)


class Counts:
    """What windows, logs and kernels of other kinds hand on: whole units, as many as fit."""

    def __init__(self, world):
        self.world = world
        self.count = world.int("count", 1)

    def take_over(self, own, theirs):
        moves = least(theirs, self.count - own)
        return Moved(own + moves, theirs - moves)


class TakesACopy(Counts):
    """Use is counted in both limits from then on: a limit that is changed often refuses everyone."""

    def take_over(self, own, theirs):
        moves = least(theirs, self.count - own)
        return Moved(own + moves, theirs)


class MovesBeyondTheCount(Counts):
    def take_over(self, own, theirs):
        return Moved(own + theirs, 0)


@lemma(Counts, TakesACopy)
def units_move_and_are_neither_made_nor_lost(w, c):
    """Of windows, logs and across algorithms: what both limits hold together is the same before and after."""
    own, theirs = w.int("own", 0), w.int("theirs", 0)
    w.assume(own <= c.count)
    moved = c.take_over(own, theirs)
    return And(moved.own + moved.left == own + theirs, moved.left >= 0)


@lemma(Counts, MovesBeyondTheCount)
def no_limit_holds_more_than_its_count(w, c):
    """Use moves only as far as it fits, so that every other lemma holds of the state that took it."""
    own, theirs = w.int("own", 0), w.int("theirs", 0)
    w.assume(own <= c.count)
    return c.take_over(own, theirs).own <= c.count


class ThereAndBack(Counts):
    def back(self, moved, old_count):
        returns = least(moved.own, old_count - moved.left)
        return Moved(moved.own - returns, moved.left + returns)


class LosesTheRestOnTheWay(ThereAndBack):
    def take_over(self, own, theirs):
        return Moved(super().take_over(own, theirs).own, 0)


@lemma(ThereAndBack, LosesTheRestOnTheWay)
def a_limit_lowered_and_raised_again_forgives_nothing(w, c):
    """A change and its opposite leave the key with all that it had used."""
    old_count, used = w.int("old_count", 1), w.int("used", 0)
    w.assume(used <= old_count)
    back = c.back(c.take_over(0, used), old_count)
    return And(back.left == used, back.own == 0)
