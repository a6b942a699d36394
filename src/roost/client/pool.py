"""Pools of connections, for threads or tasks: a caller takes the free connection that was used last."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar, Unpack

from roost.client.aio import AsyncHandlerSocket
from roost.client.connection import AsyncClient, Client, Connection
from roost.client.endpoint import Options
from roost.client.requests import Request
from roost.client.sync import HandlerSocket
from roost.errors import Busy, Error, Invalid

C = TypeVar("C", bound=Connection[Any])
T = TypeVar("T")


class _Pool(Generic[C]):
    """The common part of both pools: the connections, and the error for a caller that gets none."""

    def __init__(self, make: type[C], address: str, size: int, wait: float | None, options: Options) -> None:
        if size < 1:
            raise Invalid(f"a pool has at least one connection, not {size}")
        if wait is not None and not 0 <= wait < 10**6:
            raise Invalid(f"wait is a number of seconds or None, not {wait!r}")
        self._wait = wait
        self._all = [make(address, **options) for _ in range(size)]

    def _busy(self) -> Busy:
        return Busy(f"none of {len(self._all)} connections became free within {self._wait:g} s")


class Pool(_Pool[HandlerSocket], Client):
    """Up to `size` connections for threads; the other arguments are those of `HandlerSocket`.

    wait: seconds to wait for a free connection before `Busy`; None waits for ever.

    Connections are made when they are first needed, and stay open; a dropped one is made again by its next user.

    >>> from roost.client import Pool
    >>> with Pool("127.0.0.1:9998", size=4) as pool, pool.take() as server:
    ...     server
    <HandlerSocket 127.0.0.1:9998: not connected>
    """

    def __init__(self, address: str, *, size: int = 8, wait: float | None = 10.0, **options: Unpack[Options]) -> None:
        super().__init__(HandlerSocket, address, size, wait, options)
        self._free: queue.LifoQueue[HandlerSocket] = queue.LifoQueue()
        for each in self._all:
            self._free.put(each)

    @contextmanager
    def take(self) -> Iterator[HandlerSocket]:
        """Take a connection for exclusive use while the block runs. Raises: Busy if none becomes free in time."""
        try:
            taken = self._free.get(timeout=self._wait)
        except queue.Empty:
            raise self._busy() from None
        try:
            yield taken
        finally:
            self._free.put(taken)

    def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests on one free connection; see `Client.pipeline`. Raises: Busy."""
        with self.take() as server:
            return server.pipeline(requests)

    def close(self) -> None:
        """Close all connections, after their current calls."""
        for each in self._all:
            each.close()


class AsyncPool(_Pool[AsyncHandlerSocket], AsyncClient):
    """Up to `size` connections for tasks: `Pool` with `await`. It belongs to the event loop that uses it first.

    >>> from roost.client import AsyncPool
    >>> AsyncPool("127.0.0.1:9998", size=0)
    Traceback (most recent call last):
    roost.errors.Invalid: a pool has at least one connection, not 0
    """

    def __init__(self, address: str, *, size: int = 8, wait: float | None = 10.0, **options: Unpack[Options]) -> None:
        super().__init__(AsyncHandlerSocket, address, size, wait, options)
        self._free: asyncio.LifoQueue[AsyncHandlerSocket] = asyncio.LifoQueue()
        for each in self._all:
            self._free.put_nowait(each)

    @asynccontextmanager
    async def take(self) -> AsyncIterator[AsyncHandlerSocket]:
        """Take a connection for exclusive use while the block runs. Raises: Busy if none becomes free in time."""
        try:
            async with asyncio.timeout(self._wait):
                taken = await self._free.get()
        except TimeoutError:
            raise self._busy() from None
        try:
            yield taken
        finally:
            self._free.put_nowait(taken)

    async def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests on one free connection; see `Client.pipeline`. Raises: Busy."""
        async with self.take() as server:
            return await server.pipeline(requests)

    async def close(self) -> None:
        """Close all connections, after their current calls."""
        for each in self._all:
            await each.close()
