"""Leases: `crates/tidegate-redis/src/layer/ledger.rs` and `leased.rs`; the share of a process while the servers are away: `failure.rs`.

A process has units charged on the servers before it hands them out. `charged` is what is charged there for it and not refunded.
"""

from collections import namedtuple

from z3 import And, If

from lemma import lemma, least, less_or_zero, most

Account = namedtuple("Account", "charged units admitted requests awaited")


class Ledger:
    def __init__(self, world):
        self.world = world
        self.chunk = world.int("chunk", 1)
        self.capacity = world.int("capacity", 1)

    def account(self):
        """An account in which no unit was handed out that was not charged."""
        w = self.world
        account = Account(w.int("charged", 0), w.int("units", 0), w.int("admitted", 0), w.int("requests", 0),
                          w.int("awaited", 0))
        w.assume(account.admitted + account.units <= account.charged)
        w.assume(account.awaited <= account.requests)
        return account

    def take(self, account, cost):
        enough = account.units >= cost
        return account._replace(
            units=If(enough, account.units - cost, account.units),
            admitted=If(enough, account.admitted + cost, account.admitted),
        )

    def put_back(self, account, cost):
        return account._replace(units=account.units + cost, admitted=account.admitted - cost)

    def accepts(self, account, number):
        """A grant counts if it is the one that was asked for last, and once; zero stands for none."""
        return And(number > 0, account.awaited == number)

    def grant(self, account, number, units):
        accepted = self.accepts(account, number)
        return account._replace(
            units=If(accepted, account.units + units, account.units), awaited=If(accepted, 0, account.awaited)
        )

    def give_up(self, account):
        """What is left goes back to the servers, which refund no more than it."""
        return account._replace(units=0, charged=account.charged - account.units)

    def wanted(self, short):
        return least(most(self.chunk, short), self.capacity)

    def most_held(self):
        """Of one key, by one process, while no call is borrowing."""
        return self.chunk

    def share(self, whole, processes):
        return most(self.world.div(whole, processes)[0], 1)


class TakesWhatItHasNot(Ledger):
    """Locally counted first and told the servers later (Kuadrant/limitador, its cached mode)."""

    def take(self, account, cost):
        return account._replace(units=less_or_zero(account.units, cost), admitted=account.admitted + cost)


class AcceptsEveryGrant(Ledger):
    """A grant that comes twice counts twice."""

    def accepts(self, account, number):
        return number > 0


class KeepsWhatItGivesBack(Ledger):
    def give_up(self, account):
        return account._replace(charged=account.charged - account.units)


class BorrowsAChunkOnTop(Ledger):
    def wanted(self, short):
        return self.chunk + short


class GivesEachTheWhole(Ledger):
    """Each process falls back to the whole limit (go-chi/httprate-redis#15)."""

    def share(self, whole, processes):
        return whole


class PutsBackTwice(Ledger):
    def put_back(self, account, cost):
        return account._replace(units=account.units + 2 * cost, admitted=account.admitted - cost)


def _is_paid(account):
    return account.admitted + account.units <= account.charged


@lemma(Ledger, TakesWhatItHasNot)
def nothing_is_handed_out_that_was_not_charged(w, k):
    """Taking moves units from those held to those admitted: together they stay within what was charged."""
    after = k.take(k.account(), w.int("cost", 1))
    return And(_is_paid(after), after.units >= 0)


@lemma(Ledger, AcceptsEveryGrant)
def a_grant_counts_once_and_only_if_it_was_awaited(w, k):
    """The servers charged for one grant; whatever arrives, twice or late, no more is held than that."""
    account, units, number = k.account(), w.int("granted", 1), w.int("number", 1)
    # One request is under way and was charged for; its answer arrives twice, and an older one arrives late.
    w.assume(account.awaited == account.requests, account.awaited == number)
    w.assume(account.admitted + account.units + units <= account.charged)
    late = w.int("late", 1)
    w.assume(late < number)
    after = k.grant(k.grant(k.grant(account, late, units), number, units), number, units)
    return _is_paid(after)


@lemma(Ledger, KeepsWhatItGivesBack)
def what_is_given_back_is_not_held_any_more(w, k):
    """A lease that is over leaves neither units here nor a charge there."""
    after = k.give_up(k.account())
    return And(_is_paid(after), after.units == 0)


@lemma(Ledger, PutsBackTwice)
def what_is_put_back_was_taken(w, k):
    """Taking for a request that another limit refuses, and putting back, leaves the account as it was."""
    account, cost = k.account(), w.int("cost", 1)
    w.assume(account.units >= cost)
    after = k.put_back(k.take(account, cost), cost)
    return And(after.units == account.units, after.admitted == account.admitted, _is_paid(after))


@lemma(Ledger, BorrowsAChunkOnTop)
def less_than_a_chunk_is_left_after_borrowing(w, k):
    """Callers that have too little borrow a chunk, or what is short if that is more; `cost` is that of all that wait.

    Once they have taken it, less than a chunk is left.
    """
    held, cost = w.int("held", 0), w.int("cost", 1)
    w.assume(held < cost, cost <= k.capacity, k.chunk <= k.capacity)
    borrowed = k.wanted(cost - held)
    return And(held + borrowed >= cost, held + borrowed - cost < k.chunk)


class HoldsWhatItLikes(Ledger):
    def most_held(self):
        return self.capacity


@lemma(Ledger, HoldsWhatItLikes)
def in_an_interval_processes_times_chunk_more_can_pass(w, k):
    """Admitted in an interval <= what was held when it began + what was charged in it and not refunded.

    With at most a chunk held by each of `processes`, that is their chunks and the bound of the limit.
    """
    processes, bound = w.int("processes", 1), w.int("bound", 0)
    held, left = w.int("held_at_first", 0), w.int("held_at_last", 0)
    charged, admitted = w.int("charged_less_refunded", 0), w.int("admitted", 0)
    w.assume(held <= processes * k.most_held(), charged <= bound)
    w.assume(admitted + left == held + charged)
    return admitted <= bound + processes * k.chunk


@lemma(Ledger, HoldsWhatItLikes)
def a_process_that_dies_takes_at_most_a_chunk_along(w, k):
    """What it held is charged and will not be used: other processes admit less by that, none more."""
    held, charged, admitted = w.int("held", 0), w.int("charged", 0), w.int("admitted", 0)
    w.assume(held <= k.most_held(), charged == admitted + held)
    return And(admitted <= charged, admitted >= charged - k.chunk)


@lemma(Ledger, GivesEachTheWhole)
def shares_add_up_to_the_limit(w, k):
    """While the servers are away, processes that keep a share each keep the limit together, if it has a unit for each."""
    whole, processes = w.int("whole", 1), w.int("processes", 1)
    w.assume(processes <= whole)
    return k.share(whole, processes) * processes <= whole
