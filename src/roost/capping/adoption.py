"""Turns an existing table into a capped one, in place, and back: look, install, trim, check, release.

All checks come before the first change: a table that cannot be capped safely is refused with the reason. This module
is the same for every dialect; each dialect has its own file for what is made, and how that is compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from roost.capping.cap import EPOCHS, Asking, ForeignKeys, Words, answered, check_unit, tells_no_time
from roost.catalog.catalog import CHANGE, Catalog, make_private
from roost.catalog.private import PRIVATE as CATALOG
from roost.catalog.private import guarded
from roost.dialects.dialect import Control, Row, Statement, Wanted, execute, fetch, query
from roost.errors import Invalid, Missing, StatementFailed
from roost.structures.adopted import Adopted, Cap
from roost.structures.clock import in_words
from roost.structures.plan import MORE, MOST
from roost.structures.registry import from_definition

W = TypeVar("W", bound=Words)
Making = Generator[Wanted, Any, Cap]
Broken = Generator[Statement, Any, list[tuple[str, Row | None, str]]]
Waiting = tuple[Row, list[int]]  # a key that is to be trimmed, and the numbers of its notes (MariaDB)

KEPT = "its rows cannot be deleted: a trigger keeps them, or their key never equals itself, as a FLOAT may"
PRIVATE = ("sqlite_", "roost_", "roostcap_")  # prefixes of tables that do not belong to the application
CHANGED = (
    "is not as Roost makes it (was changed, made by an earlier version of Roost, or by an account that is gone or may "
    "not do it any more)"
)


class Column(NamedTuple):
    """A column of a table, from the database's catalog."""

    name: str
    type: str
    place: int  # in the primary key, from 1; 0 or None: not in it
    numbered: bool  # whether the database generates an integer
    shown: bool  # by SELECT *


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of examining a table before any change."""

    cap: Cap
    old: Cap | None  # as it is capped already
    by: str  # what tells which row is newer, in words
    others: tuple[str, ...]  # tables whose rows go with its own, by ON DELETE CASCADE
    rows: int
    keyless: int  # rows with NULL in a column of the key, or without a time: they are left alone
    keys: int
    full: int  # keys with too many rows
    excess: int  # rows that are too many, or too old
    bytes: int  # about how large the table is; 0 where writers go on while an index is made
    index: str  # how the rows are found, in the database's words; "" when no index leads to them in order
    index_sql: str  # the statement that makes one
    runs_as: str = ""  # what is dangerous about the account with whose rights the table would be kept short


class Adoption(ForeignKeys, ABC, Generic[W]):
    """How tables are capped in one dialect."""

    words_class: type[W]
    definition_sql: ClassVar[str]  # asks for what the catalog has of a table
    table_sql: ClassVar[str]  # asks for its name, and why it cannot be capped
    columns_sql: ClassVar[str]  # asks for each `Column`
    made_sql: ClassVar[str]  # asks for type, name and table of what was made for caps
    integers: ClassVar[frozenset[str]] = frozenset()  # types of columns that can count seconds
    times: ClassVar[dict[str, str]] = {}  # how a type tells the time
    inexact: ClassVar[tuple[str, ...]] = ()  # types of which a value that was read does not find its row again
    by_itself: ClassVar[bool] = True  # whether triggers keep a table short, so that nobody has to come by
    patience: ClassVar[tuple[str, ...]] = ()  # at the beginning: this waits for no lock of the application

    def words(self, cap: Cap) -> W:
        """Return a cap in this dialect's words, as far as the server need not be asked."""
        return self.words_class(cap, self.dialect)

    def here(self, cap: Cap) -> Asking:
        """Return a cap in the words for the table as it is now."""
        return answered(self.words(cap))

    def reading(self, cap: Cap) -> Asking:
        """Return a cap in the words by which its rows are read."""
        yield from self.safe(cap.table)
        return self.words(cap)

    def safe(self, table: str) -> Asking:
        """Raise `Invalid` if the table must not be touched by this account."""
        yield from ()

    def columns(self, table: str) -> Asking:
        """Return the columns of a table, each a `Column`."""
        return [Column(*row) for row in (yield from self.ask(self.columns_sql, table))]

    # Looking

    def look(self, asked: Cap, epoch: str | None) -> Generator[Statement, Any, Inspection]:
        """Return an `Inspection`, which describes the effect of capping a table.

        asked: with names as they were given. epoch: the unit of numbers, s or ms; None if the column has moments.

        `Missing` when there is no such table, `Invalid` with the reason when it cannot be capped.
        """
        table, columns, id_ = yield from self._layout(asked.table, asked.by)
        by = None if asked.by is None else self._named(table, columns, asked.by)
        per = tuple([self._named(table, columns, each) for each in asked.per])
        cap = replace(asked, table=table, id=id_, by=by, per=per)
        if cap.older_than:
            cap = yield from self._timed(cap, epoch)
        elif by in per:
            raise Invalid(
                f"{table}: {by} is a column of the key, the same in all rows of one, so it cannot tell which is newer: "
                "say another --newest-by"
            )
        elif len(set(per)) < len(per):
            raise Invalid(f"{table}: --per names a column twice: {', '.join(per)}")
        yield from self._fits(cap, columns)
        old = yield from self.capped(table)
        if old is not None and bool(old.older_than) is not bool(cap.older_than):
            raise Invalid(
                f"{table} is capped by {'--older-than' if old.older_than else '--keep'} already, and a table is kept "
                f"short by one rule alone; `roost uncap {table}` first"
            )
        yield from self.none_in_the_way(cap)
        others = yield from self.may_lose_rows(table)
        index = yield from self._index(cap)
        cap = replace(cap, index=f" {cap.index_name} (" in f" {index}")
        words = self.words(cap)
        found = yield from fetch(words.count_sql)
        rows, keyless, keys, full, excess = map(int, found[0])
        size, runs_as = (yield from self._size(cap, columns, rows)), (yield from self._runs_as(cap))
        newest = by or ", ".join(id_)
        counts = (rows, keyless, keys, full, excess)
        return Inspection(cap, old, newest, tuple(others), *counts, size, index, words.index_sql, runs_as)

    def _layout(self, table: str, by: str | None) -> Asking:
        # The table's name and columns, and those that identify a row; or raises what keeps it from being capped.
        yield from self.safe(table)
        found = yield from self.ask(self.table_sql, table)
        if not found:
            raise Missing(f"the database has no table {table!r}")
        name, reason = found[0]
        if reason:
            raise Invalid(f"{name} {reason}")
        if name.lower().startswith(PRIVATE):
            whose = name.lower().partition("_")[0].removesuffix("cap")
            raise Invalid(f"{name} belongs to {whose}; only a table of your own can be capped")
        columns = yield from self.columns(name)
        return name, columns, (yield from self._id(name, columns, by))

    def _id(self, table: str, columns: Sequence[Column], by: str | None) -> Asking:
        yield from ()
        primary = sorted([each for each in columns if each.place], key=lambda each: each.place)
        if not primary:
            raise Invalid(f"{table} has no primary key, so nothing tells its rows apart")
        for column in primary:
            if column.type in self.inexact:
                where = f"{table}.{column.name} is a {column.type}"
                raise Invalid(f"{where}, and by a primary key of that type no row is found again")
        if by is None and not (len(primary) == 1 and primary[0].numbered):
            raise Invalid(
                f"{table}: its primary key is not numbered by the database, so nothing tells which row is newer: say "
                "--newest-by COLUMN"
            )
        return tuple([each.name for each in primary])

    def _named(self, table: str, columns: Sequence[Column], given: str) -> str:
        for same in (str, self.folded):
            for each in columns:
                if same(each.name) == same(given):
                    return each.name
        raise Invalid(f"{table} has no column {given!r}; it has {', '.join([each.name for each in columns])}")

    def _timed(self, cap: Cap, epoch: str | None) -> Asking:
        cap = replace(cap, time=(yield from self._time(cap, epoch)))
        if cap.offset and cap.time not in ("plain", "date"):
            raise Invalid(f"{cap.table}.{cap.by} needs no time zone: leave out --utc-offset")
        if epoch:
            check_unit(cap, *(yield from self.words(cap).ends()))
        return cap

    def _time(self, cap: Cap, epoch: str | None) -> Asking:
        (type_,) = [each.type for each in (yield from self.columns(cap.table)) if each.name == cap.by]
        if type_ in self.integers and epoch is not None:
            return EPOCHS[epoch]
        if type_ not in self.times or epoch is not None:
            raise tells_no_time(cap, type_, epoch, type_ in self.integers)
        return self.times[type_]

    @abstractmethod
    def _fits(self, cap: Cap, columns: Sequence[Column]) -> Asking:
        """Raise `Invalid` if a name, or a column of a cap, is unsuitable."""

    def _index(self, cap: Cap) -> Asking:
        # How the rows are found, in their order and without a sort; "" when nothing leads to them.
        width, order = len(cap.per), cap.order[: 1 if cap.older_than or self.sorts_ties else None]
        wanted = [each for each in order if each not in cap.per]
        for name, columns in (yield from self._indexes(cap.table)).items():
            named = [column for column, _ in columns]
            ends = [] if name == "PRIMARY" or self.sorts_ties else [each for each in cap.id if each not in named]
            leads = set(named[:width]) == set(cap.per) and [*named[width:], *ends][: len(wanted)] == wanted
            if leads and all(in_order for _, in_order in columns[: width + len(wanted)]):
                return f"{name} ({', '.join(column or '…' for column in named)})"
        return ""

    def none_in_the_way(self, cap: Cap) -> Asking:
        """Raise `Invalid` if an object has a name that is needed, or is left from the cap of a renamed table."""
        names = {*self.words(cap).triggers, cap.index_name}
        for type_, name, table in (yield from fetch(self.made_sql)):
            is_here = self.folded(table) == self.folded(cap.table)
            if (type_ == "trigger" and name not in names) if is_here else name in names:
                raise Invalid(
                    f"{cap.table}: there is {type_} {name} on {table}, of a cap from before a table was renamed; "
                    "`roost uncap` of the name that the table had removes it"
                )

    def _size(self, cap: Cap, columns: Sequence[Column], rows: int) -> Asking:
        # About how many bytes a table has, where writers wait for as long as an index is made on it.
        return answered(0)

    def _runs_as(self, cap: Cap) -> Asking:
        yield from ()
        if cap.definer:
            raise Invalid("a definer can be named on MariaDB and MySQL alone")
        return ""

    def stored(self, table: str) -> Statement:
        sql = self.definition_sql
        return Statement(query(sql), [(table,) * sql.count(self.dialect.placeholder)])

    def capped(self, table: str) -> Generator[Statement, Any, Cap | None]:
        """Return how a table is capped; None when it is not. `Invalid` when a structure has its name."""
        if not (yield from guarded(self.dialect, ["roost_catalog"])):
            return None
        (found,) = yield self.stored(table)
        if not found:
            return None
        structure = from_definition(found[0][0])
        if not isinstance(structure, Adopted):
            raise Invalid(
                f"{structure.name} is a {structure.kind} of Roost's, which keeps itself short, and no table of yours"
            )
        if self.folded(structure.name) != self.folded(table):
            raise Invalid(f"{table}: its definition is that of {structure.name}")
        return structure.cap

    # Installing

    def before(self, cap: Cap, make_index: bool) -> Asking:
        """Run the statements that are not allowed in a transaction."""
        yield from ()

    def install(self, catalog: Catalog, cap: Cap, old: Cap | None, make_index: bool) -> Making:
        """Enter a table into the catalog and make what keeps it short, and an index if it needs one; return its `Cap`.

        `burst` deletes the rows that are already excess. MariaDB can roll nothing back, so the catalog's entry comes
        first: with it, the created objects can be removed or created again.
        """
        yield Control.LOCK_CATALOG
        for sql in self.patience:
            yield execute(sql)
        yield from self.here(cap)  # whoever runs the command may have been asked meanwhile
        yield from self._probe(cap)
        yield from make_private(catalog)
        now = yield from self.capped(cap.table)
        if now not in (old, cap, replace(cap, index=True)):
            raise Invalid(f"{cap.table} was capped differently by another process just now; try again")
        cap = replace(cap, index=cap.index or make_index, definer=(yield from self._definer(cap)))
        definition = Adopted(cap.table, cap).definition
        if now is None:
            hole = self.dialect.placeholder
            insert = f"INSERT INTO roost_catalog (name, version, definition) VALUES ({hole}, 1, {hole})"
            yield execute(insert, cap.table, definition)
        elif now != cap:
            yield catalog.change(CHANGE, definition, cap.table)
        yield from self._make(cap, now, make_index)
        return cap

    def _definer(self, cap: Cap) -> Asking:
        return answered("")

    def leads(self, cap: Cap) -> Asking:
        """Raise `Invalid` when an index is gone."""
        if not (yield from self._index(cap)):
            raise Invalid(f"{cap.table}: no index leads to {self._led_to(cap)} any more; look again")

    @staticmethod
    def _led_to(cap: Cap) -> str:
        return f"the oldest rows by {cap.by}" if cap.older_than else "a key's rows in their order"

    def _probe(self, cap: Cap) -> Asking:
        # Deletes a row and restores it: a trigger or foreign key may forbid the deletes that INSERTs will do.
        words = self.words(cap)
        yield execute("SAVEPOINT roost_probe")
        try:
            found = yield from fetch(f"SELECT {words.id} FROM {words.table} ORDER BY {words.id} LIMIT 1")
            gone = 0
            for row in found:
                gone = yield execute(words.delete(f"({', '.join([self.dialect.placeholder] * len(row))})"), *row)
        except StatementFailed as error:
            raise Invalid(f"{cap.table}: its rows cannot be deleted, so it cannot be capped ({error})") from error
        if found and not gone:
            raise Invalid(f"{cap.table}: {KEPT}")
        yield execute("ROLLBACK TO SAVEPOINT roost_probe")
        yield execute("RELEASE SAVEPOINT roost_probe")

    @abstractmethod
    def _make(self, cap: Cap, old: Cap | None, make_index: bool) -> Asking:
        """Make the index and the objects that keep a table short, in place of those of `old`."""

    @abstractmethod
    def _drop(self, cap: Cap, index: bool) -> Asking:
        """Remove the objects that keep a table short, and the index."""

    def release(self, table: str) -> Making:
        """Remove every trace of a cap but the rows; `Missing` when the table is not capped."""
        yield Control.LOCK_CATALOG
        yield from guarded(self.dialect, CATALOG, writes=True)
        cap: Cap | None = yield from self.capped(table)
        if cap is None:
            raise Missing(f"{table} is not capped")
        yield from self.safe(cap.table)
        yield from self._drop(cap, cap.index)
        yield execute(f"DELETE FROM roost_catalog WHERE name = {self.dialect.placeholder}", cap.table)
        left = yield from fetch("SELECT (SELECT count(*) FROM roost_catalog) + (SELECT count(*) FROM roost_once)")
        if not left[0][0]:
            for each in Catalog(self.dialect).tables:
                yield execute(f"DROP TABLE {each}")
        return cap

    # Trimming

    def waiting(self, cap: Cap, after: Any, n: int) -> Asking:
        """Return the next keys behind one that have too many rows; by age there is one, (), and it is all rows."""
        words = yield from self.here(cap)
        if cap.older_than:
            over = yield from fetch(f"SELECT 1 FROM {words.table} i WHERE {words.over('i')} LIMIT 1")
            return deque([((), [])] if over and after is None else [])
        behind, values = ("", ()) if after is None else (f" AND {words.behind}", words.after(after))
        found = yield from fetch(words.full_sql.format(behind), *values, n)
        return deque([(row[:-1], []) for row in found])

    def burst(self, cap: Cap, waiting: deque[Waiting], is_over: Callable[[], bool]) -> Generator[Wanted, Any, int]:
        """Delete excess rows of keys until the time is over; finished keys leave the queue. Returns the number of rows.

        Excess rows are determined under the lock: the application may have deleted rows since the keys were listed.
        """
        yield from self.as_made(cap)
        words, deleted = (yield from self.here(cap)), 0
        while waiting:
            gone, done = yield from self._cut(words, waiting[0][0], is_over)
            deleted += gone
            if done:
                yield from self._finished(words, *waiting.popleft())
            if is_over():
                break
        return deleted

    def as_made(self, cap: Cap) -> Asking:
        """Do not wait for locks from now on; raise `Invalid` if the cap was changed in the meantime."""
        for sql in self.patience:
            yield execute(sql)
        if (yield from self.capped(cap.table)) != cap or (yield from self._changed(cap)):
            raise Invalid(
                f"{cap.table} was uncapped, capped differently or made anew meanwhile; nothing more was deleted"
            )

    @abstractmethod
    def _cut(self, words: W, key: Row, is_over: Callable[[], bool]) -> Asking:
        """Delete some excess rows of a key; return how many, and whether none are left."""

    def _finished(self, words: W, key: Row, notes: Sequence[int]) -> Asking:
        yield from ()

    # Checking

    @abstractmethod
    def _changed(self, cap: Cap) -> Asking:
        """Return the names of objects that differ from those that Roost creates."""

    def broken(self, cap: Cap) -> Broken:
        """Return the violations of a table's cap: the rule, the key, and what is wrong."""
        again, uncap = f"`roost cap {cap.table}`", f"`roost uncap {cap.table}`"
        advice = ""
        try:
            yield from self.safe(cap.table)
            advice = f"; {uncap}"
            _, columns, id_ = yield from self._layout(cap.table, cap.by)
        except Invalid as error:
            return [("tables", None, f"{error}{advice}")]
        except Missing as error:
            try:
                yield from self.none_in_the_way(cap)
            except Invalid as kept:  # it was renamed
                return [("tables", None, f"{error}; {kept}")]
            return [("tables", None, str(error))]
        names = [self.folded(each.name) for each in columns]
        if lost := [name for name in (*cap.per, *filter(None, [cap.by])) if self.folded(name) not in names]:
            return [("tables", None, f"{cap.table} has no column {lost[0]} any more; {uncap}")]
        if id_ != cap.id:
            return [("tables", None, f"{cap.table}: {', '.join(cap.id)} tells no rows apart any more; {uncap}")]
        found: list[tuple[str, Row | None, str]] = []
        try:
            yield from self.may_lose_rows(cap.table)
        except Invalid as error:
            found.append(("foreign key", None, str(error)))
        changed: list[str] = yield from self._changed(cap)
        for name in [*changed, *(yield from self.idle(cap))]:
            found.append(("triggers", None, f"{name} {CHANGED}; {again} again replaces it"))
        if not (yield from self._index(cap)):
            reads = "to find what is over" if cap.older_than else "every INSERT"
            found.append(("tables", None, f"no index leads to {self._led_to(cap)}: {reads} reads the table"))
        return found + (yield from (self._too_old(cap, again) if cap.older_than else self._too_many(cap, changed)))

    def _too_many(self, cap: Cap, changed: list[str]) -> Broken:
        full = yield from fetch(self.words(cap).full_sql.format(""), MOST + 1)
        overdue = yield from self._overdue(cap, [row[:-1] for row in full[:MOST]], bool(changed))
        found: list[tuple[str, Row | None, str]] = [
            ("keep", row[:-1], f"{row[-1]:,} rows, keep is {cap.keep:,}; `roost cap {cap.table}` goes on trimming")
            for row in full[:MOST]
            if row[:-1] in overdue
        ]
        return [*found, ("keep", None, MORE)] if len(full) > MOST and overdue else found

    def _too_old(self, cap: Cap, again: str) -> Broken:
        try:
            time = yield from self._time(cap, {time: epoch for epoch, time in EPOCHS.items()}.get(cap.time))
        except Invalid as error:
            return [("tables", None, str(error))]
        if time != cap.time:
            message = f"{cap.table}.{cap.by} tells the time otherwise than it did; {again} goes by that"
            return [("tables", None, message)]
        grace = yield from self.grace(cap)
        if grace is None:
            return []
        words = self.words(replace(cap, older_than=cap.older_than + grace))
        over = yield from fetch(f"SELECT count(*) FROM {words.table} i WHERE {words.over('i')}")
        n = int(over[0][0])
        which = "no pass has deleted them" if grace else f"nobody deletes them; {again} does"
        return [("older_than", None, f"{n:,} rows are older than {in_words(cap.older_than)}, and {which}")] if n else []

    def grace(self, cap: Cap) -> Asking:
        """Return the seconds after which a row that is too old should be gone; None where only writes delete rows."""
        return answered(None)

    def idle(self, cap: Cap) -> Asking:
        return answered([])

    def _overdue(self, cap: Cap, keys: list[Row], changed: bool) -> Asking:
        # Which of the keys that have too many rows should have been trimmed by now.
        return answered(keys)

    # What Python asks for

    def key_values(self, cap: Cap, key: Row) -> Asking:
        """Return a key as its columns have it; `Invalid` if no row can have it."""
        return answered(key)

    def added(self, cap: Cap, key: Row) -> Asking:
        """Trim a key that the library has added to, on engines where no trigger does."""
        yield from ()
