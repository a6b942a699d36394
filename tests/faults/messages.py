"""How many messages an operation is."""

from __future__ import annotations

from collections.abc import Collection

from tests.servers import kind_of

ON_MYSQL = range(1, 13)  # whose statements of one operation are not one text


def expected(url: str, messages: int) -> Collection[int]:
    """Return how many messages an operation may be on the server of a URL."""
    return ON_MYSQL if kind_of(url) == "mysql" else [messages]


def committing(url: str) -> int:
    """Return which message of an addition by itself commits it, counted from 0."""
    return 1 if kind_of(url) == "mysql" else 0
