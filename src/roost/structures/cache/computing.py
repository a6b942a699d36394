"""get_or_set: one caller computes a value, while others wait or use the one that is about to expire. No I/O."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

from roost.errors import Invalid
from roost.structures.cache.declaration import Cache, Item, Ttl, seconds_of

V = TypeVar("V")

FIRST_PAUSE = 0.005  # seconds until a waiting caller checks again; doubled each time
LONGEST_PAUSE = 0.2
MAKE: Final = object()  # is yielded when the caller must compute the value

# Yields an operation, operations of one transaction, seconds to wait, or MAKE; receives the answer.
Computing = Generator[Any, Any, V]


def get_or_set(cache: Cache[Any, V], key: Any, ttl: Ttl, stale: float, lease: float) -> Computing[V]:
    """Return the value of a key, computed by the caller that has its lease."""
    if not isinstance(cache, Cache):
        raise Invalid(f"get_or_set takes a Cache, not {cache!r}")
    if stale < 0 or (stale and ttl is not None and stale >= (seconds_of(ttl) or 0)):
        raise Invalid(f"{cache.name}: stale is a number of seconds below ttl, not {stale!r}")
    pause = FIRST_PAUSE
    while True:
        item: Item[V] | None = yield cache.gets(key)
        if item is not None and (item.ttl is None or item.ttl > stale):
            return item.value
        token: int | None = yield cache.lease(key, lease)
        if token is not None:
            break
        if item is not None:
            return item.value
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)
    release = cache.release(key, token)
    stored = False
    try:
        again: Item[V] | None = yield cache.gets(
            key
        )  # the previous holder of the lease may have stored it in the meantime
        if again is not None and (item is None or again.token != item.token):
            return again.value
        value: V = yield MAKE
        yield cache.set(key, value, ttl), release
        stored = True
        return value
    finally:
        if not stored:
            yield release
