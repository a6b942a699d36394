"""A rate limit on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.errors import Invalid
from roost.structures.console import REQUIRED, Console, Table
from roost.structures.durations import SECOND, WANTED, in_words, seconds_of
from roost.structures.operation import Operation
from roost.structures.rate_limit.declaration import RateLimit

HEADERS = ("remaining", "retry_after")


class RateLimitConsole(Console[RateLimit[Any]]):
    """Keys with what remains to them; nothing can be imported."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "limit": REQUIRED, "per": REQUIRED}
    changes = ("limit", "per")

    @classmethod
    def facts(cls, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the window: where others take columns, `--per` is a time here."""
        texts = given["per"]
        seconds = seconds_of(texts[0]) if len(texts) == 1 else None
        if seconds is None:
            raise Invalid(f"{name}: --per {' --per '.join(texts)} is no time: {WANTED}")
        return {"window": seconds * SECOND}

    def rules(self) -> str:
        """Return the limit and the window."""
        return f"limit {self.structure.limit}, per {in_words(self.structure.window / SECOND)}"

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return an operation for each key."""
        return [self.structure.peek(key) for key in keys]

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return what remains to each key."""
        rows = [(found.remaining, found.retry_after) for found in results]
        return Table(HEADERS, rows, [dict(zip(HEADERS, row, strict=True)) for row in rows])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads what remains."""
        return self.structure.peek(key)

    def content(self, found: Any, n: int | None) -> Table:
        """Return what remains."""
        row = (found.remaining, found.retry_after)
        return Table(HEADERS, [row], dict(zip(HEADERS, row, strict=True)))
