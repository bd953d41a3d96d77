"""What a lemma is: assumptions over unbounded integers, and what follows from them.

A lemma is a function of a world and a kernel. The kernel is the library's arithmetic, written down once more for Z3; the
function says what is given and returns what must then be true. It is proved if Z3 finds no integers for which it is not.

Each lemma names a planted change: the same kernel with one defect in it. With that one Z3 has to find integers that break
the conclusion. So no lemma holds for the empty reason that its assumptions contradict each other, and each is known to
notice the defect that it is there for.
"""

import time
from dataclasses import dataclass

import z3

# How much Z3 may do for one question before it is asked again with another seed, in its own unit of work, so that a
# busy machine changes nothing. The hardest of the questions takes less than a tenth of it.
WORK = 40_000_000

# The searches are over products of unknowns, for which Z3 has no complete method: a seed may lead it astray. An answer
# is right whichever seed gave it.
SEEDS = range(8)


class World:
    """The integers of one lemma, and what is assumed of them."""

    def __init__(self):
        self.assumed = []
        self.divisions = {}

    def int(self, name, least=None, most=None):
        """An integer, between bounds if they are given."""
        value = z3.Int(name)
        if least is not None:
            self.assume(value >= least)
        if most is not None:
            self.assume(value <= most)
        return value

    def assume(self, *facts):
        self.assumed.extend(facts)

    def div(self, number, by):
        """Quotient and remainder, as unsigned integers have them: `by` is above zero. The same ones if asked again."""
        key = tuple(each.sexpr() if z3.is_expr(each) else each for each in (number, by))
        if key not in self.divisions:
            self.divisions[key] = z3.Int(f"quotient_{len(self.divisions)}"), z3.Int(f"rest_{len(self.divisions)}")
            quotient, rest = self.divisions[key]
            self.assume(number == quotient * by + rest, rest >= 0, rest < by)
        return self.divisions[key]

    def div_ceil(self, number, by):
        quotient, rest = self.div(number, by)
        return quotient + z3.If(rest > 0, 1, 0)


def least(a, b):
    return z3.If(a <= b, a, b)


def most(a, b):
    return z3.If(a >= b, a, b)


def less_or_zero(a, b):
    """`a - b`, or zero: what `saturating_sub` is."""
    return most(a - b, 0)


@dataclass
class Lemma:
    """A statement, the kernel that it is about, and a defect that it must notice."""

    statement: object
    kernel: type
    planted: type

    @property
    def name(self):
        return self.statement.__name__

    @property
    def says(self):
        return " ".join(self.statement.__doc__.split())

    def prove(self):
        """What Z3 finds that breaks the lemma: nothing, it is to be hoped."""
        return self._counterexample(self.kernel)

    def refute(self):
        """What Z3 finds once the defect is planted."""
        return self._counterexample(self.planted)

    def _counterexample(self, kernel):
        began = time.monotonic()
        world = World()
        conclusion = self.statement(world, kernel(world))
        question = z3.Solver()
        question.add(*world.assumed, z3.Not(conclusion))
        question = question.to_smt2()
        for seed in SEEDS:
            # In a context of its own, the search does not depend on the lemmas that came before.
            solver = z3.Solver(ctx=z3.Context())
            solver.from_string(question)
            solver.set("rlimit", WORK)
            solver.set("random_seed", seed)
            answer = solver.check()
            if answer != z3.unknown:
                break
        model = solver.model() if answer == z3.sat else None
        return Outcome(answer, model, time.monotonic() - began, seed, work(solver))


def work(solver):
    """What the solver did so far, in Z3's unit of work."""
    statistics = solver.statistics()
    return statistics.get_key_value("rlimit count") if "rlimit count" in statistics.keys() else 0


@dataclass
class Outcome:
    answer: object
    model: object
    seconds: float
    seed: int
    work: int

    @property
    def nothing_found(self):
        return self.answer == z3.unsat

    @property
    def found(self):
        return self.answer == z3.sat

    def numbers(self):
        """The integers that were found, without those that only stand for quotients."""
        shown = (each for each in self.model.decls() if not each.name().startswith(("quotient_", "rest_")))
        return ", ".join(f"{each.name()} = {self._value(each)}" for each in sorted(shown, key=lambda each: each.name()))

    def _value(self, declared):
        if declared.arity() == 0:
            return self.model[declared]
        return [self.model.eval(declared(number)) for number in range(4)]


LEMMAS = []


def lemma(kernel, planted):
    """Makes a lemma of a function."""

    def register(statement):
        LEMMAS.append(Lemma(statement, kernel, planted))
        return statement

    return register
