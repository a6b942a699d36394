"""What SQL clients see of a structure on MariaDB and MySQL while it is altered, and after one that was cut short."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import pymysql
import pytest

import roost
from roost.catalog.catalog import drop
from roost.databases.mariadb.address import arguments
from roost.structures.making import all_programs
from roost.structures.words.mysql import MySQLWords
from tests import servers
from tests.campaigns.processes import until
from tests.lengths import WHOLE, length
from tests.proxy import Cut, Proxy
from tests.suite import clients
from tests.suite.clients import is_mariadb
from tests.suite.shapes import Egg

PATIENCE = 60.0
OWN = "CREATE TRIGGER mine AFTER INSERT ON baskets_in FOR EACH ROW INSERT INTO audit VALUES (NEW.egg)"


@dataclass
class LongEgg:
    basket: int
    egg: int
    colour: str = "white"
    note: str | None = None


@dataclass
class LongerEgg(LongEgg):
    sold: int | None = None


def capped(row: type[Any] = Egg, **options: Any) -> Any:
    return roost.Capped("baskets", row, **{"per": "basket", "keep": 5, "unique": "egg", **options})


@pytest.fixture(params=["mariadb", "mysql"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with servers.own_database(request.param) as found:
        yield found


def dropped(store: roost.Store, structure: Any) -> None:
    core = store._core
    core.exclusive(drop(core.known.catalog, [core.known.plan(structure)]))


def made(url: str, structure: Any) -> None:
    with roost.Store(url) as store:
        store.create(structure)
    with closing(clients.connect(url)) as sql:
        sql.execute("CREATE TABLE audit (egg BIGINT)")
        sql.execute(OWN)


def is_whole(store: roost.Store, sql: Any, structure: Any) -> None:
    """The structure is as declared, and SQL clients can write and read it, by the application's own trigger too."""
    assert store.check() == []
    store.run(structure.clear(77))
    names = [column.name for column in structure.columns]
    values = ", ".join({"basket": "77", "egg": "1"}.get(name, "'1'") for name in names)
    before = sql.execute("SELECT COUNT(*) FROM audit").fetchone()[0]
    sql.execute(f"INSERT INTO baskets_in ({', '.join(names)}) VALUES ({values})")
    assert sql.execute("SELECT COUNT(*) FROM audit").fetchone()[0] == before + 1
    assert sql.execute(f"SELECT {', '.join(names)} FROM baskets WHERE basket = 77").fetchall()
    sql.execute("INSERT INTO baskets_out (basket, egg) VALUES (77, 1)")
    assert store.run(structure.count(77)) == 0


PAIRS: dict[str, tuple[Any, Any]] = {
    "options": (capped(), capped(on_duplicate="refresh", keep=3)),
    "column": (capped(LongEgg), capped(LongerEgg, keep=6, on_full="reject")),
}


WRITES = re.compile("ALTER|CREATE|DROP|RENAME|INSERT|UPDATE|DELETE|COMMIT|SELECT GET_LOCK")


# What is cut short, and where; a cut behind a statement leaves what one before the next leaves, so that in the short
# form, too, each change is cut short between any two statements, on the one server or on the other.
STEP = length(2, 1)
EVERY = list(product(["mariadb", "mysql"], PAIRS, (Cut.BEFORE, Cut.AFTER)))
PAIRED = [
    ("mariadb", "options", Cut.BEFORE), ("mariadb", "column", Cut.AFTER),
    ("mysql", "options", Cut.AFTER), ("mysql", "column", Cut.BEFORE),
]  # fmt: skip


@pytest.mark.parametrize(("url", "pair", "cut"), EVERY if WHOLE else PAIRED, indirect=["url"])
def test_f39_an_alter_that_is_cut_short_anywhere_can_be_done_again(url: str, pair: str, cut: Cut) -> None:
    old, new = PAIRS[pair]
    made(url, old)
    cuts = -1
    found: set[str] = set()
    with Proxy(int(url.rpartition("@")[2].partition(":")[2].partition("/")[0])) as proxy:
        while cuts < len(found):
            cuts, found = len(found), altered_and_cut(proxy, url, new, cut, found)
            with roost.Store(url, timeout=PATIENCE) as store, closing(clients.connect(url)) as sql:
                with nullcontext() if is_mariadb(sql) else suppress(pymysql.OperationalError):  # they never are gone
                    sql.execute("INSERT INTO baskets_in (basket, egg, colour) VALUES (1, 1, 'red')")
                    assert sql.execute("SELECT * FROM baskets LIMIT 1").fetchall()  # what is taken is stored
                    sql.execute("INSERT INTO baskets_out (basket, egg) VALUES (1, 1)")
                if not store.check():
                    is_whole(store, sql, new if store.structures() == [new] else old)
                store.alter(new)
                is_whole(store, sql, new)
                if old.columns == new.columns:
                    store.alter(old)
                else:
                    dropped(store, new)
                    sql.execute("DROP TABLE audit")
                    made(url, old)
    assert cuts > 3


def altered_and_cut(proxy: Proxy, url: str, new: Any, cut: Cut, before: set[str]) -> set[str]:
    """Alter, and cut the connection at a statement that writes and at which it was not yet cut, or has gone by."""
    found, armed = set(before), False

    def trace(sql: str, _: Any) -> None:
        nonlocal armed
        if not armed and sql not in found and WRITES.match(sql):
            found.add(sql)
            armed = len(found) % STEP == 0
            if armed:
                proxy.arm(0, cut)

    try:
        with roost.Store(proxy.url(url), timeout=0, trace=trace) as store:
            store.alter(new)
    except (roost.ConnectionLost, roost.OutcomeUnknown):
        assert len(found) > len(before)
    return found


def test_programs_of_a_former_version_or_declaration_go_once_nothing_calls_them(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def programs() -> set[str]:
        with closing(clients.connect(url)) as sql:
            query = (
                "SELECT routine_name FROM information_schema.routines WHERE routine_comment LIKE 'a program, made by%'"
            )
            return {name for (name,) in sql.execute(f"{query} AND routine_schema = DATABASE()").fetchall()}

    former, same, new = capped(LongEgg), capped(LongEgg), capped(LongerEgg, keep=3)
    with roost.Store(url) as before, roost.Store(url) as store:
        with monkeypatch.context() as version:
            version.setattr(MySQLWords, "at", f"{MySQLWords.at} /* as before */")
            before.create(former)
        store.create(same)
        before.run(former.add(LongEgg(1, 1)))
        store.run(same.add(LongEgg(1, 2)))
        store.alter(new)
        store.run_all(*[same.add(LongEgg(1, n)) for n in range(3, 6)], new.add(LongerEgg(1, 6)))
        assert store.run(new.count(1)) == 3
        plan = store._core.known.plan(new)
        assert programs() == {each.name for each in all_programs(plan, [same.definition])}
        assert store.check() == []
        store.drop(new)
        assert programs() == set()


def test_f39_sql_clients_do_not_notice_an_alter(url: str) -> None:
    made(url, capped(LongEgg))
    errors: list[Exception] = []
    done = [0]
    end = threading.Event()

    def client() -> None:
        with closing(clients.connect(url)) as sql:
            n = 0
            while not end.is_set():
                n += 1
                try:
                    sql.execute(f"INSERT INTO baskets_in (basket, egg, colour) VALUES (1, {n}, 'red')")
                    sql.execute("SELECT basket, egg, colour FROM baskets WHERE basket = 1").fetchall()
                    sql.execute(f"INSERT INTO baskets_out (basket, egg) VALUES (1, {n - 2})")
                except Exception as error:
                    errors.append(error)
                done[0] = n

    thread = threading.Thread(target=client)
    thread.start()
    try:
        with roost.Store(url, timeout=PATIENCE) as store:
            for declared in (
                capped(LongEgg, keep=9),
                capped(LongEgg, keep=2),
                capped(LongEgg, keep=2, on_duplicate="refresh"),
                capped(LongerEgg, keep=4),
            ):
                store.alter(declared)
                wanted, until = done[0] + 10, time.monotonic() + PATIENCE
                while done[0] < wanted:
                    assert time.monotonic() < until
                    time.sleep(0.01)
            assert store.check() == []
    finally:
        end.set()
        thread.join(PATIENCE)
    told = {1213} if servers.kind_of(url) == "mysql" else set()  # it cannot replace a trigger
    assert [error for error in errors if error.args[0] not in told] == []
    with roost.Store(url) as store, closing(clients.connect(url)) as sql:
        is_whole(store, sql, capped(LongerEgg, keep=4))


def test_an_alter_waits_for_whoever_removes_rows_and_is_in_nobodys_way(url: str) -> None:
    made(url, capped())
    with closing(clients.connect(url)) as client, closing(clients.connect(url)) as watch:
        for basket in (0, 1):
            for egg in range(1, 6):
                client.execute(f"INSERT INTO baskets_in (basket, egg, colour) VALUES ({basket}, {egg}, 'red')")
        client.execute("BEGIN")
        client.execute("INSERT INTO baskets_out (basket, egg) VALUES (1, 99)")  # which is not there
        with roost.Store(url, timeout=PATIENCE) as store, ThreadPoolExecutor() as pool:
            altered = pool.submit(store.alter, capped(keep=2))
            waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
            until(lambda: watch.execute(waits).fetchone()[1] != "0", "the alter waits")
            client.execute("INSERT INTO baskets_out (basket, egg) VALUES (1, 1)")  # of which it would delete some
            client.execute("COMMIT")
            assert altered.result(PATIENCE) == ["keep: 5 -> 2"]
            assert store.check() == []
            assert [entry.row.egg for entry in store.run(capped(keep=2).entries(1))] == [4, 5]


def test_f39_an_idle_transaction_that_has_read_holds_up_a_column_and_nothing_is_done(url: str) -> None:
    old, longer = capped(LongEgg), capped(LongerEgg)
    made(url, old)
    with closing(pymysql.connect(**arguments(url)[0])) as idle, idle.cursor() as cursor:
        cursor.execute("SELECT * FROM baskets")
        with roost.Store(url, timeout=1.0) as store:
            assert store.alter(capped(LongEgg, keep=3)) == ["keep: 5 -> 3"]  # it changes no table
            with pytest.raises(roost.Busy):
                store.alter(longer)
            with closing(clients.connect(url)) as sql:
                is_whole(store, sql, capped(LongEgg, keep=3))
    with roost.Store(url) as store, closing(clients.connect(url)) as sql:
        store.alter(longer)
        is_whole(store, sql, longer)
