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
from roost.structures.views.view import STATEMENT, Made
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


def _made(plan: Any, words: SQLiteViewWords | PostgreSQLViewWords) -> Made:
    # On SQLite and PostgreSQL, with INSTEAD OF triggers.
    relation: Relation = plan.relation()
    given = plan.program(relation.insert).given
    place = relation.placed(words.is_old(relation.identity), "OLD.sequence")
    fixed = [each for each in relation.shown if each not in relation.changes]
    *names, last = [each.name for each in fixed]
    what = f"{', '.join(names)} and {last}" if names else last
    why = f"{what} cannot be changed; delete the row and insert another"
    columns = ", ".join(
        words.shown([each]) if each in relation.changes else words.dialect.names([each]) for each in relation.shown
    )
    query = relation.query.get(plan.dialect.name, lambda _: f"SELECT {columns} FROM {words.rows}{words.where}")
    return Made(
        view=query(words),
        insert=[
            words.refuse(*([OWN] if SEQUENCE in relation.shown else []), *words.rules(given)),
            *words.call(relation.insert),
            *words.told(relation),
        ],
        update=[words.refuse(words.fixed(fixed, why), *words.changes(relation.changes)),
                *words.change(relation.changes, place)],
        delete=words.remove(place, relation.changes, relation.remove),
    )  # fmt: skip


def _inlets(plan: Any) -> Inlets:
    # On MariaDB and MySQL, with what is inserted and removed through its inlets or procedures.
    relation: Relation = plan.relation()

    def add(words: MySQLViewWords) -> Inlet:
        return words.inlet(plan.program(relation.insert).given, *words.call(relation.insert))

    def remove(words: MySQLViewWords) -> Inlet:
        if relation.remove:
            return words.inlet(plan.program(relation.remove).given, *words.call(relation.remove))
        head = f"{words.head} h WHERE {words.is_new(words.key, 'h.')}"
        lock = f"SELECT {relation.locked} INTO {LOCKED} FROM {head} FOR UPDATE"
        row = relation.placed(words.is_new(relation.identity, f"{words.rows}."), "`new sequence`")
        delete, locked = f"DELETE FROM {words.rows} WHERE {row}", f"DECLARE {LOCKED} BIGINT"
        return (
            words.inlet(relation.identity, [lock, delete], [locked])
            if plan.heads
            else words.inlet(relation.identity, [delete])
        )

    words = MySQLViewWords(plan, "")
    shown = f"SELECT {plan.dialect.names(relation.shown)} FROM {words.rows}{words.where}"
    return Inlets(f"SELECT * FROM ({shown}) {{mark}}", add, remove, relation.counted)


def _by_dialect(made: Callable[[Any, Any], Made], inlets: Callable[[Any], Inlets]) -> Mapping[str, Any]:
    return {
        "sqlite": lambda plan: made(plan, SQLiteViewWords(plan)),
        "mariadb": inlets,
        "postgresql": lambda plan: made(plan, PostgreSQLViewWords(plan)),
    }


VIEWS: Mapping[str, Callable[[Any], Any]] = _by_dialect(_made, _inlets)


def read_only(
    shown: Callable[[Any], str], remove: Callable[[Any, str], str], instead: str, same: Sequence[Column] = ()
) -> Mapping[str, Callable[[Any], Any]]:
    """Return what a view is made of that SQL only reads and deletes from, by dialect.

    shown: makes the query. remove: makes the statement of a DELETE, for the rows that a condition names.
    instead: what an INSERT or UPDATE is refused with.
    same: what tells a key's row from a later one, which a DELETE leaves: on PostgreSQL a client's statement may have
        found a row that is another one by now.
    """
    never = "1 = 1", STATEMENT, f": {instead}"

    def made(plan: Any, words: SQLiteViewWords | PostgreSQLViewWords) -> Made:
        refuse = [words.refuse(never)]
        if isinstance(words, SQLiteViewWords):
            return Made(shown(plan), refuse, refuse, [remove(plan, words.is_old(words.key))])
        delete = f"{remove(plan, words.is_old([*words.key, *same]))};"
        return Made(shown(plan), refuse, refuse, [words.refuse(), delete, GONE])

    def inlets(plan: Any) -> Inlets:
        key = plan.structure.key.columns

        def out(words: MySQLViewWords) -> Inlet:
            return words.inlet(key, [remove(plan, words.is_new(key, f"{words.rows}."))])

        view = f"SELECT * FROM ({shown(plan)}) {{mark}}"
        return Inlets(view, lambda words: words.inlet(key, words.refuse(never)), out)

    return _by_dialect(made, inlets)
