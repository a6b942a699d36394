"""Capped: a few rows per key, each with an identity: the newest ones, the best ones, or those that are not too old."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

from roost.errors import Invalid
from roost.structures.adopted import Adopted
from roost.structures.console import REQUIRED
from roost.structures.operation import Operation
from roost.structures.rows import EntriesWire, Entry, Rows, RowsConsole, RowStructure, keep_limit, names, option
from roost.structures.rules import UNTIL, seconds
from roost.structures.structure import AnyKey, Group, column_facts
from roost.types.columns import Column

L = TypeVar("L")
R = TypeVar("R")
if TYPE_CHECKING:
    from typing import Required, TypedDict, Unpack

    import typing_extensions  # which type checkers have; typing has it from Python 3.13 on

    Added = typing_extensions.TypeVar("Added", bound=bool | None, default=None)

    class _Newest(TypedDict, total=False):
        unique: Required[str | Sequence[str]]
        keep: int | None
        on_full: Literal["evict", "reject"]
        on_duplicate: Literal["error", "refresh"]
        order: None
        keep_for: timedelta | float | None

    class _Best(TypedDict, total=False):
        unique: Required[str | Sequence[str]]
        keep: Required[int]
        on_full: Literal["evict"]
        on_duplicate: Literal["error", "refresh", "best"]
        order: Required[str]
        keep_for: timedelta | float | None

else:
    Added = TypeVar("Added")

SCORES = ("int", "float", "date", "datetime")  # the types that every database sorts in the order of their values


class Capped(RowStructure[R, AnyKey], Generic[R, AnyKey, Added]):
    """A capped collection: at most `keep` rows per key, each with an id; the row *added* first is evicted first.

    name: lower-case identifier, at most 40 characters.
    Row: a dataclass (also frozen, with slots or defaults) whose annotations give the columns.
    per: the field that is the key, or several; or a NamedTuple whose fields are those of the row.
    unique: the field (or several) that identifies a row within its key.
    keep: rows per key, at least 1. None: any number, where `keep_for` is given.
    on_full: "evict" the oldest, or "reject" the new row with `Full`.
    on_duplicate: "error" (`Duplicate`), or "refresh": the row is replaced and becomes the newest; or, with `order`,
        "best": it is replaced only by a row with a greater score.
    order: a leaderboard: the rows with the greatest values of this field are kept instead of the newest ones; of two
        equal scores, the one added earlier ranks higher. An int, a float, a date or a datetime, never None. To keep the
        lowest scores (lap times), store the negative. `latest` and `entries` then read all rows of the key.
    keep_for: a timedelta of whole seconds, or their number: rows also leave so long after their add. An expired row
        counts as absent: its id may be added again, and it takes up no place. Later writes delete it. The clock is the
        database server's, on SQLite the store's; if it jumps back, expired rows do not reappear.

    >>> import dataclasses, roost
    >>> @dataclasses.dataclass
    ... class Egg:
    ...     basket: int
    ...     egg: int
    >>> baskets = roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg")
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(baskets)
    ...     _ = store.run_all(*[baskets.add(Egg(42, egg)) for egg in range(1, 14)])
    ...     store.run(baskets.count(42)), store.run(baskets.get(42, 1)), store.run(baskets.latest(42, 2))
    (12, None, [Egg(basket=42, egg=13), Egg(basket=42, egg=12)])

    >>> @dataclasses.dataclass
    ... class Score:
    ...     board: str
    ...     player: int
    ...     points: int
    >>> best = roost.Capped(
    ...     "best", Score, per="board", keep=2, unique="player", order="points", on_duplicate="best"
    ... )
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(best)
    ...     store.run_all(*[best.add(Score("go", player, points)) for player, points in [(1, 50), (2, 90), (3, 70)]])
    ...     store.run(best.add(Score("go", 4, 60)))
    ...     store.run_all(best.top("go"), best.rank("go", 3), best.rank("go", 1))
    (True, True, True)
    False
    ([Score(board='go', player=2, points=90), Score(board='go', player=3, points=70)], 2, None)
    """

    kind = "capped"
    reads = ("rank",)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """Return the class for a row and a key; what `add` answers may be left out."""
            return super().__class_getitem__((*types, None) if isinstance(types, tuple) and len(types) == 2 else types)

    @overload
    def __init__(
        self: Capped[R, Any, None], name: str, Row: type[R], *, per: str | Sequence[str], **options: Unpack[_Newest]
    ) -> None: ...
    @overload
    def __init__(
        self: Capped[R, L, None], name: str, Row: type[R], *, per: type[L], **options: Unpack[_Newest]
    ) -> None: ...
    @overload
    def __init__(
        self: Capped[R, Any, bool], name: str, Row: type[R], *, per: str | Sequence[str], **options: Unpack[_Best]
    ) -> None: ...
    @overload
    def __init__(
        self: Capped[R, L, bool], name: str, Row: type[R], *, per: type[L], **options: Unpack[_Best]
    ) -> None: ...

    def __init__(
        self,
        name: str,
        Row: type[Any],
        *,
        per: Any,
        unique: str | Sequence[str],
        keep: int | None = None,
        on_full: str = "evict",
        on_duplicate: str = "error",
        order: str | None = None,
        keep_for: timedelta | float | None = None,
    ) -> None:
        self.unique = names(name, "unique", unique)
        super().__init__(name, Rows(name, Row, per, self.unique))
        shared = [field for field in self.unique if field in self.rows.per]
        if shared:
            raise Invalid(f"{name}: {shared[0]!r} is in per already; unique names what tells a key's rows apart")
        self.id = self.second = Group[Any](name, "id", [c for f in self.unique for c in self.columns if c.name == f])
        self.keep: int | None = None if keep is None else keep_limit(name, keep)
        self.keep_for = None if keep_for is None else seconds(name, keep_for)
        self.on_full = option(name, "on_full", on_full, ("evict", "reject"))
        self.on_duplicate = option(name, "on_duplicate", on_duplicate, ("error", "refresh", "best"))
        self.score = None if order is None else self._score(order)
        self._compare_options()
        self.options = ("keep", "on_full", "on_duplicate", *(() if keep_for is None else ("keep_for",)))
        given = {"keep": keep, "on_full": on_full, "on_duplicate": on_duplicate, "order": order, "keep_for": keep_for}
        more = {"order": order, "keep_for": self.keep_for}
        self._define(
            {"name": name, "Row": Row, "per": per, "unique": unique, **given},
            columns=column_facts(self.columns),
            per=self.rows.per,
            keep=keep,
            unique=self.unique,
            on_full=on_full,
            on_duplicate=on_duplicate,
            **{fact: value for fact, value in more.items() if value is not None},
        )

    def _compare_options(self) -> None:
        # Refuses options that mean nothing together.
        if self.keep_for is not None:
            self._reserve(self.columns, [UNTIL.name])
        wrong = ""
        if self.keep is None and self.score is not None:
            wrong = "order keeps the best rows, and keep says how many: give both"
        elif self.keep is None and self.keep_for is None:
            wrong = "keep says how many rows a key has, keep_for how old they get: give one of them, or both"
        elif self.keep is None and self.on_full == "reject":
            wrong = "on_full='reject' goes with keep: without it no key is ever full"
        elif self.score is not None and self.on_full == "reject":
            wrong = "on_full='reject' does not go with order: a full key keeps the better row"
        elif self.score is None and self.on_duplicate == "best":
            wrong = "on_duplicate='best' goes with order, which says what is better"
        if wrong:
            raise Invalid(f"{self.name}: {wrong}")

    def _score(self, order: Any) -> Column:
        for column in self.columns:
            if column.name == order and column.name not in (*self.rows.per, *self.unique):
                if column.nullable or column.type.kind not in SCORES:
                    raise Invalid(
                        f"{self.name}: order names a field that is an int, a float, a date or a datetime, and never "
                        f"None; {order} is {column.spec}"
                    )
                return column
        raise Invalid(f"{self.name}: order names a field of the row that is not in per or unique, not {order!r}")

    def add(self, row: R) -> Operation[Added]:
        """Add the row as the key's newest; if the key then has more than `keep` rows, evict the one added first.

        `Duplicate` when the id exists and `on_duplicate` is "error"; `Full` when the key holds `keep` other rows and
        `on_full` is "reject".

        With `order` the result is whether the row was stored: in a full key, a row that is better than the worst one
        replaces it, and any other one is not stored, which is no error; nor is one, with `on_duplicate="best"`, whose
        stored score is at least as great.
        """
        return Operation(self, "add", (self.rows.check(row),))

    @overload
    def add_all(self: Capped[R, AnyKey, None], rows: Iterable[R]) -> Operation[None]: ...
    @overload
    def add_all(self: Capped[R, AnyKey, bool], rows: Iterable[R]) -> Operation[list[bool]]: ...

    def add_all(self, rows: Iterable[R]) -> Operation[Any]:
        """Add many rows in the given order, all or none; with `order`, return a list with the result of each `add`.

        The rows are checked and stored together, which is faster than one `add` per row. If one row raises `Duplicate`
        or `Full`, none is added.

        >>> import dataclasses, roost
        >>> @dataclasses.dataclass
        ... class Egg:
        ...     basket: int
        ...     egg: int
        >>> baskets = roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg")
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(baskets)
        ...     store.run(baskets.add_all(Egg(42, egg) for egg in range(1, 14)))
        ...     store.run_all(baskets.count(42), baskets.get(42, 1))
        (12, None)
        """
        return Operation(self, "add_all", self.rows.check_all(self._several("add_all takes several rows", rows)))

    def _record(self, values: Sequence[Any]) -> Any:
        return self.add(self.rows.make(values))

    def remove(self, key: AnyKey, id: Any) -> Operation[bool]:
        """Remove the row with this id; return whether it existed."""
        return Operation(self, "remove", (self.key.check(key), self.id.check(id)))

    def get(self, key: AnyKey, id: Any) -> Operation[R | None]:
        """Read the row with this id; None if there is none."""
        return Operation(self, "get", (self.key.check(key), self.id.check(id)))

    def count(self, key: AnyKey) -> Operation[int]:
        """Read how many rows the key holds: a single row, whatever the number; with `keep_for` they are counted."""
        return Operation(self, "count", (self.key.check(key),))

    def top(self, key: AnyKey, n: int | None = None) -> Operation[list[R]]:
        """Read the `n` best rows (None: all), best first; `Invalid` without `order`."""
        self._ordered("top")
        return Operation(self, "top", (self.key.check(key), n if n is None else self._n(n)))

    def rank(self, key: AnyKey, id: Any) -> Operation[int | None]:
        """Read the rank of the row with this id: 1 is the best; None if there is no such row; it takes `order`.

        Reads the index entries of all better rows, at most `keep`.
        """
        self._ordered("rank")
        return Operation(self, "rank", (self.key.check(key), self.id.check(id)))

    def _ranked(self, entries: list[Entry[R]]) -> list[Entry[R]]:
        if self.score is None:
            return entries
        by = self.score.name
        return sorted(entries, key=lambda entry: (getattr(entry.row, by), -entry.sequence))

    def _ordered(self, verb: str) -> None:
        if self.score is None:
            raise Invalid(f"{self.name}: {verb} goes with order=, which says what is better; it has none")

    @staticmethod
    def of(table: str) -> Adopted:
        """Return a handle for reading a table of the application's own that `roost cap` has capped.

        >>> import roost
        >>> roost.Capped.of("visits").latest(5, 3)
        visits.latest(5, 3)
        """
        return Adopted(table)


class CappedWire(EntriesWire):
    """A find returns the newest rows first, or the best, or the row of an id; an insert adds, a delete removes."""

    of_id = "get"

    def __init__(self, structure: Any, *asked: Any) -> None:
        super().__init__(structure, *asked)
        if structure.score is not None:
            self.of_key = "top"


class CappedConsole(RowsConsole[Capped[Any, Any, Any]]):
    """An imported record is added."""

    takes: ClassVar[Mapping[str, Any]] = {
        **dict.fromkeys(("per", "unique"), REQUIRED),
        "keep": None,
        "keep_for": None,
        "column": (),
        "order": None,
        "on_full": "evict",
        "on_duplicate": "error",
    }
    changes: ClassVar[Sequence[str]] = (*RowsConsole.changes, "on_full", "on_duplicate")
