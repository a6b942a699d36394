"""MariaDB: what a setting of the server, or of a session, once changed; each by itself."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

import roost
from roost.databases.mariadb.statements import judge, looked_at, own, question
from roost.dialects import MARIADB, MYSQL
from tests.strange import behaviour
from tests.strange.mariadb import Client, connection, default_mode, strange
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

INJECTED = "x\\' UNION SELECT 1,2 -- "
ODD = ["a\\b", INJECTED, "", "\\", "\0", "it's"]


@pytest.fixture
def url() -> Iterator[str]:
    with strange({}) as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A connection of the application's, in a transaction."""
    with connection(url, autocommit=False) as found:
        yield found


def test_f1_the_first_text_of_a_connection_is_right_in_every_sql_mode() -> None:
    with strange({"sql_mode": f"{default_mode()},NO_BACKSLASH_ESCAPES"}) as url:
        for n, text in enumerate(ODD):
            with roost.Store(url) as store:  # the reader connects with what the writer has learned of the catalog
                store.create(pageviews)
                store.run(pageviews.add(text))
                assert store.run(pageviews.total(text)) == 1, text
                assert len(store.run(pageviews.top(100))) == n + 1


def test_f1_the_first_text_behind_a_reconnect_is_right_in_every_sql_mode() -> None:
    with strange({"sql_mode": f"{default_mode()},NO_BACKSLASH_ESCAPES"}) as url, roost.Store(url) as store:
        store.create(pageviews)
        store.run_all(pageviews.add("/"))
        store.run(pageviews.total("/"))
        with connection(url) as killer:
            for text in ODD:
                for (number,) in killer.read("SELECT id FROM information_schema.processlist WHERE db = DATABASE()"):
                    if number != killer.number:
                        killer.read(f"KILL {number}")
                store.run(pageviews.add(text))
                assert store.run(pageviews.total(text)) == 1, text
        assert store.run(pageviews.totals(ODD)) == dict.fromkeys(ODD, 1)


def test_f1_a_default_and_what_is_made_of_an_enum_are_right_in_every_sql_mode() -> None:
    class Path(enum.Enum):
        ROOT = "C:\\"
        QUOTED = "\\'"

    before: Any = dataclasses.make_dataclass("Row", [("uid", int)])
    after: Any = dataclasses.make_dataclass(
        "Row", [("uid", int), ("path", Path, Path.QUOTED), ("note", str, "a\\' b"), ("empty", str, "")]
    )
    for mode in ("NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL", ""):
        with strange({"sql_mode": mode}) as url, roost.Store(url) as store, connection(url) as client:
            store.create(roost.Ring("rows", before, per="uid", keep=3))
            store.run(roost.Ring("rows", before, per="uid", keep=3).push(before(1)))
            ring = roost.Ring("rows", after, per="uid", keep=3)
            store.alter(ring)
            assert store.run(ring.latest(1)) == [after(1)]
            client.insert("rows", {"uid": 1, "path": "C:\\", "note": "x", "empty": "y"})
            with pytest.raises(pymysql.MySQLError, match=r"rows\.path: it takes"):
                client.insert("rows", {"uid": 1, "path": "D:\\", "note": "x", "empty": "y"})
            assert store.run(ring.latest(1, 1)) == [after(1, Path.ROOT, "x", "y")]
            assert store.check() == []


def test_f3_a_limit_for_selects_cuts_nothing() -> None:
    with strange({"sql_select_limit": 2}) as url, roost.Store(url) as store:
        store.create(likes, baskets)
        store.run_all(likes.add(1, *"abcdefghij"), *[baskets.add(Egg(1, n)) for n in range(8)])
        assert store.run(likes.members(1)) == set("abcdefghij")
        with connection(url, autocommit=False) as client:
            joined = store.on(client)
            assert joined.run(likes.members(1)) == set("abcdefghij")
            assert joined.run_all(*[baskets.remove(1, n) for n in range(8)]) == (True,) * 8
            client.rollback()
        assert store.run_all(*[baskets.remove(1, n) for n in range(8)]) == (True,) * 8
        assert store.check() == []


def test_f3_a_limit_set_by_the_caller_cuts_only_what_is_theirs(url: str, client: Client) -> None:
    with roost.Store(url) as store:
        store.create(likes)
        store.run(likes.add(1, *"abcdef"))
        client.read("SET sql_select_limit = 2")
        assert store.on(client).run(likes.members(1)) == set("abcdef")
        assert client.read("SELECT @@sql_select_limit, (SELECT count(*) FROM likes)") == ((2, 6),)
        assert len(client.read("SELECT * FROM likes")) == 2


def test_f4_an_empty_text_on_a_caller_s_connection_is_no_null(url: str, client: Client) -> None:
    row: Any = dataclasses.make_dataclass("Row", [("uid", int), ("note", str | None, None)])
    ring = roost.Ring("notes", row, per="uid", keep=5)
    with roost.Store(url) as store:
        store.create(ring)
        client.read("SET sql_mode = 'EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES'")
        store.on(client).run_all(ring.push(row(1, "")), ring.push(row(1, None)), ring.push(row(1, INJECTED)))
        client.commit()
        assert store.run(ring.latest(1)) == [row(1, INJECTED), row(1, None), row(1, "")]


@contextlib.contextmanager
def held(url: str) -> Iterator[None]:
    """Hold the lock of a ring's key meanwhile: however it ends, since nobody drops the database before."""
    with connection(url, autocommit=False) as other:
        other.read("SELECT * FROM roost_visits_head WHERE uid = 1 FOR UPDATE")
        yield


def test_f14_no_lock_wait_does_not_wait_a_second(url: str) -> None:
    with roost.Store(url, lock_wait=0, timeout=0.05) as store:
        store.create(visits)
        store.run(visits.push(Visit(1, 1)))
        began = time.monotonic()
        with held(url):
            for n in range(30):
                with pytest.raises(roost.Busy, match=r"another transaction holds a lock|max_statement_time"):
                    store.run(visits.push(Visit(1, n)))
        assert time.monotonic() - began < 30  # a second for each, at least, if the server waited
        assert store.run(visits.push(Visit(1, 2))) == 2
        assert store.check() == []


def test_f15_a_slow_disk_splits_no_batch_and_is_no_lock(url: str) -> None:
    async def many() -> roost.Stats:
        async with roost.AsyncStore(url, lock_wait=0.02, timeout=30) as store:
            await store.run(pageviews.add("/"))
            await asyncio.gather(*[store.run(pageviews.add(f"/{n}")) for n in range(16)])
            return store.stats()

    with roost.Store(url) as store, connection(url) as client:
        store.create(pageviews, view=False)
        store.run(pageviews.add("/"))
        client.read("CREATE TRIGGER slow BEFORE INSERT ON roost_pageviews_rows FOR EACH ROW DO SLEEP(0.02)")
        stats = asyncio.run(many())
        assert stats.waits == 0
        assert (
            stats.retries <= stats.batches <= 4
        )  # a call that the limit interrupts is undone as a whole, and run again
        assert store.run(pageviews.total("/7")) == 1


def test_f15_a_lock_is_told_from_slowness(url: str) -> None:
    with roost.Store(url, lock_wait=0.02, timeout=1) as store:
        store.create(visits)
        store.run(visits.push(Visit(1, 1)))
        with held(url), pytest.raises(roost.Busy, match=r"another transaction holds a lock|max_statement_time"):
            store.run(visits.push(Visit(1, 2)))
        assert store.run(visits.push(Visit(1, 2))) == 2


def test_f15_a_limit_of_the_caller_s_is_called_by_its_name(url: str, client: Client) -> None:
    with roost.Store(url) as store, connection(url) as other:
        store.create(pageviews, view=False)
        other.read("CREATE TRIGGER slow BEFORE INSERT ON roost_pageviews_rows FOR EACH ROW DO SLEEP(5)")
        client.read("SET max_statement_time = 0.05")
        with pytest.raises(roost.Busy, match="max_statement_time"):
            store.on(client).run(pageviews.add("/"))


@pytest.mark.parametrize(
    "settings",
    [{"completion_type": "CHAIN"}, {"completion_type": "RELEASE"}, {"sql_safe_updates": 1}, {"autocommit": 0}],
    ids=lambda settings: "mariadb-" + "-".join(settings),
)
def test_f22_settings_that_made_operations_fail(settings: dict[str, Any]) -> None:
    with strange(settings) as url, roost.Store(url) as store:
        store.create(pageviews, visits, baskets, likes)
        for n in range(15):
            store.run_all(pageviews.add("/"), visits.push(Visit(1, n)), baskets.add(Egg(1, n)), likes.add(1, f"{n}"))
            store.run(baskets.latest(1))
        store.run_all(pageviews.clear("/"), visits.clear(1), likes.remove(1, "3"), baskets.remove(1, 14))
        with connection(url, autocommit=False) as client:
            store.on(client).run_all(visits.clear(1), likes.clear(1), baskets.clear(1), pageviews.add("/"))
            client.commit()
        assert store.run_all(pageviews.total("/"), baskets.count(1), likes.size(1)) == (1, 0, 0)
        assert store.check() == []


def test_f22_ties_of_texts_that_a_sort_takes_for_equal_are_in_order(url: str, client: Client) -> None:
    long = "é" * 600  # a sort looks at 1,024 bytes unless told otherwise
    counter = roost.Counter("ties", key=roost.text(700))
    keys = ["", "\0", "\0\0", "x", "x\0", "x\0\0", "é", long + "a", long + "b", long + "c"]
    with roost.Store(url) as store:
        store.create(counter)
        for key in [*reversed(keys[::2]), *keys[1::2]]:
            store.run(counter.add(key))
        ordered = [(key, 1) for key in sorted(keys)]
        assert store.run(counter.top(20)) == ordered
        assert store.on(client).run(counter.top(20)) == ordered


def test_check_tells_in_words_on_a_connection_of_any_sql_mode(url: str) -> None:
    # What is told is put together by SQL, and || is OR unless sql_mode says otherwise.
    with roost.Store(url) as store, connection(url) as client:
        store.create(likes)
        store.run(likes.add(1, "a"))
        client.read("UPDATE roost_likes_head SET n = 7")
        (violation,) = store.check()
        assert violation.detail == "the head says 7, there are 1"


class Raw:
    """A connection of the application's, as far as it is looked at."""

    def thread_id(self) -> int:
        return 1


def test_the_settings_of_a_caller_on_mysql_are_looked_at_before_every_call() -> None:
    raw = Raw()
    names = [each.name for each in looked_at(MYSQL)]
    assert names[:2] == ["sql_select_limit", "sql_safe_updates"]
    right = [2**64 - 1, 0, "utf8mb4", "utf8mb4", "utf8mb4"]
    judge(raw, MYSQL, right, "store.on")
    assert question(raw, MYSQL) == "SELECT " + ", ".join(f"@@SESSION.{name}" for name in names)
    with pytest.raises(roost.Invalid, match="sql_select_limit of the connection is 5"):
        judge(raw, MYSQL, [5, *right[1:]], "store.on")
    judge(raw, MARIADB, right[2:], "store.on")
    assert question(raw, MARIADB) == ""
    assert "max_statement_time" in own("mariadb")
    assert "max_statement_time" not in own("mysql")


@dataclasses.dataclass
class Long:
    uid: int
    text: str


def test_a_statement_that_is_too_large_for_the_server_is_refused_before_it_costs_the_connection() -> None:
    """A backslash makes a literal twice as long, and a character may have four bytes."""
    long = roost.Ring("long", Long, per="uid", keep=3)
    with strange({"max_allowed_packet": 4 * 2**20}) as url, roost.Store(url) as store:
        store.create(long)
        with pytest.raises(roost.Invalid, match="max_allowed_packet of the server is 4,194,304"):
            store.run(long.push(Long(1, "\N{GRINNING FACE}" * 999_999 + "\\")))
        store.run(long.push(Long(1, "\N{GRINNING FACE}" * 999_999)))
        assert len(store.run(long.latest(1))) == 1


class Mood(enum.Enum):
    UP = "\N{THUMBS UP SIGN}"
    TABBED = "a\tb\n;"
    DEAR = "$roost$ 5; SELECT"  # which ended a dollar quote


@dataclasses.dataclass
class Vote:
    uid: int
    mood: Mood


def test_programs_and_views_may_have_odd_literals(server_url: str) -> None:
    votes = roost.Ring("votes", Vote, per="uid", keep=3)
    with roost.Store(server_url) as store:
        store.create(votes)
        for mood in Mood:
            store.run(votes.push(Vote(1, mood)))
        assert store.run(votes.latest(1)) == [Vote(1, mood) for mood in reversed(Mood)]
        assert store.check() == []


def test_where_names_are_lower_case_a_capped_table_is_found_by_the_name_it_was_made_with() -> None:
    with strange({}, ("--lower-case-table-names=1",)) as url, connection(url) as application:
        behaviour.capped_table(url, application.read, "Posts", "BIGINT AUTO_INCREMENT PRIMARY KEY")


def test_a_server_that_prepares_nothing_is_told_all_of_it_each_time() -> None:
    with strange({"max_prepared_stmt_count": 0}) as url, roost.Store(url) as store:
        store.create(visits)
        for n in range(20):
            assert store.run(visits.push(Visit(1, n))) == n + 1
            assert store.run(visits.latest(1, 1)) == [Visit(1, n)]
        assert store.stats().retries == 0


def test_a_session_whose_transactions_only_read_is_told_so(url: str) -> None:
    with roost.Store(url) as store:
        store.create(pageviews)
    with roost.Store(f"{url}?init_command=SET%20SESSION%20TRANSACTION%20READ%20ONLY") as store:
        assert store.run(pageviews.total("/")) == 0
        for _ in range(2):
            with pytest.raises(roost.ReadOnly):
                store.run_all(pageviews.add("/"))


def test_many_bytes_are_stored_where_the_texts_of_a_database_are_utf16() -> None:
    # In its character set, their digits were no hexadecimal ones to UNHEX: NULL was stored.
    pages = roost.Cache("pages", value=bytes)
    with strange({}, charset="CHARACTER SET utf16") as url, roost.Store(url) as store:
        store.create(pages)
        values = {str(n): bytes([n]) for n in range(20)}
        store.run(pages.set_many(values))
        assert store.run(pages.get_many(values)) == values


def test_many_long_values_are_stored_where_each_of_them_can_be() -> None:
    # As JSON in hexadecimal, each of their characters took twelve bytes: `set_many` was refused for its size.
    pages = roost.Cache("pages", value=roost.text(600_000))
    with strange({"max_allowed_packet": 2**22}) as url, roost.Store(url) as store:
        store.create(pages)
        values = {"/": "\x01" * 600_000, "/x": "\x02" * 600_000, "/y": "y"}
        store.run(pages.set_many(values))
        assert store.run(pages.get_many(values)) == values
