"""Declarations of sets in memcached, their operations as values, and the names of their items."""

from __future__ import annotations

import datetime as dt
import enum
import pickle
import uuid
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest

import roost


class Colour(enum.Enum):
    WHITE = "white egg"
    BROWN = "brown"


class Place(NamedTuple):
    site: str
    page: int


class Price(NamedTuple):
    price: Annotated[Decimal, roost.decimal(12, 2)]
    blob: bytes


likes = roost.MemcachedSet("likes", int, str)
places = roost.MemcachedSet("places", Place, Colour, shards=3, ttl=60)
recipe = roost.MemcachedSet("recipe", encoding="readable")

PRINTED = [
    (likes.add(7, "ada", "bob"), "likes.add(7, 'ada', 'bob')", True),
    (likes.add(7), "likes.add(7)", True),
    (likes.add(7, "ada", "ada"), "likes.add(7, 'ada')", True),
    (likes.remove(7, "ada"), "likes.remove(7, 'ada')", True),
    (likes.replace(7, iter(["ada", "bob"])), "likes.replace(7, ['ada', 'bob'])", True),
    (likes.clear(7), "likes.clear(7)", True),
    (likes.forget(7), "likes.forget(7)", True),
    (likes.members(7), "likes.members(7)", False),
    (likes.contains(7, "ada"), "likes.contains(7, 'ada')", False),
    (likes.size(7), "likes.size(7)", False),
    (likes.info(7), "likes.info(7)", False),
    (places.add(Place("a", 1), Colour.WHITE), "places.add(Place(site='a', page=1), <Colour.WHITE: 'white egg'>)", True),
]


@pytest.mark.parametrize(("op", "printed", "writes"), PRINTED, ids=[printed for _, printed, _ in PRINTED])
def test_operations_are_values(op: roost.Operation[Any], printed: str, writes: bool) -> None:
    assert repr(op) == printed
    assert op.writes is writes
    again = pickle.loads(pickle.dumps(op))
    assert again == op
    assert hash(again) == hash(op)
    assert again.structure.is_like(op.structure)


def test_declarations_are_equal_when_all_is() -> None:
    assert roost.MemcachedSet("likes", int, str) == likes
    for other in (
        roost.MemcachedSet("likes", int, str, encoding="readable"),
        roost.MemcachedSet("likes", int, str, shards=1),
        roost.MemcachedSet("likes", int, str, ttl=1),
        roost.MemcachedSet("likes", str, str),
        roost.Set("likes", key=int, member=str),
    ):
        assert other != likes


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        (lambda: roost.MemcachedSet("Likes"), "cannot name a structure"),
        (lambda: roost.MemcachedSet("likes", float), "a float is no key"),
        (lambda: roost.MemcachedSet("likes", encoding="json"), "encoding is"),  # type: ignore[call-overload]
        (lambda: roost.MemcachedSet("likes", shards=-1), "shards is a whole number from 0 to 1,024"),
        (lambda: roost.MemcachedSet("likes", shards=1025), "shards is"),
        (lambda: roost.MemcachedSet("likes", shards=True), "shards is"),
        (lambda: roost.MemcachedSet("likes", ttl=0), "ttl is whole seconds from 1 to"),
        (lambda: roost.MemcachedSet("likes", ttl=1.5), "ttl is"),  # type: ignore[call-overload]
        (lambda: likes.add("7", "ada"), "likes.key"),  # type: ignore[arg-type]
        (lambda: likes.add(7, 8), "likes.member"),  # type: ignore[arg-type]
        (lambda: likes.add(7, "x" * 256), "the limit is 255"),
        (lambda: likes.replace(7, [None]), "likes.member"),  # type: ignore[list-item]
        (lambda: likes.keys(), "memcached cannot list its keys"),
        (lambda: recipe.add("a", "white space"), "recipe.member: 'white space' has white space"),
        (lambda: recipe.contains("a", "a\u2028"), "white space"),
        (lambda: recipe.replace("a", ["a", "b "]), "white space"),
    ],
)
def test_what_is_refused_when_it_is_made(wrong: Any, answer: str) -> None:
    with pytest.raises(roost.Invalid, match=answer):
        wrong()


ITEMS = [
    (roost.MemcachedSet("a", int), 7, "a:7"),
    (roost.MemcachedSet("a", int), -7, "a:-7"),
    (roost.MemcachedSet("a"), "x", "a:x"),
    (roost.MemcachedSet("a"), "", "a:"),
    (roost.MemcachedSet("a"), "b:c/d", "a:b:c/d"),
    (roost.MemcachedSet("a"), "b c%", "a:b%20c%25"),
    (roost.MemcachedSet("a"), "\u00f6\n", "a:%C3%B6%0A"),
    (roost.MemcachedSet("a", bytes), b"\0\xff", "a:00ff"),
    (roost.MemcachedSet("a", bool), True, "a:1"),
    (roost.MemcachedSet("a", dt.date), dt.date(2026, 11, 21), "a:2026-11-21"),
    (roost.MemcachedSet("a", dt.datetime), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "a:2026-01-02T00:00:00+00:00"),
    (roost.MemcachedSet("a", uuid.UUID), uuid.UUID(int=1), "a:00000000-0000-0000-0000-000000000001"),
    (roost.MemcachedSet("a", Colour), Colour.WHITE, "a:white%20egg"),
    (roost.MemcachedSet("a", Place), Place("b:c", 1), "a:b%3Ac:1"),
    (roost.MemcachedSet("a", Price), Price(Decimal("1.50"), b"\1"), "a:1.50:01"),
    (roost.MemcachedSet("a", roost.decimal(12, 9)), Decimal("0.000000001"), "a:0.000000001"),
]


@pytest.mark.parametrize(("structure", "key", "item"), ITEMS, ids=[item for *_, item in ITEMS])
def test_the_item_of_a_key_and_back(structure: Any, key: Any, item: str) -> None:
    assert structure.item(structure.key.check(key)) == item
    assert structure.key_of(item) == key


def test_a_long_key_becomes_a_hash_and_no_two_are_one() -> None:
    words = roost.MemcachedSet("words")
    items = [words.item((text,)) for text in ("x" * 194, "x" * 195, "x" * 255, "\u00f6" * 33, "\u00f6" * 32, "x" * 254)]
    assert [len(item) for item in items] == [200, 48, 48, 48, 6 + 32 * 6, 48]
    assert len(set(items)) == 6
    assert words.key_of(items[1]) is None


@pytest.mark.parametrize("item", ["likes:", "likes:x", "likes:7:8"])
def test_an_item_of_no_key(item: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        likes.key_of(item)
