"""The addresses of servers: `host:port`, `[::1]:port` or `unix:/path`."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from typing import cast

from roost.errors import CannotOpen, Invalid

Place = tuple[str, int] | tuple[str, int, int, int]  # the form that `socket.bind` takes

_FORM = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]\S*)\]|(?P<host>[^\s:\[\]]+)):(?P<port>[0-9]{1,5})", re.ASCII)
_PATH_BYTES = 104  # the limit on macOS; on Linux it is 108


@dataclass(frozen=True)
class Address:
    """One address: a host and a port (0: any free port to listen at), or a path.

    >>> Address.parse("127.0.0.1:9998")
    Address(host='127.0.0.1', port=9998, path='')
    >>> str(Address.parse("[::1]:9998")), str(Address.parse("unix:/run/roost.sock"))
    ('[::1]:9998', 'unix:/run/roost.sock')
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address; the message of `Invalid` shows the valid forms."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path or "\0" in path or len(path.encode()) >= _PATH_BYTES:
                raise Invalid(f"{text!r}: unix: takes a path of 1 to {_PATH_BYTES - 1} bytes")
            return cls(path=path)
        found = _FORM.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise Invalid(f"{text!r} is not an address: 127.0.0.1:9998, [::1]:9998 or unix:/run/roost.sock")
        return cls(host=found["v6"] or found["host"], port=int(found["port"]))

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def resolve(self) -> list[tuple[socket.AddressFamily, Place]]:
        """Resolve the host to socket addresses; `Invalid` if the host is unknown."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise Invalid(f"{self}: {self.host} is not a known host ({error.strerror})") from error
        return list(dict.fromkeys((family, cast(Place, place)) for family, _, _, _, place in found))

    def listen(self) -> tuple[socket.socket, Address]:
        """Listen at a host and port; return the socket, and the address with the port that it has."""
        family, place = self.resolve()[0]
        try:
            made = socket.create_server(place, family=family)
        except OSError as error:
            raise CannotOpen(f"cannot listen at {self}: {os.strerror(error.errno or 0)}") from error
        host, port, *_ = made.getsockname()
        return made, Address(str(host), int(port))

    def connect(self, seconds: float | None) -> socket.socket:
        """Return a connected socket, whose timeout is `seconds`. Raises: OSError."""
        if not self.path:
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

    @property
    def loopback(self) -> bool:
        """Whether only processes on this machine can connect to it."""
        if self.path:
            return True
        places = [str(place[0]).partition("%")[0] for _, place in self.resolve()]
        return all([ipaddress.ip_address(place).is_loopback for place in places])
