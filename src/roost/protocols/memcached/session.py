"""One client connection: whether it has sent the secret, and whether it has ended."""

from __future__ import annotations

import hmac
from typing import Any


class Session:
    """The protocol's state of one connection.

    secret: `user:password`, which it has to send first; None if it need not.
    """

    __slots__ = ("authorized", "foreign", "secret", "wrong")

    def __init__(self, secret: bytes | None) -> None:
        self.secret = secret
        self.authorized = secret is None
        self.wrong = 0  # the number of consecutive wrong secrets
        self.foreign = False  # it has sent `quit`, or speaks another protocol: its further bytes are ignored

    def state(self) -> tuple[Any, ...]:
        """Return the state for `restore`."""
        return self.authorized, self.wrong, self.foreign

    def restore(self, state: tuple[Any, ...]) -> None:
        """Return to an earlier state, since the answers given after it were not sent."""
        self.authorized, self.wrong, self.foreign = state

    def authorize(self, said: bytes) -> bool:
        """Check a user and a password, separated by a blank; return whether they are right."""
        if hmac.compare_digest(said, (self.secret or b"").replace(b":", b" ", 1)):
            self.authorized, self.wrong = True, 0
            return True
        self.wrong += 1
        return False
