"""Servers that lose states: the bound without strict mode, and strict mode, `lua/head.lua` and `lua/bucket.lua`.

In strict mode a server whose history is new since `since` takes every bucket to have been full then.
"""

from z3 import And, If, Or

from bucket import Bucket, State
from lemma import lemma, least, most


class Strict(Bucket):
    def raised(self, state, since):
        whole, fraction = self.world.div(self.full, self.drain)
        full_until = since + whole
        behind = Or(state.at < full_until, And(state.at == full_until, state.fraction < fraction))
        return State(If(behind, full_until, state.at), If(behind, fraction, state.fraction))


class TrustsWhatItFinds(Strict):
    """A replica that was promoted is taken to know everything."""

    def raised(self, state, since):
        return state


class StartsOneTickEarlier(Strict):
    def raised(self, state, since):
        return super().raised(state, since - 1)


class DropsTheFractionOfFull(Strict):
    def raised(self, state, since):
        whole, _ = self.world.div(self.full, self.drain)
        return State(most(state.at, since + whole), If(state.at > since + whole, state.fraction, 0))


class NeverRecovers(Strict):
    def raised(self, state, since):
        return super().raised(state, since + 1)


def _lost(w, s):
    """What the server that was lost had, all of it charged by `since`; and what the one has that goes on."""
    lost, known, since = s.state("lost"), s.state("known"), w.int("since", 0)
    w.assume(s.empty_at(lost) <= since * s.drain + s.full)
    return lost, known, since


@lemma(Strict, TrustsWhatItFinds)
def admits_only_what_the_lost_server_would_have_admitted(w, s):
    """Whatever was lost: the level is at least what it would have been."""
    lost, known, since = _lost(w, s)
    tick = since + w.int("later", 0)
    return s.level(s.raised(known, since), tick) >= s.level(lost, tick)


@lemma(Strict, DropsTheFractionOfFull)
def a_new_history_begins_exactly_full(w, s):
    """A key of which nothing is known has the level of a full bucket at `since`, to the last part of a unit."""
    since = w.int("since", 0)
    return s.level(s.raised(State(0, 0), since), since) == s.full


class ForgetsTheLoss(Strict):
    """The charge after a loss is made to the state as it was found."""

    def charge(self, state, tick, added):
        return self.with_level(added, tick)


@lemma(Strict, ForgetsTheLoss)
def it_stays_at_least_as_full_as_the_truth(w, s):
    """Charges keep the order: a state that is no less full than the true one is no less full after the same charge."""
    true, raised, tick, added = s.state("true"), s.state("raised"), w.int("tick", 0), w.int("added", 1)
    w.assume(s.empty_at(raised) >= s.empty_at(true))
    return s.empty_at(s.charge(raised, tick, added)) >= s.empty_at(Bucket.charge(s, true, tick, added))


@lemma(Strict, NeverRecovers)
def after_a_horizon_it_changes_nothing(w, s):
    """Once a full bucket would have drained since then, every level is the one that is known."""
    known, since = s.state("known"), w.int("since", 0)
    tick = since + s.horizon() + w.int("later", 0)
    return s.level(s.raised(known, since), tick) == s.level(known, tick)


@lemma(Strict, StartsOneTickEarlier)
def asking_again_changes_nothing(w, s):
    """Raising a state that was raised and charged leaves it: `since` counts once."""
    known, since, added = s.state("known"), w.int("since", 0), w.int("added", 1)
    tick = since + w.int("later", 0)
    once = s.raised(known, since)
    w.assume(s.admits(once, tick, added))
    after = s.charge(once, tick, added)
    twice = s.raised(after, since)
    return And(s.empty_at(twice) == s.empty_at(after), s.empty_at(once) >= since * s.drain + s.full)


class Losses(Bucket):
    def after_a_loss(self):
        """The bound of what is admitted between two losses, in which the bucket starts empty."""
        return self.full


class StartsWithTwo(Losses):
    def after_a_loss(self):
        return 2 * self.full


@lemma(Losses, StartsWithTwo)
def each_loss_adds_one_burst_at_most(w, s):
    """After `losses` of them: admitted <= (1 + losses) bursts + rate x time; one more loss makes it one more burst."""
    losses, first, last = w.int("losses", 0), w.int("first", 0), w.int("last", 0)
    begins, now = w.int("begins", 0), w.int("now", 0)
    before, since = w.int("before", 0), w.int("since_the_loss", 0)
    w.assume(first <= last, last <= begins, begins <= now)
    w.assume(before <= (1 + losses) * s.full + (last - first) * s.drain)
    w.assume(since <= s.after_a_loss() + (now - begins) * s.drain)
    return before + since <= (1 + losses + 1) * s.full + (now - first) * s.drain


class MintsBeyondTheBurst(Losses):
    def level(self, state, tick):
        return (state.at - tick) * self.drain + state.fraction


@lemma(Losses, MintsBeyondTheBurst)
def a_stale_replica_frees_at_most_what_it_missed(w, s):
    """With a state as of an earlier time no more room is there than a burst, and than the charges that were lost."""
    true, stale, tick = s.state("true"), s.state("stale"), w.int("tick", 0)
    w.assume(s.empty_at(stale) <= s.empty_at(true), s.level(true, tick) <= s.full)
    freed = s.level(true, tick) - s.level(stale, tick)
    return And(freed >= 0, freed <= least(s.full, s.empty_at(true) - s.empty_at(stale)))
