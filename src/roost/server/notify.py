"""Notify systemd when the server is ready and when it stops (`Type=notify`)."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send a state to the service manager, if there is one: `READY=1`, `STOPPING=1`."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where.startswith(("/", "@")):
        place = "\0" + where[1:] if where.startswith("@") else where
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
            teller.connect(place)
            teller.send(state.encode())
