"""The calling thread's own transaction on the same file: it would wait for itself, and is told so.

Where the transaction surely holds the lock, the caller is told soon; the stores of those tests have a timeout of
hours, so a test that is not told soon does not end.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import roost
from tests.campaigns.foreign import held
from tests.campaigns.ledger import STRUCTURES, Event, counts, recent
from tests.campaigns.processes import until
from tests.conftest import MakeStore
from tests.lengths import length

HOURS = 20_000.0
SOON = pytest.mark.timeout(300)
TOLD = r"this thread has a transaction open .*store\.on\(connection\)"


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


@SOON
def test_told_soon_and_the_transaction_goes_on(make_store: MakeStore, own: sqlite3.Connection) -> None:
    store = make_store(timeout=HOURS)
    own.execute("INSERT INTO theirs VALUES (1)")
    with pytest.raises(roost.Busy, match=TOLD):
        store.run(counts.add(1))
    with pytest.raises(roost.Busy, match=TOLD):
        store.run_all(counts.add(1), recent.add(Event(1, 1)))
    assert own.in_transaction
    own.execute("INSERT INTO theirs VALUES (2)")
    store.on(own).run(counts.add(1))  # what the message says
    own.commit()
    assert store.run_all(counts.add(1), counts.total(1), recent.count(1)) == (None, 3, 0)
    assert own.execute("SELECT sum(n) FROM theirs").fetchone() == (3,)


@SOON
@pytest.mark.parametrize("connected", [False, True])
def test_create_and_alter_are_told_too(make_store: MakeStore, own: sqlite3.Connection, connected: bool) -> None:
    store = make_store(timeout=HOURS)
    if connected:
        store.run(counts.add(2))
    own.execute("INSERT INTO theirs VALUES (1)")
    with pytest.raises(roost.Busy, match=TOLD):
        store.create(roost.Counter("later"))
    with pytest.raises(roost.Busy, match=TOLD):
        store.alter(roost.Counter("counts", key=int, slots=2))
    own.rollback()
    store.create(roost.Counter("later"))


@SOON
def test_told_soon_while_the_database_is_made(make_store: MakeStore, tmp_path: Path) -> None:
    own = sqlite3.connect(tmp_path / "test.db")  # not in WAL mode yet
    own.execute("CREATE TABLE theirs (n)")
    own.execute("INSERT INTO theirs VALUES (1)")
    store = make_store(timeout=HOURS)
    with pytest.raises(roost.Busy, match=TOLD):
        store.create(*STRUCTURES)
    own.commit()
    own.close()
    store.create(*STRUCTURES)
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 1)


@SOON
def test_reading_waits_for_nothing(make_store: MakeStore, own: sqlite3.Connection) -> None:
    store = make_store(timeout=HOURS)
    own.execute("INSERT INTO theirs VALUES (1)")
    assert store.run(counts.total(1)) == 1
    assert store.check() == []
    own.rollback()


@SOON
def test_told_as_a_follower_while_others_wait_and_then_succeed(make_store: MakeStore, own: sqlite3.Connection) -> None:
    store = make_store(timeout=HOURS)
    own.execute("INSERT INTO theirs VALUES (1)")
    answers: list[object] = []
    others = [threading.Thread(target=lambda: answers.append(store.run(counts.add(2)))) for _ in range(4)]
    for other in others:
        other.start()
    until(lambda: store.stats().waits, "another thread that leads and waits for this one's transaction")
    for _ in range(3):
        with pytest.raises(roost.Busy, match=TOLD):
            store.run(counts.add(1))
    assert answers == []
    assert all(other.is_alive() for other in others)
    own.commit()
    for other in others:
        other.join()
    assert answers == [None] * 4
    assert store.run(counts.totals([1, 2])) == {1: 1, 2: 4}


@SOON
def test_told_as_a_leader_whose_followers_then_succeed(make_store: MakeStore, own: sqlite3.Connection) -> None:
    store = make_store(timeout=HOURS)
    own.execute("INSERT INTO theirs VALUES (1)")
    others: list[threading.Thread] = []

    def join_in() -> None:  # behind the thread that leads
        until(lambda: store.stats().waits, "a leader that waits for its own transaction")
        others.extend(threading.Thread(target=store.run, args=(counts.add(2),)) for _ in range(4))
        for other in others:
            other.start()

    helper = threading.Thread(target=join_in)
    helper.start()
    with pytest.raises(roost.Busy, match=TOLD):
        store.run(counts.add(1))
    helper.join()
    assert any(other.is_alive() for other in others)
    own.commit()
    for other in others:
        other.join()
    assert store.run(counts.totals([1, 2])) == {1: 1, 2: 4}


@SOON
@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN"])
def test_told_soon_where_the_application_begins_by_itself(make_store: MakeStore, path: Path, begin: str) -> None:
    own = sqlite3.connect(path, isolation_level=None)
    store = make_store(timeout=HOURS)
    own.execute(begin)
    own.execute("INSERT INTO theirs VALUES (1)")
    with pytest.raises(roost.Busy, match=TOLD):
        store.run(counts.add(1))
    with pytest.raises(roost.Busy, match=TOLD):
        store.create(roost.Counter("later"))
    assert own.in_transaction
    own.execute("COMMIT")
    own.close()
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 2)


@SOON
def test_the_file_by_another_name(make_store: MakeStore, path: Path, tmp_path: Path, own: sqlite3.Connection) -> None:
    link = tmp_path / "link.db"
    os.symlink(path, link)
    store = make_store(url=f"sqlite:///{link}", timeout=HOURS)
    own.execute("INSERT INTO theirs VALUES (1)")
    with pytest.raises(roost.Busy, match=TOLD):
        store.run(counts.add(1))
    own.rollback()
    store.run(counts.add(1))


def test_nobody_is_blamed_for_a_transaction_elsewhere(make_store: MakeStore, path: Path, tmp_path: Path) -> None:
    elsewhere = sqlite3.connect(tmp_path / "other.db")
    elsewhere.execute("CREATE TABLE theirs (n)")
    elsewhere.execute("INSERT INTO theirs VALUES (1)")
    assert elsewhere.in_transaction
    store = make_store(timeout=0.3)
    with held(path) as holder:
        with pytest.raises(roost.Busy) as caught:
            store.run(counts.add(1))
        assert "store.on" not in str(caught.value)
        holder.release()
    elsewhere.close()


def test_nor_for_the_transaction_of_another_thread(make_store: MakeStore, path: Path) -> None:
    store = make_store(timeout=0.3)
    begun, end = threading.Event(), threading.Event()

    def transact() -> None:
        raw = sqlite3.connect(path)
        raw.execute("INSERT INTO theirs VALUES (1)")
        begun.set()
        end.wait()
        raw.commit()
        raw.close()

    thread = threading.Thread(target=transact)
    thread.start()
    begun.wait()
    with pytest.raises(roost.Busy) as caught:
        store.run(counts.add(1))
    assert "store.on" not in str(caught.value)
    end.set()
    thread.join()
    store.run(counts.add(1))


@SOON
@pytest.mark.parametrize("begin", ["BEGIN", "SAVEPOINT theirs"])
def test_nor_for_an_own_transaction_that_only_reads(
    make_store: MakeStore, own: sqlite3.Connection, path: Path, begin: str
) -> None:
    # It holds no write lock, so it is somebody else's that is waited for.
    store = make_store(timeout=HOURS, lock_wait=0.02)
    own.execute(begin)
    own.execute("SELECT count(*) FROM theirs").fetchone()
    assert own.in_transaction
    store.run(counts.add(1))
    with held(path) as holder:
        holder.release_in(0.3)
        store.run(counts.add(1))
    own.rollback()
    assert store.run(counts.total(1)) == 3


@SOON
def test_nor_for_one_whose_write_was_refused(make_store: MakeStore, own: sqlite3.Connection, path: Path) -> None:
    store = make_store(timeout=HOURS, lock_wait=0.02)
    own.execute("PRAGMA busy_timeout = 0")
    with held(path) as holder:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            own.execute("INSERT INTO theirs VALUES (1)")
        assert own.in_transaction  # begun by sqlite3, and without the lock
        holder.release_in(0.3)
        store.run(counts.add(1))
    own.rollback()
    assert store.run(counts.total(1)) == 2


def test_asyncio_ends_in_busy_and_goes_on(path: Path, own: sqlite3.Connection) -> None:
    async def main() -> None:
        async with roost.AsyncStore(f"sqlite:///{path}", timeout=0.3) as store:
            own.execute("INSERT INTO theirs VALUES (1)")
            with pytest.raises(roost.Busy):
                await store.run(counts.add(1))
            await store.on(own).run(counts.add(1))
            own.commit()
            assert await store.run_all(counts.add(1), counts.total(1)) == (None, 3)

    asyncio.run(main())


@SOON
def test_many_connections_that_come_and_go_meanwhile(
    make_store: MakeStore, path: Path, own: sqlite3.Connection
) -> None:
    # Looking for the own transaction walks over objects that other threads make and drop.
    store = make_store(timeout=HOURS, lock_wait=0.0)
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            raw = sqlite3.connect(path)
            raw.execute("BEGIN")
            raw.execute("SELECT count(*) FROM theirs").fetchone()
            other = roost.Store(f"sqlite:///{path}")
            other.run(counts.total(1))
            raw.close()
            other.close()

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        own.execute("INSERT INTO theirs VALUES (1)")
        for _ in range(length(3, 8)):
            with pytest.raises(roost.Busy, match=TOLD):
                store.run(counts.add(1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    own.rollback()
    store.run(counts.add(1))
