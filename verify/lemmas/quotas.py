"""Shares of limits that clients enforce by themselves: `crates/tidegate-server/src/quota`.

A limit is `units` units. Time is in microseconds; `count` tokens come in a `period`, so levels times the period are integers.
"""

from z3 import And, Implies

from lemma import lemma, least, most


class Quota:
    def __init__(self, world):
        self.world = world
        self.units = world.int("units", 1)
        self.burst = world.int("burst", 1)
        self.count = world.int("count", 1)
        self.period = world.int("period", 1)
        self.ttl = world.int("ttl", 1)
        self.delivery = world.int("delivery", 0)
        self.fallow = world.int("fallow", 0)

    def tokens(self):
        """What can be divided: no more than comes while units lie fallow. A limit that makes none meanwhile is apart."""
        made = self.world.div(self.count * self.fallow, self.period)[0]
        self.world.assume(made >= 1)
        return least(self.burst, made)

    def share(self, tokens, units):
        return self.world.div(tokens * units, self.units)[0]

    def of_another_limit(self, units, own, other):
        """The units of a limit that a share takes of another one, which has `other` tokens."""
        return self.world.div_ceil(units * own, other)

    def window(self, count):
        """The tokens of a window, and what comes in a period."""
        return self.world.div_ceil(count, 2), self.world.div(count, 2)[0]

    def free_at(self, sent):
        """When units can be taken by another client that were assigned at `sent`."""
        return sent + self.ttl + self.delivery + self.fallow

    def resized(self, level, old, new):
        """The level of a bucket that replaces another one, as Envoy has it."""
        return self.world.div(new * level, old)[0]


class RoundsUp(Quota):
    def share(self, tokens, units):
        return self.world.div_ceil(tokens * units, self.units)


class RoundsDown(Quota):
    def of_another_limit(self, units, own, other):
        return self.world.div(units * own, other)[0]


class WholeBurst(Quota):
    """A window of N as a bucket of N tokens that gains N in a period."""

    def window(self, count):
        return count, count


class ForgetsDelivery(Quota):
    """Takes a message to arrive when it is sent."""

    def free_at(self, sent):
        return sent + self.ttl + self.fallow


class NoFallow(Quota):
    """Hands units on when they are free, however much of them was just used."""

    def free_at(self, sent):
        return sent + self.ttl + self.delivery


class DividesTheBurst(Quota):
    """Hands out more tokens than come while units lie fallow."""

    def tokens(self):
        return self.burst


class StartsFull(Quota):
    """Each replaced bucket starts anew."""

    def resized(self, level, old, new):
        return new


@lemma(Quota, RoundsUp)
def shares_are_within_the_limit(w, k):
    """Two shares that have no unit in common have no more tokens, or rate, than the limit."""
    one, other, tokens = w.int("one", 0), w.int("other", 0), w.int("tokens", 1)
    w.assume(one + other <= k.units)
    return k.share(tokens, one) + k.share(tokens, other) <= tokens


@lemma(Quota, RoundsDown)
def a_share_of_several_limits_is_within_each(w, k):
    """What is granted is no more than the units that are taken of the other limit make."""
    units, own, other = w.int("share", 1), w.int("own", 1), w.int("other", 1)
    w.assume(units <= k.units)
    granted, taken = k.share(own, units), k.of_another_limit(units, own, other)
    return granted * k.units <= taken * other


@lemma(Quota, WholeBurst)
def a_window_as_a_bucket_keeps_its_count(w, k):
    """In no interval as long as the period more passes than the count."""
    count, level, gained = w.int("window", 2), w.int("level", 0), w.int("gained", 0)
    tokens, comes = k.window(count)
    w.assume(level <= tokens, gained <= comes)
    return level + gained <= count


@lemma(Quota, ForgetsDelivery)
def a_unit_has_one_client_at_a_time_and_lies_fallow_between_two(w, k):
    """A client that receives an assignment in time has stopped to use it, and long enough, when another one receives it."""
    sent, received = w.int("sent", 0), w.int("received", 0)
    next_sent, next_received = w.int("next_sent", 0), w.int("next_received", 0)
    w.assume(sent <= received, received <= sent + k.delivery)
    w.assume(next_sent >= k.free_at(sent), next_received >= next_sent)
    return next_received >= received + k.ttl + k.fallow


@lemma(Quota, DividesTheBurst)
def what_has_lain_fallow_is_full_in_the_limit_too(w, k):
    """A bucket that starts full has no more than the unit would have gained by itself."""
    level = w.int("level", 0)
    tokens = k.tokens()
    w.assume(level <= tokens * k.period)
    gained = least(level + k.count * k.fallow, tokens * k.period)
    return gained == tokens * k.period


@lemma(Quota, NoFallow)
def two_clients_after_one_another_keep_the_bound(w, k):
    """What both let pass of the same units, from `start` to `end`, is what one bucket would have let pass."""
    tokens = k.tokens()
    sent, start, end = w.int("sent", 0), w.int("start", 0), w.int("end", 0)
    stopped, began = sent + k.ttl + k.delivery, k.free_at(sent)
    first, second = w.int("first", 0), w.int("second", 0)
    w.assume(start <= stopped, began <= end)
    w.assume(first * k.period <= tokens * k.period + k.count * (stopped - start))
    w.assume(second * k.period <= tokens * k.period + k.count * (end - began))
    return (first + second) * k.period <= tokens * k.period + k.count * (end - start)


@lemma(Quota, StartsFull)
def a_bucket_that_is_replaced_gains_no_more_than_the_new_units_hold(w, k):
    """A larger bucket has at most the tokens of the units that came, a smaller one no more than before."""
    old, new, level = w.int("old", 1), w.int("new", 1), w.int("level", 0)
    w.assume(level <= old)
    after = k.resized(level, old, new)
    return And(after - level <= most(new - old, 0), after <= new, Implies(new <= old, after <= level))
