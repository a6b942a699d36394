"""The listening sockets. The supervisor keeps them open, so who waits in their queues outlives a worker's death."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roost.errors import CannotOpen
from roost.server.addresses import Address
from roost.server.settings import Service

BACKLOG = 1024  # connections that wait to be accepted; asyncio accepts as many at once
PATIENCE = 2.0  # seconds that the workers of a supervisor that was killed are given to leave an address

# Linux spreads connections over the sockets of a port; elsewhere the workers share one, and accept from it in a race.
SPREADS = sys.platform == "linux"


@dataclass
class Listener:
    """One bound address, and a socket for each worker: the same for all where it is shared."""

    service: Service
    address: Address
    sockets: list[socket.socket] = field(default_factory=list)
    made: os.stat_result | None = None  # of a unix socket's path

    def of(self, number: int) -> socket.socket:
        """Return the socket of a worker."""
        return self.sockets[number % len(self.sockets)]

    def close(self) -> None:
        """Close the sockets, and remove the path unless somebody else has taken it."""
        if self.made is not None:  # removed while it is still listened at, so nobody else can have it by then
            try:
                if _identity(os.lstat(self.address.path)) == _identity(self.made):
                    os.unlink(self.address.path)
            except FileNotFoundError:
                pass
        for each in self.sockets:
            each.close()


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns  # numbers are used again at once


def listen(service: Service, address: Address, workers: int) -> list[Listener]:
    """Listen at an address, which may stand for several; port 0 becomes one that is free.

    `CannotOpen` when it is not free, or becomes so within `PATIENCE`: the workers of a supervisor that was killed still
    answer, and then leave.
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
    # The first socket is bound alone, so that it fails where anybody is, another `roost serve` too; only then is the
    # port opened to the sockets of the other workers.
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
            if SPREADS:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.listen(BACKLOG)
    except BaseException:
        for each in made:
            each.close()
        raise
    host, port, *_ = made[0].getsockname()
    return Listener(service, Address(str(host), int(port)), made)


def _listen_at_path(service: Service, address: Address) -> Listener:
    _remove_what_nobody_listens_at(address.path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(address.path)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
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
