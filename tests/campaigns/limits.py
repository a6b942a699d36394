"""Sixteen processes ask a storage of limits 10,000 times each, of every strategy: none is ever allowed too much."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from tests import servers
from tests.campaigns.played import database
from tests.contrib.limits_test import DATABASES, in_processes, most_within


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--hits", type=int, default=10_000)
    parser.add_argument("--limit", type=int, default=100, help="per second")
    given = parser.parse_args()
    failed = False
    for name in given.database or DATABASES:
        with ExitStack() as stack:
            try:
                url = stack.enter_context(database(name))
            except servers.NotHere as error:
                print(f"{name}: not run, {error}")
                continue
            begun = time.perf_counter()
            found = in_processes(url, f"{given.limit}/second", 3_600.0, given.hits, processes=given.processes)
            seconds = time.perf_counter() - begun
        asked = 3 * given.processes * given.hits
        for strategy, hits in found.items():
            most = most_within(hits, 1.0)
            # Of two fixed windows one may have its hits at the end, and the next one at its begin.
            too_many = most > given.limit * (1 if strategy == "moving-window" else 2)
            failed |= too_many
            print(f"{name}, {strategy}: {len(hits):,} allowed, at most {most} in a second{' TOO MANY' * too_many}")
        print(f"{name}: {asked:,} asked in {seconds:.0f} s, {asked / seconds:,.0f}/s", flush=True)
    sys.exit("too many were allowed" if failed else 0)


if __name__ == "__main__":
    main()
