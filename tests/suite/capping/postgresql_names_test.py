"""Tables of the application's own, capped on PostgreSQL: of which types and names their columns may be."""

from __future__ import annotations

import pytest

import roost
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.capping.tables import Open, cap

pytestmark = pytest.mark.needs("trims at commit")


def test_f35_a_column_that_may_not_be_null_by_its_domain(open_store: Open, application: Application) -> None:
    application("CREATE DOMAIN filled AS text NOT NULL CHECK (VALUE <> '')")
    application("CREATE DOMAIN number AS int NOT NULL")
    application("CREATE TABLE visits (id {id}, uid number, note filled)")
    store = open_store()
    cap(store, keep=2, newest_by=None)
    application("INSERT INTO visits (uid, note) SELECT 1, 'x' FROM generate_series(1, 5)")
    assert application("SELECT id FROM visits ORDER BY id") == [(4,), (5,)]
    assert store.check() == []


def test_a_key_of_a_domain_over_an_enum_can_be_read(open_store: Open, application: Application) -> None:
    application("CREATE TYPE mood AS ENUM ('sad', 'fine', 'glad')")
    application("CREATE DOMAIN feeling AS mood")
    application("CREATE TABLE visits (id {id}, uid feeling, note text)")
    store = open_store()
    cap(store, keep=2, newest_by=None)
    application(
        "INSERT INTO visits (uid, note)\n"
        "  SELECT m::mood, n FROM unnest('{a,b,c}'::text[]) n, unnest('{fine,sad}'::text[]) m"
    )
    visits = roost.Capped.of("visits")
    assert [row.note for row in store.run(visits.latest("fine"))] == ["c", "b"]
    assert store.run_all(visits.count("sad"), visits.count("glad")) == (2, 0)
    assert store.run(visits.keys()) == ["sad", "fine"]
    assert store.run(visits.keys("sad")) == ["fine"]
    store.run(visits.add(uid="glad", note="d"))
    assert store.run(visits.keys("fine", 1)) == ["glad"]
    assert store.check() == []


INTERNAL = [
    *("k", "k0", "k1", "n", "r", "i", "o", "v", "d", "g", "e", "f", "l", "c", "t", "x", "p", "note"),
    *("noted", "relation", "roost_n", "setting", "locks", "lock", "came", "more", "part", "given", "gone"),
    *("deleted", "failed", "latest", "each", "roostcap", "new_rows", "new", "old", "tg_relid", "tg_op"),
    *("found", "excluded", "counted", "visits", "values"),
]


@pytest.mark.parametrize("newest_by", ["by", None])
def test_f36_columns_may_be_called_as_what_the_functions_use(
    open_store: Open, application: Application, newest_by: str | None
) -> None:
    store = open_store()
    # In the short form each name is tried with one of the two.
    for name in length(INTERNAL[newest_by is None :: 2], INTERNAL):
        application(f'CREATE TABLE t_{name} ("{name}" int, other int, x1 int, "by" int, id {{id}})')
        cap(store, f"{name},other", 2, newest_by, f"t_{name}")
        application(f'INSERT INTO t_{name} ("{name}", other, x1, "by") SELECT 1, 1, n, n FROM generate_series(1, 5) n')
        application(f'UPDATE t_{name} SET "{name}" = 2')
        application(f'INSERT INTO t_{name} ("{name}", other, x1, "by") VALUES (2, 1, 6, 6)')
        assert application(f"SELECT x1 FROM t_{name} ORDER BY 1") == [(5,), (6,)], name
        assert store.run(roost.Capped.of(f"t_{name}").count((2, 1))) == 2
    assert store.check() == []


def test_f36_tables_may_be_called_as_what_the_functions_use(open_store: Open, application: Application) -> None:
    store = open_store()
    for name in INTERNAL:
        if name == "roost_n":
            continue  # as private tables are called
        application(f'CREATE TABLE "{name}" (id {{id}}, "{name}" int, x1 text)')
        cap(store, name, 2, None, name)
        for key in range(3):
            application(f'INSERT INTO "{name}" ("{name}") SELECT {key} FROM generate_series(1, 4)')
        application(f'UPDATE "{name}" SET "{name}" = 0')
        assert application(f'SELECT id, "{name}" FROM "{name}" ORDER BY id') == [(11, 0), (12, 0)], name
    assert store.check() == []


def test_keys_that_compare_by_rules_of_their_own(open_store: Open, application: Application) -> None:
    application("CREATE EXTENSION citext")
    application("CREATE DOMAIN nick AS citext")
    application("CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    application("CREATE TABLE visits (c citext, d nick, a text COLLATE anycase, x char(4), id {id})")
    store = open_store()
    cap(store, "c,d,a,x", 2, None)
    for word in ("ab", "AB", "aB", "Ab"):
        application("INSERT INTO visits VALUES (?, ?, ?, 'y')", word, word, word)
    assert application("SELECT c::text FROM visits ORDER BY id") == [("aB",), ("Ab",)]
    assert store.check() == []
