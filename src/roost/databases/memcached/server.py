"""One memcached server, and connections to it; and the servers that a URL names."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from urllib.parse import parse_qsl, urlsplit

from pymemcache.client.base import Client  # type: ignore[import-untyped]
from pymemcache.exceptions import MemcacheError  # type: ignore[import-untyped]

from roost.errors import CannotOpen, Invalid

PORT = 11211
KEPT = 64  # idle connections to one server
FRESH = 1.0  # seconds after its last use in which a connection is not looked at before the next: 9 µs


class _Values:
    # pymemcache's serializer: bytes as they are, with their flags.
    @staticmethod
    def serialize(_: bytes, value: bytes) -> tuple[bytes, int]:
        return value, 0

    @staticmethod
    def deserialize(_: str, value: bytes, flags: int) -> tuple[bytes, int]:
        return value, flags


class Server:
    """One server, and connections to it that nobody uses at the moment."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.name = f"{host}:{port}"
        self._address = (host, port)
        self._timeout = max(timeout, 0.01)
        self._idle: deque[tuple[Client, float]] = deque()  # and when they were used last
        self.closed = False

    def take(self) -> Client:
        """Return a connection that is open; `CannotOpen` when there can be none."""
        while True:
            try:
                client, used = self._idle.pop()  # the one used last
            except IndexError:
                break
            if time.monotonic() - used < FRESH or _alive(client):
                return client
            client.close()
        client = Client(
            self._address,
            serde=_Values,
            connect_timeout=self._timeout,
            timeout=self._timeout,
            no_delay=True,
            default_noreply=False,
        )
        try:
            client.version()
            # The kernel's timeouts instead of Python's, which ask it before every read and write: 8 µs of an exchange.
            seconds = struct.pack("ll", int(self._timeout), int(self._timeout % 1 * 1e6))
            client.sock.settimeout(None)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        except (OSError, MemcacheError) as error:
            client.close()
            raise CannotOpen(f"memcached at {self.name} cannot be reached: {worded(error)}") from error
        return client

    def give(self, client: Client) -> None:
        if self.closed or len(self._idle) >= KEPT:
            client.close()
        else:
            self._idle.append((client, time.monotonic()))

    def drop(self) -> None:
        while self._idle:
            try:
                self._idle.pop()[0].close()
            except IndexError:
                return


def _alive(client: Client) -> bool:
    # What a server has closed can be read from; so can an answer that nobody took.
    if client.sock is None:
        return False
    try:
        client.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def worded(error: BaseException) -> str:
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return "the time is over"
    first = error.args[0] if error.args else ""
    text = first.decode("ascii", "replace") if isinstance(first, bytes) else str(error)
    return text or type(error).__name__


def hosts_of(url: str) -> tuple[str, list[tuple[str, int]]]:
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        asked = "a password" if "@" in url else parts.path.strip("/") or parse_qsl(parts.query) or parts.fragment
        raise Invalid(f"memcached://host:port,host:port takes no path and no options, not {asked!r}")
    found = []
    for each in parts.netloc.split(","):
        host, colon, port = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        if not colon:
            host, port = each, str(PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise Invalid(f"{each!r} is not a memcached server; write memcached://host:port,host:port")
        found.append((host.strip("[]"), int(port)))
    if len(set(found)) < len(found):
        raise Invalid(f"{url} names a server twice")
    return f"memcached://{parts.netloc}", found
