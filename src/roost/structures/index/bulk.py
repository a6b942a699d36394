"""From operations to runs: the shape of a request, what runs requests of a shape, and a request's arguments again."""

from __future__ import annotations

from typing import Any

from roost.structures.index.changes import changes_of
from roost.structures.index.declaration import Where, While
from roost.structures.index.finds import FileLookups, ServerLookups, finds_of
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Bulk, Columns, Shape
from roost.structures.operation import Operation

MOST_SHAPES = 64  # compiled shapes that are cached per opened index


def bulk_of(index: OpenedIndex, shape: Shape) -> Bulk:
    """Return the object that runs requests of a shape."""
    try:
        found: Bulk = index.compiled[shape]
    except KeyError:
        if len(index.compiled) >= MOST_SHAPES:
            index.compiled.clear()
        found = index.compiled[shape] = _compiled(index, shape) or Bulk(index, shape)
    return found


def _compiled(index: OpenedIndex, shape: Shape) -> Bulk | None:
    key, table = index.key, index.table
    lookup = shape.op == "=" and shape.keys == len(key.parts) and key.unique and not table.view
    lookup = lookup and not shape.bounded and not shape.filters
    if shape.verb != "find":
        return changes_of(index, shape) if table.undoes and (lookup or shape.verb == "insert") else None
    if lookup and not table.words.dialect.is_server:
        return FileLookups(index, shape)
    if lookup and (lookups := ServerLookups(index, shape)).template is not None:
        return lookups
    return finds_of(index, shape)


def shape_of(operation: Operation[Any], *, changes: bool) -> Shape | None:
    """Return the shape of an operation; None for one that runs alone.

    changes: whether inserts, and modifications of one row, run together, too.
    """
    verb, args = operation.verb, operation.args
    if verb == "insert":
        return Shape(verb, to=len(args[0])) if changes else None
    op, values, limit, offset, in_, filters, *more = args
    if in_ is not None or any([isinstance(each, While) for each in filters]):
        return None
    bounded = (limit, offset) != (1, 0)
    if verb == "find":
        index: Any = operation.structure
        columns = [(each.op, index.filters.index(each.column)) for each in filters]
        return Shape(verb, op, len(values), bounded, tuple(columns))
    to, returns = more
    return None if not changes or returns or filters or bounded else Shape(verb, op, len(values), to=len(to))


def values_of(shape: Shape, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an operation's values, in the order of its shape's columns."""
    if shape.verb == "insert":
        return args[0]  # type: ignore[no-any-return]
    if shape.verb != "find":
        return (*args[1], *args[6])
    return (*args[1], *(args[2:4] if shape.bounded else ()), *[each.value for each in args[5]])


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
