"""`roost serve` on a disk that runs full: writes are refused, reads go on, and writes work again when there is room."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.campaigns.hostile import OPEN, a_server
from tests.faults.full_disk_test import MIB, small_disk

__all__ = ["small_disk"]

TEXT = "x" * 20_000


def test_a_disk_that_runs_full_while_clients_write(small_disk: Path) -> None:
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
    with closing(sqlite3.connect(small_disk / "app.db")) as connection:
        found = [n for (n,) in connection.execute("SELECT id FROM rows WHERE id >= 2000 ORDER BY id")]
        assert found == [*answered, 9998]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
