"""Warm-up: `crates/tidegate/src/kernel/warm_up.rs`. A new key's limit climbs from `start` to `count` in ten steps."""

from z3 import And, If, Implies

from lemma import lemma, least, less_or_zero, most

STEPS = 10


class WarmUp:
    def __init__(self, world):
        self.world = world
        self.start, self.count = world.int("start", 1), world.int("count", 1)
        self.over, self.capacity = world.int("over", 1), world.int("capacity", 1)
        world.assume(self.start < self.count)
        self.step = world.div_ceil(self.over, STEPS)

    def number(self, age):
        return least(self.world.div(age, self.step)[0], STEPS)

    def count_at(self, age):
        climbed, _ = self.world.div((self.count - self.start) * self.number(age), STEPS)
        return self.start + climbed

    def capacity_at(self, age):
        return most(self.world.div(self.capacity * self.count_at(age), self.count)[0], 1)

    def drained(self, level, count, time):
        return less_or_zero(level, count * time)

    def ends(self, age):
        """The age at which the step ends that this age is in."""
        return (self.world.div(age, self.step)[0] + 1) * self.step


class ClimbsWithoutEnd(WarmUp):
    def number(self, age):
        return self.world.div(age, self.step)[0]


class RoundsTheStepDown(WarmUp):
    """Steps that are too short: the limit is above the straight line between."""

    def __init__(self, world):
        super().__init__(world)
        self.step = world.int("step", 1)
        world.assume(self.step * STEPS <= self.over, self.over < (self.step + 1) * STEPS)


class ClimbsAtOnce(WarmUp):
    def number(self, age):
        return least(self.world.div(age, self.step)[0] + 1, STEPS)


class FallsAtTheEnd(WarmUp):
    def number(self, age):
        number = self.world.div(age, self.step)[0]
        return If(number > STEPS, 0, number)


class GivesAllAtOnce(WarmUp):
    """The burst of a new key is the whole one, only its rate climbs."""

    def capacity_at(self, age):
        return self.capacity + self.count_at(age)


class DrainsAsIfWarm(WarmUp):
    """A new key's level drains faster than the limit that it climbs to."""

    def drained(self, level, count, time):
        return less_or_zero(level, (count + self.count) * time)


class DrainsBelowZero(WarmUp):
    def drained(self, level, count, time):
        return level - count * time


class EndsAStepLater(WarmUp):
    def ends(self, age):
        return super().ends(age) + self.step


@lemma(WarmUp, ClimbsAtOnce)
def a_new_key_begins_at_the_start(w, k):
    """At the age of zero the limit is `start`."""
    return k.count_at(0) == k.start


@lemma(WarmUp, ClimbsWithoutEnd)
def a_warm_key_has_the_whole_limit_and_no_more(w, k):
    """From ten steps on, which is less than ten microseconds after `over`, the limit is `count`."""
    age = w.int("age", 0)
    w.assume(age >= STEPS * k.step)
    return And(k.count_at(age) == k.count, STEPS * k.step < k.over + STEPS)


@lemma(WarmUp, FallsAtTheEnd)
def the_limit_only_climbs(w, k):
    """An older key has no lower limit."""
    age, later = w.int("age", 0), w.int("later", 0)
    return k.count_at(age) <= k.count_at(age + later)


@lemma(WarmUp, RoundsTheStepDown)
def the_limit_is_never_above_the_straight_line(w, k):
    """At every age at most start + (count - start) x age / over: rounding is against the caller."""
    age = w.int("age", 0)
    w.assume(age <= k.over)
    return (k.count_at(age) - k.start) * k.over <= (k.count - k.start) * age


@lemma(WarmUp, GivesAllAtOnce)
def the_burst_of_a_new_key_is_its_share(w, k):
    """At every age the burst is at least one, and at most the burst of the whole limit."""
    age = w.int("age", 0)
    return And(k.capacity_at(age) >= 1, k.capacity_at(age) <= k.capacity)


@lemma(WarmUp, DrainsAsIfWarm)
def a_warming_key_is_never_ahead_of_a_warm_one(w, k):
    """A level that is no lower than that of the whole limit is no lower after any time: a request that passes here passes there."""
    age, time, period = w.int("age", 0), w.int("time", 0), w.int("period", 1)
    warming, warm, cost = w.int("warming", 0), w.int("warm", 0), w.int("cost", 1)
    w.assume(warming >= warm)
    here = k.drained(warming, k.count_at(age), time)
    there = less_or_zero(warm, k.count * time)
    passes_here = here + cost * period <= k.capacity_at(age) * period
    return And(here >= there, Implies(passes_here, there + cost * period <= k.capacity * period))


@lemma(WarmUp, DrainsBelowZero)
def draining_in_two_parts_is_draining_in_one(w, k):
    """Within a step it makes no difference how often the state is read."""
    level, count, one, other = w.int("level", 0), w.int("rate", 1), w.int("one", 0), w.int("other", 0)
    return And(
        k.drained(k.drained(level, count, one), count, other) == k.drained(level, count, one + other),
        k.drained(level, count, one) >= 0,
    )


@lemma(WarmUp, EndsAStepLater)
def a_step_lasts_until_its_end(w, k):
    """Every age before the end of the step is in the step, and the end is still to come."""
    age, later = w.int("age", 0), w.int("later", 0)
    end = k.ends(age)
    w.assume(age + later < end)
    return And(end > age, k.number(age) == k.number(age + later))
