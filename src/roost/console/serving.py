"""Serves the pages: a socket, a server, and the link that opens them."""

from __future__ import annotations

import socket
import sys
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

import roost
from roost.console.app import Options, Pages
from roost.databases.addresses import Address
from roost.errors import CannotOpen, Invalid


def serve(
    store: roost.Store,
    options: Options,
    address: Address,
    announce: Callable[[str], None],
    *,
    browser: bool,
    attended: bool = False,
) -> None:
    """Serve until a signal; `Invalid` where anybody could look, `CannotOpen` if the address is in use.

    announce: called with the link when it can be opened.
    attended: end also when standard input does, as that of a process whose parent has ended.
    """
    if address.path:
        raise Invalid(f"{address}: the pages take a port")
    if options.token is None and not address.loopback:
        raise Invalid(f"{address} can be reached from other machines: without a token anybody could look")
    family, place = address.resolve()[0]
    try:
        listener = socket.create_server(place, family=family)
    except OSError as error:
        raise CannotOpen(f"cannot listen at {address}: {error.strerror}") from error
    pages = Pages(store, options)
    server = uvicorn.Server(
        uvicorn.Config(
            pages.guard, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
        )
    )
    host, port, *_ = listener.getsockname()
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))
    base = f"http://{Address(reached, int(port))}/"
    announce(base if options.token is None else f"{base}?token={options.token}")
    if browser:
        webbrowser.open(base if options.token is None else f"{base}?token={pages.guard.ticket()}")
    if attended:

        def attend() -> None:
            sys.stdin.read()
            server.should_exit = True

        threading.Thread(target=attend, daemon=True).start()
    with listener:
        server.run(sockets=[listener])
