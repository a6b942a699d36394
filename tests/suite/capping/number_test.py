"""Tables of the application's own, capped: what is the same on every engine."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

import roost
from roost.store import bursts
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.capping.tables import INSERT, VISITS, Open, cap, fill, newest, settle
from tests.suite.engines import Engine

pytestmark = pytest.mark.needs("application", "capped tables")


def by_uid(row: Any) -> Any:
    return row[1]


def by_id(row: Any) -> Any:
    return row[0]


def by_at(row: Any) -> Any:
    return row[3], row[0]


@pytest.mark.parametrize("newest_by", ["at", None])
def test_what_is_too_many_goes_and_nothing_else(open_store: Open, visits: Application, newest_by: str | None) -> None:
    fill(visits)
    before, schema = visits("SELECT * FROM visits"), visits.schema()
    store = open_store()
    found = bursts.inspect(store, "visits", ["uid"], 5, newest_by)
    assert (found.rows, found.keys, found.full, found.keyless) == (300, 9, 9, 0)
    assert (found.excess, found.by) == (300 - 9 * 5, newest_by or found.by)
    assert (visits("SELECT * FROM visits"), visits.schema()) == (before, schema)
    assert sum(bursts.cap(store, found)) == found.excess
    order = by_at if newest_by else by_id
    assert visits("SELECT * FROM visits ORDER BY id") == newest(before, 5, order, by_uid)
    assert bursts.inspect(store, "visits", ["uid"], 5, newest_by).excess == 0


@pytest.mark.parametrize("newest_by", ["at", None])
def test_the_application_s_statements_go_on_and_it_is_kept_short(
    open_store: Open, visits: Application, newest_by: str | None
) -> None:
    store = open_store()
    assert cap(store, keep=3, newest_by=newest_by) == 0
    chance = random.Random(5)
    order = by_at if newest_by else by_id
    for step in range(length(20, 60)):
        before = visits("SELECT * FROM visits ORDER BY id")
        uid, at = chance.choice([0, 1, 2, None]), f"2008-01-{chance.randrange(1, 9):02d}"
        row = chance.choice(before) if before else (0, 0, 0, "")
        match chance.choice(["insert", "several", "several", "transaction", "undone", "move", "update", "delete"]):
            case "insert":
                visits(INSERT, uid, step, at)
                came = [(uid, step, at)]
            case "several":
                came = [(chance.choice([0, 1, 2]), 1000 * step + n, at) for n in range(4)]
                visits(f"INSERT INTO visits (uid, visitor, at) VALUES {', '.join(map(str, came))}")
            case "transaction" | "undone" as end:
                came = [(chance.choice([0, 1, 2]), 1000 * step + n, at) for n in range(4)]
                visits("BEGIN")
                for each in came:
                    visits(INSERT, *each)
                visits("ROLLBACK" if end == "undone" else "COMMIT")
                came = [] if end == "undone" else came
            case "move":
                visits("UPDATE visits SET uid = ? WHERE id = ?", uid, row[0])
                came, before = [], [(*each[:1], uid, *each[2:]) if each == row else each for each in before]
            case "update":
                visits("UPDATE visits SET at = ? WHERE id = ?", at, row[0])
                came, before = [], [(*each[:3], at) if each == row else each for each in before]
            case _:
                visits("DELETE FROM visits WHERE id = ?", row[0])
                came, before = [], [each for each in before if each != row]
        settle(store)
        found = visits("SELECT * FROM visits ORDER BY id")
        last = max([each[0] for each in before], default=0)
        model = newest([*before, *[(last + n, *each) for n, each in enumerate(came, 1)]], 3, order, by_uid)
        # Which numbers they got is the database's affair.
        assert sorted(map(str, [each[1:] for each in found])) == sorted(map(str, [each[1:] for each in model])), step
    assert store.check() == []


def test_uncap_removes_every_trace_but_the_rows(open_store: Open, application: Application) -> None:
    application(VISITS)
    fill(application, 20, 4)
    before, schema = application("SELECT * FROM visits"), application.schema()
    store = open_store()
    assert cap(store, keep=1000) == 0
    assert application.schema() != schema
    assert bursts.uncap(store, "visits").index
    assert (application("SELECT * FROM visits"), application.schema()) == (before, schema)
    with pytest.raises(roost.Missing, match="not capped"):
        bursts.uncap(store, "visits")
    store.create(roost.Counter("hits"))
    cap(store, keep=2)
    bursts.uncap(store, "visits")
    assert [each.name for each in store.structures()] == ["hits"]
    application(INSERT, 1, 1, "2009")
    application("UPDATE visits SET uid = 2")


def test_it_may_be_stopped_at_any_moment_and_goes_on(
    open_store: Open, visits: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursts, "BURST", 1e-6)  # one statement each
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    fill(visits, 900, 40)
    before = visits("SELECT * FROM visits")
    store = open_store()
    deleted = 0
    for _ in range(3):
        steps = bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 5, "at"))
        deleted += next(steps) + next(steps)
        steps.close()
        assert 0 < deleted < 700
        assert {each.rule for each in store.check()} == {"keep"}
        assert len(store.run(roost.Capped.of("visits").latest(1))) == 5
    assert deleted + cap(store, "", None) == 700
    assert visits("SELECT * FROM visits ORDER BY id") == newest(before, 5, by_at, by_uid)


def test_capping_again_changes_what_is_kept(open_store: Open, visits: Application) -> None:
    fill(visits, 100, 2)
    store = open_store()
    assert cap(store) == 90
    assert cap(store, "", 7) == 0
    for _ in range(3):
        visits(INSERT, 1, 1, "2009")
    settle(store)
    assert store.run(roost.Capped.of("visits").count(1)) == 7
    assert cap(store, "", 2) == 5 + 3
    visitors = [row[2] for row in visits("SELECT * FROM visits")]
    assert cap(store, "visitor", 1, None) == len(visitors) - len(set(visitors)) == 1
    visits(INSERT, 5, 1, "2009")
    visits(INSERT, 6, 1, "2009")
    settle(store)
    assert store.run(roost.Capped.of("visits").count(1)) == 1
    assert store.check() == []


def test_several_columns_and_texts_by_names_that_sql_has_words_for(
    open_store: Open, application: Application, engine: Engine
) -> None:
    q = "`" if application.kind == "mysql" else '"'
    table, room, order = f"{q}Visit ''{2 * q}Log{q}", f"{q}select{q}", f"{q}order by{q}"
    application(
        f"CREATE TABLE {table} ({room} VARCHAR(20), topic INT, {order} INT, PRIMARY KEY ({room}, topic, {order}))"
    )
    store, name = open_store(), f"Visit ''{q}Log"
    application(f"INSERT INTO {table} VALUES ('%', 1, -1), ('%', 1, -2), ('%', 1, -3)")
    if engine.name == "mysql":  # whose triggers are shown with another name than they have
        with pytest.raises(roost.Invalid, match="` in them"):
            cap(store, "select,topic", 2, "order by", name)
        return
    assert cap(store, "select,topic", 2, "order by", name) == 1
    for n in range(20):
        application(f"INSERT INTO {table} VALUES (?, ?, ?)", "éa%"[n % 3 :], n % 2, n)
    settle(store, name)
    log = roost.Capped.of(name)
    keys = store.run(log.keys())
    assert len(keys) == 6
    assert store.run(log.keys(after=keys[2], n=2)) == keys[3:5]
    assert [row[2] for row in store.run(log.latest(("éa%", 0)))] == [18, 12]
    assert store.run(log.count(("%", 1))) == 2
    assert store.check() == []
    bursts.uncap(store, name)


# Names that triggers, functions and passes use themselves.
USED = {
    "sqlite": "excluded i r o counted damaged n rowid values select typeof uid visits",
    "mysql": "n held cut began noted gone key q r i o new old values visits roostcap excluded counted",
    "postgresql": "k k0 k1 n r i o v d g e f l c t x p note noted relation roost_n setting locks lock came more"
    " part given gone deleted failed latest each roostcap new_rows new old tg_relid tg_op found excluded counted visits"
    " values",
}


MOST = 12  # columns of a key; an index has 16 on MySQL


def named(application: Application, which: int) -> Iterator[tuple[str, list[str]]]:
    """Make tables whose keys have columns of these names, all of them; yield each table and its key.

    Each is the name of a table, too; in the short form, where triggers name the schema, some of them.
    """
    used, every = USED[application.kind].split(), {"sqlite": 1, "mysql": 6, "postgresql": MOST}[application.kind]
    for at in range(0, len(used), MOST):
        key = used[at : at + MOST]
        columns = ", ".join(f"{quoted(application, each)} INT" for each in dict.fromkeys([*key, "new", "old", "by"]))
        for name in length(key[which % every :: every], key):
            table = "as_private_tables" if name.startswith("roost_") else name
            application(f"CREATE TABLE {quoted(application, table)} (x1 {{id}}, {columns})")
            yield table, key


def quoted(application: Application, name: str) -> str:
    q = "`" if application.kind == "mysql" else '"'
    return f"{q}{name}{q}"


def added(application: Application, table: str, key: list[str], *rows: tuple[int, int]) -> str:
    """Return the statement that adds rows: what all columns of their keys are, and `by`."""
    columns = ", ".join(quoted(application, each) for each in [*key, *(["by"] if "by" not in key else [])])
    values = ", ".join(f"({', '.join([str(n)] * len(key))}, {by})" for n, by in rows)
    return f"INSERT INTO {quoted(application, table)} ({columns}) VALUES {values}"


@pytest.mark.parametrize("newest_by", ["by", None])
def test_f30_f36_names_that_the_triggers_use_themselves(
    open_store: Open, application: Application, newest_by: str | None
) -> None:
    store = open_store()
    for table, key in named(application, 0 if newest_by else 1):
        assert cap(store, ",".join(key), 2, newest_by, table) == 0
        left = f"SELECT {quoted(application, 'by')} FROM {quoted(application, table)} ORDER BY 1"
        application(added(application, table, key, (7, 0), (1, 1), (1, 2), (1, 3)))
        moved = ", ".join(f"{quoted(application, each)} = 2" for each in key)
        application(f"UPDATE {quoted(application, table)} SET {moved}")
        settle(store, table)
        assert application(left) == [(2,), (3,)], table
        application(added(application, table, key, (2, 4)))
        settle(store, table)
        assert application(left) == [(3,), (4,)], table
        assert store.run(roost.Capped.of(table).count((2,) * len(key))) == 2
    assert store.check() == []


def test_foreign_keys_that_say_what_becomes_of_others_are_obeyed(open_store: Open, visits: Application) -> None:
    visits(
        "CREATE TABLE notes (visit BIGINT PRIMARY KEY, FOREIGN KEY (visit) REFERENCES visits (id) ON DELETE CASCADE)"
    )
    visits("CREATE TABLE marks (visit BIGINT, FOREIGN KEY (visit) REFERENCES visits (id) ON DELETE SET NULL)")
    visits("CREATE TABLE hearts (note BIGINT, FOREIGN KEY (note) REFERENCES notes (visit) ON DELETE CASCADE)")
    visits("CREATE INDEX hearts_note ON hearts (note)")
    visits("CREATE INDEX marks_visit ON marks (visit)")
    fill(visits, 50, 2)
    visits("INSERT INTO notes SELECT id FROM visits")
    visits("INSERT INTO marks SELECT id FROM visits")
    store = open_store()
    assert bursts.inspect(store, "visits", ["uid"], 5, "at").others == ("notes", "hearts")
    assert cap(store) == 40
    visits(INSERT, 1, 1, "2009")
    settle(store)
    assert visits("SELECT count(*) FROM notes") == [(9,)]
    assert visits("SELECT count(*), count(visit) FROM marks") == [(50, 9)]


CHILD = "CREATE TABLE notes (visit BIGINT, FOREIGN KEY (visit) REFERENCES visits (id)"
REFUSED = [  # what is made before, the table, --per and --newest-by, the reason
    (f"{CHILD})", "visits", "uid", None, "with ON DELETE"),
    (
        *(f"{CHILD} ON DELETE RESTRICT)", "visits", "uid", None),
        "notes.visit refers to rows of visits with ON DELETE RESTRICT, so excess rows cannot be deleted",
    ),
    (
        "CREATE TABLE middle (id BIGINT PRIMARY KEY REFERENCES visits (id) ON DELETE CASCADE,"
        " FOREIGN KEY (id) REFERENCES visits (id) ON DELETE CASCADE);"
        "CREATE TABLE notes (visit BIGINT, FOREIGN KEY (visit) REFERENCES middle (id))",
        *("visits", "uid", None, "notes.visit refers to rows of middle"),
    ),
    (
        "ALTER TABLE visits ADD COLUMN re BIGINT REFERENCES visits (id) ON DELETE CASCADE;"
        "CREATE INDEX re ON visits (re)",
        *("visits", "uid", None, "would delete newer rows of the table too"),
    ),
    ("CREATE VIEW seen AS SELECT 1 AS uid", "seen", "uid", None, "is a view; only a table"),
    ("", "visits", "nobody", None, "no column 'nobody'; it has id, uid"),
    ("", "visits", "uid,", None, "no column ''"),
    ("", "roost_hits_rows", "key", None, "belongs to roost"),
    ("", "visits", "uid", "uid", "uid is a column of the key"),
    ("", "visits", "uid,at", "at", "at is a column of the key"),
    ("", "visits", "uid,uid", "at", "twice"),
    ("", "visits", "", None, "not capped yet"),
]


@pytest.mark.parametrize(("ddl", "table", "per", "newest_by", "message"), REFUSED)
@pytest.mark.spread
def test_what_cannot_be_capped_is_refused_before_anything_is_made(
    open_store: Open, visits: Application, ddl: str, table: str, per: str, newest_by: str | None, message: str
) -> None:
    store = open_store()
    store.create(roost.Counter("hits"), view=False)
    for sql in filter(None, ddl.split(";")):
        visits(sql)
    schema = visits.schema()
    with pytest.raises(roost.Invalid, match=message):
        cap(store, per, 5 if per else None, newest_by, table)
    assert visits.schema() == schema
    with pytest.raises(roost.Missing, match="no table 'nowhere'"):
        cap(store, "uid", 5, None, "nowhere")


def test_a_table_that_is_called_as_a_structure_is_refused(open_store: Open, application: Application) -> None:
    store = open_store()
    store.create(roost.Counter("hits"), view=False)
    application("CREATE TABLE hits (id {id}, uid INT)")
    with pytest.raises(roost.Invalid, match="hits is a counter of Roost's"):
        cap(store, "uid", 5, None, "hits")
    with pytest.raises(roost.Invalid, match="hits is a counter of Roost's"):
        bursts.uncap(store, "hits")


def test_an_index_that_is_missing_is_made_and_one_that_is_there_is_used(
    open_store: Open, application: Application
) -> None:
    application(VISITS)
    store = open_store()
    drop = "DROP INDEX own ON visits" if application.kind == "mysql" else "DROP INDEX own"
    for index, newest_by, good in [
        ("CREATE INDEX own ON visits (uid, id)", None, True),
        ("CREATE INDEX own ON visits (uid)", "at", False),
        ("CREATE INDEX own ON visits (uid, visitor)", None, False),
        ("CREATE INDEX own ON visits (at, uid)", "at", False),
        ("CREATE INDEX own ON visits (uid, at)", "at", True),
    ]:
        application(index)
        found = bursts.inspect(store, "visits", ["uid"], 5, newest_by)
        assert bool(found.index) is good, index
        list(bursts.cap(store, found))
        assert ("roostcap_visits" in str(application.schema()).replace("roostcap_visits_", "")) is not bool(found.index)
        assert store.check() == []
        bursts.uncap(store, "visits")
        application(drop)
    for newest_by in (None, "id", "at", "visitor"):  # each in place of the other
        cap(store, "uid", 5, newest_by)
        assert store.check() == []
    application("CREATE INDEX own ON visits (uid, visitor)")
    assert cap(store, "uid", 5, "visitor") == 0
    bursts.uncap(store, "visits")
    assert "roost" not in str(application.schema())


def test_python_reads_it(open_store: Open, visits: Application) -> None:
    fill(visits)
    store = open_store()
    table = roost.Capped.of("visits")
    with pytest.raises(roost.Missing):
        store.run(table.latest(1))
    cap(store)
    wanted = visits("SELECT * FROM visits WHERE uid = 1 ORDER BY at DESC, id DESC")
    found = store.run(table.latest(1))
    assert [tuple(row) for row in found] == wanted
    assert (found[0].uid, found[0]._fields) == (1, ("id", "uid", "visitor", "at"))
    assert pickle.loads(pickle.dumps(found)) == found
    assert [tuple(row) for row in store.run(table.latest(1, 2))] == wanted[:2]
    assert [tuple(row) for row in store.run(table.latest("1", 2))] == wanted[:2]  # as the command line says it
    assert store.run_all(table.count(1), table.latest(99), table.count(99)) == (5, [], 0)
    assert store.run(table.keys()) == list(range(9))
    assert store.run(table.keys(after=6, n=1)) == [7]
    visits("ALTER TABLE visits ADD COLUMN note VARCHAR(9) DEFAULT 'x'")
    assert store.run(table.latest(1, 1))[0].note == "x"
    cap(store, "", 3)
    assert len(store.run(table.latest(1))) == 3
    with pytest.raises(roost.Invalid, match=r"\(1, 2\) is no key; it takes uid"):
        store.run(table.latest((1, 2)))
    bursts.uncap(store, "visits")
    with pytest.raises(roost.Missing):
        store.run(table.latest(1))


def test_python_adds_to_it_and_what_that_pushes_out_is_gone_at_once(open_store: Open, visits: Application) -> None:
    store, table = open_store(), roost.Capped.of("visits")
    cap(store, keep=2)
    for n in range(5):
        assert store.run(table.add(uid=1, visitor=n, at=f"2008-{n}")) is None
    assert [row.visitor for row in store.run(table.latest(1))] == [4, 3]
    assert visits("SELECT count(*) FROM visits") == [(2,)]
    store.run_all(*[table.add(uid=n % 2, visitor=n, at="2009") for n in range(20)], table.add(visitor=1, at="2009"))
    assert visits("SELECT count(*), count(uid) FROM visits") == [(5, 4)]
    assert [row.visitor for row in store.run(table.latest(0))] == [18, 16]
    with pytest.raises(roost.StatementFailed):
        store.run(table.add(uid=1, nothing=1))
    with pytest.raises(roost.StatementFailed):
        store.run_all(table.add(uid=1, visitor=77, at="2009"), table.add(uid=1, visitor=None, at="2009"))
    assert visits("SELECT count(*) FROM visits WHERE visitor = 77") == [(0,)]
    settle(store)
    assert repr(table.add(uid=1)) == "visits.add(uid=1)"
    assert hash(table.add(uid=1)) == hash(table.add(uid=1))
    for bad in ({}, {"uid": [1]}, {"uid": 2**63}, {"at": "\ud800"}):
        with pytest.raises(roost.Invalid):
            table.add(**bad)


def test_uncap_and_another_keep_end_the_trimming_under_way(
    open_store: Open, visits: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursts, "BURST", 1e-6)
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    fill(visits, 900, 40)
    store, other = open_store(), open_store()
    for stop in (lambda: bursts.uncap(other, "visits"), lambda: cap(other, "", 20)):
        steps = bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 5, "at"))
        next(steps)
        stop()
        left = visits("SELECT count(*) FROM visits")
        with pytest.raises(roost.Invalid, match="uncapped, capped differently"):
            list(steps)
        assert visits("SELECT count(*) FROM visits") == left


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        ("insert", "triggers"),
        ("update", "triggers"),
        ("DROP INDEX visits_uid", "tables"),
        ("DROP TABLE visits", "tables"),
        ("ALTER TABLE visits RENAME TO visitors", "tables"),
        ("CREATE TABLE notes (visit BIGINT, FOREIGN KEY (visit) REFERENCES visits (id))", "foreign key"),
    ],
)
@pytest.mark.spread
def test_check_finds_what_keeps_a_table_from_being_short(
    store_url: str, visits: Application, damage: str, rule: str
) -> None:
    fill(visits)
    with roost.Store(store_url) as store:
        cap(store)
        assert store.check() == []
        if rule == "triggers":
            damage = f"DROP TRIGGER roostcap_visits_{damage}"
            damage += " ON visits" if visits.kind == "postgresql" else ""
        if damage.startswith("DROP INDEX") and visits.kind == "mysql":
            damage += " ON visits"
        visits(damage)
        found = store.check()
        assert rule in [each.rule for each in found]
        if "RENAME" in damage:
            assert [("of a cap from before" in each.detail, "`roost uncap`" in each.detail) for each in found] == [
                (visits.kind != "sqlite" or "trigger" in each.detail, True) for each in found
            ]
            add = "INSERT INTO visitors (uid, visitor, at) VALUES (1, 1, 2008), (1, 2, 2008)"
            if visits.kind == "postgresql":
                with pytest.raises(Exception, match="visits"):
                    visits(add)
            else:
                visits(add)
        assert [each.rule for each in store.check(roost.Capped.of("visits"))][:1] != []
        if rule == "triggers":
            cap(store, "", None)
            assert store.check() == []
        bursts.uncap(store, "visits")
        assert "roost" not in str(visits.schema())


def test_a_trigger_that_forbids_to_delete_is_found_before_anything_is_done(
    open_store: Open, visits: Application
) -> None:
    fill(visits, 20)
    forbid = {
        "sqlite": "BEFORE DELETE ON visits BEGIN SELECT RAISE(ABORT, 'are for ever'); END",
        "mysql": "BEFORE DELETE ON visits FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'are for ever'",
        "postgresql": "BEFORE DELETE ON visits FOR EACH ROW EXECUTE FUNCTION forbid()",
    }
    if visits.kind == "postgresql":
        body = "BEGIN RAISE 'are for ever'; END"
        visits(f"CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    visits(f"CREATE TRIGGER own {forbid[visits.kind]}")
    before = visits("SELECT * FROM visits")
    with pytest.raises(roost.Invalid, match="are for ever"):
        cap(open_store())
    assert visits("SELECT * FROM visits") == before
    assert "roostcap" not in str(visits.schema())
