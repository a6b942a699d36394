"""Hold a lease while a `with` block runs: it is renewed in the background, and its loss is reported."""

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

PAUSE = 0.1  # seconds between attempts to acquire a lease that another holder has
RENEWALS = 3  # per ttl of the lease, so that it survives two failed renewals


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
        self._until = 0.0  # the earliest possible end, counted from the request, by the monotonic clock
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
        return self._over or time.monotonic() >= self._until

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost; call it before each step that only the holder may do."""
        if self.lost:
            raise LeaseLost(f"{self._lease.name}: {self._key!r} is not held any more; somebody else may hold it")

    def _begin(self) -> None:
        # Called before the lease is requested.
        if self._begun:
            raise RuntimeError(f"{self._lease.name}: a holding is for one `with`; make another one")
        self._begun = True

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
        except Error as failed:  # harmless: the lease expires by itself
            log.warning("%s: %r could not be released: %s", self._lease.name, self._key, failed)
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
        if self._cancelled and error is None:  # the block ended before the cancellation arrived: consume it here
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._over = self.lost
        try:
            self._over = not await self._store.run(self._lease.release(self.grant)) or self._over
        except Error as failed:  # harmless: the lease expires by itself
            log.warning("%s: %r could not be released: %s", self._lease.name, self._key, failed)
        ours = self._cancelled and self._host.uncancel() <= self._cancelling
        if self._over and (error is None or (ours and isinstance(error, asyncio.CancelledError))):
            try:
                self.check()
            except LeaseLost as lost:
                raise lost from error
