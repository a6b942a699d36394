"""`max_answer` over the wire, on every database: what is longer is refused, not held, and concerns nobody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.index.databases import NAMES, Database, database
from tests.server.serving import Client, Serving, serving

MIB = 2**20
LIMIT = 2 * MIB
BIG = 48  # rows of one MiB
HEAVY = 8  # MiB, of one value
ROOM = 125  # MiB that a worker may have had at any time; an idle one has about 45
TABLE = {
    "sqlite": "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, w TEXT)",
    "mariadb": "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT, w LONGTEXT) CHARACTER SET ascii",
    "postgresql": "CREATE TABLE t (id int PRIMARY KEY, v text, w text)",
}
X = {
    "sqlite": "replace(printf('%.*c', {n}, 'x'), 'y', 'z')",
    "mariadb": "REPEAT('x', {n})",
    "postgresql": "repeat('x', {n})",
}
TABLE["mysql"], X["mysql"] = TABLE["mariadb"], X["mariadb"]
LONG, PAIR, FIRST, LAST = 1, 2, 100, 100 + BIG - 1


def x(db: Database, n: int) -> str:
    """Return the SQL of a text."""
    return X[db.name].format(n=n)


@pytest.fixture(scope="module", params=NAMES)
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database of each kind, with a row whose value is too long, one too long as a whole, and many long ones."""
    with database(request.param, tmp_path_factory.mktemp("filled")) as made:
        long, pair, one = x(made, HEAVY * MIB), x(made, LIMIT // 2 + 1000), x(made, MIB)
        made.script(
            TABLE[made.name],
            f"INSERT INTO t VALUES ({LONG}, {long}, 'w')",
            f"INSERT INTO t VALUES ({PAIR}, {pair}, {pair})",
            "INSERT INTO t VALUES (3, 'three', 'w'), (4, 'four', 'w')",
            f"INSERT INTO t VALUES ({FIRST}, {one}, 'w')",
        )
        made.script(*[f"INSERT INTO t SELECT {FIRST + n}, v, 'w' FROM t WHERE id = {FIRST}" for n in range(1, BIG)])
        yield made


@pytest.fixture(scope="module")
def served(db: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Serve it."""
    arguments = ("--workers", "1", "--max-answer", str(LIMIT))
    with serving(tmp_path_factory.mktemp("served"), db.url, *arguments, module="roost.cli") as made:
        yield made


def connect(served: Serving, db: Database, role: str) -> Client:
    """Connect, and open the table."""
    name = "main" if db.name == "sqlite" else db.url.rpartition("/")[2].partition("?")[0]
    made = served.connect(role)
    assert made.ask(f"P\t0\t{name}\tt\tPRIMARY\tid,v,w\tid") == ["0\t1"]
    return made


def most_memory(served: Serving, role: str) -> int:
    """Return the MiB that the worker of a role has had at any time."""
    (pid,) = served.pids(role)
    (kib,) = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) // 1024


def too_long(db: Database) -> str:
    """Return the answer for a value that is too long: only SQLite tells it from a row."""
    return "1\t1\ttoobig" if db.name == "sqlite" else "2\t1\tlimit"


def test_an_answer_beyond_the_limit_is_refused_and_its_neighbours_have_theirs(db: Database, served: Serving) -> None:
    db.script("UPDATE t SET v = 'three' WHERE id = 3")  # as it was
    good = "0\t=\t1\t3", "0\t3\t3\tthree\tw"
    refused = {
        "a value": (f"0\t=\t1\t{LONG}", too_long(db)),
        "a row": (f"0\t=\t1\t{PAIR}", "2\t1\tlimit"),
        "a range": (f"0\t>=\t1\t{FIRST}\t{BIG}\t0", "2\t1\tlimit"),
        "a range that begins with it": (f"0\t>=\t1\t{LONG}\t5\t0", too_long(db)),
        "a list": (f"0\t=\t1\t{FIRST}\t3\t0\t@\t0\t3\t{FIRST}\t{FIRST + 1}\t{FIRST + 2}", "2\t1\tlimit"),
        "with a filter": (f"0\t>=\t1\t{FIRST}\t{BIG}\t0\tF\t>\t0\t1", "2\t1\tlimit"),
    }
    with connect(served, db, "read") as client, connect(served, db, "read") as other:
        for what, (asked, answer) in refused.items():
            other.send(good[0])
            assert client.ask(asked) == [answer], (what, served.log)
            assert client.ask(good[0], asked, good[0], asked, asked) == [good[1], answer, good[1], answer, answer], what
            assert other.answer() == good[1]
        (found,) = client.ask(f"0\t=\t1\t{FIRST}")
        assert found == f"0\t3\t{FIRST}\t{'x' * MIB}\tw"
    assert most_memory(served, "read") < ROOM
    assert "Traceback" not in served.log, served.log


def test_a_connection_left_in_the_middle_of_an_answer_holds_nothing(db: Database, served: Serving) -> None:
    exclusive = {
        "sqlite": ["PRAGMA busy_timeout = 20000", "BEGIN EXCLUSIVE"],
        "mariadb": ["SET lock_wait_timeout = 20", "LOCK TABLES t WRITE"],
        "mysql": ["SET lock_wait_timeout = 20", "LOCK TABLES t WRITE"],
        "postgresql": ["SET lock_timeout = '20s'", "LOCK TABLE t"],
    }
    with connect(served, db, "read") as client:
        for _ in range(4):  # on all of its connections
            assert client.ask(f"0\t>=\t1\t{FIRST}\t{BIG}\t0") == ["2\t1\tlimit"]
        db.script(*exclusive[db.name])


def test_long_rows_of_many_requests_are_answered_piece_by_piece(db: Database, served: Serving) -> None:
    with connect(served, db, "read") as client:
        client.send(*[f"0\t=\t1\t{n}" for n in range(FIRST, FIRST + BIG)])
        for n in range(FIRST, FIRST + BIG):
            answer = client.answer()
            assert answer == f"0\t3\t{n}\t{'x' * MIB}\tw"
    assert most_memory(served, "read") < ROOM


def test_what_is_too_long_is_not_modified_nor_written(db: Database, served: Serving) -> None:
    long = "y" * (LIMIT + 1)
    with connect(served, db, "write") as client, connect(served, db, "write") as other:
        for _ in range(2):
            other.send("0\t=\t1\t4\t1\t0\tU\t4\tother")
            assert client.ask(
                "0\t=\t1\t3\t1\t0\tU\t3\tnew",
                f"0\t=\t1\t3\t1\t0\tU\t3\t{long}",
                f"0\t=\t1\t{PAIR}\t1\t0\tU?\t{PAIR}\tnew",
                f"0\t>=\t1\t{FIRST}\t{BIG}\t0\tD?",
                f"0\t+\t3\t7\t{long}\tw",
                "0\t=\t1\t3",
            ) == ["0\t1\t1", "1\t1\ttoobig", "2\t1\tlimit", "2\t1\tlimit", "1\t1\ttoobig", "0\t3\t3\tnew\tw"]
            assert other.answer() == "0\t1\t1"
    lengths = db.sql("SELECT id, length(v) FROM t WHERE id < 10 ORDER BY id")
    assert [tuple(row) for row in lengths] == [(1, HEAVY * MIB), (2, LIMIT // 2 + 1000), (3, 3), (4, 5)]
    assert [tuple(row) for row in db.sql("SELECT count(*) FROM t")] == [(BIG + 4,)]
    assert most_memory(served, "write") < ROOM
    assert "Traceback" not in served.log, served.log
