"""Chooses how similar requests of an opened index are run together."""

from __future__ import annotations

from typing import Any

from roost.dialects.dialect import Dialect
from roost.structures.index import many, many_changes
from roost.structures.index.changes import Deletes, Inserts, Updates
from roost.structures.index.declaration import Where
from roost.structures.index.lookups import Lookups
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.ranges import Ranges
from roost.structures.index.runs import Bulk, Columns, EachAlone, Shape
from roost.structures.index.sums import Sums

MOST_SHAPES = 64  # compiled shapes that are cached per opened index


def bulk_of(index: OpenedIndex, shape: Shape, dialect: Dialect) -> Bulk:
    """Return the object that runs requests of a shape."""
    try:
        found: Bulk = index.compiled[shape]
    except KeyError:
        if len(index.compiled) >= MOST_SHAPES:
            index.compiled.clear()
        found = index.compiled[shape] = _compiled(index, shape, dialect) or EachAlone()
    return found


def _compiled(index: OpenedIndex, shape: Shape, dialect: Dialect) -> Bulk | None:
    if dialect.exchanges:
        return _of_server(index, shape)
    if shape.verb == "insert":
        return Inserts.of(index, shape)
    whole = _is_whole(index, shape)
    if shape.verb == "find":
        if whole and not shape.bounded and not shape.filters:
            return Lookups(index, dialect)
        return Ranges.of(index, dialect, shape)
    if not whole or shape.bounded or shape.filters or index.table.triggers:
        return None
    if shape.verb == "delete":
        return Deletes(index)
    return Updates.of(index, shape) if shape.verb == "update" else Sums.of(index, shape, dialect)


def _is_whole(index: OpenedIndex, shape: Shape) -> bool:
    return shape.op == "=" and shape.keys == len(index.key.parts) and index.key.unique and not index.table.view


def _of_server(index: OpenedIndex, shape: Shape) -> Bulk | None:
    if shape.verb != "find" and not index.table.undoes:
        return None
    if shape.verb == "insert":
        return many_changes.Inserts.of(index, shape)
    if _is_whole(index, shape) and not shape.bounded and not shape.filters:
        if shape.verb != "find":
            return many_changes.of(index, shape)
        lookups = many.Lookups(index)
        if lookups.template is not None:
            return lookups
    return many.Finds.of(index, shape) if shape.verb == "find" else None


def args_of(index: OpenedIndex, shape: Shape, columns: Columns, place: int) -> tuple[Any, ...]:
    """Return the arguments of the operation for one of the requests."""
    row = [column[place] for column in columns]
    if shape.verb == "insert":
        return (row,)
    limit, offset = row[shape.keys : shape.keys + 2] if shape.bounded else (1, 0)
    begin = shape.keys + 2 * shape.bounded
    filters = [
        Where(index.fcolumns[which].name, op, value)  # type: ignore[arg-type]
        for (op, which), value in zip(shape.filters, row[begin:], strict=False)
    ]
    args = (shape.op, row[: shape.keys], limit, offset, None, filters)
    return args if shape.verb == "find" else (*args, row[begin + len(filters) :], False)
