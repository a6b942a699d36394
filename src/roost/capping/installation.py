"""Turns an existing table into a capped collection, in place, and back: look, install, trim, release.

All checks come before the first change: a table that cannot be capped safely is refused with the reason. This module
is the same for every dialect; each dialect has its own file for the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from roost.capping.age import Age, cap_of
from roost.capping.cap import Cap, CapWords, read, write
from roost.capping.foreign_keys import Asking, ForeignKeys
from roost.catalog.catalog import PRIVATE as CATALOG
from roost.catalog.catalog import Catalog, guarded
from roost.dialects.dialect import Control, Row, Statement, Wanted
from roost.errors import Invalid, Missing, StatementFailed
from roost.structures.plan import MORE, MOST
from roost.structures.registry import from_definition

Making = Generator[Wanted, Any, Cap]
Broken = Generator[Statement, Any, list[tuple[str, Row | None, str]]]

SLICE = 50  # rows that one statement of a burst deletes at most: about a millisecond
KEPT = "its rows cannot be deleted: a trigger keeps them, or their key never equals itself, as a FLOAT may"
PRIVATE = ("sqlite_", "roost_", "roostcap_")  # prefixes of tables that do not belong to the application


@dataclass(frozen=True, slots=True)
class Layout:
    """A table as it is now."""

    name: str
    columns: tuple[str, ...]
    id: tuple[str, ...]  # what tells its rows apart


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of examining a table before any change."""

    cap: Cap
    old: Cap | None  # as it is capped already
    by: str  # what tells which row is newer, in words
    others: tuple[str, ...]  # tables whose rows go with its own, by ON DELETE CASCADE
    rows: int
    keyless: int  # rows with NULL in a column of the key: they are left alone
    keys: int
    full: int  # keys with too many rows
    excess: int  # rows that are too many
    bytes: int  # about how large the table is; 0 where writers go on while an index is made
    index: str  # how a key's rows are found, in the database's words; "" when no index leads to them in order
    index_sql: str  # the statement that makes one
    runs_as: str = ""  # what is dangerous about the account with whose rights the table would be kept short


class Adoption(ForeignKeys):
    """How tables are capped in one dialect."""

    definition_of: ClassVar[str]  # asks for what the catalog has of a {name}
    by_itself: ClassVar[bool] = True  # whether triggers keep a table short, so that nobody has to come by
    patience: ClassVar[tuple[str, ...]] = ()  # at the beginning of a burst: it waits for no lock of the application

    def words(self, cap: Cap) -> CapWords:
        """Return a cap in this dialect's words."""
        return CapWords(cap, self.dialect)

    def here(self, cap: Cap) -> Asking:
        """Return a cap in the words for the table as it is now."""
        yield from ()
        return self.words(cap)

    def unsafe(self, table: str) -> Asking:
        """Return why the table must not be touched by this account, an `Invalid`; None if it may be."""
        yield from ()
        return None

    def look(self, table: str, per: Sequence[str], keep: int, newest_by: str | None, definer: str = "") -> Asking:
        """Return an `Inspection`, which describes the effect of capping a table.

        `Missing` when there is no such table, `Invalid` with the reason when it cannot be capped.
        """
        layout = yield from self.layout(table, newest_by)
        by = None if newest_by is None else self._column(layout, newest_by)
        key = tuple([self._column(layout, each) for each in per])
        cap = Cap(layout.name, key, keep, by, layout.id, definer=definer)
        if by in cap.per:
            raise Invalid(
                f"{cap.table}: {by} is a column of the key, the same in all rows of one, so it cannot tell which is "
                "newer: say another --newest-by"
            )
        if len(set(cap.per)) < len(cap.per):
            raise Invalid(f"{cap.table}: --per names a column twice: {', '.join(cap.per)}")
        return (yield from self._found(cap, layout, by))

    def look_at_age(
        self, table: str, by: str, older_than: int, epoch: str | None, offset: int, definer: str = ""
    ) -> Asking:
        """Return the `Inspection` for capping a table by the age of its rows; raises as `look` does."""
        layout = yield from self.layout(table, by)
        at = self._column(layout, by)
        age = Age(layout.name, (), 0, at, layout.id, definer=definer, older_than=older_than, offset=offset)
        age = replace(age, time=(yield from self.time(age, epoch)))
        age.check_offset()
        if age.epoch:
            words = self.words(age)
            by = words.column(age.by)
            oldest = yield read(f"SELECT min({by}) FROM {words.table} WHERE {by} > {age.first}")
            newest = yield read(f"SELECT max({by}) FROM {words.table}")
            age.check_unit(oldest[0][0][0], newest[0][0][0])
        return (yield from self._found(age, layout, age.by))

    def _column(self, layout: Layout, given: str) -> str:
        for same in (str, self.folded):
            for each in layout.columns:
                if same(each) == same(given):
                    return each
        raise Invalid(f"{layout.name} has no column {given!r}; it has {', '.join(layout.columns)}")

    def _found(self, cap: Cap, layout: Layout, by: str | None) -> Asking:
        yield from self.fits(cap)
        old = yield from self.capped(cap.table)
        if old is not None and type(old) is not type(cap):
            rule = "--older-than" if isinstance(old, Age) else "--keep"
            raise Invalid(
                f"{cap.table} is capped by {rule} already, and a table is kept short by one rule alone; "
                f"`roost uncap {cap.table}` first"
            )
        yield from self.none_in_the_way(cap)
        others = yield from self.may_lose_rows(cap.table)
        index = yield from self.index(cap)
        if self.is_own_index(cap, old, index):
            cap = replace(cap, index=True)
        counts = yield from (self._count_by_age(cap) if isinstance(cap, Age) else self._count(cap))
        return Inspection(
            cap=cap,
            old=old,
            by=by or self.default_order(cap),
            others=tuple(others),
            **counts,
            bytes=(yield from self.size(cap, layout.columns, counts["rows"])),
            index=index,
            index_sql=self.words(cap).index_sql,
            runs_as=(yield from self.runs_as(cap)),
        )

    def runs_as(self, cap: Cap) -> Asking:
        """Return what is dangerous about the account with whose rights a table would be kept short; "" if nothing."""
        yield from ()
        if cap.definer:
            raise Invalid("only on MariaDB a definer can be named")
        return ""

    @abstractmethod
    def layout(self, table: str, newest_by: str | None) -> Asking:
        """Return a table's `Layout`, or raise the reason why it cannot be capped."""

    @abstractmethod
    def time(self, age: Age, epoch: str | None) -> Asking:
        """Return how the column of an age tells the time, one of `TIMES`; `Invalid` when it does not.

        epoch: the unit of numbers, s or ms; None where the column has moments.
        """

    @abstractmethod
    def fits(self, cap: Cap) -> Asking:
        """Raise `Invalid` if the columns of a cap are unsuitable."""

    def none_in_the_way(self, cap: Cap) -> Asking:
        """Raise `Invalid` if an object has a name that is needed, or is left from the cap of a renamed table."""
        found = yield self.leftovers(cap)
        if found[0]:
            type_, name, table = found[0][0]
            raise Invalid(
                f"{cap.table}: there is {type_} {name} on {table}, of a cap from before a table was renamed; `roost "
                "uncap` of the name that the table had removes it"
            )

    @abstractmethod
    def leftovers(self, cap: Cap) -> Statement:
        """Return the query for type, name and table of objects that a cap has left when its table was renamed."""

    @abstractmethod
    def index(self, cap: Cap) -> Asking:
        """Return how a key's rows are found, in their order and without a sort; "" when nothing leads to them."""

    def is_own_index(self, cap: Cap, old: Cap | None, index: str) -> bool:
        """Return whether the index that leads to a key's rows is one that Roost has made."""
        return index.startswith(f"{cap.index_name} ")

    def size(self, cap: Cap, columns: Sequence[str], rows: int) -> Asking:
        """Return about how many bytes a table has, where writers wait for as long as an index is made on it."""
        yield from ()
        return 0

    def default_order(self, cap: Cap) -> str:
        """Return in words what tells which row is newer, where nothing was said."""
        return ", ".join(cap.id)

    def stored(self, table: str) -> Statement:
        """Return the question for what the catalog has of a table."""
        sql = self.definition_of.format(name=self.dialect.placeholder)
        return read(sql, *[table] * sql.count(self.dialect.placeholder))

    def capped(self, table: str) -> Asking:
        """Return how a table is capped; None when it is not. `Invalid` when a structure has its name."""
        if not (yield from guarded(self.dialect, ["roost_catalog"])):
            return None
        found = yield self.stored(table)
        if not found[0]:
            return None
        structure = from_definition(found[0][0][0])
        cap = cap_of(structure)
        if cap is None:
            raise Invalid(
                f"there is a structure {structure.name} already, and the catalog can have but one of that name"
            )
        if self.folded(structure.name) != self.folded(table):
            raise Invalid(f"{table}: its definition is that of {structure.name}")
        return cap

    def _count(self, cap: Cap) -> Generator[Statement, Any, dict[str, int]]:
        words = self.words(cap)
        keyless = yield read(f"SELECT count(*) FROM {words.table} WHERE NOT ({words.has_key})")
        counted = yield read(
            "SELECT coalesce(sum(n), 0), count(*), "
            f"coalesce(sum(CASE WHEN n > {cap.keep} THEN 1 ELSE 0 END), 0), "
            f"coalesce(sum(CASE WHEN n > {cap.keep} THEN n - {cap.keep} ELSE 0 END), 0)\n"
            f"  FROM (SELECT count(*) AS n FROM {words.table} WHERE {words.has_key} GROUP BY {words.key}) counted"
        )
        rows, keys, full, excess = map(int, counted[0][0])
        missing = int(keyless[0][0][0])
        return {"rows": rows + missing, "keyless": missing, "keys": keys, "full": full, "excess": excess}

    def _count_by_age(self, age: Age) -> Generator[Statement, Any, dict[str, int]]:
        words = self.words(age)
        counted = yield read(
            f"SELECT count(*), count(i.{self.dialect.quoted(age.by)}),\n"
            f"  coalesce(sum(CASE WHEN {words.over('i')} THEN 1 ELSE 0 END), 0) FROM {words.table} i"
        )
        rows, timed, over = map(int, counted[0][0])
        return {"rows": rows, "keyless": rows - timed, "keys": 0, "full": 0, "excess": over}

    def before(self, cap: Cap, make_index: bool) -> Generator[Statement, Any, None]:
        """Run the statements that are not allowed in a transaction."""
        yield from ()

    @abstractmethod
    def install(self, catalog: Catalog, cap: Cap, old: Cap | None, make_index: bool) -> Making:
        """Enter a table into the catalog and make what keeps it short, and an index if it needs one; return its `Cap`.

        `burst` deletes the rows that are already excess.
        """

    def still(self, cap: Cap, old: Cap | None) -> Asking:
        """Return how the table is capped now; `Invalid` if that is neither as it was examined nor as requested."""
        now = yield from self.capped(cap.table)
        if now not in (old, cap, replace(cap, index=True)):
            raise Invalid(f"{cap.table} was capped differently by another process just now; try again")
        return now

    def leads(self, cap: Cap) -> Asking:
        """Raise `Invalid` when an index is gone."""
        if not (yield from self.index(cap)):
            raise Invalid(f"{cap.table}: no index leads to {cap.led_to} any more; look again")

    def entered(self, catalog: Catalog, cap: Cap, old: Cap | None) -> Asking:
        """Write how a table is capped into the catalog."""
        if old is None:
            hole = self.dialect.placeholder
            insert = f"INSERT INTO roost_catalog (name, version, definition) VALUES ({hole}, 1, {hole})"
            yield write(insert, cap.table, cap.definition)
        elif old != cap:
            yield Statement(catalog.change, [(cap.definition, cap.table)])

    def probe(self, cap: Cap) -> Asking:
        """Delete a row and restore it: a trigger or foreign key may forbid the deletes that INSERTs will do."""
        words = self.words(cap)
        yield write("SAVEPOINT roost_probe")
        try:
            found = yield read(f"SELECT {words.id} FROM {words.table} ORDER BY {words.id} LIMIT 1")
            gone = 0
            for row in found[0]:
                gone = yield write(words.delete(f"({', '.join([self.dialect.placeholder] * len(row))})"), *row)
        except StatementFailed as error:
            raise Invalid(f"{cap.table}: its rows cannot be deleted, so it cannot be capped ({error})") from error
        if found[0] and not gone:
            raise Invalid(f"{cap.table}: {KEPT}")
        yield write("ROLLBACK TO SAVEPOINT roost_probe")
        yield write("RELEASE SAVEPOINT roost_probe")

    @abstractmethod
    def drop(self, cap: Cap, keep_index: bool) -> Asking:
        """Remove the objects that keep a table short."""

    def release(self, table: str) -> Generator[Wanted, Any, Cap]:
        """Remove every trace of a cap but the rows; `Missing` when the table is not capped."""
        yield Control.LOCK_CATALOG
        yield from guarded(self.dialect, CATALOG, writes=True)
        cap: Cap | None = yield from self.capped(table)
        if cap is None:
            raise Missing(f"{table} is not capped")
        if unsafe := (yield from self.unsafe(cap.table)):
            raise unsafe
        yield from self.drop(cap, keep_index=False)
        yield write(f"DELETE FROM roost_catalog WHERE name = {self.dialect.placeholder}", cap.table)
        left = yield read("SELECT count(*) FROM roost_catalog")
        if not left[0][0][0]:
            for table in Catalog(self.dialect).tables:
                yield write(f"DROP TABLE {table}")
        return cap

    def full_keys(self, cap: Cap, after: Row | None, n: int) -> Asking:
        """Return the next keys behind one that have too many rows."""
        words = yield from self.here(cap)
        if isinstance(cap, Age):  # one key that is none: all rows
            over = yield read(f"SELECT 1 FROM {words.table} i WHERE {words.over('i')} LIMIT 1")
            return [()] if over[0] and after is None else []
        behind = "" if after is None else f" AND {words.behind}"
        found = yield read(
            f"SELECT {words.key} FROM {words.table} WHERE {words.has_key}{behind} GROUP BY {words.key}\n"
            f"  HAVING count(*) > {cap.keep} ORDER BY {words.key} LIMIT {self.dialect.placeholder}",
            *(() if after is None else words.after(after)),
            n,
        )
        return found[0]

    def burst(self, cap: Cap, keys: deque[Row], is_over: Callable[[], bool]) -> Generator[Wanted, Any, int]:
        """Delete excess rows of keys until the time is over; finished keys leave the queue. Returns the number of rows.

        Excess rows are determined under the lock: the application may have deleted rows since the keys were listed.
        """
        yield from self.as_made(cap)
        words, deleted = (yield from self.here(cap)), 0
        while keys:
            gone, done = yield from self.cut(words, keys[0], is_over)
            deleted += gone
            if done:
                keys.popleft()
            if is_over():
                break
        return deleted

    def as_made(self, cap: Cap) -> Asking:
        """Do not wait for locks from now on; raise `Invalid` if the cap was changed in the meantime."""
        for sql in self.patience:
            yield write(sql)
        if (yield from self.capped(cap.table)) != cap or (yield from self.changed(cap)):
            raise Invalid(
                f"{cap.table} was uncapped, capped differently or made anew meanwhile; nothing more was deleted"
            )

    @abstractmethod
    def cut(self, words: CapWords, key: Row, is_over: Callable[[], bool]) -> Asking:
        """Delete some excess rows of a key; return how many, and whether none are left."""

    @abstractmethod
    def changed(self, cap: Cap) -> Asking:
        """Return the names of objects that differ from those that Roost creates."""

    def broken(self, cap: Cap) -> Broken:
        """Return the violations of a table's cap: the rule, the key, and what is wrong."""
        try:
            layout = yield from self.layout(cap.table, cap.newest_by)
        except Invalid as error:
            return [("tables", None, str(error))]
        except Missing as error:
            try:
                yield from self.none_in_the_way(cap)
            except Invalid as kept:  # it was renamed
                return [("tables", None, f"{error}; {kept}")]
            return [("tables", None, str(error))]
        if unfit := self.unfit(cap.table):
            return [("tables", None, f"{unfit}; `roost uncap {cap.table}`")]
        names = [self.folded(name) for name in layout.columns]
        wanted = [*cap.per, *([cap.newest_by] if cap.newest_by else [])]
        if lost := [name for name in wanted if self.folded(name) not in names]:
            return [("tables", None, f"{cap.table} has no column {lost[0]} any more; `roost uncap {cap.table}`")]
        if layout.id != cap.id:
            message = f"{', '.join(cap.id)} tells no rows apart any more"
            return [("tables", None, f"{cap.table}: {message}; `roost uncap {cap.table}`")]
        found: list[tuple[str, Row | None, str]] = []
        try:
            yield from self.may_lose_rows(cap.table)
        except Invalid as error:
            found.append(("foreign key", None, str(error)))
        why = (
            "was changed, made by an earlier version of Roost, or by an account that is gone or may not do it any more"
        )
        changed: list[str] = yield from self.changed(cap)
        found += [
            ("triggers", None, f"{name} is not as Roost makes it ({why}); `roost cap {cap.table}` again replaces it")
            for name in [*changed, *(yield from self.idle(cap))]
        ]
        if not (yield from self.index(cap)):
            found.append(("tables", None, f"no index leads to {cap.led_to}: {cap.without_index}"))
        if isinstance(cap, Age):
            return found + (yield from self._broken_age(cap))
        words = self.words(cap)
        full = yield read(
            f"SELECT {words.key}, count(*) FROM {words.table} WHERE {words.has_key} GROUP BY {words.key}\n"
            f"  HAVING count(*) > {cap.keep} LIMIT {MOST + 1}"
        )
        overdue = yield from self.overdue(cap, [row[:-1] for row in full[0][:MOST]], bool(changed))
        found += [
            ("keep", row[:-1], f"{row[-1]:,} rows, keep is {cap.keep:,}; `roost cap {cap.table}` goes on trimming")
            for row in full[0][:MOST]
            if row[:-1] in overdue
        ]
        if len(full[0]) > MOST and overdue:
            found.append(("keep", None, MORE))
        return found

    def _broken_age(self, age: Age) -> Broken:
        again = f"`roost cap {age.table}`"
        try:
            time = yield from self.time(age, age.epoch)
        except Invalid as error:
            return [("tables", None, str(error))]
        if time != age.time:
            return [
                ("tables", None, f"{age.table}.{age.by} tells the time otherwise than it did; {again} goes by that")
            ]
        grace = yield from self.grace(age)
        if grace is None:
            return []
        words = self.words(replace(age, older_than=age.older_than + grace))
        over = yield read(f"SELECT count(*) FROM {words.table} i WHERE {words.over('i')}")
        n = int(over[0][0][0])
        which = "no pass has deleted them" if grace else f"nobody deletes them; {again} does"
        message = f"{n:,} rows are older than {age.older_than_in_words}, and {which}"
        return [("older_than", None, message)] if n else []

    def grace(self, age: Age) -> Asking:
        """Return the seconds after which a row that is too old should be gone; None where only writes delete rows."""
        yield from ()
        return None

    def idle(self, cap: Cap) -> Asking:
        """Return the names of the objects that should run the passes and cannot."""
        yield from ()
        return []

    def unfit(self, table: str) -> str:
        """Return why no table of this name can be capped; "" when one can."""
        return ""

    def overdue(self, cap: Cap, keys: list[Row], changed: bool) -> Asking:
        """Return which of the keys that have too many rows should have been trimmed by now."""
        yield from ()
        return keys

    # What Python asks for

    def reading(self, cap: Cap) -> Asking:
        """Return a cap in the words by which its rows are read, or an `Invalid`; see `unsafe`."""
        yield from ()
        return CapWords(cap, self.dialect)

    @abstractmethod
    def shown_columns(self, cap: Cap) -> Asking:
        """Return the names of the columns that SELECT * shows."""

    def key_values(self, cap: Cap, key: Row) -> Generator[Statement, Any, Row | Invalid]:
        """Return a key as its columns have it, or what is wrong."""
        yield from ()
        return key

    def added(self, cap: Cap, key: Row) -> Asking:
        """Trim a key that the library has added to, on engines where no trigger does."""
        yield from ()
