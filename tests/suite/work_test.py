"""How much a database works: with many rows of one key, and on PostgreSQL before it has statistics of a table.

What one statement of a SQL client inserts is work that grows with the rows, not with their square (F95).

Each row changes what the one before has left, and the dead versions of a transaction stay until it ends. (A ring with
`keep_for` is not here: on PostgreSQL each overwritten row gets entries in its indexes, and to see that the slot is not
taken twice, the server passes those of before, 1/`keep` of all rows.)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest

import roost
from roost.databases.mariadb.address import arguments
from tests import servers
from tests.suite import shapes
from tests.suite.boundaries import Egg
from tests.suite.clients import Client, numbers
from tests.suite.shapes import Place, Visit, baskets, likes, pageviews, visits

ROWS = 1_000
ON_POSTGRESQL = 500  # where nobody else reads pages that are counted, so that the bound can be closer

counted: Any = roost.Counter("counted", key=int)
pushed = roost.Ring("pushed", Visit, per="uid", keep=5)
evicted = roost.Capped("evicted", Visit, per="uid", keep=12, unique="visitor")
refreshed = roost.Capped("refreshed", Visit, per="uid", keep=12, unique="visitor", on_duplicate="refresh")
expiring = roost.Capped("expiring", Visit, per="uid", keep=12, unique="visitor", keep_for=3600)
best: Any = roost.Capped("best", Egg, per="basket", keep=12, unique="egg", order="points")
members: Any = roost.Set("members", key=int, member=int)
few: Any = roost.Set("few", key=int, member=int, keep=12)
renewed: Any = roost.Set("renewed", key=int, member=int, keep_for=3600)

COLUMNS = {"counted": ("key", "total"), "best": ("basket", "egg", "points")}
COLUMNS |= dict.fromkeys(("members", "few", "renewed"), ("key", "member"))


def leave_unanalyzed(url: str) -> None:
    """Keep autovacuum away, which may come between: of the rows that it has counted a scan is as good for 64."""
    with psycopg.connect(url) as raw:
        tables = raw.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in tables.fetchall():
            raw.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")


def pages(sql: Client, store_url: str, name: str, key: int, rows: int) -> int:
    """Insert rows of a key by one statement; return how many pages of tables and indexes that has read."""
    quote = "`" if store_url.startswith("mysql") else '"'
    columns = COLUMNS.get(name, ("uid", "visitor"))
    names = ", ".join(f"{quote}{each}{quote}" for each in columns)
    values = ", ".join([str(key), *["i"] * (len(columns) - 1)])
    if store_url.startswith("postgresql"):
        insert = f'INSERT INTO "{name}" ({names}) SELECT {values} FROM generate_series(1, {rows}) i'
        ((found,),) = sql.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {insert}").fetchall()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    requests = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"
    before = int(sql.execute(requests).fetchone()[1])  # type: ignore[index]
    sql.execute(f"INSERT INTO `{name}_in` ({names}) SELECT {values.replace('i', 'seq')} FROM {numbers(rows)}")
    return int(sql.execute(requests).fetchone()[1]) - before  # type: ignore[index]


@pytest.mark.parametrize(
    "structure",
    [counted, pushed, evicted, refreshed, expiring, best, members, few, renewed],
    ids=lambda each: each.name,
)
@pytest.mark.needs("programs for SQL", "readable views", "operations by themselves")  # on MySQL it takes half a minute
@pytest.mark.spread
def test_f95_four_times_the_rows_are_four_times_the_work(
    structure: Any, open_store: Callable[..., roost.Store], sql: Client, store_url: str
) -> None:
    open_store(structure)
    if store_url.startswith("postgresql"):  # of a table that was just vacuumed the view's own look-up may be a scan
        leave_unanalyzed(store_url)
    few, most = (ON_POSTGRESQL, 5) if store_url.startswith("postgresql") else (ROWS, 6)
    pages(sql, store_url, structure.name, 1, 4 * few)  # what comes then finds trees that grow no higher
    some = pages(sql, store_url, structure.name, 2, few)
    # The pages of the whole server are counted, also those that it purges after the test before: the least of two.
    more = min(pages(sql, store_url, structure.name, key, 4 * few) for key in (3, 4))
    assert more < most * some


def test_keys_begin_where_they_are_asked_to_on_mariadb() -> None:
    asked: list[tuple[str, Any]] = []
    tagged: Any = roost.Set("tagged", key=Place, member=int)
    lately: Any = roost.Set("lately", key=Place, member=int, keep_for=3600)
    trace = lambda sql, row: asked.append((sql, row))  # noqa: E731
    with servers.own_database("mariadb") as url, roost.Store(url, trace=trace) as store:
        store.create(tagged, lately)
        for structure in tagged, lately:
            store.run(structure.add_all([(Place("abc"[n % 3], n), 1) for n in range(600)]))
            asked.clear()
            assert store.run(structure.keys(Place("b", 300), 2)) == [Place("b", 301), Place("b", 304)]
            ((sql, row),) = [(sql, row) for sql, row in asked if "LIMIT" in sql]
            with contextlib.closing(pymysql.connect(**arguments(url)[0])) as raw, raw.cursor() as cursor:
                cursor.execute("FLUSH STATUS")
                cursor.execute(sql, row)
                cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_%'")
                assert sum([int(n) for _, n in cursor.fetchall()]) < 100


def test_the_triggers_of_a_view_are_found_without_all_others_on_mariadb() -> None:
    asked: list[tuple[str, Any]] = []
    trace = lambda sql, row: asked.append((sql, row))  # noqa: E731
    with servers.own_database("mariadb") as url, roost.Store(url, trace=trace) as store:
        store.create(pageviews, visits, likes, baskets)
        asked.clear()
        store.create(pageviews)
        ((sql, row),) = [(sql, row) for sql, row in asked if sql.startswith("SELECT table_name, definer")]
        with contextlib.closing(pymysql.connect(**arguments(url)[0])) as raw, raw.cursor() as cursor:
            views, triggers, _ = sql.split("UNION ALL ")
            behind = views.count("%s")
            cursor.execute("FLUSH STATUS")
            assert cursor.execute(triggers, row[behind : behind + triggers.count("%s")]) == 2
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_tmp_write'")
            assert cursor.fetchall()[0][1] == "2"  # rows that information_schema has made


# --- PostgreSQL reads by index before it has statistics of a table, which it collects a minute later --------------

KEYS = 3_000


def test_reads_go_by_index_on_postgresql() -> None:
    asked: list[tuple[str, tuple[object, ...]]] = []
    with servers.own_database("postgresql") as url:
        with roost.Store(url) as store:
            store.create(pageviews, visits, likes, baskets)
            leave_unanalyzed(url)
            store.run(pageviews.add_all({f"/{n}": 1 for n in range(KEYS)}))
            store.run(visits.push_all([Visit(n, n) for n in range(KEYS)]))
            store.run(likes.add_all([(n, "a") for n in range(KEYS)]))
            store.run(baskets.add_all([shapes.Egg(n, n) for n in range(KEYS)]))
        with roost.Store(url, trace=lambda sql, row: asked.append((sql, tuple(row)))) as store:
            store.run_all(*[pageviews.total(f"/{n}") for n in range(64)])
            store.run_all(*[visits.latest(n) for n in range(64)])
            store.run_all(*[visits.latest(n, n=2) for n in range(64)])
            store.run_all(*[likes.contains(n, "a") for n in range(64)])
            store.run_all(*[baskets.count(n) for n in range(64)])
            store.run_all(*[baskets.remove(n, n) for n in range(64)])
        reads = [(sql, row) for sql, row in asked if sql.startswith("SELECT") and "unnest" in sql]
        assert len(reads) >= 6
        with contextlib.closing(psycopg.connect(url)) as raw, raw.cursor() as cursor:
            for sql, row in reads:
                explain: Any = f"EXPLAIN {sql}"
                plan = "\n".join(line for (line,) in cursor.execute(explain, row).fetchall())
                assert "Seq Scan" not in plan, plan


def test_f96_a_hot_counter_is_not_slower_while_a_snapshot_is_held() -> None:
    """Each new entry of an index was compared with all entries that the snapshot kept of the key."""
    add = "roost_hot_add_all(ARRAY[0, 1, 2, 3, 4], ARRAY[1, 1, 1, 1, 1])"
    many = f"DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM {add}; COMMIT; END LOOP; END $$"
    with servers.own_database("postgresql") as url, roost.Store(url) as store:
        hot = roost.Counter("hot", key=int)
        store.create(hot)
        leave_unanalyzed(url)
        with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as raw:
            raw.execute("SET synchronous_commit = off")
            raw.execute("SELECT setseed(0.5)")
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT FROM roost_hot_rows")
            read = [0, 0]
            for part in range(2):
                raw.execute(many)
                for _ in range(200):
                    ((plan,),) = raw.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT {add}").fetchall()
                    read[part] += plan[0]["Plan"]["Shared Hit Blocks"]
        assert store.run(hot.totals(range(5))) == dict.fromkeys(range(5), 6_400)
        assert store.check() == []
        assert read[1] < 2 * read[0]


def test_what_is_over_is_found_by_index_on_postgresql() -> None:
    caches = [roost.Cache("plain"), roost.Cache("bounded", max_items=KEYS)]
    with servers.own_database("postgresql") as url:
        with roost.Store(url) as store:
            store.create(*caches)
            leave_unanalyzed(url)
            for cache in caches:
                store.run(cache.set_many({str(n): b"x" for n in range(1000)}, 60))
        with contextlib.closing(psycopg.connect(url)) as raw, raw.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")  # of what it would read from tables that are nearly empty
            for cache in caches:
                sweep: Any = f"SELECT {cache.name}_sweep(64)"
                cursor.execute(sweep)
                # What the program did is counted: EXPLAIN does not show it. One without bounds looks for values that
                # were stored anew first.
                over = 1 if cache.bounded else 2
                for relation, scans in (("rows", 0), ("over", over), ("leases", 0), ("leased", 1)):
                    counted = "SELECT pg_stat_get_xact_numscans(to_regclass(%s))"
                    cursor.execute(counted, (f"roost_{cache.name}_{relation}",))
                    assert cursor.fetchone() == (scans,), (cache.name, relation)


def test_a_sweep_does_not_pass_all_that_is_over_for_each_key_on_postgresql() -> None:
    ends = roost.Capped("ends", Visit, per="uid", keep=5, unique="visitor", keep_for=60)
    with servers.own_database("postgresql") as url:
        with roost.Store(url) as store:
            store.create(ends)
            leave_unanalyzed(url)
        with contextlib.closing(psycopg.connect(url)) as raw:
            some = "FROM generate_series(1, {}) i"
            raw.execute(f"INSERT INTO roost_ends_head SELECT i, 1, 1, 0 {some.format(KEYS)}")
            # Of fewer rows the planner would think otherwise.
            raw.execute(f"INSERT INTO roost_ends_rows SELECT i, i, 1, now(), 1 {some.format(40 * KEYS)}")
            passed = "SELECT pg_stat_get_xact_tuples_returned(to_regclass('roost_ends_over'))"
            ((before,),) = raw.execute(passed).fetchall()
            raw.execute("SELECT ends_sweep(16)")
            ((after,),) = raw.execute(passed).fetchall()
            assert after - before < KEYS


def test_tokens_that_are_over_are_found_by_index_on_postgresql() -> None:
    asked: list[str] = []
    with servers.own_database("postgresql") as url:
        with roost.Store(url, trace=lambda sql, _: asked.append(sql)) as store:
            store.create(pageviews, view=False)
            store.run(pageviews.add("/"), once="a")
        (sweep,) = [sql for sql in asked if "SKIP LOCKED" in sql and "roost_once" in sql]
        with contextlib.closing(psycopg.connect(url)) as raw:
            raw.execute("SET enable_seqscan = off")  # which it would be in a table that is nearly empty
            explain: Any = f"EXPLAIN {sweep}"
            assert "Index Cond: (until <= " in str(raw.execute(explain).fetchall())


def test_long_values_do_not_become_one_text_on_postgresql() -> None:
    # A text has them several times in memory, and libpq's buffer has an end at a gigabyte.
    lengths: list[int] = []

    def trace(_: str, row: Any) -> None:
        values = [each for given in row for each in (given if type(given) is list else [given])]
        lengths.append(sum([len(each) for each in values if isinstance(each, (str, bytes))]))

    long: Any = roost.Cache("long", key=int, value=roost.binary(700_000))
    with servers.own_database("postgresql") as url, roost.Store(url, trace=trace) as store:
        store.create(long)
        values = {n: bytes([n]) * 600_000 for n in range(11)}
        store.run(long.set_many(values))
        store.run_all(long.append(2, b"and more"), *[long.set(n, values[n]) for n in range(3, 11)])
        assert 600_000 < max(lengths) < 5_000_000
        assert store.run(long.get_many([2, 3, 10])) == {2: values[2] + b"and more", 3: values[3], 10: values[10]}
