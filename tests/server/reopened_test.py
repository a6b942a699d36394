"""What the writer does with its file: it is opened anew after an error that concerns it, and nobody notices."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roost.databases.engine import Wait
from roost.databases.sqlite.filelock import FileLock
from tests.campaigns import hostile
from tests.campaigns.processes import until
from tests.server.serving import Client, Serving

SCHEMA = """
CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, w TEXT);
INSERT INTO t VALUES (1, 'v1', 'w1'), (2, 'v2', 'w2');
CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT);
INSERT INTO numbered VALUES (9223372036854775807, 'last');
"""
OPENED = ["P\t1\tmain\tt\tPRIMARY\tid,v,w", "P\t2\tmain\tnumbered\tPRIMARY\tv"]
EXHAUSTED = "2\t+\t1\tone more"  # SQLITE_FULL: as on a full disk, the file is opened anew


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    sql(tmp_path, SCHEMA)
    with hostile.a_server(tmp_path) as made:
        yield made


def sql(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / "app.db", timeout=30)) as connection:
        connection.executescript(script)


def opened(served: Serving) -> Client:
    client = served.connect("write")
    assert client.ask(*OPENED) == ["0\t1", "0\t1"]
    return client


@pytest.mark.parametrize("together", [False, True])
def test_f53_indexes_stay_right_when_the_file_is_opened_anew(served: Serving, tmp_path: Path, together: bool) -> None:
    with opened(served) as client, opened(served) as other:
        assert client.ask(EXHAUSTED) == ["1\t1\t135"]
        if together:  # what is opened on the new connection is resolved beside what was opened on the old one
            assert other.ask("P\t3\tmain\tt\tPRIMARY\tid,v") == ["0\t1"]
        sql(tmp_path, "ALTER TABLE t DROP COLUMN w")
        assert other.ask("1\t=\t1\t1", "2\t=\t1\t5") == ["1\t1\topen_table", "0\t1"]
        assert client.ask("1\t=\t1\t1", "1\t=\t1\t2\t1\t0\tU\t2\tx\ty") == ["1\t1\topen_table"] * 2
        sql(tmp_path, "ALTER TABLE t ADD COLUMN w TEXT DEFAULT 'new'")
        assert client.ask("1\t=\t1\t1") == other.ask("1\t=\t1\t1") == ["0\t3\t1\tv1\tnew"]


def test_f50_the_writer_recovers_when_the_file_was_away_for_a_while(served: Serving, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "app.db", tmp_path / "elsewhere"
    with opened(served) as client, opened(served) as other:
        file.rename(elsewhere)
        assert client.ask(EXHAUSTED)[0] in ("1\t1\t135", "1\t1\topen_table")
        for _ in range(3):
            with served.connect("write") as late:  # which takes the lowest descriptor that is free
                assert late.ask(OPENED[0]) == ["1\t1\topen_table"]
                assert client.ask("1\t=\t1\t1") == other.ask("1\t=\t1\t1") == ["1\t1\topen_table"]
                assert late.ask(OPENED[0]) == ["1\t1\topen_table"]
        elsewhere.rename(file)
        assert client.ask("1\t=\t1\t1", "1\t+\t2\t3\tv3") == ["0\t3\t1\tv1\tw1", "0\t1\t0"]
        assert other.ask("1\t=\t1\t3") == ["0\t3\t3\tv3\t\0"]


def test_f50_a_lock_that_is_closed_twice_closes_nothing_else(tmp_path: Path) -> None:
    lock = FileLock(str(tmp_path / "test.db-lock"))
    lock.acquire(Wait(0.0))
    lock.close()
    with (tmp_path / "other").open("w") as other:  # has its descriptor now
        lock.release()
        lock.close()
        other.write("still open")
    again = FileLock(str(tmp_path / "test.db-lock"))
    again.acquire(Wait(0.0))
    again.close()


def test_f56_tables_that_are_no_longer_allowed_are_no_longer_open(tmp_path: Path) -> None:
    sql(tmp_path, SCHEMA)
    config = tmp_path / "roost.toml"
    config.write_text('tables = ["*"]\n')
    with hostile.a_server(tmp_path, "--config", str(config)) as served:
        for role in hostile.ROLES:
            config.write_text('tables = ["*"]\n')
            reread(served)
            with served.connect(role) as client, served.connect(role) as late:
                assert client.ask(*OPENED) == ["0\t1", "0\t1"]
                config.write_text('tables = ["numbered"]\n')
                reread(served)
                assert late.ask(*OPENED, "1\t=\t1\t1") == ["1\t1\topen_table", "0\t1", "2\t1\tstmtnum"]
                assert client.ask("1\t=\t1\t1", "2\t=\t1\t1") == ["1\t1\topen_table", "0\t1"]
                config.write_text('tables = ["*"]\n')
                reread(served)
                assert client.ask("1\t=\t1\t1") == ["0\t3\t1\tv1\tw1"]


def reread(served: Serving) -> None:
    message = "settings and certificates were read again"
    times = served.log.count(message)
    served.send(signal.SIGHUP)
    served.logged(message, times + 1)


def test_when_nothing_comes_the_log_is_copied_into_the_file(served: Serving, tmp_path: Path) -> None:
    value = "a value that is nowhere else"
    with opened(served) as client:
        assert client.ask(f"1\t=\t1\t1\t1\t0\tU\t1\t{value}") == ["0\t1\t1"]
    until(lambda: value.encode() in (tmp_path / "app.db").read_bytes(), "the new value in the file")
