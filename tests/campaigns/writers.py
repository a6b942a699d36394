"""Many threads of several processes write one key, or a thousand, of every structure: nothing is lost or doubled.

The source texts' own way lost 846 to 1039 of 1200 inserts with 8 writers on one key.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import roost
from tests import servers
from tests.campaigns.processes import Line, Start, children

KEEP = 12


@dataclass(frozen=True)
class Event:
    """A row that nobody else writes: its number is its writer's and its own."""

    key: int
    number: int


counter = roost.Counter("hits", key=int)
ring = roost.Ring("events", Event, per="key", keep=KEEP)
capped = roost.Capped("recent", Event, per="key", keep=KEEP, unique="number")
members = roost.Set("tags", key=int, member=int)
STRUCTURES = (counter, ring, capped, members)

Write = Callable[[int, int], object]  # a key, and a number that is written once


def library(store: roost.Store) -> list[Write]:
    """How a program with Roost writes each structure."""
    return [
        lambda key, _: store.run(counter.add(key)),
        lambda key, number: store.run(ring.push(Event(key, number))),
        lambda key, number: store.run(capped.add(Event(key, number))),
        lambda key, number: store.run(members.add(key, number)),
    ]


@dataclass
class Told:
    """What a campaign has seen."""

    operations: int
    seconds: float
    retries: int

    def __str__(self) -> str:
        speed = f"{self.operations / self.seconds:,.0f} per second"
        return f"{self.operations:,} operations in {self.seconds:.1f} s, {speed}, {self.retries:,} batches run again"


def crowd(url: str, processes: int, threads: int, operations: int, keys: int) -> Told:
    """Let every thread write so many operations on keys 0, 1, …, each structure in turn; verify what is there."""
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    start = Start()

    def work(line: Line, number: int) -> None:
        errors: list[BaseException] = []

        def write(thread: int, writes: Sequence[Write]) -> None:
            try:
                first = (number * threads + thread) * operations
                for n in range(first, first + operations):
                    writes[n % len(writes)](n // len(writes) % keys, n)
            except BaseException as error:
                errors.append(error)

        with roost.Store(url, timeout=60) as store:
            store.run(counter.total(0))
            line.say("ready")
            start.wait()
            workers = [threading.Thread(target=write, args=(each, library(store))) for each in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert not errors, errors[0]
            line.say(store.stats().retries)

    with children(processes, work, 600) as found:
        for child in found:
            assert child.hear() == "ready"
        began = time.monotonic()
        start.go()
        retries = sum(int(child.hear(600)) for child in found)
        took = time.monotonic() - began
        assert [child.wait() for child in found] == [0] * processes
    written = range(processes * threads * operations)
    with roost.Store(url, timeout=60) as store:
        verify(store, written, keys)
    return Told(len(written), took, retries)


def verify(store: roost.Store, written: range, keys: int) -> None:
    """Every number of `written` was written once, to the structure and key that are its turn."""
    assert store.check() == []
    numbers: list[dict[int, list[int]]] = [{} for _ in STRUCTURES]
    for n in written:
        numbers[n % len(STRUCTURES)].setdefault(n // len(STRUCTURES) % keys, []).append(n)
    hits, pushed, added, tagged = numbers
    assert store.run(counter.totals(list(hits))) == {key: len(found) for key, found in hits.items()}
    for key, all_ in pushed.items():
        _newest(store.run(ring.entries(key)), all_)
    for key, all_ in added.items():
        _newest(store.run(capped.entries(key)), all_)
        assert store.run(capped.count(key)) == min(KEEP, len(all_))
    for key, all_ in tagged.items():
        assert store.run(members.members(key)) == set(all_)


def _newest(entries: Sequence[roost.Entry[Any]], numbers: list[int]) -> None:
    # Exactly the newest, in the order of sequences without a hole; that every number had one is told by the last.
    last = len(numbers)
    assert [entry.sequence for entry in entries] == list(range(max(1, last - KEEP + 1), last + 1))
    assert {entry.row.number for entry in entries} <= set(numbers)


def main() -> None:
    """Run on each server and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=16, help="of each process")
    parser.add_argument("--operations", type=int, default=5000, help="of each thread")
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 1000])
    parser.add_argument("--servers", nargs="+", default=["mariadb", "postgresql"])
    options = parser.parse_args()
    for name in options.servers:
        for keys in options.keys:
            with servers.database(name) as url:
                told = crowd(url, options.processes, options.threads, options.operations, keys)
            print(f"{name}, {keys} keys: {told}, nothing lost or doubled, check() clean", flush=True)


if __name__ == "__main__":
    main()
