"""A release is deployed: its migration runs while processes of the release before write and read."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from unittest import skipIf, skipUnless

from django.db import connection, connections, transaction
from django.db.migrations.state import ProjectState
from django.test import TransactionTestCase

import roost
from roost.contrib.django import DjangoStore
from roost.contrib.django.address import in_memory
from roost.contrib.django.operations import AlterStructure, CreateStructure, DropStructure
from roost.contrib.django.testing import clear_structures
from tests.contrib.site.pages.models import Page
from tests.contrib.site.pages.structures import Visit, pageviews, store, visits

PATIENCE = 60.0


@dataclass
class LongVisit:
    uid: int
    visitor: int
    seconds: int = 3


class Worker:
    """A thread that answers requests until it is told to end, some of them in a transaction."""

    def __init__(self, declared: Any) -> None:
        self.rounds = 0
        self.errors: list[Exception] = []
        self._declared = declared
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def leave(self) -> None:
        self._end.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        own = DjangoStore(timeout=PATIENCE)
        row = self._declared.rows.type
        try:
            while not self._end.is_set():
                try:
                    own.run_all(pageviews.add("/"), self._declared.push(row(1, self.rounds)))
                    own.run(self._declared.latest(1))
                    self._requested(own)
                except Exception as error:
                    self.errors.append(error)
                self.rounds += 1
        finally:
            own.close()
            connections.close_all()

    def _requested(self, own: Any) -> None:
        row = self._declared.rows.type
        with transaction.atomic():
            own.run_all(pageviews.add("/"), self._declared.push(row(2, self.rounds)))
            Page.objects.create(name="requested")
            own.run(self._declared.latest(2))
            own.on_commit(pageviews.add("/"), self._declared.push(row(3, self.rounds)), robust=False)


def wait(workers: list[Worker]) -> None:
    wanted = [worker.rounds + 5 for worker in workers]
    end = time.monotonic() + PATIENCE
    while any(worker.rounds < rounds for worker, rounds in zip(workers, wanted, strict=True)):
        assert time.monotonic() < end
        time.sleep(0.01)


class DeploymentTests(TransactionTestCase):
    def tearDown(self) -> None:
        clear_structures()
        super().tearDown()

    def apply(self, operation: Any) -> None:
        with connection.schema_editor(atomic=connection.features.can_rollback_ddl) as editor:
            operation.database_forwards("pages", editor, ProjectState(), ProjectState())

    @skipIf(in_memory(connection), "only one connection sees a database in memory")
    def test_f42_a_migration_of_a_structure_under_load(self) -> None:
        clear_structures()
        longer = roost.Ring("visits", LongVisit, per="uid", keep=3)
        workers = [Worker(visits) for _ in range(2)]
        try:
            wait(workers)
            self.apply(AlterStructure(longer, was=visits))
            workers.append(Worker(longer))
            wait(workers)
        finally:
            for worker in workers:
                worker.leave()
        self.assertEqual([error for worker in workers for error in worker.errors], [])
        rounds = sum(worker.rounds for worker in workers)
        self.assertEqual(store.run(pageviews.total("/")), 3 * rounds)
        for uid in (1, 2, 3):
            self.assertEqual(len(store.run(longer.latest(uid))), 3)
            self.assertEqual([type(row) for row in store.run(visits.latest(uid))], [Visit] * 3)
        self.assertEqual(store.check(), [])
        store.create(visits)  # a process of the release before begins
        for operation in DropStructure(longer), CreateStructure(visits):
            self.apply(operation)

    @skipUnless(connection.vendor == "sqlite" and not in_memory(connection), "of SQLite's one write lock")
    def test_f83_the_write_lock_is_taken_before_anything_is_read(self) -> None:
        store.run(pageviews.add("/"))  # a batch puts the file into WAL mode: then no reader holds up a writer
        for work in (lambda: store.run_all(pageviews.total("/"), pageviews.add("/")), lambda: store.create(visits)):
            refused: list[bool] = []

            def others_write(execute: Any, sql: str, *args: Any, found: list[bool] = refused) -> Any:
                answer = execute(sql, *args)
                if sql.startswith("SELECT") and not found:
                    path = connection.settings_dict["NAME"]
                    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                        try:
                            other.execute("UPDATE roost_catalog SET version = version")
                        except sqlite3.OperationalError as error:
                            found.append("locked" in str(error))
                        else:
                            found.append(False)
                return answer

            with transaction.atomic(), connection.execute_wrapper(others_write):
                work()
            self.assertEqual(refused, [True])
