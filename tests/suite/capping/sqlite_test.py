"""Tables of the application's own, capped in SQLite: what `number_test` does not ask of every engine."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.capping.sqlite import SQLiteAdoption
from roost.store import bursts
from roost.structures.adopted import Cap
from tests.lengths import length
from tests.suite.capping.tables import Open, cap, newest
from tests.suite.shapes import rows

pytestmark = pytest.mark.needs("sqlite3")


VISITS = """
CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INTEGER, visitor INTEGER NOT NULL, at TEXT NOT NULL);
CREATE INDEX visits_uid ON visits (uid, at);
"""


@pytest.fixture
def sql(sql: sqlite3.Connection) -> sqlite3.Connection:
    """The application: its own connection, with foreign keys as it should have them."""
    sql.execute("PRAGMA foreign_keys = ON")
    return sql


def fill(sql: sqlite3.Connection, n: int = 300, people: int = 9) -> None:
    values = [(k % people, k, f"2008-01-{k % 28 + 1:02d}") for k in range(n)]
    sql.executemany("INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?)", values)


def everything(sql: sqlite3.Connection) -> list[str]:
    """The schema and all rows, as text."""
    return list(sql.iterdump())


@pytest.mark.parametrize("newest_by", ["at", None])
@pytest.mark.parametrize("seed", range(3))
def test_what_replaces_or_leaves_a_row_goes_on_and_the_triggers_keep_the_table_short(
    open_store: Open, sql: sqlite3.Connection, newest_by: str | None, seed: int
) -> None:
    sql.executescript(VISITS + "CREATE UNIQUE INDEX once ON visits (visitor); CREATE INDEX by_uid ON visits (uid)")
    store, chance = open_store(), random.Random(seed)
    assert cap(store, keep=3, newest_by=newest_by) == 0
    model: dict[int, tuple[int, Any, int, str]] = {}
    order = (lambda row: (row[3], row[0])) if newest_by else (lambda row: row[0])
    upsert = "ON CONFLICT (visitor) DO UPDATE SET uid = excluded.uid, at = excluded.at"
    forms = {"REPLACE": "", "INSERT OR IGNORE": "", "INSERT": upsert, "UPDATE": "", "DELETE": ""}
    for step in range(400):
        uid, visitor, at = chance.choice([0, 1, 2, None]), chance.randrange(12), f"2008-01-{chance.randrange(1, 9):02d}"
        there = next((row[0] for row in model.values() if row[2] == visitor), None)
        form = chance.choice([*forms])
        if form == "DELETE":
            sql.execute("DELETE FROM visits WHERE visitor = ?", (visitor,))
        elif form == "UPDATE":
            sql.execute("UPDATE visits SET uid = ?, at = ? WHERE visitor = ?", (uid, at, visitor))
        else:
            values = f"VALUES (?, ?, ?) {forms[form]}"
            sql.execute(f"{form} INTO visits (uid, visitor, at) {values}", (uid, visitor, at))
        fresh = max(model, default=0) + 1
        if there is not None and form in ("REPLACE", "DELETE"):
            del model[there]
        if form == "REPLACE" or (there is None and form.startswith("INSERT")):
            model[fresh] = (fresh, uid, visitor, at)
        elif there is not None and form in ("INSERT", "UPDATE"):
            model[there] = (there, uid, visitor, at)
        model = {row[0]: row for row in newest([*model.values()], 3, order, lambda row: row[1])}
        assert rows(sql, "SELECT * FROM visits ORDER BY id") == sorted(model.values()), (step, form)
    assert store.check() == []


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
    cursor = sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (1, 1, '2010') RETURNING id, at")
    assert cursor.fetchall() == [(3, "2010")]
    sql.execute("INSERT INTO visits (uid, visitor, at) VALUES (1, 1, '2010')")
    assert rows(sql, "SELECT changes(), last_insert_rowid()") == [(1, 4)]
    sql.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
    assert rows(sql, "SELECT rowid FROM texts WHERE texts MATCH '2001'") == []
    sql.execute("DELETE FROM visits")
    bursts.uncap(store, "visits")
    assert [line for line in everything(sql) if "TRIGGER" in line] == [line for line in before if "TRIGGER" in line]


NOTES = "CREATE TABLE notes (visit INTEGER REFERENCES visits"
REFUSED = {
    "SET DEFAULT": (VISITS + NOTES.replace("visits", "Visits") + " ON DELETE SET DEFAULT)", "with ON DELETE"),
    "a deferred foreign key": (VISITS + NOTES + " DEFERRABLE INITIALLY DEFERRED)", "with ON DELETE"),
    "a virtual table": ("CREATE VIRTUAL TABLE visits USING fts5 (uid, at)", "is a virtual; only a table"),
    "itself WITHOUT ROWID": ("CREATE TABLE visits (at PRIMARY KEY, uid) WITHOUT ROWID", "say --newest-by"),
    "no name for the rowid": (
        "CREATE TABLE visits (uid, at, rowid, oid, _rowid_)", "nothing is left to tell its rows apart",
    ),
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


def test_a_column_that_takes_the_rowid_s_name_is_found(make_store: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "rowid.db", isolation_level=None)
    connection.execute("CREATE TABLE visits (uid INT)")
    with roost.Store(f"sqlite:///{tmp_path}/rowid.db") as store:
        cap(store, "uid", 5, None)
        connection.execute("ALTER TABLE visits ADD COLUMN rowid INT DEFAULT 0")
        assert "rowid tells no rows apart any more" in store.check()[0].detail
    connection.close()


def test_columns_that_differ_by_the_case_of_other_letters(open_store: Open, sql: sqlite3.Connection) -> None:
    sql.execute("CREATE TABLE visits (É INT, é INT, Uid INT)")
    store = open_store()
    for given, meant in (("É", "É"), ("é", "é"), ("UID", "Uid")):
        assert bursts.inspect(store, "visits", [given], 5, None).cap.per == (meant,)


@pytest.mark.parametrize("index", ["(uid DESC, at DESC)", "(uid, at) WHERE visitor > 5"])
def test_an_index_that_does_not_lead_to_the_rows_in_their_order(
    open_store: Open, sql: sqlite3.Connection, index: str
) -> None:
    sql.executescript(VISITS.replace("(uid, at)", index))
    store = open_store()
    assert not bursts.inspect(store, "VISITS", ["UID"], 5, "At").index
    assert cap(store, "UID", 5, "At", "VISITS") == 0
    assert rows(sql, "SELECT name FROM sqlite_master WHERE name = 'roostcap_visits'") != []
    assert (store.run(roost.Capped.of("VISITS").latest(1)), store.check()) == ([], [])


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
