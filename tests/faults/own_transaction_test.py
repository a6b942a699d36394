"""A transaction of the process's own on the same file: the caller would wait for itself, and is told so."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import roost
from tests.campaigns.foreign import held
from tests.campaigns.ledger import STRUCTURES, Event, counts, recent
from tests.campaigns.processes import run_threads
from tests.conftest import MakeStore

TOLD = r"this process has a transaction open .*store\.on\(connection\)"
SHORT = 0.3  # seconds, after which all are told


@pytest.fixture
def path(make_store: MakeStore, tmp_path: Path) -> Path:
    store = make_store(*STRUCTURES)
    store.run(counts.add(1))
    store.close()
    raw = sqlite3.connect(tmp_path / "test.db")
    raw.execute("CREATE TABLE theirs (n)")
    raw.close()
    return tmp_path / "test.db"


@pytest.fixture
def own(path: Path) -> Iterator[sqlite3.Connection]:
    """The application's connection, as sqlite3 makes it."""
    raw = sqlite3.connect(path)
    yield raw
    raw.close()


WRITES: dict[str, Callable[[roost.Store], Any]] = {
    "run": lambda store: store.run(counts.add(1)),
    "run_all": lambda store: store.run_all(counts.add(1), recent.add(Event(1, 1))),
    "create": lambda store: store.create(roost.Counter("later")),
    "alter": lambda store: store.alter(roost.Counter("counts", key=int, slots=2)),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("connected", [False, True])
def test_told_and_the_transaction_goes_on(
    make_store: MakeStore, own: sqlite3.Connection, write: str, connected: bool
) -> None:
    store = make_store(timeout=SHORT)
    if connected:
        store.run(counts.add(2))
    own.execute("INSERT INTO theirs VALUES (1)")
    with pytest.raises(roost.Busy, match=TOLD):
        WRITES[write](store)
    assert store.run(counts.total(1)) == 1  # reading waits for nothing
    assert store.check() == []
    assert own.in_transaction
    store.on(own).run(counts.add(1))  # what the message says
    own.commit()
    WRITES[write](store)
    assert own.execute("SELECT sum(n) FROM theirs").fetchone() == (1,)


SOON = """\
import sqlite3, sys, roost
counts = roost.Counter("counts", key=int)
store = roost.Store(f"sqlite:///{sys.argv[1]}", timeout=20_000)
own = sqlite3.connect(sys.argv[1])
own.execute("INSERT INTO theirs VALUES (1)")
try:
    store.run(counts.add(1))
except roost.Busy as error:
    print(error)
own.commit()
store.run(counts.add(1))
"""


@pytest.mark.timeout(300)
def test_told_at_once_where_there_is_no_other_thread(path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", SOON, path], capture_output=True, text=True, check=True)
    assert "this process has a transaction open" in found.stdout


def test_told_while_the_database_is_made(make_store: MakeStore, tmp_path: Path) -> None:
    own = sqlite3.connect(tmp_path / "test.db")  # not in WAL mode yet
    own.execute("CREATE TABLE theirs (n)")
    own.execute("INSERT INTO theirs VALUES (1)")
    store = make_store(timeout=SHORT)
    with pytest.raises(roost.Busy, match=TOLD):
        store.create(*STRUCTURES)
    own.commit()
    own.close()
    store.create(*STRUCTURES)
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 1)


@pytest.mark.parametrize("name", ["test.db", "link.db"])
@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN"])
def test_told_where_the_application_begins_by_itself(
    make_store: MakeStore, path: Path, tmp_path: Path, begin: str, name: str
) -> None:
    os.symlink(path, tmp_path / "link.db")
    own = sqlite3.connect(path, isolation_level=None)
    store = make_store(url=f"sqlite:///{tmp_path / name}", timeout=SHORT)
    own.execute(begin)
    own.execute("INSERT INTO theirs VALUES (1)")
    with pytest.raises(roost.Busy, match=TOLD):
        store.run(counts.add(1))
    assert own.in_transaction
    own.execute("COMMIT")
    own.close()
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 2)


def test_of_several_threads_each_is_told_and_may_go_on(make_store: MakeStore, own: sqlite3.Connection) -> None:
    store = make_store(timeout=SHORT)
    own.execute("INSERT INTO theirs VALUES (1)")
    told: list[str] = []

    def add() -> None:
        try:
            store.run(counts.add(2))
        except roost.Busy as error:
            told.append(str(error))

    run_threads(*[threading.Thread(target=add) for _ in range(4)])
    assert len(told) == 4
    assert any("store.on(connection)" in each for each in told)  # who led; the others waited for it
    own.commit()
    assert store.run_all(counts.add(2), counts.totals([1, 2])) == (None, {1: 1, 2: 1})


def test_nobody_is_blamed_for_a_transaction_elsewhere(make_store: MakeStore, path: Path, tmp_path: Path) -> None:
    elsewhere = sqlite3.connect(tmp_path / "other.db")
    elsewhere.execute("CREATE TABLE theirs (n)")
    elsewhere.execute("INSERT INTO theirs VALUES (1)")
    assert elsewhere.in_transaction
    store = make_store(timeout=SHORT)
    with held(path) as holder:
        with pytest.raises(roost.Busy) as caught:
            store.run(counts.add(1))
        assert "store.on" not in str(caught.value)
        holder.release()
    elsewhere.close()


@pytest.mark.parametrize("begin", ["BEGIN", "SAVEPOINT theirs", "a write that is refused"])
def test_nor_for_an_own_transaction_that_holds_no_lock(
    make_store: MakeStore, own: sqlite3.Connection, path: Path, begin: str
) -> None:
    store = make_store(timeout=SHORT)
    own.execute("PRAGMA busy_timeout = 0")
    with held(path) as holder:
        if begin.startswith("a write"):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                own.execute("INSERT INTO theirs VALUES (1)")
        else:
            own.execute(begin)
            own.execute("SELECT count(*) FROM theirs").fetchone()
        assert own.in_transaction
        with pytest.raises(roost.Busy) as caught:
            store.run(counts.add(1))
        assert "store.on" not in str(caught.value)
        holder.release()
    own.rollback()
    store.run(counts.add(1))


def test_asyncio_ends_in_busy_and_goes_on(path: Path, own: sqlite3.Connection) -> None:
    async def main() -> None:
        async with roost.AsyncStore(f"sqlite:///{path}", timeout=SHORT) as store:
            own.execute("INSERT INTO theirs VALUES (1)")
            with pytest.raises(roost.Busy):
                await store.run(counts.add(1))
            await store.on(own).run(counts.add(1))
            own.commit()
            assert await store.run_all(counts.add(1), counts.total(1)) == (None, 3)

    asyncio.run(main())
