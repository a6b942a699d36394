"""No room left: `DiskFull`, nothing half done, and the same store works when there is room again."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import roost
from tests.campaigns.hostile import OPEN, a_server
from tests.campaigns.ledger import STRUCTURES, counts, tags
from tests.campaigns.processes import Child, Line, run_threads

MIB = 2**20


@dataclass(frozen=True)
class Page:
    """A row that takes room."""

    site: int
    number: int
    text: str


pages = roost.Capped("pages", Page, per="site", keep=10**6, unique="number")
TEXT = "x" * 20_000
ALL = (*STRUCTURES, pages)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    if os.getuid() != 0:
        pytest.skip("not run: it takes root to mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={4 * MIB}", "tmpfs", directory], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"not run: no small disk can be mounted here ({mounted.stderr.strip()})")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def _fill(directory: Path) -> Path:
    """Take all the room that is left."""
    ballast = directory / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def _add_until_full(store: roost.Store, site: int, first: int = 1) -> tuple[int, roost.Error]:
    """Return how many atoms were answered, and the error that ended it."""
    number = first
    while True:
        try:
            store.run_all(pages.add(Page(site, number, TEXT)), counts.add(site), tags.add(site, number))
        except roost.Error as error:
            return number - first, error
        number += 1


def _found(store: roost.Store, site: int) -> tuple[int, int, int]:
    return store.run_all(counts.total(site), pages.count(site), tags.size(site))


def test_a_disk_that_runs_full_while_writing(small_disk: Path) -> None:
    with roost.Store(f"sqlite:///{small_disk}/test.db") as store:
        store.create(*ALL)
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(MIB))
        answered, error = _add_until_full(store, 1)
        assert answered > 10
        assert type(error) is roost.DiskFull
        assert error.retry
        assert "test.db" in str(error)
        assert "full" in str(error)
        assert _found(store, 1) == (answered, answered, answered)  # reading goes on
        for _ in range(3):
            with pytest.raises(roost.DiskFull):
                store.run(pages.add(Page(1, 0, TEXT * 10)))
        ballast.unlink()
        store.run_all(pages.add(Page(1, 0, TEXT)), counts.add(1), tags.add(1, 0))
        assert _found(store, 1) == (answered + 1, answered + 1, answered + 1)
        assert store.check() == []
    with roost.Store(f"sqlite:///{small_disk}/test.db") as store:
        assert _found(store, 1) == (answered + 1, answered + 1, answered + 1)
        assert store.check() == []


def test_threads_on_a_disk_that_runs_full(small_disk: Path) -> None:
    with roost.Store(f"sqlite:///{small_disk}/test.db") as store:
        store.create(*ALL)
        answered: dict[int, int] = {}
        errors: list[roost.Error] = []

        def work(site: int) -> None:
            answered[site], error = _add_until_full(store, site)
            errors.append(error)

        run_threads(*[threading.Thread(target=work, args=(site,)) for site in range(1, 7)])
        assert [type(error) for error in errors] == [roost.DiskFull] * 6
        assert len({id(error) for error in errors}) == 6
        for site, count in answered.items():
            assert _found(store, site) == (count, count, count)
        assert store.check() == []


def test_operations_in_stats_are_those_that_were_committed(small_disk: Path) -> None:
    with roost.Store(f"sqlite:///{small_disk}/test.db") as store:
        store.create(*ALL)
        answered, _ = _add_until_full(store, 1)
        assert (store.stats().batches, store.stats().operations) == (answered, 3 * answered)


def test_a_disk_that_is_full_from_the_beginning(small_disk: Path) -> None:
    path = small_disk / "test.db"
    ballast = _fill(small_disk)
    store = roost.Store(f"sqlite:///{path}")
    for _ in range(2):
        with pytest.raises(roost.DiskFull, match=r"test\.db"):
            store.create(*ALL)
    ballast.unlink()
    store.create(*ALL)
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 1)
    assert store.check() == []
    store.close()


def test_connecting_on_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "test.db"
    with roost.Store(f"sqlite:///{path}") as store:
        store.create(*ALL)
        store.run(counts.add(1))
    ballast = _fill(small_disk)
    store = roost.Store(f"sqlite:///{path}")
    for operation in (counts.add(1), counts.total(1)):  # both need room for SQLite's index of the write-ahead log
        with pytest.raises(roost.DiskFull, match=r"test\.db"):
            store.run(operation)
    ballast.unlink()
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 2)
    assert store.check() == []
    store.close()


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"

    def work(line: Line) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        store = roost.Store(url)
        store.create(*ALL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
        answered, error = _add_until_full(store, 1)
        assert answered > 10
        assert isinstance(error, roost.DatabaseError)
        assert "test.db" in str(error)
        assert _found(store, 1) == (answered, answered, answered)
        again, error = _add_until_full(store, 2)
        assert isinstance(error, roost.DatabaseError)
        assert _found(store, 2) == (again, again, again)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        store.run_all(pages.add(Page(1, 0, TEXT)), counts.add(1), tags.add(1, 0))
        assert _found(store, 1) == (answered + 1, answered + 1, answered + 1)
        assert store.check() == []
        store.close()
        line.say(answered)

    with Child(work) as child:
        answered = int(child.hear())
        assert child.wait() == 0
    with roost.Store(url) as store:
        assert _found(store, 1) == (answered + 1, answered + 1, answered + 1)
        assert store.check() == []


def test_a_disk_that_runs_full_while_clients_write(small_disk: Path) -> None:
    """Behind `roost serve` writes are refused, reads go on, and writes work again when there is room."""
    ballast = small_disk / "ballast"
    with a_server(small_disk) as served:
        ballast.write_bytes(bytes(MIB))
        with served.connect("write") as writer, served.connect("read") as reader:
            assert writer.ask(OPEN) == reader.ask(OPEN) == ["0\t1"]
            answered: list[int] = []
            refused = ""
            while not refused:
                n = 2000 + len(answered)
                (answer,) = writer.ask(f"0\t+\t2\t{n}\t{TEXT}")
                if answer == f"0\t1\t{0}":
                    answered.append(n)
                else:
                    refused = answer
            assert len(answered) > 10
            assert refused.split("\t")[1] == "1"
            assert refused.split("\t")[0] in "12"
            for _ in range(3):  # also several at once, and by other connections
                assert writer.ask(*[f"0\t+\t2\t1\t{TEXT * 10}"] * 3) != ["0\t1\t0"] * 3
                with served.connect("write") as other:
                    assert other.ask(OPEN, f"0\t+\t2\t9999\t{TEXT * 10}")[1] == refused
                assert reader.ask(f"0\t=\t1\t{answered[-1]}", "0\t=\t1\t9999") == [
                    f"0\t2\t{answered[-1]}\t{TEXT}",
                    "0\t2",
                ]
            ballast.unlink()
            assert writer.ask(f"0\t+\t2\t9998\t{TEXT}") == ["0\t1\t0"]
            assert reader.ask("0\t=\t1\t9998") == [f"0\t2\t9998\t{TEXT}"]
    with contextlib.closing(sqlite3.connect(small_disk / "app.db")) as connection:
        found = [n for (n,) in connection.execute("SELECT id FROM rows WHERE id >= 2000 ORDER BY id")]
        assert found == [*answered, 9998]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
