"""Coarse time: limits whose products would pass 2^53 count in ticks of 10, 100, .. microseconds.

`Bucket::new` and `Window::new` in `crates/tidegate/src/kernel` choose the tick, `ticks` and `until` go between ticks and
microseconds.
"""

from z3 import And

from lemma import lemma


class Ticks:
    def __init__(self, world):
        self.world = world
        self.tick = world.int("tick", 1)

    def ticks(self, now):
        return self.world.div(now, self.tick)[0]

    def until(self, tick, now):
        return tick * self.tick - now

    def period(self, period):
        return self.world.div_ceil(period, self.tick)


class RoundsTheTimeUp(Ticks):
    """The clock is ahead of itself by a part of a tick."""

    def ticks(self, now):
        return self.world.div_ceil(now, self.tick)


class WaitsForATickLess(Ticks):
    def until(self, tick, now):
        return (tick - 1) * self.tick - now


class RoundsThePeriodDown(Ticks):
    """An interval cut off to whole ticks: a higher rate than the limit says (Govcraft/acton-service#141)."""

    def period(self, period):
        return self.world.div(period, self.tick)[0]


@lemma(Ticks, WaitsForATickLess)
def a_wait_in_ticks_is_exact_in_microseconds(w, t):
    """By the microsecond that is told the tick has come; a microsecond sooner it has not."""
    now, ready = w.int("now", 0), w.int("ready", 0)
    w.assume(ready > t.ticks(now))
    wait = t.until(ready, now)
    return And(wait >= 1, t.ticks(now + wait) == ready, t.ticks(now + wait - 1) == ready - 1)


@lemma(Ticks, RoundsThePeriodDown)
def a_coarse_period_is_no_shorter(w, t):
    """A period in whole ticks lasts at least as long as it should: rounding is against the caller, by less than a tick."""
    period = w.int("period", 1)
    coarse = t.period(period) * t.tick
    return And(coarse >= period, coarse < period + t.tick)


@lemma(Ticks, RoundsTheTimeUp)
def coarse_time_is_behind_by_less_than_a_tick(w, t):
    """Between two instants no more ticks pass than fit into the time and one tick: the interval bound is off by that at most."""
    start, length = w.int("start", 0), w.int("length", 0)
    passed = t.ticks(start + length) - t.ticks(start)
    return And(t.ticks(start) * t.tick <= start, (passed - 1) * t.tick < length)
