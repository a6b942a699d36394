"""Everybody writes the same keys at once: threads on a store, applications with `store.on`, SQL clients by the view.

Nothing is lost or doubled: the sequences that a ring's writers were told are 1, 2, 3 … together, the newest of them are
what it holds; totals, the numbers of adds and the members of sets are those that were committed; `check()` is clean.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import threading
import time
from collections import Counter as Totals
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import roost
from tests.campaigns.ledger import KEEP, STRUCTURES, Event, counts, events, recent, tags
from tests.campaigns.played import asked
from tests.campaigns.processes import Line, Start, children

KEYS = 3
PLAIN = "plain"  # a table of the application's own
KINDS = ("store", "joined", "sql")

Verb = tuple[str, int, int]  # what to do, with which key, with which number


@dataclass
class Tally:
    """What one writer has committed."""

    atoms: int = 0
    totals: Totals[int] = field(default_factory=Totals)
    pushed: list[tuple[int, int, int]] = field(default_factory=list)  # key, sequence, number
    added: Totals[int] = field(default_factory=Totals)
    members: set[tuple[int, int]] = field(default_factory=set)
    rolled_back: int = 0

    def take(self, verbs: list[Verb], sequences: list[int]) -> None:
        """Take an atom as committed; sequences: those of its pushes."""
        found = iter(sequences)
        self.atoms += 1
        for verb, key, number in verbs:
            match verb:
                case "count":
                    self.totals[key] += number
                case "push":
                    self.pushed.append((key, next(found), number))
                case "add":
                    self.added[key] += 1
                case "tag":
                    self.members.add((key, number))
                case "untag":
                    self.members.discard((key, number))

    def summary(self) -> str:
        """Return it as a line."""
        facts = [list(self.totals.items()), self.pushed, list(self.added.items()), list(self.members)]
        return json.dumps([self.atoms, self.rolled_back, *facts])

    @classmethod
    def heard(cls, line: str) -> Tally:
        """Return what another process told."""
        atoms, rolled_back, totals, pushed, added, members = json.loads(line)
        made = cls(atoms, Totals(dict(totals)), [tuple(each) for each in pushed], Totals(dict(added)))
        made.members = {tuple(each) for each in members}
        made.rolled_back = rolled_back
        return made


def verbs_of(writer: int, seed: object) -> Iterator[list[Verb]]:
    """Yield a writer's atoms; the numbers in them are its own."""
    chance = random.Random(f"{seed}/{writer}")
    for n in count():
        made: list[Verb] = []
        for step in range(chance.choice((1, 1, 2, 4))):
            verb = chance.choice(("count", "count", "push", "push", "add", "add", "remove", "tag", "tag", "untag"))
            number = (n * 10 + step if verb == "push" else chance.randrange(2 * KEEP)) * 1000 + writer
            made.append((verb, chance.randrange(KEYS), number))
        yield made


def operation(verb: Verb) -> roost.Operation[Any]:
    """Return what the library does."""
    what, key, number = verb
    match what:
        case "count":
            return counts.add(key, number)
        case "push":
            return events.push(Event(key, number))
        case "add":
            return recent.add(Event(key, number))
        case "remove":
            return recent.remove(key, number)
        case "tag":
            return tags.add(key, number)
    return tags.remove(key, number)


STATEMENTS = {
    "count": "INSERT INTO counts (key, total) VALUES (?, ?)",
    "push": "INSERT INTO events (owner, number) VALUES (?, ?)",
    "add": "INSERT INTO recent (owner, number) VALUES (?, ?)",
    "remove": "DELETE FROM recent WHERE owner = ? AND number = ?",
    "tag": "INSERT OR IGNORE INTO tags (key, member) VALUES (?, ?)",
    "untag": "DELETE FROM tags WHERE key = ? AND member = ?",
}


def by_store(store: roost.Store, tally: Tally, verbs: list[Verb]) -> None:
    """Run an atom in a batch."""
    answers = store.run_all(*map(operation, verbs))
    tally.take(verbs, _sequences(verbs, answers))


def by_hand(connection: sqlite3.Connection, tally: Tally, verbs: list[Verb], store: roost.Store | None) -> None:
    """Run an atom in a transaction of the connection's: joined by a store, or in plain SQL when there is none."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"INSERT INTO {PLAIN} VALUES (1)")
    if store:
        sequences = _sequences(verbs, store.on(connection).run_all(*map(operation, verbs)))
    else:
        sequences = []
        for what, key, number in verbs:
            connection.execute(STATEMENTS[what], (key, number))
            if what == "push":
                newest = connection.execute("SELECT sequence FROM events WHERE owner = ? LIMIT 1", (key,))
                sequences += [sequence for (sequence,) in newest]
    if sum(number for _, _, number in verbs) % 7 == 0:
        connection.execute("ROLLBACK")
        tally.rolled_back += 1
    else:
        connection.execute("COMMIT")
        tally.take(verbs, sequences)


def _sequences(verbs: list[Verb], answers: tuple[Any, ...]) -> list[int]:
    return [answer for (what, _, _), answer in zip(verbs, answers, strict=True) if what == "push"]


def write(path: str, kind: str, writer: int, seed: object, goes_on: Callable[[Tally], bool], store: Any) -> Tally:
    """Write until told otherwise."""
    tally = Tally()
    atoms = verbs_of(writer, seed)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        while goes_on(tally):
            if kind == "store":
                by_store(store, tally, next(atoms))
            else:
                by_hand(connection, tally, next(atoms), store if kind == "joined" else None)
    return tally


def together(path: str, goes_on: Callable[[Tally], bool], seed: object, each: int = 2, patience: float = 60) -> str:
    """Let writers of all kinds write the same keys, those of SQL in processes of their own; return what was found."""
    url = f"sqlite:///{path}"
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {PLAIN} (x)")
    start = Start()

    def client(line: Line, number: int) -> None:
        line.say("ready")
        start.wait()
        line.say(write(path, "sql", 1 + number, seed, goes_on, None).summary())

    tallies: list[tuple[str, Tally]] = []
    errors: list[BaseException] = []

    def thread(kind: str, writer: int, store: roost.Store) -> None:
        try:
            tallies.append((kind, write(path, kind, writer, seed, goes_on, store)))
        except BaseException as error:
            errors.append(error)

    with children(each, client, patience) as clients:
        for child in clients:
            assert child.hear() == "ready"
        with roost.Store(url, timeout=60) as store:
            threads = [
                threading.Thread(target=thread, args=(kind, 1 + each * (place + 1) + n, store))
                for place, kind in enumerate(("store", "joined"))
                for n in range(each)
            ]
            start.go()
            for worker in threads:
                worker.start()
            tallies += [("sql", Tally.heard(child.hear(patience))) for child in clients]
            for worker in threads:
                worker.join()
            assert not errors, errors
            judge(store, [tally for _, tally in tallies])
    done = Totals(dict.fromkeys(KINDS, 0))
    for kind, tally in tallies:
        done[kind] += tally.atoms
    rolled_back = sum(tally.rolled_back for _, tally in tallies)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {PLAIN}").fetchone()[0] == done["joined"] + done["sql"]
    return (
        ", ".join(f"{done[kind]:,} atoms by {kind}" for kind in KINDS) + f", {rolled_back:,} rolled back: nothing lost"
    )


def judge(store: roost.Store, tallies: list[Tally]) -> None:
    """Raise AssertionError unless exactly what the writers committed is there."""
    assert store.check() == []
    for key in range(KEYS):
        assert store.run(counts.total(key)) == sum(tally.totals[key] for tally in tallies)
        pushed = sorted((sequence, number) for tally in tallies for k, sequence, number in tally.pushed if k == key)
        assert [sequence for sequence, _ in pushed] == list(range(1, len(pushed) + 1))
        assert [(each.sequence, each.row.number) for each in store.run(events.entries(key))] == pushed[-KEEP:]
        newest = store.run(recent.entries(key))
        assert all(each.sequence <= sum(tally.added[key] for tally in tallies) for each in newest)
        assert store.run(tags.members(key)) == {n for tally in tallies for k, n in tally.members if k == key}
    # One more add tells how many there were.
    store.run_all(*[recent.add(Event(key, -1)) for key in range(KEYS)])
    for key in range(KEYS):
        assert store.run(recent.entries(key))[-1].sequence == 1 + sum(tally.added[key] for tally in tallies)


def main() -> None:
    """Run and say what was found."""
    options = asked(seconds=60.0, each=2)  # writers of each kind
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/test.db"
        print(together(path, lambda _: time.monotonic() < end, options.seed, options.each, options.seconds + 120))


if __name__ == "__main__":
    main()
