"""An open transaction of the application delays nobody who needs none of its keys, on servers.

Expired rows of others are there, and living ones behind them; tables have no rows, one, or two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.boundaries import Egg
from tests.suite.clients import Client
from tests.suite.passing import passes
from tests.suite.shapes import Visit
from tests.suite.ways import App

HOUR = 3600
caches = roost.Cache("caches", key=int, value=int)
bounded = roost.Cache("bounded", key=int, value=int, max_items=1_000)
limits = roost.RateLimit("limits", key=int, limit=5, within=HOUR)
leases = roost.Lease("leases", key=int)
rings = roost.Ring("rings", Visit, per="uid", keep=2)
fading = roost.Ring("fading", Visit, per="uid", keep=2, keep_for=HOUR)
eggs = roost.Capped("eggs", Egg, per="basket", keep=2, unique="egg")
fading_eggs = roost.Capped("fading_eggs", Egg, per="basket", keep=2, unique="egg", keep_for=HOUR)
members: Any = roost.Set("members", key=int, member=int)
fading_members: Any = roost.Set("fading_members", key=int, member=int, keep_for=HOUR)
ALL = [caches, limits, leases, rings, fading, eggs, fading_eggs, members, fading_members]

Make = Callable[[int], roost.Operation[Any]]
WRITES: dict[str, Make] = {
    "set": lambda key: caches.set(key, 1, ttl=HOUR),
    "cache.add": lambda key: caches.add(key, 1, ttl=HOUR),
    "lease": lambda key: caches.lease(key, HOUR),
    "take": limits.take,
    "acquire": lambda key: leases.acquire(key, "ada", HOUR),
    "push": lambda key: rings.push(Visit(key, 1)),
    "push, fading": lambda key: fading.push(Visit(key, 1)),
    "add": lambda key: eggs.add(Egg(key, 1, 1)),
    "add, fading": lambda key: fading_eggs.add(Egg(key, 1, 1)),
    "add member": lambda key: members.add(key, 1),
    "add fading member": lambda key: fading_members.add(key, 1),
}
# Of keys that are there.
CHANGES: dict[str, Make] = {
    "remove": lambda key: eggs.remove(key, 1),
    "remove, fading": lambda key: fading_eggs.remove(key, 1),
    "clear": eggs.clear,
    "clear, fading": fading_eggs.clear,
    "clear ring": rings.clear,
    "remove member": lambda key: members.remove(key, 1),
    "clear members": members.clear,
    "remove fading member": lambda key: fading_members.remove(key, 1),
    "clear fading members": fading_members.clear,
    "delete": caches.delete,
    "increment": caches.increment,
    "clear limit": limits.clear,
    "clear lease": leases.clear,
}
MAKES = {
    structure.name: make
    for structure, make in [
        *((each(1).structure, each) for each in WRITES.values() if each(1).verb not in ("lease", "add")),
        *((WRITES[each](1).structure, WRITES[each]) for each in ("add", "add, fading", "add member")),
        (fading_members, WRITES["add fading member"]),
    ]
}
MINE, OTHERS = 50, range(10)
# To look under the heads' locks for an id that is not there, MariaDB's REPEATABLE READ locks the gap where it would be.
GAPS = ("add", "add, fading", "add member")
# So does a deletion of all rows of a key: before the first of them, unless a row that is not purged yet lies there.
CLEARS = ("clear", "clear, fading", "clear ring", "clear members", "clear fading members")

pytestmark = [pytest.mark.needs("cache", "second store"), pytest.mark.ways("server", "driver")]


def begin(one: App, level: str) -> None:
    if one.way.engine == "mariadb":
        one.sql(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    else:
        one.commit()
        if one.way.name == "asyncpg":
            one.sql("BEGIN")
        one.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("write", WRITES)
def test_f93_a_key_that_has_expired_is_free_while_a_transaction_is_open(
    write: str, level: str, open_store: Callable[..., Any], app: Callable[..., App], sql: Client, store_url: str
) -> None:
    make = WRITES[write]
    structure = make(1).structure
    store = open_store(structure, timeout=1)
    if level == "REPEATABLE READ" and write in GAPS and store_url.startswith("mysql"):
        pytest.skip("a gap is locked")
    store.run_all(*[make(key) for key in OTHERS])
    if getattr(structure, "keep_for", None) or not isinstance(structure, (roost.Ring, roost.Capped, roost.Set)):
        passes(sql, structure, 3 * HOUR)
    store.run(make(20))  # one that lives, behind those that have expired
    one = app()
    begin(one, level)
    one.run_all(make(MINE), make(MINE + 1)) if write != "cache.add" else one.run(make(MINE))
    for key in (*OTHERS, 20, 21):
        if isinstance(structure, roost.Capped):
            store.run(structure.remove(key, 1))  # `Duplicate` needs no lock
        store.run(make(key))
    one.commit()


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_f94_tables_with_few_rows_are_not_locked_as_a_whole(
    rows: int, level: str, open_store: Callable[..., Any], app: Callable[..., App]
) -> None:
    store = open_store(*ALL, timeout=0.5)
    one = app()
    for write, make in {**WRITES, **CHANGES}.items():
        if level == "REPEATABLE READ" and write in GAPS + CLEARS and one.way.engine == "mariadb":
            continue
        structure: Any = make(1).structure
        fill = MAKES[structure.name]
        store.run_all(*[structure.clear(key) for key in (1, 2, 3, MINE)])
        for forgotten in (1, 2, 3, MINE):
            store.run(structure.forget(forgotten) if hasattr(structure, "forget") else structure.clear(forgotten))
        for key in range(1, rows + 1):
            store.run(fill(key))
        if write in CHANGES:
            store.run(fill(MINE))
        begin(one, level)
        one.run(make(MINE))
        try:
            for key in (1, 2, 3):
                if isinstance(structure, roost.Capped) and key <= rows:
                    store.run(structure.remove(key, 1))
                store.run(fill(key))
        except roost.Busy as error:
            raise AssertionError(f"{write}, of another key") from error
        finally:
            one.rollback()
