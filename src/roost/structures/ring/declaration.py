"""Ring: the last rows per key, in a space that stops growing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self, TypeVar, overload

from roost.structures.operation import Operation
from roost.structures.rows import Rows, RowStructure, keep_limit, row_from
from roost.structures.structure import column_facts

K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")


class Ring(RowStructure[R, K]):
    """The last `keep` rows per key; the next one overwrites the oldest in place.

    name: lower-case identifier, at most 40 characters.
    Row: a dataclass (also frozen, with slots or defaults) whose annotations give the columns.
    per: the field that is the key, or several; or a NamedTuple whose fields are those of the row.
    keep: rows per key, at least 1. There are never more than keys × keep rows.
    keep_for: rows also expire after this time: see `ExpiringRing`.

    The pushes of a key are numbered 1, 2, 3 … without gaps. For rows that have an identity and may appear only once
    ("the last 12 different visitors"), use `roost.Capped`.

    >>> import dataclasses, roost
    >>> @dataclasses.dataclass
    ... class Visit:
    ...     uid: int
    ...     visitor: int
    >>> visits = roost.Ring("visits", Visit, per="uid", keep=2)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(visits)
    ...     store.run_all(*[visits.push(Visit(5, visitor)) for visitor in (7, 8, 9)])
    ...     store.run(visits.latest(5))
    (1, 2, 3)
    [Visit(uid=5, visitor=9), Visit(uid=5, visitor=8)]
    """

    kind = "ring"
    options: ClassVar[tuple[str, ...]] = ("keep",)

    def __new__(cls, *_: Any, keep_for: timedelta | float | None = None, **__: Any) -> Self:
        """Return an `ExpiringRing` if `keep_for` is given."""
        if cls is Ring and keep_for is not None:
            from roost.structures.expiring_ring.declaration import ExpiringRing  # derived from this class

            cls = ExpiringRing  # type: ignore[assignment]
        return super().__new__(cls)

    @overload
    def __init__(
        self: Ring[S, Any],
        name: str,
        Row: type[S],
        *,
        per: str | Sequence[str],
        keep: int,
        keep_for: timedelta | float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, Row: type[R], *, per: type[K], keep: int, keep_for: timedelta | float | None = None
    ) -> None: ...

    def __init__(
        self, name: str, Row: type[Any], *, per: Any, keep: int, keep_for: timedelta | float | None = None
    ) -> None:
        super().__init__(name, Rows(name, Row, per))
        self.keep = keep_limit(name, keep)
        self._define(
            {"name": name, "Row": Row, "per": per, "keep": keep},
            columns=column_facts(self.columns),
            per=self.rows.per,
            keep=keep,
        )

    def push(self, row: R) -> Operation[int]:
        """Write the row over the key's oldest; return its sequence number: 1, 2, 3 … without gaps."""
        return Operation(self, "push", (self.rows.check(row),))

    def push_all(self, rows: Iterable[R]) -> Operation[list[int]]:
        """Write many rows in the given order, all or none; return their sequence numbers.

        The rows are checked and stored together, which is faster than one `push` per row.

        >>> import dataclasses, roost
        >>> @dataclasses.dataclass
        ... class Visit:
        ...     uid: int
        ...     visitor: int
        >>> visits = roost.Ring("visits", Visit, per="uid", keep=2)
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(visits)
        ...     store.run(visits.push_all([Visit(5, 7), Visit(6, 7), Visit(5, 8)]))
        [1, 1, 2]
        """
        return Operation(self, "push_all", self.rows.check_all(self._several("push_all takes several rows", rows)))

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Ring[Any, Any]:
        """Make the declaration from the facts of a definition."""
        return Ring(name, row_from(name, facts["columns"], facts["per"]), per=tuple(facts["per"]), keep=facts["keep"])
