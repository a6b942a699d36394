"""`RoostBackend`: a backend of dogpile.cache; by its mutex one process of all computes a value.

>>> from dogpile.cache import make_region
>>> region = make_region().configure("roost", arguments={"url": "sqlite://"})
>>> region.get_or_create("answer", lambda: 42), region.get("answer")
(42, 42)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from dogpile.cache import register_backend
from dogpile.cache.api import NO_VALUE, CacheBackend, CachedValue, CacheMutex

import roost
from roost.contrib.opened import Opened
from roost.contrib.serializers import Codec, storable

ALWAYS = 10.0**9  # seconds that a caller waits for a mutex


class RoostBackend(CacheBackend):
    """A backend in a `Cache` of Roost's, with the mutexes in a `Lease`.

    arguments: `url`, or `store`; `name` of the cache ("dogpile"; its leases are NAME_locks); `expiration`, seconds
        until the database deletes a value, more than the region's expiration_time (None: never); `serializer` ("json",
        see `roost.contrib.serializers`); `distributed_lock` (True); `lock_timeout`, seconds after which the mutex of a
        process that died is free (30); `max_items`, `max_bytes`; `create` (True), whether missing structures are made.
    """

    has_lock_timeout: ClassVar[Any] = lambda self: True

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        given = {"name": "dogpile", "create": True, "lock_timeout": 30.0, "expiration": None, **arguments}
        self.cache = roost.Cache(given["name"], max_items=given.get("max_items"), max_bytes=given.get("max_bytes"))
        self.locks = roost.Lease(f"{given['name']}_locks")
        store = given.get("store") or given.get("url", "")
        self.opened = Opened(store, self.cache, self.locks, create=given["create"])
        self._codec = Codec(given.get("serializer", "json"), given["name"])
        self._ttl, self._lock_timeout = given["expiration"], given["lock_timeout"]
        self._locking = given.get("distributed_lock", True)

    def get_mutex(self, key: str) -> CacheMutex | None:
        return _Mutex(self.opened, self.locks, storable(key), self._lock_timeout) if self._locking else None

    def get(self, key: str) -> Any:
        return self.get_multi([key])[0]

    def get_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        names = [storable(key) for key in keys]
        found = self.opened.run(self.cache.get_many(names)) if names else {}
        return [self._loads(name, found[name]) if name in found else NO_VALUE for name in names]

    def _loads(self, name: str, data: bytes) -> Any:
        value = self._codec.loads(name, data, NO_VALUE)
        return CachedValue(*value) if isinstance(value, tuple) else value

    def set(self, key: str, value: Any) -> None:
        self.set_multi({key: value})

    def set_multi(self, mapping: Mapping[str, Any]) -> None:
        """Store values, all or none."""
        if mapping:
            plain = {storable(key): tuple(value) if isinstance(value, CachedValue) else value
                     for key, value in mapping.items()}  # fmt: skip
            rows = {name: self._codec.dumps(name, value) for name, value in plain.items()}
            self.opened.run(self.cache.set_many(rows, self._ttl))

    def delete(self, key: str) -> None:
        self.opened.run(self.cache.delete(storable(key)))

    def delete_multi(self, keys: Iterable[str]) -> None:
        self.opened.run([self.cache.delete(storable(key)) for key in keys])

    # Where the region has a serializer of its own, its bytes are values like others.
    get_serialized = get
    get_serialized_multi = get_multi
    set_serialized = set
    set_serialized_multi = set_multi


class _Mutex(CacheMutex):
    def __init__(self, opened: Opened, locks: roost.Lease[str], key: str, ttl: float) -> None:
        self._opened, self._locks, self._key, self._ttl = opened, locks, key, ttl
        self._held: list[Any] = []

    def acquire(self, wait: bool = True) -> bool:
        self.locked()  # makes the leases where they are missing
        held = self._opened.store.holding(self._locks, self._key, ttl=self._ttl, wait=ALWAYS if wait else 0.0)
        try:
            held.__enter__()
        except roost.Busy:
            if wait:  # the database is locked: dogpile does not look at what is returned
                raise
            return False
        self._held.append(held)
        return True

    def release(self) -> None:
        held = self._held.pop()
        try:
            held.__exit__(None, None, None)
        except roost.LeaseLost:  # the value was computed, though by then somebody else may have begun, too
            pass

    def locked(self) -> bool:
        return self._opened.run(self._locks.holder(self._key)) is not None


register_backend("roost", "roost.contrib.dogpile", "RoostBackend")  # type: ignore[no-untyped-call]
