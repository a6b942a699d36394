"""Finds of one shape: many in one statement, in their order.

On MariaDB, finds by a complete unique key join a list of rows to the table in the list's order, if the columns can be
compared with such a list; other finds are limited SELECTs, combined by UNION ALL. On PostgreSQL, all are arrays and a
LATERAL subquery, which is run for one element after the other. Each row has the ordinal of its request.

On SQLite, an array of keys is joined to the table; `Texts` are other finds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any

from roost.dialects import SQLITE
from roost.dialects.dialect import Answer, Gather, Row, Statement, Template, Wanted, query
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, all_stored, exceptions, read, stored
from roost.structures.index.scan import RangeTexts, filtering
from roost.structures.index.schema import TableColumn

MOST_ROWS = 10_000  # the maximum sum of the limits of finds in one statement
FEW = 2  # on SQLite: up to this number of lookups, running them one by one is faster
LOTS = (128, 16, 4)  # on SQLite: keys of several columns in one statement

LOOKUPS = """\
SELECT k.i, {shown} FROM (SELECT 0 AS i, {keys} FROM {table} WHERE 0 UNION ALL VALUES {{rows}}) k
  STRAIGHT_JOIN {table} t{hint} ON {same}{lock}"""
# `roost_k`: a name that no table has that can be opened; inside the subquery, a table of the same name would hide it.
LATERAL = """\
SELECT roost_k.i - 1, r.* FROM unnest({arrays}) WITH ORDINALITY AS roost_k ({names}, i)
  CROSS JOIN LATERAL ({find}) r"""
_HOLE = re.compile("%(?:%|(s))")  # or a percent sign of a name
_CONTROL = bytes(range(0x10))


def finds_of(index: OpenedIndex, shape: Shape) -> Finds | None:
    """Return the run of such finds; None if each takes several statements, or cannot run together with others."""
    filters = [filtering(False, op, index.fcolumns[place], "") for op, place in shape.filters]
    found = index.statements(shape.op, ("",) * shape.keys, filters)
    server = index.table.words.dialect.is_server
    made = (Finds if server else Texts)(index, shape, found[0])
    return made if len(found) == 1 and (made.template is not None or not server) else None


class Finds(Bulk):
    """Finds of one range of the index each, on a server. A result is a list of rows."""

    template: Template | None  # of many finds, if there is one

    def __init__(self, index: OpenedIndex, shape: Shape, texts: RangeTexts) -> None:
        super().__init__(index, shape)
        begin = shape.keys + 2 * shape.bounded
        self.ranged = [(place, self.keys[place]) for place in texts.places]
        self._filters = [(begin + i, index.fcolumns[place]) for i, (_, place) in enumerate(shape.filters)]
        self.template = self._template(texts.rows.sql)

    def _template(self, sql: str) -> Template | None:
        filters = [column for _, column in self._filters]
        return gathered(self.index, sql, [column for _, column in self.ranged], filters)

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Find; requests with a very large limit are run alone."""
        total = len(columns[0])
        values = [stored(column, columns[place]) for place, column in self.ranged]
        values += [_once(columns[place], column.against) for place, column in self._filters]
        alone_at = exceptions(values)
        limits: Columns = ([1] * total, [0] * total)
        if self.shape.bounded:
            limits = columns[self.shape.keys : self.shape.keys + 2]
            if max(limits[0]) > MOST_ROWS:
                alone_at.update([place for place, limit in enumerate(limits[0]) if limit > MOST_ROWS])
        rows = list(zip(*values, *limits, strict=True))

        def fetch(begin: int, end: int) -> Results:
            if sum(limits[0][begin:end]) > MOST_ROWS:
                sums = accumulate(limits[0][begin:end])
                end = begin + sum([each_ <= MOST_ROWS for each_ in sums])
            return self._fetch(rows[begin:end], end - begin == total)

        return (yield from read(self, total, alone_at, fetch, alone, budget))

    def _fetch(self, rows: Sequence[Row], only: bool) -> Results:
        assert self.template is not None
        found: list[Any] = yield Statement(self.template, rows, only=only)
        return found


class Texts(Finds):
    """Finds of one range of the index each, on SQLite. A result is a text, or a list of rows.

    If the columns allow it, many finds are one statement, in which SQLite formats the rows of each find as a text: a
    subquery for each key of an array, with `group_concat` over its rows. For 50 rows of 2 columns this takes 15 µs per
    find; with one statement per find it takes 24, and 50 if Python formats the rows. `group_concat` keeps the order of
    its subquery, whose LIMIT prevents SQLite from merging the two; tests verify this.

    Such a text contains the values of the rows, one after the other, separated by TAB. If a value is NULL, or contains
    a character below 16, the result is the list of the rows instead.
    """

    def __init__(self, index: OpenedIndex, shape: Shape, texts: RangeTexts) -> None:
        super().__init__(index, shape, texts)
        self._rows = texts.rows
        self._array = len(self.ranged) - 1  # the place of the value that comes from the array
        # The values that requests in one statement must have in common, limit and offset among them.
        values = len(self.ranged) + len(self._filters) + 2
        self._common: Callable[[Row], Row] = itemgetter(*[place for place in range(values) if place != self._array])

    def _template(self, sql: str) -> Template | None:
        # The statement that finds for many keys, and formats each result as a text: the number of rows, and their
        # values. None if there are columns other than whole numbers and texts, which only Python formats right. An
        # integer column may contain a real, which SQLite would format differently.
        index, columns = self.index, self.index.columns
        holes, array = sql.split("?"), len(self.ranged)
        if not columns or index.table.view or len(set(columns)) < len(columns):
            return None
        if len(holes) != array + len(self._filters) + 3:  # a name has a question mark
            return None
        if any([column.kind not in ("integer", "text") for column in (*columns, self.ranged[-1][1])]):
            return None
        shown = [f"coalesce({column.sql}, char(0))" if column.nullable else column.sql for column in columns]
        row, number = " || '\t' || ".join(shown), "count(*)"
        doubtful = [column for column in columns if column.kind == "integer" and column.name != index.table.automatic]
        if doubtful:
            real = " OR ".join([f"max(typeof({column.sql}) = 'real')" for column in doubtful])
            number = f"iif({real}, 'real', count(*))"
        # Without the plus, SQLite replaces the column by k.value, in ORDER BY too, and then sorts.
        asked = f"{'?'.join(holes[:array])}+k.value{'?'.join(holes[array:])}"
        many = f"SELECT {number} || '\t' || group_concat({row}, '\t') FROM ({asked})"
        return query(f"SELECT ({many}) FROM {SQLITE.array} k")

    def _fetch(self, rows: Sequence[Row], only: bool) -> Results:
        common = self._common(rows[0])
        rows = rows[: next((place for place, c in enumerate(map(self._common, rows)) if c != common), len(rows))]
        starts = [row[self._array] for row in rows]
        results: list[Any] = [None] * len(rows)
        if self.template is not None and not (type(starts[0]) is str and "\0" in "".join(starts)):
            asked = (*common, SQLITE.pack(starts))
            (found,) = yield Statement(self.template, [asked], values=len(rows))
            results = [[] if text is None else self._values(text) for (text,) in found]
        doubtful = [place for place, result in enumerate(results) if result is None]
        if doubtful:
            values = len(doubtful) * max(1, rows[0][-2] * self.index.width)
            found = yield Statement(self._rows, [rows[place] for place in doubtful], values=values)
            for place, each_ in zip(doubtful, found, strict=True):
                results[place] = each_
        return results

    def _values(self, text: str) -> str | None:
        # None if the values cannot be read from it.
        number, _, values = text.partition("\t")
        if number == "real":
            return None
        data = values.encode("utf-8", "surrogateescape")
        separators = int(number) * self.index.width - 1
        return values if len(data) - len(data.translate(None, _CONTROL)) == separators else None


class Lookups(Bulk):
    """Finds by a complete unique key. A result is a row with one more value than the index shows, or only NULLs."""

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        keys = all_stored(self.keys, columns)
        total = len(keys[0])

        def fetch(begin: int, end: int) -> Results:
            return self.fetch([column[begin:end] for column in keys], only=end - begin == total)

        return (yield from read(self, total, exceptions(keys), fetch, alone, budget))

    def fetch(self, keys: Columns, only: bool = False) -> Results:
        """Look up keys, given in the form in which their columns store them, none of them NULL.

        Raises: StatementFailed.
        """
        raise NotImplementedError


class ServerLookups(Lookups):
    """Lookups on a server.

    changes: the rows will be changed: they are locked, and the columns that identify them are read before the others.
    """

    template: Template | None

    def __init__(self, index: OpenedIndex, shape: Shape, *, changes: bool = False) -> None:
        super().__init__(index, shape)
        key, table = index.key, index.table
        self.named = len(table.identity) if changes else 0
        self._none = (None,) * (self.named + max(1, index.width) + 1)
        lock = table.words.dialect.for_update if changes else ""
        joined = table.words.dialect.family == "mariadb"
        prefix = "t." if joined else ""
        columns = [column.shown(prefix) for column in index.columns] or ["NULL"]
        shown = ", ".join([*(table.naming(prefix) if changes else []), *columns])
        if not joined:
            find = f"SELECT {shown} FROM {table.sql} WHERE {key.whole} LIMIT 1{lock}"
            self.template = gathered(index, find, self.keys)
            return
        terms = list(enumerate([column.sql for column in self.keys]))
        keys = ", ".join([f"{term} AS k{place}" for place, term in terms])
        same = " AND ".join([f"t.{term} = k.k{place}" for place, term in terms])
        text = LOOKUPS.format(shown=shown, keys=keys, table=table.sql, hint=key.hint, same=same, lock=lock)
        listed = all([column.array for column in self.keys]) and text.count("{rows}") == 1  # and no name contains it
        self.template = Template(text, table.words.dialect.lists, Answer.ORDINAL) if listed else None

    def fetch(self, keys: Columns, only: bool = False) -> Results:
        assert self.template is not None
        found = yield Statement(self.template, list(zip(*keys, strict=True)), only=only)
        return [(*rows[0], True) if rows else self._none for rows in found]

    def present(self, keys: Sequence[Row]) -> Generator[Wanted, Any, dict[Row, Row]]:
        """Return the rows of those keys that exist; they are locked in the order of the keys."""
        asked = sorted(set(keys))
        found = (yield from self.fetch(list(zip(*asked, strict=True)))) if asked else []
        return {key: row for key, row in zip(asked, found, strict=True) if row[-1] is not None}


class FileLookups(Lookups):
    """Lookups on SQLite: the additional value of a row is a column of the key."""

    def __init__(self, index: OpenedIndex, shape: Shape) -> None:
        super().__init__(index, shape)
        self._none = (None,) * (index.width + 1)
        shown = ", ".join([f"t.{column.sql}" for column in (*index.columns, self.keys[0])])
        source = f"{index.table.sql} t{index.key.hint}"
        terms = [f"t.{part.term}" for part in index.key.parts]
        self._one = query(f"SELECT {shown} FROM {source} WHERE {' AND '.join([f'{term} = ?' for term in terms])}")
        self._many, self._lots = None, {}
        if len(terms) == 1 and self.keys[0].kind in ("integer", "text"):
            self._many = query(f"SELECT {shown} FROM {SQLITE.array} k LEFT JOIN {source} ON {terms[0]} = k.value")
        elif len(terms) > 1:
            keys = ", ".join([f"k{place}" for place in range(len(terms))])
            on = " AND ".join([f"{term} = k.k{place}" for place, term in enumerate(terms)])
            holes = f"({', '.join(['?'] * len(terms))})"
            for size in LOTS:
                listed = f"WITH k ({keys}) AS (VALUES {', '.join([holes] * size)})"
                self._lots[size] = query(f"{listed} SELECT {shown} FROM k LEFT JOIN {source} ON {on}")

    def fetch(self, keys: Columns, only: bool = False) -> Results:
        total = len(keys[0])
        values = total * len(self._none)
        # An array's texts end at their first NUL.
        if total > FEW and self._many is not None and not (self.keys[0].kind == "text" and "\0" in "".join(keys[0])):
            (rows,) = yield Statement(self._many, [(SQLITE.pack(keys[0]),)], values=values)
            return rows  # type: ignore[no-any-return]
        # Keys of several columns, in lots of a few fixed sizes, so that there are few texts, and the rest one by one.
        left, found = list(zip(*keys, strict=True)), list[Any]()
        for size, template in self._lots.items():
            lots = [tuple(chain.from_iterable(left[at : at + size])) for at in range(0, len(left) - size + 1, size)]
            if lots:
                found += chain.from_iterable((yield Statement(template, lots, values=values)))
                left = left[len(lots) * size :]
        if left:
            for rows in (yield Statement(self._one, left, values=values)):
                found.append(rows[0] if rows else self._none)
        return found


def gathered(
    index: OpenedIndex, sql: str, keys: Sequence[TableColumn], filters: Sequence[TableColumn] = ()
) -> Template | None:
    """Return a server's statement of many finds; its rows are the values of keys and of filters, limits and offsets.

    None if the values of a column cannot be read from a list, or if a name would be taken for a placeholder.
    """
    if index.table.words.dialect.family == "mariadb":
        if "{i}" in sql:  # in a name
            return None
        return Template(f"({sql.replace('SELECT ', 'SELECT {i}, ', 1)})", Gather.UNION, Answer.ORDINAL)
    kinds = [column.array for column in keys]
    kinds += [column.filtered.removeprefix("%s::") or column.array for column in filters]
    if not all(kinds):
        return None
    # The placeholders are in the order of the values: keys, filters, limit, offset.
    holes = [column.hole for column in keys] + [column.filtered or column.hole for column in filters]
    find, end, places = "", 0, [found.start() for found in _HOLE.finditer(sql) if found[1]]
    kinds += ["int8"] * (len(places) - len(kinds))
    holes += ["%s"] * (len(places) - len(holes))
    names = [f"k{place}" for place in range(len(kinds))]
    for hole, name, place in zip(holes, names, places, strict=True):
        find += f"{sql[end:place]}roost_k.{name}"
        end = place + len(hole)
    arrays = ", ".join([f"%s::{kind}[]" for kind in kinds])
    text = LATERAL.format(arrays=arrays, names=", ".join(names), find=find + sql[end:])
    return Template(text, Gather.ARRAYS, Answer.ORDINAL)


def _once(values: Sequence[Any], make: Callable[[Any], Any]) -> list[Any]:
    # Usually all requests have the same value.
    first = values[0]
    return [make(first)] * len(values) if values.count(first) == len(values) else list(map(make, values))
