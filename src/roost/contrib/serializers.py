"""What the caches of `roost.contrib` store: JSON, MessagePack, signed values, pickle, or what an object of yours makes.

Unless a pickle is chosen, no stored byte is ever executed. The first byte says which serializer wrote a value, so that
none reads what another has written: such a value is a miss, with a warning in the log.

An int of 64 bits is stored in decimal digits, modulo 2^64, by every serializer but `Signed`, so that the database can
add to it in one operation: adding 2^64 - n subtracts n, since `increment` wraps to 0 after 2^64 - 1. Non-negative ints
are stored as in memcached.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import pickle
import re
import zoneinfo
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterable, Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from roost.databases.engine import drive
from roost.errors import Conflict, Invalid, Overflow
from roost.structures.cache.declaration import Cache
from roost.structures.operation import Operation

TAG, VALUE = "~", "v"  # {"~": "tuple", "v": [1, 2]}
PLAIN: frozenset[type] = frozenset([str, int, float, bool, type(None)])
MICROSECOND = dt.timedelta(microseconds=1)
SIGNATURE = hashlib.sha256().digest_size
WRAP = 2**64
HALF = 2**63
LONGEST_KEY = 255  # characters
LARGEST = 8_000_000  # bytes of a value, where an adapter declares the cache
MANY = 1_000  # keys that adapters read or remove at once
AT_ONCE = 1e-6  # seconds, of a value that expires at once
SURROGATE = re.compile("[\ud800-\udfff]")
MOST_DIGITS = 20  # of an int of 64 bits
ATTEMPTS = 500  # to store what nobody has changed meanwhile; one of 16 threads may be too late 150 times
SAFE_FOR_ALL = "serializer=Signed(secret), of roost.contrib.serializers, stores any object"
MARKS = {b"\x80": "pickle", b"\xc1": "msgpack", b"\xfe": "signed", b"\xff": "own"}  # no text in UTF-8 begins so

logger = logging.getLogger("roost")


class Tag(NamedTuple):
    """A type that JSON has not: what is stored of a value under the tag's name, and what makes a value of that."""

    name: str
    type: type[Any]
    out: Callable[[Any], Any]
    back: Callable[[Any], Any]


def _moment(value: dt.datetime) -> list[str]:
    zone = getattr(value.tzinfo, "key", None)
    if not isinstance(value.tzinfo, dt.timezone | None) and zone is None:
        raise Invalid(f"the time zone of {value!r} could not be restored")
    return [value.isoformat(), *([zone] if zone else [])]


def _datetime(parts: Sequence[str]) -> dt.datetime:
    found = dt.datetime.fromisoformat(parts[0])
    if len(parts) == 1:
        return found
    zone = zoneinfo.ZoneInfo(parts[1])
    for fold in (0, 1):  # a time that a clock shows twice, or never, is told by its offset
        local = found.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == found.utcoffset():
            return local
    return found.astimezone(zone)  # the zone has other offsets than when it was stored


TAGS = (
    Tag("tuple", tuple, list, tuple),
    Tag("set", set, list, set),
    Tag("frozenset", frozenset, list, frozenset),
    Tag("bytes", bytes, lambda value: b64encode(value).decode(), b64decode),
    Tag("datetime", dt.datetime, _moment, _datetime),
    Tag("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    Tag("timedelta", dt.timedelta, lambda value: value // MICROSECOND, lambda number: number * MICROSECOND),
    Tag("Decimal", Decimal, str, Decimal),
    Tag("UUID", UUID, str, UUID),
)


class JSON:
    """JSON in UTF-8, with tags for tuples, sets, bytes, datetimes, dates, timedeltas, Decimals and UUIDs.

    tags: further types, each with a tag of its own.

    `Invalid` for a value that could not be restored as it was: keys that are not str, NaN, subclasses, other classes.

    >>> JSON().dumps({"at": (1, 2.5)})
    b'{"at":{"~":"tuple","v":[1,2.5]}}'
    >>> JSON().loads(JSON().dumps([Decimal("1.50"), {b"x"}]))
    [Decimal('1.50'), {b'x'}]
    """

    name: ClassVar[str] = "json"
    plain: ClassVar[frozenset[type]] = PLAIN

    def __init__(self, tags: Iterable[Tag] = ()) -> None:
        every = (*TAGS, *tags)
        self._tags = {tag.type: tag for tag in every}
        self._back: dict[str, Any] = {"dict": dict, "int": int, **{tag.name: tag.back for tag in every}}

    def dumps(self, value: Any) -> bytes:
        return json.dumps(self._out(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data, object_hook=self._in)

    def _out(self, value: Any) -> Any:
        kind = type(value)
        if kind is int and not is_held(value):  # MessagePack has none, and Codec takes digits to be modulo 2^64
            return {TAG: "int", VALUE: str(value)}
        if kind in self.plain:
            return value
        if kind is list:
            return [self._out(each) for each in value]
        if kind is dict:
            for key in value:
                if type(key) is not str:
                    raise Invalid(f"{self.name} has no keys but str, so {key!r} could not be restored")
            if TAG in value:
                return {TAG: "dict", VALUE: [[key, self._out(each)] for key, each in value.items()]}
            return {key: self._out(each) for key, each in value.items()}
        if kind not in self._tags:
            raise Invalid(f"a value of the type {kind.__qualname__} could not be restored from {self.name}")
        tag = self._tags[kind]
        return {TAG: tag.name, VALUE: self._out(tag.out(value))}

    def _in(self, found: dict[str, Any]) -> Any:
        return self._back[found[TAG]](found[VALUE]) if TAG in found else found


class MsgPack(JSON):
    """MessagePack (the extra `msgpack`), with the same tags; bytes and ints of 64 bits need none."""

    name = "msgpack"
    plain: ClassVar[frozenset[type]] = PLAIN | {bytes}

    def __init__(self, tags: Iterable[Tag] = ()) -> None:
        super().__init__(tags)
        import msgpack  # type: ignore[import-untyped]

        self._pack, self._unpack = msgpack.packb, msgpack.unpackb

    def dumps(self, value: Any) -> bytes:
        return bytes(self._pack(self._out(value)))

    def loads(self, data: bytes) -> Any:
        return self._unpack(data, object_hook=self._in)


class Signed:
    """Values with a signature, HMAC-SHA256 over cache, key and value: one that was not made with a secret is a miss.

    secrets: the secret, or several: the first one signs, and what any of them has signed is read.
    serializer: what is signed; a pickle unless it is said.

    Who can write to the table can still put back an older value of the same key, in a cache of the same name.
    """

    name = "signed"

    def __init__(self, secrets: str | bytes | Sequence[str | bytes], serializer: Any = "pickle") -> None:
        several = [secrets] if isinstance(secrets, str | bytes) else list(secrets)
        self._secrets = [each.encode() if isinstance(each, str) else each for each in several]
        if not self._secrets or not all(self._secrets):
            raise Invalid("Signed takes a secret, or a list of secrets; none is empty")
        self._serializer = chosen(serializer)

    def _sign(self, where: str, key: str, payload: bytes, secret: bytes) -> bytes:
        names = [each.encode(errors="surrogatepass") for each in (where, key)]
        return hmac.digest(
            secret, b"".join([len(each).to_bytes(4, "big") + each for each in names]) + payload, "sha256"
        )

    def dumps_for(self, where: str, key: str, value: Any) -> bytes:
        """Return the value of a key in a cache as bytes, behind its signature."""
        payload = as_bytes(self._serializer.dumps(value))
        return self._sign(where, key, payload, self._secrets[0]) + payload

    def loads_for(self, where: str, key: str, data: bytes) -> Any:
        """Return the value of a key in a cache; ValueError if none of the secrets has signed it."""
        signature, payload = data[:SIGNATURE], data[SIGNATURE:]
        if not any([hmac.compare_digest(signature, self._sign(where, key, payload, each)) for each in self._secrets]):
            raise ValueError("its signature is wrong")
        return self._serializer.loads(payload)


NAMED: dict[str, Callable[[], Any]] = {"json": JSON, "msgpack": MsgPack, "pickle": lambda: pickle}


def as_bytes(data: Any) -> bytes:
    """Return what a serializer has made as bytes."""
    return data.encode() if isinstance(data, str) else bytes(data)


def chosen(serializer: Any) -> Any:
    """Return the serializer that an option names: "json", "msgpack", "pickle", or an object with its two methods."""
    if isinstance(serializer, str) and serializer in NAMED:
        return NAMED[serializer]()
    if isinstance(serializer, Signed) or (hasattr(serializer, "dumps") and hasattr(serializer, "loads")):
        return serializer
    raise Invalid(f'a serializer is "json", "msgpack", "pickle", Signed(secret) or an object, not {serializer!r}')


class Codec:
    r"""What a cache stores of its values, by one serializer.

    where: the cache's name, for signatures and the log.
    advice: what stores any object, for the errors of those that do not.

    >>> codec = Codec("json", "pages")
    >>> codec.dumps("a", 42), codec.dumps("a", -1), codec.loads("a", codec.dumps("a", ("x", -1)))
    (b'42', b'18446744073709551615', ('x', -1))
    >>> codec.loads("a", b"\x80 a pickle", "a miss")
    'a miss'
    """

    def __init__(self, serializer: Any, where: str, advice: str = SAFE_FOR_ALL) -> None:
        self.serializer, self._where, self._advice = chosen(serializer), where, advice
        self.signs, ours = isinstance(self.serializer, Signed), isinstance(self.serializer, JSON | Signed)
        self.name = self.serializer.name if ours else "pickle" if self.serializer is pickle else "own"
        # What is put before the values: a pickle has its mark already, and JSON none.
        self._mark = next((mark for mark, name in MARKS.items() if name == self.name != "pickle"), b"")

    def dumps(self, key: str, value: Any) -> bytes:
        """Return a key's value as it is stored; `Invalid` if it could not be restored."""
        if type(value) is int and is_held(value) and not self.signs:  # neither a bool nor an IntEnum's member
            return b"%d" % (value % WRAP)
        try:
            if isinstance(self.serializer, Signed):
                return self._mark + self.serializer.dumps_for(self._where, key, value)
            return self._mark + as_bytes(self.serializer.dumps(value))
        except (ValueError, OverflowError, RecursionError) as error:  # NaN, half of a surrogate pair, a list in itself
            told = error if isinstance(error, Invalid) else f"it could not be restored from {self.name}: {error}"
            raise Invalid(f"{self._where}: {told}; {self._advice}") from error

    def loads(self, key: str, data: bytes, default: Any = None) -> Any:
        """Return a key's value; the default, and a warning in the log, if this serializer has not written it."""
        if not self.signs and data.isdigit() and len(data) <= MOST_DIGITS:
            return signed(int(data))
        try:
            kind = MARKS.get(data[:1], "json")
            if kind != self.name:
                raise ValueError(f"it is {kind}, not {self.name}")
            payload = data[len(self._mark) :]
            if isinstance(self.serializer, Signed):
                return self.serializer.loads_for(self._where, key, payload)
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
    cache: Cache[Any, Any],
    key: str,
    delta: int,
    begin: int | None = None,
    ttl: float | None = None,
    codec: Codec | None = None,
) -> Generator[Operation[Any], Any, Any]:
    """Yield what adds an int of 64 bits to a stored one; return the new one, None if the key has no value.

    begin: stored where there is no value, for `ttl` seconds.
    codec: of the cache's values; where it signs them, a value is read, and stored if nobody has changed it meanwhile.

    `Invalid` if the value is no int of 64 bits; `Overflow` if `delta` or the sum is none: then the value is as it was.
    """
    if not is_held(delta) or (begin is not None and not is_held(begin)):
        raise Overflow(f"{key!r} would have more than 64 bits")
    if codec is not None and codec.signs:
        return (yield from _adding_signed(cache, key, delta, begin, ttl, codec))
    while (found := (yield cache.increment(key, delta % WRAP))) is None:
        if begin is None or (yield cache.add(key, b"%d" % (begin % WRAP), ttl)):
            return begin
    if not is_held(signed(found) - delta):  # it has left the 64 bits, and wrapped around
        yield cache.increment(key, -delta % WRAP)
        raise Overflow(f"{key!r} would have more than 64 bits")
    return signed(found)


def _adding_signed(
    cache: Cache[Any, Any], key: str, delta: int, begin: int | None, ttl: float | None, codec: Codec
) -> Generator[Operation[Any], Any, Any]:
    for _ in range(ATTEMPTS):
        item = yield cache.gets(key)
        if item is None:
            if begin is None or (yield cache.add(key, codec.dumps(key, begin), ttl)):
                return begin
            continue
        value = codec.loads(key, item.value)
        if type(value) is not int:
            raise Invalid(f"the value of {key!r} is no int")
        if not is_held(value + delta):
            raise Overflow(f"{key!r} would have more than 64 bits")
        if (yield cache.cas(key, codec.dumps(key, value + delta), item.token, item.ttl)):
            return value + delta
    raise Conflict(f"{key!r} is changed by others all the time, or since the snapshot of this transaction")


def added(run: Callable[[Operation[Any]], Any], *adding_of: Any) -> Any:
    """Run what `adding` yields, one operation after the other."""
    return drive(adding(*adding_of), SimpleNamespace(execute=run))


def signed(number: int) -> int:
    """Return the signed int for the stored number from 0 to 2^64 - 1."""
    return number - WRAP if number >= HALF else number
