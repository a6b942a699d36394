"""The address of a server, and the options of a connection to it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from typing import TypedDict

from roost.errors import Invalid


@dataclass(frozen=True)
class Endpoint:
    """A parsed address: `host:port`, `[::1]:port` or `unix:/path`.

    >>> Endpoint.parse("[::1]:9998")
    Endpoint(host='::1', port=9998, path=None)
    >>> Endpoint.parse("unix:/run/roost.sock")
    Endpoint(host='', port=0, path='/run/roost.sock')
    """

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse an address. Raises: Invalid."""
        if text.startswith("unix:") and len(text) > 5:
            return cls(path=text[5:])
        host, _, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 2**16:
            raise Invalid(f"{text!r} is not an address: host:port, [ip:v6]:port or unix:/path")
        return cls(host, int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, seconds: float | None) -> socket.socket:
        """Return a connected socket, whose timeout is `seconds`. Raises: OSError."""
        if self.path is None:
            made = socket.create_connection((self.host, self.port), seconds)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
        made = socket.socket(socket.AF_UNIX)
        try:
            made.settimeout(seconds)
            made.connect(self.path)
        except BaseException:
            made.close()
            raise
        return made


class Options(TypedDict, total=False):
    """The keyword arguments of `HandlerSocket` and `AsyncHandlerSocket`, which pools pass on."""

    secret: str | bytes | None
    timeout: float | None
    connect_timeout: float | None
    tls: ssl.SSLContext | None


@dataclass(frozen=True)
class ClientOptions:
    """The checked arguments of a client."""

    endpoint: Endpoint
    secret: bytes = field(repr=False)
    timeout: float | None
    connect_timeout: float | None
    tls: ssl.SSLContext | None

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("connect_timeout", self.connect_timeout)):
            if seconds is not None and not 0 < seconds < 10**6:
                raise Invalid(f"{name} is a number of seconds or None, not {seconds!r}")
        if self.tls is not None and self.endpoint.path is not None:
            raise Invalid("a Unix socket has no name for TLS to verify")
