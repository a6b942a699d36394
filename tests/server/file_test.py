"""What the server does with its file."""

from __future__ import annotations

from pathlib import Path

from tests.campaigns import hostile
from tests.campaigns.processes import until

VALUE = "a value that is nowhere else"


def test_when_nothing_comes_the_log_is_copied_into_the_file(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served:
        with served.connect("write") as client:
            assert client.ask(hostile.OPEN, f"0\t=\t1\t7\t1\t0\tU\t7\t{VALUE}") == ["0\t1", "0\t1\t1"]
        until(lambda: VALUE.encode() in (tmp_path / "app.db").read_bytes(), "the new value in the file")
