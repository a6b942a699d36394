"""`RoostCache`: a backend of cachelib, for Flask-Caching, Flask-Session and other libraries that accept one."""

from __future__ import annotations

import datetime as dt
from typing import Any

from cachelib.base import BaseCache

from roost.contrib.serializers import AT_ONCE, Codec, added
from roost.errors import Invalid, Overflow
from roost.store.store import Store
from roost.structures.cache.declaration import Cache

Timeout = int | dt.timedelta | None


class RoostCache(BaseCache):
    """A cachelib cache in a structure, which `store.create` creates.

    store: the store of its database.
    cache: the structure; its keys are texts and its values bytes, as in `roost.Cache("pages")`.
    default_timeout: seconds, for calls without a timeout; 0 means that values never expire.

    serializer: "json", "msgpack", "pickle", `Signed(secret)`, or an object of your own (`roost.contrib.serializers`). A
        value that another one has written is a miss. Ints are stored in digits.

    >>> import roost
    >>> from roost.contrib.cachelib import RoostCache
    >>> pages = roost.Cache("pages", max_items=10_000)
    >>> store = roost.Store("sqlite://")
    >>> store.create(pages)
    >>> cache = RoostCache(store, pages)
    >>> cache.set("/home", ["a", "list"]), cache.get("/home"), cache.inc("hits")
    (True, ['a', 'list'], 1)
    """

    def __init__(
        self,
        store: Store,
        cache: Cache[str, bytes],
        default_timeout: int | dt.timedelta = 300,
        serializer: Any = "json",
    ) -> None:
        super().__init__(default_timeout)
        self.store = store
        self.cache = cache
        self.codec = Codec(serializer, cache.name)

    def get(self, key: str) -> Any:
        found = self.store.run(self.cache.get(key))
        return None if found is None else self.codec.loads(key, found)

    def get_many(self, *keys: str) -> list[Any]:
        found = self.store.run(self.cache.get_many(keys)) if keys else {}
        return [self.codec.loads(key, found[key]) if key in found else None for key in keys]

    def has(self, key: str) -> bool:
        return self.store.run(self.cache.get(key)) is not None

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        self.store.run(self.cache.set(key, self.codec.dumps(key, value), self._ttl(timeout)))
        return True

    def set_many(self, mapping: dict[str, Any], timeout: Timeout = None) -> list[str]:
        """Store values, all or none; return their keys."""
        if mapping:
            values = {key: self.codec.dumps(key, value) for key, value in mapping.items()}
            self.store.run(self.cache.set_many(values, self._ttl(timeout)))
        return list(mapping)

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        return self.store.run(self.cache.add(key, self.codec.dumps(key, value), self._ttl(timeout)))

    def delete(self, key: str) -> bool:
        return self.store.run(self.cache.delete(key))

    def delete_many(self, *keys: str) -> list[str]:
        """Remove values, all or none; return all keys, since none of them has a value any more."""
        self.store.run_all(*[self.cache.delete(key) for key in keys])
        return list(keys)

    def clear(self) -> bool:
        self.store.run(self.cache.clear())
        return True

    def inc(self, key: str, delta: int = 1) -> int:
        """Add to an int atomically and return the new one; its expiry does not change. A missing one starts at `delta`.

        Any other number, and a sum of more than 64 bits, is read and stored again, as by cachelib's other caches: not
        atomically.
        """
        if isinstance(delta, int):
            try:
                return int(added(self.store.run, self.cache, key, int(delta), int(delta), self._ttl(None), self.codec))
            except (Invalid, Overflow):  # one of the numbers is no int of 64 bits
                pass
        total: int = (self.get(key) or 0) + delta
        self.set(key, total)
        return total

    def dec(self, key: str, delta: int = 1) -> int:
        return self.inc(key, -delta)

    def _ttl(self, timeout: Timeout) -> float | None:
        seconds = self._normalize_timeout(timeout)
        return None if not seconds else max(seconds, AT_ONCE)  # a negative timeout expires at once
