"""Many threads of several processes write one key, or a thousand, of every structure: nothing is lost or doubled.

Some of them are programs with Roost, some are plain SQL clients that write through the views. The first part of the
work has removals by the view among it, after which nobody can know what stays; the last part fills up again what they
removed, so that the newest rows are known exactly.

The source texts' own way lost 846 to 1039 of 1200 inserts with 8 writers on one key.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter as Totals
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import roost
from tests.campaigns.played import asked, database
from tests.campaigns.processes import Line, Start, children
from tests.suite import clients

ENGINES = ("mariadb", "postgresql", "sqlite")
KEEP = 12
REMOVED = 5  # a plain client takes back every such number of a structure at once
PATIENCE = 7200.0  # seconds


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


@dataclass(frozen=True)
class Plan:
    """Who writes what: everything follows from a number."""

    processes: int
    threads: int  # of each process
    foreign: int  # of them that are plain clients
    operations: int  # of each thread
    keys: int

    @property
    def numbers(self) -> range:
        """All that are written, each by one thread: a run of them is a thread's."""
        return range(self.processes * self.threads * self.operations)

    @property
    def late(self) -> int:
        """The place, among a thread's operations, from which on nothing is removed."""
        return self.operations * 3 // 4

    def structure(self, number: int) -> int:
        """Return the place of the structure whose turn it is."""
        return number % len(STRUCTURES)

    def key(self, number: int) -> int:
        """Return the key whose turn it is."""
        return number // len(STRUCTURES) % self.keys

    def is_late(self, number: int) -> bool:
        """Whether it is written when nothing is removed any more."""
        return number % self.operations >= self.late

    def is_foreign(self, number: int) -> bool:
        """Whether a plain client writes it."""
        return number // self.operations % self.threads < self.foreign

    def is_removed(self, number: int) -> bool:
        """Whether it is taken back as soon as it is written; of a ring, whatever is the newest then."""
        return self.is_foreign(number) and not self.is_late(number) and number // len(STRUCTURES) % REMOVED == 0

    def __str__(self) -> str:
        writers = self.processes * self.threads
        return f"{writers} writers, {self.processes * self.foreign} of them by the views, {self.keys:,} keys"


def library(store: roost.Store) -> list[Write]:
    """How a program with Roost writes each structure."""
    return [
        lambda key, _: store.run(counter.add(key)),
        lambda key, number: store.run(ring.push(Event(key, number))),
        lambda key, number: store.run(capped.add(Event(key, number))),
        lambda key, number: store.run(members.add(key, number)),
    ]


class View:
    """How a plain client writes each structure, and removes from it."""

    def __init__(self, url: str) -> None:
        self._sql = clients.connect(url)
        if url.startswith("sqlite"):
            self._sql.execute("PRAGMA busy_timeout = 600000")  # it knows no queue: the unlucky wait for long
        if url.startswith("mysql"):
            put, cut, self._key = (
                "INSERT INTO {}_in (`key`, {}) VALUES (?, ?)",
                "INSERT INTO {}_out VALUES (?, ?)",
                "`key`",
            )
            self._clear = "INSERT INTO hits_out VALUES (?)"
        else:
            put, cut, self._key = (
                "INSERT INTO {} (key, {}) VALUES (?, ?)",
                "DELETE FROM {} WHERE key = ? AND {} = ?",
                "key",
            )
            self._clear = "DELETE FROM hits WHERE key = ?"
        names = [("hits", "total"), ("events", "number"), ("recent", "number"), ("tags", "member")]
        self._puts = [put.format(*each) for each in names]
        self._cuts = [cut.format(*each) for each in [*names[:1], ("events", "sequence"), *names[2:]]]

    def write(self, structure: int, key: int, number: int) -> None:
        """Add 1, or the row or member of this number."""
        self._sql.execute(self._puts[structure], (key, number if structure else 1))

    def remove(self, structure: int, key: int, number: int, own: int) -> None:
        """Remove what was just written; own: a key of a counter that nobody else writes."""
        if structure == 0:  # what it takes from a total nobody is told
            self._sql.execute(self._puts[0], (own, 7))
            self._sql.execute(self._clear, (own,))
            self._sql.execute(self._puts[0], (own, 1))
            return
        if structure == 1:
            newest = self._sql.execute(f"SELECT max(sequence) FROM events WHERE {self._key} = ?", (key,))
            ((number,),) = newest.fetchall()
        if number is not None:
            self._sql.execute(self._cuts[structure], (key, number))

    def close(self) -> None:
        """Disconnect."""
        self._sql.close()


@dataclass
class Counts:
    """What a campaign has seen."""

    operations: int
    seconds: float
    retries: int
    longest: float  # seconds that a plain client waited for one statement

    def __str__(self) -> str:
        speed = f"{self.operations / self.seconds:,.0f} per second"
        waited = f"{self.retries:,} batches run again, no statement of a plain client longer than {self.longest:.1f} s"
        return f"{self.operations:,} operations in {self.seconds:.0f} s, {speed}, {waited}"


def own_key(thread: int) -> int:
    """Return the counter's key that only this thread writes."""
    return -1 - thread


class Crew:
    """The threads of one process, in two parts of work."""

    def __init__(self, url: str, plan: Plan, process: int, store: roost.Store) -> None:
        self.errors: list[BaseException] = []
        self.waits: list[float] = []  # seconds, of the plain clients' statements
        self.between = threading.Barrier(plan.threads + 1)
        self._url, self._plan, self._store = url, plan, store
        first = process * plan.threads
        self.threads = [threading.Thread(target=self._work, args=(first + n,)) for n in range(plan.threads)]

    def _work(self, thread: int) -> None:
        plan = self._plan
        first = thread * plan.operations
        try:
            with contextlib.ExitStack() as stack:
                write = self._by_view(thread, stack) if plan.is_foreign(first) else self._by_library()
                for number in range(first, first + plan.late):
                    write(number)
                self.between.wait()  # all of this process are here; then all of all
                self.between.wait()
                for number in range(first + plan.late, first + plan.operations):
                    write(number)
        except threading.BrokenBarrierError:
            pass  # somebody else's error, which is there
        except BaseException as error:
            self.errors.append(error)
            self.between.abort()

    def _by_library(self) -> Callable[[int], object]:
        plan, writes = self._plan, library(self._store)
        return lambda number: writes[plan.structure(number)](plan.key(number), number)

    def _by_view(self, thread: int, stack: contextlib.ExitStack) -> Callable[[int], object]:
        plan, view = self._plan, stack.enter_context(contextlib.closing(View(self._url)))

        def write(number: int) -> None:
            structure, key = plan.structure(number), plan.key(number)
            began = time.monotonic()
            view.write(structure, key, number)
            self.waits.append(time.monotonic() - began)
            if plan.is_removed(number):
                view.remove(structure, key, number, own_key(thread))

        return write


def crowd(url: str, plan: Plan) -> Counts:
    """Let every thread write its operations on keys 0, 1, …, each structure in turn; verify what is there."""
    with roost.Store(url) as store:
        store.create(*STRUCTURES, view=plan.foreign > 0)
    starts = Start(), Start()

    def work(line: Line, process: int) -> None:
        with roost.Store(url, timeout=60) as store:
            store.run(counter.total(0))
            crew = Crew(url, plan, process, store)
            line.say("ready")
            starts[0].wait()
            for thread in crew.threads:
                thread.start()
            with contextlib.suppress(threading.BrokenBarrierError):
                crew.between.wait()
                line.say("ready")
                starts[1].wait()
                crew.between.wait()
            for thread in crew.threads:
                thread.join()
            if crew.errors:
                raise crew.errors[0]
            line.say(f"{store.stats().retries} {max(crew.waits, default=0.0)}")

    with children(plan.processes, work, PATIENCE) as found:
        began = 0.0
        for start in starts:
            assert [child.hear(PATIENCE) for child in found] == ["ready"] * plan.processes
            began = began or time.monotonic()
            start.go()
        retries, longest = zip(*[child.hear(PATIENCE).split() for child in found], strict=True)
        took = time.monotonic() - began
        assert [child.wait() for child in found] == [0] * plan.processes
    with roost.Store(url, timeout=60) as store:
        verify(store, plan)
    return Counts(len(plan.numbers), took, sum(map(int, retries)), max(map(float, longest)))


def verify(store: roost.Store, plan: Plan) -> None:
    """Every number was written once, to the structure and key that are its turn; what was removed is gone."""
    assert store.check() == []
    numbers: list[dict[int, list[int]]] = [{} for _ in STRUCTURES]
    for n in plan.numbers:
        numbers[plan.structure(n)].setdefault(plan.key(n), []).append(n)
    hits, pushed, added, tagged = numbers
    totals = {key: len(found) for key, found in hits.items()}
    totals |= _own_totals(plan)
    assert store.run(counter.totals(list(totals))) == totals
    for key, all_ in pushed.items():
        _newest(store.run(ring.entries(key)), all_, plan)
    for key, all_ in added.items():
        entries = store.run(capped.entries(key))
        _newest(entries, all_, plan)
        assert store.run(capped.count(key)) == len(entries)
    for key, all_ in tagged.items():
        expected = {n for n in all_ if not plan.is_removed(n)}
        assert store.run_all(members.members(key), members.size(key)) == (expected, len(expected))


def _own_totals(plan: Plan) -> dict[int, int]:
    removed = [n for n in plan.numbers if plan.structure(n) == 0 and plan.is_removed(n)]
    return {own_key(n // plan.operations): 1 for n in removed}


def _newest(entries: Sequence[roost.Entry[Any]], numbers: list[int], plan: Plan) -> None:
    # Exactly the newest, in the order of sequences without a hole; that every number had one is told by the last.
    last = len(numbers)
    removed = any(plan.is_removed(n) for n in numbers)
    late = sum(plan.is_late(n) for n in numbers)
    sure = min(KEEP, late if removed else last)
    sequences = [entry.sequence for entry in entries]
    assert sequences[len(sequences) - sure :] == list(range(last - sure + 1, last + 1))
    assert len(sequences) <= KEEP
    found = Totals(entry.row.number for entry in entries)
    assert found.keys() <= set(numbers)
    assert set(found.values()) <= {1}  # none, where all that came late was removed


def main() -> None:
    """Run on each engine and say what was found."""
    # Of each process so many threads, some of them plain SQL clients, and of each thread so many operations.
    options = asked(seeded=False, processes=4, threads=16, foreign=4, operations=5000, engine=ENGINES)
    for name in [options.engine] if options.engine else ENGINES:
        for keys in (1, 1000):
            plan = Plan(options.processes, options.threads, options.foreign, options.operations, keys)
            with database(name) as url:
                found = crowd(url, plan)
            print(f"{name}, {plan}: {found}, nothing lost or doubled, check() clean", flush=True)


if __name__ == "__main__":
    main()
