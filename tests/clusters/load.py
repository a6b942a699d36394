"""Processes that write the same few keys at once, each through its own URL, and what must be found afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter as Totals
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any

import pymysql
from pymysql.err import OperationalError

import roost
from roost.databases.mariadb.address import arguments
from tests.campaigns.processes import Line, Start, children

KEEP = 8
DEADLOCK = 1213


@dataclass(frozen=True)
class Event:
    """A row that is written once, or by everybody where `number` is small."""

    key: int
    number: int


hot = roost.Counter("hot", key=int, slots=1)
slotted = roost.Counter("slotted", key=int)
numbered = roost.Counter("numbered", key=int, slots=1)
ring = roost.Ring("ring", Event, per="key", keep=KEEP)
evicting = roost.Capped("evicting", Event, per="key", keep=KEEP, unique="number")
rejecting = roost.Capped("rejecting", Event, per="key", keep=KEEP, unique="number", on_full="reject")
refreshing = roost.Capped("refreshing", Event, per="key", keep=KEEP, unique="number", on_duplicate="refresh")
members = roost.Set("members", key=int, member=int)
STRUCTURES = (hot, slotted, numbered, ring, evicting, rejecting, refreshing, members)

KEYS = range(3)
SHARED = 50  # members that everybody adds


@dataclass
class Answers:
    """What callers were answered, all of them together."""

    operations: int = 0
    totals: Totals[str] = field(default_factory=Totals)  # by structure and key
    sequences: list[tuple[int, int]] = field(default_factory=list)  # of the ring, by key
    numbers: list[tuple[int, int]] = field(default_factory=list)  # that increments answered, by key
    errors: Totals[str] = field(default_factory=Totals)
    longest: float = 0.0  # seconds of one call

    def add(self, other: Answers) -> None:
        """Take in what another process was answered."""
        self.operations += other.operations
        self.totals.update(other.totals)
        self.sequences += other.sequences
        self.numbers += other.numbers
        self.errors += other.errors
        self.longest = max(self.longest, other.longest)

    def __str__(self) -> str:
        return f"{self.operations:,} operations, the longest took {self.longest:.1f} s, errors: {dict(self.errors)}"


LEAST = 12  # tries of each writer, however slow the machine


class Writer:
    """A thread that writes everything in turn. Its numbers are its own."""

    def __init__(self, store: roost.Store, number: int) -> None:
        self.store = store
        self.next = number * 10_000_000
        self.first = self.next
        self.answers = Answers()
        self.works: list[Callable[[int, int], None]] = [
            self.count,
            self.push,
            self.evict,
            self.tag,
            self.several,
            self.number,
            self.reject,
            self.refresh,
        ]

    def once(self) -> None:
        """Do the next piece of work."""
        self.next += 1
        place = self.next - self.first + self.first // 10_000_000
        begun = time.monotonic()
        try:
            self.works[place % len(self.works)](KEYS[place // len(self.works) % len(KEYS)], self.next)
            self.answers.operations += 1
        except (roost.Duplicate, roost.Full):
            self.answers.operations += 1
        except roost.Error as error:
            self.answers.errors[type(error).__name__] += 1
            if self.answers.errors.total() < 20:
                print(repr(error), flush=True)
        self.answers.longest = max(self.answers.longest, time.monotonic() - begun)

    def count(self, key: int, number: int) -> None:
        """Count in one slot, and in sixteen."""
        self.store.run(hot.add(key))
        self.answers.totals[f"hot {key}"] += 1
        self.store.run(slotted.add(key, 2))
        self.answers.totals[f"slotted {key}"] += 2

    def push(self, key: int, number: int) -> None:
        """Push a row."""
        self.answers.sequences.append((key, self.store.run(ring.push(Event(key, number)))))

    def evict(self, key: int, number: int) -> None:
        """Add a row, for which the oldest goes."""
        self.store.run(evicting.add(Event(key, number)))
        self.answers.totals[f"evicting {key}"] += 1

    def reject(self, key: int, number: int) -> None:
        """Add a row where there is room, and make room from time to time."""
        try:
            self.store.run(rejecting.add(Event(key, number)))
            self.answers.totals[f"rejecting {key}"] += 1
        except roost.Full:
            oldest = self.store.run(rejecting.entries(key, n=1))
            removed = self.store.run(rejecting.remove(key, oldest[0].row.number)) if oldest else False
            if removed:
                self.answers.totals[f"rejecting {key}"] -= 1

    def refresh(self, key: int, number: int) -> None:
        """Add a row that others add too."""
        self.store.run(refreshing.add(Event(key, number % (2 * KEEP))))

    def tag(self, key: int, number: int) -> None:
        """Add a member of one's own, and one that others add."""
        new = self.store.run(members.add(key, number, number % SHARED))
        self.answers.totals[f"members {key}"] += new

    def several(self, key: int, number: int) -> None:
        """All of it at once, in one transaction."""
        other = KEYS[(key + 1) % len(KEYS)]
        results = self.store.run_all(
            hot.add(other),
            slotted.add(key, 3),
            ring.push(Event(key, number)),
            members.add(other, number),
            evicting.add(Event(other, number)),
        )
        answers = self.answers
        answers.totals.update(
            {f"hot {other}": 1, f"slotted {key}": 3, f"members {other}": results[3], f"evicting {other}": 1}
        )
        answers.sequences.append((key, results[2]))

    def number(self, key: int, number: int) -> None:
        """Increment, which answers the new total."""
        self.answers.numbers.append((key, self.store.run(numbered.increment(key))))


class Joined(Writer):
    """The same in transactions of the application, which are done again when they are in the way of another."""

    def __init__(self, store: roost.Store, number: int, url: str) -> None:
        super().__init__(store, number)
        self.works = [self.join]
        # A node that ends a transaction sometimes fails to, and all stand still for as long as it waits for a lock.
        self._raw: Any = pymysql.connect(**arguments(url)[0], init_command="SET SESSION innodb_lock_wait_timeout = 2")

    def join(self, key: int, number: int) -> None:
        """Count, push and tag in a transaction."""
        raw = self._raw
        while True:
            try:
                runner = self.store.on(raw)
                runner.run(hot.add(key))
                sequence = runner.run(ring.push(Event(key, number)))
                new, _ = runner.run_all(members.add(key, number), slotted.add(key))
                raw.commit()
            except (roost.Conflict, OperationalError) as error:
                if isinstance(error, OperationalError) and error.args[0] != DEADLOCK:
                    raise
                raw.rollback()
            else:
                break
        self.answers.sequences.append((key, sequence))
        self.answers.totals.update({f"hot {key}": 1, f"slotted {key}": 1, f"members {key}": new})


def write(
    urls: Sequence[str],
    seconds: float,
    *,
    processes: int = 3,
    threads: int = 3,
    joined: bool = True,
    meanwhile: Callable[[], object] = lambda: None,
    longer: bool = True,
    **options: Any,
) -> Answers:
    """Write from several processes for some time, each on the next URL; return what all were answered.

    longer: not only until what is done meanwhile is done.
    """
    start, stopped = Start(), mmap(-1, 1)

    def work(line: Line, process: int) -> None:
        url = urls[process % len(urls)]
        with roost.Store(url, **{"timeout": 20, **options}) as store:
            writers = [Writer(store, process * threads + each) for each in range(threads)]
            if joined:
                writers[-1] = Joined(store, process * threads + threads - 1, url)
            start.wait()
            end = time.monotonic() + seconds
            each = [threading.Thread(target=_until, args=(writer, end, stopped)) for writer in writers]
            for thread in each:
                thread.start()
            for thread in each:
                thread.join()
        answers = Answers()
        for writer in writers:
            answers.add(writer.answers)
        line.say(json.dumps(vars(answers)))

    found = Answers()
    with children(processes, work) as made:
        start.go()
        meanwhile()
        stopped[0] = not longer
        for child in made:
            outcome = json.loads(child.hear(60 + 3 * seconds))
            outcome["sequences"] = [tuple(each) for each in outcome["sequences"]]
            outcome["numbers"] = [tuple(each) for each in outcome["numbers"]]
            found.add(Answers(**{**outcome, "totals": Totals(outcome["totals"]), "errors": Totals(outcome["errors"])}))
            assert child.wait() == 0
    return found


def _until(writer: Writer, end: float, stopped: mmap) -> None:
    while (time.monotonic() < end or writer.next - writer.first < LEAST) and not stopped[0]:
        writer.once()


def wrong(answers: Answers, store: roost.Store) -> list[str]:
    """Return what is not as it was answered, in the words of whoever has to find out why."""
    said: list[str] = [f"check: {each}" for each in store.check()]
    pushed = _in_order("ring", answers.sequences, said)
    incremented = _in_order("numbered", answers.numbers, said)
    for key in KEYS:
        found = {
            "hot": store.run(hot.total(key)),
            "slotted": store.run(slotted.total(key)),
            "members": store.run(members.size(key)),
            "rejecting": store.run(rejecting.count(key)),
        }
        for name, total in found.items():
            if total != (answered := answers.totals[f"{name} {key}"]):
                said.append(f"{name} {key}: {answered} answered, {total} found")
        if store.run(numbered.total(key)) != incremented[key]:
            said.append(f"numbered {key}: {incremented[key]} answered, {store.run(numbered.total(key))} found")
        newest = [entry.sequence for entry in store.run(ring.entries(key))]
        if newest != [*range(max(1, pushed[key] - KEEP + 1), pushed[key] + 1)]:
            said.append(f"ring {key}: {pushed[key]} answered, {newest} found")
        added = [entry.sequence for entry in store.run(evicting.entries(key))]
        last = answers.totals[f"evicting {key}"]
        if added != [*range(max(1, last - KEEP + 1), last + 1)]:
            said.append(f"evicting {key}: {last} answered, {added} found")
    return said


def _in_order(name: str, answered: Iterable[tuple[int, int]], said: list[str]) -> Totals[int]:
    # Each number was given once, from 1 on.
    by_key: dict[int, list[int]] = {key: [] for key in KEYS}
    for key, number in answered:
        by_key[key].append(number)
    for key, numbers in by_key.items():
        if sorted(numbers) != [*range(1, len(numbers) + 1)]:
            twice = [number for number, times in Totals(numbers).items() if times > 1]
            missing = sorted({*range(1, max(numbers) + 1)} - {*numbers})
            said.append(f"{name} {key}: answered twice {twice[:9]}, never {missing[:9]}")
    return Totals({key: len(numbers) for key, numbers in by_key.items()})
