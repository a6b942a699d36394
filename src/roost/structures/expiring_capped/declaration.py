"""Expiring capped: the newest rows of each key that are not too old; `Capped(…, keep_for=…)` returns one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from roost.structures import keep_for as keeping
from roost.structures.capped.declaration import Capped
from roost.structures.operation import Operation
from roost.structures.rows import row_from
from roost.structures.structure import column_facts

K = TypeVar("K")
R = TypeVar("R")


class ExpiringCapped(Capped[R, K]):
    """At most `keep` rows per key, each for at most `keep_for` after its add.

    Made by `roost.Capped(…, keep_for=timedelta(days=30))`. With `on_duplicate="refresh"`, adding an id that exists
    renews its time. An expired row counts as absent: its id may be added again, and it takes up no place when `on_full`
    is "reject". The clock is the database server's, on SQLite the store's; if the clock jumps back, expired rows do not
    reappear.

    keep_for: a timedelta of whole seconds, or their number.

    Expired rows are neither returned nor counted. Later writes delete them: those of the keys that they write, and
    those of some other keys.

    >>> import dataclasses, roost
    >>> from datetime import timedelta
    >>> @dataclasses.dataclass
    ... class Egg:
    ...     basket: int
    ...     egg: int
    >>> baskets = roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg", keep_for=timedelta(days=30))
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(baskets)
    ...     _ = store.run_all(*[baskets.add(Egg(42, egg)) for egg in range(1, 14)])
    ...     store.run(baskets.count(42)), store.run(baskets.get(42, 1)), store.run(baskets.latest(42, 2))
    (12, None, [Egg(basket=42, egg=13), Egg(basket=42, egg=12)])
    """

    kind = "expiring_capped"
    options: tuple[str, ...] = ("keep", "on_full", "on_duplicate", "keep_for")

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
        options: Any = {"on_full": on_full, "on_duplicate": on_duplicate}
        super().__init__(name, Row, per=per, keep=keep, unique=unique, **options)
        self.keep_for = keeping.seconds(name, keep_for)  # in seconds
        keeping.reserved(name, self.columns)
        self._define(
            {"name": name, "Row": Row, "per": per, "keep": keep, "unique": unique, **options, "keep_for": keep_for},
            columns=column_facts(self.columns),
            per=self.rows.per,
            keep=self.keep,
            unique=self.unique,
            **options,
            keep_for=self.keep_for,
        )

    def count(self, key: K) -> Operation[int]:
        """Read how many rows the key holds, by counting them."""
        return super().count(key)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> ExpiringCapped[Any, Any]:
        """Make the declaration from the facts of a definition."""
        return ExpiringCapped(
            name,
            row_from(name, facts["columns"], [*facts["per"], *facts["unique"]]),
            per=tuple(facts["per"]),
            keep=facts["keep"],
            unique=tuple(facts["unique"]),
            on_full=facts["on_full"],
            on_duplicate=facts["on_duplicate"],
            keep_for=facts["keep_for"],
        )
