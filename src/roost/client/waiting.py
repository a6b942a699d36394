"""Wait for a socket, also on systems without `poll` (Windows)."""

from __future__ import annotations

import select
import socket


def is_ready(connection: socket.socket | int, seconds: float | None, *, to_write: bool = False) -> bool:
    """Return whether a socket becomes readable (or writable, with `to_write`) within `seconds`.

    `poll` is used if the system has it, since `select` accepts no file number from 1,024 on, except on Windows.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if to_write else 0))
        return bool(poll.poll(None if seconds is None else seconds * 1000))
    return any(select.select([connection], [connection] if to_write else [], [], seconds))
