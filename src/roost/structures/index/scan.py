"""Where a find begins and continues: an index's order as ranges, and each range as one statement.

A find with `>` on a key of several columns consists of several ranges: first the rows with the same leading values and
a greater last value, then those with a greater value one column earlier, and so on. Each range is one search in the
index, in its order, so nothing is sorted or scanned. NULL sorts first, in a descending column last.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from roost.dialects.dialect import Row, Statement, Template, Wanted, query
from roost.structures.index.schema import Key, Part, Table, TableColumn
from roost.structures.index.values import UNHELD

Rows = list[tuple[Any, ...]]
Finding = Generator[Wanted, Any, Rows]


SKIP, STOP = 1, 2  # the filters' verdict on a row that does not match
MOST_SHAPES = 256  # shapes whose texts are cached per opened index


class Filtering(NamedTuple):
    """One filter: rows that do not match are skipped (`F`), or end the scan (`W`)."""

    ends: bool
    op: str
    column: str  # quoted
    value: Any  # as the column stores it, or UNHELD
    hole: str = "?"  # the value's placeholder


def filtering(ends: bool, op: str, column: TableColumn, value: Any) -> Filtering:
    """Return a filter of a column."""
    return Filtering(ends, op, column.sql, value, column.filtered or column.hole)


class Scan(NamedTuple):
    """A search in a key."""

    op: str
    values: tuple[Any, ...]  # as the columns store them, or UNHELD
    limit: int = 1
    offset: int = 0
    place: int | None = None  # IN: the place of the value that is replaced by each of `among`
    among: tuple[Any, ...] = ()
    filters: tuple[Filtering, ...] = ()


class Range(NamedTuple):
    """A part of an index: the condition of its rows, and which of the values are bound."""

    where: str
    places: tuple[int, ...]
    equal: int  # the number of first columns that have the same value in all rows


def ranges(parts: tuple[Part, ...], op: str, nulls: tuple[bool, ...]) -> tuple[Range, ...]:
    """Return the ranges of an index that a find reads, in their order.

    nulls: for each of the values, whether it is NULL.
    """
    last = len(nulls) - 1
    if op == "=":
        return (_range(parts, nulls, last + 1, "", False),)
    forward = op[0] == ">"
    found: list[Range] = []
    for place in range(last, -1, -1):
        also_equal = place == last and op.endswith("=")
        for condition, bound in _beyond(parts[place], nulls[place], forward, also_equal):
            found.append(_range(parts, nulls, place, condition, bound))
    return tuple(found)


def _range(parts: tuple[Part, ...], nulls: tuple[bool, ...], equal: int, condition: str, bound: bool) -> Range:
    # The first `equal` columns have the given values; the next column meets the condition, which may contain a value.
    some = list(zip(parts[:equal], nulls, strict=False))
    terms = [f"{part.column.sql} IS NULL" if null else f"{part.term} = {part.column.hole}" for part, null in some]
    places = [place for place, (_, null) in enumerate(some) if not null]
    if condition:
        terms.append(condition)
        if bound:
            places.append(equal)
    one_value = equal + condition.endswith("IS NULL")
    return Range(" AND ".join(terms), tuple(places), one_value)


def _beyond(part: Part, null: bool, forward: bool, also_equal: bool) -> list[tuple[str, bool]]:
    # Returns the conditions for what follows a value in the order of the index, or precedes it, in that order; "" means
    # everything. NULL is compared without a collation; with one, SQLite would scan for it.
    column, equal = part.column, "=" if also_equal else ""
    nulls_lead = forward is part.nulls_first
    if not null:
        sign = ">" if forward is not part.descending else "<"
        condition = f"{part.term} {sign}{equal} {column.ranged or column.hole}"
        found = [(f"({condition}) IS TRUE" if part.unranged else condition, True)]
        return found if nulls_lead or not column.nullable else [*found, (f"{column.sql} IS NULL", False)]
    if nulls_lead:
        return [("" if also_equal else f"{column.sql} IS NOT NULL", False)]
    return [(f"{column.sql} IS NULL", False)] if also_equal and column.nullable else []


def ordering(table: Table, key: Key, forward: bool, equal: int) -> str:
    """Return the index's order, or its reverse, for ORDER BY; "" if nothing is left to be ordered.

    equal: the number of first columns that have the same value in all rows.

    A column that is shown as text keeps its name in PostgreSQL's result: a bare name would order by the text.

    Rows with equal keys are in the order of the columns that identify them. In ascending order databases return them so
    anyway; in descending order the columns are named, since SQLite would otherwise return them in ascending order if
    all conditions on the key are equalities (IS NULL).
    """
    order = []
    prefix = f"{table.words.quoted(table.name)}." if table.words.shown_first else ""
    for part in key.parts[0 if table.words.orders_equals else equal :]:
        nulls = f" NULLS {'FIRST' if part.nulls_first is forward else 'LAST'}" if table.words.says_nulls else ""
        order.append(f"{prefix}{part.term}{'' if part.descending is not forward else ' DESC'}{nulls}")
    # After a unique key, MariaDB would sort by these columns; without them it returns rows in descending order, too,
    # except those with NULLs.
    if not forward and key.whole_index and (table.words.orders_equals or not key.unique):
        order += [f"{term}{'' if descending else ' DESC'}" for term, descending in table.behind(key)]
    return ", ".join(order)


class RangeTexts(NamedTuple):
    """One range as statements."""

    rows: Template  # parameters: the values, those of the filters, limit and offset
    counted: Template  # the number of rows; parameters: the values and those of the filters
    places: tuple[int, ...]  # which of the values are bound


class Finder:
    """Reads certain columns through an index, and caches the texts of its statements.

    shown: the columns, as in a SELECT; width: their number.
    locks: whether the rows will be changed.
    """

    def __init__(self, table: Table, key: Key, shown: str, width: int, *, locks: bool = False) -> None:
        self._table, self._key = table, key
        self._shown, self._width = shown, width
        self._lock = table.words.dialect.for_update if locks else ""
        self._texts: dict[tuple[Any, ...], tuple[RangeTexts, ...]] = {}

    def find(self, scan: Scan) -> Finding:
        op, filters = scan.op, scan.filters
        flag = any([each.ends for each in filters])
        judged = tuple([each.value for each in filters if each.value is not None and each.value is not UNHELD])
        rows: Rows = []
        left, skip = scan.limit, scan.offset
        for values in _lists(scan):
            if UNHELD in values:
                continue
            ranges_ = self.texts(op, values, filters)
            only = scan.place is None and len(ranges_) == 1
            for texts in ranges_:
                given = tuple([values[place] for place in texts.places])
                bounds = (left + skip, 0) if flag else (left, skip)
                row = (*(judged if flag else ()), *given, *judged, *bounds)
                (found,) = yield Statement(texts.rows, [row], only=only and not self._lock)
                if flag:
                    stop = next((place for place, row in enumerate(found) if row[-1] == STOP), len(found))
                    passed = [row[: self._width] for row in found[:stop]]
                    rows += passed[skip:]
                    left -= len(passed[skip:])
                    skip = max(0, skip - len(passed))
                    if stop < len(found):
                        return rows
                else:
                    rows += found
                    left -= len(found)
                    if found:
                        skip = 0
                    elif skip and not only:
                        (((there,),),) = yield Statement(texts.counted, [(*given, *judged)])
                        skip -= min(skip, there)
                if left <= 0:
                    return rows
        return rows

    def texts(self, op: str, values: Row, filters: Sequence[Filtering]) -> tuple[RangeTexts, ...]:
        nulls = tuple([value is None for value in values])
        shape = (op, nulls, *[(f.ends, f.op, f.column, f.hole, _sort(f.value)) for f in filters])
        found = self._texts.get(shape)
        if found is None:
            if len(self._texts) >= MOST_SHAPES:
                self._texts.clear()
            parts = ranges(self._key.parts, op, nulls)
            found = self._texts[shape] = tuple([self._compile(each, op, filters) for each in parts])
        return found

    def _compile(self, part: Range, op: str, filters: Sequence[Filtering]) -> RangeTexts:
        passed, flag = _verdict(filters)
        where = " AND ".join([term for term in (part.where, passed) if term])
        number = self._table.words.dialect.placeholder
        rest = f" FROM {self._table.sql}{self._key.hint}" + (f" WHERE {where}" if where else "")
        order = ordering(self._table, self._key, op[0] != "<", part.equal)
        end = f"{order and ' ORDER BY ' + order} LIMIT {number} OFFSET {number}{self._lock}"
        rows = query(f"SELECT {self._shown}{flag and ', ' + flag}{rest}{end}")
        return RangeTexts(rows, query(f"SELECT count(*){rest}"), part.places)


def _lists(scan: Scan) -> Sequence[Row]:
    # The lists of values to search for, one after the other.
    if scan.place is None:
        return [scan.values]
    before, after = scan.values[: scan.place], scan.values[scan.place + 1 :]
    return [(*before, value, *after) for value in scan.among]


def _sort(value: Any) -> int:
    # The property of a value on which the text of a condition depends.
    return 0 if value is None else 1 if value is UNHELD else 2


def _passes(filtering: Filtering) -> str:
    # NULL equals NULL and is less than everything. A value that the column cannot hold differs from all values, and is
    # neither less nor greater than any.
    column, op, value = filtering.column, filtering.op, filtering.value
    if value is UNHELD:
        return "TRUE" if op == "!=" else "FALSE"
    if value is None:
        return {
            "=": f"{column} IS NULL",
            "!=": f"{column} IS NOT NULL",
            "<": "FALSE",
            "<=": f"{column} IS NULL",
            ">": f"{column} IS NOT NULL",
            ">=": "TRUE",
        }[op]
    if op == "!=":
        return f"({column} = {filtering.hole}) IS NOT TRUE"
    less = f" OR {column} IS NULL" if op[0] == "<" else ""
    return f"(({column} {op} {filtering.hole}) IS TRUE{less})"


def _verdict(filters: Sequence[Filtering]) -> tuple[str, str]:
    # Returns the condition that a row is not skipped, and the column that says whether it ends the scan ("" if none
    # can).
    conditions = [_passes(each) for each in filters]
    if not any([each.ends for each in filters]):
        return " AND ".join(conditions), ""
    verdicts = [STOP if each.ends else SKIP for each in filters]
    cases = [f"WHEN NOT {passes} THEN {then}" for passes, then in zip(conditions, verdicts, strict=True)]
    case = f"CASE {' '.join(cases)} END"
    return f"coalesce({case}, 0) <> {SKIP}", case
