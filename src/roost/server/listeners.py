"""The listening sockets, and TLS on them.

The supervisor keeps the sockets open, so clients in their queues survive the death of a worker.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import ssl
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roost.databases.addresses import Address
from roost.errors import CannotOpen, Invalid
from roost.server.settings import Service, Settings

BACKLOG = 1024  # connections that wait to be accepted; asyncio also accepts up to this many at once
PATIENCE = 2.0  # seconds to wait until the workers of a killed supervisor have released an address

# Linux distributes connections over the sockets of a port. Elsewhere the workers share one socket and compete for them.
SPREADS = sys.platform == "linux"


@dataclass
class Listener:
    """One bound address, with a socket per worker, or one socket that all workers share."""

    service: Service
    address: Address
    sockets: list[socket.socket] = field(default_factory=list)
    made: os.stat_result | None = None  # the status of a unix socket's path when it was made

    def of(self, number: int) -> socket.socket:
        return self.sockets[number % len(self.sockets)]

    def close(self) -> None:
        """Close the sockets, and remove the path unless it belongs to another process by now."""
        if self.made is not None:  # removed before the socket is closed, so no other process can have bound it yet
            try:
                if _identity(os.lstat(self.address.path)) == _identity(self.made):
                    os.unlink(self.address.path)
            except FileNotFoundError:
                pass
        for each in self.sockets:
            each.close()


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns  # with the time, since inode numbers are reused at once


def listen(service: Service, address: Address, workers: int) -> list[Listener]:
    """Listen at an address, whose host may resolve to several; port 0 becomes a free port.

    `CannotOpen` if the address is in use and not released within `PATIENCE`. It is worth waiting, since the workers of
    a killed supervisor answer what they have received before they exit.
    """
    if address.path:
        return [_patiently(address, partial(_listen_at_path, service, address))]
    listeners: list[Listener] = []
    try:
        for family, place in address.resolve():
            port = place[1] or (listeners[0].address.port if listeners else 0)
            where = (place[0], port, *place[2:])
            listeners.append(_patiently(address, partial(_listen_at_port, service, family, where, workers)))
    except BaseException:
        for each in listeners:
            each.close()
        raise
    return listeners


def _patiently(address: Address, attempt: Callable[[], Listener]) -> Listener:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise CannotOpen(f"cannot listen at {address}: {error.strerror}") from error
            if time.monotonic() > deadline:
                raise CannotOpen(f"cannot listen at {address}: another process does") from error
        time.sleep(0.01)


def _listen_at_port(service: Service, family: socket.AddressFamily, where: tuple[Any, ...], workers: int) -> Listener:
    # The first socket is bound without SO_REUSEPORT, so that it fails if any process uses the port, including another
    # `roost serve`. Only then is the port shared with the sockets of the other workers.
    made: list[socket.socket] = []
    try:
        for _ in range(workers if SPREADS else 1):
            each = socket.socket(family, socket.SOCK_STREAM)
            made.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if len(made) > 1:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind(made[0].getsockname() if len(made) > 1 else where)
            each.listen(BACKLOG)
            if SPREADS:  # not before it listens, or two that bind the port at the same time would both listen there
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        for each in made:
            each.close()
        raise
    host, port, *_ = made[0].getsockname()
    return Listener(service, Address(str(host), int(port)), made)


def _listen_at_path(service: Service, address: Address) -> Listener:
    folder = os.open(os.path.dirname(address.path) or ".", os.O_RDONLY)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Two that start at the same time would each remove what the other has made and does not listen at yet.
        fcntl.flock(folder, fcntl.LOCK_EX)
        _remove_what_nobody_listens_at(address.path)
        made.bind(address.path)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    finally:
        os.close(folder)
    return Listener(service, address, [made], os.lstat(address.path))


def _remove_what_nobody_listens_at(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise CannotOpen(f"cannot listen at unix:{path}: there is something else of that name")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.setblocking(False)
            caller.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        os.unlink(path)
        return
    except BlockingIOError:
        pass  # its queue is full
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context with the settings' certificate; None if they name none; `Invalid` if it cannot be loaded."""
    if settings.tls_cert is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2  # the default depends on how Python was built
    _load(made, settings.tls_cert, settings.tls_key)
    return made


def _load(into: ssl.SSLContext, certificate: str, key: str | None) -> None:
    files = certificate if key is None else f"{certificate} with {key}"
    try:
        into.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise Invalid(f"TLS: {files} is not a PEM certificate with its private key ({error.reason})") from error
    except OSError as error:
        raise Invalid(f"TLS: {files} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise Invalid("TLS: the private key is encrypted, and a server cannot ask for its password")
