"""Inside Django's transaction: a TestCase, in which everything is rolled back at the end."""

from __future__ import annotations

import datetime as dt
import sys
import threading
import uuid
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

import roost
from tests.contrib.site.pages.models import Page
from tests.contrib.site.pages.structures import (
    ALL,
    Everything,
    Item,
    Mood,
    Visit,
    carts,
    everything,
    likes,
    pageviews,
    store,
    visits,
)
from tests.contrib.site.test_batches import OnCommitRules

MOST = 2**63 - 1


def adds(sql: str) -> bool:
    """Whether a statement adds to the counter: a call of its program, on SQLite the program's own statement."""
    return "pageviews_add" in sql or "INSERT INTO roost_pageviews_rows" in sql


class Checked(TestCase):
    def tearDown(self) -> None:
        self.assertEqual(store.check(*ALL), [])
        super().tearDown()


class JoinedTests(Checked):
    def test_one_test_leaves_nothing_to_the_next(self) -> None:
        self.assertEqual(store.run_all(pageviews.total("/"), likes.size(1)), (0, 0))
        store.run_all(pageviews.add("/"), likes.add(1, "a"))
        self.assertEqual(store.run_all(pageviews.total("/"), likes.size(1)), (1, 1))

    def test_and_neither_does_the_next(self) -> None:
        self.test_one_test_leaves_nothing_to_the_next()

    def test_f115_a_token_is_rolled_back_with_the_test(self) -> None:
        for _ in range(2):
            store.run(pageviews.add("/"), once="a webhook")
        self.assertEqual(store.run(pageviews.total("/")), 1)

    def test_f115_and_counts_in_the_next_one(self) -> None:
        self.test_f115_a_token_is_rolled_back_with_the_test()

    def test_every_structure(self) -> None:
        pushed = [visits.push(Visit(1, n)) for n in range(1, 8)]
        self.assertEqual(store.run_all(*pushed), (1, 2, 3, 4, 5, 6, 7))
        self.assertEqual([row.visitor for row in store.run(visits.latest(1))], [7, 6, 5, 4, 3])
        self.assertEqual([each.sequence for each in store.run(visits.entries(1, after=4))], [5, 6, 7])
        self.assertEqual(store.run_all(likes.add(1, "a", "b"), likes.remove(1, "a"), likes.members(1)), (2, 1, {"b"}))
        store.run_all(carts.add(Item(1, 1)), carts.add(Item(1, 2)))
        self.assertEqual(store.run_all(carts.remove(1, 1), carts.count(1), carts.clear(1)), (True, 1, 1))
        store.run_all(*[pageviews.add(key, n) for n, key in enumerate(["/a", "/b", "/a"])])
        self.assertEqual(store.run(pageviews.top(2)), [("/a", 2), ("/b", 1)])
        self.assertEqual(store.run_all(*[each.keys() for each in ALL]), (["/a", "/b"], [1], [1], [1], []))

    def test_every_type_comes_back_as_it_went(self) -> None:
        row = Everything(
            "100 %s ? 'a' \\ \U0001f426", 0.1, True, b"\x00\xff%s", dt.datetime(2026, 11, 1, 5, 30, 1, 7, dt.UTC),
            dt.date(2026, 1, 2), Decimal("-1234567890.12"), uuid.UUID(int=2**127 + 1), Mood.BAD,
        )  # fmt: skip
        other = Everything(
            row.key, -0.0, False, b"", dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.date(9999, 12, 31), Decimal("0.01"),
            uuid.UUID(int=0), Mood.GOOD, "",
        )  # fmt: skip
        store.run_all(everything.add(row), everything.add(other), everything.add(row))
        self.assertEqual(store.run(everything.latest(row.key)), [row, other])
        self.assertEqual(store.run(everything.get(row.key, row.a_uuid)), row)
        at = store.run(everything.entries(row.key))[0].at
        self.assertLess(abs(dt.datetime.now(dt.UTC) - at), dt.timedelta(minutes=1))

    def test_what_fails_leaves_the_block_usable_and_nothing_of_itself(self) -> None:
        before = list(connection.savepoint_ids)
        store.run(carts.add(Item(1, 1)))
        failing: list[tuple[type[roost.Error], list[Any]]] = [
            (roost.Duplicate, [carts.add(Item(1, 2)), carts.add(Item(1, 1))]),
            (roost.Full, [carts.add(Item(1, n)) for n in range(2, 9)]),
            (roost.Overflow, [pageviews.add("/x"), pageviews.add("/x", MOST)]),
            (roost.Missing, [pageviews.add("/x"), roost.Counter("nowhere").add("a")]),
            (roost.Mismatch, [pageviews.add("/x"), roost.Counter("pageviews", key=int).add(1)]),
        ]
        for error, operations in failing:
            with self.subTest(error.__name__):
                with self.assertRaises(error):
                    store.run_all(*operations)
                self.assertFalse(connection.needs_rollback)
                self.assertEqual(connection.savepoint_ids, before)
                Page.objects.create(name="still usable")
        self.assertEqual(store.run_all(carts.count(1), pageviews.total("/x")), (1, 0))
        self.assertEqual(Page.objects.count(), len(failing))

    def test_f91_a_call_whose_modification_fails_leaves_nothing_of_itself(self) -> None:
        table = Page._meta.db_table
        if connection.vendor == "sqlite":  # where a savepoint is set for a table that has a trigger
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TRIGGER seen AFTER INSERT ON {table} BEGIN SELECT 1; END")
        pages = roost.Index(table, columns=["id", "name"])
        with self.assertRaises(roost.StatementFailed):
            store.run_all(pageviews.add("/"), *[pages.insert((7, name)) for name in ("one", "again")])
        self.assertFalse(connection.needs_rollback)
        self.assertEqual(store.run_all(pageviews.total("/"), pages.find(">=", 0)), (0, []))
        self.assertEqual(store.run_all(pages.insert((8, "eight")), pages.find("=", 8)), (0, [(8, "eight")]))

    def test_f18_what_the_database_refuses_is_an_error_of_roosts(self) -> None:
        store.run(pageviews.add("/", MOST))
        with self.assertRaises(roost.Overflow):
            store.run(pageviews.add("/"))
        with self.assertRaises(roost.Missing) as missing:
            store.run(roost.Counter("nowhere").add("/"))
        self.assertIn("nowhere is not in this database; `manage.py migrate` makes it", str(missing.exception))
        store.run_all(pageviews.add("/", 5), pageviews.add("/", -6))  # which fits in the end
        self.assertEqual(store.run(pageviews.total("/")), MOST - 1)

    def test_it_goes_with_the_block_that_it_is_in(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Page.objects.create(name="lost")
            store.run(pageviews.add("/"))
            raise ZeroDivisionError
        with transaction.atomic():
            Page.objects.create(name="kept")
            store.run(pageviews.add("/", 2))
        self.assertEqual(store.run(pageviews.total("/")), 2)
        self.assertEqual([page.name for page in Page.objects.all()], ["kept"])

    def test_a_block_that_is_to_be_rolled_back_takes_nothing_more(self) -> None:
        with transaction.atomic():
            transaction.set_rollback(True)
            with self.assertRaises(TransactionManagementError):
                store.run(pageviews.add("/"))
            with self.assertRaises(TransactionManagementError):
                store.run(pageviews.total("/"))
        self.assertEqual(store.run(pageviews.total("/")), 0)

    def test_an_error_of_djangos_own_in_the_same_block(self) -> None:
        store.run(pageviews.add("/"))
        page = Page.objects.create(name="a")
        with self.assertRaises(IntegrityError), transaction.atomic():
            store.run(pageviews.add("/"))
            Page.objects.create(pk=page.pk, name="b")
        self.assertEqual(store.run(pageviews.total("/")), 1)

    def test_django_sees_the_statements(self) -> None:
        with CaptureQueriesContext(connection) as queries:
            store.run(pageviews.add("/100 %s?"))
        found = [query["sql"] for query in queries.captured_queries]
        self.assertIn("SAVEPOINT", found[0])
        self.assertIn("RELEASE SAVEPOINT", found[-1])
        self.assertEqual(len([sql for sql in found if adds(sql) and "/100 %s?" in sql]), 1)
        with CaptureQueriesContext(connection) as queries:  # among them an operator %, on SQLite
            store.run_all(visits.push(Visit(1, 7)), visits.entries(1))
        self.assertTrue(any("roost_visits_rows" in query["sql"] for query in queries.captured_queries))
        with self.assertNumQueries(3):
            store.run(pageviews.total("/"))

    def test_a_write_is_one_query_on_a_server(self) -> None:
        for number in range(1, 4):
            with CaptureQueriesContext(connection) as queries:
                store.run(pageviews.add("/one"))
                self.assertEqual(store.run(visits.push(Visit(77, 7))), number)
        self.assertEqual(store.run(pageviews.total("/one")), 3)
        if connection.vendor != "sqlite":
            self.assertEqual(len(queries), 2)

    def test_an_interrupted_call_leaves_nothing_and_ends_the_block(self) -> None:
        def interrupt(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            answer = execute(sql, params, many, context)
            if adds(sql):
                raise KeyboardInterrupt
            return answer

        with transaction.atomic():
            with connection.execute_wrapper(interrupt), self.assertRaises(KeyboardInterrupt):
                store.run(pageviews.add("/"))
            self.assertTrue(connection.needs_rollback)
        self.assertEqual(store.run(pageviews.total("/")), 0)

    def test_f88_threads_that_share_the_connection_as_in_a_live_server_take_turns(self) -> None:
        own = connections[connection.alias]
        store.run(carts.add(Item(1, 1)))
        answers: list[Any] = []

        def refused() -> None:
            connections[own.alias] = own
            for n in range(50):
                try:
                    store.run_all(likes.add(2, f"{n}"), carts.add(Item(1, 1)))
                except Exception as error:
                    answers.append(type(error))

        interval = sys.getswitchinterval()
        own.inc_thread_sharing()
        sys.setswitchinterval(1e-6)
        thread = threading.Thread(target=refused)
        try:
            thread.start()
            for n in range(50):
                store.run_all(pageviews.add("/"), likes.add(1, f"{n}"))
            thread.join()
        finally:
            sys.setswitchinterval(interval)
            own.dec_thread_sharing()
        self.assertEqual(answers, [roost.Duplicate] * 50)
        self.assertEqual(store.run_all(pageviews.total("/"), likes.size(1), likes.size(2)), (50, 50, 0))

    def test_instrumentation_wraps_the_statements(self) -> None:
        seen: list[str] = []

        def blocker(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            seen.append(sql)
            if "pageviews" in sql:
                raise ZeroDivisionError
            return execute(sql, params, many, context)

        with connection.execute_wrapper(blocker), self.assertRaises(ZeroDivisionError):
            store.run(pageviews.add("/"))
        self.assertEqual(store.run(pageviews.total("/")), 0)

    def test_the_view_is_part_of_the_transaction(self) -> None:
        store.run(pageviews.add("/", 3))
        with connection.cursor() as cursor:
            cursor.execute("SELECT sum(n) FROM roost_pageviews_rows")
            self.assertEqual(cursor.fetchone(), (3,))


class OnCommitTests(OnCommitRules, Checked):
    def committed(self) -> Any:
        return self.captureOnCommitCallbacks(execute=True)


class ViewTests(Checked):
    def test_a_view_is_seen_by_the_test(self) -> None:
        self.assertEqual(self.client.get("/view/home").content, b"1")
        self.assertEqual(store.run(pageviews.total("home")), 1)

    async def test_an_asynchronous_one_too(self) -> None:
        response = await self.async_client.get("/async/home")
        self.assertEqual(response.content, b"1 1")
        self.assertEqual(await store.arun(pageviews.total("home")), 1)
