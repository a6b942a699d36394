"""Stores, which run operations. `Store` is for threads; `AsyncStore` is the same with `await`."""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import logging
import random as random_module
import sqlite3
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from functools import partial, wraps
from types import SimpleNamespace, TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from roost.batching.atoms import Atom
from roost.batching.once import Once
from roost.batching.stats import Stats
from roost.catalog.alter import alter
from roost.catalog.catalog import create, ddl, drop, former_definitions, listed
from roost.catalog.check import MADE, Violation, check
from roost.catalog.doctor import Finding
from roost.databases.callers import async_caller_of, caller_of
from roost.databases.engine import Trace, adrive, drive, whole
from roost.databases.urls import redacted
from roost.dialects.dialect import Wanted
from roost.errors import Invalid
from roost.store.core import UNANSWERED, Core
from roost.store.holding import AsyncHolding, Holding, aacquired, acquired, apart
from roost.store.links import fulfil, start
from roost.store.loop_queues import LoopQueues
from roost.store.memcached import CacheCore
from roost.store.runner import (
    AsyncJoined,
    AsyncpgTransaction,
    AsyncRunner,
    AsyncTransaction,
    Joined,
    Runner,
    Transaction,
)
from roost.structures.cache.declaration import MAKE, get_or_set
from roost.structures.kinds import Adopted, Cache
from roost.structures.lease import Lease
from roost.structures.operation import Operation
from roost.structures.plan import in_utc
from roost.structures.registry import from_definition, is_known
from roost.structures.structure import Structure

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")


def utc_now() -> dt.datetime:
    """Return the time for the column `at`, which is for display only, never for order."""
    return dt.datetime.now(dt.UTC)


log = logging.getLogger("roost")


class _Base:
    """The common part of both kinds of store."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        lock_wait: float = 0.1,
        trace: Trace | None = None,
        clock: Callable[[], dt.datetime] = utc_now,
        random: random_module.Random | None = None,
        once_for: float | dt.timedelta = 86_400.0,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("lock_wait", lock_wait)):
            if not (isinstance(seconds, int | float) and 0 <= seconds < 10**6):
                raise Invalid(f"{name} is a number of seconds, not {seconds!r}")
        if clock is not utc_now:
            clock = in_utc(clock)
        self._working: Core | CacheCore
        if isinstance(url, str) and url.startswith("memcached:"):
            self._working = CacheCore(url, timeout, trace, clock, random)
        else:
            self._working = Core(url, timeout, lock_wait, trace, clock, random)
            self._working.known.once = Once(self._working.engine.dialect, once_for)
        self.url = redacted(url)
        self._finalizer = weakref.finalize(self, self._working.dispose)
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueues] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}: {self.stats()}>"

    def ddl(self, *structures: Structure, view: bool = True) -> list[str]:
        """Return the statements that `create` would run in a database that has none of the structures.

        For migrations and DBAs. It does not connect to the database.
        """
        return ddl(self._core.known.catalog, self._plans(structures), view)

    def stats(self) -> Stats:
        """Return the statistics of this store in this process."""
        return self._working.total()

    @property
    def _core(self) -> Core:
        if isinstance(self._working, CacheCore):
            raise self._working.refused()
        return self._working

    def _plans(self, structures: Sequence[Structure]) -> list[Any]:
        for structure in structures:
            if not isinstance(structure, Structure):
                raise Invalid(f"{structure!r} is not a structure")
            if isinstance(structure, Adopted):
                raise Invalid(
                    f"{structure.name} is a table of your own; `roost cap {structure.name}` makes and changes it, "
                    f"`roost uncap {structure.name}` undoes it"
                )
        return [self._core.known.plan(structure) for structure in structures]

    def _formerly(self, structure: Structure) -> list[Structure]:
        # As the structure was before it was altered: what these declarations write is stored by the present one.
        found = self._core.snapshot(partial(former_definitions, self._core.known.catalog, structure.name))
        made = [from_definition(definition).overlap(structure.definition) for definition in found]
        return [each for each in made if each is not None]


class Store(_Base, Runner):
    """Runs operations on one database, from as many threads as you like; they share commits.

    url: `sqlite:///relative.db`, `sqlite:////absolute.db`, or `sqlite://`, a private database in memory. Options:
        `?synchronous=normal` (an answer may be lost with the power; FULL, the default, means on disk), `?mode=ro`.
        `mysql://user:password@host/database`, `postgresql://…`: see docs/databases.md. The attribute `url` has no
        password.
    timeout: seconds to wait for a lock of another session, before `Busy`, and for a server that is down or does not
        answer; docs/guarantees.md lists by how much a call may exceed it.
    lock_wait: seconds that a batch waits for a row lock before it goes on without the operations that need it; on
        SQLite, seconds after which a waiting thread checks whether it waits for its own transaction.
    trace: called with the text and the parameters of every statement.
    clock: returns the time for the column `at`, in any zone; it is stored in UTC and for display only. `Invalid` if it
        has no zone.
    random: for jitter, and for choosing the slots of counters.
    once_for: seconds, or a timedelta, for which a token of `run(..., once=token)` is stored.

    Making a store opens no connection, so it may be done at module level; the store connects at the first operation,
    once per process.

    >>> import roost
    >>> pageviews = roost.Counter("pageviews")
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(pageviews)
    ...     store.run(pageviews.add("/home"))
    ...     store.run(pageviews.total("/home"))
    1
    """

    def create(self, *structures: Structure, view: bool = True) -> None:
        """Make missing structures, and a missing database file; many processes may call it at once.

        `Mismatch` if a structure is stored with another declaration: the message names the difference. An older
        declaration, from before an `alter`, is accepted if it can be used with the stored one: see docs/migrations.md.

        view: also make a writable view of the structure's name, for SQL clients; `Invalid` if the database has another
            object of that name.
        """
        if isinstance(self._working, CacheCore):
            self._working.create(structures)
        else:
            known = self._core.known

            def making() -> Generator[Wanted, Any, dict[str, str]]:  # planned when it is known on what kind of server
                return (yield from create(known.catalog, self._plans(structures), view, exact=False))

            known.log_differences(self._core.repeated(making, create=True))

    def alter(self, structure: Structure, *, view: bool | None = None) -> list[str]:
        """Change a stored structure to this declaration, while it is in use; return the changes, in words.

        A new column needs a default or `| None`; keep, slots, on_full and on_duplicate can change. Any other change is
        refused with `Invalid` and the reason. Processes with the old declaration go on, and follow the stored
        declaration from then on; a warning and `stats().overlaps` report them.

        view: add it, or drop it; None leaves it as it is.
        """

        def altering() -> Generator[Wanted, Any, list[str]]:
            (plan,) = self._plans([structure])
            return (yield from alter(self._core.known.catalog, plan, view))

        return self._core.repeated(altering)

    def drop(self, *structures: Structure) -> None:
        """Drop structures with all that they hold: views, tables and entries; those that are not stored are skipped.

        What else their declarations say does not matter, but `Mismatch` if one of these names is that of another kind.
        `Invalid` if a view of the application's own depends on one. Operations on them then raise `Missing`.
        """
        plans = self._plans(structures)
        self._core.repeated(partial(drop, self._core.known.catalog, plans))

    def structures(self) -> list[Structure]:
        """Return the structures in the catalog, with generated dataclasses for their rows."""
        found = self._core.snapshot(partial(listed, self._core.known.catalog))
        unknown = [name for name, _, definition in found if not is_known(definition)]
        if unknown:
            told = "left out, since their kinds are not known here: %s; `roost check` tells more"
            log.warning(told, ", ".join(unknown))
        return [from_definition(definition) for name, _, definition in found if name not in unknown]

    def check(self, *structures: Structure) -> list[Violation]:
        """Verify every promise of these structures (of all, if none is named); return the violations.

        It reads all rows, in one snapshot, on a connection of its own.
        """
        if isinstance(self._working, CacheCore):
            return self._working.check(structures)
        checking = partial(check, self._core.known.catalog, [structure.name for structure in structures])
        found = self._core.snapshot(checking)
        if any([each.rule in MADE for each in found]):  # what another process was just making is right by now
            found = [each for each in self._core.snapshot(checking) if each in found or each.rule not in MADE]
        return found

    def doctor(self) -> list[Finding]:
        """Examine the database: how each guarantee holds there, and which settings would improve it."""
        return self._working.doctor()

    def on(self, connection: Transaction) -> Runner:
        """Return a runner of operations inside the application's own transaction, on its connection.

        connection: of sqlite3, PyMySQL or psycopg, or a `Connection` or `Session` of SQLAlchemy over one of them, to
            the store's database. Anything else is `Invalid`.

        The runner never commits, rolls back or retries. Each call is wrapped in a savepoint. After `Conflict`, repeat
        the whole transaction. If the driver begins transactions implicitly, one is begun and left open; in autocommit
        mode, without an open transaction, writes are refused.
        """
        core = self._core
        return Joined(caller_of(connection, core.engine), core.known, core.joined_context)

    def holding(
        self, lease: Lease[K], key: K, *, ttl: dt.timedelta | float = 30.0, holder: str | None = None, wait: float = 0.0
    ) -> Holding[K]:
        """Hold a lease while a `with` block runs, renewed by a thread; `Busy` if another holder has it.

        Before each step that only the holder may do, the block should read `lost`, or call `check()`, which raises
        `LeaseLost`; it should send `token` with everything that it writes elsewhere. A block that ends normally after
        the lease was lost raises `LeaseLost`.

        ttl: how long the lease lasts if this process dies. It is renewed three times in that time.
        holder: the name of the holder, for others to see; by default a unique one.
        wait: seconds to wait until another holder releases it.
        """
        return Holding(self, lease, key, ttl, holder, wait)

    def close(self) -> None:
        """Answer the waiting operations and close the connections. Later operations are refused with `Closed`."""
        self._working.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, operation: Operation[T], *, once: str | None = None) -> T:
        """Run one operation and return its result, or raise its error.

        once: a token. A call with the same token again, from any process, does nothing and returns the first result.
        """
        if once is not None:
            return super().run(operation, once=once)
        working = self._working
        deadline = time.monotonic() + working.timeout
        result: Any = working.run_single(operation, deadline)
        if result is UNANSWERED:
            atom = Atom((operation,))
            atom.deadline = deadline
            working.run([atom], single=False)
            (result,) = atom.answer
        answer: T = result
        return answer

    def get_or_set(
        self,
        cache: Cache[K, V],
        key: K,
        make: Callable[[], V],
        ttl: float | dt.timedelta | None = None,
        *,
        stale: float = 0.0,
        lease: float = 30.0,
    ) -> V:
        """Return the value of a key; if there is none, call `make()`, store its result for `ttl`, and return it.

        Only one caller, of all processes, computes the value. The others wait, and look again after 5 to 200 ms. If
        `make` raises, its caller gets the error, and another caller computes.

        stale: seconds before the expiry in which one caller computes a new value, while the others still get the old.
        lease: seconds after which another caller computes, since the first one may have died.
        """

        def execute(wanted: Any) -> Any:
            if wanted is MAKE:
                return make()
            if isinstance(wanted, tuple):
                return self.run_all(*wanted)
            if not isinstance(wanted, Operation):
                return time.sleep(wanted)
            if wanted.verb == "lease":
                return acquired(self, wanted, partial(cache.release, key))
            return apart(self, wanted) if wanted.verb == "release" else self.run(wanted)

        work = get_or_set(cache, key, ttl, stale, lease)  # releases the lease after any error, an interrupt included
        return drive(work, SimpleNamespace(execute=execute), BaseException)

    def _answer(self, atom: Atom) -> tuple[Any, ...]:
        (self._working if atom.once is None else self._core).run([atom])
        return atom.answer

    def _run_each(self, atoms: Sequence[Atom]) -> None:
        # For the command line's import: the atoms share commits, and each has its own answer.
        self._working.run(atoms)


def _with_await(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make of a method of `Store`, which must need only what `AsyncStore` has too, one that runs in a thread."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await self._in_thread(partial(method, self, *args, **options))
        return result

    return call


class AsyncStore(_Base, AsyncRunner):
    """`Store` with `await`: operations awaited concurrently share a commit.

    The statements run in the store's own threads, so the loop is never blocked. Cancelling one caller does not affect
    the others; its operation may still be committed. The store is not bound to a loop: several loops can use it, one
    after another or at once.

    >>> import asyncio, roost
    >>> pageviews = roost.Counter("pageviews")
    >>> async def main():
    ...     async with roost.AsyncStore("sqlite://") as store:
    ...         await store.create(pageviews)
    ...         await asyncio.gather(*[store.run(pageviews.add("/home")) for _ in range(100)])
    ...         return await store.run(pageviews.total("/home"))
    >>> asyncio.run(main())
    100
    """

    create = _with_await(Store.create)
    alter = _with_await(Store.alter)
    drop = _with_await(Store.drop)
    structures = _with_await(Store.structures)
    check = _with_await(Store.check)
    doctor = _with_await(Store.doctor)

    def on(self, connection: AsyncTransaction | AsyncpgTransaction | sqlite3.Connection) -> AsyncRunner:
        """Return a runner of operations inside the application's own transaction; see `Store.on`.

        connection: of asyncmy, psycopg (`AsyncConnection`), asyncpg or aiosqlite, or an `AsyncConnection` or
            `AsyncSession` of SQLAlchemy over one of them. One of sqlite3 is accepted too, but its statements block the
            loop.
        """
        core = self._core
        return AsyncJoined(async_caller_of(connection, core.engine), core.known, core.joined_context)

    def holding(
        self, lease: Lease[K], key: K, *, ttl: dt.timedelta | float = 30.0, holder: str | None = None, wait: float = 0.0
    ) -> AsyncHolding[K]:
        """Hold a lease while an `async with` block runs, renewed by a task; see `Store.holding`.

        When the lease is lost, the block is cancelled, as by `asyncio.timeout`, and `LeaseLost` is raised in its place.
        """
        return AsyncHolding(self, lease, key, ttl, holder, wait)

    async def get_or_set(
        self,
        cache: Cache[K, V],
        key: K,
        make: Callable[[], V | Awaitable[V]],
        ttl: float | dt.timedelta | None = None,
        *,
        stale: float = 0.0,
        lease: float = 30.0,
    ) -> V:
        """Return the value of a key, or compute it with `make()`, which may be async; see `Store.get_or_set`."""

        async def execute(wanted: Any) -> Any:
            if wanted is MAKE:
                made = make()
                return await made if inspect.isawaitable(made) else made
            if isinstance(wanted, tuple):
                return await self.run_all(*wanted)
            if not isinstance(wanted, Operation):
                return await asyncio.sleep(wanted)
            if wanted.verb == "lease":
                return await aacquired(self, wanted, partial(cache.release, key))
            if wanted.verb != "release":
                return await self.run(wanted)
            answer, cancelled = await whole(self.run(wanted))
            if cancelled is not None:
                raise cancelled
            return answer

        work = get_or_set(cache, key, ttl, stale, lease)
        return await adrive(work, SimpleNamespace(execute=execute), BaseException)

    async def close(self) -> None:
        """Answer the waiting operations and close the connections. Later operations are refused with `Closed`.

        So are operations that another event loop has started but not yet sent to a thread.
        """
        self._working.closed = True
        queues = self._queues.get(asyncio.get_running_loop())
        if queues is not None:
            await queues.drained()
        await asyncio.to_thread(self._working.close)

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _answered(self, atom: Atom) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        queues = self._queues.get(loop)
        if queues is None:
            queues = self._queues[loop] = LoopQueues(self._working if atom.once is None else self._core)
        return (queues.writes if atom.writes else queues.reads).join(atom, loop)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        answer: Future[T] = Future()
        start(self._working.aside, partial(fulfil, answer, call))
        return await asyncio.wrap_future(answer)
