"""The parts of a structure's SQL view, in every dialect, and the functions that a dialect implements."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Statement
from roost.structures.plan import StructurePlan

MARK = "/* a view, made by Roost */"  # marks a view of Roost's: another object of that name belongs to somebody else
MARKS = (MARK, "/* a front, made by Roost */")  # the second is the mark of version 0.1

Capabilities = frozenset[str]  # what the server offers and the account may do, as names that the dialect defines


@dataclass(frozen=True, slots=True)
class View:
    """One view: the statements that make it and those that drop it, each in their order.

    objects: for each of its objects, by name, the text that a database returns for it, to be compared.
    undo: for each statement of `make` the one that undoes it, if a transaction cannot.
    """

    make: tuple[str, ...]
    drop: tuple[str, ...]
    objects: Mapping[str, str]
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundView:
    """A view in a database: its objects, as in `View.objects`; none if there is no view.

    own: the application's own triggers on it, as the statements that recreate them.
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
    """Return no capabilities, for a dialect whose views depend on none."""
    yield from ()
    return frozenset()


@dataclass(frozen=True, slots=True)
class ViewDialect:
    """The functions that create and find the views of one engine."""

    view: Callable[[StructurePlan, Capabilities | None], View]  # None: with all capabilities
    found: Callable[[StructurePlan], Generator[Statement, Any, FoundView]]
    taken: Callable[
        [StructurePlan], Generator[Statement, Any, str]
    ]  # describes another object that has one of its names; "": none
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
