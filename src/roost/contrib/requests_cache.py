"""`RoostCache`: a backend of requests-cache: `CachedSession(backend=RoostCache("sqlite:///app.db"))`.

>>> from requests_cache import CachedSession
>>> session = CachedSession(backend=RoostCache("sqlite://"), expire_after=60)
>>> len(session.cache.responses)
0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from requests_cache.backends.base import BaseCache, BaseStorage
from requests_cache.serializers import json_serializer, utf8_serializer

import roost
from roost.contrib.opened import Opened
from roost.contrib.serializers import LARGEST, MANY, as_bytes, storable

OFFSET = 3600  # seconds for which an expired response is kept, for its revalidation


class RoostCache(BaseCache):
    """A backend in two caches of Roost's, NAME for responses and NAME_redirects.

    store: a `Store`, or its URL. create: whether missing structures are made.
    serializer: one of requests-cache's; JSON unless it is said, so no stored byte is executed.
    ttl: whether the database deletes a response `ttl_offset` seconds after it has expired.
    """

    def __init__(
        self,
        store: roost.Store | str,
        name: str = "http_cache",
        create: bool = True,
        ttl: bool = True,
        ttl_offset: int = OFFSET,
        serializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cache_name=name, **kwargs)
        responses, redirects = roost.Cache(name, value=roost.binary(LARGEST)), roost.Cache(f"{name}_redirects")
        opened = Opened(store, responses, redirects, create=create)
        offset = ttl_offset if ttl else None
        self.responses = RoostDict(opened, responses, offset, serializer=serializer or json_serializer, **kwargs)
        self.redirects = RoostDict(opened, redirects, None, serializer=utf8_serializer, **kwargs)


class RoostDict(BaseStorage[str, Any]):
    """A mapping in a cache of Roost's."""

    def __init__(self, opened: Opened, cache: roost.Cache[str, bytes], offset: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.opened, self.cache, self._offset = opened, cache, offset

    def __getitem__(self, key: str) -> Any:
        found = self.opened.run(self.cache.get(storable(key)))
        if found is None:
            raise KeyError(key)
        return self.deserialize(key, found)

    def __setitem__(self, key: str, item: Any) -> None:
        left = getattr(item, "expires_delta", None)
        ttl = None if self._offset is None or left is None else left + self._offset
        data = as_bytes(self.serialize(item))
        self.opened.run(self.cache.set(storable(key), data, ttl if ttl is not None and ttl > 0 else None))

    def __delitem__(self, key: str) -> None:
        if not self.opened.run(self.cache.delete(storable(key))):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        last = None
        while keys := self.opened.run(self.cache.keys(last, MANY)):
            yield from keys
            last = keys[-1]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def bulk_delete(self, keys: Iterable[str]) -> None:
        self.opened.run([self.cache.delete(storable(key)) for key in keys])

    def clear(self) -> None:
        self.opened.run(self.cache.clear())

    def close(self) -> None:
        """Close the store, unless it was given."""
        self.opened.close()
