"""Cache: values under keys, each until it expires; and get_or_set, by which one caller computes a missing value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from roost.errors import Invalid
from roost.structures.clock import SECOND as SECOND
from roost.structures.clock import duration
from roost.structures.console import Console
from roost.structures.operation import Operation, few
from roost.structures.structure import Group, Key, Structure, column_facts
from roost.structures.wire import Values, Wire
from roost.types.column_types import INT_MAX, ColumnType, checked_whole, shown
from roost.types.columns import Column, column, parse_column

if TYPE_CHECKING:
    import typing_extensions

    V = typing_extensions.TypeVar("V", default=bytes)
else:
    V = TypeVar("V")

# Of get_or_set.
FIRST_PAUSE = 0.005  # seconds until a waiting caller checks again; doubled each time
LONGEST_PAUSE = 0.2
MAKE: Final = object()  # is yielded when the caller must compute the value
# Yields an operation, operations of one transaction, seconds to wait, or MAKE; receives the answer.
Computing = Generator[Any, Any, V]

Ttl = float | dt.timedelta | None  # seconds, or a timedelta; None: until it is removed

MAX_TTL = 100 * 366 * 86_400 * SECOND  # a hundred years: the current time plus this fits in 64 bits
NEVER = INT_MAX  # the expiry time of a value that never expires
MOST = 2**53  # the greatest bound of items or bytes
EXPIRES = Column("expires", ColumnType("datetime"), nullable=True)
GIVEN_FLAGS = Column("flags", ColumnType("int"), nullable=True)  # none are 0
ALL: Any = object()  # in place of a key
COUNTER_MAX = 2**64 - 1  # the greatest number in a text or in bytes, as in memcached
FLAGS_MAX = 2**32 - 1

# Bits of the column `flags` above the 32 of the flags: by memcached's meta commands an item may be *stale*, and a
# client may have received its *win*, the right to compute it anew. Storing a value clears them.
STALE, WON = 2**32, 2**33
KEEP = -1  # in place of a ttl: the expiry time does not change, or no item is made
PLAIN = -2  # in place of seconds: nobody asks for the right to compute the value, as in `gat`

# Columns beside the key's.
OWN_COLUMNS = frozenset(["value", "until", "token", "flags", "due", "used", "size", "ttl", "expires"])
TEXTS = frozenset(["text", "binary"])  # kinds of values that can be lengthened


class Item(NamedTuple, Generic[V]):
    """A value, its token for `cas`, and the seconds until it expires (None: never).

    flags: the number stored with the value.
    """

    value: V
    token: int
    ttl: float | None
    flags: int = 0


class Cache(Structure[Key], Generic[Key, V]):
    """Values under keys, each until it expires. Reads never return an expired value; each write deletes some of them.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key, as for `Counter`.
    value: the type of a value: bytes, str, `roost.binary(n)`, `roost.text(n)`, int, or any other column type.
    max_items: the exact upper bound of the number of values; None: no bound.
    max_bytes: the upper bound of the bytes of all keys and values together; a value of fixed size (a number, …) counts
        as 8.

    If a write would exceed a bound, expired values are removed first, then the least recently used ones. Storing a
    value counts as a use; reading it counts if an eighth of all values were used since its last recorded use. A read
    never writes: the store records the use with its next write to the cache. On servers, the writers of a bounded
    cache wait for each other.

    Operations that memcached also has return what its protocol specifies. `ttl` is in seconds, or a timedelta; None:
    the value never expires. The clock is the database server's; on SQLite the store's. `flags` is a number of 32 bits,
    stored with a value, whose meaning the application chooses: clients of memcached store the kind of the value there.

    >>> import roost
    >>> pages = roost.Cache("pages", value=str)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(pages)
    ...     store.run(pages.set("/home", "<h1>Home</h1>", ttl=60))
    ...     store.run_all(pages.get("/home"), pages.add("/home", "another"), pages.get("/about"))
    ('<h1>Home</h1>', False, None)
    """

    kind = "cache"
    reads = ("get_many", "gets", "gets_many", "fetch")
    whole = ()
    options = ("max_items", "max_bytes")

    def __init__(
        self,
        name: str,
        *,
        key: type[Key] | ColumnType[Key] = str,  # type: ignore[assignment]
        value: type[V] | ColumnType[V] = bytes,  # type: ignore[assignment]
        max_items: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(name, Group.declared(name, "key", key), OWN_COLUMNS)
        self.value = column(name, "value", value, key=False)
        if self.value.nullable:
            raise Invalid(f"{name}.value: None cannot be a value: it is the answer for a key that is not there")
        self.second = Group(name, "value", [self.value])
        self._check_key = self.key.check
        self._check_value = self.value.checker(name)
        self.max_items, self.max_bytes = (
            self._bound(what, bound) for what, bound in (("max_items", max_items), ("max_bytes", max_bytes))
        )
        self._define(
            {"name": name, "key": key, "value": value, "max_items": self.max_items, "max_bytes": self.max_bytes},
            key=column_facts(self.key.columns),
            value=column_facts([self.value]),
            max_items=self.max_items,
            max_bytes=self.max_bytes,
        )

    def _bound(self, what: str, bound: int | None) -> int | None:
        said = f"{self.name}: {what} is None or a whole number from 1 to {MOST:,}"
        return None if bound is None else checked_whole(said, bound, 1, MOST)

    @property
    def bounded(self) -> bool:
        """Whether the cache has a bound."""
        return self.max_items is not None or self.max_bytes is not None

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> Operation[V | None]:
        """Read the value; None if there is none or it has expired."""
        return Operation(self, "get", (self._check_key(key),))

    def get_many(self, keys: Iterable[Key]) -> Operation[dict[Key, V]]:
        """Read the values of several keys; the dict has the keys that have a value, in the given order."""
        found = self._several("get_many takes several keys", keys)
        return Operation(self, "get_many", (tuple([self._check_key(key) for key in found]),))

    def gets(self, key: Key) -> Operation[Item[V] | None]:
        """Read the value with its token (for `cas`) and the time until it expires; None if there is none."""
        return Operation(self, "gets", (self._check_key(key),))

    def gets_many(self, keys: Iterable[Key]) -> Operation[dict[Key, Item[V]]]:
        """Read several keys, each as `gets` returns it; the dict has those with a value, in the given order."""
        found = self._several("gets_many takes several keys", keys)
        return Operation(self, "gets_many", (tuple([self._check_key(key) for key in found]),))

    # --- writing --------------------------------------------------------------------------------------------------

    def set(self, key: Key, value: V, ttl: Ttl = None, flags: int = 0) -> Operation[None]:
        """Store a value, whether or not the key has one; it expires `ttl` from now."""
        return Operation(self, "set", self._row(key, value, ttl, flags))

    def set_many(self, values: Mapping[Key, V], ttl: Ttl = None, flags: int = 0) -> Operation[None]:
        """Store many values, all or none."""
        if not isinstance(values, Mapping):
            raise Invalid(f"{self.name}: set_many takes a mapping of keys to values, not {shown(values)}")
        rest = (self._ttl(ttl), self._flags(flags))
        rows = [(self._check_key(key), self._check_value(value), *rest) for key, value in values.items()]
        return Operation(self, "set_many", tuple(rows))

    def add(self, key: Key, value: V, ttl: Ttl = None, flags: int = 0) -> Operation[bool]:
        """Store a value if the key has none; True if it was stored."""
        return Operation(self, "add", self._row(key, value, ttl, flags))

    def replace(self, key: Key, value: V, ttl: Ttl = None, flags: int = 0) -> Operation[bool]:
        """Store a value if the key has one already; True if it was stored."""
        return Operation(self, "replace", self._row(key, value, ttl, flags))

    def cas(self, key: Key, value: V, token: int, ttl: Ttl = None, flags: int = 0) -> Operation[bool | None]:
        """Store a value if the key still has the value that `gets` returned with this token.

        True if it was stored; False if another value, even an equal one, was stored in the meantime; None if the key
        has no value any more.
        """
        return Operation(self, "cas", (*self._row(key, value, ttl, flags), self._token(token)))

    def touch(self, key: Key, ttl: Ttl = None) -> Operation[bool]:
        """Let a value expire `ttl` from now; True if there is one.

        Nothing is written if the stored expiry time is the new one, or earlier by less than a sixteenth of `ttl`: so a
        value that is touched all the time is seldom written. It may therefore expire that much early, but never late.
        Its token does not change.
        """
        return Operation(self, "touch", (self._check_key(key), self._ttl(ttl)))

    def increment(self, key: Key, n: int = 1) -> Operation[int | None]:
        """Add to a number and return the new one; None if there is none. The expiry time does not change.

        In bytes and texts the number is in decimal digits, from 0 to 2^64 - 1, and wraps to 0, as in memcached; a value
        of another form raises `Invalid`. An int that would leave 64 bits raises `Overflow`.
        """
        return Operation(self, "increment", (self._check_key(key), self._addend(n)))

    def decrement(self, key: Key, n: int = 1) -> Operation[int | None]:
        """Subtract from a number and return the new one; None if there is none. The expiry time does not change.

        In bytes and texts it stops at 0, as in memcached; an int may become negative.
        """
        return Operation(self, "decrement", (self._check_key(key), self._addend(n)))

    def append(self, key: Key, value: V) -> Operation[bool]:
        """Append to the value (bytes or text); True if there is one. The expiry time does not change.

        `Invalid` if the value would exceed the declared limit.
        """
        return self._lengthen("append", key, value)  # type: ignore[no-any-return]

    def prepend(self, key: Key, value: V) -> Operation[bool]:
        """Prepend to the value (bytes or text); True if there is one. The expiry time does not change."""
        return self._lengthen("prepend", key, value)  # type: ignore[no-any-return]

    def delete(self, key: Key) -> Operation[bool]:
        """Remove a value; True if there was one."""
        return Operation(self, "delete", (self._check_key(key),))

    def clear(self, key: Key = ALL) -> Operation[int]:
        """Remove all values, or the value of one key; return how many there were."""
        return Operation(self, "clear", (None if key is ALL else self._check_key(key),))

    def lease(self, key: Key, ttl: float | dt.timedelta) -> Operation[int | None]:
        """Request the right to compute the value: a token for `release`, or None while another caller has it.

        The right expires after `ttl`, in case its holder never releases it. It does not keep others from storing a
        value. `store.get_or_set` uses it.
        """
        return Operation(self, "lease", (self._check_key(key), self._lasting(ttl)))

    def release(self, key: Key, token: int) -> Operation[bool]:
        """Release a lease; False if it has expired."""
        return Operation(self, "release", (self._check_key(key), self._token(token)))

    def _row(self, key: Key, value: V, ttl: Ttl, flags: int) -> tuple[Any, ...]:
        return self._check_key(key), self._check_value(value), self._ttl(ttl), self._flags(flags)

    def _flags(self, flags: int) -> int:
        if flags == 0 and type(flags) is int:  # the common case
            return 0
        return checked_whole(f"{self.name}: flags is a whole number from 0 to {FLAGS_MAX}", flags, 0, FLAGS_MAX)

    def _lengthen(self, verb: str, key: Key, value: V) -> Any:
        if self.value.type.kind not in TEXTS:
            raise Invalid(f"{self.name}: {verb} takes bytes or a text, and a value is {self.value.spec}")
        return Operation(self, verb, (self._check_key(key), self._check_value(value)))

    def _addend(self, n: int) -> int:
        if self.value.type.kind not in {*TEXTS, "int"}:
            raise Invalid(f"{self.name}: only a number can be added to, and a value is {self.value.spec}")
        most = INT_MAX if self.value.type.kind == "int" else COUNTER_MAX
        return checked_whole(f"{self.name}: n is a whole number from 0 to {most}", n, 0, most)

    def _token(self, token: int) -> int:
        return checked_whole(f"{self.name}: a token is what gets() or lease() has answered", token, 0, INT_MAX)

    def _ttl(self, ttl: Ttl) -> int | None:
        return None if ttl is None else self._lasting(ttl)

    def _lasting(self, ttl: Any) -> int:
        return duration(f"{self.name}: ttl", ttl, MAX_TTL)

    @property
    def _record_columns(self) -> Sequence[Column]:
        return *self.columns, EXPIRES, GIVEN_FLAGS

    def _record(self, values: Sequence[Any]) -> Any:
        # Its expiry time is compared with the clock of this machine; an expired record removes the value of its key.
        *parts, value, expires, flags = values
        key = self.key.value(parts)
        if expires is None:
            return self.set(key, value, None, flags or 0)
        end = expires if expires.tzinfo else expires.replace(tzinfo=dt.UTC)
        ttl = end - dt.datetime.now(dt.UTC)
        return self.set(key, value, ttl, flags or 0) if ttl > dt.timedelta(0) else self.delete(key)

    # --- what all structures have ---------------------------------------------------------------------------------

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value is at this path in an operation's arguments."""
        return super().column_at(operation, path[1:] if operation.verb == "set_many" else path)

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        key = self.key.value
        match verb, args:
            case "keys", _:
                return super()._arguments(verb, args)
            case (("get_many" | "gets_many"), (keys,)):
                return [f"[{few(repr(key(each)) for each in keys)}]"]
            case "set_many", _:
                rows = few(f"{key(each)!r}: {shown(value)}" for each, value, *_ in args)
                return [f"{{{rows}}}", *(_options(args[0][2:]) if args else [])]
            case "clear", (None,):
                return []
            case (("set" | "add" | "replace"), (_, value, *rest)):
                return [repr(key(args[0])), shown(value), *_options(rest)]
            case "cas", (_, value, *rest, token):
                return [repr(key(args[0])), shown(value), repr(token), *_options(rest)]
            case (("touch" | "lease"), (_, ttl)):
                return [repr(key(args[0])), *_options((ttl, 0))]
        return super()._arguments(verb, args)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Self:
        """Make the declaration from the facts of a definition."""
        ((_, spec),) = facts["value"]
        value = parse_column(name, "value", spec).type
        return super().from_facts(name, {**facts, "value": value.enum or value})


def _options(rest: Sequence[Any]) -> list[str]:
    ttl, flags = rest
    return [*([] if ttl is None else [f"ttl={ttl / SECOND:g}"]), *([f"flags={flags}"] if flags else [])]


def get_or_set(cache: Cache[Any, V], key: Any, ttl: Ttl, stale: float, lease: float) -> Computing[V]:
    """Return the value of a key, computed by the caller that has its lease."""
    if not isinstance(cache, Cache):
        raise Invalid(f"get_or_set takes a Cache, not {cache!r}")
    if stale < 0 or (stale and ttl is not None and stale * SECOND >= cache._lasting(ttl)):
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
        # The previous holder of the lease may have stored it in the meantime.
        again: Item[V] | None = yield cache.gets(key)
        if again is not None and (item is None or again.token != item.token):
            return again.value
        value: V = yield MAKE
        # Not over what another has stored since: this caller may be late, and its lease have ended.
        fresh = cache.add(key, value, ttl) if again is None else cache.cas(key, value, again.token, ttl)
        outcome, _ = yield fresh, release
        stored = True
        if outcome is None:  # the value that was to be renewed has expired
            yield cache.add(key, value, ttl)
        return value
    finally:
        if not stored:
            yield release


class CacheWire(Wire):
    """The value of a key; an insert sets it, without expiry, and a delete removes it."""

    def rows(self, key: Values, found: Any) -> list[Values]:
        return [] if found is None else [(*key, found)]


class CacheConsole(Console[Cache[Any, Any]]):
    """Keys, and the value of one; an imported record may have an expiry time and flags, with the names of the view."""

    takes: ClassVar[Mapping[str, Any]] = {
        "key": (),
        "value": [("value", "binary")],
        "max_items": None,
        "max_bytes": None,
    }
    changes = ("max_items", "max_bytes")
    shows = "get"

    def deletes(self, new: Structure) -> str:
        for bound in self.changes:
            before, after = getattr(self.structure, bound), getattr(new, bound)
            if after is not None and (before is None or after < before):
                return f"{bound} becomes {after:,}: what was used longest ago is deleted"
        return ""

    def removed(self, number: int) -> str:
        return f"{number:,} value{'' if number == 1 else 's'}"
