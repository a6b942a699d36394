"""A set whose members leave by themselves: exact at each moment, whatever the options and the clock; few rows stay."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import threading
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

import roost
from roost.structures.registry import from_definition
from tests.suite.clients import Client
from tests.suite.passing import Jumping, passes
from tests.suite.ways import App

Make = Callable[..., Any]

MINUTE, DAY = 60, 86_400

online = roost.Set("online", key=str, member=int, keep_for=dt.timedelta(minutes=5))
second = pytest.mark.needs("set", "second store")
pytestmark = pytest.mark.needs("set")


class Place(NamedTuple):
    host: str
    number: int


class Who(NamedTuple):
    name: str
    device: int


class Bad(NamedTuple):
    name: str
    until: int


def size(sql: Client) -> int:
    """How many rows there are."""
    found: Any = sql.execute("SELECT count(*) FROM roost_online_rows").fetchone()
    return int(found[0])


def test_it_answers_like_a_set(make: Make) -> None:
    store = make(online)
    assert store.run(online.add("chat", 7, 8, 7)) == 2
    assert store.run(online.add("chat", 7)) == 0
    assert store.run(online.add("chat", 9)) == 1
    assert store.run(online.add("chat")) == 0
    assert store.run(online.add_all([("chat", 9), ("mail", 7), ("mail", 7)])) == [False, True, False]
    assert store.run(online.members("chat")) == {7, 8, 9}
    assert store.run(online.size("chat")) == 3
    assert (store.run(online.contains("chat", 8)), store.run(online.contains("mail", 8))) == (True, False)
    assert store.run(online.remove("chat", 8, 10)) == 1
    assert store.run(online.remove("chat", 8)) == 0
    assert store.run_all(online.keys(), online.size("chat"), online.members("mail"), online.contains("chat", 9)) == (
        ["chat", "mail"], 2, {7}, True
    )  # fmt: skip
    assert store.run(online.keys(after="chat", n=1)) == ["mail"]
    assert store.run_all(online.clear("chat"), online.clear("chat"), online.forget("mail")) == (2, 0, 1)
    assert store.run_all(online.keys(), online.members("chat"), online.size("chat")) == ([], set(), 0)
    assert store.run(online.members("chat")) == set()
    assert store.run(online.size("chat")) == 0


def test_composite_keys_and_members(make: Make) -> None:
    places = roost.Set("places", key=Place, member=Who, keep_for=60)
    store = make(places)
    store.run(places.add(Place("a", 1), Who("x", 1), Who("x", 2)))
    assert store.run(places.add(Place("a", 2), Who("x", 1))) == 1
    assert store.run(places.members(Place("a", 1))) == {Who("x", 1), Who("x", 2)}
    assert store.run(places.keys(after=Place("a", 1))) == [Place("a", 2)]
    assert store.run(places.clear(Place("a", 1))) == 2
    assert store.run(places.keys()) == [Place("a", 2)]


@second
def test_members_leave_by_themselves_unless_they_are_added_again(make: Make, sql: Client) -> None:
    store = make(online)
    store.run_all(online.add("chat", 7, 8), online.add("mail", 7))
    passes(sql, online, 4 * MINUTE)
    assert store.run(online.add("chat", 7)) == 0
    passes(sql, online, 2 * MINUTE)
    assert store.run_all(online.members("chat"), online.size("chat"), online.contains("chat", 8)) == ({7}, 1, False)
    assert store.run(online.members("chat")) == {7}
    assert (store.run(online.size("chat")), store.run(online.size("mail"))) == (1, 0)
    assert (store.run(online.contains("chat", 7)), store.run(online.contains("chat", 8))) == (True, False)
    assert store.run(online.keys()) == ["chat"]
    assert store.run(online.remove("chat", 8)) == 0
    assert store.run_all(online.clear("mail"), online.add("chat", 8)) == (0, 1)
    assert store.run(online.size("chat")) == 2
    passes(sql, online, 2 * MINUTE)
    assert store.run_all(online.remove("chat", 7, 8), online.add("mail", 7)) == (2, 1)


@second
def test_writes_remove_what_is_over(open_store: Make, sql: Client) -> None:
    store = open_store(online)
    store.run(online.add("chat", *range(40)))
    passes(sql, online, 6 * MINUTE)
    assert size(sql) == 40
    for n in range(25):
        store.run(online.add("mail", n))
    assert size(sql) <= 25 + 15
    for n in range(25):
        store.run(online.add("mail", n))
    assert size(sql) == 25
    passes(sql, online, 6 * MINUTE)
    store.run_all(*[online.add("mail", n) for n in range(13)])
    assert size(sql) == 13


@second
def test_what_others_hold_is_skipped(open_store: Make, app: Callable[..., App], sql: Client, store_url: str) -> None:
    store, one = open_store(online, timeout=2.0), app()
    if store_url.startswith("sqlite"):
        return  # there is one writer
    store.run(online.add("chat", 1, 2))
    one.run(online.add("chat", 1))
    passes(sql, online, 6 * MINUTE)
    assert store.run(online.add("mail", 1)) == 1
    assert store.run_all(online.add("mail", 2), online.size("mail")) == (1, 2)
    assert size(sql) == 3
    assert store.run(online.keys()) == ["mail"]
    one.commit()
    store.run_all(online.add("mail", 1), online.add("mail", 2))
    assert size(sql) == 2


@second
def test_nobody_waits_for_who_adds_another_member(open_store: Make, app: Callable[..., App], store_url: str) -> None:
    store, one = open_store(online, timeout=2.0), app()
    if store_url.startswith("sqlite"):
        return  # there is one writer
    one.run(online.add("chat", 1))
    assert store.run(online.add("chat", 2)) == 1
    assert store.run(online.members("chat")) == {2}
    one.commit()
    assert store.run(online.members("chat")) == {1, 2}


@second
def test_in_the_applications_transaction(open_store: Make, app: Callable[..., App], sql: Client) -> None:
    store, one = open_store(online), app()
    assert one.run_all(online.add("chat", 7, 8), online.remove("chat", 8), online.size("chat")) == (2, 1, 1)
    one.rollback()
    assert store.run(online.keys()) == []
    assert one.run(online.add("chat", 7)) == 1
    assert one.run(online.contains("chat", 7)) is True
    one.commit()
    store.run(online.add("chat", 9))
    assert store.run(online.size("chat")) == 2
    passes(sql, online, 6 * MINUTE)
    assert one.run_all(online.size("chat"), online.clear("chat"), online.members("chat")) == (0, 0, set())
    one.commit()


@second
def test_a_clock_that_jumps_back_brings_nothing_back(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(online, **clock.options)
    clock.jumps(online, 400 * DAY)
    store.run(online.add("chat", 7))
    clock.jumps(online, 6 * MINUTE)
    assert store.run(online.add("chat", 8)) == 1
    clock.jumps(online, -400 * DAY)
    assert store.run(online.members("chat")) == {8}
    assert store.run(online.add("chat", 9)) == 1
    assert store.run_all(online.size("chat"), online.contains("chat", 7)) == (2, False)
    clock.jumps(online, 6 * MINUTE)
    assert store.run(online.members("chat")) == set()


@second
def test_another_time_is_a_change_that_lets_nothing_come_back(open_store: Make, sql: Client, store_url: str) -> None:
    clock = Jumping(sql, store_url)
    store = open_store(online, **clock.options)
    store.run(online.add("chat", 7))
    clock.jumps(online, 4 * MINUTE)
    store.run(online.add("chat", 8))
    shorter = roost.Set("online", key=str, member=int, keep_for=2 * MINUTE)
    with pytest.raises(roost.Mismatch, match="keep_for is 5m in the database and 2m"):
        store.create(shorter)
    assert store.alter(shorter) == ["keep_for: 5m -> 2m"]
    assert store.run(shorter.members("chat")) == {8}
    longer = roost.Set("online", key=str, member=int, keep_for=dt.timedelta(days=1))
    assert store.alter(longer) == ["keep_for: 2m -> 1d"]
    assert store.run(longer.members("chat")) == {8}
    assert store.run_all(longer.add("chat", 9), online.add("chat", 10)) == (1, 1)  # an older release writes by it, too
    clock.jumps(online, 3 * MINUTE)
    assert store.run(longer.members("chat")) == {9, 10}
    with pytest.raises(roost.Invalid, match="keep_for cannot change"):
        store.alter(roost.Set("online", key=str, member=int))


@pytest.mark.needs("set", "second store", "views")
def test_sql_sees_adds_and_removes_members(open_store: Make, sql: Client, store_url: str) -> None:
    store = open_store(online)
    store.run(online.add("chat", *range(1, 9)))
    assert sql.execute("SELECT count(*) FROM online WHERE key = 'chat'").fetchone() == (8,)
    sql.execute("DELETE FROM online WHERE member = 8")
    assert store.run(online.size("chat")) == 7
    passes(sql, online, 6 * MINUTE)
    assert sql.execute("SELECT count(*) FROM online").fetchone() == (0,)
    sql.execute("INSERT INTO online VALUES ('chat', 20)")
    sql.execute("INSERT INTO online (key, member) VALUES ('chat', 21), ('chat', 21)")
    assert sorted(sql.execute("SELECT key, member FROM online").fetchall()) == [("chat", 20), ("chat", 21)]
    assert store.run_all(online.members("chat"), online.size("chat")) == ({20, 21}, 2)
    assert size(sql) == (2 if store_url.startswith("sqlite") else 9)  # on servers what is over is left to stores
    with pytest.raises((sql.IntegrityError, sql.NotSupportedError), match="key and member cannot be changed"):
        sql.execute("UPDATE online SET member = 3")
    with pytest.raises(sql.IntegrityError, match=r"online\.member: it takes an integer"):
        sql.execute("INSERT INTO online VALUES ('chat', NULL)")


@pytest.mark.needs("set", "second store", "pymysql")
def test_sql_adds_and_removes_members_through_the_inlets(open_store: Make, sql: Client) -> None:
    store = open_store(online)
    store.run(online.add("chat", 1, 2))
    assert sql.execute("SELECT count(*) FROM online WHERE `key` = 'chat'").fetchone() == (2,)
    sql.execute("INSERT INTO online_out VALUES ('chat', 2)")
    assert store.run(online.members("chat")) == {1}
    passes(sql, online, 6 * MINUTE)
    assert sql.execute("SELECT count(*) FROM online").fetchone() == (0,)
    sql.execute("INSERT INTO online_in VALUES ('chat', 20), ('chat', 20)")
    assert store.run(online.members("chat")) == {20}
    assert size(sql) == 2  # what is over is left to stores
    store.alter(roost.Set("online", key=str, member=int, keep_for=DAY))
    sql.execute("INSERT INTO online_in VALUES ('chat', 21)")
    passes(sql, online, DAY / 2)
    assert store.run(online.members("chat")) == {21}


@second
def test_many_threads_add_and_remove(open_store: Make) -> None:
    stores = [open_store(online) for _ in range(3)]
    start = threading.Barrier(3)
    net = [0] * 3

    def work(place: int) -> None:
        start.wait()
        for n in range(30):
            net[place] += stores[place].run(online.add("chat", n % 5, n % 3))
            net[place] -= stores[place].run(online.remove("chat", (n + 2) % 5))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].run(online.size("chat")) == sum(net) == len(stores[1].run(online.members("chat")))


OPTIONS: list[dict[str, Any]] = [{}, {"keep": 3}, {"keep_for": 300}, {"keep": 3, "keep_for": 300}]


class Model:
    """Members in the order in which they were added, with the moments at which they leave."""

    def __init__(self, keep: int | None = None, keep_for: int | None = None) -> None:
        self.keep, self.keep_for, self.now = keep, keep_for, 0
        self.sets: dict[str, dict[int, int]] = {}

    def living(self, key: str) -> dict[int, int]:
        """The members that have not left."""
        there = self.sets.setdefault(key, {})
        for member in [each for each, added in there.items() if self.keep_for and added + self.keep_for <= self.now]:
            del there[member]
        return there

    def run(self, op: Any) -> Any:
        """Return what a store must answer."""
        if op.verb == "add_all":
            return [bool(self._add(*pair)) for pair in op.args]
        (key,), *rest = op.args
        living = self.living(key)
        match op.verb, rest:
            case "add", [members]:
                return sum([self._add(key, member) for (member,) in members])
            case "remove", [members]:
                return sum([living.pop(member, None) is not None for (member,) in members])
            case (("clear" | "forget"), []):
                self.sets[key] = {}
                return len(living)
            case "contains", [(member,)]:
                return member in living
            case "size", []:
                return len(living)
        return set(living)

    def _add(self, key: str, member: int) -> int:
        living = self.living(key)
        new = living.pop(member, None) is None
        living[member] = self.now
        if self.keep and len(living) > self.keep:
            del living[next(iter(living))]
        return int(new)


def some(random: Random, structure: Any) -> Any:
    """Some operation."""
    key, members = random.choice("ab"), [random.randrange(8) for _ in range(random.randrange(4))]
    pairs = [(random.choice("ab"), random.randrange(40)) for _ in range(random.choice([3, 30]))]
    made: list[Callable[[], Any]] = [
        lambda: structure.add(key, *members),
        lambda: structure.add(key, *members[:1]),
        lambda: structure.remove(key, *members),
        lambda: structure.add_all(pairs),
        lambda: structure.members(key),
        lambda: structure.size(key),
        lambda: structure.contains(key, random.randrange(8)),
        lambda: random.choice([structure.clear, structure.forget])(key),
    ]
    return random.choice(made + made[:3])()


@second
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(int(os.environ.get("ROOST_MODEL_EXAMPLES", "60")) // 30))
def test_whatever_the_options_it_answers_what_a_model_answers(
    open_store: Make, sql: Client, options: dict[str, Any], seed: int
) -> None:
    random, model = Random(seed), Model(**options)
    structure = roost.Set("online", key=str, member=int, **options)
    store = open_store(structure)
    for _ in range(40):
        if "keep_for" in options and random.random() < 0.3:
            seconds = random.choice([100, 150, 301])
            passes(sql, structure, seconds)
            model.now += seconds
        ops = [some(random, structure) for _ in range(random.choice([1, 1, 2, 5]))]
        answer = (store.run(ops[0]),) if len(ops) == 1 else store.run_all(*ops)
        assert answer == tuple([model.run(op) for op in ops]), ops
    assert store.run_all(*[structure.members(key) for key in "ab"]) == (set(model.living("a")), set(model.living("b")))
    assert store.check() == []


@second
@pytest.mark.parametrize("options", OPTIONS[1::2], ids=str)
def test_a_smaller_keep_lets_the_oldest_go(open_store: Make, options: dict[str, Any]) -> None:
    def declared(keep: int) -> Any:
        return roost.Set("online", key=str, member=int, **{**options, "keep": keep})

    store = open_store(declared(3))
    store.run_all(declared(3).add("chat", 1, 2, 3), declared(3).add("chat", 1), declared(3).add("mail", 1))
    assert store.alter(declared(2)) == ["keep: 3 -> 2"]
    assert store.run_all(declared(2).members("chat"), declared(2).size("chat")) == ({1, 3}, 2)
    assert store.run_all(declared(3).add("chat", 4), declared(3).members("chat")) == (1, {1, 4})  # an older release
    assert store.alter(declared(4)) == ["keep: 2 -> 4"]
    assert store.run_all(declared(4).add("chat", 5, 6, 7), declared(4).members("chat")) == (3, {4, 5, 6, 7})
    assert store.check() == []


@second
@pytest.mark.parametrize("options", OPTIONS[1:3], ids=str)
def test_an_option_neither_comes_nor_goes(open_store: Make, options: dict[str, Any]) -> None:
    plain, optional = roost.Set("online", key=str, member=int), roost.Set("online", key=str, member=int, **options)
    (option,) = options
    store = open_store(plain)
    with pytest.raises(roost.Invalid, match=f"{option} cannot change from None"):
        store.alter(optional)
    assert store.run_all(plain.add("chat", 1), plain.size("chat")) == (1, 1)


def test_a_declaration_is_a_value() -> None:
    made = from_definition(online.definition)
    assert made == online == pickle.loads(pickle.dumps(online))
    assert isinstance(made, roost.Set)
    assert made != roost.Set("online", key=str, member=int)
    assert repr(online.add("chat", 7)) == "online.add('chat', 7)"
    assert roost.Set("online", keep_for=90) == roost.Set("online", keep_for=dt.timedelta(seconds=90))


def test_what_cannot_be_declared_is_refused() -> None:
    for bad in (0, -1, "5m", True, dt.timedelta(), 1.5, dt.timedelta(days=400 * 365), float("nan")):
        with pytest.raises(roost.Invalid, match="online: keep_for"):
            roost.Set("online", keep_for=bad)  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match="column of Roost's own"):
        roost.Set("online", member=Bad, keep_for=60)
