"""Ranked: the best rows per key, each with an identity; `Capped(…, order=…)` returns one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

from roost.errors import Invalid
from roost.structures.capped.declaration import Capped
from roost.structures.operation import Operation
from roost.structures.rows import option, row_from
from roost.structures.structure import column_facts
from roost.types.columns import Column

K = TypeVar("K")
R = TypeVar("R")

SCORES = ("int", "float", "date", "datetime")  # the types that every database sorts in the order of their values


class Ranked(Capped[R, K]):
    """A leaderboard: a capped collection that keeps the rows with the greatest scores instead of the newest ones.

    Made by `roost.Capped(…, order="points")`. Of two equal scores, the one added earlier ranks higher. To keep the
    lowest scores (lap times), store the negative.

    order: the field that is the score: an int, a float, a date or a datetime, never None.
    on_duplicate: "error" (`Duplicate`); "refresh": the row is replaced, whatever the score; or "best": it is replaced
        only by a row with a greater score.

    The other arguments are those of `Capped`. `latest` and `entries` read all rows of the key.

    >>> import dataclasses, roost
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

    kind = "ranked"
    options = ("keep", "on_duplicate")
    score: Column
    reads = ("rank",)

    def __init__(
        self,
        name: str,
        Row: type[Any],
        *,
        per: Any,
        keep: int,
        unique: str | Sequence[str],
        order: str | None = None,
        on_full: Literal["evict"] = "evict",
        on_duplicate: Literal["error", "refresh", "best"] = "error",
    ) -> None:
        option(name, "on_full", on_full, ("evict",))
        super().__init__(name, Row, per=per, keep=keep, unique=unique)
        self.on_duplicate = option(name, "on_duplicate", on_duplicate, ("error", "refresh", "best"))
        self.score = self._score(order)
        self.order = self.score.name
        options = {"order": self.order, "on_duplicate": on_duplicate}
        self._define(
            {"name": name, "Row": Row, "per": per, "keep": keep, "unique": unique, **options},
            columns=column_facts(self.columns),
            per=self.rows.per,
            keep=keep,
            unique=self.unique,
            **options,
        )

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

    def add(self, row: R) -> Operation[bool]:  # type: ignore[override]
        """Add the row if it is among the best `keep` of its key; return whether it was stored.

        In a full key, a row that is better than the worst one replaces it; any other row is not stored, which is not an
        error. If the id exists, `on_duplicate` decides: `Duplicate` is raised, or the row is replaced and the result is
        True; with "best" the result is False if the stored score is at least as great.
        """
        return Operation(self, "add", (self.rows.check(row),))

    def add_all(self, rows: Iterable[R]) -> Operation[list[bool]]:  # type: ignore[override]
        """Add many rows in the given order; return a list with the result of `add` for each.

        If one row raises `Duplicate`, none is added.
        """
        return Operation(self, "add_all", super().add_all(rows).args)

    def top(self, key: K, n: int | None = None) -> Operation[list[R]]:
        """Read the `n` best rows (None: all), best first."""
        return Operation(self, "top", (self.key.check(key), n if n is None else self._n(n)))

    def rank(self, key: K, id: Any) -> Operation[int | None]:
        """Read the rank of the row with this id: 1 is the best; None if there is no such row.

        Reads the index entries of all better rows, at most `keep`.
        """
        return Operation(self, "rank", (self.key.check(key), self.id.check(id)))

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Ranked[Any, Any]:
        """Make the declaration from the facts of a definition."""
        return Ranked(
            name,
            row_from(name, facts["columns"], [*facts["per"], *facts["unique"]]),
            per=tuple(facts["per"]),
            keep=facts["keep"],
            unique=tuple(facts["unique"]),
            order=facts["order"],
            on_duplicate=facts["on_duplicate"],
        )
