"""Tables of the application's own, capped in SQLite: what `adopted_test` does not ask of every engine.

Longer than 500 lines: the tests share their tables and what they look for in the schema.
"""

from __future__ import annotations

import pickle
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.capping.sqlite import SQLiteAdoption
from roost.store import bursts
from roost.structures.adopted import Cap
from tests.lengths import length
from tests.suite.shapes import rows

pytestmark = pytest.mark.needs("sqlite3")

Open = Callable[..., roost.Store]

VISITS = """
CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INTEGER, visitor INTEGER NOT NULL, at TEXT NOT NULL);
CREATE INDEX visits_uid ON visits (uid, at);
"""


@pytest.fixture
def sql(sql: sqlite3.Connection) -> sqlite3.Connection:
    """The application: its own connection, with foreign keys as it should have them."""
    sql.execute("PRAGMA foreign_keys = ON")
    return sql


def everything(sql: sqlite3.Connection) -> list[str]:
    """The schema and all rows, as text."""
    return list(sql.iterdump())


def fill(sql: sqlite3.Connection, n: int = 300, people: int = 9, seed: int = 1) -> None:
    chance = random.Random(seed)
    values = [(chance.randrange(people), k, f"2008-01-{chance.randrange(1, 29):02d}") for k in range(n)]
    sql.executemany("INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?)", values)


def cap(
    store: roost.Store, per: str = "uid", keep: int | None = 5, newest_by: str | None = "at", table: str = "visits"
) -> int:
    found = bursts.inspect(store, table, per.split(",") if per else [], keep, newest_by)
    return sum(bursts.cap(store, found))


def newest(found: list[Any], keep: int, order: Callable[[Any], Any], key: Callable[[Any], Any]) -> list[Any]:
    """The dumb model: what is left of rows."""
    kept = []
    for each in {key(row) for row in found}:
        mine = [row for row in found if key(row) == each]
        kept += mine if each is None else sorted(mine, key=order)[-keep:]
    return sorted(kept)


@pytest.mark.parametrize("newest_by", ["at", None])
@pytest.mark.parametrize("seed", range(3))
def test_the_application_s_statements_go_on_and_the_triggers_keep_it_short(
    open_store: Open, sql: sqlite3.Connection, newest_by: str | None, seed: int
) -> None:
    sql.executescript(VISITS + "CREATE UNIQUE INDEX once ON visits (visitor); CREATE INDEX by_uid ON visits (uid)")
    store = open_store()
    assert cap(store, keep=3, newest_by=newest_by) == 0
    chance = random.Random(seed)
    model: dict[int, tuple[int, Any, int, str]] = {}
    order = (lambda row: (row[3], row[0])) if newest_by else (lambda row: row[0])

    def trim() -> None:
        kept = newest(list(model.values()), 3, order, lambda row: row[1])
        model.clear()
        model.update({row[0]: row for row in kept})

    for step in range(400):
        uid, visitor, at = chance.choice([0, 1, 2, None]), chance.randrange(12), f"2008-01-{chance.randrange(1, 9):02d}"
        there = next((row for row in model.values() if row[2] == visitor), None)
        id_ = max(model, default=0) + 1
        match chance.choice(("insert", "insert", "replace", "upsert", "ignore", "move", "update", "delete", "several")):
            case "insert" | "ignore" | "replace" as form:
                if there and form == "insert":
                    continue
                verb = {"insert": "INSERT", "ignore": "INSERT OR IGNORE", "replace": "REPLACE"}[form]
                sql.execute(f"{verb} INTO visits (uid, visitor, at) VALUES (?, ?, ?)", (uid, visitor, at))
                if there and form == "ignore":
                    continue
                if there:
                    del model[there[0]]
                model[id_] = (id_, uid, visitor, at)
            case "upsert":
                upsert = "ON CONFLICT (visitor) DO UPDATE SET uid = excluded.uid, at = excluded.at"
                sql.execute(f"INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?) {upsert}", (uid, visitor, at))
                model[there[0] if there else id_] = (there[0] if there else id_, uid, visitor, at)
            case "move":
                sql.execute("UPDATE visits SET uid = ? WHERE visitor = ?", (uid, visitor))
                if there:
                    model[there[0]] = (there[0], uid, visitor, there[3])
            case "update":
                sql.execute("UPDATE visits SET at = ? WHERE visitor = ?", (at, visitor))
                if there:
                    model[there[0]] = (*there[:3], at)
            case "delete":
                sql.execute("DELETE FROM visits WHERE visitor = ?", (visitor,))
                if there:
                    del model[there[0]]
            case "several":
                fresh = range(100 + 3 * step, 103 + 3 * step)
                for n in fresh:
                    model[id_] = (id_, 1, n, at)
                    id_ += 1
                    trim()
                    id_ = max(id_, max(model) + 1)
                values = ", ".join(f"(1, {n}, '{at}')" for n in fresh)
                sql.execute(f"INSERT INTO visits (uid, visitor, at) VALUES {values}")
                found = rows(sql, "SELECT * FROM visits")  # their ids depend on which of them were pushed out
                assert {row[1:] for row in found} == {row[1:] for row in model.values()}
                model.clear()
                model.update({row[0]: row for row in found})
        trim()
        assert rows(sql, "SELECT * FROM visits ORDER BY id") == sorted(model.values()), step
    assert store.check() == []


def test_uncap_removes_every_trace_but_the_rows(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript("""
        CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INTEGER, visitor INTEGER, at TEXT);
        CREATE TABLE audit (id INTEGER);
        CREATE TRIGGER own AFTER INSERT ON visits BEGIN INSERT INTO audit VALUES (NEW.id); END;
    """)
    fill(sql, 20, 4)
    before = everything(sql)
    store = open_store()
    assert cap(store, keep=1000) == 0
    assert len(everything(sql)) > len(before)
    assert bursts.uncap(store, "VISITS").index
    assert everything(sql) == before
    with pytest.raises(roost.Missing, match="not capped"):
        bursts.uncap(store, "visits")
    store.create(roost.Counter("hits"))
    cap(store, keep=2)
    bursts.uncap(store, "visits")
    assert [each.name for each in store.structures()] == ["hits"]


def test_it_may_be_stopped_at_any_moment_and_goes_on(
    open_store: Open, sql: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursts, "BURST", 1e-6)  # one statement each
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    sql.executescript(VISITS)
    fill(sql, 900, 4)
    before = rows(sql, "SELECT * FROM visits")
    store = open_store()
    deleted = 0
    for _ in range(3):
        steps = bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 5, "at"))
        deleted += next(steps) + next(steps)
        steps.close()
        assert 0 < deleted < 880
        assert {each.rule for each in store.check()} == {"keep"}
        assert len(store.run(roost.Capped.of("visits").latest(1))) == 5
        sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (3, 1, '2007')")  # and one that is too many goes
    assert deleted + cap(store, "", None) == 880
    assert rows(sql, "SELECT * FROM visits ORDER BY id") == newest(before, 5, lambda r: (r[3], r[0]), lambda r: r[1])


def test_one_key_with_very_many_rows_is_cut_in_short_steps(
    open_store: Open, sql: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = length(1000, 3000)
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    sql.executescript(VISITS)
    fill(sql, number, 1)
    store = open_store()
    monkeypatch.setattr(bursts, "BURST", 1e-6)
    steps = list(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 5, "at")))
    assert sum(steps) == number - 5
    assert max(steps) <= 50


# Every shape of table


PLAIN = "uid INT, visitor INT, at TEXT"
ALIAS = f"id INTEGER PRIMARY KEY, {PLAIN}"
SHAPES: dict[str, tuple[str, str, str | None]] = {  # columns and options, --per, --newest-by
    "rowid without a name": ("(uid, visitor, at)", "uid", None),
    "rowid is taken": ("(rowid, uid, visitor, at)", "uid", None),
    "a text key": (f"({PLAIN}, PRIMARY KEY (uid, visitor, at))", "uid", "visitor"),
    "without rowid": (f"({PLAIN}, PRIMARY KEY (uid, visitor, at)) WITHOUT ROWID", "uid", "visitor"),
    "without rowid, other order": (f"({PLAIN}, PRIMARY KEY (visitor, at)) WITHOUT ROWID", "uid", "visitor"),
    "several columns": (f"({ALIAS})", "at,uid", None),
    "by the key itself": (f"({ALIAS})", "uid", "id"),
    "strict": ("(uid INTEGER, visitor INTEGER, at TEXT) STRICT", "uid", "visitor"),
    "a key in descending order": (f"(id INTEGER PRIMARY KEY DESC, {PLAIN})", "uid", "visitor"),
    "generated": (f"({PLAIN}, more INT AS (visitor + 1) STORED, twice INT AS (2 * visitor))", "uid", "more"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_of_every_shape(open_store: Open, sql: sqlite3.Connection, shape: str) -> None:
    columns, per, newest_by = SHAPES[shape]
    sql.execute(f"CREATE TABLE visits {columns}")
    insert = "INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?)"
    sql.executemany(insert, [(n % 3, n, "x") for n in range(60)])
    store = open_store()
    assert cap(store, per, 4, newest_by) == 60 - 12
    sql.executemany(insert, [(n % 3, n, "x") for n in range(60, 71)])
    assert sorted(rows(sql, "SELECT CAST(uid AS INT), visitor FROM visits")) == sorted(
        (n % 3, n) for n in range(71 - 12, 71)
    )
    assert store.check() == []
    table = roost.Capped.of("visits")
    key: Any = ("x", 1) if per == "at,uid" else 1
    assert [row.visitor for row in store.run(table.latest(key, 2))] == [70, 67]
    assert store.run(table.count(key)) == 4
    bursts.uncap(store, "visits")


def test_names_that_sql_has_words_for(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript("""
        CREATE TABLE "Visit ""Log" ("select" INT, "order by" INT, "a.b" TEXT);
        INSERT INTO "Visit ""Log" VALUES (1, 1, 'x'), (1, 2, 'x'), (1, 3, 'x'), (2, 1, 'x');
    """)
    store = open_store()
    assert cap(store, "SELECT", 2, "Order By", 'visit "log') == 1
    sql.execute("""INSERT INTO "Visit ""Log" VALUES (1, 9, 'y')""")
    assert [tuple(row) for row in store.run(roost.Capped.of('Visit "Log').latest(1))] == [(1, 9, "y"), (1, 3, "x")]
    assert store.check() == []
    bursts.uncap(store, 'Visit "Log')
    assert len(rows(sql, "SELECT * FROM sqlite_master")) == 1


def test_keys_are_compared_as_the_column_does_and_null_is_none(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript("""
        CREATE TABLE visits (uid TEXT COLLATE NOCASE, visitor INT);
        CREATE INDEX i ON visits (uid);
        INSERT INTO visits VALUES ('a', 1), ('A', 2), ('b', 3), ('a', 4), (NULL, 5), (NULL, 6), (NULL, 7), (x'00', 8);
    """)
    store = open_store()
    found = bursts.inspect(store, "visits", ["uid"], 2, None)
    assert (found.rows, found.keyless, found.keys, found.full, found.excess) == (8, 3, 3, 1, 1)
    assert cap(store, "uid", 2, None) == 1
    sql.execute("INSERT INTO visits VALUES ('A', 9), (NULL, 10)")
    assert rows(sql, "SELECT visitor FROM visits ORDER BY visitor") == [(n,) for n in (3, 4, 5, 6, 7, 8, 9, 10)]
    table = roost.Capped.of("visits")
    assert [key.lower() for key in store.run(table.keys())] == ["a", "b", b"\0"]
    assert store.run(table.count("a")) == 2


# What belongs to the application


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE notes (visit INTEGER REFERENCES visits)",
        "CREATE TABLE notes (visit INTEGER REFERENCES visits ON DELETE RESTRICT)",
        "CREATE TABLE notes (visit INTEGER REFERENCES Visits ON DELETE SET DEFAULT)",
        "CREATE TABLE notes (visit INTEGER REFERENCES visits DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE middle (id INTEGER PRIMARY KEY REFERENCES visits ON DELETE CASCADE); "
        "CREATE TABLE notes (visit INTEGER REFERENCES middle)",
    ],
)
def test_foreign_keys_that_would_make_an_insert_fail_are_refused(
    open_store: Open, sql: sqlite3.Connection, tables: str
) -> None:
    sql.executescript(VISITS + tables)
    fill(sql)
    with pytest.raises(roost.Invalid, match=r"notes\.visit refers to rows of \w+ with ON DELETE"):
        cap(open_store())


def test_the_application_s_own_triggers_go_on(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(
        VISITS
        + """
        CREATE TABLE gone (id INTEGER, why TEXT);
        CREATE TRIGGER a_own AFTER DELETE ON visits BEGIN INSERT INTO gone VALUES (OLD.id, 'deleted'); END;
        CREATE TRIGGER z_own AFTER INSERT ON visits BEGIN INSERT INTO gone VALUES (NEW.id, 'came'); END;
    """
    )
    store = open_store()
    cap(store, keep=2)
    sql.executemany("INSERT INTO visits (uid, visitor, at) VALUES (0, ?, '2008')", [(n,) for n in range(10)])
    assert rows(sql, "SELECT why, count(*) FROM gone GROUP BY why") == [("came", 10), ("deleted", 8)]
    cursor = sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (0, 1, '2009') RETURNING id, at")
    assert cursor.fetchall() == [(11, "2009")]
    sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (0, 1, '2009')")
    assert rows(sql, "SELECT changes(), last_insert_rowid()") == [(1, 12)]


def test_a_trigger_that_forbids_to_delete_is_found_before_anything_is_done(
    open_store: Open, sql: sqlite3.Connection
) -> None:
    sql.executescript(
        VISITS
        + """
        CREATE TRIGGER own BEFORE DELETE ON visits BEGIN SELECT RAISE(ABORT, 'visits are for ever'); END;
    """
    )
    fill(sql, 20)
    before = everything(sql)
    with pytest.raises(roost.Invalid, match="visits are for ever"):
        cap(open_store())
    assert everything(sql) == before


@pytest.mark.parametrize(
    ("ddl", "table", "per", "message"),
    [
        ("CREATE VIEW visits AS SELECT 1 AS uid", "visits", "uid", "is a view; only a table"),
        ("CREATE VIRTUAL TABLE visits USING fts5 (uid)", "visits", "uid", "is a virtual; only a table"),
        ("CREATE TABLE visits (uid)", "visits", "nobody", r"no column 'nobody'; it has uid"),
        ("CREATE TABLE visits (uid)", "visits", "uid,", r"no column ''"),
        ("CREATE TABLE visits (uid PRIMARY KEY, x) WITHOUT ROWID", "visits", "x", "say --newest-by"),
        ("CREATE TABLE visits (uid, rowid, oid, _rowid_)", "visits", "uid", "nothing is left to tell its rows apart"),
        ("CREATE TABLE visits (uid)", "sqlite_master", "name", "no table|belongs to sqlite"),
        ("CREATE TABLE visits (uid)", "roost_hits_rows", "key", "belongs to roost"),
    ],
)
def test_what_cannot_be_capped_is_refused(
    open_store: Open, sql: sqlite3.Connection, ddl: str, table: str, per: str, message: str
) -> None:
    sql.execute(ddl)
    store = open_store(roost.Counter("hits"))
    with pytest.raises((roost.Invalid, roost.Missing), match=message):
        cap(store, per, 5, None, table)


def test_what_is_not_there_or_a_structure_is_refused(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.execute("CREATE TABLE hits (uid)")
    store = open_store()
    with pytest.raises(roost.Missing, match="no table 'visits'"):
        cap(store)
    store.create(roost.Counter("hits"), view=False)
    with pytest.raises(roost.Invalid, match="there is a structure hits already"):
        cap(store, "uid", 5, None, "hits")
    with pytest.raises(roost.Invalid, match="there is a structure hits already"):
        bursts.uncap(store, "hits")
    with pytest.raises(roost.Invalid, match="not capped yet"):
        cap(store, "", None, None, "nothing")


# What others do to it meanwhile and later

BUSY = [
    ("ALTER TABLE visits RENAME COLUMN uid TO user_id", "made anew meanwhile|no such column"),
    ("ALTER TABLE visits RENAME COLUMN at TO moment", "made anew meanwhile|no such column"),
    ("DROP TRIGGER roostcap_visits_insert", "meanwhile; nothing more was deleted"),
    ("ALTER TABLE visits RENAME TO old; CREATE TABLE visits (id INTEGER PRIMARY KEY, uid, at)", "meanwhile"),
]


@pytest.mark.parametrize(("change", "message"), BUSY, ids=[change for change, _ in BUSY])
def test_trimming_ends_when_the_table_or_its_cap_is_changed(
    open_store: Open, sql: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    monkeypatch.setattr(bursts, "BURST", 1e-6)
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    sql.executescript(VISITS)
    fill(sql, 900, 4)
    store = open_store()
    steps = bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 5, "at"))
    next(steps)
    sql.executescript(change)
    table = "old" if "TO old" in change else "visits"
    left = rows(sql, f"SELECT count(*) FROM {table}")
    with pytest.raises(roost.Error, match=message):
        list(steps)
    assert rows(sql, f"SELECT count(*) FROM {table}") == left
    bursts.uncap(store, "visits")
    assert [name for (name,) in rows(sql, "SELECT name FROM sqlite_master") if name.startswith("roost")] == []


def test_a_renamed_column_is_never_taken_for_a_text(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    fill(sql, 100, 3)
    store, table = open_store(), roost.Capped.of("visits")
    cap(store)
    sql.execute("ALTER TABLE visits RENAME COLUMN uid TO user_id")
    for operation in (table.latest(1), table.count(1), table.keys(), table.keys(after=1)):
        with pytest.raises(roost.StatementFailed, match="no such column"):
            store.run(operation)
    sql.execute("INSERT INTO visits (user_id, visitor, at) VALUES (1, 1, '2009')")  # its trigger was renamed with it
    assert rows(sql, "SELECT count(*) FROM visits WHERE user_id = 1") == [(5,)]
    assert [each.rule for each in store.check()] == ["tables"]
    bursts.uncap(store, "visits")


def test_a_cap_that_a_renamed_table_has_kept_is_found(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.execute("CREATE TABLE visits (uid INTEGER)")
    store = open_store()
    cap(store, "uid", 5, None)
    sql.execute("ALTER TABLE visits RENAME TO visitors")
    with pytest.raises(roost.Invalid, match=r"roostcap_visits\w* on visitors, of a cap from before"):
        cap(store, "uid", 50, None, "visitors")
    sql.execute("CREATE TABLE visits (uid INTEGER)")
    with pytest.raises(roost.Invalid, match="of a cap from before"):
        cap(store, "uid", 50, None)
    bursts.uncap(store, "visits")
    cap(store, "uid", 50, None, "visitors")
    bursts.uncap(store, "visitors")
    assert len(rows(sql, "SELECT * FROM sqlite_master")) == 2


def test_the_order_stays_as_it_was_said(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (1, 1, '9'), (1, 2, '8'), (1, 3, '7')")
    store = open_store()
    cap(store, "uid", 3, "at")
    cap(store, "uid", 1, None)
    assert rows(sql, "SELECT at FROM visits") == [("9",)]


def test_the_application_s_triggers_see_a_row_before_it_goes(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(
        VISITS
        + """
        CREATE TABLE log (visit REFERENCES visits ON DELETE CASCADE);
        CREATE INDEX log_visit ON log (visit);
        CREATE TRIGGER one AFTER INSERT ON visits BEGIN INSERT INTO log VALUES (NEW.id); END;
        CREATE VIRTUAL TABLE texts USING fts5 (at, content = 'visits', content_rowid = 'id');
        CREATE TRIGGER ai AFTER INSERT ON visits BEGIN INSERT INTO texts (rowid, at) VALUES (NEW.id, NEW.at); END;
        CREATE TRIGGER ad AFTER DELETE ON visits BEGIN
          INSERT INTO texts (texts, rowid, at) VALUES ('delete', OLD.id, OLD.at); END;
    """
    )
    before = everything(sql)
    store = open_store()
    cap(store, keep=2)
    for at in ("2009", "2010", "2001", "2002"):
        sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (1, 1, ?)", (at,))
    assert rows(sql, "SELECT at FROM visits ORDER BY at") == [("2009",), ("2010",)]
    assert rows(sql, "SELECT count(*) FROM log") == [(2,)]
    sql.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
    assert rows(sql, "SELECT rowid FROM texts WHERE texts MATCH '2001'") == []
    sql.execute("DELETE FROM visits")
    bursts.uncap(store, "visits")
    assert [line for line in everything(sql) if "TRIGGER" in line] == [line for line in before if "TRIGGER" in line]


REFUSED = {
    "a self-reference that cascades": (
        "CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INT, re INT REFERENCES visits ON DELETE CASCADE);"
        "CREATE INDEX re ON visits (re)",
        "would delete newer rows of the table too",
    ),
    "a circle of cascades": (
        VISITS + "CREATE TABLE a (id INTEGER PRIMARY KEY, v REFERENCES visits ON DELETE CASCADE);"
        "CREATE INDEX av ON a (v); ALTER TABLE visits ADD COLUMN a INT REFERENCES a ON DELETE CASCADE",
        "would delete newer rows of the table too",
    ),
    "SET NULL where NULL may not be": (
        VISITS + "CREATE TABLE notes (visit INTEGER NOT NULL REFERENCES visits ON DELETE SET NULL)",
        "may not be NULL",
    ),
    "SET NULL of what others refer to": (
        VISITS + "CREATE TABLE c (visit UNIQUE REFERENCES visits ON DELETE SET NULL);"
        "CREATE TABLE g (v REFERENCES c (visit))",
        r"g\.v refers to that",
    ),
    "a foreign key without an index": (
        VISITS + "CREATE TABLE notes (visit INTEGER REFERENCES visits ON DELETE CASCADE)",
        "would scan all of notes",
    ),
    "a trigger that ignores a DELETE": (
        VISITS + "CREATE TRIGGER soft BEFORE DELETE ON visits BEGIN SELECT RAISE(IGNORE); END;"
        "INSERT INTO visits (uid, visitor, at) VALUES (1, 1, '2009')",
        "its rows cannot be deleted: a trigger keeps them",
    ),
    "a primary key of another collation": (
        "CREATE TABLE visits (uid INT, k TEXT COLLATE NOCASE, at INT, PRIMARY KEY (uid, k COLLATE BINARY))"
        "WITHOUT ROWID",
        "different collations",
    ),
    "a key that is generated": ("CREATE TABLE visits (base INT, uid INT AS (base / 10), at TEXT)", "uid is generated"),
    "a key that is not UTF-8": (
        VISITS + "INSERT INTO visits (uid, visitor, at) VALUES (CAST(x'E9' AS TEXT), 1, 'x')", "not UTF-8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_be_kept_is_refused_before_anything_is_done(
    open_store: Open, sql: sqlite3.Connection, case: str
) -> None:
    ddl, found = REFUSED[case]
    sql.executescript(ddl)
    before = everything(sql) if "UTF-8" not in case else []
    with pytest.raises(roost.Invalid, match=found):
        cap(open_store(), newest_by=None if "self" in case else "at")
    assert (everything(sql) if before else []) == before


def test_a_foreign_key_that_comes_later_is_found(make_store: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "later.db", isolation_level=None)
    connection.executescript(VISITS)
    with roost.Store(f"sqlite:///{tmp_path}/later.db") as store:
        cap(store)
        connection.execute("CREATE TABLE notes (visit INTEGER REFERENCES visits)")
        assert [each.rule for each in store.check()] == ["foreign key"]
    connection.close()


def test_a_column_that_takes_the_rowid_s_name_is_found(make_store: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "rowid.db", isolation_level=None)
    connection.execute("CREATE TABLE visits (uid INT)")
    with roost.Store(f"sqlite:///{tmp_path}/rowid.db") as store:
        cap(store, "uid", 5, None)
        connection.execute("ALTER TABLE visits ADD COLUMN rowid INT DEFAULT 0")
        assert "rowid tells no rows apart any more" in store.check()[0].detail
    connection.close()


def test_tables_that_lose_rows_too_are_named(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(
        VISITS
        + """
        CREATE TABLE notes (id INTEGER PRIMARY KEY, visit INTEGER REFERENCES visits ON DELETE CASCADE);
        CREATE INDEX notes_visit ON notes (visit);
        CREATE TABLE marks (note INTEGER REFERENCES notes ON DELETE CASCADE);
        CREATE INDEX marks_note ON marks (note);
    """
    )
    assert bursts.inspect(open_store(), "visits", ["uid"], 5, "at").others == ("notes", "marks")


def test_columns_that_differ_by_the_case_of_other_letters(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.execute("CREATE TABLE visits (É INT, é INT, Uid INT)")
    store = open_store()
    for given, meant in (("É", "É"), ("é", "é"), ("UID", "Uid")):
        assert bursts.inspect(store, "visits", [given], 5, None).cap.per == (meant,)


# Index


def test_an_index_that_is_missing_is_made_and_one_that_is_there_is_used(
    open_store: Open, sql: sqlite3.Connection
) -> None:
    sql.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INT, visitor INT, at TEXT)")
    store = open_store()
    for index, newest_by, good in [
        ("CREATE INDEX own ON visits (uid)", None, True),
        ("CREATE INDEX own ON visits (uid)", "at", False),
        ("CREATE INDEX own ON visits (uid, visitor)", None, False),
        ("CREATE INDEX own ON visits (at, uid)", "at", False),
        ("CREATE INDEX own ON visits (uid, at)", "at", True),
        ("CREATE INDEX own ON visits (uid DESC, at DESC)", "at", False),
        ("CREATE INDEX own ON visits (uid, at) WHERE visitor > 5", "at", False),
    ]:
        sql.execute(index)
        found = bursts.inspect(store, "visits", ["uid"], 5, newest_by)
        assert bool(found.index) is good, index
        list(bursts.cap(store, found))
        made = rows(sql, "SELECT sql FROM sqlite_master WHERE name = 'roostcap_visits'")
        assert bool(made) is not bool(found.index)
        assert store.check() == []
        bursts.uncap(store, "visits")
        sql.execute("DROP INDEX own")
    assert rows(sql, "SELECT name FROM sqlite_master WHERE type <> 'table'") == []


@pytest.mark.parametrize("newest_by", ["at", "visitor"])
def test_the_index_of_a_table_without_rowid(open_store: Open, sql: sqlite3.Connection, newest_by: str) -> None:
    sql.execute("CREATE TABLE visits (uid INT, visitor INT, at INT, PRIMARY KEY (visitor, at)) WITHOUT ROWID")
    store = open_store()
    for _ in range(2):
        cap(store, "uid", 2, newest_by)
        assert store.check() == []
    sql.executemany("INSERT INTO visits VALUES (1, ?, ?)", [(n, -n) for n in range(5)])
    left = [(3,), (4,)] if newest_by == "visitor" else [(0,), (1,)]
    assert rows(sql, "SELECT visitor FROM visits ORDER BY visitor") == left


def test_rows_and_keys_of_python(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    fill(sql, 20, 2)
    store = open_store()
    cap(store)
    found = store.run(roost.Capped.of("VISITS").latest(1))
    assert pickle.loads(pickle.dumps(found)) == found
    assert repr(found[0]).startswith("Row(id=")
    with pytest.raises(roost.Invalid, match="is no key"):
        roost.Capped.of("visits").latest("\ud800")


def test_an_insert_reads_the_index_and_sorts_nothing(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    fill(sql)
    cap(open_store())
    sql.execute("ANALYZE")
    made = SQLiteAdoption().words(Cap("visits", ("id",), "at", ("uid",), 5))
    for query in (
        made.delete(f"({made.excess(1)})").replace("?", "1"),
        "SELECT * FROM visits WHERE uid = 1 ORDER BY at DESC, id DESC",
    ):
        steps = [step for *_, step in rows(sql, f"EXPLAIN QUERY PLAN {query}")]
        assert all("SCALAR" in step or step.startswith("SEARCH") for step in steps), steps
        assert any("visits_uid (uid=?)" in step for step in steps)
        assert not any("TEMP B-TREE" in step or step.startswith("SCAN visits") for step in steps), steps


# Names


@pytest.mark.parametrize("name", ["new", "NEW", "Old"])
def test_f30_a_table_that_is_called_as_a_trigger_s_row_is_refused(
    open_store: Open, sql: sqlite3.Connection, name: str
) -> None:
    sql.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, uid INT, t TEXT)")
    sql.executemany(f"INSERT INTO {name} (uid) VALUES (?)", [(uid,) for uid in range(10)])
    with pytest.raises(roost.Invalid, match="the name of the row that came or went"):
        cap(open_store(), "uid", 3, None, name)
    assert rows(sql, f"SELECT count(*) FROM {name}") == [(10,)]


def test_f30_a_table_of_that_name_that_an_earlier_version_has_capped_is_told(
    store_url: str, sql: sqlite3.Connection
) -> None:
    sql.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, uid INT)")
    with roost.Store(store_url) as store:
        cap(store, "uid", 3, None, "other")
        sql.execute("ALTER TABLE other RENAME TO new")
        sql.execute("UPDATE roost_catalog SET name = 'new', definition = replace(definition, 'other', 'new')")
        assert [(each.rule, "`roost uncap new`" in each.detail) for each in store.check()] == [("tables", True)]
        bursts.uncap(store, "new")


NAMES = ["excluded", "i", "r", "o", "counted", "damaged", "n", "rowid", "values", "select", "typeof", "uid", "visits"]


@pytest.mark.parametrize("newest_by", ["by", None])
def test_f30_names_that_the_triggers_use_themselves(
    open_store: Open, sql: sqlite3.Connection, newest_by: str | None
) -> None:
    store = open_store()
    for name in NAMES:
        sql.execute(f'CREATE TABLE "{name}" (n_1 INTEGER PRIMARY KEY, "{name}" INT, "new" INT, "by" INT, "old" INT)')
        for uid in range(10):
            sql.execute(f'INSERT INTO "{name}" ("{name}", "new", "by") VALUES (?, 5, ?)', (uid, uid))
        assert cap(store, f"{name},new", 3, newest_by, name) == 0
        sql.executemany(f'INSERT INTO "{name}" ("{name}", "new", "by") VALUES (7, 5, ?)', [(n,) for n in range(10, 15)])
        sql.execute(f'UPDATE "{name}" SET "{name}" = 7 WHERE n_1 = 1')
        sql.execute(f'INSERT INTO "{name}" ("{name}", "new", "by") VALUES (8, 5, 20)')
        assert rows(sql, f'SELECT "{name}", count(*) FROM "{name}" GROUP BY 1 ORDER BY 1') == [
            *[(uid, 1) for uid in range(1, 7)],
            *[(7, 3), (8, 2), (9, 1)],
        ], name
    assert store.check() == []


# What is told


def test_f61_check_says_that_there_are_more_keys_than_it_names(store_url: str, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    hits = roost.Counter("hits")
    with roost.Store(store_url) as store:
        store.create(hits)
        cap(store, keep=1)
        sql.execute("DROP TRIGGER roostcap_visits_insert")
        numbers = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {}) "
        for n, more in ((100, []), (101, ["there are more than these 100"])):
            sql.execute("DELETE FROM visits")
            sql.execute("DELETE FROM roost_hits_rows")
            for _ in range(2):
                sql.execute(f"INSERT INTO visits (uid, visitor, at) {numbers.format(n)} SELECT n, 1, 'x' FROM n")
            sql.execute(
                f"INSERT INTO roost_hits_rows (key, slot, n) {numbers.format(n)} SELECT 'k' || n, 5000, 1 FROM n"
            )
            for rule, structure in (("keep", roost.Capped.of("visits")), ("slot", hits)):
                found = [each for each in store.check(structure) if each.rule == rule]
                assert len([each for each in found if each.key is not None]) == 100
                assert [each.detail for each in found if each.key is None] == more


@pytest.mark.parametrize(("said", "wanted"), [("", 2), ("?synchronous=normal", 1), ("?synchronous=off", 0)])
def test_f22_after_capping_a_connection_is_as_durable_as_the_store_says(tmp_path: Path, said: str, wanted: int) -> None:
    with sqlite3.connect(tmp_path / "own.db") as connection:
        connection.executescript(VISITS)
    connection.close()
    found: list[Any] = []
    with roost.Store(f"sqlite:///{tmp_path}/own.db{said}") as store:
        cap(store)
        store._core.with_writer(lambda each: found.append(each.raw.execute("PRAGMA synchronous").fetchone()[0]))
    assert found == [wanted]


# From Python


def test_python_reads_it(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    fill(sql)
    store = open_store()
    table = roost.Capped.of("visits")
    with pytest.raises(roost.Missing):
        store.run(table.latest(1))
    cap(store)
    wanted = rows(sql, "SELECT * FROM visits WHERE uid = 1 ORDER BY at DESC, id DESC")
    found = store.run(table.latest(1))
    assert [tuple(row) for row in found] == wanted
    assert (found[0].uid, found[0]._fields) == (1, ("id", "uid", "visitor", "at"))
    assert [tuple(row) for row in store.run(table.latest(1, 2))] == wanted[:2]
    assert store.run_all(table.count(1), table.latest(99), table.count(99)) == (5, [], 0)
    assert store.run(table.keys()) == list(range(9))
    assert store.run(table.keys(after=6, n=1)) == [7]
    sql.execute("ALTER TABLE visits ADD COLUMN note TEXT DEFAULT 'x'")
    assert store.run(table.latest(1, 1))[0].note == "x"
    sql.execute("BEGIN")
    sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (1, 77, '2009')")
    assert store.on(sql).run(table.latest(1, 1))[0].visitor == 77
    sql.execute("ROLLBACK")
    assert table == roost.Capped.of("visits")
    assert repr(table.latest(1, 2)) == "visits.latest(1, 2)"


def test_python_is_told_what_is_wrong(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.executescript(VISITS)
    store = open_store()
    cap(store)
    table = roost.Capped.of("visits")
    with pytest.raises(roost.Invalid, match=r"\(1, 2\) is no key; it takes uid"):
        store.run(table.latest((1, 2)))
    for bad in (None, 2**63, [1]):
        with pytest.raises(roost.Invalid, match="is no key"):
            table.latest(bad)
    for call in (table.clear, table.forget):
        with pytest.raises(roost.Invalid, match="delete its rows with SQL"):
            call(1)
    for refused in (store.create, store.alter, store.ddl):
        with pytest.raises(roost.Invalid, match="`roost cap visits`"):
            refused(table)
    with pytest.raises(roost.Invalid, match="no name of a table"):
        roost.Capped.of("")
    store.create(roost.Counter("hits"))
    with pytest.raises(roost.Mismatch, match="hits is a counter, not a table that was capped"):
        store.run(roost.Capped.of("hits").count(1))
    with pytest.raises(roost.Mismatch, match="kind is adopted"):
        store.create(roost.Counter("visits"), view=False)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        ("DROP TRIGGER roostcap_visits_insert", "triggers"),
        ("DROP TRIGGER roostcap_visits_update", "triggers"),
        ("DROP INDEX visits_uid", "tables"),
        ("DROP TABLE visits", "tables"),
        ("ALTER TABLE visits RENAME TO visitors", "tables"),
        (
            "DROP TRIGGER roostcap_visits_insert; INSERT INTO visits (uid, visitor, at) "
            "SELECT 1, visitor, '2009' FROM visits",
            "keep",
        ),
    ],
)
def test_check_finds_what_keeps_a_table_from_being_short(
    make_store: Any, tmp_path: Path, damage: str, rule: str
) -> None:
    connection = sqlite3.connect(tmp_path / "damaged.db", isolation_level=None)
    connection.executescript(VISITS)
    fill(connection)
    with roost.Store(f"sqlite:///{tmp_path}/damaged.db") as store:
        cap(store)
        assert store.check() == []
        connection.executescript(damage)
        assert rule in [each.rule for each in store.check()]
        assert [each.rule for each in store.check(roost.Capped.of("visits"))][:1] != []
        if rule == "triggers":
            cap(store, "", None)
            assert store.check() == []
        bursts.uncap(store, "visits")
    connection.close()
