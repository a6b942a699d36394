"""kill -9 of the processes of `roost serve` under load: what was answered is in the file, and others do not notice.

Writers insert rows under numbers of their own and remember what was answered; readers ask for rows. Every answer is
compared with what it has to be. A connection that breaks must have been one of the process that was killed.

`--server` is the same for MariaDB or PostgreSQL, which are killed as well: `serve_faults.py`.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns.outage import DAEMONS
from tests.campaigns.played import asked
from tests.campaigns.processes import PATIENCE, until
from tests.campaigns.serve_faults import faults
from tests.server.serving import Client, Serving, serving

PIPELINE = 8  # requests of a writer that are sent at once
PAUSE = 0.002  # seconds between them, so that the machine is not the bottleneck
KINDS = ("write", "read", "supervisor")


def make_table(path: Path) -> None:
    """Make the table that is served."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE rows (owner INTEGER, n INTEGER, v TEXT, PRIMARY KEY (owner, n))")
        connection.execute("INSERT INTO rows VALUES (0, 0, 'v0.0')")
        connection.commit()


OPEN = "P\t0\tmain\trows\tPRIMARY\towner,n,v"


@dataclass
class Load:
    """Clients in threads."""

    addresses: dict[str, list[str]]
    writers: int = 3
    readers: int = 4
    answered: dict[int, set[int]] = field(default_factory=dict)
    unknown: dict[int, set[int]] = field(default_factory=dict)  # sent, and the connection broke before the answer
    broken: set[int] = field(default_factory=set)  # the ports of connections that broke
    may_break: set[int] = field(default_factory=set)  # those of processes that were killed
    wrong: list[str] = field(default_factory=list)
    reads: int = 0
    ended: bool = False
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin."""
        for owner in range(1, self.writers + 1):
            self.answered[owner], self.unknown[owner] = set(), set()
            self.threads.append(threading.Thread(target=self._guarded, args=(self._write, owner)))
        self.threads += [threading.Thread(target=self._guarded, args=(self._read, _)) for _ in range(self.readers)]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        """Return when all have ended."""
        self.ended = True
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert self.wrong == []

    @property
    def total(self) -> int:
        """How many inserts were answered."""
        return sum([len(each) for each in self.answered.values()])

    def check(self, path: Path) -> int:
        """Compare the file with what was answered; return how many unanswered inserts had happened."""
        happened = 0
        with closing(sqlite3.connect(path)) as connection:
            for owner, answered in self.answered.items():
                rows = connection.execute("SELECT n, v FROM rows WHERE owner = ?", (owner,)).fetchall()
                there = {n for n, _ in rows}
                assert answered <= there, f"lost: {sorted(answered - there)}"
                assert there <= answered | self.unknown[owner], "something was written that nobody asked for"
                assert all([v == f"v{owner}.{n}" for n, v in rows])
                happened += len(there - answered)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return happened

    def _guarded(self, work: object, number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except BaseException as error:
            self.wrong.append(repr(error))
            raise

    def _connections(self, role: str) -> Iterator[Client]:
        """Yield a connection whose index is open, and another one after it broke."""
        while not self.ended:
            try:
                client = Client(self.addresses[role][0])
            except OSError:  # nobody listens: the supervisor was killed
                time.sleep(0.005)
                continue
            port = client.socket.getsockname()[1]
            with client:
                try:
                    if client.ask(OPEN) == ["0\t1"]:
                        yield client
                except OSError:
                    pass
            if not self.ended:
                self.broken.add(port)

    def _write(self, owner: int) -> None:
        n = 0
        for client in self._connections("write"):
            while not self.ended:
                batch = range(n, n + PIPELINE)
                n += PIPELINE
                self.unknown[owner].update(batch)
                try:
                    client.send(*[f"0\t+\t3\t{owner}\t{each}\tv{owner}.{each}" for each in batch])
                    for each in batch:
                        answer = client.answer()
                        if not answer:
                            break
                        if answer != "0\t1":
                            self.wrong.append(f"insert: {answer!r}")
                        self.answered[owner].add(each)
                        self.unknown[owner].discard(each)
                    else:
                        time.sleep(PAUSE)
                        continue
                except OSError:
                    pass
                break

    def _read(self, _: int) -> None:
        chance = random.Random()
        for client in self._connections("read"):
            while not self.ended:
                owner = chance.randrange(1, self.writers + 1)
                n = max(self.answered[owner].copy(), default=None)
                wanted = "0\t3\t0\t0\tv0.0" if n is None else f"0\t3\t{owner}\t{n}\tv{owner}.{n}"
                try:
                    (found,) = client.ask(f"0\t=\t2\t{owner if n is not None else 0}\t{n or 0}\t1\t0")
                except OSError:
                    break
                if not found:
                    break
                if found != wanted:
                    self.wrong.append(f"find: {found!r} instead of {wanted!r}")
                self.reads += 1
                time.sleep(PAUSE)


def ports_of(pid: int) -> set[int]:
    """Return the ports of the clients that a process has connections with."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in found:
            ports.add(int(fields[2].rpartition(":")[2], 16))
    return ports


@dataclass
class Counts:
    """What was seen."""

    kills: int = 0
    answers: int = 0
    reads: int = 0
    happened: int = 0
    back: list[float] = field(default_factory=list)  # seconds from a kill to an answer by the next process

    def __str__(self) -> str:
        back = f"back after {statistics.median(self.back):.2f} s (median), {max(self.back):.2f} s (longest)"
        return (
            f"{self.kills} kills, {self.answers} answered inserts all there, {self.happened} unanswered ones had "
            f"happened, {self.reads} right reads; {back}"
        )


def kills(folder: Path, kind: str, rounds: int, seed: object) -> Counts:
    """Kill one kind of process again and again."""
    chance, counts = random.Random(f"{kind}/{seed}"), Counts()
    path = folder / "app.db"
    make_table(path)
    with contextlib.ExitStack() as stack:

        def start(read: str, write: str) -> Serving:
            arguments = ("--workers", "2", "--read", read, "--write", write)
            return stack.enter_context(serving(folder, "sqlite:///app.db", *arguments, module="roost.cli", listeners=2))

        served = start("127.0.0.1:0", "127.0.0.1:0")
        load = Load(served.addresses)
        load.start()
        try:
            for _ in range(rounds):
                before = load.total
                until(lambda before=before: load.total > before or load.wrong, "an insert that is answered")  # type: ignore[misc]
                time.sleep(chance.uniform(0, 0.1))  # the moment of the kill is to be any
                assert load.wrong == []
                if kind == "supervisor":
                    began = time.monotonic()
                    served.process.kill()
                    served.process.wait()
                    served = start(served.addresses["read"][0], served.addresses["write"][0])
                else:
                    began = _kill_worker(served, kind, chance, load)
                _answers(served, "write" if kind == "supervisor" else kind)
                counts.back.append(time.monotonic() - began)
                counts.kills += 1
        finally:
            load.end()
        if kind != "supervisor":
            assert load.broken <= load.may_break, "connections of other processes broke"
        counts.happened = load.check(path)
        counts.answers, counts.reads = load.total, load.reads
        assert served.stop() == 0
        assert "Traceback" not in served.log
    return counts


def _kill_worker(served: Serving, role: str, chance: random.Random, load: Load) -> float:
    until(served.standby, "a process in advance")  # without, it is the start of Python that is measured
    pid = chance.choice(served.pids(role))
    os.kill(pid, signal.SIGSTOP)  # so that who is connected to it can be listed
    load.may_break |= ports_of(pid)
    times = len(re.findall("another takes its place", served.log))
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    served.logged("another takes its place", times + 1)
    until(lambda: len(served.pids(role)) == (2 if role == "read" else 1), "the next process")
    return began


def _answers(served: Serving, role: str) -> None:
    """Return when every process of a role has its database open."""
    started = len(served.pids("read")) + len(served.pids("write"))
    assert started == 3
    pids = served.pids(role)
    served.logged("(" + "|".join([f"is process {pid}" for pid in pids]) + ")", len(pids))
    with served.connect(role) as client:
        assert client.ask(OPEN, "0\t=\t2\t0\t0\t1\t0") == ["0\t1", "0\t3\t0\t0\tv0.0"]


def main() -> None:
    """Kill each kind, and say what was found."""
    options = asked(rounds=100, server=list(DAEMONS))
    if options.server is not None:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            seen = faults(options.server, Path(folder), options.rounds, options.seed)
        print(f"{options.server}: {seen}; check is clean; {time.monotonic() - began:.0f} s")
        return
    for kind in KINDS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = kills(Path(folder), kind, options.rounds, options.seed)
        print(f"{kind}: {found}; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
