"""Counter: an exact total per key, or per key and window of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from roost.errors import Invalid, StatementFailed, worded
from roost.structures.clock import SECOND
from roost.structures.console import Console, Table
from roost.structures.index.values import number
from roost.structures.operation import Operation, few
from roost.structures.structure import Group, Key, Structure, column_facts
from roost.structures.wire import Steps, Values, Wire
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType, checked_whole, shown, whole
from roost.types.columns import Column

MAX_SLOTS = 1024  # a read sums as many rows as there are slots
SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
MAX_SECONDS = 366 * 86400
MAX_KEEP = 1_000_000  # windows

START, TOTAL = (Column(name, ColumnType("int")) for name in ("start", "total"))


class Counter(Structure[Key]):
    """Exact totals, one per key. A key that was never counted has the total 0.

    name: lower-case identifier, at most 40 characters.
    key: the type of a key: int, str (255 characters), `roost.text(n)`, bytes, date, datetime, bool, UUID, an Enum,
        `roost.decimal(…)`, or a NamedTuple of those. Keys are compared byte for byte: `/Home` is not `/home`.
    slots: the number of rows over which adds to one key are spread, 1 to 1,024. None means the engine's default: 1 on
        SQLite, which has one writer; 16 elsewhere. A read sums these rows.
    window: count per window of time: "minute", "hour", "day", or a timedelta of whole seconds, at most 366 days. An add
        counts in the current window. Days and hours are in UTC; a window of another length begins at a multiple of that
        length since 1970-01-01 UTC. The clock is the database server's, on SQLite the store's.
    keep: with `window`, the number of windows, the current one included. Older ones are never read, and later adds
        delete them.

    Each slot holds 64 bits; an add that would leave them raises `Overflow`, and never wraps. A key with one slot, as
    every key on SQLite, so holds a total of 64 bits; one with more slots may hold a greater one. The slotted upsert is
    from https://planetscale.com/blog/the-slotted-counter-pattern.

    >>> import roost
    >>> pageviews = roost.Counter("pageviews")
    >>> views = roost.Counter("views", window="hour", keep=72)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(pageviews, views)
    ...     store.run_all(pageviews.add("/home"), pageviews.add("/home", 2), pageviews.total("/home"))
    ...     store.run_all(views.add("/home"), views.increment("/home"), views.total("/home", last=24))
    ...     [(hour, n)] = store.run(views.series("/home", last=1))
    ...     hour.minute, hour.tzinfo, n
    (None, None, 3)
    (None, 2, 2)
    (0, datetime.timezone.utc, 2)
    """

    kind = "counter"
    options: tuple[str, ...] = ("keep", "slots")
    reads = ("series",)

    def __init__(
        self,
        name: str,
        *,
        key: type[Key] | ColumnType[Key] = str,  # type: ignore[assignment]
        slots: int | None = None,
        window: str | timedelta | None = None,
        keep: int | None = None,
    ) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        what = f"{name}: slots is None or a whole number from 1 to {MAX_SLOTS:,}"
        self.slots = None if slots is None else checked_whole(what, slots, 1, MAX_SLOTS)
        self._check_key = self.key.check
        self.seconds = None if window is None else _seconds(name, window)
        self.window = next((word for word, n in SECONDS.items() if n == self.seconds), self.seconds)
        self.keep: int | None = None
        made_with: dict[str, Any] = {"name": name, "key": key, "slots": slots}
        facts: dict[str, Any] = {"key": column_facts(self.key.columns)}
        if self.seconds is None:
            if keep is not None:
                raise Invalid(f"{name}: keep is a number of windows, and goes with window")
        else:
            what = f"{name}: keep is a number of windows, a whole number from 1 to {MAX_KEEP:,}"
            self.keep = checked_whole(what, keep, 1, MAX_KEEP)
            self._reserve(self.key.columns, [START.name])
            made_with |= {"window": timedelta(seconds=self.seconds), "keep": keep}
            facts |= {"window": self.window, "keep": self.keep}
        self._define(made_with, **facts, slots=self.slots)

    @property
    def size(self) -> int:
        """The length of a window in microseconds; 0 without windows."""
        return (self.seconds or 0) * SECOND

    def add(self, key: Key, n: int = 1) -> Operation[None]:
        """Add `n`, which may be negative or 0; `Overflow` when a slot would leave 64 bits."""
        found = whole(n, INT_MIN, INT_MAX)
        if found is None:
            raise self._wrong(n)
        return Operation(self, "add", (self._check_key(key), found))

    def increment(self, key: Key, n: int = 1) -> Operation[int]:
        """Add `n` as `add` does and return the exact new total; `Overflow` when a slot would leave 64 bits.

        With `window` it is the total of the current window. No two callers get the same total while every `n` is
        positive. The price is that slots do not help: increments of one key wait for each other until the transaction
        ends.

        >>> import roost
        >>> tickets = roost.Counter("tickets", slots=1)
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(tickets)
        ...     store.run_all(tickets.increment("oslo"), tickets.increment("oslo", 2), tickets.increment("rome"))
        (1, 3, 1)
        """
        return Operation(self, "increment", self.add(key, n).args)

    def add_all(self, counts: Mapping[Key, int]) -> Operation[None]:
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

    def total(self, key: Key, last: int | None = None) -> Operation[int]:
        """Read the total; 0 for a key that was never counted.

        last: with `window`, of the last windows only, the current one included (None: of all that are kept).
        """
        return Operation(self, "total", (self._check_key(key), *self._last(last)))

    def totals(self, keys: Iterable[Key], last: int | None = None) -> Operation[dict[Key, int]]:
        """Read the totals of several keys; the dict has every given key, in the given order. last: as for `total`."""
        if isinstance(keys, (str, bytes)):
            raise Invalid(f"{self.name}: totals takes several keys, not the single {keys!r}")
        return Operation(self, "totals", (tuple([self._check_key(key) for key in keys]), *self._last(last)))

    def top(self, n: int = 10, last: int | None = None) -> Operation[list[tuple[Key, int]]]:
        """Read the `n` greatest totals, greatest first, equal ones in key order. Scans every key.

        last: as for `total`.
        """
        return Operation(self, "top", (self._n(n), *self._last(last)))

    def series(self, key: Key, last: int | None = None) -> Operation[list[tuple[datetime, int]]]:
        """Read the last windows (None: all that are kept), oldest first: each one's start, in UTC, and its total.

        A window in which nothing was counted has the total 0. `Invalid` for a counter without `window`.
        """
        if self.seconds is None:
            raise Invalid(f"{self.name}: series needs windows: declare the counter with window= and keep=")
        return Operation(self, "series", (self._check_key(key), *self._last(last)))

    @property
    def _record_columns(self) -> Sequence[Column]:
        start = [replace(START, type=ColumnType("datetime"), nullable=True)] if self.window else []
        return (*self.key.columns, replace(TOTAL, nullable=True), *start)

    def _record(self, values: Sequence[Any]) -> Any:
        *key, n = values[: len(self.key.columns) + 1]
        if any(each is not None for each in values[len(key) + 1 :]):
            raise Invalid(f"{self.name}: start cannot be given: a line counts in the current window")
        return self.add(self.key.value(key), 1 if n is None else n)

    def _last(self, last: Any) -> tuple[int | None, ...]:
        # What an operation has as its last argument; without windows it has none.
        if self.seconds is None:
            if last is not None:
                raise Invalid(f"{self.name}: last is a number of windows: declare the counter with window= and keep=")
            return ()
        what = f"{self.name}: last is a number of windows from 1 on"
        return (None if last is None else checked_whole(what, last, 1, MAX_KEEP),)

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        match verb:
            case "add_all":
                return [f"{{{few(f'{self.key.value(row[:-1])!r}: {row[-1]}' for row in args)}}}"]
            case "total" | "totals" | "top" | "series":
                first, *last = args
                if verb != "top":
                    first = [self.key.value(key) for key in first] if verb == "totals" else self.key.value(first)
                return [repr(first), *(f"last={each}" for each in last)]
        return super()._arguments(verb, args)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Self:
        """Make the declaration from the facts of a definition."""
        window = facts.get("window")
        window = timedelta(seconds=int(str(window))) if str(window).isdecimal() else window
        return super().from_facts(name, {**facts, "window": window})


def _seconds(name: str, window: Any) -> int:
    if isinstance(window, timedelta):
        seconds, rest = divmod(window, timedelta(seconds=1))
        if not rest and 1 <= seconds <= MAX_SECONDS:
            return seconds
    elif isinstance(window, str) and window in SECONDS:
        return SECONDS[window]
    words = ", ".join(map(repr, SECONDS))
    raise Invalid(f"{name}: window is {words}, or a timedelta of whole seconds, at most 366 days; not {window!r}")


class CounterWire(Wire):
    """Every key has a row; its total is 0 where it was never counted."""

    more = (TOTAL,)
    verbs = frozenset(["increment", "decrement", "delete"])
    of_key = "total"

    def change(self, verb: str, head: Any, id_: Values, found: Any, to: Sequence[Any]) -> Steps:
        if verb == "delete":
            yield self.structure.clear(head)
            return True
        addend = self._addend(to)
        new = found + addend if verb == "increment" else found - addend
        # A total that `-` would take across 0 is not changed.
        if verb == "decrement" and ((found > 0 and new < 0) or (found < 0 and new > 0)):
            return False
        yield self.structure.add(head, addend if verb == "increment" else -addend)
        return True

    def _addend(self, to: Sequence[str | None]) -> int:
        total = 0
        for column, token in zip(self.columns, to, strict=False):
            if token is None:
                continue
            addend = number(token)
            if column is not TOTAL or type(addend) is not int:
                raise worded(StatementFailed(f"{self.structure.name}: {token!r} cannot be added"), "type")
            total += addend
        return total


class CounterConsole(Console[Counter[Any]]):
    """Keys with their totals; an imported record adds its total, or 1 where it has none.

    With windows also those of one key in which something was counted, newest first.
    """

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "slots": None, "window": None, "keep": None}
    changes: ClassVar[Sequence[str]] = ("keep", "slots")
    reads = "total"
    headers = ("total",)

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        return self.structure.series(key) if self.structure.window else self.structure.total(key)

    def content(self, found: Any, n: int | None) -> Table:
        if not self.structure.window:
            return Table(("total",), [(found,)], {"total": found})
        rows = [(start, total) for start, total in reversed(found) if total][:n]
        windows = [{"start": start, "total": total} for start, total in rows]
        return Table(("start", "total"), rows, {"total": sum(total for _, total in found), "windows": windows})

    def removed(self, number: int) -> str:
        return f"a total of {number:,}"
