"""The kinds of parsed requests, the texts of answers, and the keys and values of a cache in the bytes of clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from roost.errors import Busy, CannotOpen, DiskFull, Error, Full, Invalid, OutcomeUnknown, Overflow, ReadOnly
from roost.protocols.memcached.framing import MOST_KEY, number_of
from roost.structures.cache.declaration import COUNTER_MAX, FLAGS_MAX, MAX_TTL, SECOND, Cache
from roost.structures.operation import Operation, Target

ERROR = b"ERROR\r\n"
BAD_LINE = b"CLIENT_ERROR bad command line format\r\n"
BAD_CHUNK = b"CLIENT_ERROR bad data chunk\r\n"
BAD_DELTA = b"CLIENT_ERROR invalid numeric delta argument\r\n"
BAD_EXPTIME = b"CLIENT_ERROR invalid exptime argument\r\n"
BAD_DELETE = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
NOT_A_NUMBER = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
TOO_LARGE = b"SERVER_ERROR object too large for cache\r\n"
TOO_MANY = b"CLIENT_ERROR too many keys\r\n"
DELAYED = b"SERVER_ERROR flush_all takes no delay\r\n"
END = b"END\r\n"

STORED = {True: b"STORED\r\n", None: b"STORED\r\n", False: b"NOT_STORED\r\n"}
COMPARED = {True: b"STORED\r\n", False: b"EXISTS\r\n", None: b"NOT_FOUND\r\n"}
DELETED = {True: b"DELETED\r\n", False: b"NOT_FOUND\r\n"}
TOUCHED = {True: b"TOUCHED\r\n", False: b"NOT_FOUND\r\n"}

# The answers to errors of the database. The client learns no further details.
_REFUSALS: Sequence[tuple[type[Error], bytes]] = (
    (Full, TOO_LARGE),
    (Overflow, NOT_A_NUMBER),
    (Busy, b"SERVER_ERROR busy: a lock was not released in time\r\n"),
    (OutcomeUnknown, b"SERVER_ERROR outcome unknown: it may have been done\r\n"),
    (CannotOpen, b"SERVER_ERROR database unavailable\r\n"),
    (DiskFull, b"SERVER_ERROR no room left on the disk\r\n"),
    (ReadOnly, b"SERVER_ERROR the database takes no writes\r\n"),
)


class Refused(Exception):
    """A request is wrong; `answer` is the error answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer)
        self.answer = answer


class Read(NamedTuple):
    """Keys to look up.

    answer: makes the answer from the rows found, in the order of the keys; or returns a `Write`, which must run under
        locks instead.
    """

    keys: Sequence[tuple[Any, ...]]
    answer: Callable[[Sequence[Any]], bytes | Write]


class Write(NamedTuple):
    """Operations that may modify something.

    answer: makes the answer from their results, if none is an error.
    silent: errors are not answered.
    number: a refused value is reported as not a number; otherwise as too large.
    shows: the answer contains the values, which are the first ones of the results.
    """

    operations: Sequence[Operation[Any]]
    answer: Callable[[Sequence[Any]], bytes]
    silent: bool = False
    number: bool = False
    shows: bool = False


class Kept(NamedTuple):
    """A write that runs once per token: its answer is stored, and a repetition of the token gets the stored answer.

    seconds: how long the answer is stored.
    """

    token: str
    seconds: float
    write: Write


class Special(NamedTuple):
    """A request about the connection or the server: `quit`, `stats` with its words, or a foreign protocol."""

    what: str
    words: Sequence[bytes] = ()


Asked = bytes | Read | Write | Kept | Special


def silent(asked: Asked) -> Asked:
    """Return a request with `noreply`, which is not answered."""
    return asked._replace(answer=lambda _: b"", silent=True) if isinstance(asked, Write) else b""


def refusal(error: Error, number: bool) -> bytes:
    if isinstance(error, Invalid):
        return NOT_A_NUMBER if number and error.word != "toobig" else TOO_LARGE
    for kind, answer in _REFUSALS:
        if isinstance(error, kind):
            return answer
    return b"SERVER_ERROR " + error.word.encode() + b"\r\n"


def unsigned(token: bytes) -> int | None:
    """Parse a number that is not negative; None if it is not one.

    >>> unsigned(b"12"), unsigned(b"+012"), unsigned(b"-1"), unsigned(b"1x"), unsigned(b"18446744073709551616")
    (12, 12, None, None, None)
    """
    found = number_of(token)
    return found if found is not None and 0 <= found <= COUNTER_MAX else None


def signed(token: bytes) -> int | None:
    """Parse a number that may be negative; None if it is not one.

    >>> signed(b"-1"), signed(b"+5"), signed(b"5"), signed(b"--5"), signed(b"")
    (-1, 5, 5, None, None)
    """
    found = number_of(token)
    return found if found is not None and abs(found) < 2**63 else None


def flags_of(token: bytes) -> int | None:
    found = unsigned(token)
    return None if found is None else found & FLAGS_MAX


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
        self.clock = clock
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
        return Values(cache, self.clock, nul=self._nul)

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
        return value.encode() if isinstance(value, str) else bytes(value)

    def ttl(self, seconds: int) -> int | None:
        """Convert an `exptime` to microseconds from now: 0 if it expires at once, None if never."""
        if seconds == 0:
            return None
        left = seconds * SECOND if seconds <= MONTH else round((seconds - self.clock()) * SECOND)
        return min(max(left, 0), MAX_TTL)

    def operation(self, verb: str, *args: Any) -> Operation[Any]:
        """Make an operation of the cache from converted values, without checking them again."""
        return Operation(self.cache, verb, args)
