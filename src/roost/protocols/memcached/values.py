"""Keys and values of a cache as memcached's clients have them: bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from roost.errors import Invalid
from roost.protocols.memcached.framing import MOST_KEY
from roost.structures.cache.declaration import MAX_TTL, SECOND, Cache
from roost.structures.operation import Operation, Target

MONTH = 60 * 60 * 24 * 30  # seconds; a larger number is a moment of Unix time
KINDS = ("binary", "text")


class Unfit(Exception):
    """A key or a value that the cache does not take."""


class Values:
    """What turns them into those of a cache, and back.

    clock: returns the seconds of Unix time.

    Raises: Invalid, for a cache whose keys or values are no texts and no bytes.
    """

    def __init__(self, cache: Target, clock: Callable[[], float]) -> None:
        if not isinstance(cache, Cache):
            raise Invalid(f"{cache.name} is a {cache.kind}, and memcached's protocol takes a cache")
        self.cache: Cache[Any, Any] = cache
        self._clock = clock
        if [each.type.kind in KINDS for each in (*cache.key.columns, cache.value)] != [True, True]:
            raise Invalid(f"{cache.name}: memcached's clients have bytes as keys and values, and not {cache!r}")
        key = cache.key.columns[0].type
        self.text_keys = key.kind == "text"
        self.text_values = cache.value.type.kind == "text"
        self.most_key = min(MOST_KEY, key.limit or MOST_KEY)
        # A character has 4 bytes at most; the type's own check counts characters.
        self.most_value = (cache.value.type.limit or 0) * (4 if self.text_values else 1)

    def key(self, key: bytes) -> tuple[Any, ...]:
        """Return a key as an operation has it.

        Raises: Unfit.
        """
        if len(key) > MOST_KEY or not key:
            raise Unfit
        try:
            return self.cache.key.check(key.decode() if self.text_keys else key)
        except ValueError:  # no UTF-8, or longer than the declared limit
            raise Unfit from None

    def keys(self, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Return keys as an operation has them.

        Raises: Unfit.
        """
        if self.text_keys and max(map(len, keys)) <= self.most_key:
            try:
                return [(key,) for key in b"\n".join(keys).decode().split("\n")]
            except UnicodeDecodeError:
                raise Unfit from None
        return [self.key(key) for key in keys]

    def value(self, value: bytes) -> Any:
        """Return a value as an operation has it.

        Raises: Unfit.
        """
        if not self.text_values:
            if len(value) > self.most_value:
                raise Unfit
            return value
        try:
            return self.cache.value.checker(self.cache.name)(value.decode())
        except ValueError:
            raise Unfit from None

    def bytes_of(self, value: Any) -> bytes:
        """Return a stored value."""
        return value.encode() if self.text_values else bytes(value)

    def ttl(self, seconds: int) -> int | None:
        """Return an `exptime` in microseconds from now: 0 where it is over at once, None where it never is."""
        if seconds == 0:
            return None
        left = seconds * SECOND if seconds <= MONTH else round((seconds - self._clock()) * SECOND)
        return min(max(left, 0), MAX_TTL)

    def operation(self, verb: str, *args: Any) -> Operation[Any]:
        """Return an operation of the cache, of values that are as it has them."""
        return Operation(self.cache, verb, args)
