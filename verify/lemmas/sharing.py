"""Keys without room share a state: `crates/tidegate/src/store/memory/overflow.rs`.

Every user's charges go to the one state, and a user who finds room later starts with a copy of it.
"""

from z3 import And, Or

from bucket import Bucket, State
from lemma import lemma


class Shared(Bucket):
    def inherited(self, shared):
        """What a user starts with that finds room."""
        return shared

    def counts_as_user(self, is_known, are_too_many):
        return Or(is_known, are_too_many)


class StartsFresh(Shared):
    """A key that gets a slot owes nothing: filling the table is a way to be reset (ralksta/immich-folio#62)."""

    def inherited(self, shared):
        return State(0, 0)


class ChargesNothing(Shared):
    """New keys pass while there is no room."""

    def charge(self, state, tick, added):
        return state


@lemma(Shared, ChargesNothing)
def a_charge_of_anyone_counts_for_everyone(w, s):
    """With `own` charged by one user since `first`, charges of others leave that user's account as good as it was."""
    state, first, now = s.state(), w.int("first", 0), w.int("now", 0)
    own, added, others = w.int("own", 0), w.int("added", 1), w.int("others", 0)
    w.assume(s.empty_at(state) >= first * s.drain + own, s.admits(state, now, added + others))
    after = s.charge(s.charge(state, now, others), now, added)
    return And(
        s.empty_at(after) >= first * s.drain + own + added,
        own + added <= s.full + (now - first) * s.drain,
    )


@lemma(Shared, StartsFresh)
def a_key_that_gets_a_slot_owes_what_it_owed(w, s):
    """A key that moves from the shared state to its own keeps its account: the bound holds through the move."""
    shared, first, now = s.state(), w.int("first", 0), w.int("now", 0)
    own, added = w.int("own", 0), w.int("added", 1)
    w.assume(s.empty_at(shared) >= first * s.drain + own)
    state = s.inherited(shared)
    w.assume(s.admits(state, now, added))
    return own + added <= s.full + (now - first) * s.drain


class ForgetsUsersAtOnce(Shared):
    def forget_at(self, state):
        return state.at - 1


@lemma(Shared, ForgetsUsersAtOnce)
def former_users_of_a_state_that_is_over_owe_nothing(w, s):
    """When the list of users is emptied, what they used has drained away: a fresh state is theirs by right."""
    state, now, added = s.state(), w.int("now", 0), w.int("added", 1)
    w.assume(s.forget_at(state) <= now)
    return s.admits(state, now, added) == s.admits(State(0, 0), now, added)


class RemembersTooFew(Shared):
    def counts_as_user(self, is_known, are_too_many):
        return is_known


@lemma(Shared, RemembersTooFew)
def where_too_many_are_users_everyone_is(w, s):
    """Of `users` only the first `most` are remembered; every key that used the state still counts as a user."""
    users, most, number = w.int("users", 0), w.int("most", 1), w.int("number", 0)
    w.assume(number < users)
    return s.counts_as_user(And(number < most, users <= most), users > most)
