"""By which rule an answer of Roost may differ from the original's: each a test of the request, and of the answer.

The names of the rules are those of `differences.RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.handlersocket.requests import Open, Request, is_broken, is_number, number, value
from tests.handlersocket.tables import Column, Key, Table, asks_for_number

OPS = (b"=", b"<", b"<=", b">", b">=")
FILTER_OPS = (*OPS, b"!=")

# What Roost answered and what the original answered; whether that is the difference that the rule speaks of.
Check = Callable[[bytes, bytes], bool]


@dataclass(frozen=True)
class Rule:
    """A rule that may make an answer differ; stateful: also the rows."""

    name: str
    check: Check
    stateful: bool = False


@dataclass(frozen=True)
class Opened:
    """What an index id stands for."""

    table: Table
    key: Key
    columns: tuple[Column, ...]
    filters: tuple[Column, ...]


def exactly(*lines: bytes) -> Check:
    """Roost answers one of these."""
    return lambda roost, original: roost in lines


def anything(roost: bytes, original: bytes) -> bool:
    """Roost answers what its rows say: no syntax error."""
    return roost.startswith((b"0\t", b"1\t1\t"))


def rows(roost: bytes, original: bytes) -> bool:
    """Roost answers rows, or a count of them."""
    return roost.startswith(b"0\t")


def error(roost: bytes, original: bytes) -> bool:
    """Roost refuses what cannot be stored."""
    return roost.startswith(b"1\t1\t")


def opened(line: Open, table: Table) -> Opened | None:
    """Return what a successful `P` has opened."""
    key = table.key(line.index)
    if key is None:
        return None
    return Opened(table, key, tuple(map(table.column, line.columns)), tuple(map(table.column, line.filters)))


def of_open(line: Open) -> Iterator[Rule]:
    """Yield the rules that a `P` falls under."""
    if not is_number(line.id):
        yield Rule("3", exactly(b"2\t1\tnumber\n"))


def of_any(request: Request, *also: bytes) -> Iterator[Rule]:
    """Yield the rules that a request falls under whatever it works on.

    also: what Roost may say of wrong numbers first: where the index is not open, that it is not.
    """
    if not all(map(is_number, request.numbers)):
        yield Rule("3", exactly(b"2\t1\tnumber\n", *also), request.modifies)
    if number(request.vlen) > 32:
        yield Rule("V", lambda roost, original: original == b"2\t1\tfldnum\n", request.modifies)
    used = [*request.key, *request.members, *[each.value for each in request.filters], *request.values]
    if any(map(is_broken, used)):
        yield Rule("7", exactly(b"2\t1\tescape\n"), request.modifies)
    if request.icol is not None and number(request.icol) >= len(request.key):
        yield Rule("6", exactly(b"2\t1\tinvalueslen\n"), request.modifies)
    if any(each.op not in FILTER_OPS for each in request.filters):
        yield Rule("7", exactly(b"2\t1\tfop\n"), request.modifies)


def of_request(request: Request, index: Opened) -> Iterator[Rule]:
    """Yield the rules that a request falls under, those that speak of syntax first."""
    yield from of_any(request)
    if request.is_insert:
        yield from _of_insert(request, index)
    else:
        yield from _of_find(request, index)
        yield from _of_modification(request, index)


def _of_find(request: Request, index: Opened) -> Iterator[Rule]:
    changes = request.modifies
    parts = index.key.columns
    if number(request.limit) + number(request.offset) >= 2**32 - 1:
        yield Rule("B", rows, changes)
    place = None if request.icol is None else number(request.icol)
    if place is not None:
        if changes and len(set(request.members)) < len(request.members):
            yield Rule("8", rows, True)
        is_one = request.op == b"=" and index.key.unique and len(request.key) == len(parts)
        if not is_one or None in map(value, request.members) or None in map(value, request.key):
            yield Rule("6", anything, changes)
    for at, (column, token) in enumerate(zip(parts, request.key, strict=False)):
        for each in request.members if at == place else (token,):
            yield from _of_key(column, value(each), at != place, changes)
    for filter in request.filters:
        at = number(filter.column)
        if at < len(index.filters):
            column, wanted = index.filters[at], value(filter.value)
            if not column.kind.can_be_key:
                yield Rule("7", lambda roost, original: original == b"2\t1\tfilterblob\n", changes)
            if wanted is not None and not column.kind.same(wanted):
                yield Rule("T", rows, changes)


def _of_key(column: Column, wanted: bytes | None, alone: bool, changes: bool) -> Iterator[Rule]:
    if wanted is None:
        if not column.nullable:
            yield Rule("4", rows, changes)
    elif not column.kind.lite(wanted):
        yield Rule("4", _nothing if alone else rows, changes)
    elif not column.kind.same(wanted):
        yield Rule("T", anything, changes)


def _nothing(roost: bytes, original: bytes) -> bool:
    """Roost answers that there is no such row."""
    return roost == b"0\t1\t0\n" or (roost.startswith(b"0\t") and roost.count(b"\t") == 1)


def _of_insert(request: Request, index: Opened) -> Iterator[Rule]:
    given = dict(zip([column.name for column in index.columns], map(value, request.key), strict=False))
    for column in index.table.columns:
        is_automatic = index.table.automatic and column is index.table.columns[0]
        if is_automatic and asks_for_number(given.get(column.name)):
            yield Rule("13", lambda roost, original: roost.startswith((b"0\t1\t", b"1\t1\t")), True)
        elif column.name not in given:
            if column.default is None:
                yield Rule("1", anything if column.nullable else error, True)
        else:
            yield from _of_stored(column, given[column.name])
    nulls: set[Column] = set()
    for column, stored in zip(index.columns, map(value, request.key), strict=False):
        if stored is None:
            nulls.add(column)
        elif column in nulls:
            yield Rule("B", rows, True)  # the original leaves it NULL, as it once was
    # All of its values must be such that it can hold them.
    for column, token in zip(index.columns, request.key, strict=False):
        yield from _of_stored(column, value(token))


def _of_stored(column: Column, stored: bytes | None) -> Iterator[Rule]:
    if stored is None:
        if not column.nullable:
            yield Rule("4", exactly(b"1\t1\tnotnull\n", b"1\t1\t121\n"), True)
    elif not column.kind.lite(stored):
        yield Rule("4", error, True)
    elif not column.kind.same(stored):
        yield Rule("T", anything, True)


def _of_modification(request: Request, index: Opened) -> Iterator[Rule]:
    kind = request.mop[:1]
    if kind not in (b"U", b"+", b"-", b"D") or not kind:
        return
    several = max(number(request.limit), 1) > 1
    if several and kind != b"D":
        # The original meets a row again that it has put further on; equals lie in the order of the primary key.
        moves = any(column in (*index.key.columns, *index.table.keys[0].columns) for column in index.columns)
        if moves:
            yield Rule("8", anything, True)
        yield Rule("8", lambda roost, original: roost.startswith(b"1\t1\t") and original.startswith(b"1\t1\t"), True)
    if kind == b"U":
        if len(request.values) < len(index.columns):
            yield Rule("2", anything, True)
        for column, token in zip(index.columns, request.values, strict=False):
            yield from _of_stored(column, value(token))
    elif kind in (b"+", b"-"):
        operands = [*map(value, request.values), *[b""] * len(index.columns)]
        for column, operand in zip(index.columns, operands, strict=False):
            if operand is None:
                continue
            if column.kind.name not in ("int", "bigint"):
                yield Rule("5", anything, True)
            elif not column.kind.same(operand):
                yield Rule("5", error, True)
                yield Rule("T", anything, True)
            elif column.kind.name == "bigint":
                yield Rule("5", error, True)
            elif abs(int(operand)) > 2**20:
                yield Rule("T", anything, True)
