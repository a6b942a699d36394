"""The small print of the wire."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.campaigns import hostile


def test_f59_a_view_without_a_trigger_takes_no_rows(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served:
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.execute("CREATE VIEW seen AS SELECT id, v FROM rows")
            connection.execute("CREATE VIEW taken AS SELECT id, v FROM rows")
            connection.execute(
                "CREATE TRIGGER takes INSTEAD OF INSERT ON taken BEGIN INSERT INTO rows VALUES (new.id, new.v); END"
            )
            connection.commit()
        with served.connect("write") as client:
            lines = ["P\t1\tmain\tseen\tPRIMARY\tid,v", "P\t2\tmain\ttaken\tPRIMARY\tid,v"]
            assert client.ask(*lines) == ["0\t1", "0\t1"]
            assert client.ask("1\t+\t2\t5000\tx", "2\t+\t2\t5000\tx", "1\t=\t1\t5000") == [
                "2\t1\tnotimpl",
                "0\t1",
                "0\t2\t5000\tx",
            ]


def test_f59_a_request_in_work_is_finished_before_all_leave(tmp_path: Path) -> None:
    """With `drain` 0 and a request that takes as long as one may: it is answered by its own limit, and exit code 0."""
    with hostile.a_server(tmp_path, "--drain", "0", "--timeout", "7", "--workers", "1") as served:
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.execute(
                "CREATE VIEW never AS WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"
            )
        with served.connect() as client:
            assert client.ask("P\t1\tmain\tnever\tPRIMARY\tn") == ["0\t1"]
            client.send("1\t=\t1\t-1")
            served.send(signal.SIGTERM)
            assert served.process.wait(60) == 0
