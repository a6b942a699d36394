"""A HandlerSocket connection as bytes: what is sent and what comes back, without any reading of it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

PATIENCE = 180.0  # seconds for an answer: what takes longer hangs


@dataclass(frozen=True)
class Address:
    """Where a listener is, and what it wants to hear first."""

    host: str
    port: int
    secret: str = ""


class Ports(Protocol):
    """A server of HandlerSocket: its listener for reading and its listener for writing."""

    @property
    def read(self) -> Address: ...

    @property
    def write(self) -> Address: ...


class Closed(Exception):
    """The server closed the connection; the text is what it had sent of a line by then."""


class Wire:
    """One connection. It is closed at the end of a `with`."""

    def __init__(self, address: Address, authenticate: bool = True) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        if authenticate and address.secret:
            answer = self.ask(f"A\t1\t{address.secret}\n".encode())
            assert answer == b"0\t1\n", answer

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, request: bytes) -> None:
        """Send bytes, all of them."""
        self._socket.sendall(request)

    def lines(self, number: int) -> list[bytes]:
        """Return that many lines of answer, each with its LF.

        Raises: Closed when the server closes before; TimeoutError when it says nothing.
        """
        parts = [self._received]
        missing = number - self._received.count(b"\n")
        while missing > 0:
            some = self._socket.recv(1 << 20)
            if not some:
                self._received = b"".join(parts)
                raise Closed(repr(self._received))
            parts.append(some)
            missing -= some.count(b"\n")
        *lines, rest = b"".join(parts).split(b"\n", number)
        self._received = rest
        return [line + b"\n" for line in lines]

    def ask(self, request: bytes) -> bytes:
        """Send whole lines, and return their answers as they came."""
        self.send(request)
        return b"".join(self.lines(request.count(b"\n")))

    def talk(self, chunks: Sequence[bytes]) -> list[bytes]:
        """Send chunks, each in a packet of its own as far as that can be had, and return the answers of all lines."""
        for chunk in chunks:
            self.send(chunk)
        return self.lines(sum(chunk.count(b"\n") for chunk in chunks))

    def is_closed(self) -> bool:
        """Say whether the server closes the connection, with nothing more said."""
        return self._received == b"" and self._socket.recv(1) == b""
