"""Settings that cannot be meant, and the small print of the wire."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import roost
from roost.server.settings import load
from tests.campaigns import hostile


@pytest.mark.parametrize("secret", ["a\tb", "a\nb", "ab\r", "\0", "a\x01"])
def test_f59_a_secret_that_cannot_be_said_is_refused(tmp_path: Path, secret: str) -> None:
    with pytest.raises(roost.Invalid, match="cannot be sent"):
        load(None, {}, {"write_secret": secret})
    (tmp_path / "secret").write_bytes(f"{secret}\r\r\n".encode())
    with pytest.raises(roost.Invalid, match="cannot be sent"):
        load(None, {}, {"write_secret_file": str(tmp_path / "secret")})


@pytest.mark.parametrize(
    "options",
    [
        {"read": "127.0.0.1:7001", "write": "127.0.0.1:7001"},
        {"read": "127.0.0.1:7001,127.0.0.1:7001"},
        {"write": "127.0.0.1:7001", "http": "127.0.0.1:7001"},
        {"read": "unix:/run/a", "write": "unix:/run/a"},
    ],
)
def test_f59_an_address_that_is_named_twice_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(roost.Invalid, match="is named twice"):
        load(None, {}, options)


def test_f59_free_ports_may_be_asked_for_twice() -> None:
    assert load(None, {}, {"read": "127.0.0.1:0", "write": "127.0.0.1:0"}).read


def test_f59_a_line_that_comes_at_once_is_refused_when_it_is_too_long(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path, "--max-line", "1K") as served, served.connect() as client:
        assert client.ask(hostile.OPEN, *["0\t=\t1\t7"] * 200) == ["0\t1", *["0\t2\t7\tv7"] * 200]
        client.send("0\t=\t1\t8", f"0\t=\t1\t{'7' * 1100}", "0\t=\t1\t9")
        assert [client.answer() for _ in range(3)] == ["0\t2\t8\tv8", "2\t1\ttoolong", ""]


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
