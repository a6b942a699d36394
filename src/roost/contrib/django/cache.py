"""`RoostCache`: a backend for Django's cache, in a `Cache` in a database of settings.DATABASES."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.db import DEFAULT_DB_ALIAS
from django.utils.safestring import SafeString

from roost.contrib.django.store import DjangoStore
from roost.contrib.serializers import JSON, Codec, Signed, Tag, added
from roost.errors import Invalid, Overflow
from roost.structures.cache.declaration import MAX_TTL, Cache
from roost.structures.clock import SECOND

Timeout = float | None

SAFE = Tag("safe", SafeString, str.__str__, SafeString)  # as {% cache %} stores them
MISSING: Any = object()

# Django makes a backend for each thread; all backends of a process share the connections of one store.
shared_store = functools.cache(DjangoStore)


def _awaited(method: Callable[..., Any]) -> Any:
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(method)(self, *args, **kwargs)

    return call


class RoostCache(BaseCache):
    """A cache backend: `CACHES = {"default": {"BACKEND": "roost.contrib.django.cache.RoostCache", …}}`.

    LOCATION: the name of the structure; "django_cache" if empty. Caches with the same name share the structure.
    OPTIONS: DATABASE, the alias (default: "default"); MAX_ENTRIES and MAX_BYTES, the bounds (default: none); JOIN,
        whether the cache takes part in Django's transactions (default: True), see `DjangoStore`; SERIALIZER, "json"
        (default), "signed" (pickles, signed with SECRET_KEY: whole responses, as `cache_page` stores them, need it),
        "msgpack", "pickle", or an object (`roost.contrib.serializers`).

    `migrate` creates the structure if "roost.contrib.django" is in INSTALLED_APPS.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = params.get("OPTIONS", {})
        self.using: str = options.get("DATABASE", DEFAULT_DB_ALIAS)
        self.store = shared_store(self.using, joins=options.get("JOIN", True))
        self.structure = Cache(
            location or "django_cache", max_items=options.get("MAX_ENTRIES"), max_bytes=options.get("MAX_BYTES")
        )
        advice = "OPTIONS = {'SERIALIZER': 'signed'} stores it, as cache_page needs it"
        self.codec = Codec(_serializer(options.get("SERIALIZER", "json")), self.structure.name, advice)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        name = self.make_and_validate_key(key, version)
        found = self.store.run(self.structure.get(name))
        return default if found is None else self.codec.loads(name, found, default)

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        names = {key: self.make_and_validate_key(key, version) for key in keys}
        found = self.store.run(self.structure.get_many({*names.values()})) if names else {}
        values = {key: self.codec.loads(name, found[name], MISSING) for key, name in names.items() if name in found}
        return {key: value for key, value in values.items() if value is not MISSING}

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self.store.run(self.structure.get(self.make_and_validate_key(key, version))) is not None

    def set(self, key: Any, value: Any, timeout: Timeout = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        self.set_many({key: value}, timeout, version)

    def set_many(
        self, data: dict[Any, Any], timeout: Timeout = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Store values, all or none; return the list of keys that failed, which is always empty."""
        ttl = self._ttl(timeout)
        names = {self.make_and_validate_key(key, version): value for key, value in data.items()}
        rows = {name: self.codec.dumps(name, value) for name, value in names.items()}
        if _is_over(ttl):
            self._delete(rows)
        elif len(rows) == 1:
            self.store.run(self.structure.set(*rows.popitem(), ttl))
        elif rows:
            self.store.run(self.structure.set_many(rows, ttl))
        return []

    def add(self, key: Any, value: Any, timeout: Timeout = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        name, ttl = self.make_and_validate_key(key, version), self._ttl(timeout)
        data = self.codec.dumps(name, value)
        if _is_over(ttl):
            return self.store.run(self.structure.get(name)) is None
        return self.store.run(self.structure.add(name, data, ttl))

    def touch(self, key: Any, timeout: Timeout = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Set a value's timeout, which may end a sixteenth early; return whether there is a value."""
        name, ttl = self.make_and_validate_key(key, version), self._ttl(timeout)
        return self.store.run(self.structure.delete(name) if _is_over(ttl) else self.structure.touch(name, ttl))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Add to an int atomically; its expiry time does not change.

        For another type of number, or a sum of more than 64 bits, this does what `BaseCache` does: `get` and `set`,
        with the default timeout.
        """
        name = self.make_and_validate_key(key, version)
        try:
            found: int | None = added(self.store.run, self.structure, name, delta, None, None, self.codec)
        except (Invalid, Overflow):
            return super().incr(key, delta, version)
        if found is None:
            raise ValueError(f"Key {key!r} not found")
        return found

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self.store.run(self.structure.delete(self.make_and_validate_key(key, version)))

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        self._delete([self.make_and_validate_key(key, version) for key in keys])

    def clear(self) -> None:
        """Remove all values of the structure, of every prefix and version."""
        self.store.run(self.structure.clear())

    # BaseCache implements these by several awaited calls.
    aget_many, aset_many, adelete_many = _awaited(get_many), _awaited(set_many), _awaited(delete_many)
    ahas_key, aincr = _awaited(has_key), _awaited(incr)

    def _delete(self, names: Iterable[str]) -> None:
        self.store.run_all(*[self.structure.delete(name) for name in names])

    def _ttl(self, timeout: Timeout) -> Timeout:
        ttl = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return None if ttl is None else min(ttl, MAX_TTL // SECOND)


def _serializer(option: Any) -> Any:
    if option == "json":
        return JSON([SAFE])
    return Signed([settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]) if option == "signed" else option


def _is_over(ttl: Timeout) -> bool:
    return ttl is not None and ttl * SECOND < 1
