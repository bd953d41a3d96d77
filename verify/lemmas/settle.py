"""Reservations: `undo` and `is_there` of the kernels in `crates/tidegate/src/kernel/`, of buckets and of logs.
Windows are in `settle_windows.py`.

A reservation charges an estimate, `cost`, at one instant, and is settled to what it was in the end, `kept`, at a
later one. The kernel gives the difference back as far as it is certainly still there. The lemmas compare with a key
that was charged `kept` in the first place and got the same other charges: a settled key is at least as full.

Z3 proves that for one reservation and for two. For any number of them Z3 proves the steps of an induction, from
`what_can_be_given_back_falls_with_every_idle_instant` on, and this is the argument that puts them together:

Let X be the bucket, and S a bucket that is charged min(estimate, actual) of each reservation when that is made, and
all other charges. Let G be the sum of what each open reservation would give back now. Then X >= S + G at every
instant. The steps are: time passes, a charge, a settlement to less, a settlement to more. While time passes, X comes
closer to S only while S is empty and X is not, and for as long G falls at least as fast: each part of G does, so the
sum does. So X >= S always. What X admits fits into S, so the account of S bounds the sum of min(estimate, actual) in
every interval by burst + rate x time. What was settled in an interval is at most that and the sum of max(0, actual -
estimate) of the reservations made in it. The argument takes it that no clock reading is older than one that was used
before; see `a_late_reading_gives_back_what_drains_in_between_at_most`. Refunds of other charges and resets are not
part of it: P1 excepts them.
"""

from collections import namedtuple

from z3 import And, If, Implies, Not

from bucket import Bucket
from lemma import least, lemma, less_or_zero, most
from log import Log, Short

# `before` is the level that the charge found, which the kernel does not use.
Charged = namedtuple("Charged", "at cost before")


class Correction:
    """What a settlement gives back."""

    def given_back(self, now, charged, kept):
        """What has drained since counts as drained of this charge, of what is kept first."""
        gone = less_or_zero(self.drained(now, charged), kept)
        return less_or_zero(charged.cost - kept, gone)


class Settling(Correction, Bucket):
    """The kernel: ticks, and a state of ticks and a fraction."""

    def drained(self, tick, charged):
        return less_or_zero(tick, charged.at) * self.drain

    def undo(self, state, tick, charged, kept):
        return self.refund(state, tick, self.given_back(tick, charged, kept))


class Instants(Correction):
    """The same bucket as sums: its state is when it is empty, and time is counted in parts of a tick, `drain` in each.

    `a_charge_and_a_settlement_are_sums_of_instants` shows that it is the same.
    """

    def __init__(self, world):
        self.world = world
        self.full = world.int("full", 1)

    def drained(self, now, charged):
        return less_or_zero(now, charged.at)

    def level(self, empty, now):
        return less_or_zero(empty, now)

    def admits(self, empty, now, added):
        return self.level(empty, now) + added <= self.full

    def charge(self, empty, now, added):
        return most(empty, now) + added

    def undo(self, empty, now, charged, kept):
        lower = most(empty - self.given_back(now, charged, kept), now)
        return If(empty >= now, lower, empty)

    def rest(self, open_, idle):
        """What can be given back after the bucket of settled costs was empty for so long."""
        return less_or_zero(open_, idle)


# The defects.


class LosesTheBorrow(Settling):
    def refund(self, state, tick, cost):
        right = super().refund(state, tick, cost)
        _, fraction = self.world.div(cost, self.drain)
        return type(state)(right.at, less_or_zero(state.fraction, fraction))


class GivesTheEstimateBack(Settling):
    """What is kept is given back, too."""

    def given_back(self, now, charged, kept):
        return less_or_zero(charged.cost, less_or_zero(self.drained(now, charged), kept))


class IgnoresWhatIsKept(Settling):
    """What has drained counts against what is given back, though what is kept drains first."""

    def given_back(self, now, charged, kept):
        return charged.cost - kept - self.drained(now, charged)


class KeepsAUnit(Settling):
    def given_back(self, now, charged, kept):
        return less_or_zero(super().given_back(now, charged, kept), 1)


class GivesAllBack(Instants):
    """What has drained is given back once more."""

    def given_back(self, now, charged, kept):
        return charged.cost - kept


class CountsWhatWasThereBefore(Instants):
    """What was in the bucket before the charge drains first: right for one reservation, but with two the other one may
    have been settled since, and then it was not there."""

    def given_back(self, now, charged, kept):
        gone = less_or_zero(self.drained(now, charged), charged.before + kept)
        return less_or_zero(charged.cost - kept, gone)


class SharesWhatDrained(Instants):
    """Of two reservations each bears half of what has drained."""

    def rest(self, open_, idle):
        half, _ = self.world.div(idle, 2)
        return less_or_zero(open_, half)


class KeepsWhatIsOpen(Instants):
    """A reservation can always give back as much as at first."""

    def rest(self, open_, idle):
        return open_


class AdmitsOneTooMany(Instants):
    def admits(self, empty, now, added):
        return self.level(empty, now) <= self.full


# One reservation of a bucket.


def any_charge(w, name="charged", before=0):
    """A charge and what is kept of it."""
    cost, kept = w.int(f"{name}.cost", 0), w.int(f"{name}.kept", 0)
    w.assume(kept <= cost)
    return Charged(w.int(f"{name}.at", 0), cost, before), kept


@lemma(Settling, LosesTheBorrow)
def a_charge_and_a_settlement_are_sums_of_instants(w, b):
    """The kernel, in ticks and fractions, moves the instant at which the bucket is empty exactly as `Instants` says."""
    state, tick, added = b.state(), w.int("tick", 0), w.int("added", 0)
    charged, kept = any_charge(w)
    sums, now, empty = Instants(w), tick * b.drain, b.empty_at(state)
    in_parts = charged._replace(at=charged.at * b.drain)
    after = b.undo(state, tick, charged, kept)
    return And(
        b.level(state, tick) == sums.level(empty, now),
        b.empty_at(b.charge(state, tick, added)) == sums.charge(empty, now, added),
        b.empty_at(after) == sums.undo(empty, now, in_parts, kept),
        after.fraction >= 0,
        after.fraction < b.drain,
    )


@lemma(Settling, KeepsAUnit)
def settled_at_once_it_is_as_if_only_that_had_been_charged(w, b):
    """Settled at the instant of the charge, the state is that of a charge of `kept`, and so is every later level."""
    state, later = b.state(), w.int("later", 0)
    charged, kept = any_charge(w)
    settled = b.undo(b.charge(state, charged.at, charged.cost), charged.at, charged, kept)
    direct = b.charge(state, charged.at, kept)
    return And(
        b.empty_at(settled) == b.empty_at(direct),
        b.level(settled, charged.at + later) == If(
            kept > 0, b.level(direct, charged.at + later), b.level(state, charged.at + later)
        ),
    )


@lemma(Settling, GivesTheEstimateBack)
def no_more_is_given_back_than_was_charged_too_much(w, b):
    """A settlement lowers the level by the estimate less what is kept at most."""
    state, tick = b.state(), w.int("tick", 0)
    charged, kept = any_charge(w)
    lowered = b.level(state, tick) - b.level(b.undo(state, tick, charged, kept), tick)
    return lowered <= charged.cost - kept


@lemma(Settling, IgnoresWhatIsKept)
def a_settlement_to_less_takes_nothing(w, b):
    """What is given back is never below zero, however much has drained."""
    tick = w.int("tick", 0)
    charged, kept = any_charge(w)
    return b.given_back(tick, charged, kept) >= 0


def in_order(w, *instants):
    for sooner, later in zip(instants, instants[1:]):
        w.assume(sooner <= later)


@lemma(Instants, GivesAllBack)
def a_settled_bucket_is_as_full_as_if_only_that_had_been_charged(w, b):
    """The level is at least that of the same bucket which was charged `kept` instead of the estimate, whatever is in it
    and whatever is charged before and after the settlement."""
    empty, charged_between, charged_after = w.int("empty", 0), w.int("charged_between", 0), w.int("charged_after", 0)
    between, settles, after, later = (w.int(name, 0) for name in ["between", "settles", "after", "later"])
    charged, kept = any_charge(w)
    in_order(w, charged.at, between, settles, after, later)
    settled, direct = b.charge(empty, charged.at, charged.cost), b.charge(empty, charged.at, kept)
    settled, direct = (b.charge(each, between, charged_between) for each in [settled, direct])
    settled = b.undo(settled, settles, charged, kept)
    at_once = b.level(settled, settles) >= b.level(direct, settles)
    settled, direct = (b.charge(each, after, charged_after) for each in [settled, direct])
    return And(at_once, b.level(settled, later) >= b.level(direct, later))


@lemma(Instants, CountsWhatWasThereBefore)
def two_reservations_settled_in_either_order_leave_it_as_full(w, b):
    """The same of two that are open together, with charges between all of it."""
    empty, costs = w.int("empty", 0), [w.int(f"cost_{number}", 0) for number in range(3)]
    times = [w.int(f"time_{number}", 0) for number in range(5)]
    first, kept_of_first = any_charge(w, "first")
    second, kept_of_second = any_charge(w, "second")
    in_order(w, first.at, times[0], second.at, *times[1:])
    first = first._replace(before=b.level(empty, first.at))
    settled, direct = b.charge(empty, first.at, first.cost), b.charge(empty, first.at, kept_of_first)
    settled, direct = (b.charge(each, times[0], costs[0]) for each in [settled, direct])
    second = second._replace(before=b.level(settled, second.at))
    settled, direct = b.charge(settled, second.at, second.cost), b.charge(direct, second.at, kept_of_second)
    settled, direct = (b.charge(each, times[1], costs[1]) for each in [settled, direct])
    direct = b.charge(direct, times[3], costs[2])

    def one_by_one(one, kept_of_one, other, kept_of_other):
        after_one = b.undo(settled, times[2], one, kept_of_one)
        return b.undo(b.charge(after_one, times[3], costs[2]), times[4], other, kept_of_other)

    return And(
        b.level(one_by_one(first, kept_of_first, second, kept_of_second), times[4]) >= b.level(direct, times[4]),
        b.level(one_by_one(second, kept_of_second, first, kept_of_first), times[4]) >= b.level(direct, times[4]),
    )


@lemma(Instants, GivesAllBack)
def a_late_reading_gives_back_what_drains_in_between_at_most(w, b):
    """If a charge was carried out at a later time than the settlement's own, as when a thread reads the clock and is
    overtaken, then the bucket may be less full than it should be: by what drains between the two readings at most."""
    empty, other = w.int("empty", 0), w.int("other", 0)
    between, settles, later = w.int("between", 0), w.int("settles", 0), w.int("later", 0)
    charged, kept = any_charge(w)
    in_order(w, charged.at, between, later)
    in_order(w, charged.at, settles, later)
    settled, direct = b.charge(empty, charged.at, charged.cost), b.charge(empty, charged.at, kept)
    settled, direct = (b.charge(each, between, other) for each in [settled, direct])
    settled = b.undo(settled, settles, charged, kept)
    return b.level(settled, later) + less_or_zero(between, settles) >= b.level(direct, later)


# Any number of reservations: `settled` is the bucket of settled costs alone, `open` what could be given back.


@lemma(Instants, CountsWhatWasThereBefore)
def what_can_be_given_back_falls_with_every_idle_instant(w, b):
    """While the bucket of settled costs is empty, each open reservation loses as much of what it would give back."""
    settled, now, later = w.int("settled", 0), w.int("now", 0), w.int("later", 0)
    charged, kept = any_charge(w, before=w.int("before", 0))
    in_order(w, charged.at, now, later)
    w.assume(settled >= charged.at + kept)
    idle = less_or_zero(later, most(settled, now))
    return b.given_back(later, charged, kept) <= Instants.rest(b, b.given_back(now, charged, kept), idle)


@lemma(Instants, SharesWhatDrained)
def the_sum_falls_at_least_as_fast_as_each(w, b):
    """If one reservation and all others lose as much as the bucket was empty, so does their sum.

    By induction this is so for any number of them.
    """
    one, others, idle = w.int("one", 0), w.int("others", 0), w.int("idle", 0)
    one_left, others_left = w.int("one_left", 0), w.int("others_left", 0)
    w.assume(one_left <= b.rest(one, idle), others_left <= b.rest(others, idle))
    return one_left + others_left <= less_or_zero(one + others, idle)


@lemma(Instants, KeepsWhatIsOpen)
def time_leaves_room_for_all_that_is_open(w, b):
    """While time passes, the level stays above that of the settled costs by what is open."""
    empty, settled, open_, left = w.int("empty", 0), w.int("settled", 0), w.int("open", 0), w.int("left", 0)
    now, later = w.int("now", 0), w.int("later", 0)
    in_order(w, now, later)
    w.assume(b.level(empty, now) >= b.level(settled, now) + open_)
    w.assume(left <= b.rest(open_, less_or_zero(later, most(settled, now))))
    return b.level(empty, later) >= b.level(settled, later) + left


class ReportsToTheSettled(Instants):
    """What was spent beyond the estimate is not charged, but taken for settled."""

    def report(self, empty, now, added):
        return empty - added


class Reporting(Instants):
    def report(self, empty, now, added):
        return self.charge(empty, now, added)


@lemma(Reporting, ReportsToTheSettled)
def every_operation_leaves_room_for_all_that_is_open(w, b):
    """A charge, a settlement to less and one to more keep the level above that of the settled costs by what is open.

    Of a report any part may be recorded: it is `recorded`.
    """
    empty, settled, open_, now = w.int("empty", 0), w.int("settled", 0), w.int("open", 0), w.int("now", 0)
    recorded = w.int("recorded", 0)
    charged, kept = any_charge(w)
    w.assume(b.level(empty, now) >= b.level(settled, now) + open_, charged.at <= now)
    made = charged._replace(at=now)
    level, after = b.level(b.charge(empty, now, made.cost), now), b.charge(settled, now, kept)
    charges = And(
        level >= b.level(after, now) + open_ + b.given_back(now, made, kept),
        # What the lemmas about time take for given: the charge is in the account of settled costs, which only grows.
        after >= now + kept,
        after >= settled,
    )
    one = b.given_back(now, charged, kept)
    less = b.level(b.undo(empty, now, charged, kept), now) >= b.level(settled, now) + open_ - one
    more = b.level(b.report(empty, now, recorded), now) >= b.level(settled, now) + open_
    return And(charges, Implies(one <= open_, less), more)


@lemma(Instants, AdmitsOneTooMany)
def settled_costs_keep_the_bound_of_every_interval(w, b):
    """With `sum` settled since `first`, an admission keeps the account of settled costs: sum <= burst + rate x time.

    Each cost is counted up to its estimate; what was settled beyond it is the rest of the bound.
    """
    empty, settled = w.int("empty", 0), w.int("settled", 0)
    first, now, total, beyond = w.int("first", 0), w.int("now", 0), w.int("sum", 0), w.int("beyond", 0)
    cost, actual = w.int("cost", 0), w.int("actual", 0)
    w.assume(first <= now, b.level(empty, now) >= b.level(settled, now), settled >= first + total)
    w.assume(b.admits(empty, now, cost))
    counted = least(cost, actual)
    after = b.charge(settled, now, counted)
    return And(
        after >= first + total + counted,
        total + beyond + actual <= b.full + (now - first) + beyond + less_or_zero(actual, cost),
    )


# Logs, and limits on what is in flight.


class Correcting(Log):
    """`undo`, `is_there` and a renewal, of the entry with the number `index`."""

    def index(self, charged_at):
        index = self.world.int("index", 0)
        self.world.assume(index < self.length, self.at(index) == charged_at)
        return index

    def size(self, entry):
        return self.sum(entry + 1) - self.sum(entry)

    def is_there(self, index, time, cost):
        return And(Not(self.is_expired(index, time)), self.size(index) >= cost)

    def taken(self, index, cost):
        return least(self.size(index), cost)

    def lowered_from(self, index):
        """Totals are lowered from this entry on."""
        return index

    def old_number(self, number, index, is_removed):
        return If(And(is_removed, number >= index), number + 1, number)

    def new_number(self, number, index, is_removed):
        return If(And(is_removed, number > index), number - 1, number)

    def sum_after(self, number, index, cost):
        """The cost of all before the entry that has this number afterwards."""
        taken = self.taken(index, cost)
        old = self.old_number(number, index, taken == self.size(index))
        return self.sum(old) - If(old > self.lowered_from(index), taken, 0)

    def used_after_undo(self, index, expired, cost):
        is_removed = self.taken(index, cost) == self.size(index)
        length = self.length - If(is_removed, 1, 0)
        return self.sum_after(length, index, cost) - self.sum_after(expired, index, cost)

    def used_after_renewal(self, index, expired, cost):
        return self.used_after_undo(index, expired, cost) + cost


class TakesFromTheNewest(Correcting, Short):
    """A settlement takes from the latest charge, as a refund does, and not from its own."""

    def lowered_from(self, index):
        return self.length - 1


class RenewsWithoutUndo(Correcting, Short):
    """A renewal charges once more and leaves the permit where it was."""

    def used_after_renewal(self, index, expired, cost):
        return self.used(expired) + cost


class RenewsWhatHasExpired(Correcting, Short):
    """A renewal looks for the entry, and not for whether it still counts."""

    def is_there(self, index, time, cost):
        return self.size(index) >= cost


@lemma(Correcting, TakesFromTheNewest)
def a_settlement_takes_from_its_own_instant_alone(w, k):
    """The entry has so much less, or is gone if nothing of it is left; every other one has its instant and its cost."""
    charged_at, cost, entry = w.int("charged_at", 0), w.int("cost", 1), w.int("entry", 0)
    index = k.index(charged_at)
    w.assume(entry < k.length)
    taken = k.taken(index, cost)
    is_removed = taken == k.size(index)
    number = k.new_number(entry, index, is_removed)
    size = k.sum_after(number + 1, index, cost) - k.sum_after(number, index, cost)
    same = And(size == k.size(entry), k.at(k.old_number(number, index, is_removed)) == k.at(entry))
    return And(
        Implies(entry != index, same),
        Implies(And(entry == index, Not(is_removed)), size == k.size(entry) - cost),
        Implies(And(entry == index, is_removed), cost >= k.size(entry)),
    )


@lemma(Correcting, RenewsWithoutUndo)
def there_are_never_more_permits_than_the_limit(w, k):
    """A settlement leaves so much less in use, and a renewal as much as before: at most the count, if it was.

    Of a charge `every_window_holds_at_most_the_count` says it, in `log.py`.
    """
    now, charged_at, cost = w.int("now", 0), w.int("charged_at", 0), w.int("cost", 1)
    time, index = k.time(now), k.index(charged_at)
    expired = k.expired(time)
    used = k.used(expired)
    w.assume(used <= k.count, index >= expired)
    return And(
        k.used_after_undo(index, expired, cost) == used - k.taken(index, cost),
        k.used_after_undo(index, expired, cost) >= 0,
        Implies(k.is_there(index, time, cost), k.used_after_renewal(index, expired, cost) <= k.count),
    )


@lemma(Correcting, RenewsWhatHasExpired)
def a_permit_that_has_expired_is_not_renewed(w, k):
    """What no longer counts cannot be made to count again; what is renewed still counts, all of it."""
    now, charged_at, cost = w.int("now", 0), w.int("charged_at", 0), w.int("cost", 1)
    time, index = k.time(now), k.index(charged_at)
    expired = k.expired(time)
    renewed = k.is_there(index, time, cost)
    return And(
        Implies(time >= charged_at + k.period, Not(renewed)),
        Implies(renewed, And(index >= expired, k.used(expired) >= cost)),
    )
