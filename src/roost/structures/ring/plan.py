"""Ring: allocate sequences under the head's lock, write the last rows into their slots, read two ranges of slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, ClassVar

from roost.dialects.dialect import (
    MOST_ANSWER,
    Answer,
    Control,
    Dialect,
    Exchange,
    Gather,
    Row,
    Statement,
    Template,
    Wanted,
)
from roost.structures.operation import Operation
from roost.structures.plan import (
    AT,
    LOCK_SEEN,
    SEQUENCE,
    SLOT,
    Alteration,
    Careful,
    Context,
    Locked,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    by_key,
    composed,
    dealt,
    nth,
    numbered,
    replaced,
    same,
    same_columns,
    write,
)
from roost.structures.ring.alter import ALTERATIONS
from roost.structures.ring.check import rules
from roost.structures.ring.declaration import Ring
from roost.structures.ring.reads import ENTRIES, FEW, LATEST, NEWEST, WHOLE
from roost.structures.ring.view import VIEWS
from roost.structures.ring.wire import RingWire
from roost.structures.rows import Entry
from roost.types.columns import Column

# SQLite reads the heads and then writes them: RETURNING uses a temporary table, which takes several times as long as
# both.
HEAD = Template(
    "SELECT sequence FROM {head} WHERE {equal}",
    answer=Answer.ORDINAL,
    many=Template(
        "SELECT q.column1, r.sequence FROM (VALUES {{rows}}) q CROSS JOIN {head} r ON {nth_key}",
        Gather.LIST,
        Answer.ORDINAL,
    ),
)
PUT_HEAD = write(
    """\
INSERT INTO {head} ({key}, sequence) VALUES ({key_holes}, ?)
  ON CONFLICT ({key}) DO UPDATE SET sequence = excluded.sequence""",
    "{key_holes}, ?",
)

# Creates or locks the head, and raises the sequence by the number of pushes, so that there are no gaps and no
# duplicates.
ALLOCATE = {
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

# Reads what was allocated, if that statement cannot return it: since the lock is held, nobody has raised it since.
ALLOCATED = {
    "mysql": Template(
        "(SELECT {{i}}, sequence FROM {head} WHERE {equal} FOR UPDATE)",
        Gather.UNION,
        Answer.ORDINAL,
    ),
}

WRITE = {
    "sqlite": write(
        """\
INSERT INTO {rows} ({columns}) VALUES ({holes})
  ON CONFLICT ({key}, slot) DO UPDATE SET {excluded}""",
        "{holes}",
    ),
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

# Allocates and writes in one statement. Each row comes with the number of later pushes of its key, and the ordinal
# keeps the order in which heads are locked. (MariaDB would have to join what it has allocated, which is no faster.)
PUSH = Template(
    """\
WITH q AS (SELECT * FROM unnest({key_arrays}, %s::bigint[], {other_arrays}) WITH ORDINALITY
    AS q ({key}, "#back", {others}, "#")),
  h AS (INSERT INTO {head} AS h ({key}, sequence) SELECT {key}, count(*) FROM q GROUP BY {key} ORDER BY min("#")
    ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + excluded.sequence
    RETURNING {h_key}, h.sequence),
  r AS (INSERT INTO {rows} ({columns})
    SELECT {q_key}, MOD(h.sequence - q."#back", {keep}), h.sequence - q."#back", {q_others} FROM q JOIN h ON {q_join}
    ON CONFLICT ({key}, slot) DO UPDATE SET {excluded})
SELECT {h_key}, h.sequence FROM h""",
    Gather.ARRAYS,
    Answer.KEY,
)

# A single push. On PostgreSQL the upsert of the rows sees the newest row, whatever the statement's snapshot.
ONE_PUSH = {
    "mariadb": """\
INSERT INTO {head} ({key}, sequence) VALUES ({key_holes}, LAST_INSERT_ID({one}))
  ON DUPLICATE KEY UPDATE sequence = LAST_INSERT_ID(sequence + 1);
SET `the sequence` = LAST_INSERT_ID();
INSERT INTO {rows} ({columns})
  VALUES ({key_holes}, MOD(`the sequence`, {keep}), `the sequence`, {other_holes})
  ON DUPLICATE KEY UPDATE {values}""",
    "postgresql": """\
{lock}h AS (INSERT INTO {head} AS h ({key}, sequence) SELECT {key_holes}, {one}{locked}
  ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + 1 RETURNING h.sequence),
r AS (INSERT INTO {rows} ({columns}) SELECT {key_holes}, MOD(h.sequence, {keep}), h.sequence, {other_holes} FROM h
  ON CONFLICT ({key}, slot) DO UPDATE SET {excluded})""",
}
SEQUENCE_OF = {"mariadb": "`the sequence`", "postgresql": "sequence"}

# Creates or locks the head, and changes nothing.
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

# Deletes a head that LOCK has created for a key that is only cleared, and to which nothing was ever pushed.
UNMAKE = "DELETE FROM {head} WHERE {equal} AND sequence = 0"

# Locks a head that exists.
TAKE = {"sqlite": None, "mariadb": "SELECT 1 FROM {head} WHERE {equal} FOR UPDATE"}
TAKE["postgresql"] = TAKE["mariadb"]

# Room for HOT updates: with it all updates are HOT, and a full table does not grow. Without it, 89 % of the heads' and
# 95 % of the rows' updates are (20,000 keys of 5 rows, pushes in batches of 100).
HEAD_OPTIONS = {"postgresql": " WITH (fillfactor = 50)"}
ROWS_OPTIONS = {"postgresql": " WITH (fillfactor = 80)"}


class RingPlan(StructurePlan):
    """A ring in one dialect's words."""

    wire = RingWire

    structure: Ring[Any, Any]
    views = VIEWS
    alterations: ClassVar[Mapping[str, Alteration]] = ALTERATIONS
    together: ClassVar[Mapping[str, str]] = {"push": "push", "push_all": "push"}
    further: ClassVar[tuple[Column, ...]] = ()  # columns after `at`

    def __init__(self, structure: Ring[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.keep = structure.keep
        per = structure.rows.per
        key = structure.key.columns
        others = [column for column in structure.columns if column.name not in per]
        further = [dialect.name_of(column) for column in self.further]
        quoted = [dialect.name_of(column) for column in others]
        name, k = dialect.name, len(key)
        replacing = dialect, structure.rows.unknown, ["sequence", "at", *further, *quoted]
        words = {
            "head": self.head_table,
            "rows": self.rows_table,
            "key": dialect.names(key),
            "h_key": dialect.names(key, "h."),
            "key_holes": dialect.holes(k),
            "key_arrays": dialect.arrays(key),
            "nth_key": nth(dialect, key),
            "columns": ", ".join([dialect.names(key), "slot", "sequence", "at", *further, *quoted]),
            "holes": dialect.holes(k + 3 + len(further) + len(others)),
            "arrays": dialect.arrays([*key, SLOT, SEQUENCE, AT, *self.further, *others]),
            "excluded": replaced(*replacing, "excluded.{}"),
            "values": replaced(*replacing, "VALUES({})"),
            "new": replaced(*replacing, "new.{}"),
            "r_values": ", ".join(
                ["r.sequence", "r.at", *(f"r.{c}" for c in [*map(dialect.name_of, structure.columns), *further])]
            ),
            "r_row": ", ".join(["r.sequence", *(f"r.{c}" for c in [*quoted, *further])]),
            "join": " AND ".join(f"r.{dialect.name_of(c)} = h.{dialect.name_of(c)}" for c in key),
            "equal": dialect.equal(key),
            "h_equal": dialect.equal(key, "h."),
            "keep": str(structure.keep),
            "numbers": ", ".join(f"({d})" for d in range(1, max(2, min(structure.keep, FEW)))),
            "q_join": dialect.same(key, "h.", "q."),
            "q_rows": dialect.same(key, "r.", "q."),
            "one": self.guarded("1"),
            "other_holes": dialect.holes(1 + len(others)),
            "q_key": dialect.names(key, "q."),
            "others": dialect.names([AT, *others]),
            "q_others": dialect.names([AT, *others], "q."),
            "other_arrays": dialect.arrays([AT, *others]),
        }
        self.tables = (
            self.create(self.head_table, [*key, SEQUENCE], dialect.names(key)) + HEAD_OPTIONS.get(name, ""),
            self.create(self.rows_table, [*key, SLOT, SEQUENCE, AT, *self.further, *others], f"{words['key']}, slot")
            + ROWS_OPTIONS.get(name, ""),
        )
        self.head, self.put_head = HEAD.format(words), PUT_HEAD.format(words)
        self.allocate = ALLOCATE[name].format(words).by_key(k) if name in ALLOCATE else None
        self.push = PUSH.format(words).by_key(k) if name == "postgresql" and not self.further else None
        allocated = ALLOCATED.get(name)
        self.allocated = None if allocated is None else allocated.format(words)
        self.write = dialect.choose(WRITE).format(words)
        self.latest = dialect.choose(LATEST).format(words)
        self.whole = WHOLE[name].format(words) if name in WHOLE else None
        self.words = words
        self.newest = NEWEST.format(words) if name == "mariadb" else None
        self.entries = dialect.choose(ENTRIES).format(words)
        lock, take = dialect.choose(LOCK), dialect.choose(TAKE)
        self.lock = None if lock is None else lock.format(words)
        self.take = None if take is None else Template(take.format(**words), answer=Answer.ORDINAL)
        self.unmake = write(UNMAKE.format(**words))
        self.delete = write(f"DELETE {by_key(dialect, self.rows_table)} WHERE {words['equal']}")
        self.drop = write(f"DELETE FROM {self.head_table} WHERE {words['equal']}")
        self.first_keys, self.later_keys = self.key_after(self.head_table)

        other_names = [column.name for column in others]
        take_key, take_others = structure.rows.taking(per), structure.rows.taking(other_names)
        self._key_of = composed(self.key_out, take_key)
        self._others_of = composed(dialect.encoder(others) or same, take_others)
        self._key_columns = composed(dialect.column_encoder(key) or same_columns, take_key)
        self._other_columns = composed(dialect.column_encoder(others) or same_columns, take_others)
        self._sequence = k + 1  # the place of `sequence` among the columns that are written
        self._in_key_order = itemgetter(*range(k))
        self.rows_of = structure.rows.maker(dialect.decoder(structure.columns))
        # Puts a row's values into their order, given those of its key followed by the others.
        found = structure.rows.places([*per, *other_names])
        order = [found.index(place) for place in sorted(found)]
        self._in_order: Callable[[Row], Row] = (
            same if order == sorted(order) else lambda row: tuple([row[i] for i in order])
        )
        self._one_head = self.question_sql("r.sequence", self.head_table, dialect.equal(key, "r."))
        one_push = ONE_PUSH.get(name, "")
        seen, unseen = (each.format(**words) for each in LOCK_SEEN.get(name, ("", "")))
        self._one_push = one_push.format(**words, lock="", locked="")
        self._one_push_joined = one_push.format(**words, lock=seen, locked=unseen)
        sequence = SEQUENCE_OF.get(name)
        self._pushed = f"CASE WHEN {sequence} < {MOST_ANSWER} THEN {sequence} END"
        self._one_ring = self.question_sql(words["r_row"], self.rows_table, dialect.equal(key, "r."))
        self._at_out, self._at_in = dialect.encoder([AT]) or same, dialect.decoder([AT]) or same

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        return rules(self, self.structure.keep)

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose heads an operation locks."""
        return map(self._key_of, op.args) if op.verb in self.together else super().heads_of(op)

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """Return the heads that operations write."""
        return [(*key, 0) for key in self.seized(operations, context)]

    def plan_push(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Allocate for all pushes of a key at once, then write the last `keep` of them."""
        columns = list(zip(*[row for op in run for row in op.args], strict=True))
        if not columns:
            return [[] for _ in run]
        key_columns, others = self._key_columns(columns), self._other_columns(columns)
        keys: list[Row] = list(zip(*key_columns, strict=True))
        pushes = Counter(keys)
        if locked is False:
            yield from self.take_seen(sorted(pushes), context)
        if self.push is not None and max(pushes.values()) <= self.keep:
            newest = yield from self._push_at_once(self.push, pushes, keys, key_columns, others, context)
            if locked is False:
                yield Control.LOCKED
            return dealt(run, numbered(keys, newest))
        newest = yield from self._allocate(pushes)
        if locked is False:
            yield Control.LOCKED
        stamp = yield from self.stamp(context)
        sequences = numbered(keys, newest)
        slots = [sequence % self.keep for sequence in sequences]
        rows = list(zip(*key_columns, slots, sequences, *map(repeat, stamp), *others, strict=False))
        if max(pushes.values()) > self.keep:
            rows = [row for row, key in zip(rows, keys, strict=True) if row[self._sequence] > newest[key] - self.keep]
        rows.sort(key=self._in_key_order)
        yield Statement(self.write, rows)
        yield from self.remove_over(stamp, len(rows), context)
        return dealt(run, sequences)

    def _push_at_once(
        self,
        push: Template,
        pushes: Mapping[Row, int],
        keys: Sequence[Row],
        key_columns: Sequence[Sequence[Any]],
        others: Sequence[Sequence[Any]],
        context: Context,
    ) -> Generator[Wanted, Any, dict[Row, int]]:
        # Allocates and writes in one exchange; returns the same as `_allocate`.
        left = dict(pushes)
        behind = []
        for key in keys:
            left[key] -= 1
            behind.append(left[key])
        (at,) = self._at_out((context.clock(),))
        rows: list[Row] = list(zip(*key_columns, behind, repeat(at), *others, strict=False))
        rows.sort(key=self._in_key_order)
        found = yield Statement(push, rows)
        k = len(key_columns)
        heads = {
            row[:k]: head[0][0] for row, head in zip(rows, found, strict=True) if head
        }  # from any one of each key's rows
        return {key: heads[key] - pushes[key] for key in pushes}

    def _allocate(self, pushes: Mapping[Row, int]) -> Generator[Wanted, Any, dict[Row, int]]:
        # Locks the heads, and returns the last sequence of each before these pushes.
        keys = sorted(pushes)
        if self.allocate is None:
            found = yield Statement(self.head, keys)
            newest = {key: rows[0][0] if rows else 0 for key, rows in zip(keys, found, strict=True)}
            yield Statement(self.put_head, [(*key, newest[key] + pushes[key]) for key in keys])
            return newest
        heads = yield Statement(self.allocate, [(*key, pushes[key]) for key in keys])
        if self.allocated is not None:
            heads = yield Statement(self.allocated, keys)
        return {key: rows[0][0] - pushes[key] for key, rows in zip(keys, heads, strict=True)}

    def stamp(self, context: Context) -> Generator[Wanted, Any, Row]:
        """Return the values of `at` and of the columns after it for new rows."""
        yield from ()
        return self._at_out((context.clock(),))

    def remove_over(self, stamp: Row, written: int, context: Context) -> Generator[Wanted, Any, None]:
        """Delete expired rows; a ring without `keep_for` has none."""
        yield from ()

    def transact_push(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Allocate for one push, and write it."""
        return self._one(op, context)

    def _one(self, op: Operation[Any], context: Context) -> Transaction:
        values = op.args[0]
        key = self._key_of(values)
        found = yield self._one_head, key
        if not found:
            raise Careful  # the declaration is not stored
        sequence = (found[0][0] or 0) + 1
        yield self.put_head.sql, (*key, sequence)
        (at,) = self._at_out((context.clock(),))
        yield self.write.sql, (*key, sequence % self.keep, sequence, at, *self._others_of(values))
        return sequence

    def exchange_push(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Allocate for one push, and write it."""
        values = op.args[0]
        key = self._key_of(values)
        row = (*key, *key, *self._at_out((context.clock(),)), *self._others_of(values))
        if context.joined and self._one_push_joined != self._one_push:
            return Exchange(self._one_push_joined, key + row, self._pushed, "FROM h", int)
        return Exchange(self._one_push, row, self._pushed, "FROM h", int)

    def plan_latest(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read the slots from the newest one in descending order."""
        asked = [(*self.key_out(key), min(n or self.keep, self.keep)) for key, n in [op.args for op in run]]
        found = yield from self.newest_rows(asked, context)
        results = []
        for rows, ask in zip(found, asked, strict=True):
            key = ask[:-1]
            results.append(self.rows_of([self._in_order(key + row[1:]) for row in rows[: ask[-1]]]))
        return results

    def ask_latest(self, op: Operation[Any], context: Context) -> Question | None:
        """Read all slots of one key, if they are few, and sort them."""
        if self.keep > FEW:
            return None
        key, n = op.args
        stored = self.key_out(key)

        def newest(rows: list[Row]) -> list[Any]:
            if rows[0][0] is None:
                return []
            rows.sort(reverse=True)
            return self.rows_of([self._in_order(stored + row) for row in self.of_ring(rows[:n])])

        return Question(self._one_ring, self.now(context) + stored, newest)

    def of_ring(self, rows: list[Row]) -> list[Row]:
        """Return the values, without the key, of the rows that `ask_latest` has read."""
        return [row[1:] for row in rows]

    def now(self, context: Context) -> Row:
        """Return the parameters of the current moment."""
        return ()

    def newest_rows(self, asked: list[Row], context: Context) -> Plan:
        """Return the rows of each request, newest first."""
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
                holes.append(place)  # rows are missing, and the key does not just have few rows
        if holes:
            again = yield Statement(self.latest, [asked[place] for place in holes])
            for place, rows in zip(holes, again, strict=True):
                rows.sort(reverse=True)
                found[place] = rows
        return list(found)

    def plan_entries(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read the slots after `after` in ascending order."""
        asked = [
            (*self.key_out(key), after, min(n or self.keep, self.keep)) for key, after, n in [op.args for op in run]
        ]
        found = yield Statement(self.entries, asked)
        results = []
        for rows, ask in zip(found, asked, strict=True):
            rows.sort()
            results.append([self.entry(row) for row in rows[: ask[-1]]])
        return results

    def plan_clear(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows; the head stays, so the sequence goes on."""
        unmake = self.unmake if locked is not False and self.lock is not None else None
        return (yield from self.remove_keys(run, locked, self.delete, unmake))

    def plan_forget(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows and its head."""
        return (yield from self.remove_keys(run, locked, self.delete, self.drop))

    def entry(self, stored: Row) -> Entry[Any]:
        """Return the entry for the stored values `sequence, at, row…`."""
        return Entry(stored[0], self._at_in(stored[1:2])[0], self.rows_of([stored[2:]])[0])
