"""`HandlerSocket` and `Pool`: the client for threads; `AsyncHandlerSocket` and `AsyncPool`: for asyncio."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar, Unpack

from roost.client.conversation import AsyncClient, Client, Connection, Deadline, Options, checked, connections
from roost.client.requests import Index, Opening, Request
from roost.databases.callers import now
from roost.errors import Busy, Error

T = TypeVar("T")

CHUNK = 2**18  # bytes received at once
RECORD = 2**14  # bytes of a TLS record at most
WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def is_ready(connection: socket.socket | int, seconds: float | None, *, to_write: bool = False) -> bool:
    """Return whether a socket becomes readable (or writable, with `to_write`) within `seconds`.

    `poll` is used if the system has it (Windows has not), since `select` accepts no file number from 1,024 on, except
    on Windows.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if to_write else 0))
        return bool(poll.poll(None if seconds is None else seconds * 1000))
    return any(select.select([connection], [connection] if to_write else [], [], seconds))


class _Wire:
    """A non-blocking socket, for which the caller's thread waits."""

    def __init__(self, connection: socket.socket, tls: ssl.SSLContext | None, host: str) -> None:
        self._socket = connection
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(connection, server_hostname=host)
            except BaseException:
                self.close()
                raise
        self._socket.setblocking(False)
        self._begun = memoryview(b"")  # a record that TLS must send before anything else; it counts as sent

    def close(self) -> None:
        self._socket.close()

    def is_stale(self) -> bool:
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                return self._socket.recv(1) is not None  # TLS may have sent a session ticket, which this reads
            self._socket.recv(1, socket.MSG_PEEK)
        except WOULD_WAIT:
            return False
        except OSError:
            pass
        return True

    async def transfer(self, data: memoryview, deadline: Deadline) -> tuple[int, bytes | None]:
        connection = self._socket
        encrypted = isinstance(connection, ssl.SSLSocket)
        if encrypted and data and not self._begun:
            # When TLS has to wait, it does not tell how much it has sent by then.
            self._begun = data[:RECORD]
            return len(self._begun), None
        unsent = self._begun if encrypted else data
        while True:
            if unsent:
                try:
                    sent = connection.send(unsent)
                except WOULD_WAIT:
                    pass
                else:
                    self._begun = self._begun[sent:]
                    return 0 if encrypted else sent, None
            buffered = isinstance(connection, ssl.SSLSocket) and connection.pending()
            if not buffered and not is_ready(connection, deadline.left(), to_write=bool(unsent)):
                raise deadline.exceeded()
            try:
                return 0, connection.recv(CHUNK)
            except WOULD_WAIT:
                pass


class HandlerSocket(Connection[_Wire], Client):
    """A connection to one port of a HandlerSocket server, Roost's or MariaDB's plugin.

    address: `host:port`, `[::1]:port` or `unix:/path`. The write port serves reads too, the read port reads only.
    secret: the secret of that port, if it has one.
    timeout: seconds for a call, from its beginning, while others may use the connection, to its last answer; None waits
        for ever. connect_timeout: seconds of these for connecting. Looking up a host's name is not bounded.
    tls: an `ssl.SSLContext`, which decides how the host's name is verified.

    It connects on first use, and again when necessary. Threads use it one after the other; `Pool` has several
    connections. After a fork the child connects again. **A connection is dropped, never reused**, after a timeout, an
    I/O error, an answer that is not valid for its request, and Ctrl-C, so no caller receives the answer to another's
    request. A read is then sent once more. A modification is sent again only if its line cannot have arrived
    completely; otherwise it is `OutcomeUnknown`.

    >>> from roost.client import HandlerSocket, Index
    >>> users = Index("app", "users", "PRIMARY", ["id", "email"])
    >>> with HandlerSocket("127.0.0.1:9998", secret="s") as server:
    ...     server  # connects at the first `server.run(users.find("=", 7))`
    <HandlerSocket 127.0.0.1:9998: not connected>
    """

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._clean = True  # no call was interrupted
        self._process = os.getpid()

    async def _connect(self, seconds: float | None) -> _Wire:
        return _Wire(self._address.connect(seconds), self._tls, self._address.host)

    def open_index(
        self, database: str, table: str, index: str, columns: Iterable[str], filters: Iterable[str] = ()
    ) -> Index:
        """Open an index, unless it is open already, and return it; its methods make requests for `run`.

        It need not be called, since `run` opens indexes itself; it reports early that a table is missing (`Refused`).
        """
        made = Index(database, table, index, columns, filters)
        self.run(Opening(made, b""))
        return made

    def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests at once, and return their outcomes in the same order; see `Client.pipeline`."""
        deadline = Deadline(self._timeout)
        asked = checked(requests)
        self._leave_parent()
        if not self._lock.acquire(timeout=-1 if self._timeout is None else self._timeout):
            return self._in_use(asked)
        try:
            if not self._clean:
                self._drop()  # an earlier call was interrupted outside its `try`
            self._clean = False
            try:
                outcomes = now(self._converse(asked, deadline))
            except BaseException:
                self._drop()
                raise
            self._clean = True
            return outcomes
        finally:
            self._lock.release()

    def _leave_parent(self) -> None:
        if os.getpid() != self._process:
            self._renew()
            self._drop()  # closes this process's copy of the socket; the parent's stays connected

    def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        self._leave_parent()
        with self._lock:
            self._drop()


class Pool(Client):
    """Up to `size` connections for threads; the other arguments are those of `HandlerSocket`.

    wait: seconds to wait for a free connection before `Busy`; None waits for ever.

    Connections are made when they are first needed, and stay open; a dropped one is made again by its next user.

    >>> from roost.client import Pool
    >>> with Pool("127.0.0.1:9998", size=4) as pool, pool.take() as server:
    ...     server
    <HandlerSocket 127.0.0.1:9998: not connected>
    """

    def __init__(self, address: str, *, size: int = 8, wait: float | None = 10.0, **options: Unpack[Options]) -> None:
        self._all = connections(HandlerSocket, address, size, wait, options)
        self._wait = wait
        self._renew()

    def _renew(self) -> None:
        self._process = os.getpid()
        self._free: queue.LifoQueue[HandlerSocket] = queue.LifoQueue()  # the connection used last is taken first
        for each in self._all:
            self._free.put(each)

    @contextmanager
    def take(self) -> Iterator[HandlerSocket]:
        """Take a connection for exclusive use while the block runs. Raises: Busy if none becomes free in time."""
        if os.getpid() != self._process:
            self._renew()  # what the parent's threads had taken is free here
        free = self._free
        try:
            taken = free.get(timeout=self._wait)
        except queue.Empty:
            raise Busy(f"none of {len(self._all)} connections became free within {self._wait:g} s") from None
        try:
            yield taken
        finally:
            free.put(taken)

    def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests on one free connection; see `Client.pipeline`. Raises: Busy."""
        with self.take() as server:
            return server.pipeline(requests)

    def close(self) -> None:
        """Close all connections, after their current calls."""
        for each in self._all:
            each.close()


class _AsyncWire(asyncio.Protocol):
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


class AsyncHandlerSocket(Connection[_AsyncWire], AsyncClient):
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

    async def _connect(self, seconds: float | None) -> _AsyncWire:
        loop, where = asyncio.get_running_loop(), self._address
        try:
            async with asyncio.timeout(seconds):
                if where.path:
                    _, wire = await loop.create_unix_connection(_AsyncWire, where.path)
                else:
                    _, wire = await loop.create_connection(_AsyncWire, where.host, where.port, ssl=self._tls)
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
        self._settle()
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

    def _settle(self) -> None:
        home = (asyncio.get_running_loop(), os.getpid())
        if self._home != home:
            self._renew()
            self._home = home
            self._wire = None  # not closed, since it belongs to the other loop or process
            self._ids.clear()

    async def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        self._settle()
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
