"""Ring: allocate sequences under the head, write the last rows into their slots, read two runs of slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from roost.dialects.dialect import MOST_ANSWER, Answer, Control, Dialect, Exchange, Gather, Row, Statement, Template
from roost.structures.operation import Operation
from roost.structures.plan import (
    AT,
    SEQUENCE,
    SLOT,
    Context,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    composed,
    replaced,
    same,
    write,
)
from roost.structures.ring.alter import ALTERATIONS
from roost.structures.ring.check import rules
from roost.structures.ring.declaration import Ring
from roost.structures.ring.view import VIEWS
from roost.structures.ring.wire import RingWire
from roost.structures.rows import Entry

# Creates the head or takes its lock, and raises the sequence by the number of pushes: no hole, no double.
ALLOCATE = {
    "sqlite": Template(
        """\
INSERT INTO {head} ({key}, sequence) VALUES ({key_holes}, ?)
  ON CONFLICT ({key}) DO UPDATE SET sequence = sequence + excluded.sequence
  RETURNING sequence""",
        answer=Answer.ORDINAL,
    ),
    "mariadb": Template(
        """\
INSERT INTO {head} ({key}, sequence) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE sequence = sequence + VALUES(sequence)
  RETURNING {key}, sequence""",
        Gather.VALUES,
        Answer.KEY,
    ),
    "mysql": Template(
        """\
INSERT INTO {head} ({key}, sequence) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE sequence = {head}.sequence + new.sequence""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {head} AS h ({key}, sequence) SELECT * FROM unnest({key_arrays}, %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + excluded.sequence
  RETURNING {h_key}, h.sequence""",
        Gather.ARRAYS,
        Answer.KEY,
    ),
}

# What was allocated, where that statement cannot tell: nobody else has raised it since, for its lock is held.
ALLOCATED = {
    "mysql": Template(
        "(SELECT {{i}}, sequence FROM {head} WHERE {equal} FOR UPDATE)",
        Gather.UNION,
        Answer.ORDINAL,
    ),
}

WRITE = {
    "sqlite": Template("""\
INSERT INTO {rows} ({columns}) VALUES ({holes})
  ON CONFLICT ({key}, slot) DO UPDATE SET {excluded}"""),
    "mariadb": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE {values}""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE {new}""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({columns}) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}, slot) DO UPDATE SET {excluded}""",
        Gather.ARRAYS,
    ),
}

# The newest row is in slot `sequence % keep`: the slots up to it hold the newer rows, the others the older ones. Both
# are runs of the primary key, so neither is sorted; the few rows found are put in order in Python. Asked with (key, n).
LATEST = {
    "sqlite": Template(
        """\
SELECT * FROM (SELECT {r_row} FROM {head} h CROSS JOIN {rows} r ON {join} AND r.slot <= h.sequence % {keep}
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT ?)
UNION ALL
SELECT * FROM (SELECT {r_row} FROM {head} h CROSS JOIN {rows} r ON {join} AND r.slot > h.sequence % {keep}
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT ?)""",
        answer=Answer.ORDINAL,
        copies=2,
    ),
    "mariadb": Template(
        """\
(SELECT {{i}}, {r_row} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} AND r.slot <= MOD(h.sequence, {keep})
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT %s)
UNION ALL
(SELECT {{i}}, {r_row} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} AND r.slot > MOD(h.sequence, {keep})
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT %s)""",
        Gather.UNION,
        Answer.ORDINAL,
        copies=2,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.*
  FROM unnest({key_arrays}, %s::bigint[]) WITH ORDINALITY AS q ({key}, n, "#") JOIN {head} h USING ({key})
  CROSS JOIN LATERAL (
    (SELECT {r_row} FROM {rows} r WHERE {join} AND r.slot <= MOD(h.sequence, {keep}) ORDER BY r.slot DESC LIMIT q.n)
    UNION ALL
    (SELECT {r_row} FROM {rows} r WHERE {join} AND r.slot > MOD(h.sequence, {keep}) ORDER BY r.slot DESC LIMIT q.n)
  ) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# Where all rows of each key are wanted there are no runs to tell apart: no head is read. Asked with the key.
WHOLE = {
    "mariadb": Template(
        """\
SELECT q.`#`, {r_row} FROM (SELECT 0 AS `#`, {key} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r ON {q_rows}""",
        Gather.LIST,
        Answer.ORDINAL,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT {r_row} FROM {rows} r WHERE {q_rows} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# MariaDB reads the two runs slowly, a statement for each key. The newest sequences are known by the head, so a few rows
# are as many steps into the primary key: a third of the time. Finds less than there is where rows in between were
# removed. PostgreSQL gains nothing from it; on MySQL it was not tried. Asked with (key, n).
NEWEST = Template(
    """\
SELECT q.`#`, {r_row} FROM (SELECT 0 AS `#`, {key}, 0 AS n FROM {head} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {head} h ON {q_join} STRAIGHT_JOIN (SELECT 0 AS d UNION ALL VALUES {numbers}) d ON d.d < q.n
  STRAIGHT_JOIN {rows} r ON {join} AND r.slot = MOD(h.sequence - d.d, {keep}) AND r.sequence = h.sequence - d.d""",
    Gather.LIST,
    Answer.ORDINAL,
)

FEW = 50  # rows that are read in this way

# The same two runs upwards, each begun at the first slot beyond `after`. Asked with (key, after, n).
ENTRIES = {
    "sqlite": Template(
        """\
SELECT * FROM (SELECT {r_values} FROM {head} h CROSS JOIN {rows} r ON {h_equal} AND {join}
    AND r.slot > max(min(?, h.sequence), h.sequence - {keep}) - h.sequence + h.sequence % {keep} + {keep}
  ORDER BY r.slot LIMIT ?)
UNION ALL
SELECT * FROM (SELECT {r_values} FROM {head} h CROSS JOIN {rows} r ON {h_equal} AND {join}
    AND r.slot > max(min(?, h.sequence), h.sequence - {keep}) - h.sequence + h.sequence % {keep}
    AND r.slot <= h.sequence % {keep}
  ORDER BY r.slot LIMIT ?)""",
        answer=Answer.ORDINAL,
        copies=2,
    ),
    "mariadb": Template(
        """\
(SELECT {{i}}, {r_values} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} WHERE {h_equal}
    AND r.slot > GREATEST(LEAST(%s, h.sequence), h.sequence - {keep}) - h.sequence + MOD(h.sequence, {keep}) + {keep}
  ORDER BY r.slot LIMIT %s)
UNION ALL
(SELECT {{i}}, {r_values} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} WHERE {h_equal}
    AND r.slot > GREATEST(LEAST(%s, h.sequence), h.sequence - {keep}) - h.sequence + MOD(h.sequence, {keep})
    AND r.slot <= MOD(h.sequence, {keep})
  ORDER BY r.slot LIMIT %s)""",
        Gather.UNION,
        Answer.ORDINAL,
        copies=2,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.*
  FROM unnest({key_arrays}, %s::bigint[], %s::bigint[]) WITH ORDINALITY AS q ({key}, sequence, n, "#")
  JOIN {head} h USING ({key})
  CROSS JOIN LATERAL (
    (SELECT {r_values} FROM {rows} r WHERE {join}
        AND r.slot > GREATEST(LEAST(q.sequence, h.sequence), h.sequence - {keep}) - h.sequence
          + MOD(h.sequence, {keep}) + {keep}
      ORDER BY r.slot LIMIT q.n)
    UNION ALL
    (SELECT {r_values} FROM {rows} r WHERE {join}
        AND r.slot > GREATEST(LEAST(q.sequence, h.sequence), h.sequence - {keep}) - h.sequence + MOD(h.sequence, {keep})
        AND r.slot <= MOD(h.sequence, {keep})
      ORDER BY r.slot LIMIT q.n)
  ) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# One push by itself. The rows' upsert of PostgreSQL sees the newest row, whatever the snapshot of its statement.
ONE_PUSH = {
    "mariadb": """\
INSERT INTO {head} ({key}, sequence) VALUES ({key_holes}, LAST_INSERT_ID({one}))
  ON DUPLICATE KEY UPDATE sequence = LAST_INSERT_ID(sequence + 1);
SET `the sequence` = LAST_INSERT_ID();
INSERT INTO {rows} ({columns})
  VALUES ({key_holes}, MOD(`the sequence`, {keep}), `the sequence`, {other_holes})
  ON DUPLICATE KEY UPDATE {values}""",
    "postgresql": """\
h AS (INSERT INTO {head} AS h ({key}, sequence) VALUES ({key_holes}, {one})
  ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + 1 RETURNING h.sequence),
r AS (INSERT INTO {rows} ({columns}) SELECT {key_holes}, MOD(h.sequence, {keep}), h.sequence, {other_holes} FROM h
  ON CONFLICT ({key}, slot) DO UPDATE SET {excluded})""",
}
SEQUENCE_OF = {"mariadb": "`the sequence`", "postgresql": "sequence"}

# Creates the head or takes its lock, and changes nothing.
LOCK = {
    "sqlite": None,
    "mariadb": Template(
        "INSERT INTO {head} ({key}, sequence) VALUES {{rows}} ON DUPLICATE KEY UPDATE sequence = sequence",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {head} ({key}, sequence) SELECT * FROM unnest({key_arrays}, %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET sequence = 0 WHERE false""",
        Gather.ARRAYS,
    ),
}

# LOCK has made a head for a key that is only cleared: nothing was ever pushed to it.
UNMAKE = "DELETE FROM {head} WHERE {equal} AND sequence = 0"

# Takes the lock of a head that is there.
TAKE = {"sqlite": None, "mariadb": "SELECT 1 FROM {head} WHERE {equal} FOR UPDATE"}
TAKE["postgresql"] = TAKE["mariadb"]

# Room for HOT updates: all of them, and a table that is full does not grow. Without it 89 % of the heads', 95 % of the
# rows' (20,000 keys of 5 rows, pushes in batches of 100).
HEAD_OPTIONS = {"postgresql": " WITH (fillfactor = 50)"}
ROWS_OPTIONS = {"postgresql": " WITH (fillfactor = 80)"}


class RingPlan(StructurePlan):
    """A ring in one dialect's words."""

    wire = RingWire

    structure: Ring[Any, Any]
    views = VIEWS
    alterations = ALTERATIONS

    def __init__(self, structure: Ring[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.keep = structure.keep
        per = structure.rows.per
        key = structure.key.columns
        others = [column for column in structure.columns if column.name not in per]
        quoted = [dialect.name_of(column) for column in others]
        name, k = dialect.name, len(key)
        replacing = dialect, structure.rows.unknown, ["sequence", "at", *quoted]
        words = {
            "head": self.head_table,
            "rows": self.rows_table,
            "key": dialect.names(key),
            "h_key": dialect.names(key, "h."),
            "key_holes": dialect.holes(k),
            "key_arrays": dialect.arrays(key),
            "columns": ", ".join([dialect.names(key), "slot", "sequence", "at", *quoted]),
            "holes": dialect.holes(k + 3 + len(others)),
            "arrays": dialect.arrays([*key, SLOT, SEQUENCE, AT, *others]),
            "excluded": replaced(*replacing, "excluded.{}"),
            "values": replaced(*replacing, "VALUES({})"),
            "new": replaced(*replacing, "new.{}"),
            "r_values": ", ".join(["r.sequence", "r.at", *(f"r.{dialect.name_of(c)}" for c in structure.columns)]),
            "r_row": ", ".join(["r.sequence", *(f"r.{c}" for c in quoted)]),
            "join": " AND ".join(f"r.{dialect.name_of(c)} = h.{dialect.name_of(c)}" for c in key),
            "equal": dialect.equal(key),
            "h_equal": dialect.equal(key, "h."),
            "keep": str(structure.keep),
            "numbers": ", ".join(f"({d})" for d in range(1, max(2, min(structure.keep, FEW)))),
            "q_join": dialect.same(key, "h.", "q."),
            "q_rows": dialect.same(key, "r.", "q."),
            "one": self.guarded("1"),
            "other_holes": dialect.holes(1 + len(others)),
        }
        self.tables = (
            self.create(self.head_table, [*key, SEQUENCE], dialect.names(key)) + HEAD_OPTIONS.get(name, ""),
            self.create(self.rows_table, [*key, SLOT, SEQUENCE, AT, *others], f"{words['key']}, slot")
            + ROWS_OPTIONS.get(name, ""),
        )
        self.allocate = replace(dialect.choose(ALLOCATE).format(words), key=k)
        allocated = ALLOCATED.get(name)
        self.allocated = None if allocated is None else allocated.format(words)
        self.write = dialect.choose(WRITE).format(words)
        self.latest = dialect.choose(LATEST).format(words)
        self.whole = WHOLE[name].format(words) if name in WHOLE else None
        self.newest = NEWEST.format(words) if name == "mariadb" else None
        self.entries = dialect.choose(ENTRIES).format(words)
        lock, take = dialect.choose(LOCK), dialect.choose(TAKE)
        self.lock = None if lock is None else lock.format(words)
        self.take = None if take is None else Template(take.format(**words), answer=Answer.ORDINAL)
        self.unmake = write(UNMAKE.format(**words))
        self.delete = write(f"DELETE FROM {self.rows_table} WHERE {words['equal']}")
        self.drop = write(f"DELETE FROM {self.head_table} WHERE {words['equal']}")
        self.first_keys, self.later_keys = self.key_after(self.head_table)

        other_names = [column.name for column in others]
        self._take_key = structure.rows.taking(per)
        self._key_of = composed(self.key_out, self._take_key)
        self._others_of = composed(dialect.encoder(others) or same, structure.rows.taking(other_names))
        self.rows_of = structure.rows.maker(dialect.decoder(structure.columns))
        # A row's values in their order, from those of its key followed by the others.
        found = structure.rows.places([*per, *other_names])
        order = [found.index(place) for place in sorted(found)]
        self._in_order: Callable[[Row], Row] = (
            same if order == sorted(order) else lambda row: tuple([row[i] for i in order])
        )
        self._one_allocate = (
            f"INSERT INTO {self.head_table} ({words['key']}, sequence)\n"
            f"  VALUES ({words['key_holes']}, {words['one']})\n"
            f"  ON CONFLICT ({words['key']}) DO UPDATE SET sequence = sequence + 1 RETURNING sequence"
        )
        self._one_push = ONE_PUSH.get(name, "").format(**words)
        sequence = SEQUENCE_OF.get(name)
        self._pushed = f"CASE WHEN {sequence} < {MOST_ANSWER} THEN {sequence} END"
        self._one_ring = self.asked_alone(words["r_row"], self.rows_table, dialect.equal(key, "r."))
        self._at_out, self._at_in = dialect.encoder([AT]) or same, dialect.decoder([AT]) or same

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        return rules(self, self.structure.keep)

    def head_of(self, op: Operation[Any]) -> Row:
        """Return the key, as it is stored, whose head an operation locks."""
        return self._key_of(op.args[0]) if op.verb == "push" else self.key_out(op.args[0])

    def locks(self, operations: Operations, _: Context) -> list[Row]:
        """Return the heads that operations write."""
        return [(*key, 0) for key in sorted({self.head_of(op) for op in operations if op.writes})]

    def plan_push(self, run: Operations, context: Context, locked: bool) -> Plan:
        """Allocate for all pushes of a key at once, then write the last `keep` of them."""
        pushes: defaultdict[Row, list[int]] = defaultdict(list)
        take_key = self._take_key
        for place, op in enumerate(run):
            pushes[take_key(op.args[0])].append(place)
        keys = sorted((self.key_out(key), places) for key, places in pushes.items())
        heads = yield Statement(self.allocate, [(*key, len(places)) for key, places in keys])
        if self.allocated is not None:
            heads = yield Statement(self.allocated, [key for key, _ in keys])
        if not locked:
            yield Control.LOCKED
        results: list[Any] = [None] * len(run)
        (at,) = self._at_out((context.clock(),))
        rows = []
        for (key, places), head in zip(keys, heads, strict=True):
            first = head[0][0] - len(places) + 1
            for sequence, place in enumerate(places, first):
                results[place] = sequence
            for place in places[-self.keep :]:
                values = run[place].args[0]
                others = self._others_of(values)
                sequence = results[place]
                rows.append((*key, sequence % self.keep, sequence, at, *others))
        yield Statement(self.write, rows)
        return results

    def transact_push(self, op: Operation[Any], context: Context) -> Transaction:
        """Allocate for one push, and write it."""
        values = op.args[0]
        key = self._key_of(values)
        ((sequence,),) = yield self._one_allocate, key
        (at,) = self._at_out((context.clock(),))
        others = self._others_of(values)
        yield self.write.sql, (*key, sequence % self.keep, sequence, at, *others)
        return sequence

    def exchange_push(self, op: Operation[Any], context: Context) -> Exchange:
        """Allocate for one push, and write it."""
        values = op.args[0]
        key = self._key_of(values)
        row = (*key, *key, *self._at_out((context.clock(),)), *self._others_of(values))
        return Exchange(self._one_push, row, self._pushed, "FROM h", answers=True)

    def plan_latest(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read the slots from the newest down."""
        asked = [(*self.key_out(key), min(n or self.keep, self.keep)) for key, n in [op.args for op in run]]
        found = yield from self._newest(asked)
        results = []
        for rows, ask in zip(found, asked, strict=True):
            key = ask[:-1]
            results.append(self.rows_of([self._in_order(key + row[1:]) for row in rows[: ask[-1]]]))
        return results

    def ask_latest(self, op: Operation[Any]) -> Question | None:
        """Read all slots of one key, where they are few, and put them in order."""
        if self.keep > FEW:
            return None
        key, n = op.args
        stored = self.key_out(key)

        def newest(rows: list[Row]) -> list[Any]:
            if rows[0][0] is None:
                return []
            rows.sort(reverse=True)
            return self.rows_of([self._in_order(stored + row[1:]) for row in rows[:n]])

        return Question(self._one_ring, stored, newest)

    def _newest(self, asked: list[Row]) -> Plan:
        # The rows of each request, newest first.
        if self.whole is not None and min([ask[-1] for ask in asked]) == self.keep:
            found = yield Statement(self.whole, [ask[:-1] for ask in asked])
        elif self.newest is None or max([ask[-1] for ask in asked]) > FEW:
            found = yield Statement(self.latest, asked)
        else:
            return (yield from self._newest_or_latest(self.newest, asked))
        for rows in found:
            rows.sort(reverse=True)
        return list(found)

    def _newest_or_latest(self, newest: Template, asked: list[Row]) -> Plan:
        found = yield Statement(newest, asked)
        holes = []
        for place, (rows, ask) in enumerate(zip(found, asked, strict=True)):
            rows.sort(reverse=True)
            if len(rows) < ask[-1] and not (rows and rows[0][0] == len(rows)):
                holes.append(place)  # and not just a key with few rows so far
        if holes:
            again = yield Statement(self.latest, [asked[place] for place in holes])
            for place, rows in zip(holes, again, strict=True):
                rows.sort(reverse=True)
                found[place] = rows
        return list(found)

    def plan_entries(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read the slots from the first one beyond `after` up."""
        asked = [
            (*self.key_out(key), after, min(n or self.keep, self.keep)) for key, after, n in [op.args for op in run]
        ]
        found = yield Statement(self.entries, asked)
        results = []
        for rows, ask in zip(found, asked, strict=True):
            rows.sort()
            results.append([self.entry(row) for row in rows[: ask[-1]]])
        return results

    def plan_clear(self, run: Operations, _: Context, locked: bool) -> Plan:
        """Remove a key's rows; the head stays, so the sequence goes on."""
        unmake = self.unmake if locked and self.lock is not None else None
        return (yield from self.remove_keys(run, locked, self.delete, unmake))

    def plan_forget(self, run: Operations, _: Context, locked: bool) -> Plan:
        """Remove a key's rows and its head."""
        return (yield from self.remove_keys(run, locked, self.delete, self.drop))

    def entry(self, stored: Row) -> Entry[Any]:
        """Return the entry for `sequence, at, row…` as they are stored."""
        return Entry(stored[0], self._at_in(stored[1:2])[0], self.rows_of([stored[2:]])[0])
