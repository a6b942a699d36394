"""One client connection: the indexes it has opened, and whether it has said the secret."""

from __future__ import annotations

import hmac

from roost.server.settings import Role, Settings
from roost.server.tables import Handle

UNAUTHORIZED = "3\t1\tunauth"
TRIES = 10  # wrong secrets in a row, then the connection is closed


class Session:
    """What the server knows of one connection."""

    __slots__ = ("authorized", "foreign", "handles", "known", "limit", "role", "secret", "wrong")

    def __init__(self, role: Role, settings: Settings) -> None:
        self.role = role
        self.secret = settings.secret(role)
        self.authorized = self.secret is None
        self.limit = settings.max_indexes
        self.handles: dict[str, Handle] = {}
        self.wrong = 0
        # Whether it has said something that only a client of HandlerSocket says. Who has to say a secret first can do
        # nothing until then, whatever it speaks.
        self.known = not self.authorized
        self.foreign = False  # it speaks another protocol: nothing more of it is looked at

    def open(self, number: int, handle: Handle) -> bool:
        """Keep an opened index under its number, in place of what was there; False when there are too many."""
        if len(self.handles) >= self.limit and str(number) not in self.handles:
            return False
        self.handles[str(number)] = handle
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
