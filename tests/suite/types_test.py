"""Every column type comes back as it went in, as a row's value, a key and a member; what is too long is refused."""

from __future__ import annotations

import datetime as dt
import enum
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest

import roost
from tests.suite.boundaries import plain
from tests.suite.clients import Client
from tests.suite.shapes import Make, Place, Seen


class Colour(enum.Enum):
    WHITE = "white"
    BROWN = "brown\n  or\u2028light"  # of several lines


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 2**40


@dataclass(frozen=True, slots=True)
class Everything:
    k: int
    i: int
    f: float
    s: str
    b: bytes
    t: bool
    moment: dt.datetime
    day: dt.date
    price: Annotated[Decimal, roost.decimal(12, 2)]
    ident: uuid.UUID
    colour: Colour
    level: Level
    note: str | None = None
    seen: dt.datetime | None = None
    cost: Annotated[Decimal, roost.decimal(38, 10)] | None = None


@dataclass(frozen=True)
class Note:
    k: str
    text: str


EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
LOW = Everything(
    -(2**63), -(2**63), -1.5e308, "", b"", False, dt.datetime(1, 1, 2, tzinfo=EAST), dt.date(1, 1, 1),
    Decimal("-9999999999.99"), uuid.UUID(int=0), Colour.WHITE, Level.LOW,
)  # fmt: skip
HIGH = Everything(
    2**63 - 1, 2**63 - 1, 5e-324, "😀 'quoted\" \\ %s {} \n", bytes(range(256)), True,
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), dt.date(9999, 12, 31), Decimal("0.10"),
    uuid.UUID(int=2**128 - 1), Colour.BROWN, Level.HIGH, "note", dt.datetime(2026, 10, 25, 2, fold=1, tzinfo=EAST),
    Decimal("1234567890123456789012345678.0123456789"),
)  # fmt: skip


@pytest.mark.needs("ring", "capped")
def test_a_row_comes_back_as_it_was(make: Make) -> None:
    ring = roost.Ring("ring", Everything, per="k", keep=2)
    capped = roost.Capped("capped", Everything, per="k", keep=2, unique="i")
    store = make(ring, capped)
    for row in (LOW, HIGH):
        store.run_all(ring.push(row), capped.add(row))
        for (found,) in store.run_all(ring.latest(row.k), capped.latest(row.k)):
            assert found == row
            assert [type(getattr(found, name)) for name in Everything.__slots__] == [
                type(getattr(row, name)) for name in Everything.__slots__
            ]
            assert found.moment.tzinfo is dt.UTC
            assert str(found.price) == str(row.price)


@pytest.mark.needs("ring", "capped", "cache")
def test_many_that_are_written_at_once_come_back_as_they_were(make: Make) -> None:
    ring = roost.Ring("ring", Everything, per="k", keep=24)
    capped = roost.Capped("capped", Everything, per="k", keep=24, unique="i")
    kept = roost.Cache("kept", max_bytes=10**9)
    store = make(ring, capped, kept)
    rows = [replace(LOW if n % 2 else HIGH, k=1, i=n, b=bytes([n])) for n in range(12)]
    values = {f"{row.i}": row.b for row in rows}
    store.run_all(ring.push_all(rows), capped.add_all(rows), kept.set_many(values))
    newest = rows[::-1]
    assert store.run_all(ring.latest(1, 24), capped.latest(1, 24), kept.get_many(values)) == (newest, newest, values)


KEYS: list[tuple[Any, list[Any]]] = [
    (int, [-(2**63), -1, 0, 2**63 - 1]),
    (str, ["", "a", "a\1", "a ", "b", "é", "😀"]),
    (bytes, [b"", b"\0", b"\0\0", b"a", b"\xff"]),
    (bool, [False, True]),
    (dt.date, [dt.date(1, 1, 1), dt.date(999, 1, 1), dt.date(2026, 1, 1)]),
    (dt.datetime, [dt.datetime(999, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)]),
    (uuid.UUID, [uuid.UUID(int=0), uuid.UUID(int=2**127)]),
    (Colour, [Colour.BROWN, Colour.WHITE]),
    (Level, [Level.LOW, Level.HIGH]),
    (roost.text(3), ["abc"]),
    (roost.binary(3), [b"abc"]),
]


@pytest.mark.needs("counter", "set")
def test_keys_and_members_of_every_type_in_their_order(make: Make) -> None:
    made = [
        (roost.Counter(f"counter_{n}", key=kind), roost.Set(f"members_{n}", key=kind, member=kind), keys)
        for n, (kind, keys) in enumerate(KEYS)
    ]
    store = make(*[each for counter, members, _ in made for each in (counter, members)])
    for counter, members, keys in made:
        store.run_all(*[counter.add(key) for key in reversed(keys)], *[members.add(key, *keys) for key in keys])
        found = store.run(counter.keys())
        assert found == keys
        assert [type(key) for key in found] == [type(key) for key in keys]
        assert store.run(members.members(keys[0])) == set(keys)
        walked: list[Any] = []
        while page := store.run(counter.keys(after=walked[-1] if walked else None, n=1)):
            walked += page
        assert walked == keys


class Who(NamedTuple):
    name: str
    device: int


WHO = [Who("x", 1), Who("x", 2)]
PLACES: list[Any] = [Place("B", 1), Place("a", 2), Place("a", 10)]
counted = roost.Counter("counted", key=Place)
windowed = roost.Counter("windowed", key=Place, window="day", keep=2)
pushed = roost.Ring("pushed", Seen, per=Place, keep=2)
gathered = roost.Capped("gathered", Seen, per=Place, keep=2, unique="who")
cached = roost.Cache("cached", key=Place, value=int)
limits = roost.RateLimit("limits", key=Place, limit=2, within=86_400)
leases = roost.Lease("leases", key=Place)
SETS: list[Any] = [
    roost.Set(f"set_{n}", key=Place, member=Who, **options)
    for n, options in enumerate([{}, {"keep": 3}, {"keep_for": 300}, {"keep": 3, "keep_for": 300}])
]


def seen(key: Place) -> Seen:
    return Seen(key.site, key.page, 7)


# A structure by keys of several columns, how a key is written, and how what it then has is read.
COMPOSITE: list[tuple[Any, Callable[[Any], Any], Callable[[Any], dict[Any, Any]]]] = [
    (counted, counted.add, lambda key: {counted.total(key): 1, counted.top(1): [(PLACES[0], 1)]}),
    (windowed, windowed.increment, lambda key: {windowed.total(key): 1, windowed.top(1): [(PLACES[0], 1)]}),
    (pushed, lambda key: pushed.push(seen(key)), lambda key: {pushed.latest(key): [seen(key)]}),
    (gathered, lambda key: gathered.add(seen(key)), lambda key: {gathered.get(key, 7): seen(key)}),
    (cached, lambda key: cached.set(key, 5), lambda key: {cached.get(key): 5}),
    (limits, lambda key: limits.take(key, 2), lambda key: {limits.peek(key): (False, 0)}),
    (leases, lambda key: leases.acquire(key, "ada", 86_400), lambda key: {leases.peek(key): "ada"}),
    *[
        (each, lambda key, each=each: each.add(key, *WHO), lambda key, each=each: {each.members(key): {*WHO}})
        for each in SETS
    ],
]


@pytest.mark.needs("cache", "counter", "ring", "capped", "set")
def test_keys_of_several_columns_are_the_named_tuple_that_was_declared(make: Make) -> None:
    store = make(*[structure for structure, _, _ in COMPOSITE])
    for structure, write, reads in COMPOSITE:
        for key in reversed(PLACES):
            store.run(write(key))
        for key in PLACES:
            for read, wanted in reads(key).items():
                assert plain((store.run(read),), (read,)) == (wanted,), read
        keys = store.run(structure.keys())
        assert (keys, {type(key) for key in keys}) == (PLACES, {Place}), structure
        assert store.run(structure.keys(after=PLACES[0], n=1)) == PLACES[1:2], structure
        assert all(store.run_all(structure.clear(PLACES[0]), structure.forget(PLACES[1]))), structure
        for read, wanted in [*reads(PLACES[0]).items(), *reads(PLACES[1]).items()]:
            assert plain((store.run(read),), (read,)) != (wanted,), read


@pytest.mark.needs("counter", "set", "ring", "nul in text")
def test_a_nul_is_a_character_like_any_other(make: Make) -> None:
    counter = roost.Counter("counter")
    members = roost.Set("members")
    notes = roost.Ring("notes", Note, per="k", keep=2)
    store = make(counter, members, notes)
    store.run_all(counter.add("a\0"), counter.add("a"), members.add("\0", "\0\0", ""), notes.push(Note("a\0b", "\0")))
    assert store.run_all(counter.keys(), members.members("\0"), notes.latest("a\0b")) == (
        ["a", "a\0"],
        {"", "\0\0"},
        [Note("a\0b", "\0")],
    )


@pytest.mark.needs("counter")
def test_decimal_keys_are_equal_when_their_values_are(make: Make) -> None:
    prices = roost.Counter("prices", key=roost.decimal(6, 2))
    store = make(prices)
    store.run_all(
        prices.add(Decimal("1.5")), prices.add(Decimal("1.50")), prices.add(Decimal("-0")), prices.add(Decimal(0))
    )
    assert store.run(prices.totals([Decimal("1.500"), Decimal("0.00")])) == {Decimal("1.50"): 2, Decimal(0): 2}


@pytest.mark.needs("counter", "set", "capped", "no nul in text")
def test_f65_a_nul_is_refused_before_a_statement_and_names_the_column(
    open_store: Callable[..., roost.Store], statements: list[str]
) -> None:
    counter = roost.Counter("counter")
    members = roost.Set("members", key=int)
    notes = roost.Capped("notes", Note, per="text", keep=2, unique="k")
    texts = roost.Ring("texts", Note, per="k", keep=2)
    jobs = roost.Lease("jobs")
    store = open_store(counter, members, notes, texts, jobs)
    refused: list[tuple[roost.Operation[Any], str]] = [
        (counter.add("a\0"), "counter.key"),
        (counter.total("a\0"), "counter.key"),
        (counter.totals(["a", "\0"]), "counter.key"),
        (counter.keys(after="\0"), "counter.key"),
        (members.add(1, "a", "b\0"), "members.member"),
        (members.contains(1, "b\0"), "members.member"),
        (members.add_all([(1, "a"), (2, "b\0")]), "members.member"),
        (texts.push_all([Note("a", ""), Note("a", "\0")]), "texts.text"),
        (jobs.acquire("daily", "a\0b", 1), "jobs.holder"),
        (notes.add(Note("a", "\0")), "notes.text"),
        (notes.remove("a", "\0"), "notes.k"),
        (notes.get("\0", "a"), "notes.text"),
        (roost.Capped.of("pages").add(path="/", title="\0"), "pages.title"),
        (roost.Capped.of("pages").latest("\0"), "pages.key"),
    ]
    for operation, column in refused:
        statements.clear()
        with pytest.raises(roost.Invalid, match=f"^{column}: .* has a NUL"):
            store.run(operation)
        assert not [sql for sql in statements if re.search("roost_(counter|members|notes|texts|jobs)|pages", sql)]


# --- what a database cannot hold, or not in an index -------------------------------------------------------------


class Three(NamedTuple):
    a: str
    b: str
    c: str


Many = make_dataclass("Many", [("uid", int), *[(f"t{n}", Annotated[str, roost.text(200)]) for n in range(90)]])
Long = make_dataclass("Long", [("uid", Annotated[str, roost.text(600)]), ("v", Annotated[str, roost.text(600)])])
many: Any = roost.Ring("many", Many, per="uid", keep=2)
long: Any = roost.Capped("long", Long, per="uid", keep=2, unique="v")
texts = roost.Counter("texts", key=Three)  # 3,060 bytes in an index at most
one_text = roost.Cache("one_text", key=roost.text(700))
no_varchar = roost.Cache("no_varchar", key=roost.binary(4000))  # its column is MEDIUMBLOB, which is in no index


REFUSED_BY: dict[Any, tuple[str, ...]] = {
    many: ("mysql",),
    long: ("mysql", "postgresql"),
    texts: ("postgresql",),
    one_text: ("postgresql",),
    no_varchar: ("mysql", "postgresql"),
}


@pytest.mark.needs("second store", "cache")
def test_what_has_too_many_bytes_is_refused_when_it_is_declared(
    open_store: Callable[..., roost.Store], sql: Client, store_url: str
) -> None:
    store = open_store()
    for structure, refused_by in REFUSED_BY.items():
        if store_url.startswith(refused_by):
            with pytest.raises(roost.Invalid, match=r"bytes.*shorter .*roost\.text\(100\)"):
                store.create(structure)
            assert [each for each in sql.private_tables() if structure.name in each] == []
        else:
            store.create(structure)


@pytest.mark.needs("second store", "cache")
def test_the_longest_key_of_two_texts_is_stored(open_store: Callable[..., roost.Store]) -> None:
    pairs = roost.Set("pairs")
    longest = ["".join(chr(0x10000 + 7919 * (place + n) % 0xFFFF) for place in range(255)) for n in range(2)]
    store = open_store(pairs)
    assert store.run(pairs.add(longest[0], longest[1])) == 1
    assert store.run(pairs.members(longest[0])) == {longest[1]}
