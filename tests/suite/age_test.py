"""What expires: rows and members that leave by themselves, in every structure with `keep_for`, whatever its clock does.

`model_test.py` has what every operation then answers.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

import roost
from tests.model.operations import Points
from tests.suite.clients import Client
from tests.suite.passing import Jumping, passes
from tests.suite.shapes import Make, in_threads, rows
from tests.suite.views import insert, remove
from tests.suite.ways import App

pytestmark = pytest.mark.needs("counter", "second store")

MINUTE, DAY = 60, 86_400


@dataclass(frozen=True)
class Kind:
    """How one kind of structure is declared, written and read: numbers by key.

    held: how many of its expired rows stay while another transaction holds one of three.
    """

    name: str
    kind: type[Any]
    options: dict[str, Any] = field(default_factory=dict)
    held: int = 1

    def declare(self, keep_for: Any = 5 * MINUTE, **options: Any) -> Any:
        """Declare it."""
        given = {**self.options, **({} if keep_for is None else {"keep_for": keep_for}), **options}
        if self.kind is roost.Set:
            return roost.Set(self.name, key=int, member=int, **given)
        unique = {"unique": "visitor"} if self.kind is roost.Capped else {}
        return self.kind(self.name, Points, per="uid", **unique, **given)

    def put(self, structure: Any, *pairs: tuple[int, int]) -> Any:
        """Add numbers to keys, in one operation."""
        if self.kind is roost.Set:
            return structure.add(*pairs[0]) if len(pairs) == 1 else structure.add_all(pairs)
        one, many = ("push", "push_all") if self.kind is roost.Ring else ("add", "add_all")
        rows = [Points(key, n, n) for key, n in pairs]
        return getattr(structure, one)(rows[0]) if len(rows) == 1 else getattr(structure, many)(rows)

    def numbers(self, store: Any, structure: Any, key: int) -> list[int]:
        """Return the numbers of a key: every way to read them tells the same."""
        if self.kind is roost.Set:
            reads = [structure.members(key), structure.size(key), structure.contains(key, 7)]
        else:
            reads = [structure.latest(key), structure.entries(key)]
            reads += [structure.count(key), structure.get(key, 7)] if self.kind is roost.Capped else []
        found = store.run_all(*reads)
        assert [store.run(each) for each in reads] == list(found)
        if self.kind is roost.Set:
            assert (len(found[0]), 7 in found[0]) == found[1:]
            return sorted(found[0])
        rows = [each.row for each in found[1]]
        assert [*rows][::-1] == found[0] or structure.kind == "capped"
        if self.kind is roost.Capped:
            assert found[2:] == (len(rows), next((row for row in rows if row.visitor == 7), None))
        return sorted([row.visitor for row in rows])

    @property
    def renews(self) -> bool:
        """Whether what is added again stays longer."""
        return self.kind is roost.Set or self.options.get("on_duplicate") == "refresh"


KINDS = [
    Kind("ring", roost.Ring, {"keep": 3}),
    Kind("capped", roost.Capped, {"keep": 3}, held=3),
    Kind("refreshing", roost.Capped, {"keep": 3, "on_duplicate": "refresh"}, held=3),
    Kind("rejecting", roost.Capped, {"keep": 3, "on_full": "reject"}, held=3),
    Kind("ordered", roost.Capped, {"keep": 3, "order": "points"}, held=3),
    Kind("members", roost.Set),
    Kind("few_members", roost.Set, {"keep": 3}, held=3),
]
of = {kind.name: kind for kind in KINDS}


def size(sql: Client, structure: Any) -> int:
    """How many rows there are, expired ones included."""
    found: Any = sql.execute(f"SELECT count(*) FROM roost_{structure.name}_rows").fetchone()
    return int(found[0])


def test_writes_remove_what_has_expired(open_store: Make, sql: Client) -> None:
    store = open_store(*[kind.declare() for kind in KINDS])
    for kind in KINDS:
        recent = kind.declare()
        store.run(kind.put(recent, *[(key, n) for key in range(20) for n in range(2)]))
        passes(sql, recent, 6 * MINUTE)
        assert size(sql, recent) == 40
        for n in range(60):  # a push by itself leaves it to one in sixteen
            store.run(kind.put(recent, (100 + n % 20, n)))
        assert size(sql, recent) == sum([len(kind.numbers(store, recent, 100 + n)) for n in range(20)]) == 60
        passes(sql, recent, 6 * MINUTE)
        store.run_all(*[kind.put(recent, (200, n), (201, n), (202, n)) for n in range(3)])
        store.run_all(*[kind.put(recent, (key, n)) for key in (203, 204) for n in range(3)])
        assert size(sql, recent) <= 15 + 60 - 2 * 8


@pytest.mark.parametrize("on_duplicate", ["error", "refresh"])
def test_many_rows_come_where_others_have_expired(open_store: Make, sql: Client, on_duplicate: Any) -> None:
    recent: Any = roost.Capped(
        "recent", Points, per="uid", keep=30, unique="visitor", on_duplicate=on_duplicate, keep_for=5 * MINUTE
    )
    store = open_store(recent)
    store.run(recent.add_all([Points(key, n) for key in range(2) for n in range(8)]))
    passes(sql, recent, 3 * MINUTE)
    store.run(recent.add_all([Points(0, n) for n in range(10, 22)]))
    passes(sql, recent, 3 * MINUTE)
    store.run(recent.add_all([Points(key, n) for key in range(2) for n in range(4, 10)]))
    assert store.run_all(recent.count(0), recent.count(1)) == (18, 6)
    assert [row.visitor for row in store.run(recent.latest(0))] == [*range(9, 3, -1), *range(21, 9, -1)]


@pytest.mark.ways("server")
def test_what_others_hold_is_skipped(open_store: Make, app: Callable[..., App], sql: Client) -> None:
    tried = [kind for kind in KINDS if kind.name != "rejecting"]
    store, one = open_store(*[kind.declare() for kind in tried], timeout=2.0), app()
    for kind in tried:
        recent = kind.declare()
        store.run(kind.put(recent, (5, 0), (5, 1), (5, 2)))
        store.run(kind.put(recent, *[(key, 0) for key in range(100, 140)]))  # of few rows MariaDB and MySQL lock all
        put = kind.put(recent, (5, 3) if kind.kind is roost.Ring else (5, 1))
        one.run(put if kind.held == 1 else recent.remove(5, 1))
        passes(sql, recent, 6 * MINUTE)
        store.run(kind.put(recent, *[(key, 0) for key in range(200, 240)]))
        for n in range(12):
            store.run(kind.put(recent, (120, n), (121, n)))
        living = [len(kind.numbers(store, recent, key)) for key in (120, 121)]
        assert size(sql, recent) == kind.held + sum(living) + 40, kind.name
        one.commit()
        store.run_all(kind.put(recent, (120, 30)), kind.put(recent, (120, 31)))
        living = [len(kind.numbers(store, recent, key)) for key in (120, 121)]
        assert size(sql, recent) == sum(living) + 40, kind.name


@pytest.mark.ways("server")
def test_nobody_waits_for_who_adds_another_member(open_store: Make, app: Callable[..., App]) -> None:
    kind = of["members"]
    recent = kind.declare()
    store, one = open_store(recent, timeout=2.0), app()
    one.run(recent.add(5, 1))
    assert store.run(recent.add(5, 2)) == 1
    assert kind.numbers(store, recent, 5) == [2]
    one.commit()
    assert kind.numbers(store, recent, 5) == [1, 2]


def test_a_clock_that_jumps_back_brings_nothing_back(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(*[kind.declare() for kind in KINDS], **clock.options)
    for kind in KINDS:
        recent = kind.declare()
        clock.jumps(recent, 400 * DAY)
        store.run(kind.put(recent, (5, 1), (5, 2)))  # in a batch, which writes the time down; a push does each second
        clock.jumps(recent, 6 * MINUTE)
        store.run(kind.put(recent, (6, 3), (6, 4)))
        clock.jumps(recent, -400 * DAY)
        assert (kind.numbers(store, recent, 5), kind.numbers(store, recent, 6)) == ([], [3, 4])
        store.run(kind.put(recent, (6, 5), (7, 1)))
        assert kind.numbers(store, recent, 6) == [3, 4, 5]
        clock.jumps(recent, 6 * MINUTE)
        assert kind.numbers(store, recent, 6) == []


def test_another_time_is_a_change_that_lets_nothing_come_back(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(*[kind.declare() for kind in KINDS], **clock.options)
    for kind in KINDS:
        recent, shorter, longer = kind.declare(), kind.declare(2 * MINUTE), kind.declare(dt.timedelta(days=1))
        store.run(kind.put(recent, (5, 1)))
        clock.jumps(recent, 4 * MINUTE)
        store.run(kind.put(recent, (5, 2)))
        with pytest.raises(roost.Mismatch, match="keep_for is 5m in the database and 2m"):
            store.create(shorter)
        assert store.alter(shorter) == ["keep_for: 5m -> 2m"]
        assert kind.numbers(store, shorter, 5) == [2]
        assert store.alter(longer) == ["keep_for: 2m -> 1d"]
        assert kind.numbers(store, longer, 5) == [2]
        store.run_all(kind.put(longer, (5, 3)))
        store.run_all(kind.put(recent, (5, 4)))  # an older release writes by it, too
        clock.jumps(recent, 3 * MINUTE)
        assert kind.numbers(store, longer, 5) == [3, 4]
        for without in [kind.declare(None)] if "keep" in kind.options or kind.kind is roost.Set else []:
            with pytest.raises(roost.Invalid, match="keep_for cannot change from 1d to None"):
                store.alter(without)


def test_a_time_that_becomes_longer_and_then_shorter_ends_no_row_early(open_store: Make, sql: Client) -> None:
    # What the longer one had not given to the rows that were there, the shorter one took away: they were lost at once.
    store = open_store(*[kind.declare() for kind in KINDS])
    for kind in KINDS:
        recent, hour = kind.declare(), kind.declare(60 * MINUTE)
        store.run(kind.put(recent, (5, 1)))
        store.alter(kind.declare(DAY))
        store.run(kind.put(recent, (5, 2)))
        store.alter(hour)
        assert kind.numbers(store, hour, 5) == [1, 2]
        passes(sql, hour, 6 * MINUTE)
        assert kind.numbers(store, hour, 5) == [2]
        passes(sql, hour, 55 * MINUTE)
        assert kind.numbers(store, hour, 5) == []


def test_columns_are_added(open_store: Make) -> None:
    recent = of["ring"].declare()
    noted = dataclasses.make_dataclass(
        "Noted", [("note", int, dataclasses.field(default=7))], bases=(Points,), frozen=True
    )
    wider: Any = roost.Ring("ring", noted, per="uid", keep=4, keep_for=DAY)
    store = open_store(recent)
    store.run(recent.push(Points(5, 1)))
    assert store.alter(wider) == ["column note (int) added", "keep: 3 -> 4", "keep_for: 5m -> 1d"]
    store.run_all(wider.push(noted(5, 5, 0, 8)), recent.push(Points(5, 6)))
    assert [(row.visitor, row.note) for row in store.run(wider.latest(5))] == [(6, 7), (5, 8), (1, 7)]


@pytest.mark.needs("readable views")
def test_sql_clients_see_add_and_remove(open_store: Make, sql: Any) -> None:
    store = open_store(*[kind.declare() for kind in KINDS])
    for kind in KINDS:
        sees_adds_and_removes(store, sql, kind)


def sees_adds_and_removes(store: roost.Store, sql: Any, kind: Kind) -> None:
    """What a SQL client sees, writes and takes away in a structure of a kind."""
    recent = kind.declare()
    number = "member" if kind.kind is roost.Set else "visitor"
    key = {"key": 5} if kind.kind is roost.Set else {"uid": 5}

    def put(n: int) -> None:
        insert(sql, kind.name, **key, **{number: n}, **({} if kind.kind is roost.Set else {"points": n}))

    def shown() -> int:
        return int(rows(sql, f"SELECT count(*) FROM {kind.name}")[0][0])

    store.run(kind.put(recent, (5, 0), (5, 1), (5, 2)))
    assert shown() == 3
    passes(sql, recent, 6 * MINUTE)
    assert shown() == 0
    for n in (0, 3, 4):
        put(n)
    assert (shown(), kind.numbers(store, recent, 5)) == (3, [0, 3, 4])
    if kind.options.get("on_full") == "reject":
        with pytest.raises(sql.Error, match="is full"):
            put(5)
    elif kind.kind is roost.Capped and not kind.renews:
        with pytest.raises(sql.Error, match="is there already"):
            put(3)
    mine = {number: 3}
    if kind.kind is roost.Ring:
        mine = {"sequence": rows(sql, f"SELECT sequence FROM {kind.name} WHERE {number} = 3")[0][0]}
    remove(sql, kind.name, **key, **mine)
    assert kind.numbers(store, recent, 5) == [0, 4]
    passes(sql, recent, 3 * MINUTE)
    if kind.renews:
        put(4)
    passes(sql, recent, 3 * MINUTE)
    assert kind.numbers(store, recent, 5) == [4] * kind.renews


def test_many_threads_write_while_rows_leave(open_store: Make, sql: Client) -> None:
    tried = [of[name] for name in ("ring", "capped", "ordered", "members")]
    stores = [open_store(*[kind.declare() for kind in tried]) for _ in range(3)]
    for kind in tried:
        recent = kind.declare()
        stores[0].run(kind.put(recent, *[(key, n) for key in range(30) for n in range(3)]))
        passes(sql, recent, 6 * MINUTE)

        def work(place: int, kind: Kind = kind, recent: Any = recent) -> None:
            for n in range(40):
                stores[place].run(kind.put(recent, (n * (place + 1) % 7, place * 100 + n)))

        in_threads(*[partial(work, place) for place in range(3)])
        assert size(sql, recent) == sum([len(kind.numbers(stores[0], recent, key)) for key in range(7)])
