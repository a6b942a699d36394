"""Finds on servers: many of the same form are one statement, whose rows have the ordinal of their request.

On MariaDB, finds by a complete unique key join a list of rows to the table in the list's order, if the columns can be
compared with such a list; other finds are limited SELECTs, combined by UNION ALL. On PostgreSQL, they are arrays and a
LATERAL subquery, which is run for one element after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from roost.dialects.dialect import Answer, Gather, Row, Statement, Template
from roost.structures.index.budget import Budget
from roost.structures.index.opened import OpenedIndex
from roost.structures.index.runs import Alone, Bulk, Columns, Results, Shape, exceptions, read, stored
from roost.structures.index.scan import Filtering, Texts, filtering
from roost.structures.index.schema import TableColumn

MOST_ROWS = 10_000  # the maximum sum of the limits of finds in one statement

LOOKUPS = """\
SELECT k.i, {shown} FROM (SELECT 0 AS i, {keys} FROM {table} WHERE 0 UNION ALL VALUES {{rows}}) k
  STRAIGHT_JOIN {table} t{hint} ON {same}{lock}"""
# `roost_k`: a name that no table has that can be opened; inside the subquery, a table of the same name would hide it.
LATERAL = """\
SELECT roost_k.i - 1, r.* FROM unnest({arrays}) WITH ORDINALITY AS roost_k ({names}, i)
  CROSS JOIN LATERAL ({find}) r"""
_HOLE = re.compile("%(?:%|(s))")  # or a percent sign of a name


class Finds(Bulk):
    """Finds of one range of the index each. A result is a list of rows."""

    def __init__(self, index: OpenedIndex, shape: Shape, texts: Texts) -> None:
        begin = shape.keys + 2 * shape.bounded
        self._bounded = shape.bounded
        self._limits = shape.keys  # the place of the limits in the columns
        self._keys = [(place, index.key.parts[place].column) for place in texts.places]
        self._filters = [(begin + i, index.fcolumns[place]) for i, (_, place) in enumerate(shape.filters)]
        self._template = template_of(index, texts.rows.sql, [column for _, column in self._keys], self._filters)

    @classmethod
    def of(cls, index: OpenedIndex, shape: Shape) -> Finds | None:
        """Return the run of such requests; None if each must be run alone."""
        filters: list[Filtering] = [filtering(False, op, index.fcolumns[place], "") for op, place in shape.filters]
        found = index.statements(shape.op, ("",) * shape.keys, filters)
        made = cls(index, shape, found[0]) if len(found) == 1 else None
        return None if made is None or made._template is None else made

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Find; requests with a very large limit are run alone."""
        total = len(columns[0])
        values = [stored(column, columns[place]) for place, column in self._keys]
        values += [list(map(column.against, columns[place])) for place, column in self._filters]
        alone_at = exceptions(values)
        limits: Columns = ([1] * total, [0] * total)
        if self._bounded:
            limits = columns[self._limits : self._limits + 2]
            alone_at.update([place for place, limit in enumerate(limits[0]) if limit > MOST_ROWS])
        rows = list(zip(*values, *limits, strict=True))
        asked = limits[0]

        def fetch(begin: int, end: int) -> Results:
            most, last = MOST_ROWS - asked[begin], begin + 1
            while last < end and asked[last] <= most:
                most -= asked[last]
                last += 1
            assert self._template is not None
            found: list[Any] = yield Statement(self._template, rows[begin:last], only=last - begin == total)
            return found

        return (yield from read(self, total, alone_at, fetch, alone, budget))


class Lookups(Bulk):
    """Finds by a complete unique key. A result is a row with one more value than the index shows, or only NULLs.

    names: read the columns that identify the rows before the others. locks: whether the rows will be changed.
    """

    def __init__(self, index: OpenedIndex, *, names: bool = False, locks: bool = False) -> None:
        key, table = index.key, index.table
        self._columns = [part.column for part in key.parts]
        self.named = len(table.identity) if names else 0
        self._none = (None,) * (self.named + max(1, index.width) + 1)
        lock = table.words.locks if locks else ""
        prefix = "t." if table.words.name == "mariadb" else ""
        shown = table.naming(prefix) if names else []
        shown += [column.shown(prefix) for column in index.columns] or ["NULL"]
        if table.words.name == "mariadb":
            self.template: Template | None = None
            if all([column.array for column in self._columns]):
                terms = list(enumerate([part.column.sql for part in key.parts]))
                text = LOOKUPS.format(
                    shown=", ".join(shown),
                    keys=", ".join([f"{term} AS k{place}" for place, term in terms]),
                    table=table.sql,
                    hint=key.hint,
                    same=" AND ".join([f"t.{term} = k.k{place}" for place, term in terms]),
                    lock=lock,
                )
                if text.count("{rows}") == 1:  # and no name contains it
                    self.template = Template(text, table.words.lists, Answer.ORDINAL)
        else:
            find = f"SELECT {', '.join(shown)} FROM {table.sql} WHERE {key.whole} LIMIT 1{lock}"
            self.template = template_of(index, find, self._columns, ())

    def run(self, columns: Columns, alone: Alone, budget: Budget) -> Results:
        """Look up all keys."""
        keys = [stored(column, values) for column, values in zip(self._columns, columns, strict=False)]
        rows = list(zip(*keys, strict=True))

        def fetch(begin: int, end: int) -> Results:
            return self.fetch(rows[begin:end], only=end - begin == len(rows))

        return (yield from read(self, len(rows), exceptions(keys), fetch, alone, budget))

    def fetch(self, keys: Sequence[Row], only: bool = False) -> Results:
        """Look up keys, given in the form in which their columns store them, none of them NULL."""
        assert self.template is not None
        found = yield Statement(self.template, keys, only=only)
        return [(*rows[0], True) if rows else self._none for rows in found]


def template_of(
    index: OpenedIndex, sql: str, keys: Sequence[TableColumn], filters: Sequence[tuple[int, TableColumn]]
) -> Template | None:
    """Return the statement of many finds, for the values of their keys, those of the filters, limits and offsets.

    None if the values of a column cannot be read from a list, or if a name would be taken for a placeholder.
    """
    if index.table.words.name == "mariadb":
        if "{i}" in sql:  # in a name
            return None
        return Template(f"({sql.replace('SELECT ', 'SELECT {i}, ', 1)})", Gather.UNION, Answer.ORDINAL)
    kinds = [column.array for column in keys]
    kinds += [column.filtered.removeprefix("%s::") or column.array for _, column in filters]
    if not all(kinds):
        return None
    # The placeholders are in the order of the values: keys, filters, limit, offset.
    holes = [column.hole for column in keys] + [column.filtered or column.hole for _, column in filters]
    find, end, places = "", 0, [found.start() for found in _HOLE.finditer(sql) if found[1]]
    kinds += ["int8"] * (len(places) - len(kinds))
    holes += ["%s"] * (len(places) - len(holes))
    names = [f"k{place}" for place in range(len(kinds))]
    for hole, name, place in zip(holes, names, places, strict=True):
        find += f"{sql[end:place]}roost_k.{name}"
        end = place + len(hole)
    find += sql[end:]
    return Template(
        LATERAL.format(arrays=", ".join([f"%s::{kind}[]" for kind in kinds]), names=", ".join(names), find=find),
        Gather.ARRAYS,
        Answer.ORDINAL,
    )
