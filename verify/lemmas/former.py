"""Former limits: `crates/tidegate/src/store/slice.rs`, and `used` of the kernels in `crates/tidegate/src/kernel/`.

A charge stays in the state of the limit that admitted it. First, of each kernel alone: what it says is used only falls while
nothing is charged, a charge adds exactly its cost to it, and a cost is admitted if and only if it fits beside what is used. Then,
of limits of which no more than that is known, so of every combination of them: what a limit admits beside its former ones.
"""

import z3
from z3 import And, If, Implies, Not, Or

import bucket
import fixed_window
import log
import sliding_counter
from lemma import least, lemma, less_or_zero, most


# Each kernel alone.


class Bucket(bucket.Bucket):
    """A unit that has drained in part counts as a whole one."""

    def __init__(self, world):
        super().__init__(world)
        self.burst = world.int("burst", 1)
        world.assume(self.full == self.burst * self.scale)

    def used(self, state, tick):
        return self.world.div_ceil(self.level(state, tick), self.scale)


class RoundsUseDown(Bucket):
    """What has drained of a unit is forgiven."""

    def used(self, state, tick):
        return self.world.div(self.level(state, tick), self.scale)[0]


class TakesALevelAheadForNone(Bucket):
    """A level above full, as a clock that went back finds it, counts as an empty bucket."""

    def level(self, state, tick):
        level = super().level(state, tick)
        return If(level > self.full, 0, level)


@lemma(Bucket, TakesALevelAheadForNone)
def what_is_used_of_a_bucket_only_falls(w, b):
    """While nothing is charged, no more units are used at a later tick, whatever the clock said before."""
    state, tick, later = b.state(), w.int("tick", 0), w.int("later", 0)
    return b.used(state, tick + later) <= b.used(state, tick)


class ChargesInWholeTicks(Bucket):
    """What is left of a tick is lost with every charge."""

    def with_level(self, level, tick):
        return bucket.State(super().with_level(level, tick).at, 0)


@lemma(Bucket, ChargesInWholeTicks)
def a_charge_adds_its_cost_to_what_is_used_of_a_bucket(w, b):
    """After a charge exactly its cost more is used, in whole units."""
    state, tick, cost = b.state(), w.int("tick", 0), w.int("cost", 0)
    added, before = cost * b.scale, b.used(state, tick)
    after = b.used(b.charge(state, tick, added), tick)
    # The levels before and after, as the quotients have them: it assumes nothing.
    w.assume(Implies(after > before + cost, (after - before - cost) * b.scale >= b.scale))
    w.assume(Implies(after < before + cost, (before + cost - after) * b.scale >= b.scale))
    return after == before + cost


@lemma(Bucket, RoundsUseDown)
def a_bucket_admits_what_fits_beside_its_use(w, b):
    """A cost is admitted if and only if it and the whole units that are used are at most the burst."""
    state, tick, cost = b.state(), w.int("tick", 0), w.int("cost", 0)
    used = b.used(state, tick)
    # `u * scale <= burst * scale` is `u <= burst`, which Z3 does not try: it assumes nothing.
    over, under = used + cost - b.burst - 1, b.burst - used - cost
    w.assume(Implies(over >= 0, over * b.scale >= 0), Implies(under >= 0, under * b.scale >= 0))
    return b.admits(state, tick, cost * b.scale) == (used + cost <= b.burst)


class Fixed(fixed_window.FromEpoch):
    def used(self, state, tick):
        return self.view(state, tick).current


class StartsAnewWhenTheClockGoesBack(Fixed):
    """A clock before the window's start finds nothing used."""

    is_over = fixed_window.StartsAnewWhenTheClockGoesBack.is_over


@lemma(Fixed, StartsAnewWhenTheClockGoesBack)
def what_is_used_of_a_fixed_window_only_falls(w, k):
    """While nothing is charged, no more is used at a later tick, whatever the clock said before."""
    state, tick, later = k.state(), w.int("tick", 0), w.int("later", 0)
    return k.used(state, tick + later) <= k.used(state, tick)


class FromFirst(fixed_window.FromFirst):
    used = Fixed.used


class StartsAnewFromFirst(FromFirst):
    is_over = fixed_window.StartsAnewWhenTheClockGoesBack.is_over


@lemma(FromFirst, StartsAnewFromFirst)
def what_is_used_of_a_window_from_its_first_request_only_falls(w, k):
    """The same of windows that begin with a request."""
    state, tick, later = k.state(), w.int("tick", 0), w.int("later", 0)
    return k.used(state, tick + later) <= k.used(state, tick)


class ChargesTheWindowBefore(Fixed):
    """A charge counts in the window of the state, though that is over."""

    def charge(self, state, tick, cost):
        return fixed_window.State(state.start, state.current + cost)


@lemma(Fixed, ChargesTheWindowBefore)
def a_charge_adds_its_cost_to_what_is_used_of_a_fixed_window(w, k):
    """After a charge exactly its cost more is used, and it is admitted if and only if that is at most the count."""
    state, tick, cost = k.state(), w.int("tick", 0), w.int("cost", 0)
    added = k.used(k.charge(state, tick, cost), tick) == k.used(state, tick) + cost
    return And(added, k.admits(state, tick, cost) == (k.used(state, tick) + cost <= k.count))


class Counter(sliding_counter.Sliding):
    """What the comparison of a sliding counter sees: `the_comparison_is_that_of_the_rounded_share`."""

    def used(self, view):
        return self.share(view) + view.current

    def share(self, view):
        return self.world.div(view.previous * (self.period - view.elapsed), self.period)[0]

    def any_view(self):
        view = sliding_counter.View(*(self.world.int(name, 0) for name in sliding_counter.View._fields))
        self.world.assume(view.elapsed < self.period)
        return view


class WeighsTheWrongWay(Counter):
    """The previous window counts by what has passed of it."""

    def share(self, view):
        return self.world.div(view.previous * view.elapsed, self.period)[0]


@lemma(Counter, WeighsTheWrongWay)
def what_is_used_of_a_sliding_counter_only_falls(w, k):
    """While nothing is charged, no more is used at a later tick, also beyond the edge of a window."""
    view, later = k.any_view(), w.int("later", 0)
    then = sliding_counter._view_later(k, view, view.start + view.elapsed + later)
    before, after = k.used(view), k.used(then)
    # A whole unit more in the one share than in the other is a period more in its product: it assumes nothing.
    w.assume(Implies(after > before, (after - before) * k.period >= k.period))
    return after <= before


class RoundsEachUnit(Counter):
    """Units of this window count by their share, too."""

    def used(self, view):
        return self.world.div((view.previous + view.current) * (self.period - view.elapsed), self.period)[0]


@lemma(Counter, RoundsEachUnit)
def a_charge_adds_its_cost_to_what_is_used_of_a_sliding_counter(w, k):
    """After a charge exactly its cost more is used."""
    view, cost = k.any_view(), w.int("cost", 0)
    return k.used(view._replace(current=view.current + cost)) == k.used(view) + cost


class Log(log.Log):
    def used_at(self, now, name):
        return self.used(self.expired(self.time(now), name))


class SkipsEntriesAhead(log.Short):
    """Entries that are ahead of a clock that went back do not count until it has caught up."""

    def used_at(self, now, name):
        begun = self.world.int(f"begun_{name}", 0)
        self.world.assume(begun <= self.length)
        self.world.assume(Implies(begun > 0, self.at(begun - 1) <= now))
        self.world.assume(Implies(begun < self.length, self.at(begun) > now))
        return less_or_zero(self.sum(begun), self.sum(self.expired(now, name)))


@lemma(Log, SkipsEntriesAhead)
def what_is_used_of_a_log_only_falls(w, k):
    """While nothing is charged, no more is used at a later instant, whatever the clock said before."""
    now, later = w.int("now", 0), w.int("later", 0)
    return k.used_at(now + later, "then") <= k.used_at(now, "now")


# What several limits mean together: of each, no more is known than the lemmas above say.


class Together:
    """What is used of a limit and of two that it replaced, the newest first, while nothing is charged."""

    def __init__(self, world):
        self.world = world
        self.capacity, self.floor = world.int("capacity", 1), world.int("floor", 0)
        world.assume(self.floor < self.capacity)
        self.parts = [z3.Function(name, z3.IntSort(), z3.IntSort()) for name in ["own", "newer", "older"]]

    def only_fall(self, *times):
        """Nothing is charged from the first of these instants to the last."""
        for part in self.falling():
            self.world.assume(*(part(time) >= 0 for time in times))
            self.world.assume(*(part(before) >= part(after) for before, after in zip(times, times[1:])))

    def falling(self):
        return self.parts

    def beside(self, time):
        _, newer, older = self.parts
        return newer(time) + older(time)

    def admits(self, time, cost):
        """The limit is asked for the cost and what former limits count together, above the floor of a class."""
        needed = cost + self.beside(time)
        up_to = self.capacity - self.floor
        return And(needed <= up_to, self.parts[0](time) + needed <= up_to)

    def counted(self, time):
        """All that counts, whatever the limit in force looks at."""
        return sum(part(time) for part in self.parts)


class LooksAtTheNewestOnly(Together):
    """Of two changes in a row the first is forgotten."""

    def beside(self, time):
        return self.parts[1](time)


class LooksAtItselfOnly(Together):
    """Each change starts anew."""

    def beside(self, time):
        return 0


class TakesTheLargest(Together):
    """What former limits count is not added up."""

    def beside(self, time):
        return most(self.parts[1](time), self.parts[2](time))


@lemma(Together, TakesTheLargest)
def all_that_counts_fits_into_the_limit_in_force(w, t):
    """After an admission, what is used of the limit and of its former ones is at most its capacity less the floor of the class."""
    now, cost = w.int("now", 0), w.int("cost", 1)
    t.only_fall(now)
    w.assume(t.admits(now, cost))
    return t.counted(now) + cost <= t.capacity - t.floor


@lemma(Together, LooksAtTheNewestOnly)
def what_is_admitted_is_bounded_through_changes(w, t):
    """With `admitted` since the beginning, of which `drained` counts no more, an admission keeps both in balance, and
    what was ever admitted is at most the capacity of the limit in force and what drained.

    By induction this is the bound for every sequence of charges and changes.
    """
    now, cost = w.int("now", 0), w.int("cost", 1)
    admitted, drained = w.int("admitted", 0), w.int("drained", 0)
    t.only_fall(now)
    w.assume(admitted == t.counted(now) + drained, t.admits(now, cost))
    return admitted + cost <= t.capacity + drained


@lemma(Together, LooksAtItselfOnly)
def remaining_is_the_largest_cost_that_is_admitted(w, t):
    """So many units are admitted at this instant as the limit alone has left, less what former limits count."""
    now = w.int("now", 0)
    t.only_fall(now)
    remaining = less_or_zero(less_or_zero(t.capacity - t.floor, t.parts[0](now)), t.parts[1](now) + t.parts[2](now))
    return And(Or(remaining == 0, t.admits(now, remaining)), Not(t.admits(now, remaining + 1)))


class OneOfThemGrows(Together):
    """A former limit of which more counts later."""

    def falling(self):
        return self.parts[:2]


@lemma(Together, OneOfThemGrows)
def what_is_admitted_beside_former_limits_is_admitted_later(w, t):
    """While nothing is charged, a cost that is admitted now is admitted at every later instant."""
    now, later, cost = w.int("now", 0), w.int("later", 0), w.int("cost", 0)
    t.only_fall(now, now + later)
    w.assume(*(part(time) >= 0 for part in t.parts for time in [now, now + later]))
    w.assume(t.admits(now, cost))
    return t.admits(now + later, cost)


class Wait(Together):
    """The wait of a refusal: between an instant at which it is refused and one at which it is admitted, halved."""

    def longest(self, alone, ends):
        """From when on the limit alone admits the cost, and former limits count nothing."""
        return most(alone, most(*ends))

    def halved(self, refused, admitted, is_admitted):
        middle = refused + self.world.div(admitted - refused, 2)[0]
        return If(is_admitted(middle), refused, middle), If(is_admitted(middle), middle, admitted)

    def ends(self, refused, admitted):
        return admitted - refused <= 1


class EndsWithTheFirstFormerLimit(Wait):
    """The search ends when the first of the former limits counts nothing."""

    def longest(self, alone, ends):
        return most(alone, least(*ends))


class HalvesTheWrongWay(Wait):
    def halved(self, refused, admitted, is_admitted):
        middle = refused + self.world.div(admitted - refused, 2)[0]
        return If(is_admitted(middle), middle, refused), If(is_admitted(middle), admitted, middle)


class EndsAMicrosecondTooSoon(Wait):
    def ends(self, refused, admitted):
        return admitted - refused <= 2


@lemma(Wait, EndsWithTheFirstFormerLimit)
def the_search_for_a_wait_begins_with_one_that_suffices(w, t):
    """When the limit alone admits the cost and former limits count nothing, the cost is admitted."""
    now, alone, cost = w.int("now", 0), w.int("alone", 0), w.int("cost", 1)
    ends = [w.int("newer_ends", 0), w.int("older_ends", 0)]
    own, *former = t.parts
    at = now + t.longest(alone, ends)
    t.only_fall(now, at)
    w.assume(cost <= t.capacity - t.floor, own(at) + cost <= t.capacity - t.floor)
    w.assume(*(Implies(at >= now + end, part(at) == 0) for part, end in zip(former, ends)))
    return t.admits(at, cost)


@lemma(Wait, HalvesTheWrongWay)
def halving_keeps_the_wait_between_its_bounds(w, t):
    """Each step leaves a refused instant below an admitted one, and less between them: so it ends."""
    refused, admitted = w.int("refused", 0), w.int("admitted", 0)
    is_admitted = z3.Function("is_admitted", z3.IntSort(), z3.BoolSort())
    w.assume(Not(is_admitted(refused)), is_admitted(admitted), refused < admitted, Not(t.ends(refused, admitted)))
    below, above = t.halved(refused, admitted, is_admitted)
    closer = And(below < above, above - below < admitted - refused)
    return And(Not(is_admitted(below)), is_admitted(above), closer)


@lemma(Wait, EndsAMicrosecondTooSoon)
def the_wait_is_the_least(w, t):
    """Where the search ends the cost is admitted, and at no earlier instant."""
    now, cost = w.int("now", 0), w.int("cost", 1)
    refused, admitted, earlier = w.int("refused", 0), w.int("admitted", 0), w.int("earlier", 0)
    w.assume(refused < admitted, t.ends(refused, admitted), earlier < admitted)
    t.only_fall(now + earlier, now + admitted - 1, now + admitted)
    t.only_fall(now + refused, now + admitted)
    w.assume(Not(t.admits(now + refused, cost)), t.admits(now + admitted, cost))
    return Not(t.admits(now + earlier, cost))


class Changes:
    """Three limits, what is used of each, and which of them count: the one in force and its former ones."""

    def __init__(self, world):
        self.world = world
        self.used = [world.int(name, 0) for name in ["used_first", "used_second", "used_third"]]
        self.force = world.int("force", 0, 2)
        self.former = [z3.Bool(name) for name in ["first_is_former", "second_is_former", "third_is_former"]]

    def counted(self, force, former):
        return sum(If(Or(force == limit, former[limit]), self.used[limit], 0) for limit in range(3))

    def changed(self, to):
        """The former limits of the next one: those of the last one and itself, without the next one."""
        return [And(Or(was, self.force == limit), to != limit) for limit, was in enumerate(self.former)]


class RemembersTheLastChangeOnly(Changes):
    def changed(self, to):
        return [self.force == limit for limit in range(3)]


class StartsAnewWhenItReturns(Changes):
    """A limit that comes back counts nothing of what it had admitted before."""

    def counted(self, force, former):
        return sum(If(former[limit], self.used[limit], 0) for limit in range(3))


@lemma(Changes, RemembersTheLastChangeOnly)
def no_change_of_a_limit_forgives_anything(w, c):
    """All that counted before a change counts after it, once: so a limit lowered and raised again forgives nothing."""
    to = w.int("to", 0, 2)
    w.assume(*(Or(c.force == limit, c.former[limit], c.used[limit] == 0) for limit in range(3)))
    w.assume(*(Not(And(c.force == limit, c.former[limit])) for limit in range(3)))
    after = c.changed(to)
    all_counts = And(*(Or(to == limit, after[limit], c.used[limit] == 0) for limit in range(3)))
    once = And(*(Not(And(to == limit, after[limit])) for limit in range(3)))
    return And(c.counted(to, after) == c.counted(c.force, c.former), all_counts, once)


@lemma(Changes, StartsAnewWhenItReturns)
def a_limit_lowered_and_raised_again_forgives_nothing(w, c):
    """A limit is replaced by another one and comes back: what was admitted by both counts."""
    w.assume(c.force == 0, *(Not(was) for was in c.former))
    c.former = c.changed(1)
    c.force = 1
    return c.counted(0, c.changed(0)) == c.used[0] + c.used[1]


class Refund:
    """A refund takes from the newest state first, and from a former one what the newer ones do not count."""

    def __init__(self, world):
        self.world = world

    def refunded(self, used, cost):
        left, kept = cost, []
        for units in used:
            kept.append(less_or_zero(units, left))
            left = less_or_zero(left, units)
        return kept


class RefundsOfEach(Refund):
    """Each state gives back the whole cost."""

    def refunded(self, used, cost):
        return [less_or_zero(units, cost) for units in used]


class RefundsOfTheNewestOnly(Refund):
    """What was charged to a former limit cannot be given back."""

    def refunded(self, used, cost):
        own, *former = used
        return [less_or_zero(own, cost), *former]


@lemma(Refund, RefundsOfEach)
def a_refund_gives_back_no_more_than_its_cost(w, r):
    """All that counts falls by the cost, or to nothing, and what is older is taken from only if nothing newer is left."""
    used, cost = [w.int(name, 0) for name in ["own", "newer", "older"]], w.int("cost", 0)
    kept = r.refunded(used, cost)
    in_order = And(*(Or(kept[i] == 0, kept[i + 1] == used[i + 1]) for i in range(2)))
    return And(sum(kept) == less_or_zero(sum(used), cost), in_order)


@lemma(Refund, RefundsOfTheNewestOnly)
def a_refund_reaches_what_former_limits_count(w, r):
    """A refund of all that counts leaves nothing."""
    used = [w.int(name, 0) for name in ["own", "newer", "older"]]
    return sum(r.refunded(used, sum(used))) == 0


class Permits:
    """A permit of a former limit, which is remembered until some instant."""

    def __init__(self, world):
        self.period, self.until = world.int("period", 1), world.int("until", 0)

    def can_renew(self, now):
        return now + self.period <= self.until


class RenewsToTheEnd(Permits):
    """A permit is renewed as long as its limit is remembered, and forgotten before it ends."""

    def can_renew(self, now):
        return now < self.until


@lemma(Permits, RenewsToTheEnd)
def no_permit_of_a_former_limit_is_forgotten_before_it_ends(w, p):
    """A permit that was renewed counts no more when its limit is forgotten."""
    now = w.int("now", 0)
    w.assume(p.can_renew(now))
    return Not(now + p.period > p.until)


class Queues:
    """When a leaky bucket lets a request go that is admitted now, beside the queues of former ones."""

    def __init__(self, world):
        self.world = world

    def delay(self, own, former):
        return own + most(*former)


class IgnoresFormerQueues(Queues):
    """Requests of the new limit go beside those that still wait in the queue of the old one."""

    def delay(self, own, former):
        return own


@lemma(Queues, IgnoresFormerQueues)
def no_request_leaves_before_those_of_former_queues(w, q):
    """A request that is admitted goes when every request has gone that a former queue admitted."""
    own, former = w.int("own", 0), [w.int("newer_drains", 0), w.int("older_drains", 0)]
    return And(*(q.delay(own, former) >= drains for drains in former))
