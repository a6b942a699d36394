"""One client connection: the indexes it has opened, and whether it has sent the secret."""

from __future__ import annotations

import hmac
from typing import Any

from roost.protocols.handlersocket.opened import Opened

UNAUTHORIZED = "3\t1\tunauth"


class Session:
    """The protocol's state of one connection.

    secret: the secret that it has to send first; None if it need not.
    most: the number of indexes that it may open.
    """

    __slots__ = ("authorized", "foreign", "known", "most", "opened", "secret", "wrong")

    def __init__(self, secret: bytes | None, most: int) -> None:
        self.secret = secret
        self.authorized = secret is None
        self.most = most
        self.opened: dict[str, Opened] = {}  # by their numbers
        self.wrong = 0  # the number of consecutive wrong secrets
        # Whether it has sent something that only a HandlerSocket client sends. A connection that needs a secret counts
        # as known: until it has sent the secret, it can do nothing in any protocol.
        self.known = not self.authorized
        self.foreign = False  # it speaks another protocol: its further bytes are ignored

    def state(self) -> tuple[object, ...]:
        """Return the state for `restore`."""
        return self.authorized, dict(self.opened), self.wrong, self.known, self.foreign

    def restore(self, state: tuple[Any, ...]) -> None:
        """Return to an earlier state, since the answers given after it were not sent."""
        self.authorized, self.opened, self.wrong, self.known, self.foreign = state

    def open(self, number: int, opened: Opened) -> bool:
        """Store an opened index under its number, replacing the one there; False if too many are open."""
        if len(self.opened) >= self.most and str(number) not in self.opened:
            return False
        self.opened[str(number)] = opened
        self.known = True
        return True

    def authorize(self, tokens: list[str]) -> str:
        """Answer an `A`: a wrong secret revokes the authorization that a right one gave."""
        if len(tokens) < 2 or tokens[1] != "1":
            return "3\t1\tauthtype"
        said = (tokens[2] if len(tokens) > 2 else "").encode("utf-8", "surrogateescape")
        if hmac.compare_digest(said, self.secret or b""):
            self.authorized = True
            self.wrong = 0
            return "0\t1"
        if self.secret is not None:
            self.authorized = False
            self.wrong += 1
        return UNAUTHORIZED
