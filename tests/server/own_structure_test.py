"""A structure that is not Roost's own is opened, found, inserted and deleted over the wire."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.latest  # noqa: F401 - registers its kind, as an entry point does
from tests.server.playing import Bench, bench

MAKE = """
import sys, roost
from tests.latest import Latest
roost.Store(f"sqlite:///{sys.argv[1]}").create(Latest("moods", key=int, value=roost.text(20)))
"""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "app.db"
    subprocess.run([sys.executable, "-c", MAKE, str(path)], check=True)
    return path


@pytest.fixture
def write(empty: Path, tmp_path: Path) -> Iterator[Bench]:
    path = Path(shutil.copy(empty, tmp_path))
    made = bench(path, "write")
    yield made
    made.database.close()


def test_it_is_found_inserted_and_deleted(write: Bench) -> None:
    session = write.session()
    assert write.say(session, "P\t1\tmain\tmoods\tPRIMARY\tkey,value\nP\t2\tmain\tmoods\tPRIMARY\tnope") == [
        "0\t1",
        "2\t1\tfld",
    ]
    lines = [
        "1\t+\t2\t7\tcalm",
        "1\t=\t1\t7",
        "1\t+\t2\t7\tglad",
        "1\t+\t2\t8\tsad",
        "1\t=\t1\t7\t9\t0\t@\t0\t3\t8\t9\t7",
    ]
    answers = ["0\t1", "0\t2\t7\tcalm", "0\t1", "0\t1", "0\t2\t8\tsad\t7\tglad"]
    assert write.say(session, "\n".join(lines)) == answers
    lines = ["1\t=\t1\t7\t1\t0\tD?", "1\t=\t1\t7\t1\t0\tD", "1\t=\t1\t7", "1\t=\t1\t8"]
    assert write.say(session, "\n".join(lines)) == ["0\t2\t7\tglad", "0\t1\t0", "0\t2", "0\t2\t8\tsad"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (f"1\t+\t2\t7\t{'x' * 21}", "1\t1\ttype"),
        ("1\t+\t2\tseven\tcalm", "1\t1\ttype"),
        ("1\t+\t1\t7", "1\t1\tnotnull"),
        ("1\t=\t1\t7\t1\t0\tU\t8", "2\t1\tnotimpl"),
        ("1\t>\t1\t7", "2\t1\tnotimpl"),
    ],
)
def test_what_it_does_not_take(write: Bench, line: str, answer: str) -> None:
    session = write.session()
    assert write.say(session, f"P\t1\tmain\tmoods\tPRIMARY\tkey,value\n{line}\n1\t=\t1\t7") == ["0\t1", answer, "0\t2"]
