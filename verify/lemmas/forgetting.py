"""Forgetting: keys that are dropped to make room, in memory and by expiry on the servers.

A bucket's arithmetic stands for all: that from `forget_at` on a state means the same as none is proved for each kernel in its
own file. Here is what follows. `store/memory/table.rs` overwrites a slot whose time has come and notes that time;
`lua/bucket.lua` sets an expiry for a cell of time.
"""

from z3 import And, Implies

from bucket import Bucket, State
from lemma import lemma, most


class Table(Bucket):
    """A slot may be written over from `forget_at` on, and that instant is remembered for keys that come without one."""

    def is_free(self, state, tick):
        return self.forget_at(state) <= tick

    def time_of_a_key_without_a_slot(self, tick, forgotten):
        return most(tick, forgotten)

    def remembered(self, latest, until):
        """Lines that share a record keep the latest."""
        return most(latest, until)

    def expires(self, at):
        """When the server may drop a state: two horizons from the beginning of its cell."""
        horizon = self.horizon()
        return at - self.world.div(at, horizon)[1] + 2 * horizon


class EvictsALimitedKey(Table):
    """The key that would expire first is evicted at once (Kuadrant/limitador; ralksta/immich-folio#62)."""

    def is_free(self, state, tick):
        return self.forget_at(state) <= tick + 1


class TrustsAClockThatWentBack(Table):
    def time_of_a_key_without_a_slot(self, tick, forgotten):
        return tick


class ExpiresWithTheCell(Table):
    """A time to live that is too short for what it has to keep (apache/apisix#12605)."""

    def expires(self, at):
        horizon = self.horizon()
        return at - self.world.div(at, horizon)[1]


FRESH = State(0, 0)


@lemma(Table, EvictsALimitedKey)
def an_overwritten_state_equals_an_empty_one(w, t):
    """After a slot was taken by another key, its former owner is decided on as if it still had it, now and later."""
    state, tick, later, added = t.state(), w.int("tick", 0), w.int("later", 0), w.int("added", 1)
    w.assume(t.is_free(state, tick))
    now = tick + later
    return And(
        t.level(state, now) == 0,
        t.admits(state, now, added) == t.admits(FRESH, now, added),
        t.empty_at(t.charge(state, now, added)) == t.empty_at(t.charge(FRESH, now, added)),
    )


@lemma(Table, TrustsAClockThatWentBack)
def a_clock_that_goes_back_finds_no_forgotten_key_fresh(w, t):
    """A key without a slot goes by a time at which all that was forgotten had drained: its level there is the true one."""
    state, tick, added = t.state(), w.int("tick", 0), w.int("added", 1)
    forgotten = w.int("forgotten", 0)
    w.assume(forgotten >= t.forget_at(state))
    time = t.time_of_a_key_without_a_slot(tick, forgotten)
    return t.admits(FRESH, time, added) == t.admits(state, time, added)


@lemma(Table, ExpiresWithTheCell)
def an_expiry_is_at_least_as_long_as_the_state_matters(w, t):
    """The expiry of a cell lies after `forget_at` of every state in the cell, so moving within it needs no other."""
    state = t.state()
    return t.expires(state.at) >= t.forget_at(state)


class Cells:
    """Expiries by themselves: a horizon of any length."""

    def __init__(self, world):
        self.world = world
        self.length = world.int("length", 1)

    def horizon(self):
        return self.length

    expires = Table.expires


class MovesTheExpiryOn(Cells):
    """The expiry follows the state, and so has to be set with every charge."""

    def expires(self, at):
        return at + 2 * self.length


@lemma(Cells, MovesTheExpiryOn)
def states_of_one_cell_have_one_expiry(w, t):
    """Two instants of one cell have the same expiry: it is right though it was set for the first of them."""
    one, other = w.int("one", 0), w.int("other", 0)
    cell = w.div(one, t.length)[0]
    w.assume(other >= cell * t.length, other < (cell + 1) * t.length)
    return t.expires(one) == t.expires(other)


class KeepsTheLast(Table):
    def remembered(self, latest, until):
        return until


@lemma(Table, KeepsTheLast)
def the_record_is_that_of_the_latest_forgotten(w, t):
    """Lines share a record of what was forgotten: it is the latest, so it is late enough for each of them."""
    latest, until = w.int("latest", 0), w.int("until", 0)
    remembered = t.remembered(latest, until)
    return And(remembered >= latest, remembered >= until, Implies(until <= latest, remembered == latest))
