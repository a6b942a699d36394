"""Which run a request belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.server.runs.inserts import Inserts
from roost.server.runs.lookups import Lookups
from roost.server.runs.ranges import Ranges
from roost.server.runs.sums import Sums
from roost.server.runs.updates import Deletes, Updates
from roost.structures.index.declaration import COMPARISONS, OPS

if TYPE_CHECKING:
    from roost.server.runs.run import Run
    from roost.server.tables import Handle

MOST_SHAPES = 64  # that are kept for one opened index
ONE_ROW = ["1", "0"]  # limit and offset


def run_for(handle: Handle, tokens: list[str]) -> Run | None:
    """Return the run that a request belongs to; None where it is to go the plain way. No token is escaped."""
    shape = _shape(handle, tokens)
    if shape is None:
        return None
    try:
        return handle.runs[shape]
    except KeyError:
        if len(handle.runs) >= MOST_SHAPES:
            handle.runs.clear()
        run = handle.runs[shape] = _compiled(handle, shape, tokens)
        return run


def _shape(handle: Handle, tokens: list[str]) -> tuple[str | int, ...] | None:
    # What has to be equal: the operation, how many tokens, limit and offset where they are 1 and 0, and what follows
    # them but for the values.
    length = len(tokens)
    if length < 4:
        return None
    op, width = tokens[1], tokens[2]
    if op == "+":
        return (length, op, width) if handle.writes else None
    end = handle.ends.get(width)
    if end is None or op not in OPS:
        return None
    if length == end:
        return (length, op, width)
    one = tokens[end : end + 2] == ONE_ROW
    if length == end + 2:
        return (length, op, width, one)
    if length < end + 3:
        return None
    verb = tokens[end + 2]
    if verb in ("U", "+", "-", "D"):
        return (length, op, width, one, verb) if one and handle.writes else None
    if (length - end - 2) % 4 == 0:
        return (length, op, width, one, *[token for place, token in enumerate(tokens[end + 2 :]) if place % 4 != 3])
    return None


def _compiled(handle: Handle, shape: tuple[str | int, ...], tokens: list[str]) -> Run | None:
    index, length, op = handle.index, len(tokens), tokens[1]
    if op == "+":
        return Inserts.of(index, length, tokens[2])
    parts = len(index.key.parts)
    whole = op == "=" and tokens[2] == str(parts) and index.key.unique and not index.table.view
    end = 3 + int(tokens[2])
    verb = tokens[end + 2] if length > end + 2 else ""
    if verb in ("U", "+", "-", "D"):
        if not whole:
            return None
        if verb == "D":
            return Deletes(index, length)
        return Updates.of(index, length) if verb == "U" else Sums.of(index, length, verb, handle.counters)
    if whole and (length == end or (length == end + 2 and shape[3] is True)):
        return Lookups(index, length, handle.counters)
    filters = [tokens[place : place + 3] for place in range(end + 2, length, 4)]
    if any(
        [
            kind != "F" or each not in COMPARISONS or not _is_place(place, index.fcolumns)
            for kind, each, place in filters
        ]
    ):
        return None
    return Ranges.of(index, tokens, handle.counters)


def _is_place(token: str, columns: tuple[object, ...]) -> bool:
    return token.isascii() and token.isdigit() and len(token) < 4 and int(token) < len(columns)
