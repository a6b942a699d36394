"""What the server does with its file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.campaigns import hostile
from tests.campaigns.processes import until


def without_the_log(path: Path) -> str:
    """Return a value as the file has it, whatever the write-ahead log says."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return str(connection.execute("SELECT v FROM t WHERE id = 7").fetchone()[0])


def test_when_nothing_comes_the_log_is_copied_into_the_file(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served:
        path = tmp_path / "app.db"
        with served.connect("write") as client:
            assert client.ask(hostile.OPEN, "0\t=\t1\t7\t1\t0\tU\t7\tnew") == ["0\t1", "0\t1\t1"]
            until(lambda: without_the_log(path) == "new", "the new value in the file")
