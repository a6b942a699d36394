"""Outside of transactions, at their end, and between threads: a TransactionTestCase, in which commits are commits."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, assert_type
from unittest import skipIf, skipUnless

from django.core import mail
from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import SimpleTestCase, TestCase, TransactionTestCase, tag

import roost
from roost.contrib.django import DjangoStore
from roost.contrib.django.address import in_memory
from roost.contrib.django.testing import ClearsStructures
from tests.contrib.site.pages.models import Page
from tests.contrib.site.pages.structures import ALL, Item, Visit, carts, likes, pageviews, store, visits


class Checked(ClearsStructures, TransactionTestCase):
    def tearDown(self) -> None:
        self.assertEqual(store.check(*ALL), [])
        super().tearDown()

    def without_django(self, operation: roost.Operation[Any]) -> Any:
        """What is committed: read on a connection that is not Django's, where the database has others."""
        self.assertFalse(connection.in_atomic_block)
        return store.run(operation) if in_memory(connection) else in_thread(lambda: store.run(operation))


def in_thread(work: Callable[[], Any]) -> Any:
    """Do something in another thread, with a connection of its own, and return the result or raise the error."""

    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result(60)


class BatchTests(Checked):
    def test_outside_of_transactions_an_answer_means_committed(self) -> None:
        self.assertEqual(
            store.run_all(pageviews.add("/"), visits.push(Visit(1, 2)), pageviews.total("/")), (None, 1, 1)
        )
        self.assertEqual(self.without_django(pageviews.total("/")), 1)

    def test_one_test_leaves_nothing_to_the_next(self) -> None:
        self.assertEqual(store.run_all(pageviews.total("/"), visits.latest(1)), (0, []))

    @skipIf(in_memory(connection), "only one connection sees a database in memory")
    def test_a_thread_that_only_runs_batches_has_nothing_to_close(self) -> None:
        _, opened = in_thread(lambda: (store.run(pageviews.add("/")), connection.connection))
        self.assertIsNone(opened)

    @skipIf(in_memory(connection), "only one connection sees a database in memory")
    def test_outside_of_tests_django_opens_nothing_for_a_batch(self) -> None:
        outbox = mail.__dict__.pop("outbox")  # by which a test run is known
        try:
            connection.close()
            store.run(pageviews.add("/"))
            self.assertIsNone(connection.connection)
        finally:
            mail.outbox = outbox
            store.close()
        self.assertEqual(store.run(pageviews.total("/")), 1)

    def test_what_fails_leaves_nothing(self) -> None:
        with self.assertRaises(roost.Duplicate):
            store.run_all(pageviews.add("/"), carts.add(Item(1, 1)), carts.add(Item(1, 1)))
        with self.assertRaises(roost.Overflow):
            store.run_all(pageviews.add("/x", 2**63 - 1), pageviews.add("/x"))
        self.assertEqual(store.run_all(pageviews.totals(["/", "/x"]), carts.count(1)), ({"/": 0, "/x": 0}, 0))

    def test_a_transaction_commits_both_or_none(self) -> None:
        for name, error in (("kept", None), ("lost", ZeroDivisionError)):
            try:
                with transaction.atomic():
                    Page.objects.create(name=name)
                    store.run(pageviews.add(name))
                    if error is not None:
                        raise error
            except ZeroDivisionError:
                pass
        self.assertEqual([page.name for page in Page.objects.all()], ["kept"])
        self.assertEqual(self.without_django(pageviews.totals(["kept", "lost"])), {"kept": 1, "lost": 0})

    @skipUnless(connection.vendor == "sqlite" and not in_memory(connection), "about the lock of a file")
    def test_a_lock_that_is_not_had_by_who_has_read_is_a_conflict(self) -> None:
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
            for reads, error in ((False, roost.Busy), (True, roost.Conflict)):
                with transaction.atomic():
                    connection.cursor().execute("PRAGMA busy_timeout = 0")
                    if reads:
                        self.assertEqual(Page.objects.count(), 0)
                    other.execute("BEGIN IMMEDIATE")
                    with self.assertRaises(error):
                        store.run(pageviews.add("/"))
                    other.execute("ROLLBACK")
                    self.assertEqual(transaction.get_rollback(), reads)
        connection.close()
        self.assertEqual(store.run(pageviews.total("/")), 0)

    def test_what_waits_for_a_row_in_vain_is_busy(self) -> None:
        patient = DjangoStore(timeout=0.5)  # longer than lock_wait: it waits apart from the others
        work = (pageviews.add("/"), visits.push(Visit(1, 2)))
        with transaction.atomic():
            store.run(visits.push(Visit(1, 1)))
            for operations in work, work[1:]:
                with self.assertRaises(roost.Busy):
                    in_thread(partial(patient.run_all, *operations))
        self.assertEqual(patient.run_all(*work), (None, 2))
        patient.close()
        self.assertEqual(self.without_django(pageviews.total("/")), 1)

    @skipUnless(in_memory(connection), "about the locks of a cache that threads share")
    def test_threads_with_connections_of_their_own_wait_for_each_other(self) -> None:
        # SQLite waits for none of them: half of these were a Conflict.
        def work() -> None:
            for n in range(25):
                store.run_all(pageviews.add("/"), visits.push(Visit(1, n)), pageviews.total("/"))
            connections.close_all()

        with ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(work) for _ in range(4)]:
                each.result(60)
        self.assertEqual(store.run(pageviews.total("/")), 100)

    @tag("anywhere")
    def test_a_closed_store_opens_anew(self) -> None:
        store.run(pageviews.add("/"))
        store.close()
        store.close()
        store.run(pageviews.add("/"))
        self.assertEqual(store.run(pageviews.total("/")), 2)

    def test_autocommit_off_is_a_transaction_too(self) -> None:
        transaction.set_autocommit(False)
        try:
            store.run(pageviews.add("/"))
            with self.assertRaises(roost.Duplicate):
                store.run_all(pageviews.add("/"), carts.add(Item(1, 1)), carts.add(Item(1, 1)))
            self.assertEqual(store.run(pageviews.total("/")), 1)
            transaction.rollback()
            self.assertEqual(store.run(pageviews.total("/")), 0)
            store.run(pageviews.add("/", 5))
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        self.assertEqual(self.without_django(pageviews.total("/")), 5)


class OnceTests(Checked):
    def count(self) -> int:
        store.run_all(pageviews.add("/"), pageviews.add("/"), once="a webhook")
        return store.run(pageviews.total("/"))

    def test_f115_what_has_a_token_is_done_once(self) -> None:
        self.assertEqual([self.count(), self.count()], [2, 2])
        with transaction.atomic():
            self.assertEqual(self.count(), 2)

    def test_f115_the_next_test_may_use_the_same_token(self) -> None:
        self.test_f115_what_has_a_token_is_done_once()


class OnCommitRules(TestCase if TYPE_CHECKING else object):  # type: ignore[misc]
    """What holds after a commit, and after that of a test, which `captureOnCommitCallbacks` stands for."""

    committed: Any = staticmethod(transaction.atomic)

    def test_it_is_run_after_the_commit(self) -> None:
        with self.committed():
            store.on_commit(pageviews.add("/"), likes.add(1, "a"))
            self.assertEqual(store.run(pageviews.total("/")), 0)
        self.assertEqual(store.run_all(pageviews.total("/"), likes.members(1)), (1, {"a"}))

    @tag("anywhere")
    def test_it_is_not_run_when_the_transaction_rolls_back(self) -> None:
        with self.committed():
            store.on_commit(pageviews.add("/", 10))
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                store.on_commit(pageviews.add("/", 100))
                raise ZeroDivisionError
        self.assertEqual(store.run(pageviews.total("/")), 10)

    @tag("anywhere")
    def test_what_fails_is_logged_and_takes_nothing_with_it(self) -> None:
        with self.assertLogs("roost", "ERROR") as logged, self.committed():
            Page.objects.create(name="kept")
            store.on_commit(carts.add(Item(1, 1)), carts.add(Item(1, 1)))
            store.on_commit(pageviews.add("/"))
        self.assertIn("carts.add(Item(cart=1, item=1))", logged.output[0])
        self.assertIn("Duplicate", logged.output[0])
        self.assertEqual(Page.objects.count(), 1)
        self.assertEqual(store.run_all(carts.count(1), pageviews.total("/")), (0, 1))

    @tag("anywhere")
    def test_what_fails_is_raised_where_that_is_wanted(self) -> None:
        with self.assertRaises(roost.Missing), self.committed():
            store.on_commit(roost.Counter("nowhere").add("a"), robust=False)

    @tag("anywhere")
    def test_what_is_no_operation_is_refused_at_once(self) -> None:
        nothing: Any = None
        with self.assertRaises(roost.Invalid):
            store.on_commit(nothing)


class OnCommitTests(OnCommitRules, Checked):
    def test_it_is_committed_before_what_is_run_behind_it(self) -> None:
        with transaction.atomic():
            store.on_commit(pageviews.add("/"))
            transaction.on_commit(lambda: self.assertEqual(self.without_django(pageviews.total("/")), 1))
        store.on_commit(pageviews.add("/"))  # without a transaction it is run at once
        self.assertEqual(store.run(pageviews.total("/")), 2)


class RequestTests(Checked):
    def setUp(self) -> None:
        super().setUp()
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        self.addCleanup(connection.settings_dict.__setitem__, "ATOMIC_REQUESTS", False)

    def test_a_request_commits_both(self) -> None:
        self.assertEqual([self.client.get("/view/home").content for _ in range(2)], [b"1", b"2"])
        self.assertEqual(self.without_django(pageviews.total("home")), 2)
        self.assertEqual(Page.objects.count(), 2)

    @tag("anywhere")
    def test_a_view_that_fails_keeps_nothing(self) -> None:
        with self.assertRaisesMessage(RuntimeError, "the view failed"):
            self.client.get("/fail/home")
        self.assertEqual(store.run(pageviews.total("home")), 0)
        self.assertEqual(Page.objects.count(), 0)

    @tag("anywhere")
    def test_a_view_counter_counts_after_the_request(self) -> None:
        self.assertEqual([self.client.get("/later/home").content for _ in range(3)], [b"0", b"1", b"2"])
        self.assertEqual(self.without_django(pageviews.total("home")), 3)


class AsyncTests(Checked):
    async def test_with_await(self) -> None:
        await store.arun(pageviews.add("/"))
        assert_type(await store.arun(likes.members(1)), set[str])
        found = assert_type(await store.arun_all(visits.latest(1), pageviews.total("/")), tuple[list[Visit], int])
        self.assertEqual(found, ([], 1))
        with self.assertRaises(roost.Duplicate):
            await store.arun_all(carts.add(Item(1, 1)), carts.add(Item(1, 1)))

    @tag("anywhere")
    async def test_what_would_hold_up_the_loop_is_refused(self) -> None:
        with self.assertRaises(SynchronousOnlyOperation):
            store.run(pageviews.add("/"))
        self.assertEqual(await store.arun(pageviews.total("/")), 0)

    @tag("anywhere")
    async def test_a_view(self) -> None:
        response = await self.async_client.get("/async/home")
        self.assertEqual(response.content, b"1 1")


@skipIf(in_memory(connection), "only one connection sees a database in memory")
class ThreadTests(Checked):
    def test_transactions_and_batches_of_many_threads_are_all_counted(self) -> None:
        def joined() -> None:
            for n in range(10):
                self.again(lambda n=n: self.one_transaction(n))  # type: ignore[misc]

        def batches() -> None:
            for n in range(10):
                store.run_all(pageviews.add("/"), visits.push(Visit(1, n)), likes.add(1, str(n)))

        self.at_once(*[joined] * 3, *[batches] * 3)
        self.assertEqual(store.run_all(pageviews.total("/"), likes.size(1)), (60, 10))
        self.assertEqual(Page.objects.count(), 30)
        self.assertEqual([each.sequence for each in store.run(visits.entries(1))], [56, 57, 58, 59, 60])

    def one_transaction(self, n: int) -> None:
        with transaction.atomic():
            Page.objects.create(name=str(n))
            store.run_all(pageviews.add("/"), visits.push(Visit(1, n)), likes.add(1, str(n)))

    @skipIf(connection.vendor == "sqlite", "there is one lock")
    def test_the_loser_of_a_deadlock_has_to_begin_again(self) -> None:
        store.run_all(visits.push(Visit(1, 0)), visits.push(Visit(2, 0)))
        both = threading.Barrier(2, timeout=30)
        conflicts: list[bool] = []
        mine = threading.local()

        def transfer(one: int, other: int) -> None:
            with transaction.atomic():
                store.run(visits.push(Visit(one, other)))
                if not hasattr(mine, "tried"):
                    mine.tried = True
                    both.wait()
                try:
                    store.run(visits.push(Visit(other, one)))
                except roost.Conflict:
                    conflicts.append(connection.needs_rollback)
                    with self.assertRaises(TransactionManagementError):
                        store.run(visits.latest(1))
                    raise

        self.at_once(lambda: self.again(lambda: transfer(1, 2)), lambda: self.again(lambda: transfer(2, 1)))
        self.assertEqual(set(conflicts), {True})  # one at least: the loser may lose again
        self.assertEqual([store.run(visits.entries(uid))[-1].sequence for uid in (1, 2)], [3, 3])

    @skipUnless(connection.vendor == "sqlite", "elsewhere the row is locked, and read anew")
    def test_who_has_read_cannot_write_after_others_have(self) -> None:
        with transaction.atomic():
            self.assertEqual(store.run(pageviews.total("/")), 0)
            in_thread(lambda: store.run(pageviews.add("/")))
            with self.assertRaises(roost.Conflict):
                store.run(pageviews.add("/"))
            self.assertTrue(connection.needs_rollback)
            with self.assertRaises(TransactionManagementError):
                store.run(pageviews.total("/"))
        self.assertEqual(store.run(pageviews.total("/")), 1)

    def again(self, work: Callable[[], None]) -> None:
        while True:
            try:
                return work()
            except (roost.Conflict, roost.Busy):
                continue

    def at_once(self, *works: Callable[[], None]) -> None:
        with ThreadPoolExecutor(len(works)) as threads:
            for each in [threads.submit(in_thread, work) for work in works]:
                each.result(60)


class LazyTests(Checked):
    def test_a_store_reads_no_settings_until_it_is_used(self) -> None:
        unknown = DjangoStore("nowhere")
        self.assertEqual(repr(unknown), "<DjangoStore 'nowhere'>")
        with self.assertRaisesMessage(Exception, "nowhere"):
            unknown.run(pageviews.total("/"))

    @skipIf(in_memory(connection), "only one connection sees a database in memory")
    def test_a_store_follows_djangos_settings_when_a_test_runner_changes_them(self) -> None:
        store.run(pageviews.add("/"))
        connection.ensure_connection()  # which stays: only the batch finds nothing there
        name = connection.settings_dict["NAME"]
        connection.settings_dict["NAME"] = f"{name}_of_nobody"
        try:
            with self.assertRaises((roost.CannotOpen, roost.Missing)):
                store.run(pageviews.add("/"))
        finally:
            connection.settings_dict["NAME"] = name
        self.assertEqual(store.run(pageviews.total("/")), 1)


class ForbiddenTests(SimpleTestCase):
    def test_a_test_that_may_not_use_the_database_cannot_use_a_batch_either(self) -> None:
        with self.assertRaisesMessage(AssertionError, "not allowed"):
            store.run(pageviews.add("/"))


@skipUnless(connection.vendor == "mysql", "MariaDB alone ends a statement without running its handlers")
class InterruptedTests(Checked):
    def test_nothing_is_left_of_an_operation_whose_statement_is_ended(self) -> None:
        store.create(visits)
        done = 0
        for n in range(60):
            try:
                with transaction.atomic():
                    Page.objects.create(name=str(n))
                    limited((4 + 2 * n) / 100_000)
                    with suppress(roost.Busy):  # nothing was done, and the block goes on
                        store.run(visits.push(Visit(1, n)))
                        done += 1
                    limited(0)
            except roost.Conflict:  # all of the block has gone
                pass
            finally:
                limited(0)
        self.assertLess(done, 60)
        newest = store.run(visits.entries(1))[-1:]
        self.assertEqual([each.sequence for each in newest], [done] if done else [])


def limited(seconds: float) -> None:
    """Let MariaDB end each statement of this connection after so many seconds; 0: none."""
    while True:
        try:
            connection.cursor().execute(f"SET SESSION max_statement_time = {seconds}")
        except OperationalError as error:
            if error.args[0] != 1969:
                raise
        else:
            return
