"""Declarations of sets in memcached, and the names of their items."""

from __future__ import annotations

import datetime as dt
import enum
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
