"""`RoostBackend`: Celery's results in a `Cache` of Roost's: `result_backend = "roost+postgresql://user@host/app"`.

A result expires by itself, after `result_expires`: no `celery beat` is needed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery.backends.base import KeyValueStoreBackend  # type: ignore[import-untyped]

import roost
from roost.contrib.opened import Opened
from roost.contrib.serializers import LARGEST, adding, as_bytes, storable


class RoostBackend(KeyValueStoreBackend):  # type: ignore[misc]
    """A result backend; `result_backend_transport_options` may have `name` ("celery_results") and `create` (True).

    Chords count atomically in the database, without polling.
    """

    supports_autoexpire = True
    supports_native_join = True
    implements_incr = True
    key_t = str

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

    def get(self, key: str) -> bytes | None:
        return self._opened.run(self.cache.get(storable(key)))

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        names = [storable(key) for key in keys]
        found = self._opened.run(self.cache.get_many(names)) if names else {}
        return [found.get(name) for name in names]

    def set(self, key: str, value: str | bytes) -> None:
        self._opened.run(self.cache.set(storable(key), as_bytes(value), self.expires or None))

    def delete(self, key: str) -> None:
        self._opened.run(self.cache.delete(storable(key)))

    def incr(self, key: str) -> int:
        return int(self._opened.play(adding(self.cache, storable(key), 1, 1, self.expires or None)))

    def expire(self, key: str, value: float) -> None:
        self._opened.run(self.cache.touch(storable(key), value or None))

    def cleanup(self) -> None:
        """Do nothing: expired results go with later writes."""
