"""Galera, written on all nodes at once by clients that know nothing of Roost: those of SQL, and of HandlerSocket."""

from __future__ import annotations

import contextlib
import time
from collections import Counter as Totals
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pymysql
import pytest
from pymysql.err import MySQLError

import roost
from roost.databases.mariadb.address import arguments
from roost.databases.mariadb.errors import UNREAD
from tests.clusters import load
from tests.clusters.galera import Galera
from tests.lengths import length
from tests.server.serving import Client, serving

DEADLOCK, LOCK_WAIT_TIMEOUT = 1213, 1205
SECONDS = length(1.0, 5.0)
KINDS = ["both", *length([], ["sql", "handlersocket"])]
ROWS = range(1, 4)
TABLE = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, n BIGINT NOT NULL)"


class Tally:
    """What one client was answered."""

    def __init__(self, number: int) -> None:
        self.first = number * 10_000_000
        self.totals: Totals[str] = Totals()
        self.numbers: list[int] = []  # the keys that its rows were given
        self.sequences: list[tuple[int, int]] = []  # of the ring, by key
        self.refused: Totals[str] = Totals()


def by_sql(url: str, tally: Tally, end: float) -> None:
    """Write through the views, each row a transaction, again where the node has ended it or others held its rows."""
    with contextlib.closing(pymysql.connect(**arguments(url)[0], autocommit=True)) as raw, raw.cursor() as cursor:
        # A node that ends a transaction sometimes fails to, and all stand still for as long as it waits for a lock.
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
        for number in range(tally.first, tally.first + 1_000_000):
            if time.monotonic() > end:
                return
            key = number % 3
            for name, sql in (
                ("hot", f"INSERT INTO hot_in (`key`, total) VALUES ({key}, 1)"),
                ("ring", f"INSERT INTO ring_in (`key`, number) VALUES ({key}, {number})"),
                ("evicting", f"INSERT INTO evicting_in (`key`, number) VALUES ({key}, {number})"),
                ("members", f"INSERT INTO members_in (`key`, member) VALUES ({key}, {number})"),
            ):
                while True:
                    try:
                        cursor.execute(sql)
                    except MySQLError as error:
                        if UNREAD.search(str(error)):  # until it is flushed; a store does so by itself
                            cursor.execute("FLUSH LOCAL TABLES")
                        elif error.args[0] not in (DEADLOCK, LOCK_WAIT_TIMEOUT):
                            raise
                    else:
                        break
                tally.totals[f"{name} {key}"] += 1


def by_handlersocket(client: Client, database: str, tally: Tally, end: float) -> None:
    """Write an ordinary table by its key, and structures, several lines at once."""
    for number, (table, columns) in enumerate(
        (("t", "id,n"), ("hot", "key,total"), ("ring", "key,number"), ("evicting", "key,number"))
    ):
        assert client.ask(f"P\t{number}\t{database}\t{table}\tPRIMARY\t{columns}") == ["0\t1"]
    for number in range(tally.first, tally.first + 1_000_000):
        if time.monotonic() > end:
            return
        key = number % 3
        lines = {
            f"row {ROWS[key]}": f"0\t=\t1\t{ROWS[key]}\t1\t0\t+\t\0\t1",
            "new": "0\t+\t2\t\0\t7",
            f"hot {key}": f"1\t+\t2\t{key}\t1",
            f"ring {key}": f"2\t+\t2\t{key}\t{number}",
            f"evicting {key}": f"3\t+\t2\t{key}\t{number}",
        }
        for name, answer in zip(lines, client.ask(*lines.values()), strict=True):
            if name == "new" and answer.startswith("0\t1\t"):
                tally.numbers.append(int(answer.rpartition("\t")[2]))
            elif name.startswith("ring") and answer.startswith("0\t1\t"):
                tally.sequences.append((key, int(answer.rpartition("\t")[2])))
                tally.totals[name] += 1
            elif answer in ("0\t1", "0\t1\t1"):
                tally.totals[name] += 1
            else:
                tally.refused[answer] += 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_write_on_all_nodes_is_there_once(
    cluster: Galera, urls: list[str], tmp_path: Path, kind: str
) -> None:
    database = urls[0].rpartition("/")[2]
    with roost.Store(urls[0]) as store:
        store.create(*load.STRUCTURES)
    for sql in (TABLE, f"INSERT INTO t VALUES {', '.join(f'({id_}, 0)' for id_ in ROWS)}"):
        with contextlib.closing(pymysql.connect(**arguments(urls[0])[0], autocommit=True)) as raw:
            raw.cursor().execute(sql)
    cluster.wait()
    tallies: list[Tally] = []
    works: list[Callable[[float], None]] = []
    with contextlib.ExitStack() as stack:
        for node, url in enumerate(urls * 2):
            if kind != "handlersocket":
                tallies.append(Tally(len(tallies)))
                works.append(partial(by_sql, url, tallies[-1]))
            if kind != "sql":
                folder = tmp_path / str(node)
                folder.mkdir()
                served = serving(folder, url, "--workers", "1", "--timeout", "60", module="roost.cli")
                client = stack.enter_context(stack.enter_context(served).connect("write"))
                tallies.append(Tally(len(tallies)))
                works.append(partial(by_handlersocket, client, database, tallies[-1]))
        end = time.monotonic() + SECONDS
        with ThreadPoolExecutor(len(works)) as threads:
            for each in [threads.submit(work, end) for work in works]:
                each.result()
    cluster.wait()
    totals: Totals[str] = Totals()
    for tally in tallies:
        totals.update(tally.totals)
    assert not sum([tally.refused for tally in tallies], Totals())
    assert totals.total() > 100
    sequences = [each for tally in tallies for each in tally.sequences]
    assert len(sequences) == len(set(sequences))
    for url in urls:
        with roost.Store(url) as store:
            assert store.check() == []
            for key in load.KEYS:
                assert store.run(load.hot.total(key)) == totals[f"hot {key}"]
                assert store.run(load.ring.entries(key))[-1].sequence == totals[f"ring {key}"]
                assert store.run(load.evicting.entries(key))[-1].sequence == totals[f"evicting {key}"]
                assert store.run(load.members.size(key)) == totals[f"members {key}"]
        with contextlib.closing(pymysql.connect(**arguments(url)[0])) as raw, raw.cursor() as cursor:
            cursor.execute("SELECT id, n FROM t ORDER BY id")
            rows = dict(cursor.fetchall())
        assert {id_: rows.pop(id_) for id_ in ROWS} == {id_: totals[f"row {id_}"] for id_ in ROWS}
        assert sorted(rows) == sorted([number for tally in tallies for number in tally.numbers])
