"""The relation of a structure, as SQL clients see it: one description, from which each database's view is made.

An INSERT calls the structure's program; so does a DELETE, where the structure has a program for it. An UPDATE changes
the columns that are neither Roost's own nor identify a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from roost.structures.plan import SEQUENCE
from roost.structures.views.mysql import Inlet, Inlets, MySQLViewWords
from roost.structures.views.postgresql import GONE, PostgreSQLViewWords
from roost.structures.views.sqlite import SQLiteViewWords
from roost.structures.views.view import STATEMENT, Case, Made
from roost.types.columns import Column

OWN = "NEW.sequence IS NOT NULL OR NEW.at IS NOT NULL", STATEMENT, ": sequence and at are set by Roost; leave them out"

LOCKED = "`of the head`"


class Relation(NamedTuple):
    """What the relation of a structure shows, and what it lets clients do.

    shown: its columns, those of the table of rows.
    insert: the program that an INSERT calls with the columns that it is given.
    identity: the columns that identify a row.
    changes: the columns that an UPDATE may change.
    remove: the program that a DELETE calls with the key and the id; "": the row is deleted.
    skips: whether an INSERT with the outcome 0 changes nothing; on PostgreSQL it then counts, and returns, no row.
    counted: whether the heads have a count, which a row's deletion by somebody else must keep right.
    place: a further condition that finds the row of an `identity`, by an index; `{sequence}` is its sequence.
    locked: on MariaDB and MySQL what `place` reads of the key's head as `LOCKED`; an aggregate, as there may be none.
    query: by dialect the query of the view, where it is not just the columns.
    """

    shown: Sequence[Column]
    insert: str
    identity: Sequence[Column]
    changes: Sequence[Column] = ()
    remove: str = ""
    skips: bool = False
    counted: bool = False
    place: str = ""
    locked: str = "COUNT(*)"
    query: Mapping[str, Callable[[Any], str]] = {}

    def placed(self, condition: str, sequence: str) -> str:
        """Return the condition that finds a row."""
        return f"{condition} AND {self.place.format(sequence=sequence)}" if self.place else condition

    def triggers(self, plan: Any, words: SQLiteViewWords | PostgreSQLViewWords) -> Made:
        """Return the view on SQLite and PostgreSQL, with its INSTEAD OF triggers."""
        given = plan.program(self.insert).given
        place = self.placed(words.is_old(self.identity), "OLD.sequence")
        fixed = [each for each in self.shown if each not in self.changes]
        *names, last = [each.name for each in fixed]
        what = f"{', '.join(names)} and {last}" if names else last
        why = f"{what} cannot be changed; delete the row and insert another"
        columns = ", ".join(
            words.shown([each]) if each in self.changes else words.dialect.names([each]) for each in self.shown
        )
        query = self.query.get(plan.dialect.name, lambda _: f"SELECT {columns} FROM {words.rows}{words.where}")
        return Made(
            view=query(words),
            insert=[
                words.refuse(*([OWN] if SEQUENCE in self.shown else []), *words.rules(given)),
                *words.call(self.insert),
                *words.told(self),
            ],
            update=[words.refuse(words.fixed(fixed, why), *words.changes(self.changes)),
                    *words.change(self.changes, place)],
            delete=words.remove(place, self.changes, self.remove),
        )  # fmt: skip

    def inlets(self, plan: Any) -> Inlets:
        """Return the view on MariaDB and MySQL, with what its inlets or procedures do."""

        def add(words: MySQLViewWords) -> Inlet:
            return words.inlet(plan.program(self.insert).given, *words.call(self.insert))

        def remove(words: MySQLViewWords) -> Inlet:
            if self.remove:
                return words.inlet(plan.program(self.remove).given, *words.call(self.remove))
            row = self.placed(words.is_new(self.identity, f"{words.rows}."), "`new sequence`")
            delete = f"DELETE FROM {words.rows} WHERE {row}"
            if not plan.heads:
                return words.inlet(self.identity, [delete])
            head = f"{words.head} h WHERE {words.is_new(words.key, 'h.')}"
            lock = f"SELECT {self.locked} INTO {LOCKED} FROM {head} FOR UPDATE"
            return words.inlet(self.identity, [lock, delete], [f"DECLARE {LOCKED} BIGINT"])

        words = MySQLViewWords(plan, "")
        shown = f"SELECT {plan.dialect.names(self.shown)} FROM {words.rows}{words.where}"
        return Inlets(f"SELECT * FROM ({shown}) {{mark}}", add, remove, self.counted)


class ReadOnly(NamedTuple):
    """A relation that SQL only reads and deletes from.

    query: makes the query. remove: makes the statement of a DELETE, for the rows that a condition names.
    instead: what an INSERT or UPDATE is refused with.
    same: what tells a key's row from a later one, which a DELETE leaves: on PostgreSQL a client's statement may have
        found a row that is another one by now.
    """

    query: Callable[[Any], str]
    remove: Callable[[Any, str], str]
    instead: str
    same: Sequence[Column] = ()

    @property
    def never(self) -> Case:
        """The case in which an INSERT or UPDATE is refused."""
        return "1 = 1", STATEMENT, f": {self.instead}"

    def triggers(self, plan: Any, words: SQLiteViewWords | PostgreSQLViewWords) -> Made:
        refuse = [words.refuse(self.never)]
        if isinstance(words, SQLiteViewWords):
            return Made(self.query(plan), refuse, refuse, [self.remove(plan, words.is_old(words.key))])
        delete = f"{self.remove(plan, words.is_old([*words.key, *self.same]))};"
        return Made(self.query(plan), refuse, refuse, [words.refuse(), delete, GONE])

    def inlets(self, plan: Any) -> Inlets:
        key = plan.structure.key.columns

        def remove(words: MySQLViewWords) -> Inlet:
            return words.inlet(key, [self.remove(plan, words.is_new(key, f"{words.rows}."))])

        view = f"SELECT * FROM ({self.query(plan)}) {{mark}}"
        return Inlets(view, lambda words: words.inlet(key, words.refuse(self.never)), remove)


class ByDatabase(NamedTuple):
    """A relation that each database makes in its own way."""

    on_sqlite: Callable[[Any, Any], Made]
    on_postgresql: Callable[[Any, Any], Made]
    inlets: Callable[[Any], Inlets]

    def triggers(self, plan: Any, words: SQLiteViewWords | PostgreSQLViewWords) -> Made:
        return (self.on_sqlite if isinstance(words, SQLiteViewWords) else self.on_postgresql)(plan, words)
