"""Somebody else holds the database's write lock: readers go on, writers wait, and too long is `Busy`."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

import roost
from tests.campaigns.foreign import held, is_flocked, is_locked
from tests.campaigns.ledger import STRUCTURES, Event, counts, events, recent, tags
from tests.campaigns.processes import Child, Line, run_threads, started, until
from tests.conftest import MakeStore

TRANSACTIONS = {
    "immediate": ("BEGIN IMMEDIATE",),
    "exclusive": ("BEGIN EXCLUSIVE",),
    "written": ("BEGIN", "CREATE TABLE theirs (n)", "INSERT INTO theirs VALUES (1)"),
}


@pytest.fixture
def path(make_store: MakeStore, tmp_path: Path) -> Path:
    """A database with the structures, 1 in every one of them, and nobody connected."""
    store = make_store(*STRUCTURES)
    store.run_all(counts.add(1), events.push(Event(1, 1)), recent.add(Event(1, 1)), tags.add(1, 1))
    store.close()
    return tmp_path / "test.db"


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_readers_go_on(make_store: MakeStore, path: Path, kind: str) -> None:
    with held(path, *TRANSACTIONS[kind]) as holder:
        store = make_store()
        assert store.run(counts.total(1)) == 1
        assert store.run_all(events.latest(1), recent.count(1), tags.members(1)) == ([Event(1, 1)], 1, {1})
        answers: list[int] = []
        run_threads(*[threading.Thread(target=lambda: answers.append(store.run(counts.total(1)))) for _ in range(8)])
        assert answers == [1] * 8
        assert store.check() == []
        assert {each.name for each in store.structures()} == {each.name for each in STRUCTURES}
        assert is_locked(path), "all that while the lock was held"
        assert store.stats().waits == 0
        holder.release()


def test_readers_are_not_held_up_by_a_waiting_writer_of_their_own_store(make_store: MakeStore, path: Path) -> None:
    with held(path) as holder:
        store = make_store(timeout=60)
        writer = threading.Thread(target=store.run, args=(counts.add(1),))
        writer.start()
        until(lambda: store.stats().waits, "a writer that waits")
        for _ in range(20):
            assert store.run(counts.total(1)) == 1
        assert is_locked(path)
        assert writer.is_alive()
        holder.release()
        writer.join()
        assert store.run(counts.total(1)) == 2


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_writers_wait_and_succeed_after_the_release(make_store: MakeStore, path: Path, kind: str) -> None:
    with held(path, *TRANSACTIONS[kind]) as holder:
        store = make_store(timeout=60)
        answers: list[object] = []

        def write(n: int) -> None:
            answers.append(store.run_all(counts.add(2), tags.add(2, n), recent.add(Event(2, n))))

        threads = started(*[threading.Thread(target=write, args=(n,)) for n in range(6)])
        until(lambda: store.stats().waits, "a writer that waits")
        assert store.run(counts.total(2)) == 0
        assert is_locked(path)
        holder.release("ROLLBACK" if kind == "exclusive" else "COMMIT")
        for thread in threads:
            thread.join()
    assert answers == [(None, 1, None)] * 6
    assert store.run_all(counts.total(2), tags.members(2), recent.count(2)) == (6, set(range(6)), 6)
    assert 1 <= store.stats().waits <= 6


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_a_wait_that_is_too_long_is_busy_and_nothing_is_done(make_store: MakeStore, path: Path, kind: str) -> None:
    with held(path, *TRANSACTIONS[kind]) as holder:
        store = make_store(timeout=0.05)
        with pytest.raises(roost.Busy, match=r"test\.db: another connection holds the write lock") as caught:
            store.run_all(counts.add(2), tags.add(2, 1), events.push(Event(2, 1)))
        assert caught.value.retry
        assert "store.on" not in str(caught.value), "it is not the caller's own transaction"
        assert not is_flocked(f"{path}-lock"), "other processes need not wait for one that has given up"
        errors: list[roost.Error] = []

        def write() -> None:
            try:
                store.run(counts.add(2))
            except roost.Error as error:
                errors.append(error)

        run_threads(*[threading.Thread(target=write) for _ in range(5)])
        assert [type(error) for error in errors] == [roost.Busy] * 5
        assert len({id(error) for error in errors}) == 5
        for change in (
            lambda: store.create(roost.Counter("later")),
            lambda: store.alter(roost.Counter("counts", key=int, slots=2)),
        ):
            with pytest.raises(roost.Busy):
                change()
        assert is_locked(path)
        assert store.stats().waits >= 2
        assert store.stats().operations == 0
        holder.release()
    assert store.run_all(counts.total(2), tags.size(2), events.latest(2)) == (0, 0, [])
    assert store.run_all(counts.add(2), tags.add(2, 1), events.push(Event(2, 1))) == (None, 1, 1)
    store.create(roost.Counter("later"))


def test_busy_is_told_in_asyncio_too(make_store: MakeStore, path: Path) -> None:
    async def main() -> None:
        async with roost.AsyncStore(f"sqlite:///{path}", timeout=0.05) as store:
            outcomes = await asyncio.gather(*[store.run(counts.add(2)) for _ in range(5)], return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [roost.Busy] * 5
            assert await store.run(counts.total(2)) == 0
            assert store.stats().waits == 1, "they waited together"
            holder.release()
            await asyncio.gather(*[store.run(counts.add(2)) for _ in range(5)])
            assert await store.run(counts.total(2)) == 5

    with held(path) as holder:
        asyncio.run(main())


def test_a_long_reader_hinders_nobody(make_store: MakeStore, path: Path) -> None:
    with held(path, "BEGIN", "SELECT count(*) FROM roost_counts_rows") as holder:
        store = make_store()
        for n in range(1, 51):
            assert store.run_all(counts.add(2), counts.total(2)) == (None, n)
        assert store.stats().waits == 0
        holder.release()


def test_a_busy_foreign_writer_and_the_store_both_lose_nothing(make_store: MakeStore, path: Path) -> None:
    def work(line: Line) -> None:
        raw = sqlite3.connect(path, timeout=60, isolation_level=None)
        raw.execute("CREATE TABLE theirs (n)")
        line.say("ready")
        for n in range(100):
            raw.execute("BEGIN IMMEDIATE")
            raw.execute("INSERT INTO theirs VALUES (?)", (n,))
            raw.execute("UPDATE roost_counts_rows SET n = n + 1 WHERE key = 1")
            raw.execute("COMMIT")
        raw.close()

    with Child(work) as child:
        assert child.hear() == "ready"
        store = make_store(timeout=60)

        def write() -> None:
            for _ in range(25):
                store.run(counts.add(1))

        run_threads(*[threading.Thread(target=write) for _ in range(4)])
        assert child.wait() == 0
    assert store.run(counts.total(1)) == 1 + 100 + 100
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM theirs").fetchone() == (100,)
    raw.close()


def test_a_database_of_somebody_else_that_is_locked_while_we_connect(
    make_store: MakeStore, tmp_path: Path, url: str
) -> None:
    path = tmp_path / "test.db"
    raw = sqlite3.connect(path)  # not in WAL mode: switching needs every lock there is
    raw.execute("CREATE TABLE theirs (n)")
    raw.close()
    with held(path, "BEGIN EXCLUSIVE") as holder:
        store = make_store(timeout=0.05)
        with pytest.raises(roost.Busy):
            store.create(*STRUCTURES)
        with pytest.raises(roost.Busy):
            store.run(counts.add(1))
        with pytest.raises(roost.Busy):
            store.run(counts.total(1))
        assert not is_flocked(f"{path}-lock")
        holder.release()
    with pytest.raises(roost.Missing):
        store.run(counts.add(1))
    store.create(*STRUCTURES)
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 1)


@pytest.mark.parametrize("kind", [*TRANSACTIONS, "read"])
def test_a_database_of_somebody_else_is_waited_for_while_we_connect(
    make_store: MakeStore, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "test.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE before (n)")
    raw.close()
    with held(path, *TRANSACTIONS.get(kind, ("BEGIN", "SELECT count(*) FROM before"))) as holder:
        store = make_store(timeout=60)
        holder.release_in(0.3)
        store.create(*STRUCTURES)
    assert store.run_all(counts.add(1), counts.total(1)) == (None, 1)
