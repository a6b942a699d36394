"""Expiring set: the members of each key that were added recently; `Set(…, keep_for=…)` returns one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar

from roost.structures import keep_for as keeping
from roost.structures.operation import Operation
from roost.structures.set.declaration import Set
from roost.structures.structure import column_facts, key_from

K = TypeVar("K")
M = TypeVar("M")


class ExpiringSet(Set[K, M]):
    """Members that expire `keep_for` after they were last added.

    Made by `roost.Set(…, keep_for=timedelta(minutes=5))`. Adding a member that exists renews its time. The clock is
    the database server's, on SQLite the store's; if the clock jumps back, expired members do not reappear.

    keep_for: a timedelta of whole seconds, or their number.

    Expired members are neither returned nor counted; later writes delete their rows, a bounded number with each write.
    `keys` lists a key as long as it has a member. `size` and `keys` read the rows of the members.

    >>> import roost
    >>> from datetime import timedelta
    >>> online = roost.Set("online", member=int, keep_for=timedelta(minutes=5))
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(online)
    ...     store.run_all(online.add("chat", 7, 8), online.add("chat", 7), online.size("chat"))
    (2, 0, 2)
    """

    kind = "expiring_set"
    options: tuple[str, ...] = ("keep_for",)

    def __init__(self, name: str, *, key: Any = str, member: Any = str, keep_for: timedelta | float | None) -> None:
        super().__init__(name, key=key, member=member)
        self.keep_for = keeping.seconds(name, keep_for)  # in seconds
        keeping.reserved(name, self.columns)
        self._define(
            {"name": name, "key": key, "member": member, "keep_for": keep_for},
            key=column_facts(self.key.columns),
            member=column_facts(self.member.columns),
            keep_for=self.keep_for,
        )

    def add(self, key: K, *members: M) -> Operation[int]:
        """Add members, or renew the time of those that exist; return how many of them were new."""
        return super().add(key, *members)

    def add_all(self, pairs: Iterable[tuple[K, M]]) -> Operation[list[bool]]:
        """Add or renew many members, each with its key, all or none; return for each whether it was new."""
        return super().add_all(pairs)

    def size(self, key: K) -> Operation[int]:
        """Read how many members the key has, by counting them."""
        return super().size(key)

    def clear(self, key: Any) -> Operation[int]:
        """Remove all members of the key; return how many it had."""
        return super().clear(key)

    def forget(self, key: Any) -> Operation[int]:
        """Remove all members of the key, as `clear` does."""
        return super().forget(key)

    def keys(self, after: K | None = None, n: int = 100) -> Operation[list[K]]:
        """Read the first `n` keys after `after` that have a member, in key order."""
        return super().keys(after, n)

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> ExpiringSet[Any, Any]:
        """Make the declaration from the facts of a definition."""
        return ExpiringSet(
            name,
            key=key_from(name, "key", facts["key"]),
            member=key_from(name, "member", facts["member"]),
            keep_for=facts["keep_for"],
        )
