"""Optimistic adds to a capped collection: they assume what careful adds look up, and verify it afterwards.

The number of inserted rows shows whether an id existed already, the number of evicted rows whether the head's count was
right. If an assumption fails, the run is repeated carefully, and so are some that follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from roost.dialects.dialect import (
    Answer,
    Control,
    Dialect,
    Exchange,
    Gather,
    Row,
    Statement,
    Template,
    Together,
    Wanted,
)
from roost.errors import StatementFailed
from roost.structures.capped.declaration import Capped
from roost.structures.capped.reads import HEAD
from roost.structures.operation import Operation
from roost.structures.plan import Careful, Context, numbered, write

# Creates or locks the head, and raises the sequence by the number of adds. SQLite reads the heads, and writes them at
# the end: RETURNING would take longer.
ALLOCATE = {
    "mariadb": Template(
        """\
INSERT INTO {head} ({key}, sequence, n) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE sequence = sequence + VALUES(sequence)
  RETURNING {key}, sequence, n""",
        Gather.VALUES,
        Answer.KEY,
    ),
    "postgresql": Template(
        """\
INSERT INTO {head} AS h ({key}, sequence, n) SELECT * FROM unnest({key_arrays}, %s::bigint[], %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + excluded.sequence
  RETURNING {h_key}, h.sequence, h.n""",
        Gather.ARRAYS,
        Answer.KEY,
    ),
}

# Inserts rows; counts only those whose id did not exist.
ADD = {
    "sqlite": write("INSERT INTO {rows} ({columns}) VALUES ({holes}) ON CONFLICT ({pairs}) DO NOTHING", "{holes}"),
    "mariadb": Template(
        "INSERT INTO {rows} ({columns}) VALUES {{rows}}\n  ON DUPLICATE KEY UPDATE sequence = sequence", Gather.VALUES
    ),
    "postgresql": Template(
        "INSERT INTO {rows} ({columns}) SELECT * FROM unnest({arrays})\n  ON CONFLICT ({pairs}) DO NOTHING",
        Gather.ARRAYS,
    ),
}

# Make room. PostgreSQL deletes the oldest n rows of a key, unless they are among the newest `keep` sequences. MariaDB
# cannot read the table that it changes, and a deleted row costs a view's trigger: there the oldest row becomes the new
# one. It is found by the sequence that it has if no row is missing, and OLDER tells whether there is a row before it.
# SQLite deletes up to the sequence of the n-th oldest row.
SWEEP = Template(
    """\
DELETE FROM {rows} AS r USING unnest({key_arrays}, %s::bigint[], %s::bigint[]) AS q ({key}, n, last)
  CROSS JOIN LATERAL (SELECT {o_ids} FROM {rows} o WHERE {same_old} AND o.sequence <= q.last
    ORDER BY o.sequence LIMIT q.n) e
  WHERE {same_key} AND {same_id}""",
    Gather.ARRAYS,
)
SWAP = Template(
    """\
UPDATE (SELECT sequence AS `#`, {columns} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r FORCE INDEX ({index}) ON {same_key} AND r.sequence = q.`#` AND NOT ({q_same_id}) SET {r_q}""",
    Gather.VALUES,
)
CUT_OLDEST = write("""\
DELETE FROM {rows} WHERE {equal} AND sequence <=
  min(?, (SELECT sequence FROM {rows} WHERE {equal} ORDER BY sequence LIMIT 1 OFFSET ?))""")
OLDER = Template(
    """\
SELECT q.`#` FROM (SELECT 0 AS `#`, {key}, sequence FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r ON {same_key} AND r.sequence < q.sequence""",
    Gather.LIST,
    Answer.ORDINAL,
)

# A single add: it fails if there is no head yet, if the id exists, and if the count is wrong. The rows that PostgreSQL
# reads may be older than its lock of the head: then the row to be evicted does not exist any more, or has another
# sequence, which the number of deleted rows shows.
ONE_ADD = {
    "mariadb": """\
SELECT h.sequence + {one}, h.n INTO `the sequence`, `the count` FROM {head} h WHERE {h_equal} FOR UPDATE;
IF `the count` < {keep} THEN
  INSERT INTO {rows} ({columns}) VALUES ({values_holes}, `the sequence`, %s);
ELSE
  SELECT MIN(r.sequence) INTO `the oldest` FROM {rows} r WHERE {r_equal} FOR UPDATE;
  UPDATE {rows} r SET {set_values}, sequence = `the sequence`, at = %s
    WHERE {r_equal} AND r.sequence = `the oldest` AND `the oldest` <= `the sequence` - {keep} AND NOT ({r_equal_id});
  IF ROW_COUNT() <> 1 OR `the count` > {keep} THEN SET `the sequence` = NULL; END IF;
END IF;
UPDATE {head} SET sequence = `the sequence`, n = LEAST(n + 1, {keep}) WHERE {equal}""",
    "postgresql": """\
o AS (SELECT h.sequence + {one} AS sequence, h.n FROM {head} h WHERE {h_equal} FOR UPDATE OF h),
h AS (UPDATE {head} h SET sequence = o.sequence, n = LEAST(o.n + 1, {keep}) FROM o WHERE {h_equal}),
r AS (DELETE FROM {rows} r USING (SELECT {e_ids}, e.sequence FROM {rows} e
    WHERE {e_equal} AND e.sequence <= (SELECT o.sequence - {keep} FROM o WHERE o.n >= {keep})
    ORDER BY e.sequence LIMIT 1) e
  WHERE {r_equal} AND {same_id} AND r.sequence = e.sequence AND NOT ({r_equal_id}) RETURNING 1),
i AS (INSERT INTO {rows} ({columns}) SELECT {values_holes}, o.sequence, %s FROM o)""",
}
# In the application's transaction the head is created first: without a head, MariaDB would lock a gap.
MAKE_HEAD = """\
INSERT INTO {head} ({key}, sequence, n) VALUES ({key_holes}, 0, 0) ON DUPLICATE KEY UPDATE n = n;
"""
ADDED = {
    "mariadb": "0 * `the sequence`",
    "postgresql": "CASE WHEN o.n <= {keep} AND (SELECT count(*) FROM r) = (o.n >= {keep})::int THEN 0 END",
}

LEAST = {"sqlite": 16}  # the minimum number of adds in a run: looking up a few ids needs no exchange there
CAREFUL_RUNS = 100  # careful runs after a failed optimistic one


class Request(NamedTuple):
    """An add or a remove, in stored values."""

    key: Row
    id: Row
    others: Row | None  # None: remove
    op: Operation[Any]  # for messages: the operation of this row alone

    @property
    def adds(self) -> bool:
        """Whether this is an add."""
        return self.others is not None


class OptimisticAdds:
    """The optimistic adds of one collection."""

    def __init__(
        self, structure: Capped[Any, Any], dialect: Dialect, words: Mapping[str, str], put_head: Template, one: str
    ) -> None:
        key, id_ = structure.key.columns, structure.id.columns
        others = [column for column in structure.columns if column not in key]
        rest = [column for column in others if column not in id_]
        written = [*(dialect.name_of(column) for column in others), "sequence", "at"]
        words = {
            **words,
            "o_ids": dialect.names(id_, "o."),
            "h_key": dialect.names(key, "h."),
            "same_old": dialect.same(key, "o.", "q."),
            "same_id": dialect.same(id_, "r.", "e."),
            "q_same_id": dialect.same(id_, "r.", "q."),
            "one": one,
            "keep": str(structure.keep),
            "e_ids": dialect.names(id_, "e."),
            **{f"{each}_equal": dialect.equal(key, f"{each}.") for each in "her"},
            "r_equal_id": dialect.equal(id_, "r."),
            "set_values": dialect.equal([*id_, *rest], "r.").replace(" AND ", ", "),
            "values_holes": dialect.holes(len(structure.columns)),
            "r_q": ", ".join(f"r.{column} = q.{column}" for column in written),
        }
        make_room = {"sqlite": CUT_OLDEST, "mariadb": SWAP, "postgresql": SWEEP}
        self._keep = structure.keep
        allocate = ALLOCATE.get(dialect.name)
        self._allocate = None if allocate is None else allocate.format(words).by_key(len(key))
        self._head = HEAD[dialect.name].format(words)
        self._in_key_order = itemgetter(*range(len(key)))
        self._add = ADD[dialect.name].format(words)
        self._by_offset = dialect.name == "sqlite"
        self._make_room = make_room[dialect.name].format(words)
        self._older = OLDER.format(words) if dialect.name == "mariadb" else None
        self._put_head = put_head
        self._least = LEAST.get(dialect.name, 1)
        self._one_add = ONE_ADD.get(dialect.name, "").format(**words)
        self._one_add_joined = MAKE_HEAD.format(**words) + self._one_add
        self._added = ADDED.get(dialect.name, "").format(**words)
        self._mariadb = dialect.name == "mariadb"
        self._careful_runs = 0  # the number of next runs that must be careful

    @classmethod
    def made(
        cls, structure: Capped[Any, Any], dialect: Dialect, words: Mapping[str, str], put_head: Template, one: str
    ) -> OptimisticAdds | None:
        """Return the optimistic adds of a collection; None if it cannot have them."""
        if dialect.name not in ADD or (structure.on_full, structure.on_duplicate) != ("evict", "error"):
            return None
        if structure.rows.unknown:
            return None  # a replaced row would keep the old row's values in these columns
        return cls(structure, dialect, words, put_head, one)

    def takes(self, keys: Sequence[Row], ids: Sequence[Row], context: Context) -> Counter[Row] | None:
        """Return the number of adds of each key in a run; None if the run must be careful."""
        if context.joined or len(keys) < self._least:
            return None
        if context.careful:
            self._careful_runs = CAREFUL_RUNS
            return None
        if self._careful_runs:
            self._careful_runs -= 1
            return None
        adds = Counter(keys)
        if max(adds.values()) > self._keep or len(set(zip(keys, ids, strict=True))) < len(keys):
            return None  # an add is refused, or evicted again, because of others in the run
        return adds

    def exchange(self, key: Row, id_: Row, others: Row, at: Any, joined: bool) -> Exchange | None:
        """Add one row; None if this must be careful."""
        if self._careful_runs:
            return None
        values = (*id_, *others, at)
        if not self._mariadb:
            return Exchange(self._one_add, (*key * 4, *id_, *key, *values), self._added, "FROM o")
        row = (*key, *key, *values, *key, *values, *key, *id_, *key)
        if joined:
            return Exchange(self._one_add_joined, key + row, self._added)
        return Exchange(self._one_add, row, self._added)

    def add(
        self, adds: Mapping[Row, int], keys: Sequence[Row], columns: Sequence[Sequence[Any]], at: Any
    ) -> Generator[Wanted, Any, None]:
        """Add rows, and make room for them; `Careful` if an assumption is wrong.

        adds: the number of new rows of each key.
        keys: the key of each row.
                columns: those of the key, the id and the others.
        """
        keep = self._keep
        asked = sorted(adds)
        if self._allocate is None:
            found = yield Statement(self._head, asked)
            before = [rows[0] if rows else (0, 0) for rows in found]
        else:
            found = yield Statement(self._allocate, [(*key, adds[key], 0) for key in asked])
            before = [(rows[0][0] - adds[key], rows[0][1]) for key, rows in zip(asked, found, strict=True)]
        yield Control.LOCKED
        newest = {key: sequence for key, (sequence, _) in zip(asked, before, strict=True)}
        rows: list[Row] = list(zip(*columns, numbered(keys, newest), repeat(at), strict=False))
        rows.sort(key=self._in_key_order)
        put: list[Row] = rows
        room: list[Row] = []
        first: list[Row] = []  # the first row to be evicted of each key: no other row may be before it
        heads: list[Row] = []
        victims = end = 0
        if self._older is not None:
            put = []
        for key, (sequence, n) in zip(asked, before, strict=True):
            if n > keep:
                raise Careful
            n_added = adds[key]
            sequence += n_added
            out = max(0, n + n_added - keep)
            more = n_added - out
            last = sequence - keep  # the last sequence that may be evicted
            victims += out
            begin, end = end, end + n_added
            if more or self._allocate is None:
                heads.append((*key, sequence, n + more))
            if self._older is not None:
                put += rows[begin : begin + more]
                if out:
                    room += [(goes, *row) for goes, row in enumerate(rows[begin + more : end], last - out + 1)]
                    first.append((*key, last - out + 1))
            elif out:
                room.append((*key, last, *key, out - 1) if self._by_offset else (*key, out, last))
        changes = [Statement(self._add, put)]
        if self._older is not None:
            changes.append(Statement(self._older, first))
        changes += [Statement(self._make_room, room), Statement(self._put_head, heads)]
        changes = [change for change in changes if change.rows]
        try:
            answers = yield Together(changes)
        except StatementFailed:
            raise Careful from None  # an id exists already; other errors occur again in the careful run
        for change, answer in zip(changes, answers, strict=True):
            if (
                (change.template is self._add and answer != len(put))
                or (change.template is self._make_room and answer != victims)
                or (change.template is self._older and any(answer))
            ):
                raise Careful
