"""Names: what a structure, a column, a key and an id may be called, and what is told when they may not."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.dialects import MYSQL
from roost.dialects.dialect import Dialect
from roost.dialects.mariadb import MARIADB
from roost.dialects.postgresql import POSTGRESQL
from roost.structures.registry import plan_for
from tests.values.shapes import Points, Visit, named

Declare = Callable[[Any], Any]


def ring_of(*fields: str, per: Any = "uid") -> Any:
    """Declare a ring whose row has these fields of type int."""
    row = dataclasses.make_dataclass("Row", [(name, int) for name in fields])
    return roost.Ring("r", row, per=per, keep=1)


STRUCTURES: dict[str, Declare] = {
    "counter": lambda name: roost.Counter(name),
    "windows": lambda name: roost.Counter(name, window="hour", keep=3),
    "ring": lambda name: roost.Ring(name, Visit, per="uid", keep=1, keep_for=60),
    "capped": lambda name: roost.Capped(name, Visit, per="uid", keep=1, unique="visitor", keep_for=60),
    "ordered": lambda name: roost.Capped(name, Points, per="board", keep=1, unique="player", order="points"),
    "set": lambda name: roost.Set(name, keep=5, keep_for=60),
}
NAMES = ("a", "page_views_2", "a__", "z9", "x" * 40, "select", "roost", "roosters", "index")
NO_NAMES = (
    *("", "A", "pageViews", "x" * 41, "9a", "_a", "a-b", "a b", "a.b", 'a"', "a;", "a\n", "ä", "ａ", "²", "a\0"),
    *(5, None, b"a"),
)
RULE = "lower-case letters, digits and _, a letter first, at most 40 characters"


@pytest.mark.parametrize("kind", STRUCTURES)
def test_what_a_structure_may_be_called(kind: str) -> None:
    declare = STRUCTURES[kind]
    for name in NAMES:
        assert declare(name).name == name
    for wrong, message in [
        *((each, f"{each!r} cannot name a structure: {RULE}") for each in NO_NAMES),
        *(
            (each, f"{each!r} cannot name a structure: roost_ is reserved for its private tables")
            for each in ("roost_", "roost_catalog", "roost_visits_rows")
        ),
        ("x" * 1000, f"'{'x' * 56}... cannot name a structure: {RULE}"),
    ]:
        with pytest.raises(roost.Invalid) as caught:
            declare(wrong)
        assert str(caught.value) == message


@pytest.mark.parametrize("dialect", [MARIADB, MYSQL, POSTGRESQL], ids=lambda dialect: dialect.name)
def test_programs_have_names_that_servers_take(dialect: Dialect) -> None:
    made: list[Any] = [declare("x" * 40) for declare in STRUCTURES.values()]
    made += [roost.RateLimit("x" * 40, limit=1, within=1), roost.Lease("x" * 40), roost.Cache("x" * 40)]
    for structure in made:
        names = [each.name for each in plan_for(structure, dialect).routines]
        assert len({*names}) == len(names) > 0
        assert max(map(len, names)) <= (63 if dialect is POSTGRESQL else 64)


# Words of SQL's, soft keywords of Python's, capitals: names of columns are quoted, so all of them do.
COLUMNS = (
    *("a", "_", "_a", "Uid2", "x" * 40, "select", "order", "key", "match", "type", "self", "n", "total", "rowid"),
)


def test_what_a_column_may_be_called() -> None:
    for name in COLUMNS:
        ring = ring_of("uid", name)
        assert [column.name for column in ring.columns] == ["uid", name]
        row = ring.rows.type(1, 2)
        assert ring.push(row).args == ((1, 2),)
        assert ring.rows.make((1, 2)) == row
    for name in ("ä", "größe", "x" * 41, "naïve"):
        with pytest.raises(roost.Invalid) as caught:
            ring_of("uid", name)
        assert str(caught.value) == (
            f"r: {name!r} cannot name a column: ASCII letters, digits and _, no digit first, not a Python keyword, "
            "at most 40 characters"
        )
    with pytest.raises(TypeError):
        ring_of("uid", "class")  # words of Python cannot be fields anyhow


def own(name: str) -> str:
    return f"a column cannot be called {name!r}, which is a column of Roost's own"


@pytest.mark.parametrize("name", ["at", "sequence", "slot", "AT", "Slot", "n", "total", "N", "Total", "roost_bound"])
def test_columns_of_roosts_own_and_for_a_key_or_an_id_some_more(name: str) -> None:
    row = dataclasses.make_dataclass("Row", [(name, int), ("other", int)])
    key = named("Key", site=str, **{name: int})
    declared: list[tuple[str, Callable[[], Any]]] = [
        ("r", lambda: roost.Ring("r", row, per=name, keep=1)),
        ("r", lambda: roost.Capped("r", row, per="other", unique=name, keep=1)),
        ("c", lambda: roost.Counter("c", key=key)),
        ("s", lambda: roost.Set("s", key=int, member=key)),
    ]
    if name.lower() not in ("n", "total"):
        declared.append(("r", lambda: ring_of("uid", name)))
    for structure, declare in declared:
        with pytest.raises(roost.Invalid) as caught:
            declare()
        assert str(caught.value) == f"{structure}: {own(name)}"


ONE = named("One", site=str)
BARE: Any = namedtuple("BARE", ["site", "page"])
CASES = "'visitor' and 'Visitor' are one column for SQL, which ignores case"
TOGETHER: list[tuple[Callable[[], Any], str]] = [
    (lambda: ring_of("uid", "visitor", "Visitor"), f"r: {CASES}"),
    (lambda: roost.Counter("c", key=named("Key", visitor=int, Visitor=int)), f"c: {CASES}"),
    (
        lambda: roost.Set("s", key=named("Key", site=str, User=int), member=named("Member", user=int, day=int)),
        "s: key and member both have a field 'user'",
    ),
    (
        lambda: roost.Set("s", key=named("Clash", member=int, day=int), member=int),
        "s: key and member both have a field 'member'",
    ),
    (
        lambda: roost.Set("s", key=int, member=named("Clash", key=int, day=int)),
        "s: key and member both have a field 'key'",
    ),
    (lambda: roost.Counter("c", key=ONE), "c.key: a NamedTuple of one field; name the field's type instead"),
    (lambda: roost.Set("s", key=int, member=ONE), "s.member: a NamedTuple of one field; name the field's type instead"),
    (lambda: roost.Counter("c", key=BARE), "c.site: Any is not a column's type"),
]


@pytest.mark.parametrize(("declare", "message"), TOGETHER, ids=[message for _, message in TOGETHER])
def test_names_that_do_not_go_together(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        declare()
    assert str(caught.value).startswith(message)
