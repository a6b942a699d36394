"""An operation: an immutable value that represents one request to one structure.

Nothing happens until a store runs it. Its values were checked and copied when it was made, so it can be queued,
printed, compared, hashed, pickled and repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T", covariant=True)

# The verbs that change nothing. One verb has one meaning, whatever the structure; `register` adds those of other kinds.
READS = {
    "contains",
    "count",
    "entries",
    "find",
    "get",
    "info",
    "keys",
    "latest",
    "members",
    "size",
    "top",
    "total",
    "totals",
}

# The verbs of operations that carry many rows: their arguments are the rows, as those of `push` and `add` are one.
RUNS = frozenset(["add_all", "push_all", "set_many"])

SHOWN = 3  # rows of an operation with many


def few(rows: Iterable[str]) -> str:
    """Return rows as a programmer would write them in a list, cut when it is long."""
    first = list(islice(rows, SHOWN + 1))
    return ", ".join([*first[:SHOWN], *["..."] * (len(first) > SHOWN)])


class Target:
    """What operations are asked of: a structure, or an index of a table. Holds no connection."""

    kind: ClassVar[str]
    name: str
    definition: str  # two are the same if and only if these texts are
    plans: dict[str, Any]  # by dialect; theirs, kept here to live as long as the declaration

    def is_like(self, other: Target) -> bool:
        """Whether the other answers the same in every way."""
        raise NotImplementedError

    def describe(self, operation: Operation[Any]) -> str:
        """Return the call that made an operation, as a programmer would write it."""
        raise NotImplementedError


class Operation(Generic[T]):
    """One request to one structure, with a result of type `T`.

    Made by the methods of a structure, never by hand.

    >>> import roost
    >>> pageviews = roost.Counter("pageviews")
    >>> pageviews.add("/home", 3)
    pageviews.add('/home', 3)
    >>> pageviews.add("/home", 3) == pageviews.add("/home", 3)
    True
    """

    __slots__ = ("args", "structure", "verb")

    structure: Target
    verb: str
    args: tuple[Any, ...]

    def __init__(self, structure: Target, verb: str, args: tuple[Any, ...]) -> None:
        _set_structure(self, structure)
        _set_verb(self, verb)
        _set_args(self, args)

    @property
    def writes(self) -> bool:
        """Whether it may change something; an operation that only reads never waits for a commit."""
        return self.verb not in READS

    def __repr__(self) -> str:
        return self.structure.describe(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Operation:
            return NotImplemented
        return self.verb == other.verb and self.args == other.args and self.structure == other.structure

    def __hash__(self) -> int:
        return hash((self.structure, self.verb, self.args))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an operation cannot be changed; make another instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an operation cannot be changed; make another instead of deleting {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Operation, (self.structure, self.verb, self.args)


# The slots' own descriptors pass by __setattr__: a third of the time of object.__setattr__.
_set_structure: Any = Operation.__dict__["structure"].__set__
_set_verb: Any = Operation.__dict__["verb"].__set__
_set_args: Any = Operation.__dict__["args"].__set__


def first(_: Operation[Any], outcomes: Sequence[Any]) -> int:
    """Return the outcome of an operation with one row, as its result."""
    return int(outcomes[0] or 0)
