"""What the caches of `roost.contrib` store of a value: its bytes by one serializer, with a mark; ints in digits.

An int of 64 bits is stored in decimal digits, modulo 2^64, whatever the serializer, so that the database can add to it
in one operation: adding 2^64 - n subtracts n, since `increment` wraps to 0 after 2^64 - 1. Non-negative ints are stored
as in memcached.

The first byte of everything else says which serializer wrote it, so that none reads what another has written: such a
value is a miss, with a warning in the log.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

from roost.contrib.serializers import Signed, chosen
from roost.databases.engine import drive
from roost.errors import Invalid, Overflow
from roost.structures.cache.declaration import Cache
from roost.structures.operation import Operation

WRAP = 2**64
HALF = 2**63
LONGEST_KEY = 255  # characters
SURROGATE = re.compile("[\ud800-\udfff]")
MOST_DIGITS = 20  # of an int of 64 bits
MARKS = {b"\x80": "pickle", b"\xc1": "msgpack", b"\xfe": "signed", b"\xff": "own"}  # no text in UTF-8 begins so

logger = logging.getLogger("roost")


class Codec:
    r"""What a cache stores of its values, by one serializer.

    where: the cache's name, for the log.

    >>> codec = Codec("json", "pages")
    >>> codec.dumps("a", 42), codec.dumps("a", -1), codec.loads("a", codec.dumps("a", ("x", -1)))
    (b'42', b'18446744073709551615', ('x', -1))
    >>> codec.loads("a", b"\x80 a pickle", "a miss")
    'a miss'
    """

    def __init__(self, serializer: Any, where: str) -> None:
        self.serializer, self._where = chosen(serializer), where
        self.name = "pickle" if self.serializer is pickle else getattr(self.serializer, "name", "own")
        self._mark = (
            b"" if self.name == "json" else {name: mark for mark, name in MARKS.items()}.get(self.name, b"\xff")
        )
        # A pickle has its mark already, and JSON none.
        self._added = b"" if self.name == "pickle" else self._mark

    def dumps(self, key: str, value: Any) -> bytes:
        """Return a key's value as it is stored; `Invalid` if it could not be restored."""
        if type(value) is int and is_held(value):  # neither a bool nor an IntEnum's member
            return b"%d" % (value % WRAP)
        try:
            if isinstance(self.serializer, Signed):
                return self._mark + self.serializer.dumps_for(key, value)
            return self._added + bytes(self.serializer.dumps(value))
        except Invalid as error:
            raise Invalid(f"{self._where}: {error}") from None
        except (ValueError, OverflowError, RecursionError) as error:  # NaN, half of a surrogate pair, a list in itself
            raise Invalid(f"{self._where}: it could not be restored from {self.name}: {error}") from error

    def loads(self, key: str, data: bytes, default: Any = None) -> Any:
        """Return a key's value; the default, and a warning in the log, if this serializer has not written it."""
        if data.isdigit() and len(data) <= MOST_DIGITS:
            return signed(int(data))
        try:
            if data[:1] in MARKS if not self._mark else not data.startswith(self._mark):
                raise ValueError(f"it is {MARKS.get(data[:1], 'json')}, not {self.name}")
            payload = data[len(self._added) :]
            if isinstance(self.serializer, Signed):
                return self.serializer.loads_for(key, payload)
            return self.serializer.loads(payload)
        except Exception as error:  # whatever a serializer raises for bytes that are not its own
            logger.warning("%s: the value of %r counts as missing: %s", self._where, key, error)
            return default


def storable(key: str) -> str:
    """Return a key as it is stored: one of more than 255 characters, or that no text column takes, by its SHA-256.

    >>> storable("/home"), len(storable("k" * 256))
    ('/home', 64)
    """
    if len(key) <= LONGEST_KEY and "\0" not in key and (key.isascii() or SURROGATE.search(key) is None):
        return key
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def is_held(value: int) -> bool:
    """Return whether an int fits in 64 bits, so that it is stored in digits.

    >>> is_held(2**63 - 1), is_held(2**63)
    (True, False)
    """
    return -HALF <= value < HALF


def adding(
    cache: Cache[Any, Any], key: str, delta: int, begin: int | None = None, ttl: float | None = None
) -> Generator[Operation[Any], Any, Any]:
    """Yield what adds an int of 64 bits to a stored one; return the new one, None if the key has no value.

    begin: stored where there is no value, for `ttl` seconds.

    `Invalid` if the value is no int of 64 bits; `Overflow` if the sum is none: then the value is as it was.
    """
    if begin is not None and not is_held(begin):
        raise Overflow(f"{key!r} would have more than 64 bits")
    while (found := (yield cache.increment(key, delta % WRAP))) is None:
        if begin is None or (yield cache.add(key, b"%d" % (begin % WRAP), ttl)):
            return begin
    if not is_held(signed(found) - delta):  # it has left the 64 bits, and wrapped around
        yield cache.increment(key, -delta % WRAP)
        raise Overflow(f"{key!r} would have more than 64 bits")
    return signed(found)


def added(run: Callable[[Operation[Any]], Any], *adding_of: Any) -> Any:
    """Run what `adding` yields, one operation after the other."""
    return drive(adding(*adding_of), SimpleNamespace(execute=run))


def signed(number: int) -> int:
    """Return the signed int for the stored number from 0 to 2^64 - 1."""
    return number - WRAP if number >= HALF else number
