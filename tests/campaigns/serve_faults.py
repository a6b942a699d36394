"""Faults of MariaDB and PostgreSQL under `roost serve`: what was answered is there, and nothing is there twice.

64 connections add to counters, insert rows whose numbers are answered, and increment rows of an ordinary table. What is
killed with -9 is a worker, or the database; and connections between the two are cut, at any message. A request has
happened if its answer says so, has not happened if the answer is an error (`unavailable`), and may have happened, once,
if there was no answer or `unknown`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import roost
from tests.campaigns.outage import DAEMONS
from tests.campaigns.processes import PATIENCE, until
from tests.index.databases import Database
from tests.proxy import Cut, Proxy
from tests.server.serving import Client, Serving, serving

FAULTS = ("worker", "database", "cut")
CUTS = 8  # of the fault `cut`
MOST = 4  # requests that are sent at once
SHARED = 0  # a key that all writers add to
TABLES = {
    "mariadb": (
        "CREATE TABLE notes (id INT PRIMARY KEY AUTO_INCREMENT, owner INT, n INT)",
        "CREATE TABLE stock (id INT PRIMARY KEY, n BIGINT NOT NULL)",
    ),
    "postgresql": (
        "CREATE TABLE notes (id serial PRIMARY KEY, owner int, n int)",
        "CREATE TABLE stock (id int PRIMARY KEY, n int8 NOT NULL)",
    ),
}
TABLES["mysql"] = TABLES["mariadb"]
counter = roost.Counter("pageviews", key=int)


@dataclass
class Ledger:
    """What one writer knows of its requests."""

    notes: dict[int, int] = field(default_factory=dict)  # answered: the number of each row, by what was inserted
    maybe: set[int] = field(default_factory=set)  # inserts that may have happened
    done: dict[tuple[str, int], int] = field(default_factory=dict)  # sums that were answered, by what and key
    doubt: dict[tuple[str, int], int] = field(default_factory=dict)  # those that may have happened
    refused: int = 0


@dataclass
class Writer:
    """One connection after the other, and what it has asked."""

    owner: int
    chance: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    wrong: str = ""
    _n: int = 0

    def work(self, load: Load) -> None:
        """Ask until the load ends."""
        try:
            while not load.ended.is_set():
                with contextlib.suppress(OSError), Client(load.served.addresses["write"][0]) as client:
                    opened = client.ask(*load.opening)
                    while opened == ["0\t1"] * len(opened) and not load.ended.is_set() and self._ask(client, load):
                        pass
        except BaseException as error:
            self.wrong = repr(error)
            raise

    def _request(self) -> tuple[str, tuple[str, int]]:
        what = self.chance.choice(("pageviews", "notes", "stock"))
        if what == "notes":
            self._n += 1
            return f"1\t+\t3\t\0\t{self.owner}\t{self._n}", (what, self._n)
        key = self.chance.choice((self.owner, SHARED))
        if what == "pageviews":
            return f"0\t+\t2\t{key}\t1", (what, key)
        return f"2\t=\t1\t{key}\t1\t0\t+\t\0\t1", (what, key)

    def _ask(self, client: Client, load: Load) -> bool:
        # Whether the connection goes on.
        asked = [self._request() for _ in range(self.chance.randint(1, MOST))]
        answers = []
        with contextlib.suppress(OSError):
            client.send(*[line for line, _ in asked])
            for _ in asked:
                answer = client.answer()
                if not answer:
                    break
                answers.append(answer)
        for (_, what), answer in zip(asked, answers, strict=False):
            self._note(what, answer)
        for _, what in asked[len(answers) :]:
            self._doubt(what)
        load.answered[self.owner] += len(answers)
        return len(answers) == len(asked)

    def _note(self, what: tuple[str, int], answer: str) -> None:
        if answer == "1\t1\tunknown":
            self._doubt(what)
        elif answer in ("1\t1\tunavailable", "1\t1\t146", "1\t1\ttimeout"):
            self.ledger.refused += 1
        elif what[0] == "notes":
            assert answer.startswith("0\t1\t"), answer
            self.ledger.notes[what[1]] = int(answer[4:])
        else:
            assert answer in ("0\t1", "0\t1\t1"), answer
            self.ledger.done[what] = self.ledger.done.get(what, 0) + 1

    def _doubt(self, what: tuple[str, int]) -> None:
        if what[0] == "notes":
            self.ledger.maybe.add(what[1])
        else:
            self.ledger.doubt[what] = self.ledger.doubt.get(what, 0) + 1


@dataclass
class Load:
    """The writers, in threads."""

    served: Serving
    opening: list[str]
    writers: list[Writer]
    ended: threading.Event = field(default_factory=threading.Event)
    answered: dict[int, int] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin."""
        for writer in self.writers:
            self.answered[writer.owner] = 0
            self._threads.append(threading.Thread(target=writer.work, args=(self,)))
        for thread in self._threads:
            thread.start()

    def goes_on(self) -> None:
        """Return when some more has been answered."""
        before = sum(self.answered.values())
        wrong = self.wrong
        until(lambda: sum(self.answered.values()) > before + len(self.writers) or wrong() != [], "nothing is answered")
        assert wrong() == []

    def wrong(self) -> list[str]:
        """Return what writers did not expect."""
        return [writer.wrong for writer in self.writers if writer.wrong]

    def end(self) -> None:
        """Return when all have ended."""
        self.ended.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert self.wrong() == []


@dataclass
class Seen:
    """What was seen."""

    faults: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    refused: int = 0
    doubtful: int = 0
    happened: int = 0

    def __str__(self) -> str:
        faults = ", ".join([f"{number} of {what}" for what, number in self.faults.items()])
        return (
            f"faults: {faults}; {self.answers:,} answers all true, {self.refused} refused and not done, "
            f"{self.doubtful} without an answer or unknown, of which {self.happened} had happened"
        )


def faults(name: str, folder: Path, rounds: int, seed: object, writers: int = 64) -> Seen:
    """Let each kind of fault happen so often, in any order."""
    chance, seen = random.Random(f"serve_faults/{seed}"), Seen()
    make, server = DAEMONS[name]
    daemon = make()
    try:
        url = server(daemon.url).database("faults")
        db = Database(name, url)
        owners = range(1, writers + 1)
        db.script(*TABLES[name], *[f"INSERT INTO stock VALUES ({key}, 0)" for key in (SHARED, *owners)])
        with roost.Store(url) as store:
            store.create(counter)
        with _serving(folder, url) as (served, proxy):
            opening = [
                f"P\t{number}\t{url.rpartition('/')[2].partition('?')[0]}\t{opened}"
                for number, opened in enumerate(
                    ("pageviews\tPRIMARY\tkey,total", "notes\tPRIMARY\tid,owner,n", "stock\tPRIMARY\tid,n")
                )
            ]
            load = Load(served, opening, [Writer(owner, random.Random(f"{seed}/{owner}")) for owner in owners])
            load.start()
            try:
                todo = list(FAULTS) * rounds
                chance.shuffle(todo)
                for number, what in enumerate(todo, 1):
                    load.goes_on()
                    time.sleep(chance.uniform(0, 0.05))  # the moment of the fault is to be any
                    if what == "worker":
                        os.kill(chance.choice(_ready(served)), signal.SIGKILL)
                        served.logged("another takes its place", todo[:number].count(what))
                    elif what == "database":
                        daemon.kill()
                        time.sleep(chance.uniform(0, 0.2))
                        daemon.start()
                    else:
                        _cut(proxy, chance)
                    seen.faults[what] = seen.faults.get(what, 0) + 1
                load.goes_on()
            finally:
                load.end()
            assert served.stop() == 0
            assert "Traceback" not in served.log, served.log
        _check(url, db, load, seen)
    finally:
        daemon.kill()
    return seen


def _ready(served: Serving) -> list[int]:
    # Workers that have begun to serve: one that is killed before is not said to be replaced.
    def ready() -> list[int]:
        return [pid for pid in served.pids("write") if f"is process {pid}\n" in served.log]

    until(ready, "no worker is ready")
    return ready()


def _cut(proxy: Proxy, chance: random.Random) -> None:
    # Several times, since most messages are not the one that matters most: COMMIT, whose answer is lost.
    for cuts in range(proxy.cuts + 1, proxy.cuts + 1 + CUTS):
        proxy.arm(chance.randrange(8), chance.choice((Cut.BEFORE, Cut.AFTER, Cut.AFTER, Cut.ORPHAN)))
        until(lambda cuts=cuts: proxy.cuts == cuts, "nothing is cut")  # type: ignore[misc]


@contextlib.contextmanager
def _serving(folder: Path, url: str) -> Iterator[tuple[Serving, Proxy]]:
    arguments = ("--workers", "2", "--connections", "8", "--timeout", "2")
    with (
        Proxy(urlsplit(url).port or 0) as proxy,
        serving(folder, proxy.url(url), *arguments, module="roost.cli") as served,
    ):
        yield served, proxy


def _check(url: str, db: Database, load: Load, seen: Seen) -> None:
    # Compares the database with what was answered.
    rows: dict[int, dict[int, int]] = {}
    for id_, owner, n in db.sql("SELECT id, owner, n FROM notes"):
        assert n not in rows.setdefault(owner, {}), f"row {n} of {owner} is there twice"
        rows[owner][n] = id_
    for writer in load.writers:
        ledger, there = writer.ledger, rows.get(writer.owner, {})
        lost = {n for n, id_ in ledger.notes.items() if there.get(n) != id_}
        assert not lost, f"of {writer.owner} lost, or under another number than was answered: {sorted(lost)}"
        more = there.keys() - ledger.notes.keys()
        assert more <= ledger.maybe, f"of {writer.owner}, though refused: {sorted(more - ledger.maybe)}"
        seen.happened += len(more)
        seen.doubtful += len(ledger.maybe) + sum(ledger.doubt.values())
        seen.refused += ledger.refused
        seen.answers += len(ledger.notes) + sum(ledger.done.values())
    with roost.Store(url) as store:
        assert store.check() == []
        sums = {("stock", key): n for key, n in db.sql("SELECT id, n FROM stock")}
        for key in (SHARED, *[writer.owner for writer in load.writers]):
            sums["pageviews", key] = store.run(counter.total(key))
    for what, total in sums.items():
        least = sum([writer.ledger.done.get(what, 0) for writer in load.writers])
        most = least + sum([writer.ledger.doubt.get(what, 0) for writer in load.writers])
        assert least <= total <= most, f"{what}: {total}, and {least} were answered, {most - least} perhaps done"
        seen.happened += total - least
