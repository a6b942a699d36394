"""Storage for `limits`, and so for slowapi and Flask-Limiter: fixed, moving and sliding windows.

Import this module, and give a URL of Roost's behind `roost+`; behind `async+roost+` for `limits.aio`.

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
from typing import Any

from limits.aio.storage import base as aio
from limits.storage import base

import roost
from roost.contrib.opened import AsyncOpened, Opened
from roost.contrib.stored import storable
from roost.contrib.windows import Window, Windows

DATABASES = (  # as the URLs of stores name them
    *("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite", "mysql", "mariadb", "mysql+pymysql", "mysql+asyncmy"),
    *("mariadb+pymysql", "mariadb+asyncmy", "postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"),
)
NAME = "limits"  # of the structure
MANY = 1_000  # keys that `reset` removes at once


def _same(found: Any) -> Any:
    return found


def _moving(found: Window) -> tuple[float, int]:
    return time.time() + found.began, found.hits


class _Windows:
    # What both storages do: `_run` runs an operation and makes the answer of its result, at once or awaited.

    windows: Windows[str]
    _run: Callable[..., Any]

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that are wrapped on request."""
        return roost.Error

    def incr(self, key: str, expiry: int, amount: int = 1) -> Any:
        """Count in a fixed window, and return its count."""
        return self._run(self.windows.hit(storable(key), expiry, amount))

    def get(self, key: str) -> Any:
        """Return the count of the fixed window."""
        return self._run(self.windows.peek(storable(key)), lambda found: found.counted)

    def get_expiry(self, key: str) -> Any:
        """Return when the fixed window ends, in seconds since 1970 by this machine's clock."""
        return self._run(self.windows.peek(storable(key)), lambda found: time.time() + found.ends)

    def clear(self, key: str) -> Any:
        """Remove a key."""
        return self._run(self.windows.clear(storable(key)), lambda _: None)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        """Take from a moving window; return whether it was allowed."""
        return self._run(amount <= limit and self.windows.take(storable(key), limit, expiry, amount))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Any:
        """Return when the moving window's oldest hit was, and how many it has."""
        return self._run(
            self.windows.peek(storable(key), expiry), lambda found: (time.time() + found.began, found.hits)
        )

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        """Take from a sliding window; return whether it was allowed."""
        return self._run(amount <= limit and self.windows.slide(storable(key), limit, expiry, amount))

    def get_sliding_window(self, key: str, expiry: int) -> Any:
        """Return the earlier window's count and the seconds until it is over, and the same of the current one."""
        return self._run(self.windows.peek(storable(key), expiry), Window.sliding)

    def clear_sliding_window(self, key: str, expiry: int) -> Any:
        """Remove a key."""
        return self.clear(key)


class RoostStorage(_Windows, base.Storage, base.MovingWindowSupport, base.SlidingWindowCounterSupport):
    """A storage of limits in the database of a URL: `roost+sqlite:///app.db`, `roost+postgresql://…`, `roost+mysql://…`.

    name: the structure, which is made with the first use unless `create` is False (`roost ddl` prints it).
    options: those of `roost.Store`.

    Exact with any number of processes, by the database's clock; a refused acquisition writes and locks nothing.
    """

    STORAGE_SCHEME = [f"roost+{each}" for each in DATABASES]  # noqa: RUF012 (as limits has it)

    def __init__(
        self, uri: str, wrap_exceptions: bool = False, name: str = NAME, create: bool = True, **options: Any
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.windows = Windows(name)
        self._opened = Opened(uri.removeprefix("roost+"), self.windows, create=create, **options)
        self.store = self._opened.store

    def _run(self, operation: Any, answer: Callable[[Any], Any] = _same) -> Any:
        # False: more than the limit at once.
        return operation and answer(self._opened.run(operation))

    def check(self) -> bool:
        """Return whether the database answers."""
        try:
            return bool(self._run(self.windows.peek("")))
        except roost.Error:
            return False

    def reset(self) -> int | None:
        """Remove everything, and return how many keys there were."""
        removed = 0
        while keys := self._run(self.windows.keys(n=MANY)):
            removed += sum(self.store.run_all(*[self.windows.clear(key) for key in keys]))
        return removed


class AsyncRoostStorage(_Windows, aio.Storage, aio.MovingWindowSupport, aio.SlidingWindowCounterSupport):
    """The same for `limits.aio`: `async+roost+sqlite:///app.db`. It does not block the loop."""

    STORAGE_SCHEME = [f"async+{each}" for each in RoostStorage.STORAGE_SCHEME]  # noqa: RUF012

    def __init__(
        self, uri: str, wrap_exceptions: bool = False, name: str = NAME, create: bool = True, **options: Any
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.windows = Windows(name)
        self._opened = AsyncOpened(uri.removeprefix("async+roost+"), self.windows, create=create, **options)
        self.store = self._opened.store

    async def _run(self, operation: Any, answer: Callable[[Any], Any] = _same) -> Any:
        return operation and answer(await self._opened.run(operation))

    async def check(self) -> bool:
        """Return whether the database answers."""
        try:
            return bool(await self._run(self.windows.peek("")))
        except roost.Error:
            return False

    async def reset(self) -> int | None:
        """Remove everything, and return how many keys there were."""
        removed = 0
        while keys := await self._run(self.windows.keys(n=MANY)):
            removed += sum(await self.store.run_all(*[self.windows.clear(key) for key in keys]))
        return removed
