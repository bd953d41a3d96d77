"""Proves every lemma, and sees every planted defect found.

    python verify/lemmas/lemmas.py          a table, and a status that is zero only if all is as it should be
    python verify/lemmas/lemmas.py -v       with the sentences, and with the integers by which each defect shows
    python verify/lemmas/lemmas.py bucket   only one subject
"""

import importlib
import sys

from lemma import LEMMAS

SUBJECTS = [
    "bucket",
    "coarse",
    "fixed_window",
    "calendar",
    "sliding_counter",
    "log",
    "debt",
    "floors",
    "settle",
    "settle_windows",
    "forgetting",
    "sharing",
    "former",
    "warm_up",
    "strict",
    "leases",
    "quotas",
]


def main(arguments):
    verbose = "-v" in arguments
    chosen = [argument for argument in arguments if argument in SUBJECTS] or SUBJECTS
    proved, asked, failures, seconds = 0, 0, [], 0.0
    for subject in chosen:
        importlib.import_module(subject)
        print(f"\n{subject}")
        # One subject may use the kernel of another.
        for lemma in [each for each in LEMMAS if each.statement.__module__ == subject]:
            asked += 1
            proof, refutation = lemma.prove(), lemma.refute()
            seconds += proof.seconds + refutation.seconds
            well = proof.nothing_found and refutation.found
            proved += well
            print(f"  {'proved' if proof.nothing_found else 'NOT PROVED':10} {proof.seconds * 1000:6.0f} ms  "
                  f"{lemma.name:64} {'finds' if refutation.found else 'MISSES'} {lemma.planted.__name__} "
                  f"in {refutation.seconds * 1000:.0f} ms")
            if verbose:
                print(f"             {lemma.says}")
                print(f"             seeds {proof.seed} and {refutation.seed}, work {proof.work} and {refutation.work}")
                if refutation.found:
                    print(f"             with the defect: {refutation.numbers()}")
            if not proof.nothing_found:
                found = proof.numbers() if proof.found else "no answer in time"
                failures.append(f"{subject}.{lemma.name} is not proved: {found}")
            if not refutation.found:
                what = "is not noticed" if refutation.nothing_found else "gets no answer in time"
                failures.append(f"{subject}.{lemma.name}: the planted {lemma.planted.__name__} {what}")
    print(f"\n{proved} of {asked} lemmas proved, each of them also seen to fail with its planted defect, "
          f"in {seconds:.1f} s")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
