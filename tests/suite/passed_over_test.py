"""MariaDB's information_schema passes over a table that is being altered, unless the session has read nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

import roost
from roost.databases.mariadb.address import arguments
from tests import servers
from tests.suite.shapes import Egg, baskets


@pytest.fixture
def url() -> Iterator[str]:
    with servers.database("mariadb") as found:
        yield found


@contextlib.contextmanager
def altered(url: str, table: str) -> Iterator[Callable[[], None]]:
    """Hold a table's lock as the end of an ALTER does, until what is given is called: by a RENAME that waits."""
    with contextlib.ExitStack() as stack:
        holds, renames, asks = [
            stack.enter_context(contextlib.closing(pymysql.connect(**arguments(url)[0]))) for _ in range(3)
        ]

        def say(connection: Any, sql: str) -> Any:
            cursor = connection.cursor()
            cursor.execute(sql)
            return cursor.fetchall()

        def rename() -> None:
            with pytest.raises(pymysql.MySQLError, match="interrupted"):
                say(renames, f"RENAME TABLE {table} TO roost_renamed, zz TO zz_renamed")

        say(holds, "CREATE OR REPLACE TABLE zz (id INT) ENGINE=InnoDB")
        say(holds, "SELECT * FROM zz")
        renaming: Any = renames
        number, thread = renaming.thread_id(), threading.Thread(target=rename)
        thread.start()
        while say(asks, f"SELECT state FROM information_schema.processlist WHERE id = {number}") != (
            ("Waiting for table metadata lock",),
        ):
            pass

        def end() -> None:
            if thread.is_alive():
                say(asks, f"KILL QUERY {number}")
                thread.join()

        try:
            yield end
        finally:
            end()


def test_an_index_that_is_opened_while_its_table_is_altered_can_be_modified(url: str) -> None:
    with contextlib.closing(pymysql.connect(**arguments(url)[0])) as connection:
        connection.cursor().execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, n BIGINT)")
    with altered(url, "stock") as end:

        def trace(sql: str, _: object) -> None:
            if "SHOW CREATE TABLE" in sql:  # it has been asked for the engine
                end()

        stock = roost.Index("stock", "PRIMARY", ["id", "n"])
        with roost.Store(url, trace=trace) as store:
            assert store.run_all(stock.insert((1, 2)), stock.increment("=", 1, (None, 3))) == (None, 1)
            assert store.run(stock.find("=", 1)) == [(1, 5)]


def test_what_is_made_is_not_taken_for_gone_while_its_table_is_altered(url: str) -> None:
    begun: list[str] = []
    with roost.Store(url) as store, roost.Store(url, timeout=1) as brief:
        store.create(baskets)
        store.run(baskets.add(Egg(1, 2)))
        for table in ("roost_baskets_rows", "baskets_in"):
            with altered(url, table) as end:
                for work in (lambda: brief.create(baskets), lambda: brief.alter(baskets, view=True), brief.check):
                    with pytest.raises(roost.Conflict, match=table):
                        work()
                end()
            assert store.check() == []
        with altered(url, "baskets_in") as end:

            def trace(sql: str, _: object) -> None:
                if "START TRANSACTION" in sql:
                    begun.append(sql)
                    if len(begun) == 2:  # it is repeated
                        end()

            begun.clear()
            with roost.Store(url, trace=trace) as other:
                assert other.check() == []
    assert len(begun) >= 2
