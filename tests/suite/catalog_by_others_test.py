"""Definitions that somebody else has written into the catalog: no SQL is made of what no declaration could say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import roost
from roost.store import bursts
from tests.suite.adopted_test import INDEX, VISITS, Open, cap
from tests.suite.application import Application

pytestmark = pytest.mark.needs("application")

MORE_SQL = {
    "sqlite": "0; CREATE TABLE of_others (n int); -- ",
    "mysql": "0; CREATE TABLE of_others (n int); -- ",
    "postgresql": "(SELECT 1000000 + setval('called', 5))",
}
WRONG: list[dict[str, Any]] = [
    {"keep": None},
    {"keep": "3"},
    {"keep": 0},
    {"keep": True},
    {"keep": 2.5},
    {"keep": 2**31},
    {"per": "uid"},
    {"per": []},
    {"per": [5]},
    {"per": ["uid", ""]},
    {"id": None},
    {"id": [["id"]]},
    {"id": []},
    {"newest_by": 5},
    {"newest_by": ["at"]},
    {"newest_by": ""},
    {"index": "yes"},
    {"index": 1},
    {"name": "visits\0"},
    {"name": ""},
    {"name": "others"},
]


@pytest.fixture
def visits(application: Application) -> Application:
    application(VISITS)
    application(INDEX)
    return application


@contextmanager
def written(application: Application, structure: str, **facts: Any) -> Iterator[None]:
    """Change for a while what the catalog has of a name."""
    change = "UPDATE roost_catalog SET definition = ? WHERE name = ?"
    ((definition,),) = application("SELECT definition FROM roost_catalog WHERE name = ?", structure)
    application(change, json.dumps(json.loads(definition) | facts), structure)
    try:
        yield
    finally:
        application(change, definition, structure)


def test_r2_sql_in_the_catalog_is_run_by_nobody(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    if visits.kind == "postgresql":
        visits("CREATE SEQUENCE called")
    schema = visits.schema()
    with written(visits, "visits", keep=MORE_SQL[visits.kind]):
        ((where, rule, told),) = [(each.structure, each.rule, each.detail) for each in store.check()]
        assert (where, rule) == ("visits", "catalog")
        assert "keep is a whole number" in told
        for refused in (
            lambda: bursts.inspect(store, "visits", [], None, None),
            lambda: bursts.inspect(store, "visits", ["uid"], 2, None),
            lambda: bursts.uncap(store, "visits"),
        ):
            with pytest.raises(roost.Invalid, match="keep is a whole number"):
                refused()
    assert visits.schema() == schema
    if visits.kind == "postgresql":
        assert visits("SELECT last_value, is_called FROM called") == [(1, False)]


def test_r2_a_cap_that_no_command_could_have_made_is_refused(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    read = roost.Capped.of("visits")
    for facts in WRONG:
        with written(visits, "visits", **facts):
            for asked in (read.count(5), read.latest(5), read.keys()):
                with pytest.raises(roost.Invalid):
                    store.run(asked)
            assert [(each.structure, each.rule) for each in store.check()] == [("visits", "catalog")], facts
            with pytest.raises(roost.Invalid):
                bursts.uncap(store, "visits")


def test_r2_alter_believes_no_definition_that_no_declaration_could_have_made(
    open_store: Open, application: Application
) -> None:
    store = open_store(roost.Counter("hits", slots=4))
    for facts in ({"slots": "0 OR TRUE"}, {"name": "others"}):
        with written(application, "hits", **facts), pytest.raises(roost.Invalid):
            store.alter(roost.Counter("hits", slots=2))
