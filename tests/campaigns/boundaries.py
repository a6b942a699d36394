"""Every operation of a structure beside every other one of the same key, at every statement boundary, on the servers.

The long form of `tests/suite/boundaries_test.py`: all states, operations and ways; with `--inside`, at the boundaries
between the statements of the programs' texts.
"""

from __future__ import annotations

import argparse
import random
from contextlib import ExitStack

from tests import servers
from tests.suite.boundaries import CASES, WAYS, Boundaries, pairs
from tests.suite.gates import Gates, gated


def main() -> None:
    """Play what the command line asks for, and say what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=servers.SERVERS, required=True)
    parser.add_argument("--structure", choices=CASES, action="append")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--inside", action="store_true", help="the programs")
    parser.add_argument("--pairs", type=int, default=10**9, help="pairs of operations for each structure and way")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"--seed {options.seed}")
    server, wrong = servers.SERVERS[options.server](), 0
    for name in options.structure or CASES:
        case = CASES[name]
        for way in options.way or WAYS:
            chosen = list(pairs(case))
            random.Random(options.seed).shuffle(chosen)
            with ExitStack() as stack:
                if options.inside:
                    stack.enter_context(gated([case.structure]))
                found = (Gates if options.inside else Boundaries)(server.database(f"{name}_{WAYS.index(way)}"), [case])
                for state, first, second in chosen[: options.pairs]:
                    for each in found.wrong(case, way, state, case.verbs[first], case.verbs[second]):
                        wrong += 1
                        print(f"{name}, {way}, state {case.states.index(state)}: {first} beside {second}, {each}")
                violations = found.one.check()
                wrong += len(violations)
                print(f"{name}, {way}: {found.tried} boundaries, {violations or 'check() clean'}", flush=True)
                found.close()
    servers.leave()
    raise SystemExit(f"{wrong} wrong" if wrong else 0)


if __name__ == "__main__":
    main()
