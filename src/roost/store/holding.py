"""Holding a lease for as long as a block runs: it is renewed in the background, and tells when it is lost."""

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
from types import TracebackType
from typing import Any, Generic, TypeVar

from roost.errors import Busy, Error, LeaseLost
from roost.store.runner import AsyncRunner, Runner
from roost.structures.clock import SECOND
from roost.structures.lease.declaration import Grant, Lease

K = TypeVar("K")

log = logging.getLogger("roost")

PAUSE = 0.1  # seconds before a lease that somebody else holds is asked for again
RENEWALS = 3  # in the time of a lease, so that it outlives two that fail


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
        self._until = 0.0  # by the monotonic clock: when it ends, at the latest, from when it was asked for
        self._pause = 0.0  # until the next renewal
        self._over = False
        self._begun = False

    @property
    def grant(self) -> Grant[K]:
        """The grant, as it was renewed last; its `token` stays the same."""
        if self._grant is None:
            raise RuntimeError(f"{self._lease.name}: {self._key!r} is not held yet: this is for `with`")
        return self._grant

    @property
    def token(self) -> int:
        """The fencing number, for what is guarded by the lease."""
        return self.grant.token

    @property
    def lost(self) -> bool:
        """Whether the lease has ended, or may have: it could not be renewed in time, or somebody has ended it."""
        return self._over or time.monotonic() >= self._until

    def check(self) -> None:
        """Raise `LeaseLost` when the lease is lost: before each step that nobody else may do at the same time."""
        if self.lost:
            raise LeaseLost(f"{self._lease.name}: {self._key!r} is not held any more; somebody else may hold it")

    def _begin(self) -> None:
        # Before it asks for the lease.
        if self._begun:
            raise RuntimeError(f"{self._lease.name}: a holding is for one `with`; make another one")
        self._begun = True

    def _take(self, begun: float, grant: Grant[K] | None) -> bool:
        # Notes the answer to a call that was begun at a moment.
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
        self._thread = threading.Thread(target=self._keep, name="roost-lease", daemon=True)

    def __enter__(self) -> Holding[K]:
        self._begin()
        deadline = time.monotonic() + self._wait
        while not self._take(time.monotonic(), self._store.run(self._acquire)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._busy()
            time.sleep(min(PAUSE, left))
        self._thread.start()
        return self

    def _keep(self) -> None:
        while not self._stop.wait(self._pause) and not self.lost:
            begun = time.monotonic()
            try:
                renewed = self._take(begun, self._store.run(self._lease.renew(self.grant, self._ttl)))
            except Error as error:
                self._failed(error)
            else:
                if not renewed:
                    break
        if not self._stop.is_set():
            self._over = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._over = self.lost
        try:
            self._over = not self._store.run(self._lease.release(self.grant)) or self._over
        except Error as failed:  # it ends by itself
            log.warning("%s: %r could not be released: %s", self._lease.name, self._key, failed)
        if error is None and self._over:
            self.check()


class AsyncHolding(Held[K]):
    """Holds a lease while an `async with` block runs; made by `AsyncStore.holding`.

    When the lease is lost, the block is cancelled, as `asyncio.timeout` does, and `LeaseLost` comes out of it.
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
        while not self._take(time.monotonic(), await self._store.run(self._acquire)):
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
            begun = time.monotonic()
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
        assert self._keeper is not None
        assert self._host is not None
        self._keeper.cancel()
        if self._cancelled and error is None:  # it has come too late for the block: it is for the next `await`
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._over = self.lost
        try:
            self._over = not await self._store.run(self._lease.release(self.grant)) or self._over
        except Error as failed:  # it ends by itself
            log.warning("%s: %r could not be released: %s", self._lease.name, self._key, failed)
        ours = self._cancelled and self._host.uncancel() <= self._cancelling
        if self._over and (error is None or (ours and isinstance(error, asyncio.CancelledError))):
            try:
                self.check()
            except LeaseLost as lost:
                raise lost from error
