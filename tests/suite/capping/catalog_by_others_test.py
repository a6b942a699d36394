"""Definitions that somebody else has written into the catalog: no SQL is made of what no declaration could say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import roost
from roost.catalog.catalog import drop
from roost.store import bursts
from roost.structures.registry import plan_for
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.capping.tables import Open, cap
from tests.suite.shapes import Visit

pytestmark = pytest.mark.needs("application")
alike = pytest.mark.needs(*length(["file"], []))  # what reads definitions is so on all databases

MORE_SQL = {
    "sqlite": "0; CREATE TABLE of_others (n int); -- ",
    "mysql": "0; CREATE TABLE of_others (n int); -- ",
    "postgresql": "(SELECT 1000000 + setval('called', 5))",
}
WRONG = {
    "keep": [None, "3", 0, True, 2.5, 2**31],
    "per": ["uid", [], [5], ["uid", ""]],
    "id": [None, [["id"]], []],
    "by": [5, ["at"], ""],
    "index": ["yes", 1],
    "name": ["visits\0", "", "others"],
}
AGES = {
    "older_than": ["1 day'; DROP TABLE visits; --", 0, 10**12, True],
    "offset": ["0", 10_000],
    "time": ["now()", None],
    "by": ["", ["at"]],
    "id": ["id", []],
    "index": [None],
    "name": ["others"],
}


def each_of(facts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return each fact with each of its values."""
    return ((fact, value) for fact, values in facts.items() for value in values)


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


@pytest.mark.needs("application", "capped tables")
def test_r2_sql_in_the_catalog_is_run_by_nobody(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    if visits.kind == "postgresql":
        visits("CREATE SEQUENCE called")
    schema = visits.schema()
    with written(visits, "visits", keep=MORE_SQL[visits.kind]):
        ((where, rule, found),) = [(each.structure, each.rule, each.detail) for each in store.check()]
        assert (where, rule) == ("visits", "catalog")
        assert "keep is a whole number" in found
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


@pytest.mark.needs("application", "capped tables")
@alike
def test_r2_a_cap_that_no_command_could_have_made_is_refused(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    read = roost.Capped.of("visits")
    for fact, value in each_of(WRONG):
        with written(visits, "visits", **{fact: value}):
            for asked in (read.count(5), read.latest(5), read.keys()):
                with pytest.raises(roost.Invalid):
                    store.run(asked)
            assert [(each.structure, each.rule) for each in store.check()] == [("visits", "catalog")], (fact, value)
            with pytest.raises(roost.Invalid):
                bursts.uncap(store, "visits")


@pytest.mark.needs("application", "capped tables")
@alike
def test_an_age_that_no_command_could_have_said_is_refused(open_store: Open, visits: Application) -> None:
    visits("ALTER TABLE visits ADD COLUMN seen INT")
    store = open_store()
    list(bursts.cap(store, bursts.inspect(store, "visits", by="seen", older_than=60, epoch="s")))
    for fact, value in each_of(AGES):
        with written(visits, "visits", **{fact: value}):
            assert [(each.structure, each.rule) for each in store.check()] == [("visits", "catalog")], (fact, value)
            for refused in (lambda: bursts.uncap(store, "visits"), lambda: bursts.inspect(store, "visits")):
                with pytest.raises(roost.Invalid):
                    refused()


def test_r2_alter_believes_no_definition_that_no_declaration_could_have_made(
    open_store: Open, application: Application
) -> None:
    store = open_store(roost.Counter("hits", slots=4))
    for facts in ({"slots": "0 OR TRUE"}, {"name": "others"}):
        with written(application, "hits", **facts), pytest.raises(roost.Invalid):
            store.alter(roost.Counter("hits", slots=2))


BROKEN = ["", "not json", "[]", "5", "{}", '{"kind": 5}', '{"kind": "counter"}', '{"kind": "ring", "columns": 5}']
BROKEN.append("[" * 5000)


@alike
def test_a_definition_that_is_none_is_an_error_of_roosts_whoever_reads_it(
    open_store: Open, application: Application
) -> None:
    hits = roost.Counter("hits", slots=4)
    tracks = roost.Ring("tracks", Visit, per="uid", keep=3)
    store = open_store(hits, tracks)
    plans = [plan_for(structure, store._core.engine.dialect) for structure in (hits, tracks)]
    asked: list[roost.Operation[Any]] = [hits.add("a"), hits.total("a"), tracks.push(Visit(1, 2)), tracks.latest(1)]

    def write(*texts: str) -> None:
        for structure, text in zip((hits, tracks), texts, strict=True):
            application("UPDATE roost_catalog SET definition = ? WHERE name = ?", text, structure.name)

    for text in BROKEN:
        write(text, text)
        for operation in asked:
            with pytest.raises(roost.Error):
                store.run(operation)
        wrong = roost.Invalid if text in BROKEN[:6] or text == BROKEN[-1] else (roost.Invalid, roost.Mismatch)
        for structure, plan in zip((hits, tracks), plans, strict=True):
            with pytest.raises(wrong):
                store.create(structure)
            with pytest.raises(roost.Invalid):
                store.alter(structure)
            if wrong is roost.Invalid:
                with pytest.raises(roost.Invalid, match="cannot be read"):
                    store._core.exclusive(drop(store._core.known.catalog, [plan]))
        assert {each.rule for each in store.check()} >= {"catalog"}, text
        with pytest.raises(roost.Invalid):
            store.structures()
        write(hits.definition, tracks.definition)
