"""Waiting for a socket, on systems without `poll` (Windows) too."""

from __future__ import annotations

import select
import socket


def is_ready(connection: socket.socket | int, seconds: float | None, *, to_write: bool = False) -> bool:
    """Return whether a socket has something to be read, or takes what is written, within so many seconds.

    `poll` where there is one: `select` takes no file number from 1,024 on, except on Windows.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if to_write else 0))
        return bool(poll.poll(None if seconds is None else seconds * 1000))
    return any(select.select([connection], [connection] if to_write else [], [], seconds))
