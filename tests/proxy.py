"""A proxy between a client and a database server that cuts the connection at a chosen point of the exchange."""

from __future__ import annotations

import enum
import select
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from urllib.parse import urlsplit


class Cut(enum.Enum):
    """What becomes of the message at which the connection is cut."""

    BEFORE = "it never reaches the server"
    AFTER = "the server answers, and the answer is lost"
    ORPHAN = "it never reaches the server, which does not notice that its client is gone"
    LATE = "it reaches the server when `deliver` is called; until then that does not notice"


class Proxy:
    """Forwards every connection to a port of the loopback, until it is told to cut one."""

    def __init__(self, port: int) -> None:
        self.target = port  # where new connections go to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._left = -1  # messages of clients until the cut; negative: none
        self._cut = Cut.BEFORE
        self._again: int | None = None  # messages between the cut and another one
        self._endless = False
        self._meanwhile: Callable[[], object] | None = None
        self.cuts = 0
        self.orphaned = False  # whether a session is left that the server does not end by itself
        self._late: tuple[socket.socket, bytes] | None = None
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def url(self, url: str) -> str:
        """Return a server's URL with the proxy in its place."""
        parts = urlsplit(url)
        return parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}").geturl()

    def arm(
        self,
        messages: int,
        cut: Cut,
        meanwhile: Callable[[], object] | None = None,
        again: int | None = None,
        endless: bool = False,
    ) -> None:
        """Cut the connection of the client that sends the message after so many others, from now on.

        What is to happen meanwhile has happened before the client notices. Cut once more `again` messages later, or
        without an end.
        """
        with self._lock:
            self._left, self._cut, self._meanwhile, self._again = messages, cut, meanwhile, again
            self._endless = endless

    def counted(self, call: Callable[[], object]) -> int:
        """Return how many messages of clients a call takes."""
        many = 1000
        self.arm(many, Cut.BEFORE)
        call()
        with self._lock:
            left, self._left = self._left, -1
        return many - left

    def disarm(self) -> bool:
        """Cut nothing any more; return whether it was still to come."""
        with self._lock:
            waiting, self._left = self._left >= 0, -1
            return waiting

    def deliver(self) -> bytes:
        """Let what is late reach the server; return how that answers."""
        assert self._late is not None
        server, found = self._late
        server.sendall(found)
        answer = server.recv(1 << 20)
        _shut(server)
        return answer

    def close(self) -> None:
        """Cut everything, and end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            _shut(each)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # it is away
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            self._start(self._forward, client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        # One message at a time: both protocols are a question and its answer.
        sides = {each.fileno(): each for each in (client, server)}
        poll = select.poll()  # not select(), which knows no file beyond the 1,024th
        for number in sides:
            poll.register(number, select.POLLIN)
        try:
            while True:
                for number, _ in poll.poll():
                    each = sides[number]
                    answers = each.recv(1 << 20)
                    if not answers:
                        return
                    if each is server:
                        client.sendall(answers)
                        continue
                    with self._lock:
                        cut = self._cut if self._left == 0 else None
                        if self._left >= 0:
                            self._left -= 1
                        if cut is not None and self._again is not None:
                            self._left = self._again
                            if not self._endless:
                                self._again = None
                        self.cuts += cut is not None
                    if cut is Cut.AFTER:
                        server.sendall(answers)
                        server.recv(1 << 20)
                    if cut is Cut.LATE:
                        self._late = server, answers
                        _shut(client)
                        server = client  # stays open
                        return
                    if cut is Cut.ORPHAN:
                        self.orphaned = True
                        _shut(client)
                        client = server  # which says nothing more until it is ended
                        if server.recv(1):
                            return
                    if cut is not None:
                        if self._meanwhile is not None:
                            self._meanwhile()
                        return
                    server.sendall(answers)
        except OSError:
            return
        finally:
            for each in (client, server):
                _shut(each)
                each.close()


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already
