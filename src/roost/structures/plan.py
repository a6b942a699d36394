"""The common part of all plans. A plan is a generator that yields statements, receives their answers, returns results.

It does no I/O, so one plan serves every engine, in threads and in asyncio, and is tested without a database. Each of
its results is a value, or an error that concerns that one operation; what it raises concerns the whole batch.

Longer than 500 lines: it goes when the last structure has moved to stored programs (`program.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from roost.dialects.dialect import Answer, Control, Dialect, Exchange, Gather, Row, Statement, Template, Wanted
from roost.errors import Error, Invalid, Mismatch
from roost.structures.clock import Seen
from roost.structures.operation import RUNS, Operation
from roost.structures.overlap import difference, overlap
from roost.structures.steps import Routine
from roost.structures.structure import Structure
from roost.structures.wire import Wire
from roost.types.column_types import CHECKS, ColumnType, Refused
from roost.types.columns import Column

# Yields statements and control words, receives their answers (see `Statement`), and returns one result per operation,
# in their order.
Plan = Generator[Wanted, Any, list[Any]]
Operations = Sequence[Operation[Any]]
# The keys whose heads a run has locked already; False: none yet; True: all (SQLite's one writer). The rows of a key
# whose head is not locked are not touched: a key without a head has none, and somebody else may be adding the first.
Locked = Collection[Row] | bool

same: Callable[[Row], Row] = tuple  # the converter of columns that need none: it returns the row itself

PLAIN = {"int", "text", "bool", "binary", "uuid", "enum"}  # kinds whose text does not depend on a session's settings

MOST_FOUND = 250  # expired rows that are found at most behind those that others hold
MOST_OVERLAPS = 10  # definitions for which a declaration remembers its plan
MOST = 100  # violations of one rule that `check` reports
MORE = f"there are more than these {MOST}"

# Roost's own columns, in addition to the user's.
SLOT = Column("slot", ColumnType("int"))
SEQUENCE = Column("sequence", ColumnType("int"))
AT = Column("at", ColumnType("datetime"))
N = Column("n", ColumnType("int"))

_utc: Callable[[Any], dt.datetime] = CHECKS[AT.type.kind](AT.type)


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of a run that a plan may use; none of them decides an order."""

    clock: Callable[[], dt.datetime]  # for the column `at`, in UTC
    spot: int  # a store's own random number; picks its slots of counters
    joined: bool = False  # inside the application's own transaction
    careful: bool = False  # an optimistic attempt has failed
    nowait: bool = False  # do not wait for locks that other sessions hold
    seen: dict[str, Seen] = field(default_factory=dict)  # by structure, what a store has seen of its time
    # By structure: keys that were read, whose use is to be stored.
    used: dict[str, dict[Row, None]] = field(default_factory=dict)

    def carefully(self) -> Context:
        """Return the context for running a batch again after `Careful`."""
        return replace(self, careful=True)

    def without_waiting(self) -> Context:
        """Return the context for running a batch without waiting for locks."""
        return replace(self, nowait=True)


def in_utc(clock: Callable[[], dt.datetime]) -> Callable[[], dt.datetime]:
    """Return a clock that returns the same times in UTC, as columns store them; `Invalid` for one without a zone."""

    def now() -> dt.datetime:
        moment = clock()
        if type(moment) is dt.datetime and moment.tzinfo is dt.UTC:
            return moment
        try:
            return _utc(moment)
        except Refused as refused:
            raise Invalid(f"the store's clock: {refused}") from None

    return now


# MariaDB's and MySQL's way to delete many rows by key: the first SELECT gives the list the columns' types and
# collations, and the order of the join prevents a scan of the table. On MariaDB, IN over rows scans, locks every row
# that it reads, and deadlocks. The index is named because a table with a few rows would be scanned, whatever is joined.
CUT_JOINED = """\
DELETE r FROM (SELECT {pairs} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r FORCE INDEX (PRIMARY) ON {same_pair}"""

# Deletes rows by their key and the columns that identify them within it.
CUT = {
    "sqlite": Template("DELETE FROM {rows} WHERE {equal_pair}"),
    "mariadb": Template(CUT_JOINED, Gather.VALUES),
    "mysql": Template(CUT_JOINED, Gather.ROWS),
    "postgresql": Template(
        "DELETE FROM {rows} AS r USING unnest({pair_arrays}) AS q ({pairs}) WHERE {same_pair}", Gather.ARRAYS
    ),
}


Facts = dict[str, Any]  # of a definition
Alteration = Callable[[Any, Facts, Facts], Generator[Wanted, Any, None]]

# A rule that `check` verifies: its name, and a query for the keys that violate it; the last column describes how.
Rule = tuple[str, str]


# What runs the operations of one verb, given the keys that are locked already.
Verb = Callable[[Operations, Any, Any], Plan]


class Careful(Exception):
    """Raised by a plan whose optimistic statement failed: undo the batch, and run it again with `careful`."""


class Question(NamedTuple):
    """One operation that only reads, as one statement with its own snapshot.

    answer: makes the result from the fetched rows.
    compares: the statement also compares the declaration: there are no rows if it is not stored.
    """

    sql: str
    row: Row
    answer: Callable[[list[Row]], Any]
    compares: bool = True


# On SQLite: one operation as a transaction of its own. Yields texts with their parameters, and receives the rows of
# each. The first one fails if the declaration is not stored. Unusual cases (a duplicate, a full collection) raise
# `Careful`: a batch handles them.
Transaction = Generator[tuple[str, Row], list[Row], Any]


class TargetPlan:
    """A target of operations, in one dialect's words."""

    structure: Any

    def run(self, operations: Operations, context: Context) -> Plan:
        """Plan operations of this target, in their order."""
        raise NotImplementedError

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose heads an operation locks."""
        raise NotImplementedError


class StructurePlan(TargetPlan):
    """One structure in one dialect's words: the statements that make its tables, and the plan of its operations."""

    structure: Structure
    made_by: str  # the advice to be given if it is missing
    tables: tuple[str, ...]
    indexes: tuple[str, ...] = ()  # the indexes that `check` looks for
    form: Sequence[str] = ()  # the columns of a row in the order in which its programs are given them
    routines: tuple[Routine, ...] = ()  # its programs; a structure without any is kept by its plan
    alterations: ClassVar[Mapping[str, Alteration]] = {}  # by fact, what `alter` does to the rows
    views: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}  # by dialect, the parts of its SQL view
    together: Mapping[str, str] = {}  # verbs that one run simulates together, in their order
    wire: ClassVar[type[Wire] | None] = Wire  # its behaviour over HandlerSocket; None: that of a table
    lock: Template | None = None  # locks the heads of a run of mixed operations; SQLite's one writer needs none

    def __init__(self, structure: Structure, dialect: Dialect) -> None:
        self.structure = structure
        self.dialect = dialect
        name, key = structure.name, structure.key.columns
        self.rows_table = f"roost_{name}_rows"
        self.head_table = f"roost_{name}_head"
        self.made_by = f"store.create({name}) makes it"
        self.layout: dict[str, tuple[Column, ...]] = {}
        self.key_width = len(key)
        self.key_out: Callable[[Row], Row] = dialect.encoder(key) or same
        self._key_in: Callable[[Row], Row] = dialect.decoder(key) or same
        self.by_settings = not {column.type.kind for column in structure.columns} <= PLAIN
        self.trusted_by: set[object] = set()  # tokens of the stores that have found this declaration in their catalogs
        self.followed: dict[object, StructurePlan] = {}  # by such tokens: the plan of what is stored, where it differs
        self.overlaps = False  # it is one of `as_stored`, for operations of another declaration
        self._as_stored: dict[str, StructurePlan] = {}
        self.stored = Statement(definition_of(dialect), [(name,)])
        # A writer prevents changes of the definition until its COMMIT.
        self.held = self.stored
        if dialect.for_share:
            self.held = Statement(definition_of(dialect, dialect.for_share), [(name,)])
        self.held_nowait = Statement(definition_of(dialect, dialect.for_share + dialect.nowait), [(name,)])
        # LOCK TABLE fails if the table is missing, so only a store that has found the declaration sends it.
        self.writing = dialect.lock_table.format(self.rows_table, "ROW EXCLUSIVE")
        self.altering = dialect.lock_table.format(self.rows_table, "SHARE ROW EXCLUSIVE")
        # What such a store sends along with a batch's first statement, if it writes, to compare the definition.
        self.compared = (Statement(Template(self.writing), [()]), self.stored) if self.writing else (self.held,)
        self.seize = seizing(dialect, self.head_table, key)
        self._verbs = self._made("plan_")
        self._verbs |= {verb: self._verbs[run] for verb, run in self.together.items()}
        literal = dialect.literal
        self.is_stored = f"c.name = {literal(name)} AND c.definition = {literal(structure.definition)}"
        if dialect.placeholder == "%s":
            self.is_stored = self.is_stored.replace("%", "%%")
        self.stays_stored = self.is_stored + dialect.for_share
        if self.writing:
            # After the table lock a statement has a new snapshot, except in a transaction that keeps its first one.
            shared = f"SELECT FROM roost_catalog d WHERE d.name = {literal(name)}{dialect.for_share}"
            committed = dialect.read_committed
            self.stays_stored = f"{self.is_stored} AND CASE WHEN {committed} THEN true ELSE EXISTS ({shared}) END"
        # The forms of a single operation, by its verb: one statement that reads (`Careful` if it has to write after
        # all), or a transaction of its own. If it has neither, or the function returns None, it needs a batch.
        self.questions: dict[str, Callable[[Operation[Any], Context], Question | None]] = {}
        self.transactions: dict[str, Callable[[Operation[Any], Context], Transaction | Exchange | None]] = {}
        if dialect.singles:
            self.questions = self._made("ask_")
            self.transactions = self._made("exchange_" if dialect.exchanges else "transact_")

    def _made(self, prefix: str) -> dict[str, Any]:
        return {each.removeprefix(prefix): getattr(self, each) for each in dir(type(self)) if each.startswith(prefix)}

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables, besides those of all structures: that values fit their columns."""
        return iter(())

    def broken(self) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
        """Return violations that are not found by queries for keys: a rule, the key, and a description."""
        yield from ()
        return []

    @property
    def has_view(self) -> bool:
        """Whether plain SQL clients can have a view of it."""
        return self.dialect.views and self.dialect.name in self.views

    def guarded(self, value: str) -> str:
        """Return an expression for a value; it is NULL if the declaration is not stored, which its column refuses."""
        return f"(SELECT {value} FROM roost_catalog c WHERE {self.stays_stored})"

    def question_sql(self, columns: str, source: str, condition: str, order: str = "") -> str:
        """Return the text of a `Question`: rows of `source`, called r, or one row of NULLs if none meets the condition.

        columns: the first of them is never NULL in a row.
        """
        return (
            f"SELECT {columns} FROM roost_catalog c LEFT JOIN {source} r ON {condition}\n"
            f"  WHERE {self.is_stored}{order}"
        )

    def as_stored(self, definition: str) -> StructurePlan | Error:
        """Return the plan for the stored declaration, if it differs; `Mismatch` if this one cannot be used with it."""
        found = self._as_stored.get(definition)
        if found is None:
            structure = overlap(self.structure, definition)
            if structure is None:
                return Mismatch(
                    f"{self.structure.name} is declared otherwise than it is stored: "
                    f"{difference(definition, self.structure.definition)}"
                )
            if len(self._as_stored) >= MOST_OVERLAPS:
                self._as_stored.clear()
            found = self._as_stored[definition] = type(self)(structure, self.dialect)
            found.overlaps = True
        return found

    def run(self, operations: Operations, context: Context) -> Plan:
        """Plan operations of this structure, in their order."""
        if context.nowait and self.seize is not None:
            yield Statement(self.seize, self.seized(operations, context))
        if len(operations) == 1:
            only: list[Any] = yield from self._verbs[operations[0].verb](operations, context, False)
            return only
        together = self.together
        kind = (lambda op: together.get(op.verb, op.verb)) if together else attrgetter("verb")
        runs = [(verb, list(run)) for verb, run in groupby(operations, kind)]
        locked: Locked = False
        if len(runs) > 1 and (self.lock is not None or self.routines):
            locked = yield from self.take_heads(operations, context)
        results: list[Any] = []
        for verb, run in runs:
            results += yield from self._verbs[verb](run, context, locked)
            if locked is False:
                locked = True
        return results

    def take_heads(self, operations: Operations, context: Context) -> Generator[Wanted, Any, Locked]:
        """Take the locks for all rows that operations of several kinds write; return the keys that are locked."""
        locks = self.locks(operations, context)
        if not locks:
            return False
        assert self.lock is not None
        keys = [lock[: self.key_width] for lock in locks]
        yield from self.take_seen(keys, context)
        yield Statement(self.lock, locks)
        yield Control.LOCKED
        return keys

    def make_or_take(
        self, made: set[Row], taken: set[Row], context: Context, *fill: Any
    ) -> Generator[Wanted, Any, tuple[set[Row], Any]]:
        """Create or lock the heads of some keys, and lock those of others if they exist; return the locked keys.

        A head that is created for a key to which nothing is added could not be distinguished from a cleared one.
        """
        assert self.lock is not None
        answer: Any = None
        if made:
            yield from self.take_seen(sorted(made), context)
            answer = yield Statement(self.lock, [(*key, *fill) for key in sorted(made)])
        there = yield from self.take_existing(sorted(taken - made))
        yield Control.LOCKED
        return made | there, answer

    def take_existing(self, keys: Sequence[Row]) -> Generator[Wanted, Any, set[Row]]:
        """Lock the heads of the keys that have one; return these keys."""
        if self.take is None:
            return set(keys)
        there: set[Row] = set()
        for _ in range(2):  # PostgreSQL does not show a head that was deleted and made again while it was waited for
            missing = [key for key in keys if key not in there]
            found = (yield Statement(self.take, missing)) if missing else []
            there.update(key for key, rows in zip(missing, found, strict=True) if rows)
        return there

    def take_seen(
        self, keys: Sequence[Row], context: Context, take: Template | None = None
    ) -> Generator[Wanted, Any, None]:
        """Fail with `Conflict` if another session has deleted a head since the application's transaction began.

        At REPEATABLE READ, PostgreSQL's INSERT … ON CONFLICT would not find it, and make a second one; a locking read
        fails.
        """
        take = take or self.take
        if context.joined and take is not None and self.dialect.lock_table:
            yield Statement(take, keys)

    def seized(self, operations: Operations, context: Context) -> list[Row]:
        """Return the parameters of `seize` for the rows that operations write, in the order of locks."""
        return sorted({head for op in operations if op.writes for head in self.heads_of(op)})

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """Return the parameters of `lock` for the keys that operations write, in key order."""
        raise NotImplementedError

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose heads an operation locks."""
        return [self.key_out(op.args[0])]

    def key_value(self, stored: Sequence[Any]) -> Any:
        """Return the caller's key for the stored columns of one."""
        return self.structure.key.value(self._key_in(tuple(stored)))

    def key_after(self, table: str) -> tuple[Template, Template]:
        """Return the statements that list a table's keys: the first ones, and those after a key."""
        names = self.dialect.names(self.structure.key.columns)
        head = f"SELECT DISTINCT {names} FROM {table}"
        tail = f"ORDER BY {names} LIMIT {self.dialect.placeholder}"
        where = f"WHERE ({names}) > ({self.dialect.holes(self.key_width)})"
        return each(f"{head} {tail}"), each(f"{head} {where} {tail}")

    def plan_keys(self, run: Operations, context: Context, _: bool) -> Plan:
        """List keys."""
        results = []
        now = self.moment(context)
        for op in run:
            after, n = op.args
            if after is None:
                found = yield Statement(self.first_keys, [(*now, n)])
            else:
                found = yield Statement(self.later_keys, [(*now, *self.key_out(after), n)])
            results.append([self.key_value(row) for row in found[0]])
        return results

    def moment(self, context: Context) -> Row:
        """Return the parameters of the current moment, with which the statements that list keys begin."""
        return ()

    first_keys: Template
    later_keys: Template
    take: Template | None = None  # locks a head that exists; SQLite's one writer needs none

    def remove_keys(self, run: Operations, locked: Locked, rows: Template, head: Template | None) -> Plan:
        """Delete the rows of keys, and run `head` for their heads; the results are the numbers of rows."""
        there = yield from self.removable(run, locked)
        results = []
        for key, is_there in there:
            results.append((yield Statement(rows, [key])) if is_there else 0)
            if head is not None and is_there:
                yield Statement(head, [key])
        return results

    def removable(self, run: Operations, locked: Locked) -> Generator[Wanted, Any, list[tuple[Row, bool]]]:
        """Return the keys of operations that remove all of a key, and whether its head is there, and locked."""
        keys = [self.key_out(op.args[0]) for op in run]
        if locked is False:
            locked = yield from self.take_existing(sorted(set(keys)))
            yield Control.LOCKED
        return [(key, is_locked(key, locked)) for key in keys]

    def create(self, table: str, columns: Sequence[Column], primary: str) -> str:
        """Return a CREATE TABLE statement, and remember the layout for `check`."""
        self.layout[table] = tuple(columns)
        lines = ",\n  ".join([*map(self.dialect.declared, columns), f"PRIMARY KEY ({primary})"])
        return f"CREATE TABLE {table} (\n  {lines}\n){self.dialect.table_options}"


def is_locked(key: Row, locked: Locked) -> bool:
    """Whether a key may be touched, now that all locks are taken."""
    return isinstance(locked, bool) or key in locked


def replaced(dialect: Dialect, unknown: Sequence[Column], names: Sequence[str], given: str) -> str:
    """Return the assignments by which an upsert replaces a row: `a = excluded.a, b = excluded.b`.

    unknown: the stored columns that the declaration does not know. They get their defaults, as in a new row.
    """
    default = "excluded.{}" if dialect.name == "sqlite" else "DEFAULT"
    assigned = [f"{name} = {given.format(name)}" for name in names]
    assigned += [f"{name} = {default.format(name)}" for name in map(dialect.name_of, unknown)]
    return ", ".join(assigned)


# Of a single operation in the application's transaction: `StructurePlan.take_seen`, before its INSERT.
LOCK_SEEN = {
    "postgresql": ("k AS (SELECT FROM {head} WHERE {equal} FOR UPDATE),\n", " WHERE (SELECT count(*) FROM k) >= 0")
}


def definition_of(dialect: Dialect, lock: str = "") -> Template:
    """Make the template that reads a definition from the catalog, by name."""
    return each(f"SELECT definition FROM roost_catalog WHERE name = {dialect.placeholder}{lock}")


def seizing(dialect: Dialect, table: str, columns: Sequence[Column]) -> Template | None:
    """Make the template that locks existing rows, or fails at once; None if every statement can do so itself.

    A row that another session has inserted and not committed exists, too.
    """
    if not dialect.nowait:
        return None
    where = dialect.equal(columns)
    return Template(
        f"(SELECT {{i}} FROM {table} WHERE {where}{dialect.for_update}{dialect.nowait})", Gather.UNION, Answer.ORDINAL
    )


def locking(template: Template, dialect: Dialect) -> Template:
    """Return the query for the application's transaction: it reads what is committed now, whatever the snapshot.

    Plain reads of MariaDB and MySQL see the snapshot under REPEATABLE READ, rows that others have evicted since; a
    locking read never does. PostgreSQL has failed by then (40001): whoever changes rows writes a new version of their
    head, and to lock one that the snapshot does not have is refused. SQLite's one writer has the newest state.
    """
    if dialect.family != "mariadb":
        return template
    sql = template.sql
    if template.gather is Gather.UNION:  # each part locks for itself
        return replace(template, sql=f"({sql.removeprefix('(').removesuffix(')')}{dialect.for_update})")
    return replace(template, sql=f"{sql}{dialect.for_update}")


def locking_free(dialect: Dialect, table: str, columns: Sequence[Column], column: str) -> Template | None:
    """Make the template of `free`; None where one statement finds, locks and deletes rows.

    column: the one with the moment at which a row expires.
    """
    if dialect.family != "mariadb":
        return None
    return Template(
        f"(SELECT {{i}}, 1 FROM {table} WHERE {dialect.equal(columns)} AND {column} <= %s FOR UPDATE SKIP LOCKED)",
        Gather.UNION,
        Answer.ORDINAL,
    )


def free(
    lock: Template | None, find: Template, found: Sequence[Row], moment: int, limit: int
) -> Generator[Wanted, Any, list[Row]]:
    """Lock expired rows by their primary key; return those that are still so, and that nobody else holds.

    MariaDB cannot skip locked rows in a DELETE, and a search by the moment would lock the living row behind the range.

    find: has found rows, at most `limit`; it looks further where held rows stand before others.
    """
    if lock is None:
        return list(found)
    width = lock.sql.count("%s") - 1
    left: list[Row] = list(found)
    for further in (True, False):
        rows = left
        there = (yield Statement(lock, [(*row[:width], moment) for row in rows])) if rows else []
        left = [row for row, is_free in zip(rows, there, strict=True) if is_free]
        if not further or len(left) == len(rows) or len(rows) < limit:
            break
        left = (yield Statement(find, [(moment, MOST_FOUND)]))[0]
    return left


def by_key(dialect: Dialect, table: str) -> str:
    """Return `FROM table` of a DELETE by key: MariaDB would scan a table with few rows, and lock all of them."""
    return f"{table} FROM {table} FORCE INDEX (PRIMARY)" if dialect.family == "mariadb" else f"FROM {table}"


def each(sql: str) -> Template:
    """Make the template of a query that is sent once per row."""
    return Template(sql, answer=Answer.ORDINAL)


def write(sql: str, values: str = "") -> Template:
    """Make the template of a modification that is sent once per row.

    values: the SQL in the parentheses after VALUES, if SQLite can take several rows there.
    """
    many = Template(sql.replace(f"VALUES ({values})", "VALUES {{rows}}"), Gather.VALUES) if values else None
    return Template(sql, many=many)


def nth(dialect: Dialect, columns: Sequence[Column]) -> str:
    """Return `r.a = q.column2 AND r.b = q.column3`: SQLite's names of the columns of VALUES, after an ordinal."""
    return " AND ".join(f"r.{dialect.name_of(column)} = q.column{place}" for place, column in enumerate(columns, 2))


def numbered(keys: Sequence[Row], newest: dict[Row, int]) -> list[int]:
    """Return the sequences of rows with these keys; `newest` has those before them, and those of the last ones then."""
    sequences = []
    for key in keys:
        newest[key] = sequence = newest[key] + 1
        sequences.append(sequence)
    return sequences


def dealt(run: Operations, results: Sequence[Any]) -> list[Any]:
    """Return the results of a run's rows as those of its operations: a list for one with many rows."""
    each = iter(results)
    return [list(islice(each, len(op.args))) if op.verb in RUNS else next(each) for op in run]


def composed(encode: Callable[[Any], Any], take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that takes columns out of a row's values and encodes them."""
    return take if encode in (same, same_columns) else lambda values: encode(take(values))


def same_columns(columns: Sequence[Any]) -> Sequence[Any]:
    """Return columns of values that are stored as they are."""
    return columns
