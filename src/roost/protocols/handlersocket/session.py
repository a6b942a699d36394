"""One client connection: the indexes it has opened, and whether it has said the secret."""

from __future__ import annotations

import hmac
from typing import Any

from roost.protocols.handlersocket.opened import Opened

UNAUTHORIZED = "3\t1\tunauth"


class Session:
    """What is known of one connection.

    secret: what it has to say first; None where it need not.
    most: indexes that it may open.
    """

    __slots__ = ("authorized", "foreign", "known", "most", "opened", "secret", "wrong")

    def __init__(self, secret: bytes | None, most: int) -> None:
        self.secret = secret
        self.authorized = secret is None
        self.most = most
        self.opened: dict[str, Opened] = {}  # by their numbers
        self.wrong = 0  # secrets, one after the other
        # Whether it has said something that only a client of HandlerSocket says. Who has to say a secret first can do
        # nothing until then, whatever it speaks.
        self.known = not self.authorized
        self.foreign = False  # it speaks another protocol: nothing more of it is looked at

    def state(self) -> tuple[object, ...]:
        """Return what `restore` takes back."""
        return self.authorized, dict(self.opened), self.wrong, self.known, self.foreign

    def restore(self, state: tuple[Any, ...]) -> None:
        """Become again what it was, as what was answered since is undone."""
        self.authorized, self.opened, self.wrong, self.known, self.foreign = state

    def open(self, number: int, opened: Opened) -> bool:
        """Keep an opened index under its number, in place of what was there; False when there are too many."""
        if len(self.opened) >= self.most and str(number) not in self.opened:
            return False
        self.opened[str(number)] = opened
        self.known = True
        return True

    def authorize(self, tokens: list[str]) -> str:
        """Answer an `A`: a wrong secret takes back what a right one gave."""
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
