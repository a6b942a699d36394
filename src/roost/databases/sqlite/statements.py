"""Runs a statement for several rows on SQLite: once per row, or with many rows in one text."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from roost.databases.engine import Trace
from roost.dialects.dialect import Answer, Gather, Row, Statement, Template, scatter

# Rows in one text. A row then costs half of what it costs in a statement of its own; more rows than 64 gain nothing.
# There are only two sizes, since each size is another text that a connection keeps prepared.
SIZES = (64, 8)

# The attribute of a cursor that contains a row's outcome.
_ONE_BY_ONE = {Answer.COUNTS: "rowcount", Answer.IDS: "lastrowid", Answer.DONE: "rowcount"}


def run(cursor: sqlite3.Cursor, statement: Statement, trace: Trace | None) -> Any:
    """Run a statement for each of its rows; `Statement` describes the answer."""
    template, rows = statement[:2]
    if template.many is not None and len(rows) >= SIZES[-1]:
        return _run_many(cursor, template.many, statement, trace)
    if trace is not None:
        for row in rows:
            trace(template.sql, row)
    sql = template.sql
    if template.copies > 1:
        rows = [row * template.copies for row in rows]
    if template.answer in _ONE_BY_ONE:
        one = attrgetter(_ONE_BY_ONE[template.answer])
        return [one(cursor.execute(sql, row)) for row in rows]
    if template.returns:
        if len(rows) == 1:
            return [cursor.execute(sql, rows[0]).fetchall()]
        execute = cursor.execute
        return [execute(sql, row).fetchall() for row in rows]
    if len(rows) == 1:
        return cursor.execute(sql, rows[0]).rowcount
    return cursor.executemany(sql, rows).rowcount


def _run_many(cursor: sqlite3.Cursor, many: Template, statement: Statement, trace: Trace | None) -> Any:
    template, rows = statement[:2]
    answers: list[list[Row]] = []
    changed = begin = 0
    for size in SIZES:
        sql = ""
        while len(rows) - begin >= size:
            sql = sql or text_of(many, size, len(rows[0]))
            part = rows[begin : begin + size]
            values = tuple(chain.from_iterable(part))
            if trace is not None:
                trace(sql, values)
            cursor.execute(sql, values)
            if many.returns:
                answers += scatter(Statement(many, part), cursor.fetchall())
            else:
                changed += cursor.rowcount
            begin += size
    rest: Any = answers if many.returns else changed
    if begin < len(rows):
        rest += run(cursor, Statement(template, rows[begin:]), trace)
    return rest


@lru_cache(1000)
def text_of(many: Template, size: int, width: int) -> str:
    """Return the text of a statement for `size` rows of `width` values."""
    holes = ", ".join("?" * width)
    if many.gather is Gather.LIST:
        rows = ", ".join([f"({ordinal}, {holes})" for ordinal in range(size)])
    else:
        rows = ", ".join([f"({holes})"] * size)
    return many.sql.replace("{rows}", rows)
