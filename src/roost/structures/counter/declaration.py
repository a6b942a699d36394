"""Counter: an exact total per key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

from roost.errors import Invalid
from roost.structures.operation import Operation, few
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType, shown, whole
from roost.types.columns import Column

if TYPE_CHECKING:
    from roost.structures.windowed_counter.declaration import WindowedCounter

K = TypeVar("K")
L = TypeVar("L")

MAX_SLOTS = 1024  # a read sums as many rows as there are slots


class Counter(Structure, Generic[K]):
    """Exact totals, one per key. A key that was never counted has the total 0.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key: int, str (255 characters), `roost.text(n)`, bytes, date, datetime, bool, UUID, an Enum,
        `roost.decimal(…)`, or a NamedTuple of those. Keys are compared byte for byte: `/Home` is not `/home`.
    slots: the number of rows over which adds to one key are spread, 1 to 1,024. None means the engine's default: 1 on
        SQLite, which has one writer; 16 elsewhere. A read sums these rows.

    window, keep: count per window of time (say, an hour) and keep the last windows only: see `WindowedCounter`.

    Each slot holds |n| < 2^63; an add that would exceed that raises `Overflow`, and never wraps. Totals are Python
    ints of any size. The slotted upsert is from https://planetscale.com/blog/the-slotted-counter-pattern.

    >>> import roost
    >>> pageviews = roost.Counter("pageviews")
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(pageviews)
    ...     store.run_all(pageviews.add("/home"), pageviews.add("/home", 2), pageviews.total("/home"))
    (None, None, 3)
    """

    kind = "counter"
    options: ClassVar[tuple[str, ...]] = ("slots",)

    def __new__(cls, *_: Any, window: str | timedelta | None = None, **__: Any) -> Self:
        """Return a `WindowedCounter` if `window` is given."""
        if cls is Counter and window is not None:
            from roost.structures.windowed_counter.declaration import WindowedCounter  # derived from this class

            cls = WindowedCounter  # type: ignore[assignment]
        return super().__new__(cls)

    @overload
    def __init__(self: Counter[str], name: str, *, slots: int | None = None) -> None: ...
    @overload
    def __init__(self, name: str, *, key: type[K] | ColumnType[K], slots: int | None = None) -> None: ...
    @overload
    def __init__(  # type: ignore[misc]
        self: WindowedCounter[str], name: str, *, window: str | timedelta, keep: int, slots: int | None = None
    ) -> None: ...
    @overload
    def __init__(  # type: ignore[misc]
        self: WindowedCounter[L],
        name: str,
        *,
        key: type[L] | ColumnType[L],
        window: str | timedelta,
        keep: int,
        slots: int | None = None,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        key: Any = str,
        slots: int | None = None,
        window: str | timedelta | None = None,
        keep: int | None = None,
    ) -> None:
        if keep is not None:
            raise Invalid(f"{name}: keep is a number of windows, and goes with window")
        super().__init__(name, Group.declared(name, "key", key))
        self.slots = None if slots is None else whole(slots, 1, MAX_SLOTS)
        if self.slots != slots:
            raise Invalid(f"{name}: slots is None or a whole number from 1 to {MAX_SLOTS:,}, not {slots!r}")
        self._check_key = self.key.check
        slots = self.slots
        self._define({"name": name, "key": key, "slots": slots}, key=column_facts(self.key.columns), slots=slots)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return self.key.columns

    def add(self, key: K, n: int = 1) -> Operation[None]:
        """Add `n`, which may be negative or 0; `Overflow` when a slot would leave 64 bits."""
        found = whole(n, INT_MIN, INT_MAX)
        if found is None:
            raise self._wrong(n)
        return Operation(self, "add", (self._check_key(key), found))

    def increment(self, key: K, n: int = 1) -> Operation[int]:
        """Add `n` as `add` does and return the exact new total; `Overflow` when a slot would leave 64 bits.

        No two callers get the same total while every `n` is positive. The price is that slots no longer help: all slots
        of the key are locked and read, so other writers of the key wait until the transaction ends. For a counter that
        is mainly incremented (order numbers, tickets), declare `slots=1`: then it costs hardly more than `add`.

        >>> import roost
        >>> tickets = roost.Counter("tickets", slots=1)
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(tickets)
        ...     store.run_all(tickets.increment("oslo"), tickets.increment("oslo", 2), tickets.increment("rome"))
        (1, 3, 1)
        """
        return Operation(self, "increment", self.add(key, n).args)

    def add_all(self, counts: Mapping[K, int]) -> Operation[None]:
        """Add to many keys, all or none; `Overflow` when a slot would leave 64 bits.

        The adds are checked and stored together, which is faster than one `add` per key.

        >>> import collections, roost
        >>> pageviews = roost.Counter("pageviews")
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(pageviews)
        ...     store.run(pageviews.add_all(collections.Counter(["/home", "/about", "/home"])))
        ...     store.run(pageviews.totals(["/home", "/about"]))
        {'/home': 2, '/about': 1}
        """
        if not isinstance(counts, Mapping):
            raise Invalid(f"{self.name}: add_all takes a mapping of keys to numbers, not {shown(counts)}")
        numbers = [whole(n, INT_MIN, INT_MAX) for n in counts.values()]
        if None in numbers:
            raise self._wrong(list(counts.values())[numbers.index(None)])
        rows = zip(self.key.check_all(tuple(counts)), numbers, strict=True)
        return Operation(self, "add_all", tuple([(*key, n) for key, n in rows]))

    def _wrong(self, n: Any) -> Invalid:
        return Invalid(f"{self.name}.n: {n!r} is not a whole number of 64 bits ({INT_MIN} to {INT_MAX})")

    def total(self, key: K) -> Operation[int]:
        """Read the total; 0 for a key that was never counted."""
        return Operation(self, "total", (self._check_key(key),))

    def totals(self, keys: Iterable[K]) -> Operation[dict[K, int]]:
        """Read the totals of several keys; the dict has every given key, in the given order."""
        if isinstance(keys, (str, bytes)):
            raise Invalid(f"{self.name}: totals takes several keys, not the single {keys!r}")
        return Operation(self, "totals", (tuple([self._check_key(key) for key in keys]),))

    def top(self, n: int = 10) -> Operation[list[tuple[K, int]]]:
        """Read the `n` greatest totals, greatest first, equal ones in key order. Scans every key."""
        return Operation(self, "top", (self._n(n),))

    def keys(self, after: K | None = None, n: int = 100) -> Operation[list[K]]:
        """Read the first `n` keys after `after`, in key order."""
        return super().keys(after, n)

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        match verb:
            case "add_all":
                return [f"{{{few(f'{self.key.value(row[:-1])!r}: {row[-1]}' for row in args)}}}"]
            case "totals":
                return [repr([self.key.value(key) for key in args[0]])]
            case "top":
                return [repr(args[0])]
        return super()._arguments(verb, args)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Counter[Any]:
        """Make the declaration from the facts of a definition."""
        return cls(name, key=key_from(name, "key", facts["key"]), slots=facts["slots"])
