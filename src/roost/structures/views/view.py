"""What a SQL view of a structure is made of, in every dialect, and what a dialect does for it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Statement
from roost.structures.plan import StructurePlan

MARK = "/* a view, made by Roost */"  # what tells a view: another object of that name is somebody else's
MARKS = (MARK, "/* a front, made by Roost */")  # in version 0.1 they were called so

Capabilities = frozenset[str]  # what the server has and the user may do, in the dialect's own words


@dataclass(frozen=True, slots=True)
class View:
    """One view: the statements that make it and those that drop it, each in their order.

    objects: what a database that has it tells of each of its objects, by name; for comparing.
    undo: for each statement of `make` the one that takes it back, where a transaction does not.
    """

    make: tuple[str, ...]
    drop: tuple[str, ...]
    objects: Mapping[str, str]
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundView:
    """What a database has of a view: its objects as `View.objects` has them; none where there is no view.

    own: the application's own triggers on it, as the statements that make them again.
    said: what else was said about it, the same way: rights, a comment.
    users: the application's own objects that are made of it and could not be without it; on PostgreSQL these and
        `said` are asked for by themselves (`goes_with`).
    drop: the statements that drop what is there, where only a part of the view may be.
    """

    objects: Mapping[str, str]
    own: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


NO_VIEW = FoundView({})


def nothing_asked(_: StructurePlan) -> Generator[Statement, Any, Capabilities]:
    """Return no capabilities: for a dialect whose views depend on none."""
    yield from ()
    return frozenset()


@dataclass(frozen=True, slots=True)
class ViewDialect:
    """How one engine's views are made, and how they are found."""

    view: Callable[[StructurePlan, Capabilities | None], View]  # None: as where everything can be made
    found: Callable[[StructurePlan], Generator[Statement, Any, FoundView]]
    taken: Callable[[StructurePlan], Generator[Statement, Any, str]]  # which of its names something else has; "": none
    capabilities: Callable[[StructurePlan], Generator[Statement, Any, Capabilities]] = nothing_asked
    # The statements that make another view of one that is whole, where no transaction hides that it was dropped.
    replace: Callable[[StructurePlan, FoundView], Generator[Statement, Any, Sequence[str]]] | None = None
    # What was found with `said` and `users`, where `found` leaves them out.
    goes_with: Callable[[StructurePlan, FoundView], Generator[Statement, Any, FoundView]] | None = None


def dollar_tag(text: str) -> str:
    """Return a tag for PostgreSQL's dollar quotes: they end at the first one, also within a literal."""
    tag = "$roost$"
    while tag in text:
        tag = f"{tag[:-1]}_$"
    return tag
