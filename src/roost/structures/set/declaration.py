"""Set: the distinct members of each key; with `keep` the last that were added, with `keep_for` the recent ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roost.errors import Invalid
from roost.structures.operation import Operation, few
from roost.structures.plan import SEQUENCE
from roost.structures.rows import keep_limit
from roost.structures.rules import UNTIL, seconds
from roost.structures.structure import Group, Key, Structure, column_facts
from roost.types.column_types import ColumnType, shown

if TYPE_CHECKING:
    import typing_extensions

    Member = typing_extensions.TypeVar("Member", default=str)
else:
    Member = TypeVar("Member")


class Set(Structure[Key], Generic[Key, Member]):
    """A set of members per key.

    name: lower-case identifier, at most 40 characters.
    key, member: their types, as for `roost.Counter`; both are compared byte for byte.
    keep: members per key, at least 1: beyond it, the one that was added longest ago goes.
    keep_for: a timedelta of whole seconds, or their number: members expire so long after they were added. Expired ones
        are neither returned nor counted; later writes delete their rows, a bounded number with each write. The clock is
        the database server's, on SQLite the store's; if it jumps back, expired members do not reappear.

    With either, adding a member that is there makes it the newest, and renews its time.

    >>> import roost
    >>> likes = roost.Set("likes", key=int, member=str)
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(likes)
    ...     store.run_all(likes.add(7, "ada", "bob"), likes.add(7, "bob"), likes.remove(7, "ada"))
    ...     store.run_all(likes.size(7), likes.contains(7, "bob"), likes.members(7))
    (2, 0, 1)
    (1, True, {'bob'})

    >>> from datetime import timedelta
    >>> online = roost.Set("online", member=int, keep=2, keep_for=timedelta(minutes=5))
    >>> with roost.Store("sqlite://") as store:
    ...     store.create(online)
    ...     store.run_all(online.add("chat", 7, 8), online.add("chat", 7, 9), online.members("chat"))
    (2, 1, {9, 7})
    """

    kind = "set"

    def __init__(
        self,
        name: str,
        *,
        key: type[Key] | ColumnType[Key] = str,  # type: ignore[assignment]
        member: type[Member] | ColumnType[Member] = str,  # type: ignore[assignment]
        keep: int | None = None,
        keep_for: timedelta | float | None = None,
    ) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        self.member: Group[Member]
        self.member = self.second = Group.declared(name, "member", member)
        names = {each.lower() for each in self.key.names} & {each.lower() for each in self.member.names}
        if names:
            raise Invalid(f"{name}: key and member both have a field {names.pop()!r}")
        self.keep = None if keep is None else keep_limit(name, keep)
        self.keep_for = None if keep_for is None else seconds(name, keep_for)
        facts: dict[str, Any] = {"key": column_facts(self.key.columns), "member": column_facts(self.member.columns)}
        options = {"keep": self.keep, "keep_for": self.keep_for}
        facts |= {option: value for option, value in options.items() if value is not None}
        self.options = tuple([option for option in options if option in facts])
        own = [*([SEQUENCE] if self.keep else []), *([UNTIL] if self.keep_for else [])]
        self._reserve(self.columns, [each.name for each in own])
        self._define({"name": name, "key": key, "member": member, "keep": keep, "keep_for": keep_for}, **facts)

    def add(self, key: Key, *members: Member) -> Operation[int]:
        """Add members, in their order; return how many of them were new."""
        return Operation(self, "add", (self.key.check(key), self._members(members)))

    def add_all(self, pairs: Iterable[tuple[Key, Member]]) -> Operation[list[bool]]:
        """Add many members, each with its key, all or none; return for each pair whether the member was new.

        The members are checked and stored together, which is faster than one `add` per member.

        >>> import roost
        >>> likes = roost.Set("likes", key=int)
        >>> with roost.Store("sqlite://") as store:
        ...     store.create(likes)
        ...     store.run(likes.add_all([(7, "ada"), (8, "ada"), (7, "ada")]))
        [True, True, False]
        """
        given = self._several("add_all takes several pairs of a key and a member", pairs)
        for pair in given:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise Invalid(f"{self.name}: {shown(pair)} is not a pair of a key and a member")
        keys, members = zip(*given, strict=True) if given else ((), ())
        rows = zip(self.key.check_all(keys), self.member.check_all(members), strict=True)
        return Operation(self, "add_all", tuple([key + member for key, member in rows]))

    def remove(self, key: Key, *members: Member) -> Operation[int]:
        """Remove members; return how many of them the set held."""
        return Operation(self, "remove", (self.key.check(key), self._members(members)))

    def members(self, key: Key) -> Operation[set[Member]]:
        """Read all members; an empty set for a key without members."""
        return Operation(self, "members", (self.key.check(key),))

    def contains(self, key: Key, member: Member) -> Operation[bool]:
        """Read whether a member is in the set."""
        return Operation(self, "contains", (self.key.check(key), self.member.check(member)))

    def size(self, key: Key) -> Operation[int]:
        """Read how many members the key has: a single row, whatever the number; with `keep_for` they are counted."""
        return Operation(self, "size", (self.key.check(key),))

    def _record(self, values: Sequence[Any]) -> Any:
        width = len(self.key.columns)
        return self.add(self.key.value(values[:width]), self.member.value(values[width:]))

    def _members(self, members: tuple[Member, ...]) -> tuple[tuple[Any, ...], ...]:
        # Of one that is named twice the last: it is the newest.
        return tuple(reversed(dict.fromkeys([self.member.check(member) for member in reversed(members)])))

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        key, member = self.key.value, self.member.value
        match verb:
            case "add" | "remove":
                return [repr(key(args[0])), *(repr(member(each)) for each in args[1])]
            case "add_all":
                width = len(self.key.columns)
                return [f"[{few(repr((key(row[:width]), member(row[width:]))) for row in args)}]"]
        return super()._arguments(verb, args)
