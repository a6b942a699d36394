"""`AsyncHandlerSocket` and `AsyncPool`: the client for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar, Unpack

from roost.client.conversation import AsyncClient, Connection, Deadline, Options, checked, connections
from roost.client.requests import Index, Opening, Request
from roost.client.sync import is_ready
from roost.errors import Busy, Error

T = TypeVar("T")


class _Wire(asyncio.Protocol):
    """The socket for asyncio: buffers received bytes, and notes the end of the stream."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._received: list[bytes] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._wake()

    def eof_received(self) -> None:
        self._closed = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._closed, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_stale(self) -> bool:
        assert self._transport is not None
        if self._closed or self._received or self._transport.is_closing():
            return True
        if self._transport.get_extra_info("ssl_object") is not None:
            return False  # bytes in the socket may be a TLS session ticket
        return is_ready(self._transport.get_extra_info("socket").fileno(), 0)  # bytes that the loop has not read yet

    async def transfer(self, data: memoryview, deadline: Deadline) -> tuple[int, bytes | None]:
        if data:
            assert self._transport is not None
            self._transport.write(bytes(data))
            return len(data), None  # returned at once, with no `await` that could fail: the data counts as sent
        try:
            async with asyncio.timeout(deadline.left()):
                return 0, await self._receive()
        except TimeoutError:
            raise deadline.exceeded() from None

    async def _receive(self) -> bytes:
        """Wait for bytes and return all received ones; none if the connection is closed."""
        if not self._received and not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._received and self._error is not None:
            raise self._error
        received = b"".join(self._received)
        self._received.clear()
        return received


class AsyncHandlerSocket(Connection[_Wire], AsyncClient):
    """A connection to one port of a HandlerSocket server, for asyncio: `HandlerSocket` with `await`.

    Its arguments are those of `HandlerSocket`. Tasks use it one after the other; `AsyncPool` has several connections.
    If a task is cancelled while it waits for its answer, the connection is dropped, so no caller receives the answer to
    another's request; the task's own request may have been executed. In another event loop, or after a fork, it
    connects again.

    >>> import asyncio
    >>> from roost.client import AsyncHandlerSocket
    >>> async def main() -> None:
    ...     async with AsyncHandlerSocket("unix:/run/roost/write.sock") as server:
    ...         print(server)  # connects at the first `await server.run(users.find("=", 7))`
    >>> asyncio.run(main())
    <AsyncHandlerSocket unix:/run/roost/write.sock: not connected>
    """

    def _renew(self) -> None:
        self._lock = asyncio.Lock()
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None  # the loop and the process

    async def _connect(self, seconds: float | None) -> _Wire:
        loop, where = asyncio.get_running_loop(), self._address
        try:
            async with asyncio.timeout(seconds):
                if where.path:
                    _, wire = await loop.create_unix_connection(_Wire, where.path)
                else:
                    _, wire = await loop.create_connection(_Wire, where.host, where.port, ssl=self._tls)
        except TimeoutError:
            raise TimeoutError("timed out") from None
        return wire

    async def open_index(
        self, database: str, table: str, index: str, columns: Iterable[str], filters: Iterable[str] = ()
    ) -> Index:
        """Open an index, unless it is open already, and return it; see `HandlerSocket.open_index`."""
        made = Index(database, table, index, columns, filters)
        await self.run(Opening(made, b""))
        return made

    async def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests at once, and return their outcomes in the same order; see `Client.pipeline`."""
        deadline = Deadline(self._timeout)
        asked = checked(requests)
        home = (asyncio.get_running_loop(), os.getpid())
        if self._home != home:
            self._renew()
            self._home = home
            self._wire = None  # not closed, since it belongs to the other loop or process
            self._ids.clear()
        try:
            async with asyncio.timeout(self._timeout):
                await self._lock.acquire()
        except TimeoutError:
            return self._in_use(asked)
        try:
            return await self._converse(asked, deadline)
        except BaseException:
            self._drop()
            raise
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        async with self._lock:
            self._drop()


class AsyncPool(AsyncClient):
    """Up to `size` connections for tasks: `Pool` with `await`. It belongs to the event loop that uses it first.

    >>> from roost.client import AsyncPool
    >>> AsyncPool("127.0.0.1:9998", size=0)
    Traceback (most recent call last):
    roost.errors.Invalid: a pool has at least one connection, not 0
    """

    def __init__(self, address: str, *, size: int = 8, wait: float | None = 10.0, **options: Unpack[Options]) -> None:
        self._all = connections(AsyncHandlerSocket, address, size, wait, options)
        self._wait = wait
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
            raise Busy(f"none of {len(self._all)} connections became free within {self._wait:g} s") from None
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
