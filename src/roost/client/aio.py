"""`AsyncHandlerSocket`: the driver for asyncio."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

from roost.client.conversation import Control, Outcomes, Session, Step, Transfer, converse
from roost.client.requests import Index, Request
from roost.client.settings import Settings, opening
from roost.client.waiting import is_ready
from roost.errors import Error

T = TypeVar("T")


class _Wire(asyncio.Protocol):
    """The bytes that came, and whether more will."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self._came: list[bytes] = []
        self._why: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._came.append(data)
        self._wake()

    def eof_received(self) -> None:
        self.closed = True
        self._wake()

    def connection_lost(self, why: Exception | None) -> None:
        self.closed, self._why = True, why
        self._wake()

    def is_stale(self) -> bool:
        """Whether it was closed, or says what nobody asked for; also what the loop has not seen yet."""
        assert self.transport is not None
        if self.closed or self._came or self.transport.is_closing():
            return True
        if self.transport.get_extra_info("ssl_object") is not None:
            return False  # what the socket has may be a ticket
        return is_ready(self.transport.get_extra_info("socket").fileno(), 0)

    async def take(self) -> bytes:
        """Wait for bytes and return all that came; none when it was closed."""
        if not self._came and not self.closed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._came and self._why is not None:
            raise self._why
        came = b"".join(self._came)
        self._came.clear()
        return came

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsyncHandlerSocket:
    """A connection to one port of a HandlerSocket server, for asyncio: `HandlerSocket` with `await`.

    Takes what `HandlerSocket` takes. Tasks take turns; `AsyncPool` has several. A task that is cancelled while it
    waits for its answer costs the connection, so nobody gets the answer to another's request; what it asked for may be
    done. Used in another event loop, or after a fork, it connects anew.

    >>> import asyncio
    >>> from roost.client import AsyncHandlerSocket
    >>> async def main() -> None:
    ...     async with AsyncHandlerSocket("unix:/run/roost/write.sock") as server:
    ...         print(server)  # connects at the first `await server.run(users.find("=", 7))`
    >>> asyncio.run(main())
    <AsyncHandlerSocket unix:/run/roost/write.sock: not connected>
    """

    def __init__(
        self,
        address: str,
        *,
        secret: str | bytes | None = None,
        timeout: float | None = 10.0,
        connect_timeout: float | None = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = Settings.of(address, secret, timeout, connect_timeout, tls)
        self._session = Session()
        self._wire: _Wire | None = None
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None  # the loop and the process
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        known = "not connected" if self._wire is None else f"connected, {len(self._session.ids)} indexes open"
        return f"<{type(self).__name__} {self._settings.address}: {known}>"

    async def __aenter__(self) -> AsyncHandlerSocket:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open_index(
        self, database: str, table: str, index: str, columns: Iterable[str], filters: Iterable[str] = ()
    ) -> Index:
        """Open an index, unless it is open already, and return it: its methods make what `run` sends.

        Not needed before `run`, which opens what it needs; it tells early that there is no such table (`Refused`).
        """
        made = Index(database, table, index, columns, filters)
        await self.run(opening(made))
        return made

    async def run(self, request: Request[T]) -> T:
        """Send a request and return its result. Raises what `HandlerSocket.run` raises."""
        (outcome,) = await self._converse([request])
        if isinstance(outcome, Error):
            raise outcome
        result: T = outcome
        return result

    async def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests at once and return the outcome of each, in their order: its result, or its error.

        Each stands for itself: what fails costs no other. The server runs them in their order.
        """
        return await self._converse(list(requests))

    async def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        async with self._lock:
            self._drop()

    async def _converse(self, requests: list[Request[Any]]) -> Outcomes:
        home = (asyncio.get_running_loop(), os.getpid())
        if self._home != home:
            self._forget()
            self._home = home
        async with self._lock:
            try:
                return await self._drive(requests)
            except BaseException:
                self._drop()
                raise

    async def _drive(self, requests: list[Request[Any]]) -> Outcomes:
        settings = self._settings
        deadline = None if settings.timeout is None else asyncio.get_running_loop().time() + settings.timeout
        steps = converse(self._session, settings.secret, requests, str(settings.address))
        try:
            step = next(steps)
            while True:
                try:
                    done = await self._do(step, deadline)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as stop:
            outcomes: Outcomes = stop.value
            return outcomes

    async def _do(self, step: Step, deadline: float | None) -> Any:
        if isinstance(step, Transfer):
            return await self._transfer(step.data, deadline)
        if step is Control.DROP:
            return self._drop()
        if self._wire is not None and not self._wire.is_stale():
            return False
        self._drop()
        await self._connect(deadline)
        return True

    async def _connect(self, deadline: float | None) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        address, tls = settings.address, settings.tls
        bounds = [deadline, None if settings.connect_timeout is None else loop.time() + settings.connect_timeout]
        try:
            async with asyncio.timeout_at(min([bound for bound in bounds if bound is not None], default=None)):
                if address.path is not None:
                    _, self._wire = await loop.create_unix_connection(_Wire, address.path)
                else:
                    _, self._wire = await loop.create_connection(_Wire, address.host, address.port, ssl=tls)
        except TimeoutError:
            raise TimeoutError("timed out") from None

    async def _transfer(self, data: memoryview, deadline: float | None) -> tuple[int, bytes | None]:
        wire = self._wire
        assert wire is not None
        assert wire.transport is not None
        if data:
            wire.transport.write(bytes(data))
            return len(data), None  # told before anything can go wrong: it counts as sent
        try:
            async with asyncio.timeout_at(deadline):
                return 0, await wire.take()
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._settings.timeout:g} s") from None

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        self._session.is_new()
        if wire is not None and wire.transport is not None:
            wire.transport.abort()

    def _forget(self) -> None:
        """In another loop or process: what there was belongs to the one before, and is not touched."""
        self._wire, self._lock = None, asyncio.Lock()
        self._session.is_new()
