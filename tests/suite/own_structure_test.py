"""A structure that is not Roost's own works wherever one does, on every database, without a change to Roost."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

import roost
from roost import own
from roost.structures import registry
from roost.structures.registry import from_definition
from tests import servers
from tests.latest import Latest, LatestConsole, LatestPlan
from tests.suite.clients import Client
from tests.suite.shapes import Make, pageviews

moods = Latest("moods", key=int, value=roost.text(20))
seen = Latest("seen", key=roost.text(40), value=dt.datetime)
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)


def test_the_latest_value_wins_alone_and_in_batches(make: Make) -> None:
    store = make(moods, seen, pageviews)
    assert store.run(moods.get(7)) is None
    store.run(moods.set(7, "calm"))
    store.run(seen.set("ada", NOON))
    assert store.run_all(moods.get(7), seen.get("ada"), seen.get("bob")) == ("calm", NOON, None)
    assert store.run_all(
        moods.set(8, "glad"), moods.get(8), pageviews.add("/home"), moods.set(8, "sad"), moods.get(8), moods.get(7)
    ) == (None, "glad", None, None, "sad", "calm")
    assert store.run_all(*[moods.set(n, f"mood {n}") for n in range(100, 0, -1)]) == (None,) * 100
    assert store.run(moods.keys(after=97)) == [98, 99, 100]
    assert store.run_all(moods.clear(5), moods.get(5), moods.forget(5), moods.set(5, "new"), moods.get(5)) == (
        *(1, None, 0),
        *(None, "new"),
    )


class Accounts(Latest[str, int]):
    """Numbers that are not below zero, of which two are set at once."""

    kind = "accounts"

    def set_both(self, *pairs: tuple[str, int]) -> own.Operation[None]:
        return own.Operation(self, "set_both", tuple(self.key.check(key) + self.value.check(n) for key, n in pairs))


class AccountsPlan(LatestPlan):
    def programs(self) -> Iterator[own.Program]:
        _, clear, *locks = super().programs()
        yield from [own.Program("set", self.structure.columns, self._paying, [own.number("told")]), clear, *locks]

    def _paying(self, w: own.Words) -> Iterator[own.Step]:
        yield own.Refuse(f"{w.new('value')} < 0", -1, "below zero")
        yield from self._setting(w)
        yield own.Give(["0"])

    def written(self) -> Mapping[str, own.Write]:
        out = self.dialect.encoder(self.structure.columns) or tuple

        def result(op: own.Operation[Any], outcomes: Sequence[Any]) -> Any:
            return own.Invalid(f"{op!r}: below zero") if -1 in outcomes else None

        return {**super().written(), "set_both": own.Write("set", lambda op: list(map(out, op.args)), result)}


own.register(Accounts, AccountsPlan, LatestConsole)


@pytest.mark.parametrize("database", ["sqlite", *servers.SERVERS])
def test_an_operation_of_several_rows_is_refused_whole_in_a_batch_of_others(any_url: str) -> None:
    accounts = Accounts("accounts", key=str, value=int)

    async def main() -> None:
        async with roost.AsyncStore(any_url) as store:
            await store.create(accounts)
            together = [accounts.set_both(("a", 1), ("b", 2)), accounts.set_both(("c", 3), ("d", -4))]
            answers = await asyncio.gather(*map(store.run, together), return_exceptions=True)
            assert [type(each) for each in answers] == [type(None), roost.Invalid]
            assert await store.run_all(*map(accounts.get, "abcd")) == (1, 2, None, None)

    asyncio.run(main())


@pytest.mark.needs("views", "counter")
def test_plain_sql_reads_and_writes_it(open_store: Make, sql: Client) -> None:
    store = open_store(moods, seen)
    sql.execute("INSERT INTO moods (key, value) VALUES (1, 'calm'), (2, 'glad'), (1, 'it''s')")
    assert store.run_all(moods.get(1), moods.get(2)) == ("it's", "glad")
    sql.execute("UPDATE moods SET value = 'sad' WHERE key = 2")
    sql.execute("DELETE FROM moods WHERE key = 1")
    assert sql.execute("SELECT key, value FROM moods").fetchall() == [(2, "sad")]
    with pytest.raises(sql.Error, match="it takes"):
        sql.execute("INSERT INTO moods (key, value) VALUES (3, 'longer than twenty characters')")
    with pytest.raises(sql.Error, match="key cannot be changed"):
        sql.execute("UPDATE moods SET key = 3 WHERE key = 2")
    assert store.run(moods.keys()) == [2]


def test_the_catalog_knows_it_and_check_verifies_it(open_store: Make) -> None:
    store = open_store(moods)
    store.create(moods)
    (found,) = store.structures()
    assert found == moods
    assert store.run(found.get(1)) is None
    other = Latest("moods", key=int, value=roost.text(30))
    with pytest.raises(roost.Mismatch, match=r"column value is text\(20\) in the database and text\(30\)"):
        store.create(other)
    with pytest.raises(roost.Invalid, match="value cannot change"):
        store.alter(other)
    assert store.alter(moods) == []
    assert store.check(moods) == []


def test_a_kind_that_is_not_imported_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class EntryPoint:
        def load(self) -> Any:
            registry.DECLARATIONS["latest"] = Latest

    given: list[dict[str, str]] = []

    def entry_points(**asked: str) -> list[EntryPoint]:
        given.append(asked)
        return [EntryPoint()]

    monkeypatch.setattr(registry, "DECLARATIONS", dict(registry.DECLARATIONS))
    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    del registry.DECLARATIONS["latest"]
    assert from_definition(moods.definition) == moods
    assert given == [{"group": "roost.structures", "name": "latest"}]


def test_a_kind_that_nobody_has_is_invalid_and_says_what_to_do() -> None:
    definition = json.dumps({**json.loads(moods.definition), "kind": "heap"})
    with pytest.raises(roost.Invalid, match=r"heap is a kind of structure that is not known here: .*roost\.structures"):
        from_definition(definition)


@pytest.mark.needs("counter")
def test_a_kind_that_is_not_known_here_leaves_the_others_alone(
    open_store: Any, sql: Client, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(pageviews)
    sql.execute("CREATE TABLE roost_wheels_rows (id BIGINT PRIMARY KEY)")
    sql.execute("INSERT INTO roost_catalog (name, version, definition) VALUES ('wheels', 1, ?)", ('{"kind":"wheel"}',))
    sql.commit()
    assert [each.name for each in store.structures()] == ["pageviews"]
    assert "left out, since their kinds are not known here: wheels" in caplog.text
    assert [(each.structure, each.rule) for each in store.check()] == [("wheels", "catalog")]
    sql.execute("DELETE FROM roost_catalog WHERE name = 'wheels'")
    sql.execute("DROP TABLE roost_wheels_rows")
    sql.commit()
