"""`DjangoStore`: runs operations in Django's transaction if one is open, otherwise in a batch."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.core import mail
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db import Error as DjangoError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.asyncio import async_unsafe

from roost.batching.atoms import Atom
from roost.catalog.catalog import create
from roost.catalog.check import Violation, check
from roost.contrib.django.address import dialect_of, in_memory, url_of
from roost.contrib.django.executor import change, run_atomic, run_joined, translated
from roost.errors import Busy, Conflict
from roost.store.core import Core
from roost.store.runner import AsyncRunner, Runner
from roost.store.store import Store, utc_now
from roost.structures.operation import Operation
from roost.structures.structure import Structure

log = logging.getLogger("roost")


class DjangoStore(Runner):
    """Runs operations on a database of settings.DATABASES.

    using: its alias.
    timeout, lock_wait: for the batches; see `roost.Store`.
    clock: the clock on SQLite; servers use their own. See `roost.Store`.
    joins: with False, operations are never part of Django's transaction, except on SQLite: Django's transaction may be
        its single writer, and the batch and the transaction would wait for each other.

    Inside `transaction.atomic()` (a view under ATOMIC_REQUESTS, a TestCase) an operation is part of that transaction:
    it commits or rolls back with it, through Django's cursor. An operation that fails (`Duplicate`, `Full`, …) leaves
    the block usable; `Conflict` (a deadlock, a serialization failure) does not, just like an error of Django's own.
    Outside, an operation goes into a batch on Roost's own connection and is committed when the call returns. Only
    Django's connections can see an in-memory SQLite database, so there each call is an atomic block.

    Making a `DjangoStore` reads no settings and opens nothing, so it can be done at module level.

    >>> from roost.contrib.django import DjangoStore
    >>> store = DjangoStore()
    >>> store
    <DjangoStore 'default'>
    """

    def __init__(
        self,
        using: str = DEFAULT_DB_ALIAS,
        *,
        timeout: float = 5.0,
        lock_wait: float = 0.1,
        joins: bool = True,
        clock: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self.using = using
        self._clock = clock
        self._joins = joins
        self._timeout = timeout
        self._lock_wait = lock_wait
        self._batches: tuple[tuple[Any, ...], Store] | None = None
        asynchronous = _InThread(self._answer)
        self.arun = asynchronous.run  # `run` with `await`
        self.arun_all = asynchronous.run_all

    def __repr__(self) -> str:
        return f"<DjangoStore {self.using!r}>"

    def on_commit(self, *operations: Operation[Any], robust: bool = True) -> None:
        """Run operations in a batch once the surrounding transaction has committed, or at once if none is open.

        Use it for a view counter: the row of a popular page is then not locked until the request ends. If the
        transaction rolls back, nothing is run. The operations are run all or none, and their results are discarded.

        robust: an error is logged (logger `roost`), since the transaction is already committed and other callbacks are
            still to run; False: it is raised, as from a callback of `transaction.on_commit`.
        """
        atom = Atom(operations)

        def run() -> None:
            try:
                self.run_all(*atom.operations)
            except Exception:
                if not robust:
                    raise
                log.exception("after the commit on %r: %s failed", self.using, ", ".join(map(repr, atom.operations)))

        transaction.on_commit(run, using=self.using)

    def create(self, *structures: Structure, view: bool = True) -> None:
        """Create missing structures; see `roost.Store.create`. Prefer migrations: see `CreateStructure`."""
        connection = connections[self.using]
        core = self._store(connection)._core
        plans = [core.known.plan(each) for each in structures]
        core.known.log_differences(change(create(core.known.catalog, plans, view, exact=False), connection))

    def check(self, *structures: Structure) -> list[Violation]:
        """Verify every promise of these structures (of all, if none is given); return the broken ones.

        Inside a transaction it sees the changes of that transaction, so a test can end with it.
        """
        connection = connections[self.using]
        core = self._store(connection)._core
        work = partial(check, core.known.catalog, [each.name for each in structures])
        if connection.in_atomic_block or in_memory(connection):
            return run_atomic(work(), connection)
        return core.snapshot(work)

    def close(self) -> None:
        """Finish the waiting calls and close the batches' connections, not Django's. The next batch reconnects.

        Only needed to release connections before the process ends: for example, in a worker that is idle.
        """
        found, self._batches = self._batches, None
        if found is not None:
            found[1].close()

    @async_unsafe
    def _answer(self, atom: Atom) -> tuple[Any, ...]:
        connection = connections[self.using]
        core = self._store(connection)._core
        joins = self._joins or connection.vendor == "sqlite"
        if joins and connection.in_atomic_block:
            run_joined(atom, connection, core.known, core.joined_context)
        elif joins and (in_memory(connection) or not _autocommit(connection)):
            self._in_a_block(atom, connection, core)
        else:
            _apart(core, connection, partial(core.run, [atom]))
        return atom.answer

    def _in_a_block(self, atom: Atom, connection: BaseDatabaseWrapper, core: Core) -> None:
        until = time.monotonic() + self._timeout
        while True:
            _begin_as_the_driver_does(connection)
            try:
                with transaction.atomic(using=self.using):
                    run_joined(atom, connection, core.known, core.joined_context)
                return
            except (Busy, Conflict) as error:  # another thread's: SQLite waits for no lock of a shared cache
                if not _autocommit(connection):
                    raise
                if time.monotonic() > until:
                    raise Busy(f"{self.using}: another thread uses the database in memory") from error
            time.sleep(0.001)

    def _store(self, connection: BaseDatabaseWrapper) -> Store:
        # Looked up at every call: a test runner changes the connection's settings after creating its database.
        # Two threads may make one each; the one that is not kept is closed when it is no longer used.
        facts = connection.settings_dict
        address = tuple([facts[name] for name in ("NAME", "HOST", "PORT", "USER", "PASSWORD")])
        found = self._batches
        if found is None or found[0] != address:
            try:
                url = url_of(connection, dialect_of(connection))
            except DjangoError as error:
                raise translated(connection, error, "") or error from error
            store = Store(url, timeout=self._timeout, lock_wait=self._lock_wait, clock=self._clock)
            store._core.known.made_by = "`manage.py migrate` makes it, where a migration has CreateStructure"
            found = self._batches = (address, store)
        return found[1]


class _InThread(AsyncRunner):
    """Runs in the thread of Django's own asynchronous calls, which owns the connection that they use."""

    def __init__(self, answer: Callable[[Atom], tuple[Any, ...]]) -> None:
        self._in_thread = sync_to_async(answer, thread_sensitive=True)

    async def _answered(self, atom: Atom) -> None:
        await self._in_thread(atom)


def _apart(core: Core, connection: BaseDatabaseWrapper, work: Callable[[], None]) -> None:
    # On connections of Roost's own.
    if not hasattr(mail, "outbox"):  # no test run
        work()
        return
    was_open = connection.connection is not None
    connection.cursor().close()  # Django raises an error if the test may not use the database
    if not was_open:
        connection.close()  # a thread that uses Django for nothing else would leave it open
    try:
        work()
    finally:
        core.disconnect()  # the test runner cannot drop a database that has connections


def in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether what is written on Django's connection may still be rolled back."""
    return connection.in_atomic_block or not _autocommit(connection)


def _autocommit(connection: BaseDatabaseWrapper) -> bool:
    # Django's own get_autocommit() would connect.
    return bool(connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit)


def _begin_as_the_driver_does(connection: BaseDatabaseWrapper) -> None:
    # With autocommit off, sqlite3 begins a transaction only with the first change; before that, a savepoint would be
    # the transaction itself, and releasing it would commit.
    if connection.vendor == "sqlite" and not _autocommit(connection):
        connection.ensure_connection()
        if not connection.connection.in_transaction:
            connection.cursor().execute("BEGIN")
