"""Names: what a structure, a column, a key and an id may be called, and what is told when they may not."""

from __future__ import annotations

import dataclasses
import keyword
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.values.shapes import named

Declare = Callable[[Any], Any]


def ring_of(*fields: str, per: Any = "uid") -> Any:
    """Declare a ring whose row has these fields of type int."""
    row = dataclasses.make_dataclass("Row", [(name, int) for name in fields])
    return roost.Ring("r", row, per=per, keep=1)


@dataclasses.dataclass
class Points:
    board: str
    player: int
    points: int


@dataclasses.dataclass
class Visit:
    uid: int
    visitor: int


STRUCTURES: list[tuple[str, Declare]] = [
    ("counter", lambda name: roost.Counter(name)),
    ("ring", lambda name: roost.Ring(name, Visit, per="uid", keep=1)),
    ("capped", lambda name: roost.Capped(name, Visit, per="uid", keep=1, unique="visitor")),
    (
        "capped with an order",
        lambda name: roost.Capped(name, Points, per="board", keep=1, unique="player", order="points"),
    ),
    ("set", lambda name: roost.Set(name)),
    ("ring", lambda name: roost.Ring(name, Visit, per="uid", keep=1, keep_for=60)),
    (
        "capped whose rows expire",
        lambda name: roost.Capped(name, Visit, per="uid", keep=1, unique="visitor", keep_for=60),
    ),
    ("set", lambda name: roost.Set(name, keep=5, keep_for=60)),
    ("counter with windows", lambda name: roost.Counter(name, window="hour", keep=3)),
]
each_kind = pytest.mark.parametrize("declare", [declare for _, declare in STRUCTURES], ids=[n for n, _ in STRUCTURES])


@each_kind
@pytest.mark.parametrize("name", ["a", "page_views_2", "a__", "z9", "x" * 40, "select", "roost", "roosters", "index"])
def test_a_structure_may_be_called(declare: Declare, name: str) -> None:
    assert declare(name).name == name


@each_kind
@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "pageViews",
        "x" * 41,
        "9a",
        "_a",
        "a-b",
        "a b",
        "a.b",
        'a"',
        "a;",
        "a\n",
        "ä",
        "ａ",
        "²",
        "a\0",
        5,
        None,
        b"a",
    ],
    ids=repr,
)
def test_a_structure_may_not_be_called(declare: Declare, name: Any) -> None:
    with pytest.raises(roost.Invalid) as caught:
        declare(name)
    assert str(caught.value) == (
        f"{name!r} cannot name a structure: lower-case letters, digits and _, a letter first, at most 40 characters"
    )


@each_kind
@pytest.mark.parametrize("name", ["roost_", "roost_catalog", "roost_visits_rows"])
def test_the_private_prefix_is_refused(declare: Declare, name: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        declare(name)
    assert str(caught.value) == f"{name!r} cannot name a structure: roost_ is reserved for its private tables"


# Words of SQL's, soft keywords of Python's, capitals: names of columns are quoted, so all of them do.
@pytest.mark.parametrize(
    "name", ["a", "_", "_a", "Uid2", "x" * 40, "select", "order", "key", "match", "type", "self", "n", "total", "rowid"]
)
def test_a_column_may_be_called(name: str) -> None:
    ring = ring_of("uid", name)
    assert [column.name for column in ring.columns] == ["uid", name]
    row = ring.rows.type(1, 2)
    assert ring.push(row).args == ((1, 2),)
    assert ring.rows.make((1, 2)) == row


@pytest.mark.parametrize("name", ["ä", "größe", "x" * 41, "naïve"])
def test_a_column_may_not_be_called(name: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        ring_of("uid", name)
    assert str(caught.value) == (
        f"r: {name!r} cannot name a column: ASCII letters, digits and _, no digit first, not a Python keyword, "
        "at most 40 characters"
    )


def test_a_long_name_is_shown_in_short() -> None:
    with pytest.raises(roost.Invalid, match=rf"^'{'x' * 56}\.\.\. cannot name a structure"):
        roost.Counter("x" * 1000)


@pytest.mark.parametrize("name", ["at", "sequence", "slot", "AT", "Slot"])
def test_a_column_of_roosts_own_is_refused(name: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        ring_of("uid", name)
    assert str(caught.value) == f"r: a column cannot be called {name!r}, which is a column of Roost's own"


@pytest.mark.parametrize("name", ["at", "sequence", "slot", "n", "total", "N", "Total"])
def test_a_key_or_an_id_has_more_names_to_avoid(name: str) -> None:
    message = f"a column cannot be called {name!r}, which is a column of Roost's own"
    row = dataclasses.make_dataclass("Row", [(name, int), ("other", int)])
    with pytest.raises(roost.Invalid) as caught:
        roost.Ring("r", row, per=name, keep=1)
    assert str(caught.value) == f"r: {message}"
    with pytest.raises(roost.Invalid) as caught:
        roost.Capped("r", row, per="other", unique=name, keep=1)
    assert str(caught.value) == f"r: {message}"
    key = named("Key", site=str, **{name: int})
    with pytest.raises(roost.Invalid) as caught:
        roost.Counter("c", key=key)
    assert str(caught.value) == f"c: {message}"
    with pytest.raises(roost.Invalid) as caught:
        roost.Set("s", key=int, member=key)
    assert str(caught.value) == f"s: {message}"


def test_words_of_python_cannot_be_fields_anyhow() -> None:
    assert keyword.iskeyword("class")
    with pytest.raises(TypeError):
        ring_of("uid", "class")


def test_two_names_that_differ_by_case_only_are_one_column() -> None:
    message = "'visitor' and 'Visitor' are one column for SQL, which ignores case"
    with pytest.raises(roost.Invalid) as caught:
        ring_of("uid", "visitor", "Visitor")
    assert str(caught.value) == f"r: {message}"
    key = named("Key", visitor=int, Visitor=int)
    with pytest.raises(roost.Invalid) as caught:
        roost.Counter("c", key=key)
    assert str(caught.value) == f"c: {message}"


def test_a_set_keeps_key_and_member_in_one_table() -> None:
    key = named("Key", site=str, User=int)
    member = named("Member", user=int, day=int)
    with pytest.raises(roost.Invalid, match=r"^s: key and member both have a field 'user'$"):
        roost.Set("s", key=key, member=member)
    clash = named("Clash", member=int, day=int)
    with pytest.raises(roost.Invalid, match=r"^s: key and member both have a field 'member'$"):
        roost.Set("s", key=clash, member=int)
    with pytest.raises(roost.Invalid, match=r"^s: key and member both have a field 'key'$"):
        roost.Set("s", key=int, member=named("Clash", key=int, day=int))


def test_a_named_tuple_needs_annotations_and_two_fields() -> None:
    one = named("One", site=str)
    with pytest.raises(roost.Invalid, match=r"^c\.key: a NamedTuple of one field; name the field's type instead$"):
        roost.Counter("c", key=one)
    with pytest.raises(roost.Invalid, match=r"^s\.member: a NamedTuple of one field; name the field's type instead$"):
        roost.Set("s", key=int, member=one)
    bare: Any = namedtuple("bare", ["site", "page"])
    with pytest.raises(roost.Invalid, match=r"^c\.site: Any is not a column's type"):
        roost.Counter("c", key=bare)
