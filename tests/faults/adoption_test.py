"""`roost cap` while the application goes on writing, and when it is killed."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict, deque
from contextlib import closing
from pathlib import Path

import pytest

import roost
from roost import adoption
from tests.campaigns.processes import Child, Line, Start, children

PEOPLE, KEEP, ROWS = 40, 5, 8000


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "app.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INTEGER, writer INTEGER, n INTEGER)")
        connection.execute("CREATE INDEX visits_uid ON visits (uid)")
        chance = random.Random(1)
        values = [(chance.randrange(PEOPLE), n) for n in range(ROWS)]
        connection.executemany("INSERT INTO visits (uid, writer, n) VALUES (?, 0, ?)", values)
        connection.commit()
    return path


def found(path: str) -> dict[int, list[tuple[int, int]]]:
    """What the table holds: person -> (writer, number), oldest first."""
    held: dict[int, list[tuple[int, int]]] = defaultdict(list)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for uid, writer, n in connection.execute("SELECT uid, writer, n FROM visits ORDER BY id"):
            held[uid].append((writer, n))
    return held


def test_what_the_application_writes_meanwhile_is_there_or_was_pushed_out(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "BURST", 0.002)
    monkeypatch.setattr(adoption, "PAUSE", 0.001)
    start, writers, each = Start(), 2, 600

    def write(line: Line, number: int) -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
            line.say("ready")
            start.wait()
            chance = random.Random(number)
            for n in range(each):
                row = (chance.randrange(PEOPLE), 1 + number, n)
                connection.execute("INSERT INTO visits (uid, writer, n) VALUES (?, ?, ?)", row)
                line.say(f"{connection.execute('SELECT last_insert_rowid()').fetchone()[0]} {row[0]} {row[1]} {n}")

    before = found(path)
    with children(writers, write) as clients:
        assert [child.hear() for child in clients] == ["ready"] * writers
        with roost.Store(f"sqlite:///{path}") as store:
            start.go()
            deleted = sum(adoption.cap(store, adoption.inspect(store, "visits", ["uid"], KEEP, None)))
            told = [tuple(map(int, text.split())) for child in clients for text in child.rest()]
            assert store.check() == []
    assert deleted > 0
    assert len(told) == writers * each
    wanted = {uid: deque(rows, maxlen=KEEP) for uid, rows in before.items()}
    for _, uid, writer, n in sorted(told):
        wanted[uid].append((writer, n))
    assert found(path) == {uid: list(rows) for uid, rows in wanted.items()}


def test_killed_at_any_moment_it_goes_on_where_it_was(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "BURST", 0.001)
    monkeypatch.setattr(adoption, "PAUSE", 0.0)
    before = found(path)

    def work(line: Line) -> None:
        store = roost.Store(f"sqlite:///{path}")
        for step in adoption.cap(store, adoption.inspect(store, "visits", ["uid"], KEEP, None)):
            line.say(step)

    for bursts in (1, 2, 3, 5):
        with Child(work) as child:
            for _ in range(bursts):
                child.hear()
    held = found(path)
    assert PEOPLE * KEEP < sum(map(len, held.values())) < ROWS
    assert all(rows[-KEEP:] == before[uid][-KEEP:] and set(rows) <= set(before[uid]) for uid, rows in held.items())
    with roost.Store(f"sqlite:///{path}") as store:
        sum(adoption.cap(store, adoption.inspect(store, "visits", [], None, None)))
        assert store.check() == []
    assert found(path) == {uid: rows[-KEEP:] for uid, rows in before.items()}
