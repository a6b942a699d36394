"""Converts the keys and values of a cache to and from the bytes of memcached's clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from roost.errors import Invalid
from roost.protocols.memcached.asked import BAD_LINE, Refused
from roost.protocols.memcached.framing import MOST_KEY
from roost.structures.cache.declaration import MAX_TTL, SECOND, Cache
from roost.structures.operation import Operation, Target

MONTH = 60 * 60 * 24 * 30  # seconds; a larger `exptime` is a Unix time
KINDS = ("binary", "text")


class Values:
    """Converts keys and values for one cache.

    clock: returns the Unix time in seconds.
    nul: whether the database's texts can hold a NUL; PostgreSQL's cannot.

    Raises: Invalid, for a cache whose keys or values are neither texts nor bytes.
    """

    def __init__(self, cache: Target, clock: Callable[[], float], *, nul: bool = True) -> None:
        if not isinstance(cache, Cache):
            raise Invalid(f"{cache.name} is a {cache.kind}, and memcached's protocol takes a cache")
        self.cache: Cache[Any, Any] = cache
        self._clock = clock
        self._nul = nul
        if [each.type.kind in KINDS for each in (*cache.key.columns, cache.value)] != [True, True]:
            raise Invalid(f"{cache.name}: memcached's clients have bytes as keys and values, and not {cache!r}")
        key = cache.key.columns[0].type
        self.text_keys = key.kind == "text"
        self.text_values = cache.value.type.kind == "text"
        self.most_key = min(MOST_KEY, key.limit or MOST_KEY)
        # A character has 4 bytes at most; the column type's own check counts characters.
        self.most_value = (cache.value.type.limit or 0) * (4 if self.text_values else 1)

    def over(self, cache: Target) -> Values:
        """Return the same for another cache. Raises: Invalid."""
        return Values(cache, self._clock, nul=self._nul)

    def key(self, key: bytes) -> tuple[Any, ...]:
        """Convert a key for an operation.

        Raises: Refused.
        """
        if len(key) > MOST_KEY or not key or (self.text_keys and self._is_unfit(key)):
            raise Refused(BAD_LINE)
        try:
            return self.cache.key.check(key.decode() if self.text_keys else key)
        except ValueError:  # not UTF-8, or longer than the declared limit
            raise Refused(BAD_LINE) from None

    def keys(self, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Convert keys for an operation.

        Raises: Refused.
        """
        if self.text_keys and max(map(len, keys)) <= self.most_key:
            joined = b"\n".join(keys)
            if self._is_unfit(joined):
                raise Refused(BAD_LINE)
            try:
                return [(key,) for key in joined.decode().split("\n")]
            except UnicodeDecodeError:
                raise Refused(BAD_LINE) from None
        return [self.key(key) for key in keys]

    def value(self, value: bytes) -> Any:
        """Convert a value for an operation; None for one that the cache does not take."""
        if not self.text_values:
            return value if len(value) <= self.most_value else None
        if self._is_unfit(value):
            return None
        try:
            return self.cache.value.checker(self.cache.name)(value.decode())
        except ValueError:
            return None

    def _is_unfit(self, text: bytes) -> bool:
        return not self._nul and b"\0" in text

    def bytes_of(self, value: Any) -> bytes:
        return value.encode() if self.text_values else bytes(value)

    def ttl(self, seconds: int) -> int | None:
        """Convert an `exptime` to microseconds from now: 0 if it expires at once, None if never."""
        if seconds == 0:
            return None
        left = seconds * SECOND if seconds <= MONTH else round((seconds - self._clock()) * SECOND)
        return min(max(left, 0), MAX_TTL)

    def operation(self, verb: str, *args: Any) -> Operation[Any]:
        """Make an operation of the cache from converted values, without checking them again."""
        return Operation(self.cache, verb, args)
