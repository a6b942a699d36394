"""Expiring ring: the last rows of each key that are not too old; `Ring(…, keep_for=…)` returns one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from roost.structures import keep_for as keeping
from roost.structures.ring.declaration import Ring
from roost.structures.rows import row_from
from roost.structures.structure import column_facts

K = TypeVar("K")
R = TypeVar("R")


class ExpiringRing(Ring[R, K]):
    """The last `keep` rows per key, each for at most `keep_for` after its push.

    Made by `roost.Ring(…, keep_for=timedelta(days=30))`. The clock is the database server's, on SQLite the store's; if
    the clock jumps back, expired rows do not reappear.

    keep_for: a timedelta of whole seconds, or their number.

    Expired rows are never returned. They are overwritten, or later pushes delete them, a bounded number with each push.
    The sequence numbers of a key continue.

    >>> import dataclasses, roost
    >>> from datetime import timedelta
    >>> @dataclasses.dataclass
    ... class Visit:
    ...     uid: int
    ...     visitor: int
    >>> visits = roost.Ring("visits", Visit, per="uid", keep=2, keep_for=timedelta(days=30))
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(visits)
    ...     store.run_all(*[visits.push(Visit(5, visitor)) for visitor in (7, 8, 9)])
    ...     store.run(visits.latest(5))
    (1, 2, 3)
    [Visit(uid=5, visitor=9), Visit(uid=5, visitor=8)]
    """

    kind = "expiring_ring"
    options: ClassVar[tuple[str, ...]] = ("keep", "keep_for")

    def __init__(
        self, name: str, Row: type[Any], *, per: Any, keep: int, keep_for: timedelta | float | None = None
    ) -> None:
        super().__init__(name, Row, per=per, keep=keep)
        self.keep_for = keeping.seconds(name, keep_for)  # in seconds
        keeping.reserved(name, self.columns)
        self._define(
            {"name": name, "Row": Row, "per": per, "keep": keep, "keep_for": keep_for},
            columns=column_facts(self.columns),
            per=self.rows.per,
            keep=self.keep,
            keep_for=self.keep_for,
        )

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> ExpiringRing[Any, Any]:
        """Make the declaration from the facts of a definition."""
        row = row_from(name, facts["columns"], facts["per"])
        return ExpiringRing(name, row, per=tuple(facts["per"]), keep=facts["keep"], keep_for=facts["keep_for"])
