"""An operation is a value: it can be printed, compared, hashed, pickled and repeated, and nothing can change it."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import pickle
from dataclasses import replace
from typing import Any

import pytest

import roost
from roost.structures.structure import Structure
from tests.values.shapes import (
    Colour,
    Egg,
    Place,
    Points,
    Seen,
    Visit,
    baskets,
    hourly,
    likes,
    pageviews,
    places,
    ranking,
    seen,
    sightings,
    tags,
    things,
    visits,
)

pages = roost.Cache("pages")
logins = roost.RateLimit("logins", limit=3, within=86_400)
jobs = roost.Lease("jobs")
GRANT = roost.Grant("daily", "ada", 7, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
by_id = roost.Index("item", columns=["id", "name"], filters=["n"])
words = roost.MemcachedSet("words", int, str)
shades = roost.MemcachedSet("shades", Place, Colour, shards=3, ttl=60)

# Every verb of every structure, as it is printed, and whether it writes.
PRINTED: list[tuple[roost.Operation[Any], str, bool]] = [
    (pageviews.add("/home"), "pageviews.add('/home', 1)", True),
    (pageviews.add("/home", -3), "pageviews.add('/home', -3)", True),
    (pageviews.increment("/home"), "pageviews.increment('/home', 1)", True),
    (pageviews.total("/home"), "pageviews.total('/home')", False),
    (pageviews.totals(["/b", "/a", "/b"]), "pageviews.totals(['/b', '/a', '/b'])", False),
    (pageviews.totals([]), "pageviews.totals([])", False),
    (pageviews.top(), "pageviews.top(10)", False),
    (pageviews.clear("/home"), "pageviews.clear('/home')", True),
    (pageviews.forget("/home"), "pageviews.forget('/home')", True),
    (hourly.add("/home"), "hourly.add('/home', 1)", True),
    (hourly.total("/home", last=3), "hourly.total('/home', last=3)", False),
    (hourly.totals(["/b", "/a"]), "hourly.totals(['/b', '/a'], last=None)", False),
    (hourly.top(3, last=1), "hourly.top(3, last=1)", False),
    (hourly.series("/home"), "hourly.series('/home', last=None)", False),
    (hourly.clear("/home"), "hourly.clear('/home')", True),
    (ranking.add(Points("go", 7, 3)), "ranking.add(Points(board='go', player=7, points=3))", True),
    (ranking.top("go", 5), "ranking.top('go', 5)", False),
    (ranking.rank("go", 7), "ranking.rank('go', 7)", False),
    (pageviews.keys(), "pageviews.keys(after=None, n=100)", False),
    (pageviews.keys("", 5), "pageviews.keys(after='', n=5)", False),
    (places.add(Place("a", 1)), "places.add(Place(site='a', page=1), 1)", True),
    (places.totals([Place("a", 1)]), "places.totals([Place(site='a', page=1)])", False),
    (places.keys(Place("a", 1)), "places.keys(after=Place(site='a', page=1), n=100)", False),
    (visits.push(Visit(5, 7)), "visits.push(Visit(uid=5, visitor=7))", True),
    (visits.latest(5), "visits.latest(5, None)", False),
    (visits.latest(5, 2), "visits.latest(5, 2)", False),
    (visits.entries(5), "visits.entries(5, after=0, n=None)", False),
    (visits.entries(5, after=3, n=2), "visits.entries(5, after=3, n=2)", False),
    (seen.push(Seen(1, 2, "a")), "seen.push(Seen(page=1, who=2, site='a'))", True),
    (seen.latest(Place("a", 1)), "seen.latest(Place(site='a', page=1), None)", False),
    (baskets.add(Egg(42, 1)), "baskets.add(Egg(basket=42, egg=1, colour='white'))", True),
    (baskets.remove(42, 1), "baskets.remove(42, 1)", True),
    (baskets.get(42, 1), "baskets.get(42, 1)", False),
    (baskets.count(42), "baskets.count(42)", False),
    (baskets.latest(42), "baskets.latest(42, None)", False),
    (baskets.entries(42), "baskets.entries(42, after=0, n=None)", False),
    (sightings.get("a", (1, 2)), "sightings.get('a', (1, 2))", False),
    (likes.add(7, "ada", "bob"), "likes.add(7, 'ada', 'bob')", True),
    (likes.add(7), "likes.add(7)", True),
    (likes.remove(7, "ada"), "likes.remove(7, 'ada')", True),
    (likes.members(7), "likes.members(7)", False),
    (likes.contains(7, "ada"), "likes.contains(7, 'ada')", False),
    (likes.size(7), "likes.size(7)", False),
    (tags.add(Place("a", 1), Colour.WHITE), "tags.add(Place(site='a', page=1), <Colour.WHITE: 'white'>)", True),
    (visits.push_all([Visit(1, 2)] * 2), "visits.push_all([Visit(uid=1, visitor=2), Visit(uid=1, visitor=2)])", True),
    (pageviews.add_all({"/": 1, "/a": -1}), "pageviews.add_all({'/': 1, '/a': -1})", True),
    (pages.set("/", b"1", ttl=10), "pages.set('/', b'1', ttl=10)", True),
    (pages.set("/", b"1", flags=7), "pages.set('/', b'1', flags=7)", True),
    (pages.set_many({"/": b"1"}, ttl=0.5), "pages.set_many({'/': b'1'}, ttl=0.5)", True),
    (pages.cas("/", b"1", 7), "pages.cas('/', b'1', 7)", True),
    (pages.touch("/", dt.timedelta(minutes=1)), "pages.touch('/', ttl=60)", True),
    (pages.touch("/"), "pages.touch('/')", True),
    (pages.increment("/", 2), "pages.increment('/', 2)", True),
    (pages.append("/", b"1"), "pages.append('/', b'1')", True),
    (pages.clear(), "pages.clear()", True),
    (pages.clear("/"), "pages.clear('/')", True),
    (pages.get_many(["/", "/a"]), "pages.get_many(['/', '/a'])", False),
    (pages.gets_many(["/"]), "pages.gets_many(['/'])", False),
    (pages.keys(), "pages.keys(after=None, n=100)", False),
    (logins.take("ada", 2), "logins.take('ada', 2)", True),
    (logins.peek("ada"), "logins.peek('ada')", False),
    (by_id.insert((1, "x")), "item.insert((1, 'x'))", True),
    (by_id.find("=", 1), "item.find('=', (1,))", False),
    (words.add(7, "ada", "bob", "ada"), "words.add(7, 'ada', 'bob')", True),
    (words.add(7), "words.add(7)", True),
    (words.remove(7, "ada"), "words.remove(7, 'ada')", True),
    (words.replace(7, iter(["ada", "bob"])), "words.replace(7, ['ada', 'bob'])", True),
    (words.clear(7), "words.clear(7)", True),
    (words.forget(7), "words.forget(7)", True),
    (words.members(7), "words.members(7)", False),
    (words.contains(7, "ada"), "words.contains(7, 'ada')", False),
    (words.size(7), "words.size(7)", False),
    (words.info(7), "words.info(7)", False),
    (shades.add(Place("a", 1), Colour.WHITE), "shades.add(Place(site='a', page=1), <Colour.WHITE: 'white'>)", True),
]
OPERATIONS = [op for op, _, _ in PRINTED]
# What is printed otherwise than it is called.
SHORTENED = {
    "likes.add_all([(0, 'ada'), (1, 'ada'), (2, 'ada'), ...])": likes.add_all([(n, "ada") for n in range(9)]),
    "jobs.acquire('daily', 'ada', 2000000)": jobs.acquire("daily", "ada", 2),
    "jobs.release('daily', 7)": jobs.release(GRANT),
    "item.update('>', (1,), ('x',), limit=3, filters=(Where(column='n', op='<', value=5),))": by_id.update(
        *(">", [1], ["x"]), limit=3, filters=[("n", "<", 5)]
    ),
}


def test_an_operation_is_printed_as_the_call_that_makes_it() -> None:
    for op, printed, writes in PRINTED:
        assert repr(op) == printed
        assert op.writes is writes, op
        again = eval(printed.replace("<Colour.WHITE: 'white'>", "Colour.WHITE").replace("item.", "by_id."))
        assert again == op
        assert hash(again) == hash(op), op
    assert {printed: repr(op) for printed, op in SHORTENED.items()} == {printed: printed for printed in SHORTENED}


def test_an_operation_survives_pickling_and_copying() -> None:
    for op in [*OPERATIONS, *SHORTENED.values()]:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(op, protocol))
            assert again == op
            assert hash(again) == hash(op), op
            assert repr(again) == repr(op)
            assert again.structure == op.structure
        assert copy.copy(op) == op
        assert copy.deepcopy(op) == op
    assert pickle.loads(pickle.dumps(GRANT)) == GRANT


def test_no_two_different_operations_are_equal() -> None:
    assert len(set(OPERATIONS)) == len(OPERATIONS)
    for i, one in enumerate(OPERATIONS):
        for other in OPERATIONS[:i]:
            assert one != other


def test_an_operation_equals_only_an_operation() -> None:
    op = pageviews.add("/home")
    assert op != ("pageviews", "add", ("/home",), 1)
    assert op != "pageviews.add('/home', 1)"
    assert op.__eq__(1) is NotImplemented


def test_operations_of_equal_declarations_are_equal() -> None:
    other = roost.Counter("pageviews", key=roost.text(255))
    assert other is not pageviews
    assert other == pageviews
    assert other.add("/home") == pageviews.add("/home")
    assert hash(other.add("/home")) == hash(pageviews.add("/home"))
    assert roost.Counter("pageviews", slots=4).add("/home") != pageviews.add("/home")
    assert hash(roost.Counter("pageviews", slots=4).add("/home")) != hash(pageviews.add("/home"))
    assert hash(pageviews.clear("/home")) != hash(pageviews.total("/home"))
    assert roost.Counter("pageviews", key=roost.text(9)).add("/home") != pageviews.add("/home")


@pytest.mark.parametrize("name", ["structure", "verb", "args", "writes", "anything"])
def test_an_operation_cannot_be_changed(name: str) -> None:
    op = pageviews.add("/home")
    with pytest.raises(AttributeError, match=rf"an operation cannot be changed; .* instead of setting '{name}'"):
        setattr(op, name, None)
    with pytest.raises(AttributeError, match=rf"an operation cannot be changed; .* instead of deleting '{name}'"):
        delattr(op, name)
    assert repr(op) == "pageviews.add('/home', 1)"
    assert not hasattr(op, "__dict__")


def test_a_row_is_copied_when_the_operation_is_made() -> None:
    row = Visit(uid=5, visitor=7)
    op = visits.push(row)
    before = hash(op)
    row.visitor, row.uid = 8, 6
    assert repr(op) == "visits.push(Visit(uid=5, visitor=7))"
    assert op == visits.push(Visit(5, 7))
    assert hash(op) == before


def test_a_member_of_an_int_enum_is_the_whole_number_that_it_is() -> None:
    class Amount(enum.IntEnum):
        SOME = 3

    pairs: list[tuple[Any, Any]] = [
        (pageviews.add("/home", Amount.SOME), pageviews.add("/home", 3)),
        (pageviews.top(Amount.SOME), pageviews.top(3)),
        (pageviews.keys(n=Amount.SOME), pageviews.keys(n=3)),
        (visits.latest(5, Amount.SOME), visits.latest(5, 3)),
        (visits.entries(5, after=Amount.SOME), visits.entries(5, after=3)),
        (by_id.find("=", Amount.SOME, limit=Amount.SOME), by_id.find("=", 3, limit=3)),
    ]
    for op, same in pairs:
        assert op == same
        assert repr(op) == repr(same)
        assert "Amount" not in str(op.args)
        assert pickle.loads(pickle.dumps(op)) == same
    assert roost.Counter("pageviews", slots=Amount.SOME) == roost.Counter("pageviews", slots=3)
    assert roost.Ring("visits", Visit, per="uid", keep=Amount.SOME).definition == visits_of(3).definition
    for make in (lambda n: pageviews.add("/home", n), pageviews.top, lambda n: visits.entries(5, after=n), visits_of):
        with pytest.raises(roost.Invalid, match="True"):
            make(True)


def visits_of(keep: int) -> roost.Ring[Visit, int]:
    return roost.Ring("visits", Visit, per="uid", keep=keep)


def test_lists_of_keys_are_copied_when_the_operation_is_made() -> None:
    keys = ["/a", "/b"]
    op = pageviews.totals(keys)
    keys.append("/c")
    assert op == pageviews.totals(["/a", "/b"])
    assert pageviews.totals(key for key in keys) == pageviews.totals(["/a", "/b", "/c"])


def test_a_member_that_is_named_twice_is_one() -> None:
    assert likes.add(7, "b", "a", "b") == likes.add(7, "a", "b")  # as of now it is the newest
    assert likes.add(7, "a", "b") != likes.add(7, "b", "a")  # a different call, if not a different effect
    assert likes.remove(7, "a", "a") == likes.remove(7, "a")


@pytest.mark.parametrize(
    "structure", [pageviews, places, visits, seen, baskets, sightings, likes, tags, things], ids=repr
)
def test_a_structure_is_a_value_too(structure: Structure) -> None:
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure
    assert hash(again) == hash(structure)
    assert again.definition == structure.definition
    assert repr(again) == f"<{structure.kind} {structure.name}>"
    assert structure != structure.definition
    assert copy.deepcopy(structure) == structure


def test_structures_differ_in_whatever_their_definitions_tell() -> None:
    different: list[Structure] = [
        roost.Ring("visits", Visit, per="uid", keep=5),
        roost.Ring("visits2", Visit, per="uid", keep=5),
        roost.Ring("visits", Visit, per="uid", keep=6),
        roost.Ring("visits", Visit, per="visitor", keep=5),
        roost.Ring("visits", Visit, per=("uid", "visitor"), keep=5),
        roost.Ring("visits", Visit, per=("visitor", "uid"), keep=5),
        roost.Ring("visits", Egg, per="basket", keep=5),
        roost.Capped("visits", Visit, per="uid", keep=5, unique="visitor"),
        roost.Capped("visits", Visit, per="uid", keep=5, unique="visitor", on_full="reject"),
        roost.Capped("visits", Visit, per="uid", keep=5, unique="visitor", on_duplicate="refresh"),
        roost.Set("visits", key=int, member=int),
        roost.Set("visits", key=int, member=str),
        roost.Set("visits", key=str, member=int),
        roost.Counter("visits", key=int),
        roost.Counter("visits", key=int, slots=1),
        roost.Counter("visits", key=Place),
    ]
    assert len({structure.definition for structure in different}) == len(different)
    assert len(set(different)) == len(different)


def test_a_generated_row_of_another_class_is_no_row() -> None:
    egg = Egg(42, 1)
    assert baskets.add(replace(egg, colour="brown")).args != baskets.add(egg).args
    with pytest.raises(roost.Invalid, match=r"^baskets: Visit\(uid=5, visitor=7\) is not a Egg$"):
        baskets.add(Visit(5, 7))  # type: ignore[arg-type]
