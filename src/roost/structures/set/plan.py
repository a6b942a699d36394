"""Set: look up the pairs that a run names, simulate the run in Python, write its net effect and the new sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import Any

from roost.dialects.dialect import Answer, Control, Dialect, Exchange, Gather, Row, Statement, Template, Wanted
from roost.structures.checks import counted, has_head
from roost.structures.operation import RUNS, Operation
from roost.structures.plan import (
    CUT,
    LOCK_SEEN,
    Careful,
    Context,
    Locked,
    N,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    by_key,
    each,
    is_locked,
    locking,
    nth,
    same,
    same_columns,
    write,
)
from roost.structures.set.declaration import Set
from roost.structures.set.view import VIEWS
from roost.structures.set.wire import SetWire

# Which of these pairs exist. On servers this is a statement after the one that locks the head: a snapshot from before
# the lock was granted would show pairs that were deleted since.
FIND = {
    "sqlite": Template(
        "SELECT 1 FROM {rows} WHERE {equal_pair}",
        answer=Answer.ORDINAL,
        many=Template(
            "SELECT q.column1, 1 FROM (VALUES {{rows}}) q CROSS JOIN {rows} r ON {nth_pair}",
            Gather.LIST,
            Answer.ORDINAL,
        ),
    ),
    "mariadb": Template("SELECT {{i}}, 1 FROM {rows} WHERE {equal_pair}", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, 1 FROM unnest({pair_arrays}) WITH ORDINALITY AS q ({pairs}, "#")
  CROSS JOIN LATERAL (SELECT 1 FROM {rows} r WHERE {same_pair} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

PUT = {
    "sqlite": write("INSERT INTO {rows} ({pairs}) VALUES ({pair_holes})", "{pair_holes}"),
    "mariadb": Template("INSERT INTO {rows} ({pairs}) VALUES {{rows}}", Gather.VALUES),
    "postgresql": Template("INSERT INTO {rows} ({pairs}) SELECT * FROM unnest({pair_arrays})", Gather.ARRAYS),
}

RESIZE = {
    "sqlite": write(
        """\
INSERT INTO {head} ({key}, n) VALUES ({key_holes}, ?)
  ON CONFLICT ({key}) DO UPDATE SET n = n + excluded.n""",
        "{key_holes}, ?",
    ),
    "mariadb": Template(
        "INSERT INTO {head} ({key}, n) VALUES {{rows}} ON DUPLICATE KEY UPDATE n = n + VALUES(n)", Gather.VALUES
    ),
    "mysql": Template(
        """\
INSERT INTO {head} ({key}, n) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE n = {head}.n + new.n""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {head} AS h ({key}, n) SELECT * FROM unnest({key_arrays}, %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET n = h.n + excluded.n""",
        Gather.ARRAYS,
    ),
}

# If a trigger of the view counts deletes, the sizes are read before the deletes, and written after them as they are
# then.
SIZES = {
    "sqlite": None,
    "mariadb": Template("(SELECT {{i}}, n FROM {head} WHERE {equal} FOR UPDATE)", Gather.UNION, Answer.ORDINAL),
    "mysql": None,
    "postgresql": None,
}
PUT_SIZE = {
    "sqlite": None,
    "mariadb": Template(
        "INSERT INTO {head} ({key}, n) VALUES {{rows}} ON DUPLICATE KEY UPDATE n = VALUES(n)", Gather.VALUES
    ),
    "mysql": None,
    "postgresql": None,
}

# Creates or locks the head, and changes nothing.
LOCK = {
    "sqlite": None,
    "mariadb": Template("INSERT INTO {head} ({key}, n) VALUES {{rows}} ON DUPLICATE KEY UPDATE n = n", Gather.VALUES),
    "postgresql": Template(
        """\
INSERT INTO {head} ({key}, n) SELECT * FROM unnest({key_arrays}, %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false""",
        Gather.ARRAYS,
    ),
}

# A single add: adds the member, and counts it if it was new. The application's transaction waits for locks, so there
# the head is locked first (ONE_LOCK). Roost's own transaction gives up after a short wait, so another session that
# holds the head and waits for the member can go on.
ONE_ADD = {
    "mariadb": """\
{lock}INSERT INTO {rows} ({pairs}) VALUES ({pair_holes}) ON DUPLICATE KEY UPDATE {first} = {first};
SET `the count` = ROW_COUNT() * {one};
IF `the count` THEN
  INSERT INTO {head} ({key}, n) VALUES ({key_holes}, 1) ON DUPLICATE KEY UPDATE n = n + 1;
END IF""",
    "postgresql": """\
c AS (SELECT FROM roost_catalog c WHERE {stays_stored}),
{lock}r AS (INSERT INTO {rows} ({pairs}) SELECT {pair_holes} FROM c{locked} ON CONFLICT DO NOTHING RETURNING 1),
h AS (INSERT INTO {head} AS h ({key}, n) SELECT {key_holes}, 1 FROM r ON CONFLICT ({key}) DO UPDATE SET n = h.n + 1)""",
}
ONE_LOCK = {
    "mariadb": ("INSERT INTO {head} ({key}, n) VALUES ({key_holes}, 0) ON DUPLICATE KEY UPDATE n = n;\n", ""),
    **LOCK_SEEN,
}
ADDED = {"mariadb": "`the count`", "postgresql": "(SELECT count(*) FROM r)"}


class SetPlan(StructurePlan):
    """A set in one dialect's words."""

    wire = SetWire

    structure: Set[Any, Any]
    views = VIEWS
    together: Mapping[str, str] = {"add": "change", "add_all": "change", "remove": "change"}

    def __init__(self, structure: Set[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        key, member = structure.key.columns, structure.member.columns
        pair = (*key, *member)
        rows, head = self.rows_table, self.head_table
        equal = dialect.equal(key)
        words = {
            "rows": rows,
            "head": head,
            "key": dialect.names(key),
            "key_holes": dialect.holes(len(key)),
            "key_arrays": dialect.arrays(key),
            "pairs": dialect.names(pair),
            "pair_holes": dialect.holes(len(pair)),
            "pair_arrays": dialect.arrays(pair),
            "equal": equal,
            "equal_pair": dialect.equal(pair),
            "same_pair": dialect.same(pair, "q.", "r."),
            "nth_pair": nth(dialect, pair),
            "first": dialect.name_of(pair[0]),
            "one": self.guarded("1"),
            "stays_stored": self.stays_stored,
        }
        self.tables = (
            self.create(head, [*key, N], words["key"]),
            self.create(rows, [*pair], words["pairs"]),
        )
        self.find, self.put, self.cut = (dialect.choose(each).format(words) for each in (FIND, PUT, CUT))
        self.find_now = locking(self.find, dialect)
        self.resize = dialect.choose(RESIZE).format(words)
        self.sizes, self.put_size, self.lock = (
            None if each is None else each.format(words) for each in map(dialect.choose, (SIZES, PUT_SIZE, LOCK))
        )
        self.head = each(f"SELECT n FROM {head} WHERE {equal}")
        self.take = None if self.lock is None else each(f"SELECT 1 FROM {head} WHERE {equal} FOR UPDATE")
        self.all = each(f"SELECT {dialect.names(member)} FROM {rows} WHERE {equal}")
        self.delete = write(f"DELETE {by_key(dialect, rows)} WHERE {equal}")
        self.empty = write(f"UPDATE {head} SET n = 0 WHERE {equal}")
        self.drop = write(f"DELETE FROM {head} WHERE {equal}")
        self.first_keys, self.later_keys = self.key_after(head)
        self._columns_out = dialect.column_encoder(pair) or same_columns
        self.member_out: Callable[[Row], Row] = dialect.encoder(member) or same
        one_add = ONE_ADD.get(dialect.name, "")
        lock, locked = (each.format(**words) for each in ONE_LOCK.get(dialect.name, ("", "")))
        self._one_add = one_add.format(**words, lock="", locked="")
        self._one_add_joined = one_add.format(**words, lock=lock, locked=locked)
        of_key = dialect.equal(key, "r.")
        self._one_member = self.question_sql(
            f"r.{dialect.name_of(key[0])}", rows, f"{of_key} AND {dialect.equal(member, 'r.')}"
        )
        self._one_size = self.question_sql("r.n", head, of_key)
        self._one_set = self.question_sql(dialect.names(member, "r."), rows, of_key)
        self._member_in: Callable[[Row], Row] = dialect.decoder(member) or same

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables: every row has a head, and the count is right."""
        yield has_head(self)
        yield counted(self)

    def take_heads(self, operations: Operations, context: Context) -> Generator[Wanted, Any, Locked]:
        """Create or lock the heads of keys that get members, and lock those of the other keys that are written."""
        made = {
            head for op in operations if op.verb in ("add", "add_all") and pairs_of(op) for head in self.heads_of(op)
        }
        taken = {head for op in operations if op.writes for head in self.heads_of(op)}
        if not taken:
            return False
        return (yield from self.make_or_take(made, taken, context, 0))[0]

    def plan_change(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Simulate adds and removes in Python, in their order, and write their net effect."""
        rows, adds = changes_of(run)
        columns = self._columns_out(list(zip(*rows, strict=True))) if rows else ()
        pairs: list[Row] = list(zip(*columns, strict=True))
        keys: list[Row] = list(zip(*columns[: self.key_width], strict=True))
        if self.lock is not None and locked is False:
            locked = yield from self.take_heads(run, context)
        named = set(zip(pairs, keys, strict=True))
        asked = sorted([pair for pair, key in named if is_locked(key, locked)])
        find = self.find_now if context.joined else self.find
        found = yield Statement(find, asked)
        if locked is False:
            yield Control.LOCKED
        before = dict.fromkeys(pairs, False) | dict(zip(asked, map(bool, found), strict=True))
        now = dict(before)
        changed: list[bool] = []
        for pair, there in zip(pairs, adds, strict=True):
            changed.append(now[pair] is not there)
            now[pair] = there
        sizes: dict[Row, int] = {}
        for key, there in compress(zip(keys, adds, strict=True), changed):
            sizes[key] = sizes.get(key, 0) + (1 if there else -1)
        new = [pair for pair, there in now.items() if there and not before[pair]]
        gone = [pair for pair, there in now.items() if not there and before[pair]]
        heads = [(*key, change) for key, change in sorted(sizes.items())]
        resize = self.resize
        if gone and self.sizes is not None and self.put_size is not None:
            found = yield Statement(self.sizes, [head[:-1] for head in heads])
            heads = [
                (*head[:-1], (rows[0][0] if rows else 0) + head[-1]) for head, rows in zip(heads, found, strict=True)
            ]
            resize = self.put_size
        if new:
            yield Statement(self.put, new)
        if gone:
            yield Statement(self.cut, gone)
        if heads:
            yield Statement(resize, heads)
        return answers(run, changed)

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose heads an operation locks."""
        if op.verb in RUNS:
            return {self.key_out(pair[: self.key_width]) for pair in op.args}
        return super().heads_of(op)

    def exchange_add(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Add one member."""
        key, members = op.args
        if len(members) != 1:
            return None
        stored = self.key_out(key)
        row = stored + self.member_out(members[0]) + stored
        if context.joined:
            return Exchange(self._one_add_joined, stored + row, ADDED[self.dialect.name], "FROM c", int)
        return Exchange(self._one_add, row, ADDED[self.dialect.name], "FROM c", int)

    def transact_add(self, op: Operation[Any], _: Context) -> Transaction:
        """Add one member."""
        return self._one(op, self.put, 1)

    def transact_remove(self, op: Operation[Any], _: Context) -> Transaction:
        """Remove one member."""
        return self._one(op, self.cut, -1)

    def _one(self, op: Operation[Any], write: Template, change: int) -> Transaction:
        key, members = op.args
        if len(members) != 1:
            raise Careful
        stored = self.key_out(key)
        pair = stored + self.member_out(members[0])
        found = yield self._one_member, pair
        if not found:
            raise Careful  # the declaration is not stored
        if _is_there(found) is (change > 0):
            return 0
        yield write.sql, pair
        yield self.resize.sql, (*stored, change)
        return 1

    def plan_members(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read all members."""
        found = yield Statement(self.all, [self.key_out(op.args[0]) for op in run])
        value, convert = self.structure.member.value, self._member_in
        return [{value(convert(row)) for row in rows} for rows in found]

    def plan_contains(self, run: Operations, _: Context, __: bool) -> Plan:
        """Look up pairs."""
        asked = [self.key_out(op.args[0]) + self.member_out(op.args[1]) for op in run]
        found = yield Statement(self.find, asked)
        return [bool(rows) for rows in found]

    def plan_size(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read the heads."""
        found = yield Statement(self.head, [self.key_out(op.args[0]) for op in run])
        return [rows[0][0] if rows else 0 for rows in found]

    def ask_contains(self, op: Operation[Any], _: Context) -> Question:
        """Look up one pair."""
        key, member = op.args
        return Question(self._one_member, self.key_out(key) + self.member_out(member), _is_there)

    def ask_size(self, op: Operation[Any], _: Context) -> Question:
        """Read one head."""
        return Question(self._one_size, self.key_out(op.args[0]), _size)

    def ask_members(self, op: Operation[Any], _: Context) -> Question:
        """Read the members of one set."""
        return Question(self._one_set, self.key_out(op.args[0]), self._members)

    def _members(self, rows: list[Row]) -> set[Any]:
        if rows[0][0] is None:
            return set()
        value, convert = self.structure.member.value, self._member_in
        return {value(convert(row)) for row in rows}

    def plan_clear(self, run: Operations, _: Context, locked: Locked) -> Plan:
        """Remove all members; the head stays."""
        return (yield from self.remove_keys(run, locked, self.delete, self.empty))

    def plan_forget(self, run: Operations, _: Context, locked: Locked) -> Plan:
        """Remove all members and the head."""
        return (yield from self.remove_keys(run, locked, self.delete, self.drop))


def pairs_of(op: Operation[Any]) -> Sequence[Row]:
    """Return the pairs of a key and a member that an operation adds or removes."""
    if op.verb in RUNS:
        return op.args
    key, members = op.args
    return [key + member for member in members]


def changes_of(run: Operations) -> tuple[list[Row], list[bool]]:
    """Return the pairs of operations in their order, and which of them are added."""
    rows: list[Row] = []
    adds: list[bool] = []
    for op in run:
        of_one = pairs_of(op)
        rows += of_one
        adds += [op.verb != "remove"] * len(of_one)
    return rows, adds


def answers(run: Operations, changed: Sequence[bool]) -> list[Any]:
    """Return the results of operations. changed: for each of their pairs, whether it changed something."""
    each = iter(changed)
    return [list(islice(each, len(op.args))) if op.verb in RUNS else sum(islice(each, len(op.args[1]))) for op in run]


def _is_there(rows: list[Row]) -> bool:
    return rows[0][0] is not None


def _size(rows: list[Row]) -> int:
    n: int | None = rows[0][0]
    return 0 if n is None else n
