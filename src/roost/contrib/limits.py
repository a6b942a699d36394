"""Storage for `limits`, and so for slowapi and Flask-Limiter: fixed, moving and sliding windows.

Import this module, and give a URL of Roost's behind `roost+`; behind `async+roost+` for `limits.aio`. `limits` knows a
URL once the class that serves it is defined; it has no entry points.

>>> import limits
>>> import roost.contrib.limits
>>> storage = limits.storage.storage_from_string("roost+sqlite://")
>>> limiter = limits.strategies.MovingWindowRateLimiter(storage)
>>> [limiter.hit(limits.parse("2/minute"), "ada") for _ in range(3)]
[True, True, False]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from limits.aio.storage import base as aio
from limits.storage import base

import roost
from roost.contrib.opened import AsyncOpened, Opened, Work
from roost.contrib.serializers import MANY, storable
from roost.contrib.windows import Windows
from roost.databases import ENGINES

# As SQLAlchemy's URLs name them: limits wants to know each scheme, and a store takes its own driver whatever is named.
DRIVERS = ("pysqlite", "aiosqlite", "pymysql", "asyncmy", "aiomysql", "mysqldb", "psycopg", "psycopg2", "asyncpg")
SCHEMES = [each for name in ENGINES for each in (name, *[f"{name}+{driver}" for driver in DRIVERS])]


class _Windows:
    # What both storages do; each method returns its answer, or what is awaited for it.

    _opening: ClassVar[Any]

    def __init__(
        self, uri: str, wrap_exceptions: bool = False, name: str = "limits", create: bool = True, **options: Any
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)  # type: ignore[call-arg]
        self.windows = Windows(name)
        self._opened = self._opening(uri.partition("roost+")[2], self.windows, create=create, **options)
        self.store = self._opened.store

    @property
    def base_exceptions(self) -> type[Exception]:
        return roost.Error

    def incr(self, key: str, expiry: int, amount: int = 1) -> Any:
        return self._run(self.windows.hit(storable(key), expiry, amount)) if amount else self.get(key)

    def get(self, key: str) -> Any:
        return self._run(self.windows.peek(storable(key)), lambda found: found.counted)

    def get_expiry(self, key: str) -> Any:
        return self._run(self.windows.peek(storable(key)), lambda found: time.time() + found.ends)

    def clear(self, key: str) -> Any:
        return self._run(self.windows.clear(storable(key)), lambda _: None)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        return self._run(amount <= limit and (amount == 0 or self.windows.take(storable(key), limit, expiry, amount)))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Any:
        found = self.windows.peek(storable(key), expiry)
        return self._run(found, lambda found: (time.time() + found.began, found.hits))

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        return self._run(amount <= limit and (amount == 0 or self.windows.slide(storable(key), limit, expiry, amount)))

    def get_sliding_window(self, key: str, expiry: int) -> Any:
        return self._run(self.windows.peek(storable(key), expiry), lambda found: found[4:])

    def clear_sliding_window(self, key: str, expiry: int) -> Any:
        return self.clear(key)

    def check(self) -> Any:
        return self._opened.play(self._checking())

    def reset(self) -> Any:
        return self._opened.play(self._resetting())

    def _run(self, operation: Any, answer: Callable[[Any], Any] = lambda found: found) -> Any:
        # True and False are answers: nothing is taken at all, or more than the limit at once.
        def work() -> Work[Any]:
            return operation if isinstance(operation, bool) else answer((yield operation))

        return self._opened.play(work())

    def _checking(self) -> Work[bool]:
        try:
            return bool((yield self.windows.peek("")))
        except roost.Error:
            return False

    def _resetting(self) -> Work[int]:
        removed = 0
        while keys := (yield self.windows.keys(n=MANY)):
            removed += sum((yield [self.windows.clear(key) for key in keys]))
        return removed


class RoostStorage(_Windows, base.Storage, base.MovingWindowSupport, base.SlidingWindowCounterSupport):
    """A storage of limits in the database of a URL: `roost+sqlite:///app.db`, `roost+postgresql://…`, `roost+mysql://…`.

    name: the structure, which is made with the first use unless `create` is False (`roost ddl` prints it).
    options: those of `roost.Store`.

    Exact with any number of processes, by the database's clock; a refused acquisition writes and locks nothing.
    """

    STORAGE_SCHEME = [f"roost+{each}" for each in SCHEMES]  # noqa: RUF012 (as limits has it)
    _opening = Opened


class AsyncRoostStorage(_Windows, aio.Storage, aio.MovingWindowSupport, aio.SlidingWindowCounterSupport):
    """The same for `limits.aio`: `async+roost+sqlite:///app.db`. It does not block the loop."""

    STORAGE_SCHEME = [f"async+{each}" for each in RoostStorage.STORAGE_SCHEME]  # noqa: RUF012
    _opening = AsyncOpened
