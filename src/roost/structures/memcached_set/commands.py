"""The commands that a plan sends to memcached, and the memory that the plans of a store share. Values; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from roost.structures.memcached_set.records import Header

T = TypeVar("T")

MANY_HINTS = 100_000


class Item(NamedTuple):
    """An item, as `gets` answers."""

    data: bytes
    flags: int
    cas: Any


class Get(NamedTuple):
    """Read items; the answer has those that are there, by name."""

    items: tuple[str, ...]


class Append(NamedTuple):
    """Append to an item; whether it was done. False: there is none, or no room for more."""

    item: str
    data: bytes


class Add(NamedTuple):
    """Make an item unless it is there; whether it was made."""

    item: str
    data: bytes
    expire: int


class Put(NamedTuple):
    """Set items, whatever was there."""

    items: Mapping[str, bytes]
    expire: int


class Cas(NamedTuple):
    """Set an item if it has not changed since it was read: True; False if it has changed, None if it is gone."""

    item: str
    data: bytes
    expire: int
    found: Item


class Delete(NamedTuple):
    """Delete items, there or not."""

    items: tuple[str, ...]


class Touch(NamedTuple):
    """Let items expire after this number of seconds from now."""

    items: tuple[str, ...]
    expire: int


class Left(NamedTuple):
    """Ask how many seconds an item has left: 0 for ever; None when it is gone or cannot be asked."""

    item: str


class Limit(NamedTuple):
    """Ask how many bytes an item may have, on the server that takes least."""


class List(NamedTuple):
    """Ask for the names of all items that begin so, with their dates of expiry (0: never)."""

    prefix: str


Command = Get | Append | Add | Put | Cas | Delete | Touch | Left | Limit | List
Work = Generator[Command, Any, T]


class TooLarge(Exception):
    """The item would exceed the size that its server accepts. Nothing was changed."""


@dataclass
class Memory:
    """The memory of the plans of one store; only hints, which may be wrong.

    hints: by item, the generation and the number of shards that were seen last.
    limit: bytes of an item, when asked for.
    """

    clock: Callable[[], float]
    random: Any  # as random.Random
    hints: dict[str, tuple[int, int]] = field(default_factory=dict)
    limit: int | None = None
    lost_races: int = 0

    def remember(self, item: str, header: Header) -> None:
        """Record where the rest of a set is."""
        if header.shards:
            if len(self.hints) >= MANY_HINTS:
                self.hints.clear()
            self.hints[item] = header.generation, header.shards
        elif self.hints:
            self.hints.pop(item, None)
