"""The common part of plans whose keys have one row each, which expires: how it is read, locked and written.

A plain read decides first. If it refuses an operation, nothing is locked or written: no concurrent change of the row
could make the refusal wrong. Otherwise the row is locked, read again under the lock, and decided by the time then.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from roost.dialects.dialect import Answer, Control, Dialect, Gather, Row, Statement, Template, Together, Wanted
from roost.errors import StatementFailed
from roost.structures.clock import Clock
from roost.structures.plan import Careful, Context, StructurePlan, each, locking, seizing
from roost.structures.structure import Structure
from roost.structures.sweep import Sweep
from roost.types.columns import Column

SELECT = {
    "sqlite": Template("SELECT {now}{values} FROM {rows} r WHERE {r_equal}", answer=Answer.ORDINAL),
    "mariadb": Template(
        """\
SELECT q.`#`, {now}{values} FROM (SELECT 0 AS `#`, {key} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r FORCE INDEX (PRIMARY) ON {same}""",
        Gather.LIST,
        Answer.ORDINAL,
    ),
    "mysql": Template("(SELECT {{i}}, {now}{values} FROM {rows} r WHERE {r_equal})", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, {now}e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT {values} FROM {rows} r WHERE {same} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# Creates or locks the row, and changes nothing.
LOCK = {
    "mariadb": Template(
        "INSERT INTO {rows} ({columns}) VALUES {{rows}} ON DUPLICATE KEY UPDATE {ends} = {ends}", Gather.VALUES
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({columns}) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}) DO UPDATE SET {ends} = 0 WHERE false""",
        Gather.ARRAYS,
    ),
}

PUT = {
    "sqlite": Template("INSERT OR REPLACE INTO {rows} ({columns}) VALUES ({holes})"),
    "mariadb": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE {from_values}""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE {from_new}""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({columns}) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}) DO UPDATE SET {from_excluded}""",
        Gather.ARRAYS,
    ),
}

# Changes rows that have not changed since a plain read, and creates missing ones: half the work of locking them first.
CHANGE = {
    "mariadb": Template(
        """UPDATE (SELECT {key}, {old}, {names} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r FORCE INDEX (PRIMARY) ON {same} AND {unchanged} SET {changes}""",
        Gather.VALUES,
    ),
}
INSERT = {"mariadb": Template("INSERT INTO {rows} ({columns}) VALUES {{rows}}", Gather.VALUES)}

CONTENDED = 100  # the number of runs that lock first, after a run in which a row had changed

OPTIONS = {"postgresql": " WITH (fillfactor = 80)"}  # room for HOT updates of columns other than the moment


class EndingPlan(StructurePlan):
    """A structure whose keys have one row each, which expires at a moment.

    values: the columns besides the key; the last one is the moment.
    nothing: the values of a row that was only created to be locked.
    row: the columns that identify a row, if these are more than the structure's key.
    """

    def __init__(
        self,
        structure: Structure,
        dialect: Dialect,
        values: Sequence[Column],
        nothing: Row,
        row: Sequence[Column] = (),
    ) -> None:
        super().__init__(structure, dialect)
        key, rows = tuple(row) or structure.key.columns, self.rows_table
        self._row_width = len(key)
        columns = [*key, *values]
        names = [dialect.name_of(column) for column in values]
        self.clock = Clock(self)
        self.sweep = Sweep(self, names[-1], key)
        self.indexes = (self.sweep.name,)
        self._nothing = nothing
        self.words = {
            "rows": rows,
            "key": dialect.names(key),
            "key_holes": dialect.holes(len(key)),
            "key_arrays": dialect.arrays(key),
            "columns": dialect.names(columns),
            "values": dialect.names(values, "r."),
            "ends": names[-1],
            "holes": dialect.holes(len(columns)),
            "arrays": dialect.arrays(columns),
            "equal": dialect.equal(key),
            "r_equal": dialect.equal(key, "r."),
            "same": dialect.same(key, "q.", "r."),
            "names": ", ".join(names),
            "old": ", ".join(f"{name} AS `old {place}`" for place, name in enumerate(names)),
            "unchanged": " AND ".join(f"r.{name} = q.`old {place}`" for place, name in enumerate(names)),
            "changes": ", ".join(f"r.{name} = q.{name}" for name in names),
            "from_values": ", ".join(f"{name} = VALUES({name})" for name in names),
            "from_new": ", ".join(f"{name} = new.{name}" for name in names),
            "from_excluded": ", ".join(f"{name} = excluded.{name}" for name in names),
        }
        self.tables = (
            self.create(rows, columns, self.words["key"]) + OPTIONS.get(dialect.name, ""),
            self.sweep.index,
            *self.clock.tables,
        )
        self.seize = seizing(dialect, rows, structure.key.columns)
        select, now = dialect.choose(SELECT), f"{self.clock.now}, "
        self.select = select.format({**self.words, "now": now})
        self._select_locked = locking(select.format({**self.words, "now": ""}), dialect)
        self.put = dialect.choose(PUT).format(self.words)
        self._change = CHANGE[dialect.name].format(self.words) if dialect.name in CHANGE else None
        self._insert = INSERT[dialect.name].format(self.words) if dialect.name in INSERT else None
        if dialect.row_locks:
            self._lock = dialect.choose(LOCK).format(self.words)
            self.take = self._take_row = each(f"SELECT 1 FROM {rows} WHERE {self.words['equal']}{dialect.for_update}")
        self.first_keys, self.later_keys = self.clock.keys(names[-1], "DISTINCT " if row else "")
        # The current moment and the row of one key, with NULLs if there is none.
        self.one = self.question_sql(now + self.words["values"], rows, self.words["r_equal"])

    def moment(self, context: Context) -> Row:
        """Return the parameters of the current moment."""
        return self.clock.row(context)

    def read(self, keys: Sequence[Row], context: Context) -> Generator[Wanted, Any, list[Row | None]]:
        """Return the current moment with the row of each key, None if there is none. Locks nothing."""
        now = self.clock.row(context)
        found = yield Statement(self.select, [now + key for key in keys])
        return [tuple(rows[0]) if rows else None for rows in found]

    def mend(self, found: Sequence[Row | None], context: Context) -> Generator[Wanted, Any, None]:
        """Check the time even if nothing is written: a refused client must not wait for a time that stands still."""
        if self.clock.stands(context, max([row[0] for row in found if row is not None], default=0)):
            yield from self.clock.read(context, writes=False)

    def may_change(self, context: Context) -> bool:
        """Whether rows may be changed by `change`, without locking them before."""
        if self._change is None or context.joined or context.careful or self.clock.is_due(context):
            return False
        return self.clock.is_calm(context)

    def change(
        self, rows: Sequence[tuple[Row | None, Row]], context: Context, over: int, written: int
    ) -> Generator[Wanted, Any, None]:
        """Write rows that are still as they were read (None: missing); `Careful` if one has changed."""
        assert self._change is not None
        assert self._insert is not None
        k = self._row_width
        changed = [(*new[:k], *old, *new[k:]) for old, new in rows if old is not None]
        made = [new for old, new in rows if old is None]
        work = [Statement(self._change, changed)] if changed else []
        work += [Statement(self._insert, made)] if made else []
        try:
            done = yield from self.sweep.remove(over, written, context, work)
        except StatementFailed as error:
            if error.word != "121":
                raise
            done = [0]
        if sum(done) != len(rows):
            self.clock.contends(context, CONTENDED)
            raise Careful

    def locked(self, keys: Sequence[Row], context: Context) -> Generator[Wanted, Any, tuple[int, dict[Row, Row]]]:
        """Lock the rows of keys, in their order, creating missing ones; return the moment and the rows."""
        if self.dialect.row_locks:
            yield from self.take_seen(keys, context, self._take_row)
            lock = Statement(self._lock, [key + self._nothing for key in keys])
            _, found, time = yield Together((lock, Statement(self._select_locked, keys), self.clock.question(context)))
            yield Control.LOCKED
            moment = yield from self.clock.answered(time, context)
            return moment, {key: tuple(rows[0]) for key, rows in zip(keys, found, strict=True)}
        moment = yield from self.clock.read(context)
        found = yield from self.read(keys, context)
        return moment, {key: self._nothing if row is None else row[1:] for key, row in zip(keys, found, strict=True)}

    def write(self, rows: Sequence[Row], context: Context, over: int, written: int) -> Generator[Wanted, Any, None]:
        """Write rows, and delete some rows that had expired at a moment, for each row that was written."""
        put = [Statement(self.put, rows)] if rows else []
        yield from self.sweep.remove(over, written, context, put)

    def removing(self, keys: Sequence[Row], context: Context) -> Generator[Wanted, Any, int]:
        """Lock the existing rows of keys; return the moment."""
        if self.take is not None:
            yield Statement(self.take, sorted(set(keys)))
            yield Control.LOCKED
        return (yield from self.clock.read(context))
