"""PostgreSQL reads by index before it has statistics of a table too, which it collects by itself a minute later."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg

import roost
from tests import servers
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

KEYS = 3_000


def leave_unanalyzed(url: str) -> None:
    """Keep autovacuum away, which may come between: of the rows that it has counted a scan is as good for 64."""
    with psycopg.connect(url) as raw:
        tables = raw.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in tables.fetchall():
            raw.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")


def test_reads_go_by_index_on_postgresql() -> None:
    asked: list[tuple[str, tuple[object, ...]]] = []
    with servers.own_database("postgresql") as url:
        with roost.Store(url) as store:
            store.create(pageviews, visits, likes, baskets)
            leave_unanalyzed(url)
            store.run(pageviews.add_all({f"/{n}": 1 for n in range(KEYS)}))
            store.run(visits.push_all([Visit(n, n) for n in range(KEYS)]))
            store.run(likes.add_all([(n, "a") for n in range(KEYS)]))
            store.run(baskets.add_all([Egg(n, n) for n in range(KEYS)]))
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
