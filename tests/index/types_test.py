"""Types of servers: no value is changed on its way into a column, although PostgreSQL's casts cut, pad and round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import roost
from tests.index.databases import Database, database

DOMAINS = """\
CREATE DOMAIN short AS varchar(3);
CREATE DOMAIN shorter AS short;
CREATE DOMAIN bits AS bit(3);
CREATE DOMAIN few AS bits;
CREATE TYPE pair AS (a varchar(3), b numeric(4, 1))"""

CASES = [
    ("bit(3)", ["1", "1111", "101"]),
    ("bit", ["1", "11"]),
    ("numeric(4, 1)", ["1.05", "12345", "1.5"]),
    ("int2", ["40000", "1.5", "7"]),
    ("varchar(3)", ["abcdef", "abc"]),
    ("varbit(3)", ["1111", "1"]),
    ("varchar(3)[]", ["{abcdef}", "{abc}"]),
    ("char(3)[]", ["{abcdef}", "{ab}"]),
    ("bit(3)[]", ["{11111}", "{111}"]),
    ("char(3)", ["abcdef", "ab"]),
    ("short", ["abcdef", "abc"]),
    ("shorter", ["abcdef", "abc"]),
    ("short[]", ["{abcdef}", "{abc}"]),
    ("bits", ["11111", "1", "111"]),
    ("few", ["11111", "1", "111"]),
    ("pair", ["(abcdef,1)", "(abc,1.5)"]),
    ("name", ["x" * 64, "é" * 40, "x" * 63]),
    ('"char"', ["ab", "é", "a"]),
    ("money", ["1.005", "1.50", "7"]),
    ("interval", ["1.0000001 seconds", "1.500000 seconds", "1 mon"]),
    ("interval(0)", ["1.6 seconds", "2 seconds"]),
    ("interval year", ["1 year 5 mons", "1 year"]),
    ("timetz(0)", ["10:00:00.6+00", "10:00:00+00"]),
    ("cidr", ["1.2.3.4/24", "1.2.3.0/24"]),
    ("int4range", ["[1,3)", "[3,1)"]),
    ("jsonb", ['{"a": 1}', "{"]),
]
EITHER = ("interval year",)  # SQL drops fields of it; Roost takes none


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Database]:
    with database("postgresql", Path()) as made:
        made.script(*DOMAINS.split(";\n"))
        yield made


@pytest.fixture(scope="module")
def store(postgresql: Database) -> Iterator[roost.Store]:
    with roost.Store(postgresql.url) as made:
        yield made


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[kind for kind, _ in CASES])
def test_no_value_is_changed(postgresql: Database, store: roost.Store, kind: str, values: list[str]) -> None:
    postgresql.script("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id int PRIMARY KEY, v {kind})")
    rows = roost.Index("t", "PRIMARY", ["id", "v"])
    taken = 0
    with psycopg.connect(postgresql.url, autocommit=True) as sql:
        for value in values:
            sql.execute("TRUNCATE t")
            try:
                sql.execute(f"INSERT INTO t VALUES (1, $v${value}$v$)".encode())
            except psycopg.Error:
                by_sql = None
            else:
                by_sql = sql.execute("SELECT v::text FROM t").fetchone()
            for verb in ("insert", "update"):
                sql.execute("TRUNCATE t")
                if verb == "update":
                    sql.execute("INSERT INTO t VALUES (2)")
                try:
                    if verb == "insert":
                        store.run(rows.insert((2, value)))
                    else:
                        store.run(rows.update("=", (2,), (2, value)))
                except (roost.Invalid, roost.StatementFailed):
                    assert sql.execute("SELECT v FROM t WHERE v IS NOT NULL").fetchall() == []
                    continue
                assert by_sql is not None, value
                assert sql.execute("SELECT v::text FROM t").fetchone() == by_sql
                taken += 1
    assert taken or kind in EITHER


@pytest.mark.parametrize("kind", ["bit(3)", "bits", "few"])
def test_no_key_is_changed(postgresql: Database, store: roost.Store, kind: str) -> None:
    postgresql.script(
        "DROP TABLE IF EXISTS t", f"CREATE TABLE t (v {kind} PRIMARY KEY)", "INSERT INTO t VALUES ('100')"
    )
    rows = roost.Index("t", "PRIMARY", ["v"])
    assert store.run(rows.find("=", ("100",))) == [("100",)]
    assert store.run(rows.find("=", ("1",))) == []
    assert store.run(rows.delete("=", ("1001",))) == 0


@pytest.mark.parametrize(("collation", "taken"), [("utf8mb4_bin", False), ("utf8mb4_general_ci", True)])
def test_mariadb_takes_the_labels_of_an_enum_by_its_collation(collation: str, taken: bool) -> None:
    with database("mariadb", Path()) as db, roost.Store(db.url) as store:
        db.script(f"CREATE TABLE t (id int PRIMARY KEY, v ENUM('a', 'b') COLLATE {collation}, KEY k (v))")
        by_id, by_label = roost.Index("t", "PRIMARY", ["id", "v"]), roost.Index("t", "k", ["id"])
        store.run(by_id.insert((1, "b")))
        if taken:
            store.run(by_id.insert((2, "B")))
        else:
            with pytest.raises(roost.StatementFailed):
                store.run(by_id.insert((2, "B")))
        found = store.run(by_label.find("=", ("b",), limit=9))
        assert found == ([(1,), (2,)] if taken else [(1,)])
        if taken:
            assert store.run(by_label.find("=", ("B",), limit=9)) == found
