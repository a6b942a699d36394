"""Where a server is, and how it is spoken to: what both kinds of client are told."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from roost.client.requests import Index, Opening, Request
from roost.errors import Invalid


@dataclass(frozen=True)
class Address:
    """`host:port`, `[::1]:port` or `unix:/path`, taken apart.

    >>> Address.of("[::1]:9998")
    Address(host='::1', port=9998, path=None)
    >>> Address.of("unix:/run/roost.sock")
    Address(host='', port=0, path='/run/roost.sock')
    """

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def of(cls, text: str) -> Address:
        """Read an address. Raises: Invalid."""
        if text.startswith("unix:") and len(text) > 5:
            return cls(path=text[5:])
        host, _, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 2**16:
            raise Invalid(f"{text!r} is no address: host:port, [ip:v6]:port or unix:/path")
        return cls(host, int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Settings:
    """What a client was made with."""

    address: Address
    secret: bytes = field(repr=False)
    timeout: float | None
    connect_timeout: float | None
    tls: ssl.SSLContext | None

    @classmethod
    def of(
        cls,
        address: str,
        secret: str | bytes | None,
        timeout: float | None,
        connect_timeout: float | None,
        tls: ssl.SSLContext | None,
    ) -> Settings:
        """Check what a client is to be made with. Raises: Invalid."""
        for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
            if seconds is not None and not 0 < seconds < 10**6:
                raise Invalid(f"{name} is a number of seconds or None, not {seconds!r}")
        found = Address.of(address)
        if tls is not None and found.path is not None:
            raise Invalid("a Unix socket has no name for TLS to verify")
        return cls(found, secret.encode() if isinstance(secret, str) else secret or b"", timeout, connect_timeout, tls)


def opening(index: Index) -> Request[None]:
    """Return the request that only opens an index."""
    return Opening(index, b"")
