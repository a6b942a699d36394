"""What a joined call may touch: it delays nobody who needs none of its keys, and leaves what has expired to stores.

Expired rows of others are there, and living ones behind them; tables have no rows, one, or two.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import roost
from roost.structures.program import SOME
from tests.suite.boundaries import Egg
from tests.suite.clients import Client
from tests.suite.passing import passes
from tests.suite.shapes import Visit
from tests.suite.ways import App

HOUR = 3600
DAY = 24 * HOUR
caches = roost.Cache("caches", key=int, value=int)
added = roost.Cache("added", key=int, value=int)
leased = roost.Cache("leased", key=int, value=int)
limits = roost.RateLimit("limits", key=int, limit=5, within=HOUR)
leases = roost.Lease("leases", key=int)
rings = roost.Ring("rings", Visit, per="uid", keep=2)
fading = roost.Ring("fading", Visit, per="uid", keep=2, keep_for=HOUR)
eggs = roost.Capped("eggs", Egg, per="basket", keep=2, unique="egg")
fading_eggs = roost.Capped("fading_eggs", Egg, per="basket", keep=2, unique="egg", keep_for=HOUR)
members: Any = roost.Set("members", key=int, member=int)
fading_members: Any = roost.Set("fading_members", key=int, member=int, keep_for=HOUR)
refreshed = roost.Capped("refreshed", Egg, per="basket", keep=2, unique="egg", on_duplicate="refresh")
hourly = roost.Counter("hourly", key=int, window="hour", keep=2)
ALL = [caches, added, leased, limits, leases, rings, fading, eggs, fading_eggs, members, fading_members]
FEW = [*ALL, refreshed, hourly]

Make = Callable[[int], roost.Operation[Any]]
WRITES: dict[str, Make] = {
    "set": lambda key: caches.set(key, 1, ttl=HOUR),
    "cache.add": lambda key: added.add(key, 1, ttl=HOUR),
    "lease": lambda key: leased.lease(key, HOUR),
    "take": limits.take,
    "acquire": lambda key: leases.acquire(key, "ada", HOUR),
    "push": lambda key: rings.push(Visit(key, 1)),
    "push, fading": lambda key: fading.push(Visit(key, 1)),
    "add": lambda key: eggs.add(Egg(key, 1, 1)),
    "add, fading": lambda key: fading_eggs.add(Egg(key, 1, 1)),
    "add member": lambda key: members.add(key, 1),
    "add fading member": lambda key: fading_members.add(key, 1),
}
MORE: dict[str, Make] = {
    "refresh": lambda key: refreshed.add(Egg(key, 1, 1)),
    "count": hourly.add,
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
MAKES: dict[str, Make] = {make(1).structure.name: make for make in (*WRITES.values(), *MORE.values())}
MAKES |= {each.name: lambda key, each=each: each.set(key, 1, ttl=HOUR) for each in (caches, added, leased)}  # type: ignore[misc]
MINE, OTHERS = 50, range(10)
MANY = range(100, 100 + SOME)
# To look under the heads' locks for an id that is not there, MariaDB's REPEATABLE READ locks the gap where it would be.
GAPS = ("add", "add, fading", "add member", "refresh")
# So does a deletion of all rows of a key, or of its windows that have gone by: before the first of them, unless a row
# that is not purged yet lies there.
CLEARS = ("count", "clear", "clear, fading", "clear ring", "clear members", "clear fading members")

LEVELS = ("READ COMMITTED", "REPEATABLE READ")

pytestmark = [pytest.mark.needs("cache", "second store"), pytest.mark.ways("driver", "blocking")]
servers = pytest.mark.ways("server")


def begin(one: App, level: str) -> None:
    if one.way.engine in ("mariadb", "mysql"):
        one.sql(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    elif one.way.engine == "postgresql":
        one.commit()
        if one.way.name == "asyncpg":
            one.sql("BEGIN")
        one.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")


@servers
@pytest.mark.parametrize("level", LEVELS)
def test_f93_keys_that_have_expired_are_free_while_a_transaction_is_open(
    level: str, open_store: Callable[..., Any], app: Callable[..., App], sql: Client
) -> None:
    store, one = open_store(*ALL, timeout=1), app()
    for write, make in WRITES.items():
        structure = make(1).structure
        if level == "REPEATABLE READ" and write in GAPS and one.way.engine != "postgresql":
            continue  # a gap is locked
        store.run_all(*[make(key) for key in OTHERS])
        if getattr(structure, "keep_for", None) or not isinstance(structure, (roost.Ring, roost.Capped, roost.Set)):
            passes(sql, structure, 3 * HOUR)
        store.run(make(20))  # one that lives, behind those that have expired
        begin(one, level)
        one.run_all(make(MINE), make(MINE + 1)) if write != "cache.add" else one.run(make(MINE))
        try:
            for key in (*OTHERS, 20, 21):
                if isinstance(structure, roost.Capped):
                    store.run(structure.remove(key, 1))  # `Duplicate` needs no lock
                store.run(make(key))
        except roost.Busy as error:
            raise AssertionError(f"{write} at {level}, of another key") from error
        one.commit()


@servers
def test_f94_tables_of_few_rows_are_searched_by_key(  # a name by which MySQL is not left out
    open_store: Callable[..., Any], app: Callable[..., App]
) -> None:
    store, one, other = open_store(*FEW, timeout=0.5), app(), app()
    for rows, level, (write, make) in product((0, 1, 2), LEVELS, {**WRITES, **MORE, **CHANGES}.items()):
        on_postgresql = one.way.engine == "postgresql"
        if level == "REPEATABLE READ" and write in GAPS + CLEARS and not on_postgresql:
            continue
        structure: Any = make(1).structure
        fill = MAKES[structure.name]
        many = () if rows else MANY
        for key in range(1, rows + 1):
            store.run(fill(key))
        if write in CHANGES:
            store.run(fill(MINE))
        begin(other, "READ COMMITTED")
        key_is = (structure.key.columns[0].name if on_postgresql else f"`{structure.key.columns[0].name}`") + " = 1"
        other.sql(f"SELECT * FROM roost_{structure.name}_rows WHERE {key_is} FOR UPDATE")
        begin(one, level)
        one.run(make(MINE))
        other.rollback()
        try:
            for key in (1, 2, 3):
                if isinstance(structure, roost.Capped) and key <= rows:
                    store.run(structure.remove(key, 1))
                store.run(fill(key))
            store.run_all(*[fill(key) for key in many])
        except roost.Busy as error:
            raise AssertionError(f"{write} at {level}, of another key") from error
        finally:
            one.rollback()
        store.run_all(*[structure.forget(key) for key in (1, 2, 3, MINE, *many)])


# --- what has expired --------------------------------------------------------------------------------------------

pages = roost.Cache("pages")
few = roost.Cache("few", max_items=1_000)
jobs = roost.Lease("jobs")
logins = roost.RateLimit("logins", limit=5, within=DAY)
EXPIRING = (pages, few, jobs, logins)


def write(structure: Any, key: str) -> roost.Operation[Any]:
    if isinstance(structure, roost.Cache):
        return structure.set(key, b"value", ttl=DAY)
    if isinstance(structure, roost.Lease):
        return structure.acquire(key, "ada", DAY)
    return structure.take(key) if isinstance(structure, roost.RateLimit) else structure.add(key)


def size(sql: Client, structure: Any) -> int:
    return int(sql.execute(f"SELECT count(*) FROM roost_{structure.name}_rows").fetchone()[0])  # type: ignore[index]


def test_f93_joined_writes_leave_what_has_expired_to_stores(
    open_store: Callable[..., Any], app: Callable[..., App], sql: Client
) -> None:
    store, one = open_store(*EXPIRING), app()
    for structure in EXPIRING:
        store.run_all(*[write(structure, f"over {n}") for n in range(100)])
        passes(sql, structure, 3 * DAY)
        for n in range(70):
            if n % 10 == 0:
                one.commit()
                begin(one, "READ COMMITTED")
            one.run(write(structure, f"stays {n}"))
        for n in range(4):  # on MariaDB single sets leave it to batches, most of the time
            one.run_all(write(structure, "stays 1"), write(structure, f"stays {70 + n}"))
        one.commit()
        assert size(sql, structure) == 174, structure
        for n in range(100):
            store.run(write(structure, f"alone {n}"))
        for part in range(3):  # on MariaDB single sets leave it to batches, most of the time
            store.run_all(*[write(structure, f"{part} {n}") for n in range(20)])
        assert size(sql, structure) == 74 + 100 + 60, structure


@servers
def test_at_repeatable_read_they_remove_nothing_and_nobody_waits_for_them(
    open_store: Callable[..., Any], app: Callable[..., App], sql: Client
) -> None:
    store = open_store(*EXPIRING)
    one, other = app(), app()
    for structure in EXPIRING:
        store.run_all(*[write(structure, f"over {n}") for n in range(100)])
        passes(sql, structure, 3 * DAY)
        for each in (one, other):
            begin(each, "REPEATABLE READ")
            each.sql("SELECT count(*) FROM roost_catalog")
        name = "`key`" if one.way.engine != "postgresql" else "key"
        sql.execute(f"UPDATE roost_{structure.name}_rows SET {name} = 'gone' WHERE {name} = 'over 3'")
        for n in range(3):  # where both locked a gap, both would wait
            one.run(write(structure, f"one {n}"))
            if structure is not few:  # where writers share one row
                other.run(write(structure, f"other {n}"))
        one.commit()
        other.commit()
        assert size(sql, structure) >= 100, structure


@servers
def test_where_all_is_joined_a_clock_that_jumps_back_brings_nothing_to_life(
    open_store: Callable[..., Any], app: Callable[..., App], sql: Client
) -> None:
    open_store(pages, jobs)
    one = app()
    begin(one, "READ COMMITTED")
    one.run(pages.set("/", b"value", ttl=DAY))
    first = one.run(jobs.acquire("daily", "ada", DAY))
    one.commit()
    for structure in (pages, jobs):
        passes(sql, structure, 3 * DAY)
    begin(one, "READ COMMITTED")
    one.run_all(pages.set("/other", b"value", ttl=DAY), pages.set("/third", b"value", ttl=DAY))
    second = one.run(jobs.acquire("daily", "bob", DAY))
    one.commit()
    for structure in (pages, jobs):
        passes(sql, structure, -3 * DAY)
    begin(one, "READ COMMITTED")
    assert one.run(pages.get("/")) is None
    assert one.run(jobs.holder("daily")) == "bob"
    assert one.run(jobs.release(second)) is True
    third = one.run(jobs.acquire("daily", "cy", DAY))
    one.commit()
    assert first.token < second.token < third.token


@servers
def test_a_lease_is_given_back_in_a_transaction_whose_snapshot_is_older(
    open_store: Callable[..., Any], app: Callable[..., App]
) -> None:
    store = open_store(jobs)
    one = app()
    begin(one, "READ COMMITTED" if one.way.engine == "postgresql" else "REPEATABLE READ")
    one.sql("SELECT count(*) FROM roost_jobs_rows")
    grant = store.run(jobs.acquire("daily", "ada", DAY))
    assert one.run_behind(jobs.renew(grant, DAY)) != (None,)
    assert one.run(jobs.release(grant)) is True
    one.commit()
    assert store.run(jobs.holder("daily")) is None


def test_values_of_a_bounded_cache_that_are_over_and_touched_stay_counted(
    open_store: Callable[..., Any], app: Callable[..., App], sql: Client
) -> None:
    store = open_store(few)
    store.run_all(*[few.set(f"{n}", b"value", ttl=DAY) for n in range(10)])
    passes(sql, few, 3 * DAY)
    one = app()
    assert store.run_all(*[few.touch(f"{n}", DAY) for n in range(4)]) == (False,) * 4
    assert one.run_all(few.touch("4", DAY), few.touch("5", DAY)) == (False, False)
    one.commit()
