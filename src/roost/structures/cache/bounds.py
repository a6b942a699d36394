"""Keeps a cache within its bounds, by a head row with its totals and by the order of use.

`roost_NAME_head` has one row: the number of values, their bytes, and a sequence from which each use takes the next
number, so that eviction does not depend on a clock. Every transaction that stores or removes values locks this row
first: a count that is exact at each COMMIT requires that writers wait for each other. (With counts in slots, or a bound
for each of several groups of keys, writers would not wait, but a cache could exceed its bound, or evict while it is not
full.) A batch takes the lock once for all of its operations; only `touch` does not need it.

Reads write nothing. A read that finds a value whose last use is long ago records the key in the store's memory, and the
store's next write to the cache stores the use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Dialect, Row, Statement, Template, Wanted
from roost.structures.plan import Context, N, StructurePlan, each, write
from roost.types.column_types import ColumnType
from roost.types.columns import Column

ID = Column("id", ColumnType("int"))
BYTES = Column("bytes", ColumnType("int"))
SEQUENCE = Column("sequence", ColumnType("int"))
# Of each row: both are NULL in one that is made for its lock, which is not counted.
USED = Column("used", ColumnType("int"), nullable=True)
SIZE = Column("size", ColumnType("int"), nullable=True)

PART = 8  # a read is recorded if more uses than this part of all values occurred since the last one
MOST_NOTES = 1024  # keys that a store remembers as used; it forgets the others
MOST_NOTED = 64  # uses that one batch writes down
FIXED = 8  # bytes that a value of fixed size counts for

OLD = "r.used < (SELECT h.sequence - h.n / {part} FROM {head} h WHERE h.id = 0)"
MORE = {
    "sqlite": ",\n    used = excluded.used, size = excluded.size",
    "mariadb": ",\n    used = VALUES(used), size = VALUES(size)",
    "mysql": ",\n    used = new.used, size = new.size",
    "postgresql": ",\n    used = excluded.used, size = excluded.size",
}
# Makes the head or takes its lock.
LOCK = {
    "sqlite": "INSERT OR IGNORE INTO {head} (id, n, bytes, sequence) VALUES (0, 0, 0, 0)",
    "mariadb": "INSERT INTO {head} (id, n, bytes, sequence) VALUES (0, 0, 0, 0) ON DUPLICATE KEY UPDATE n = n",
    "postgresql": """\
INSERT INTO {head} (id, n, bytes, sequence) VALUES (0, 0, 0, 0)
  ON CONFLICT (id) DO UPDATE SET n = 0 WHERE false""",
}


@dataclass(slots=True)
class Tally:
    """What the head has, under its lock, and as it will be written."""

    n: int
    bytes: int
    sequence: int
    first: int  # what was used later than this was used by the same run

    def removed(self, sizes: Sequence[int | None]) -> None:
        """Count values that have gone, by their sizes."""
        for size in sizes:
            if size is not None:
                self.n -= 1
                self.bytes -= size


class Bounds:
    """The bounds of one cache, in one dialect's words."""

    def __init__(self, plan: StructurePlan, dialect: Dialect, words: Mapping[str, str], cut: Template) -> None:
        structure: Any = plan.structure
        self.max_items: int | None = structure.max_items
        self.max_bytes: int | None = structure.max_bytes
        self._name = structure.name
        self._cut = cut
        rows, head, hole = plan.rows_table, plan.head_table, dialect.placeholder
        self.index = f"roost_{structure.name}_used"
        self.tables = (
            plan.create(head, (ID, N, BYTES, SEQUENCE), "id"),
            f"CREATE INDEX {self.index} ON {rows} (used)",
        )
        lock = dialect.for_update
        self._lock = Template(dialect.choose(LOCK).format(head=head))
        self.look = each(f"SELECT n, bytes, sequence FROM {head} WHERE id = 0{lock}")
        self.write = write(f"UPDATE {head} SET n = {hole}, bytes = {hole}, sequence = {hole} WHERE id = 0")
        oldest = f"SELECT {words['key']}, used, size FROM {rows} WHERE size IS NOT NULL ORDER BY used LIMIT {hole}"
        self._oldest = each(oldest + (f"{lock} SKIP LOCKED" if lock else ""))
        self._oldest_waiting = each(oldest + lock)
        self.use = write(f"UPDATE {rows} SET used = {hole} WHERE {words['equal']}")
        self.recount = each(f"SELECT count(size), coalesce(sum(size), 0) FROM {rows}")
        measures = [_measure(column) for column in structure.columns]
        self._measures: list[Callable[[Any], int]] = [each for each in measures if each is not None]
        self._fixed = FIXED * measures.count(None)
        self._places = [place for place, measure in enumerate(measures) if measure is not None]

    def size(self, row: Row) -> int:
        """Return for how many bytes a key and its value count."""
        return self._fixed + sum(
            [measure(row[place]) for measure, place in zip(self._measures, self._places, strict=True)]
        )

    def lock(self) -> Generator[Wanted, Any, None]:
        """Take the head's lock; everything after this happens under it."""
        yield Statement(self._lock, [()])

    def tally(self) -> Generator[Wanted, Any, Tally]:
        """Return what the head has."""
        found = yield Statement(self.look, [()])
        n, size, sequence = found[0][0]
        return Tally(n, size, sequence, sequence)

    # --- uses -----------------------------------------------------------------------------------------------------

    def note(self, context: Context, key: Row) -> None:
        """Remember that a value was used whose last use is long ago."""
        notes = context.used.setdefault(self._name, {})
        if len(notes) < MOST_NOTES:
            notes[key] = None

    def noted(self, context: Context, most: int = MOST_NOTED) -> list[Row]:
        """Return the keys that were used, to be written down now."""
        notes = context.used.get(self._name)
        if not notes or context.joined:
            return []
        taken = list(notes)[:most]
        for key in taken:
            notes.pop(key, None)
        return taken

    # --- eviction -------------------------------------------------------------------------------------------------

    def excess(self, tally: Tally) -> int:
        """Return how many values must be evicted, an estimate if the bound is in bytes; 0 if none."""
        items = 0 if self.max_items is None else max(0, tally.n - self.max_items)
        if self.max_bytes is None or tally.bytes <= self.max_bytes or tally.n <= 0:
            return items
        mean = max(1, tally.bytes // tally.n)
        return max(items, 1 + (tally.bytes - self.max_bytes) // mean)

    def evict(self, tally: Tally) -> Generator[Wanted, Any, None]:
        """Evict the least recently used values, as many as necessary."""
        recounted = False
        query = self._oldest
        while number := self.excess(tally):
            found = (yield Statement(query, [(number,)]))[0]
            if not recounted and (not found or found[-1][-2] > tally.first):
                # What was stored just now is to go: only if the count is right, which is not so when somebody has
                # emptied the table.
                counts = yield Statement(self.recount, [()])
                tally.n, tally.bytes = map(int, counts[0][0])
                recounted = True
                continue
            victims: list[Row] = []
            for *key, _, size in found:
                if not self.excess(tally):
                    break
                victims.append(tuple(key))
                tally.removed([size])
            if victims:
                yield Statement(self._cut, sorted(victims))
            elif query is self._oldest_waiting:
                return
            query = self._oldest if victims else self._oldest_waiting  # all that are left are held by somebody


def _measure(column: Column) -> Callable[[Any], int] | None:
    match column.type.kind:
        case "text":
            return _text_bytes
        case "binary":
            return len
    return None


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def as_texts(work: Generator[Wanted, Any, None]) -> Generator[tuple[str, Row], list[Row], None]:
    """Run statements of a batch inside a transaction that runs as plain texts."""
    answer: Any = None
    while True:
        try:
            wanted = work.send(answer)
        except StopIteration:
            return
        assert isinstance(wanted, Statement)
        answer = []
        for row in wanted.rows:
            answer.append((yield wanted.template.sql, row))
