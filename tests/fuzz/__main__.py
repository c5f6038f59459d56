"""`python -m tests.fuzz`: run seeded cases, and count what breaks the property of `judge` by its cause."""

import argparse
import os
import sys
from collections import defaultdict

from tests.fuzz.runner import KINDS, Case, run


def main() -> int:
    """Print violations by cause, with a case that repeats each; 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--cases", type=int, default=1000, help="for each seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help=f"kind:seed:number, or one of the kinds {', '.join(KINDS)}")
    options = parser.parse_args()
    numbered = [(KINDS[i % len(KINDS)], i // len(KINDS)) for i in range(options.cases)]
    cases = [Case(kind, seed, number) for seed in options.seed for kind, number in numbered]
    kind, *rest = options.only.split(":")
    if options.only:
        cases = [Case(kind, *map(int, rest))] if rest else [case for case in cases if case.kind == kind]
    causes = defaultdict(list)
    for case, violations in run(cases, options.workers):
        for cause, detail in violations:
            causes[cause].append((case, detail))
    for cause, seen in sorted(causes.items(), key=lambda item: -len(item[1])):
        case, detail = seen[0]
        indented = "".join(f"    {line}\n" for line in detail[-2500:].splitlines())
        print(f"{len(seen)} × {cause}\n  --only {case}\n{indented}")
    print(f"{len(cases)} cases, {sum(map(len, causes.values()))} violations of {len(causes)} causes")
    return int(bool(causes))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
