"""`HandlerSocket`: the driver for threads."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

from roost.client.conversation import Control, Outcomes, Session, Step, Transfer, converse
from roost.client.requests import Index, Request
from roost.client.settings import Settings, opening
from roost.client.waiting import is_ready
from roost.errors import Error

T = TypeVar("T")

CHUNK = 2**18  # bytes taken at once
WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class HandlerSocket:
    """A connection to one port of a HandlerSocket server, Roost's or MariaDB's plugin.

    address: `host:port`, `[::1]:port` or `unix:/path`. The port for writing reads too; the other one reads only.
    secret: what that port wants to be told, if anything.
    timeout: seconds for a call, from its beginning to its last answer; None waits for ever. connect_timeout: seconds
        for the part of it that connects. Looking up a host's name is not bounded.
    tls: a context of `ssl`; the host's name is verified as the context has it.

    It connects when it is first used, and anew when it has to. Threads take turns; `Pool` has several. After a fork
    the child connects anew. **A connection is dropped, never reused**, after a timeout, an I/O error, an answer that
    cannot be one, and Ctrl-C, so nobody gets the answer to another's request. What only reads is then sent once more.
    What modifies is sent again only where nothing of it can have arrived; otherwise it is `OutcomeUnknown`.

    >>> from roost.client import HandlerSocket, Index
    >>> users = Index("app", "users", "PRIMARY", ["id", "email"])
    >>> with HandlerSocket("127.0.0.1:9998", secret="s") as server:
    ...     server  # connects at the first `server.run(users.find("=", 7))`
    <HandlerSocket 127.0.0.1:9998: not connected>
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
        self._lock = threading.Lock()
        self._session = Session()
        self._socket: socket.socket | None = None
        self._clean = True  # nothing is on its way
        self._owner = os.getpid()

    def __repr__(self) -> str:
        known = "not connected" if self._socket is None else f"connected, {len(self._session.ids)} indexes open"
        return f"<{type(self).__name__} {self._settings.address}: {known}>"

    def __enter__(self) -> HandlerSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open_index(
        self, database: str, table: str, index: str, columns: Iterable[str], filters: Iterable[str] = ()
    ) -> Index:
        """Open an index, unless it is open already, and return it: its methods make what `run` sends.

        Not needed before `run`, which opens what it needs; it tells early that there is no such table (`Refused`).
        """
        made = Index(database, table, index, columns, filters)
        self.run(opening(made))
        return made

    def run(self, request: Request[T]) -> T:
        """Send a request and return its result.

        Raises: Refused, the server's error; TimedOut, ConnectionLost and CannotOpen, which are safe to try again;
            OutcomeUnknown for a modification that may have happened; Mismatch where an answer is no UTF-8.
        """
        (outcome,) = self._converse([request])
        if isinstance(outcome, Error):
            raise outcome
        result: T = outcome
        return result

    def pipeline(self, requests: Iterable[Request[T]]) -> list[T | Error]:
        """Send many requests at once and return the outcome of each, in their order: its result, or its error.

        Each stands for itself: what fails costs no other. The server runs them in their order.
        """
        return self._converse(list(requests))

    def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        with self._lock:
            self._drop()

    def _converse(self, requests: list[Request[Any]]) -> Outcomes:
        if os.getpid() != self._owner:
            self._forget()
        with self._lock:
            if not self._clean:
                self._drop()  # a call was interrupted at a place where nothing could be done about it
            self._clean = False
            try:
                outcomes = self._drive(requests)
            except BaseException:
                self._drop()
                raise
            self._clean = True
            return outcomes

    def _drive(self, requests: list[Request[Any]]) -> Outcomes:
        settings = self._settings
        deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
        steps = converse(self._session, settings.secret, requests, str(settings.address))
        try:
            step = next(steps)
            while True:
                try:
                    done = self._do(step, deadline)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as stop:
            outcomes: Outcomes = stop.value
            return outcomes

    def _do(self, step: Step, deadline: float | None) -> Any:
        if isinstance(step, Transfer):
            return self._transfer(step.data, deadline)
        if step is Control.DROP:
            return self._drop()
        if self._socket is not None and not self._is_stale(self._socket):
            return False
        self._drop()
        self._connect(deadline)
        return True

    def _connect(self, deadline: float | None) -> None:
        settings, address = self._settings, self._settings.address
        bounds = [settings.connect_timeout, None if deadline is None else deadline - time.monotonic()]
        seconds = min([bound for bound in bounds if bound is not None], default=None)
        if seconds is not None and seconds <= 0:
            raise TimeoutError("no time is left")
        if address.path is not None:
            made = socket.socket(socket.AF_UNIX)
            self._socket = made
            made.settimeout(seconds)
            made.connect(address.path)
        else:
            made = socket.create_connection((address.host, address.port), seconds)
            self._socket = made
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls is not None:
            self._socket = settings.tls.wrap_socket(made, server_hostname=address.host)
        self._socket.setblocking(False)

    def _is_stale(self, connection: socket.socket) -> bool:
        """Whether an idle connection was closed from the other side, or says what nobody asked for."""
        try:
            if isinstance(connection, ssl.SSLSocket):
                return connection.recv(1) is not None  # what comes unasked may be a ticket, which is read here
            connection.recv(1, socket.MSG_PEEK)
        except WOULD_WAIT:
            return False
        except OSError:
            pass
        return True

    def _transfer(self, data: memoryview, deadline: float | None) -> tuple[int, bytes | None]:
        connection = self._socket
        assert connection is not None
        while True:
            if data:
                try:
                    return connection.send(data), None
                except WOULD_WAIT:
                    pass
            if not (isinstance(connection, ssl.SSLSocket) and connection.pending()):
                self._wait(connection, bool(data), deadline)
            try:
                return 0, connection.recv(CHUNK)
            except WOULD_WAIT:
                pass

    def _wait(self, connection: socket.socket, to_write: bool, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if (left is not None and left <= 0) or not is_ready(connection, left, to_write=to_write):
            raise TimeoutError(f"no answer within {self._settings.timeout:g} s")

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        self._session.is_new()
        if connection is not None:
            connection.close()

    def _forget(self) -> None:
        """After a fork: close this process's copy; the parent's connection goes on."""
        self._owner, self._lock = os.getpid(), threading.Lock()
        self._drop()
