"""Finding by an index: a dumb model beside it, and its plans explained: nothing sorts, nothing scans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, Statement, render
from roost.structures.index.bulk import bulk_of
from roost.structures.index.declaration import OPS, While
from roost.structures.index.finds import Finds, ServerLookups
from roost.structures.index.opened import READ_TABLE, OpenedIndex
from roost.structures.index.runs import Shape
from tests.index import databases
from tests.index.databases import Database, database
from tests.index.model import Model
from tests.lengths import length
from tests.proxy import Cut, Proxy

NAMES = ("id", "a", "b", "c")
TYPES = {
    "sqlite": ("INTEGER PRIMARY KEY", "INT", "TEXT", "INT"),
    "mariadb": ("INT PRIMARY KEY", "INT", "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "BIGINT"),
    "mysql": ("INT PRIMARY KEY", "INT", "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin", "BIGINT"),
    "postgresql": ("int PRIMARY KEY", "int", 'text COLLATE "C"', "int8"),
}
OFTEN = settings(
    max_examples=length(40, 300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

values = st.one_of(st.none(), st.integers(-2, 3))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "B", "é", "b"]))
OF = {"id": st.integers(-3, 20), "a": values, "b": texts, "c": values}


@st.composite
def cases(draw: Any) -> tuple[Model, list[Any]]:
    """Return a table, and the arguments of a find."""
    listed = draw(st.lists(st.tuples(values, texts, values), max_size=14))
    rows = [(place, *row) for place, row in enumerate(listed)]
    key = draw(st.sampled_from([("id",), ("a",), ("b", "a"), ("a", "c"), ("a", "b", "c"), ("c", "b")]))
    descending = tuple([draw(st.booleans()) for _ in key]) if key != ("id",) else (False,)
    width = draw(st.integers(1, len(key)))
    wanted = [draw(OF[name]) for name in key[:width]]
    in_ = None
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, width - 1))
        in_ = (place, draw(st.lists(OF[key[place]], max_size=4)))
    filters = [
        draw(st.sampled_from([roost.Where, roost.While]))(
            name, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(OF[name])
        )
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=2))
    ]
    limit, offset = draw(st.integers(1, 20)), draw(st.integers(0, 6))
    return Model(NAMES, rows, key, descending), [draw(st.sampled_from(OPS)), wanted, limit, offset, in_, filters]


@pytest.fixture(scope="module", params=databases.NAMES)
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database of each kind in turn."""
    with database(request.param, tmp_path_factory.mktemp("index")) as made, made.kept():
        yield made


@pytest.fixture(scope="module")
def store(db: Database) -> Iterator[roost.Store]:
    with roost.Store(db.url) as made:
        yield made


def fill(db: Database, model: Model, columns: tuple[str, ...] = NAMES) -> roost.Index:
    """Make the model's table, with an index in which NULL is less than everything and equals lie in order."""
    declared = ", ".join([f"{name} {kind}" for name, kind in zip(NAMES, TYPES[db.name], strict=True)])
    made = ["DROP TABLE IF EXISTS t", f"CREATE TABLE t ({declared})"]
    if model.rows:
        rows = [", ".join(["NULL" if value is None else repr(value) for value in row]) for row in model.rows]
        made.append(f"INSERT INTO t VALUES ({'), ('.join(rows)})")
    if model.key != ("id",):
        key, descending = model.key, model.descending
        if db.name == "postgresql":
            key, descending = (*key, "id"), (*descending, False)
        parts = []
        for name, down in zip(key, descending, strict=True):
            nulls = f" NULLS {'LAST' if down else 'FIRST'}" if db.name == "postgresql" else ""
            parts.append(f"{name}{' DESC' if down else ''}{nulls}")
        made.append(f"CREATE INDEX k ON t ({', '.join(parts)})")
    db.script(*made)
    return roost.Index("t", "PRIMARY" if model.key == ("id",) else "k", columns, filters=NAMES)


@given(case=cases())
@OFTEN
def test_a_find_is_what_a_list_in_the_order_of_the_index_says(
    db: Database, store: roost.Store, case: tuple[Model, list[Any]]
) -> None:
    model, asked = case
    find = fill(db, model).find(*asked)
    expected = model.find(*asked)
    assert store.run(find) == expected
    assert store.run_all(*[find] * 6) == (expected,) * 6


@given(
    case=cases(),
    verb=st.sampled_from(["update", "delete", "increment", "decrement"]),
    to=OF["c"],
    returns=st.booleans(),
)
@OFTEN
def test_a_modification_changes_the_rows_that_are_found(
    db: Database, store: roost.Store, case: tuple[Model, list[Any]], verb: str, to: int | None, returns: bool
) -> None:
    model, (op, wanted, limit, offset, in_, filters) = case
    index = fill(db, model, ("c", "id"))
    every = model.find(op, wanted, 2**32 if verb == "delete" or in_ else limit, offset, in_, filters)
    if verb != "delete" and in_:
        every = every[:limit]
    found = list(dict.fromkeys(every))[:limit]
    made: Any = getattr(index, verb)
    asked: tuple[Any, ...] = () if verb == "delete" else ((to,),)
    operation = made(op, wanted, *asked, limit, offset, in_, filters)
    expected, changed = {row[0]: row for row in model.rows}, 0
    for id, a, b, c in found:
        new: Any = to
        if verb == "delete":
            del expected[id]
        elif verb != "update":
            new = c if c is None or to is None else c + to if verb == "increment" else c - to
            if verb == "decrement" and to is not None and c is not None and c * new < 0:
                continue
        if verb != "delete":
            expected[id] = (id, a, b, new)
        changed += 1
    result = store.run(index.returning(operation) if returns else operation)
    assert result == ([(row[3], row[0]) for row in found] if returns else changed)
    assert [tuple(row) for row in db.sql("SELECT id, a, b, c FROM t ORDER BY id")] == [*expected.values()]


# --- plans explained ------------------------------------------------------------------------------------------------

EXPLAINED = {
    "sqlite": [
        "CREATE TABLE e (id INTEGER PRIMARY KEY, a INT, b TEXT COLLATE NOCASE, c INT NOT NULL, UNIQUE (c))",
        "CREATE INDEX mixed ON e (a, b DESC, c)",
        "CREATE INDEX other ON e (b COLLATE BINARY, a)",
        "CREATE TABLE w (a TEXT, b INT, n INT, PRIMARY KEY (a, b)) WITHOUT ROWID",
        "CREATE INDEX wn ON w (n DESC)",
        "CREATE TABLE p (a TEXT, b INT, n INT, PRIMARY KEY (a, b))",
    ],
    "mariadb": [
        "CREATE TABLE e (id INT PRIMARY KEY, a INT, b VARCHAR(9), c INT NOT NULL UNIQUE, l VARCHAR(9) CHARACTER SET"
        " latin1, s ENUM('x', 'y'), d DECIMAL(9,2), KEY mixed (a, b DESC, c), KEY other (b, a), UNIQUE KEY l (l),"
        " KEY s (s, a), KEY d (d)) CHARACTER SET utf8mb4",
        "INSERT INTO e SELECT seq, seq MOD 200, CONCAT('b', seq MOD 7), seq * 2, CONCAT('l', seq), 'x', seq FROM"
        " seq_1_to_5000",
        "ANALYZE TABLE e",
    ],
    "postgresql": [
        'CREATE TABLE e (id int PRIMARY KEY, a int, b varchar(9), c int NOT NULL UNIQUE, l text COLLATE "C", s text,'
        " d numeric)",
        "CREATE INDEX mixed ON e (a, b DESC, c)",
        "CREATE INDEX other ON e (b, a)",
        'CREATE INDEX l ON e (l COLLATE "POSIX" DESC NULLS LAST)',
        "CREATE INDEX s ON e (s NULLS FIRST, a)",
        "CREATE INDEX d ON e (d)",
        "INSERT INTO e SELECT n, n % 200, 'b' || n % 7, n * 2, 'l' || n, 'x', n FROM generate_series(1, 5000) n",
        "ANALYZE e",
    ],
}
NUMBERS = "WITH RECURSIVE r (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM r WHERE seq < 5000) SELECT seq FROM r"
EXPLAINED["mysql"] = [
    "SET cte_max_recursion_depth = 5000",
    *[text.replace("seq_1_to_5000", f"({NUMBERS}) AS numbers") for text in EXPLAINED["mariadb"]],
]
KEYS = {db: [("e", name) for name in ("PRIMARY", "mixed", "other", "c", "l", "s", "d")] for db in databases.NAMES}
KEYS["sqlite"] = [
    *[("e", name) for name in ("PRIMARY", "mixed", "other", "c")],
    *(("w", "PRIMARY"), ("w", "wn"), ("p", "PRIMARY")),
]
VALUES = {"id": 100, "a": 100, "b": "b3", "c": 100, "l": "l3", "s": "x", "d": 100}
DIALECTS = {"mariadb": MARIADB, "mysql": MYSQL, "postgresql": POSTGRESQL}


@pytest.fixture(scope="module")
def full(db: Database) -> None:
    """Make the tables, on servers with rows and statistics."""
    db.script(*EXPLAINED[db.name])


def opened(store: roost.Store, db: Database, table: str, name: str) -> OpenedIndex:
    wire = [] if db.name == "sqlite" else [True]  # where more columns are shown as something else
    found = store._core.exclusive(READ_TABLE[db.name](table, *wire))
    assert found is not None
    key = found.key("e_c_key" if (db.name, name) == ("postgresql", "c") else name)
    assert key is not None
    return OpenedIndex(found, key, list(found.columns.values()))


def explained(cursor: Any, db: Database, sql: str, row: Any) -> list[Any]:
    """Return the plan; MySQL's in MariaDB's columns."""
    word = {"sqlite": "QUERY PLAN ", "mysql": "FORMAT=TRADITIONAL "}.get(db.name, "")
    cursor.execute(f"EXPLAIN {word}{sql}", row)
    found = list(cursor.fetchall())
    return [(*line[:3], *line[4:10], line[11] or "") for line in found] if db.name == "mysql" else found


def assert_search(db: Database, index: OpenedIndex, sql: str, rows: list[Any], tables: tuple[str, ...]) -> None:
    """No plan sorts or scans; some begin at NULL: at the index's first entry, so there is nothing to search for."""
    whole = " WHERE " not in sql or "IS NOT NULL" in sql
    if db.name == "sqlite":
        ((*_, found),) = rows
        # SQLite cannot search for what is not NULL in an index that has another collation than its column.
        whole = " WHERE " not in sql or (index.key.name == "other" and 'WHERE "b" IS NOT NULL ORDER' in sql)
        assert found.startswith("SCAN" if whole else "SEARCH"), (sql, rows)
        assert not whole or "USING" in found or index.key.name == "PRIMARY", (sql, rows)
    elif db.name == "postgresql":
        text = " ".join([line for (line,) in rows])
        assert "Index" in text, (sql, text)
        assert "Sort" not in text, (sql, text)
        assert "Seq Scan" not in text, (sql, text)
    else:
        searches = [line for line in rows if line[2] in tables and not line[-1].startswith("Impossible")]
        assert searches or any([line[-1].startswith("Impossible") for line in rows]), (sql, rows)
        for _, _, _, kind, _, key, *_, extra in searches:
            first = kind == "index" and (whole or index.key.name == "s")
            assert kind in ("const", "eq_ref", "ref", "range") or first, (sql, rows)
            assert key == index.key.name, (sql, rows)
            if (db.name, key) != ("mysql", "mixed"):  # which MySQL cannot read backwards from a place
                assert "filesort" not in (extra or ""), (sql, rows)


@pytest.mark.parametrize("op", OPS)
def test_every_find_is_a_search_in_its_index(db: Database, store: roost.Store, full: None, op: str) -> None:
    with closing(db.connect()) as connection:
        cursor = connection.cursor()
        for table, name in KEYS[db.name]:
            index = opened(store, db, table, name)
            for width in range(1, index.parts + 1):
                columns = [part.column for part in index.key.parts[:width]]
                for nulls in range(2**width):
                    given = tuple(
                        [
                            None if nulls >> place & 1 and column.nullable else VALUES.get(column.name, 1)
                            for place, column in enumerate(columns)
                        ]
                    )
                    for found in index.statements(op, given, ()):
                        row = (*[given[place] for place in found.places], 1, 0)
                        sql = found.rows.sql
                        assert_search(db, index, sql, explained(cursor, db, sql, row), (table,))


@pytest.mark.parametrize("op", ["lookup", "=", ">=", "<="])
def test_many_finds_are_searches_in_the_index(db: Database, store: roost.Store, full: None, op: str) -> None:
    if db.name == "sqlite":
        return  # tests/server/runs_test.py
    lookup, tested = op == "lookup", 0
    with closing(db.connect()) as connection:
        cursor = connection.cursor()
        for table, name in KEYS[db.name]:
            index = opened(store, db, table, name)
            keys = tuple([VALUES[part.column.name] for part in index.key.parts])
            shape = Shape("find", "=", len(keys)) if lookup else Shape("find", op, 1, bounded=True)
            run = bulk_of(index, shape)
            if (
                name == "s"
                or (lookup and not index.key.unique)
                or not isinstance(run, ServerLookups if lookup else Finds)
            ):
                continue  # NULLs lie beyond: two ranges each; or MariaDB would compare a text of latin1 with a list
            assert run.template is not None
            row = keys if lookup else (keys[0], 2, 0)
            ((sql, params),) = render(Statement(run.template, [row] * 3))
            assert_search(db, index, sql, explained(cursor, db, sql, params), ("t", "e"))
            tested += 1
    assert tested


# --- what a store sends ---------------------------------------------------------------------------------------------


def test_a_find_is_one_exchange_with_the_question_whether_the_table_has_changed(db: Database, full: None) -> None:
    asked: list[str] = []
    index = roost.Index("e", columns=["id", "a"])
    questions = {"sqlite": "PRAGMA schema_version", "postgresql": "pg_catalog.pg_attribute"}
    with roost.Store(db.url, trace=lambda sql, _: asked.append(sql)) as store:
        store.run(index.find("=", 1))
        asked.clear()
        store.run(index.find("=", 2))
    assert len([sql for sql in asked if questions.get(db.name, "SHOW CREATE TABLE") in sql]) == 1


def test_a_find_by_itself_is_one_message(db: Database, full: None) -> None:
    if db.name == "sqlite":
        return  # sends none
    index = roost.Index("e", columns=["id", "a"], filters=["a"])
    operations = [
        index.find("=", 2),
        index.find(">=", 1, limit=2),
        index.find("<", 3, filters=[roost.Where("a", ">=", 1)]),
    ]
    with Proxy(urlsplit(db.url).port or 0) as proxy, roost.Store(proxy.url(db.url)) as store:
        for operation in operations:
            found = [store.run(operation) for _ in range(8)]  # until what is prepared is prepared
            assert proxy.counted(partial(store.run, operation)) == 1
            proxy.arm(0, Cut.AFTER)
            found.append(store.run(operation))
            assert found == found[:1] * len(found)
            assert found[0]
    assert proxy.cuts == len(operations)


def test_a_table_that_is_rebuilt_is_always_there(db: Database) -> None:
    if db.name in ("sqlite", "postgresql"):
        return  # a table that was rewritten after a query's snapshot is empty to it, also by SQL
    db.script("CREATE TABLE rebuilt (id int PRIMARY KEY, v int)", "INSERT INTO rebuilt VALUES (1, 7)")
    rebuilt = threading.Event()

    def rebuild() -> None:
        for _ in range(40):
            db.script("ALTER TABLE rebuilt ENGINE=InnoDB")
        rebuilt.set()

    index = roost.Index("rebuilt", "PRIMARY", ["v"])
    thread = threading.Thread(target=rebuild)
    thread.start()
    try:
        while not rebuilt.is_set():
            with roost.Store(db.url, timeout=60.0) as store:
                assert [int(v) for (v,) in store.run(index.find("=", (1,)))] == [7]
    finally:
        thread.join()


# --- SQLite's types -------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    with database("sqlite", tmp_path) as made:
        yield made


def test_filters_are_values_of_their_columns(file: Database) -> None:
    file.script("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, s TEXT)")
    file.script("INSERT INTO t VALUES (1, 9, '9'), (2, 10, '10'), (3, 11, 'x')")
    index = roost.Index("t", columns=["id"], filters=["n", "s"])
    cases: list[tuple[list[Any], list[int]]] = [
        ([("n", ">", "10")], [3]),
        ([("n", ">", 10.4)], [3]),
        ([("n", "=", "ten")], []),
        ([("n", "!=", "ten")], [1, 2, 3]),
        ([("s", ">", "9")], [3]),  # texts: '10' < '9' < 'x'
        ([While("n", "<", 11), ("s", "!=", "9")], [2]),
    ]
    with roost.Store(file.url) as store:
        for filters, found in cases:
            assert [id for (id,) in store.run(index.find(">=", 1, limit=9, filters=filters))] == found


def test_rows_of_many_finds_are_those_of_each_whatever_is_in_them(file: Database) -> None:
    """SQLite returns the rows of each as one text, unless they have what would be read otherwise."""
    file.script("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, s TEXT, m INT)", "CREATE INDEX k ON t (n)")
    values = (
        "(1, 0, '', 7), (2, 0, 'é', -7), (3, 1, char(9), 7), (4, 2, char(0), 7), (5, 3, NULL, 7), (6, 3, 'x', NULL)"
    )
    file.script(f"INSERT INTO t VALUES {values}, (7, 4, '0', 7), (8, 4, 'y', 1e300)")
    index = roost.Index("t", "k", ["id", "s", "m"])
    finds = [index.find("=", (n,), limit=9) for n in range(6)]
    with roost.Store(file.url) as store:
        together = store.run_all(*finds)
        assert [*together] == [store.run(find) for find in finds]
        assert together[0] == [(1, "", 7), (2, "é", -7)]


def test_a_value_that_a_column_cannot_hold_matches_nothing(file: Database) -> None:
    file.script(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB, UNIQUE (b))", "INSERT INTO t VALUES (0, x''), (1, x'31')"
    )
    by_id, by_b = roost.Index("t", columns=["id"]), roost.Index("t", "b", ["id"])
    with roost.Store(file.url) as store:
        for op in OPS:
            assert store.run(by_id.find(op, "abc", limit=9)) == []
            assert store.run(by_id.find(op, "1.5", limit=9)) == []
            assert store.run(by_b.find(op, 1, limit=9)) == []
        assert store.run(by_id.find("=", " +1.0 ")) == [(1,)]
        assert store.run(by_b.find("=", b"1")) == [(1,)]


def test_a_null_in_a_primary_key_of_text_comes_before_its_values(file: Database) -> None:
    # SQLite takes NULL there, but for INTEGER PRIMARY KEY and WITHOUT ROWID
    file.script("CREATE TABLE t (name TEXT PRIMARY KEY)", "INSERT INTO t VALUES ('a'), (NULL), ('b')")
    names = roost.Index("t", columns=["name"])
    with roost.Store(file.url) as store:
        assert store.run(names.find("<", "b", limit=9)) == [("a",), (None,)]
        assert store.run(names.find("<=", "a", limit=9)) == [("a",), (None,)]
