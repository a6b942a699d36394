"""The relation of a structure, as SQL clients see it: one description, from which each database's view is made.

An INSERT calls the structure's program; so does a DELETE, where the structure has a program for it. An UPDATE changes
the columns that are neither Roost's own nor identify a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from roost.structures.plan import AT, SEQUENCE
from roost.structures.views import mysql, postgresql, sqlite
from roost.types.columns import Column


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
    query: Mapping[str, Callable[[Any], str]] = {}


def _given(plan: Any, verb: str) -> Sequence[Column]:
    given: Sequence[Column] = plan.program(verb).given
    return given


def _fixed(relation: Relation) -> list[Column]:
    return [each for each in relation.shown if each not in relation.changes]


def _own(relation: Relation) -> list[Column]:
    return [each for each in (SEQUENCE, AT) if each in relation.shown]


def _why(relation: Relation) -> str:
    *names, last = [each.name for each in _fixed(relation)]
    what = f"{', '.join(names)} and {last}" if names else last
    return f"{what} cannot be changed; delete the row and insert another"


def on_sqlite(plan: Any) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    relation: Relation = plan.relation()
    words, given = sqlite.ViewWords(plan), _given(plan, relation.insert)
    place = _placed(relation, words.is_old(relation.identity), "OLD.sequence")
    shown = ", ".join(
        words.shown([each]) if each in relation.changes else words.dialect.names([each]) for each in relation.shown
    )
    query = relation.query.get("sqlite", lambda _: f"SELECT {shown} FROM {words.rows}{words.where}")
    own = [words.own] if _own(relation) else []
    delete = [f"DELETE FROM {words.rows} WHERE {place}"]
    if relation.remove:
        delete = [words.call(relation.remove, _given(plan, relation.remove), "OLD")]
    return sqlite.Made(
        view=query(words),
        insert=[words.refuse(*own, *words.rules(given)), words.call(relation.insert, given), *words.sweep()],
        update=[
            words.refuse(words.fixed(_fixed(relation), _why(relation)), *words.changes(relation.changes)),
            *words.change(relation.changes, place),
        ],
        delete=delete,
    )


def on_mariadb(plan: Any) -> mysql.Made:
    """Return the view on MariaDB and MySQL, with what is inserted and removed through its inlets or procedures."""
    relation: Relation = plan.relation()

    def add(words: mysql.ViewWords) -> mysql.Door:
        given = _given(plan, relation.insert)
        return words.door(given, *words.call(relation.insert, given))

    def remove(words: mysql.ViewWords) -> mysql.Door:
        if relation.remove:
            given = _given(plan, relation.remove)
            return words.door(given, *words.call(relation.remove, given))
        row = _placed(relation, words.is_new(relation.identity, f"{words.rows}."), "`new sequence`")
        lock = [words.lock()] if plan.heads else []
        return words.door(
            relation.identity, [mysql.LOCKED] if lock else [], [*lock, f"DELETE FROM {words.rows} WHERE {row}"]
        )

    query = relation.query.get("mariadb", lambda _: mysql.shown(plan, relation.shown))
    return mysql.Made(query(plan), add, remove, relation.counted)


def on_postgresql(plan: Any) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    relation: Relation = plan.relation()
    words, given = postgresql.ViewWords(plan), _given(plan, relation.insert)
    place = _placed(relation, words.equal(relation.identity, "OLD"), "OLD.sequence")
    query = relation.query.get(
        "postgresql", lambda _: f"SELECT {words.names(relation.shown)} FROM {words.rows}{words.living}"
    )
    own = _own(relation)
    return postgresql.Made(
        view=query(words),
        insert=[
            words.refuse(*([words.own] if own else []), *words.rules(given)),
            *words.normal(given),
            *words.call(relation.insert, given),
            *(["IF it.outcome = 0 THEN\n  RETURN NULL;\nEND IF;"] if relation.skips else []),
            *_told(plan, relation, words),
            "RETURN NEW;",
        ],
        update=[
            words.refuse(words.fixed(_fixed(relation), _why(relation)), *words.changes(relation.changes)),
            *words.change(relation.changes, place),
        ],
        delete=[words.refuse(), *_deleting(plan, relation, words, place), "RETURN OLD;"],
        variables=("outcome bigint",) if plan.gives(relation.insert) else (),
    )


def _told(plan: Any, relation: Relation, words: postgresql.ViewWords) -> list[str]:
    # INSERT … RETURNING gives Roost's own columns, too.
    own = _own(relation)
    if not own:
        return []
    if SEQUENCE in plan.gives(relation.insert):
        column, value = relation.place.format(sequence="NEW.sequence").split(" = ")
        key = {words.names([each]): words.values([each]) for each in words.key} | {column: value}
        return [
            "NEW.sequence := it.outcome;",
            f"SELECT {words.names([AT])} INTO NEW.at FROM {words.rows} WHERE {postgresql.newest_version(key)};",
        ]
    into = ", ".join(f"NEW.{each.name}" for each in own)
    return [f"SELECT {words.names(own)} INTO {into} FROM {words.rows} WHERE {words.equal(relation.identity)};"]


def _deleting(plan: Any, relation: Relation, words: postgresql.ViewWords, place: str) -> list[str]:
    if not relation.remove:
        return words.remove(place, relation.changes)
    unchanged = f" AND {words.as_it_was(relation.changes)}" if relation.changes else ""
    given = words.values(_given(plan, relation.remove), "OLD")
    return [
        *([words.lock("OLD")] if plan.heads else []),
        f"PERFORM 1 FROM {words.rows} WHERE {place}{unchanged} FOR UPDATE;",
        words.unless_changed(place) if relation.changes else "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
        f"PERFORM {plan.structure.name}_{relation.remove}({given});",
    ]


def _placed(relation: Relation, condition: str, sequence: str) -> str:
    return f"{condition} AND {relation.place.format(sequence=sequence)}" if relation.place else condition


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
