"""Many rows of one key by one statement of a SQL client: the work grows with the rows, not with their square (F95).

Each row changes what the one before has left, and the dead versions of a transaction stay until it ends. (A ring with
`keep_for` is not here: on PostgreSQL each overwritten row gets entries in its indexes, and to see that the slot is not
taken twice, the server passes those of before, 1/`keep` of all rows.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.boundaries import Egg
from tests.suite.clients import Client, numbers
from tests.suite.shapes import Visit
from tests.suite.unanalyzed_test import leave_unanalyzed

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
    more = pages(sql, store_url, structure.name, 3, 4 * few)
    assert more < most * some
