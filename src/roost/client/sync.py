"""`HandlerSocket`: the driver for threads."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any, TypeVar

from roost.client.connection import Client, Connect, Connection, Conversation, Step, checked
from roost.client.endpoint import ClientOptions
from roost.client.exchange import Deadline, Outcomes
from roost.client.requests import Index, Opening, Request
from roost.client.waiting import is_ready
from roost.errors import Error

T = TypeVar("T")

CHUNK = 2**18  # bytes received at once
RECORD = 2**14  # bytes of a TLS record at most
WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Wire:
    """A non-blocking socket."""

    def __init__(self, options: ClientOptions, seconds: float | None) -> None:
        self._socket = options.endpoint.connect(seconds)
        if options.tls is not None:
            try:
                self._socket = options.tls.wrap_socket(self._socket, server_hostname=options.endpoint.host)
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

    def transfer(self, data: memoryview, deadline: Deadline) -> tuple[int, bytes | None]:
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
        deadline = Deadline(self._options.timeout)
        asked = checked(requests)
        steps = self.conversation(asked, deadline)
        if os.getpid() != self._process:
            self._renew()
            self.drop()  # closes this process's copy of the socket; the parent's stays connected
        if not self._lock.acquire(timeout=-1 if self._options.timeout is None else self._options.timeout):
            return self.in_use(asked)
        try:
            if not self._clean:
                self.drop()  # an earlier call was interrupted outside its `try`
            self._clean = False
            try:
                outcomes = self._drive(steps)
            except BaseException:
                self.drop()
                raise
            self._clean = True
            return outcomes
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        with self._lock:
            self.drop()

    def _drive(self, steps: Conversation) -> Outcomes:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._perform(step)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            outcomes: Outcomes = stop.value
            return outcomes

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Connect):
            return _Wire(self._options, step.seconds)
        assert self._wire is not None
        return self._wire.transfer(step.data, step.deadline)
