"""Rows are dataclasses of every kind, keys of several columns are NamedTuples: what is taken and what is given back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

import pytest

import roost
from roost.structures.structure import Group
from tests.values.shapes import (
    Egg,
    Everything,
    Place,
    Seen,
    Visit,
    baskets,
    named,
    places,
    seen,
    sightings,
    things,
    visits,
)

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]

T = TypeVar("T")


@dataclass(frozen=True)
class Frozen:
    uid: int
    v: int


@dataclass(slots=True)
class Slots:
    uid: int
    v: int


@dataclass(kw_only=True)
class KeywordOnly:
    uid: int
    v: int


@dataclass
class HalfKeywordOnly:
    uid: int
    _: KW_ONLY
    v: int


@dataclass
class Defaults:
    uid: int
    v: int = 7
    kinds: ClassVar[int] = 3


@dataclass
class Factory:
    uid: int
    v: int = field(default_factory=lambda: 7, repr=False, compare=False)


@dataclass(order=True, unsafe_hash=True)
class Base:
    uid: int


@dataclass
class Derived(Base):
    v: int


@dataclass(eq=False)
class Checked:
    uid: int
    v: int

    def __post_init__(self) -> None:
        assert self.v >= 0


@pytest.mark.parametrize(
    "row",
    [Frozen, Slots, KeywordOnly, HalfKeywordOnly, Defaults, Factory, Derived, Checked],
    ids=lambda row: row.__name__,
)
def test_every_kind_of_dataclass_is_a_row(row: Any) -> None:
    ring = roost.Ring("r", row, per="uid", keep=1)
    made = row(uid=1, v=2)
    assert ring.push(made).args == ((1, 2),)
    back = ring.rows.make((1, 2))
    assert type(back) is row
    assert (back.uid, back.v) == (1, 2)
    (again,) = ring.rows.maker(None)([(1, 2)])
    assert (type(again), again.uid, again.v) == (row, 1, 2)
    (again,) = ring.rows.maker(lambda values: tuple(value + 1 for value in values))([(1, 2)])
    assert (type(again), again.uid, again.v) == (row, 2, 3)


def test_defaults_are_the_dataclasss_affair() -> None:
    ring: roost.Ring[Defaults, int] = roost.Ring("r", Defaults, per="uid", keep=1)
    assert ring.push(Defaults(1)) == ring.push(Defaults(1, 7))
    assert [column.name for column in ring.columns] == ["uid", "v"]
    assert things.push(Everything(k=1)).args[0][:4] == (1, 0, 0.0, "")


def test_an_instance_of_a_subclass_is_a_row_of_the_declared_columns() -> None:
    ring: roost.Ring[Base, int] = roost.Ring("r", Base, per="uid", keep=1)
    assert ring.push(Derived(1, 2)).args == ((1,),)


def test_a_row_is_checked_field_by_field() -> None:
    with pytest.raises(roost.Invalid, match=r"^visits\.visitor: 'x' is of type str; it takes int$"):
        visits.push(Visit(1, "x"))  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"^baskets\.colour: 'x{21}' has 21 characters; the limit is 20$"):
        baskets.add(Egg(1, 2, "x" * 21))
    with pytest.raises(roost.Invalid, match=r"^visits: \(1, 2\) is not a Visit$"):
        visits.push((1, 2))  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"^visits: \{'uid': 1, 'visitor': 2\} is not a Visit$"):
        visits.push({"uid": 1, "visitor": 2})  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"^visits: <class .*Visit'> is not a Visit$"):
        visits.push(Visit)  # type: ignore[arg-type]


@dataclass
class Nothing_:
    pass


@dataclass
class Computed:
    uid: int
    v: int = field(init=False, default=1)


@dataclass
class Scaled:
    uid: int
    scale: InitVar[int] = 1
    v: int = 0


@dataclass
class Unknown:
    uid: int
    v: Nothing


@dataclass
class Misspelt:
    uid: int
    v: dataclasses.nothing  # type: ignore[name-defined]


@dataclass
class Parametrized(Generic[T]):
    uid: int
    v: T


class Plain:
    uid: int
    v: int


# row, per, what is told
NO_ROW: list[tuple[Any, Any, str]] = [
    (Plain, "uid", "r: a row is a dataclass, not <class 'tests.values.rows_test.Plain'>"),
    (Place, "page", "r: a row is a dataclass, not <class 'tests.values.shapes.Place'>"),
    (dict, "uid", "r: a row is a dataclass, not <class 'dict'>"),
    (Frozen(1, 2), "uid", "r: a row is a dataclass, not Frozen(uid=1, v=2)"),
    ("Frozen", "uid", "r: a row is a dataclass, not 'Frozen'"),
    (Nothing_, "uid", "r: Nothing_ has no field 'uid'; it has "),
    (Computed, "uid", "r: Computed.v is not set by __init__, so it cannot be kept"),
    (Scaled, "uid", "r: Scaled.scale is an InitVar, so a row that was kept cannot be made again"),
    (Unknown, "uid", "r: an annotation of Unknown cannot be read: name 'Nothing' is not defined"),
    (Misspelt, "uid", "r: an annotation of Misspelt cannot be read: module 'dataclasses' has no attribute 'nothing'"),
    (Parametrized, "uid", "r.v: T is not a column's type"),
    (Frozen, "vid", "r: Frozen has no field 'vid'; it has uid, v"),
    (Frozen, "UID", "r: Frozen has no field 'UID'; it has uid, v"),
    (Defaults, "kinds", "r: Defaults has no field 'kinds'; it has uid, v"),
    (Frozen, ("uid", "vid"), "r: Frozen has no field 'vid'; it has uid, v"),
    (Frozen, (), "r: per is a field's name or several different ones, not ()"),
    (Frozen, [], "r: per is a field's name or several different ones, not []"),
    (Frozen, None, "r: per is a field's name or several different ones, not None"),
    (Frozen, int, "r: per is a field's name or several different ones, not <class 'int'>"),
    (Frozen, 5, "r: per is a field's name or several different ones, not 5"),
    (Frozen, ("uid", "uid"), "r: per is a field's name or several different ones, not ('uid', 'uid')"),
    (Frozen, ["uid", 5], "r: per is a field's name or several different ones, not ['uid', 5]"),
    (Frozen, [["uid"]], "r: per is a field's name or several different ones, not [['uid']]"),
    (Frozen, {"uid"}, "r: per is a field's name or several different ones, not {'uid'}"),
    (Seen, named("P", site=str, day=int), "r: Seen has no field 'day'; it has page, who, site"),
    (Seen, named("P", site=str, page=str), "r: the fields of P and of Seen have different types"),
    (Seen, named("P", page=int), "r.per: a NamedTuple of one field; name the field instead"),
]


@pytest.mark.parametrize(("row", "per", "message"), NO_ROW, ids=[message for _, _, message in NO_ROW])
def test_what_is_no_row_or_no_key_of_it_is_told_when_it_is_declared(row: Any, per: Any, message: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        roost.Ring("r", row, per=per, keep=1)
    assert str(caught.value).split("; there are ")[0] == message


def test_the_fields_of_a_local_class_can_be_read() -> None:
    @dataclass
    class Local:
        uid: int
        v: Annotated[str | None, roost.text(3)] = None

    assert [column.spec for column in roost.Ring("r", Local, per="uid", keep=1).columns] == ["int", "text(3)?"]


def test_a_key_takes_its_limit_from_being_one() -> None:
    @dataclass
    class Page:
        site: str
        text: str

    assert [column.spec for column in roost.Ring("r", Page, per="site", keep=1).columns] == [
        "text(255)",
        "text(1000000)",
    ]
    assert [c.spec for c in roost.Ring("r", Page, per=("text", "site"), keep=1).columns] == ["text(255)", "text(255)"]
    assert [c.spec for c in roost.Capped("r", Page, per="site", unique="text", keep=1).columns] == ["text(255)"] * 2


def test_a_key_of_several_fields_is_a_tuple_in_the_order_of_per() -> None:
    by_names: roost.Ring[Seen, Any] = roost.Ring("seen", Seen, per=("site", "page"), keep=5)
    assert by_names.definition == seen.definition
    assert by_names == seen
    assert by_names.latest(("a", 1)) == seen.latest(Place("a", 1))
    assert seen.latest(("a", 1)) == seen.latest(Place(page=1, site="a"))  # type: ignore[arg-type]
    assert seen.key.value(("a", 1)) == Place("a", 1)
    assert type(seen.key.value(("a", 1))) is Place
    assert type(by_names.key.value(("a", 1))) is tuple
    turned: roost.Ring[Seen, Any] = roost.Ring("seen", Seen, per=["page", "site"], keep=5)
    assert turned.definition != seen.definition
    assert turned.latest((1, "a")).args == ((1, "a"), None)
    alone: roost.Ring[Seen, Any] = roost.Ring("seen", Seen, per=("page",), keep=5)
    assert alone == roost.Ring("seen", Seen, per="page", keep=5)
    assert alone.latest(1).args == ((1,), None)
    assert alone.key.value((1,)) == 1


@pytest.mark.parametrize("key", [("a",), ("a", 1, 2), (), "a", 1, ["a", 1], None, {"site": "a", "page": 1}], ids=repr)
def test_what_is_no_key_of_several_fields(key: Any) -> None:
    message = f"{key!r} is not a key; it takes a tuple of (site, page)"
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: seen.latest(key), "seen"),
        (lambda: seen.entries(key), "seen"),
        (lambda: seen.clear(key), "seen"),
        (lambda: places.add(key), "places"),
        (lambda: places.totals([Place("a", 1), key]), "places"),
    ]
    for op, name in calls:
        with pytest.raises(roost.Invalid) as caught:
            op()
        assert str(caught.value) == f"{name}: {message}"


def test_the_parts_of_a_key_are_told_apart() -> None:
    with pytest.raises(roost.Invalid, match=r"^places\.page: '1' is of type str; it takes int$"):
        places.add(Place("a", "1"))  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"^seen\.site: None is not allowed; it takes text\(255\)$"):
        seen.latest(Place(None, 1))  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"^sightings: 5 is not a id; it takes a tuple of \(page, who\)$"):
        sightings.get("a", 5)


# unique, what is told
NO_ID: list[tuple[Any, str]] = [
    ("uid", "e: 'uid' is in per already; unique names what tells a key's rows apart"),
    (("v", "uid"), "e: 'uid' is in per already; unique names what tells a key's rows apart"),
    ("w", "e: Frozen has no field 'w'; it has uid, v"),
    ((), "e: unique is a field's name or several different ones, not ()"),
    (("v", "v"), "e: unique is a field's name or several different ones, not ('v', 'v')"),
    (None, "e: unique is a field's name or several different ones, not None"),
    (Place, "e: unique is a field's name or several different ones, not <class 'tests.values.shapes.Place'>"),
]


@pytest.mark.parametrize(("unique", "message"), NO_ID, ids=[message for _, message in NO_ID])
def test_what_is_no_id_is_told_when_it_is_declared(unique: Any, message: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        roost.Capped("e", Frozen, per="uid", keep=1, unique=unique)
    assert str(caught.value) == message


def test_a_group_knows_its_columns() -> None:
    group: Group[Any] = Group.declared("c", "key", Place)
    assert group.names == ("site", "page")
    assert [column.spec for column in group.columns] == ["text(255)", "int"]
