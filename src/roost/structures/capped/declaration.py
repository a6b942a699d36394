"""Capped: the newest rows per key, each with an identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from roost.errors import Invalid
from roost.structures.adopted import Adopted
from roost.structures.operation import Operation
from roost.structures.rows import Rows, RowStructure, keep_limit, names, option, row_from
from roost.structures.structure import Group, column_facts
from roost.types.columns import Column

if TYPE_CHECKING:
    from roost.structures.ranked.declaration import Ranked

K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
L = TypeVar("L")


class Capped(RowStructure[R, K]):
    """A capped collection: at most `keep` rows per key, each with an id; the row *added* first is evicted first.

    name: lower-case identifier, at most 40 characters.
    Row: a dataclass (also frozen, with slots or defaults) whose annotations give the columns.
    per: the field that is the key, or several; or a NamedTuple whose fields are those of the row.
    keep: rows per key, at least 1.
    unique: the field (or several) that identifies a row within its key.
    on_full: "evict" the oldest, or "reject" the new row with `Full`.
    on_duplicate: "error" (`Duplicate`), or "refresh": the row is replaced and becomes the newest.
    keep_for: rows also expire after this time: see `ExpiringCapped`.
    order: keep the rows with the greatest values of this field instead of the newest rows: see `Ranked`.

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
    """

    kind = "capped"
    options: tuple[str, ...] = ("keep", "on_full", "on_duplicate")
    score: Column | None = None  # rows with the greatest values of this column are kept; None: the newest rows

    def __new__(
        cls, name: str, *_: Any, order: str | None = None, keep_for: timedelta | float | None = None, **__: Any
    ) -> Self:
        """Return a `Ranked` if `order` is given, an `ExpiringCapped` if `keep_for` is given."""
        if cls is Capped and order is not None:
            from roost.structures.ranked.declaration import Ranked  # which is derived from this class

            if keep_for is not None:
                raise Invalid(f"{name}: keep_for does not go with order")
            cls = Ranked  # type: ignore[assignment]
        elif cls is Capped and keep_for is not None:
            from roost.structures.expiring_capped.declaration import ExpiringCapped  # which is derived from this class

            cls = ExpiringCapped  # type: ignore[assignment]
        return super().__new__(cls)

    @overload
    def __init__(
        self: Capped[S, Any],
        name: str,
        Row: type[S],
        *,
        per: str | Sequence[str],
        keep: int,
        unique: str | Sequence[str],
        on_full: Literal["evict", "reject"] = "evict",
        on_duplicate: Literal["error", "refresh"] = "error",
        keep_for: timedelta | float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        Row: type[R],
        *,
        per: type[K],
        keep: int,
        unique: str | Sequence[str],
        on_full: Literal["evict", "reject"] = "evict",
        on_duplicate: Literal["error", "refresh"] = "error",
        keep_for: timedelta | float | None = None,
    ) -> None: ...
    @overload
    def __init__(  # type: ignore[misc]
        self: Ranked[S, Any],
        name: str,
        Row: type[S],
        *,
        per: str | Sequence[str],
        keep: int,
        unique: str | Sequence[str],
        order: str,
        on_duplicate: Literal["error", "refresh", "best"] = "error",
    ) -> None: ...
    @overload
    def __init__(  # type: ignore[misc]
        self: Ranked[S, L],
        name: str,
        Row: type[S],
        *,
        per: type[L],
        keep: int,
        unique: str | Sequence[str],
        order: str,
        on_duplicate: Literal["error", "refresh", "best"] = "error",
    ) -> None: ...

    def __init__(
        self,
        name: str,
        Row: type[Any],
        *,
        per: Any,
        keep: int,
        unique: str | Sequence[str],
        order: str | None = None,
        on_full: str = "evict",
        on_duplicate: str = "error",
        keep_for: timedelta | float | None = None,
    ) -> None:
        self.unique = names(name, "unique", unique)
        super().__init__(name, Rows(name, Row, per, self.unique))
        shared = [field for field in self.unique if field in self.rows.per]
        if shared:
            raise Invalid(f"{name}: {shared[0]!r} is in per already; unique names what tells a key's rows apart")
        self.id: Group[Any] = Group(name, "id", [c for f in self.unique for c in self.columns if c.name == f])
        self.keep = keep_limit(name, keep)
        self.on_full = option(name, "on_full", on_full, ("evict", "reject"))
        self.on_duplicate = option(name, "on_duplicate", on_duplicate, ("error", "refresh"))
        options = {"on_full": on_full, "on_duplicate": on_duplicate}
        self._define(
            {"name": name, "Row": Row, "per": per, "keep": keep, "unique": unique, **options},
            columns=column_facts(self.columns),
            per=self.rows.per,
            keep=keep,
            unique=self.unique,
            **options,
        )

    def add(self, row: R) -> Operation[None]:
        """Add the row as the key's newest; if the key then has more than `keep` rows, evict the one added first.

        `Duplicate` when the id exists and `on_duplicate` is "error"; `Full` when the key holds `keep` other rows and
        `on_full` is "reject".
        """
        return Operation(self, "add", (self.rows.check(row),))

    def add_all(self, rows: Iterable[R]) -> Operation[None]:
        """Add many rows in the given order, all or none.

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

    def remove(self, key: K, id: Any) -> Operation[bool]:
        """Remove the row with this id; return whether it existed."""
        return Operation(self, "remove", (self.key.check(key), self.id.check(id)))

    def get(self, key: K, id: Any) -> Operation[R | None]:
        """Read the row with this id; None if there is none."""
        return Operation(self, "get", (self.key.check(key), self.id.check(id)))

    def count(self, key: K) -> Operation[int]:
        """Read how many rows the key holds; reads a single row, whatever the number."""
        return Operation(self, "count", (self.key.check(key),))

    @staticmethod
    def of(table: str) -> Adopted:
        """Return a handle for reading a table of the application's own that `roost cap` has capped.

        >>> import roost
        >>> roost.Capped.of("visits").latest(5, 3)
        visits.latest(5, 3)
        """
        return Adopted(table)

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value is at this path in an operation's arguments."""
        if operation.verb in ("remove", "get", "rank") and path[0] == 1:
            return self.id.names[path[-1]]
        return super().column_at(operation, path)

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        if verb in ("remove", "get", "rank"):
            return [repr(self.key.value(args[0])), repr(self.id.value(args[1]))]
        return super()._arguments(verb, args)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Capped[Any, Any]:
        """Make the declaration from the facts of a definition."""
        return Capped(
            name,
            row_from(name, facts["columns"], [*facts["per"], *facts["unique"]]),
            per=tuple(facts["per"]),
            keep=facts["keep"],
            unique=tuple(facts["unique"]),
            on_full=facts["on_full"],
            on_duplicate=facts["on_duplicate"],
        )
