"""Tables of the application's own, capped on PostgreSQL: of which types and names their columns may be."""

from __future__ import annotations

import pytest

import roost
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
