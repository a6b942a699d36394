"""Several connections, for threads or for tasks: who asks takes one that is free, the one that was used last."""

from __future__ import annotations

import asyncio
import queue
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TypeVar

from roost.client.aio import AsyncHandlerSocket
from roost.client.requests import Request
from roost.client.sync import HandlerSocket
from roost.errors import Busy, Error, Invalid

T = TypeVar("T")


def _checked(size: int, wait: float | None) -> int:
    if size < 1:
        raise Invalid(f"a pool has at least one connection, not {size}")
    if wait is not None and not 0 <= wait < 10**6:
        raise Invalid(f"wait is a number of seconds or None, not {wait!r}")
    return size


class Pool:
    """Up to `size` connections for threads; the other arguments are those of `HandlerSocket`.

    wait: seconds to wait for a free one before `Busy`; None waits for ever.

    Connections are made when they are first needed, and stay; one that was dropped is made anew by its next user.

    >>> from roost.client import Pool
    >>> with Pool("127.0.0.1:9998", size=4) as pool, pool.take() as server:
    ...     server
    <HandlerSocket 127.0.0.1:9998: not connected>
    """

    def __init__(
        self,
        address: str,
        *,
        size: int = 8,
        wait: float | None = 10.0,
        secret: str | bytes | None = None,
        timeout: float | None = 10.0,
        connect_timeout: float | None = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._all = [
            HandlerSocket(address, secret=secret, timeout=timeout, connect_timeout=connect_timeout, tls=tls)
            for _ in range(_checked(size, wait))
        ]
        self._wait = wait
        self._free: queue.LifoQueue[HandlerSocket] = queue.LifoQueue()
        for each in self._all:
            self._free.put(each)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def take(self) -> Iterator[HandlerSocket]:
        """Have a connection to yourself for a while. Raises: Busy when none became free in time."""
        try:
            taken = self._free.get(timeout=self._wait)
        except queue.Empty:
            raise Busy(f"none of {len(self._all)} connections became free within {self._wait:g} s") from None
        try:
            yield taken
        finally:
            self._free.put(taken)

    def run(self, request: Request[T]) -> T:
        """Send a request on a free connection; see `HandlerSocket.run`. Raises also: Busy."""
        with self.take() as server:
            return server.run(request)

    def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests on one free connection; see `HandlerSocket.pipeline`. Raises: Busy."""
        with self.take() as server:
            return server.pipeline(requests)

    def close(self) -> None:
        """Close all connections, after the calls that they are busy with."""
        for each in self._all:
            each.close()


class AsyncPool:
    """Up to `size` connections for tasks: `Pool` with `await`. It belongs to the event loop that uses it first.

    >>> from roost.client import AsyncPool
    >>> AsyncPool("127.0.0.1:9998", size=0)
    Traceback (most recent call last):
    roost.errors.Invalid: a pool has at least one connection, not 0
    """

    def __init__(
        self,
        address: str,
        *,
        size: int = 8,
        wait: float | None = 10.0,
        secret: str | bytes | None = None,
        timeout: float | None = 10.0,
        connect_timeout: float | None = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._all = [
            AsyncHandlerSocket(address, secret=secret, timeout=timeout, connect_timeout=connect_timeout, tls=tls)
            for _ in range(_checked(size, wait))
        ]
        self._wait = wait
        self._free: asyncio.LifoQueue[AsyncHandlerSocket] = asyncio.LifoQueue()
        for each in self._all:
            self._free.put_nowait(each)

    async def __aenter__(self) -> AsyncPool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[AsyncHandlerSocket]:
        """Have a connection to yourself for a while. Raises: Busy when none became free in time."""
        try:
            async with asyncio.timeout(self._wait):
                taken = await self._free.get()
        except TimeoutError:
            raise Busy(f"none of {len(self._all)} connections became free within {self._wait:g} s") from None
        try:
            yield taken
        finally:
            self._free.put_nowait(taken)

    async def run(self, request: Request[T]) -> T:
        """Send a request on a free connection; see `HandlerSocket.run`. Raises also: Busy."""
        async with self.take() as server:
            return await server.run(request)

    async def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests on one free connection; see `HandlerSocket.pipeline`. Raises: Busy."""
        async with self.take() as server:
            return await server.pipeline(requests)

    async def close(self) -> None:
        """Close all connections, after the calls that they are busy with."""
        for each in self._all:
            await each.close()
