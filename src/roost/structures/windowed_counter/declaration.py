"""Windowed counter: totals per window of time, the last windows only; `Counter(…, window=…)` returns one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from roost.errors import Invalid
from roost.structures.counter.declaration import Counter
from roost.structures.operation import Operation
from roost.structures.structure import column_facts, key_from
from roost.types.column_types import whole
from roost.types.columns import Column

K = TypeVar("K")

SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
MAX_SECONDS = 366 * 86400
MAX_KEEP = 1_000_000
MICROSECONDS = 1_000_000  # of a second


class WindowedCounter(Counter[K]):
    """Totals per key and window of time. An add counts in the current window; the last windows are kept.

    Made by `roost.Counter(…, window="hour", keep=72)`. The clock is the database server's, on SQLite the store's. Days
    and hours are in UTC; a window of another length begins at a multiple of that length since 1970-01-01 UTC.

    window: "minute", "hour", "day", or a timedelta of whole seconds, at most 366 days.
    keep: the number of windows, the current one included. Older windows are never read, and later adds delete them.

    `increment` returns the new total of the current window. `clear` and `forget` remove all windows of a key.

    >>> import roost
    >>> views = roost.Counter("views", window="hour", keep=72)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(views)
    ...     store.run_all(views.add("/home"), views.add("/home", 2), views.increment("/home"))
    ...     store.run_all(views.total("/home"), views.total("/home", last=24))
    ...     [(hour, n)] = store.run(views.series("/home", last=1))
    ...     hour.minute, hour.tzinfo, n
    (None, None, 4)
    (4, 4)
    (0, datetime.timezone.utc, 4)
    """

    kind = "windowed_counter"
    options = ("keep", "slots")
    reads = ("series",)

    def __init__(
        self, name: str, *, key: Any = str, window: str | timedelta | None, keep: int | None, slots: int | None = None
    ) -> None:
        super().__init__(name, key=key, slots=slots)
        self.seconds = _seconds(name, window)
        self.window = next((word for word, n in SECONDS.items() if n == self.seconds), self.seconds)
        found = whole(keep, 1, MAX_KEEP)
        if found is None:
            raise Invalid(f"{name}: keep is a number of windows, a whole number from 1 to {MAX_KEEP:,}, not {keep!r}")
        self.keep = found
        taken = [each.name for each in self.key.columns if each.name.lower() == "start"]
        if taken:
            raise Invalid(f"{name}: a column cannot be called {taken[0]!r}; Roost has one of that name")
        self._define(
            {"name": name, "key": key, "window": timedelta(seconds=self.seconds), "keep": keep, "slots": slots},
            key=column_facts(self.key.columns),
            window=self.window,
            keep=self.keep,
            slots=self.slots,
        )

    @property
    def size(self) -> int:
        """The length of a window in microseconds, the unit in which times are stored."""
        return self.seconds * MICROSECONDS

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return self.key.columns

    def total(self, key: K, last: int | None = None) -> Operation[int]:
        """Read the total of the last windows, the current one included (None: of all windows kept)."""
        return Operation(self, "total", (self._check_key(key), self._last(last)))

    def totals(self, keys: Iterable[K], last: int | None = None) -> Operation[dict[K, int]]:
        """Read the totals of several keys; the dict has every given key, in the given order."""
        return Operation(self, "totals", (*super().totals(keys).args, self._last(last)))

    def top(self, n: int = 10, last: int | None = None) -> Operation[list[tuple[K, int]]]:
        """Read the `n` greatest totals, greatest first, equal ones in key order. Scans every key."""
        return Operation(self, "top", (self._n(n), self._last(last)))

    def series(self, key: K, last: int | None = None) -> Operation[list[tuple[datetime, int]]]:
        """Read the last windows (None: all that are kept), oldest first: each one's start, in UTC, and its total.

        A window in which nothing was counted has the total 0.
        """
        return Operation(self, "series", (self._check_key(key), self._last(last)))

    def _last(self, last: Any) -> int | None:
        found = None if last is None else whole(last, 1, MAX_KEEP)
        if found is None and last is not None:
            raise Invalid(f"{self.name}: last is a number of windows from 1 on, not {last!r}")
        return found

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        if verb in ("total", "totals", "top", "series"):
            first = repr(self.key.value(args[0])) if verb == "series" else super()._arguments(verb, args[:1])[0]
            return [first, f"last={args[1]}"]
        return super()._arguments(verb, args)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> WindowedCounter[Any]:
        """Make the declaration from the facts of a definition."""
        window = facts["window"]
        return WindowedCounter(
            name,
            key=key_from(name, "key", facts["key"]),
            window=timedelta(seconds=int(window)) if str(window).isdecimal() else window,
            keep=facts["keep"],
            slots=facts["slots"],
        )


def _seconds(name: str, window: Any) -> int:
    if isinstance(window, timedelta):
        seconds, rest = divmod(window, timedelta(seconds=1))
        if not rest and 1 <= seconds <= MAX_SECONDS:
            return seconds
    elif isinstance(window, str) and window in SECONDS:
        return SECONDS[window]
    words = ", ".join(map(repr, SECONDS))
    raise Invalid(f"{name}: window is {words}, or a timedelta of whole seconds, at most 366 days; not {window!r}")
