"""One client connection: whether it has said the secret, and whether it is over."""

from __future__ import annotations

import hmac
from typing import Any


class Session:
    """What is known of one connection.

    secret: `user:password`, which it has to say first; None where it need not.
    """

    __slots__ = ("authorized", "foreign", "secret", "wrong")

    def __init__(self, secret: bytes | None) -> None:
        self.secret = secret
        self.authorized = secret is None
        self.wrong = 0  # secrets, one after the other
        self.foreign = False  # it has said `quit`, or speaks another protocol: nothing more of it is looked at

    def state(self) -> tuple[Any, ...]:
        """Return what `restore` takes back."""
        return self.authorized, self.wrong, self.foreign

    def restore(self, state: tuple[Any, ...]) -> None:
        """Become again what it was, as what was answered since is undone."""
        self.authorized, self.wrong, self.foreign = state

    def authorize(self, said: bytes) -> bool:
        """Take a user and a password, with a blank between; return whether they are right."""
        if hmac.compare_digest(said, (self.secret or b"").replace(b":", b" ", 1)):
            self.authorized, self.wrong = True, 0
            return True
        self.wrong += 1
        return False
