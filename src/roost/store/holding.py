"""Hold a lease while a `with` block runs: it is renewed in the background, and its loss is reported.

A caller that is interrupted while it acquires a lease leaves none behind: the operation may be committed all the same,
so it runs to its end apart from its caller, and what it has acquired is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from roost.databases.engine import whole
from roost.errors import Busy, Error, LeaseLost
from roost.store.links import fulfil
from roost.store.runner import AsyncRunner, Runner
from roost.structures.clock import SECOND
from roost.structures.lease import Grant, Lease
from roost.structures.operation import Operation

K = TypeVar("K")
T = TypeVar("T")

log = logging.getLogger("roost")

PAUSE = 0.1  # seconds between attempts to acquire a lease that another holder has
RENEWALS = 3  # per ttl of the lease, so that it survives two failed renewals


def elapsed() -> float:
    """Return seconds by a clock that nobody sets, and that goes on, where there is one, while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def apart(store: Runner, operation: Operation[T], answer: Future[T] | None = None) -> T:
    """Run an operation in a thread of its own, in which no signal handler and no other thread raises an exception.

    A caller that is interrupted still waits for its end. answer: gets the answer.
    """
    found: Future[T] = Future() if answer is None else answer
    try:
        run = partial(fulfil, found, partial(store.run, operation))
        threading.Thread(target=run, name="roost-lease", daemon=True).start()
        return found.result()
    except BaseException:
        if not found.cancel():
            found.exception()
        raise


def acquired(store: Runner, operation: Operation[T | None], release: Callable[[T], Operation[Any]]) -> T | None:
    """Run an operation that acquires a lease; if its caller is interrupted, release the lease, and raise the error."""
    answer: Future[T | None] = Future()
    try:
        return apart(store, operation, answer)
    except BaseException:
        if not answer.cancelled() and answer.exception() is None and (grant := answer.result()) is not None:
            apart(store, release(grant))
        raise


async def aacquired(
    store: AsyncRunner, operation: Operation[T | None], release: Callable[[Any], Operation[Any]]
) -> T | None:
    """Run an operation that acquires a lease; if its caller is cancelled, release the lease first."""
    grant, cancelled = await whole(store.run(operation))
    if cancelled is not None:
        if grant is not None:
            await whole(store.run(release(grant)))
        raise cancelled
    return grant


class Held(Generic[K]):
    """A lease that this process holds, or held."""

    def __init__(self, lease: Lease[K], key: K, ttl: dt.timedelta | float, holder: str | None, wait: float) -> None:
        if holder is None:
            holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self._lease, self._key, self._ttl = lease, key, ttl
        self._acquire = lease.acquire(key, holder, ttl)
        self._seconds: float = self._acquire.args[2] / SECOND
        self._wait = wait
        self._grant: Grant[K] | None = None
        self._until = 0.0  # the earliest possible end, counted from the request, by `elapsed`
        self._pause = 0.0  # until the next renewal
        self._over = False
        self._begun = False

    @property
    def grant(self) -> Grant[K]:
        """The grant of the last renewal; its `token` never changes."""
        if self._grant is None:
            raise RuntimeError(f"{self._lease.name}: {self._key!r} is not held yet: this is for `with`")
        return self._grant

    @property
    def token(self) -> int:
        """The fencing token, to be passed to the resource that the lease guards."""
        return self.grant.token

    @property
    def lost(self) -> bool:
        """Whether the lease has, or may have, ended: it was not renewed in time, or was released by another caller."""
        return self._over or elapsed() >= self._until

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost; call it before each step that only the holder may do."""
        if self.lost:
            raise LeaseLost(f"{self._lease.name}: {self._key!r} is not held any more; somebody else may hold it")

    def _begin(self) -> None:
        # Called before the lease is requested.
        if self._begun:
            raise RuntimeError(f"{self._lease.name}: a holding is for one `with`; make another one")
        self._begun = True
        self._process = os.getpid()

    @property
    def _is_inherited(self) -> bool:
        # Whether this is a child that was forked in the block: the lease is its parent's.
        return os.getpid() != self._process

    def _take(self, begun: float, grant: Grant[K] | None) -> bool:
        # Store the answer to a request that was sent at `begun`.
        if grant is None:
            return False
        self._grant = grant
        self._until = begun + self._seconds
        self._pause = self._seconds / RENEWALS
        return True

    def _failed(self, error: BaseException) -> None:
        log.warning("%s: %r could not be renewed: %s", self._lease.name, self._key, error)
        self._pause = self._seconds / RENEWALS / 4

    def _busy(self) -> Busy:
        return Busy(f"{self._lease.name}: {self._key!r} is held by somebody else")


class Holding(Held[K]):
    """Holds a lease while a `with` block runs; made by `Store.holding`."""

    def __init__(self, store: Runner, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._store = store
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="roost-lease", daemon=True)

    def __enter__(self) -> Holding[K]:
        self._begin()
        deadline = time.monotonic() + self._wait
        try:
            while not self._take(elapsed(), acquired(self._store, self._acquire, self._lease.release)):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._busy()
                time.sleep(min(PAUSE, left))
            self._thread.start()
        except BaseException:
            self._stop.set()
            if self._grant is not None:
                apart(self._store, self._lease.release(self.grant))
            raise
        return self

    def _keep(self) -> None:
        # Renews the lease, and releases it: the thread that runs the block may be interrupted meanwhile.
        try:
            while not self._stop.wait(self._pause) and not self.lost:
                begun = elapsed()
                try:
                    renewed = self._take(begun, self._store.run(self._lease.renew(self.grant, self._ttl)))
                except Error as error:
                    self._failed(error)
                else:
                    if not renewed:
                        break
            if not self._stop.is_set():
                self._over = True
            self._stop.wait()
            self._over = self.lost
            try:
                self._over = not self._store.run(self._lease.release(self.grant)) or self._over
            except Error as failed:  # harmless: the lease expires by itself
                log.warning("%s: %r could not be released: %s", self._lease.name, self._key, failed)
        finally:
            self._ended.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_inherited:
            return
        self._stop.set()
        try:
            self._ended.wait()
        except BaseException:
            self._ended.wait()  # a thread's join() that was interrupted would not wait a second time
            raise
        if error is None and self._over:
            self.check()


class AsyncHolding(Held[K]):
    """Holds a lease while an `async with` block runs; made by `AsyncStore.holding`.

    When the lease is lost, the block is cancelled, as `asyncio.timeout` does, and `LeaseLost` is raised from it.
    """

    def __init__(self, store: AsyncRunner, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._store = store
        self._host: asyncio.Task[Any] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cancelling = 0
        self._cancelled = False

    async def __aenter__(self) -> AsyncHolding[K]:
        self._begin()
        deadline = time.monotonic() + self._wait
        while not self._take(elapsed(), await aacquired(self._store, self._acquire, self._lease.release)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._busy()
            await asyncio.sleep(min(PAUSE, left))
        self._host = asyncio.current_task()
        assert self._host is not None
        self._cancelling = self._host.cancelling()
        self._keeper = asyncio.create_task(self._keep(self._host))
        return self

    async def _keep(self, host: asyncio.Task[Any]) -> None:
        while True:
            await asyncio.sleep(self._pause)
            begun = elapsed()
            if self.lost:
                break
            try:
                async with asyncio.timeout(self._until - begun):
                    renewed = self._take(begun, await self._store.run(self._lease.renew(self.grant, self._ttl)))
            except (Error, TimeoutError) as error:
                self._failed(error)
            else:
                if not renewed:
                    break
        self._over = self._cancelled = True
        host.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_inherited:
            return
        assert self._keeper is not None
        assert self._host is not None
        self._keeper.cancel()
        if self._cancelled and error is None:  # the block ended before the cancellation arrived: consume it here
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        _, cancelled = await whole(self._end(self._keeper))
        ours = self._cancelled and self._host.uncancel() <= self._cancelling
        if cancelled is not None:
            raise cancelled
        if self._over and (error is None or (ours and isinstance(error, asyncio.CancelledError))):
            try:
                self.check()
            except LeaseLost as lost:
                raise lost from error

    async def _end(self, keeper: asyncio.Task[None]) -> None:
        await asyncio.gather(keeper, return_exceptions=True)
        self._over = self.lost
        try:
            self._over = not await self._store.run(self._lease.release(self.grant)) or self._over
        except Error as failed:  # harmless: the lease expires by itself
            log.warning("%s: %r could not be released: %s", self._lease.name, self._key, failed)
