"""`RoostBackend`: Celery's results in a `Cache` of Roost's: `result_backend = "roost+postgresql://user@host/app"`.

A result expires by itself, after `result_expires`: no `celery beat` is needed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery.backends.base import KeyValueStoreBackend  # type: ignore[import-untyped]

import roost
from roost.contrib.opened import Opened
from roost.contrib.serializers import adding, storable

LARGEST = 8_000_000  # bytes of a result
Key = str | bytes


class RoostBackend(KeyValueStoreBackend):  # type: ignore[misc]
    """A result backend; `result_backend_transport_options` may have `name` ("celery_results") and `create` (True).

    Chords count atomically in the database, without polling.
    """

    supports_autoexpire = True
    supports_native_join = True
    implements_incr = True

    def __init__(self, app: Any = None, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app, url=url, **kwargs)
        options = self.app.conf.get("result_backend_transport_options") or {}
        self.cache = roost.Cache(options.get("name", "celery_results"), value=roost.binary(LARGEST))
        address = (url or "").removeprefix("roost+")
        self._opened = Opened(address, self.cache, create=options.get("create", True))

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        """Whether `result_backend_always_retry` applies: nothing was stored, and the cause may be temporary."""
        return isinstance(exc, roost.Error) and exc.retry

    def get(self, key: Key) -> bytes | None:
        return self._opened.run(self.cache.get(_name(key)))

    def mget(self, keys: Sequence[Key]) -> list[bytes | None]:
        names = [_name(key) for key in keys]
        found = self._opened.run(self.cache.get_many(names)) if names else {}
        return [found.get(name) for name in names]

    def set(self, key: Key, value: Key) -> None:
        self._opened.run(self.cache.set(_name(key), _bytes(value), self.expires or None))

    def delete(self, key: Key) -> None:
        self._opened.run(self.cache.delete(_name(key)))

    def incr(self, key: Key) -> int:
        count: int = self._opened.play(adding(self.cache, _name(key), 1, 1, self.expires or None))
        return count

    def expire(self, key: Key, value: float) -> None:
        self._opened.run(self.cache.touch(_name(key), value or None))

    def cleanup(self) -> None:
        """Do nothing: expired results go with later writes."""


def _name(key: Key) -> str:
    return storable(key.decode() if isinstance(key, bytes) else key)


def _bytes(value: Key) -> bytes:
    return value.encode() if isinstance(value, str) else value
