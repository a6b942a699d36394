"""The bounds of a cache: never more than they say, and what was used longest ago goes first."""

from __future__ import annotations

import random
import threading
import uuid
from collections import OrderedDict
from typing import Any

import pytest

import roost
from tests.lengths import length
from tests.suite.clients import Client, MariaDBClient
from tests.suite.passing import passes
from tests.suite.shapes import Make
from tests.suite.views import insert, remove

pytestmark = pytest.mark.needs("cache")

few = roost.Cache("few", key=int, value=roost.text(100), max_items=4)
small = roost.Cache("small", key=int, value=bytes, max_bytes=1000)
both = roost.Cache("both", key=str, value=str, max_items=10, max_bytes=500)


def test_a_read_writes_nothing(open_store: Make, statements: list[str]) -> None:
    store = open_store(few)
    store.run(few.set_many({1: "a", 2: "b"}))
    statements.clear()
    for _ in range(10):
        store.run(few.get(1))
        store.run_all(few.get(1), few.get_many([1, 2]))
    assert not [each for each in statements if each.startswith(("UPDATE", "INSERT", "DELETE"))]


@pytest.mark.needs("second store")
def test_what_is_over_goes_before_what_is_not(make: Make, sql: Client) -> None:
    store = make(few)
    store.run_all(few.set(1, "a"), few.set(2, "b"), few.set(3, "c", ttl=10), few.set(4, "d"))
    passes(sql, few, 11)
    store.run(few.set(5, "e"))
    assert store.run(few.keys()) == [1, 2, 4, 5]
    store.run(few.set(1, "used"))
    store.run(few.set(6, "f"))
    assert store.run(few.keys()) == [1, 4, 5, 6]
    store.run_all(few.set(1, "g", ttl=10), few.set(6, "h", ttl=10))
    passes(sql, few, 11)
    store.run_all(few.set(7, "i"), few.set(8, "j"))
    assert store.run(few.keys()) == [4, 5, 7, 8]


def test_the_bytes_of_keys_and_values_stay_below_max_bytes(make: Make) -> None:
    store = make(small)
    for n in range(20):
        store.run(small.set(n, b"x" * 92))
    assert store.run(small.keys()) == list(range(10, 20))
    store.run(small.set(20, b"x" * 500))
    assert store.run(small.keys()) == [16, 17, 18, 19, 20]
    assert store.run(small.append(20, b"y" * 93)) is True
    assert store.run(small.keys()) == [17, 18, 19, 20]
    store.run(small.set(20, b""))
    store.run(small.set_many(dict.fromkeys(range(6), b"x" * 92)))
    assert len(store.run(small.keys())) == 10
    with pytest.raises(roost.Full, match="max_bytes"):
        store.run(small.set(30, b"x" * 1000))
    with pytest.raises(roost.Full):
        store.run(small.append(5, b"x" * 950))
    assert store.run(small.get(5)) == b"x" * 92


def test_a_text_counts_by_its_bytes(make: Make) -> None:
    store = make(both)
    store.run(both.set("é", "ü" * 249))
    assert store.run(both.keys()) == ["é"]
    with pytest.raises(roost.Full):
        store.run(both.set("é", "ü" * 250))
    store.run_all(*[both.set(str(n), "v") for n in range(12)])
    assert sorted(store.run(both.keys()), key=int) == [str(n) for n in range(2, 12)]


def test_what_is_neither_text_nor_bytes_counts_as_8_bytes_alone_and_among_many(make: Make) -> None:
    idents = roost.Cache("idents", key=uuid.UUID, value=uuid.UUID, max_bytes=10 * 16)
    store = make(idents)
    ten = {uuid.UUID(int=n): uuid.UUID(int=n) for n in range(10)}
    for operations in ([idents.set_many(ten)], [idents.set(*each) for each in ten.items()]):
        store.run_all(*operations)
        assert store.run(idents.get_many(ten)) == ten
    for each in reversed(ten.items()):
        store.run(idents.set(*each))
    assert store.run(idents.get_many(ten)) == ten


def test_random_calls_are_those_of_an_ordered_dictionary(make: Make) -> None:
    """Never more than `max_items`, and what was used longest ago goes first, whether it was read or written."""
    store, dice = make(few), random.Random(5)
    model: OrderedDict[int, str] = OrderedDict()

    def written(key: int, value: str) -> None:
        model[key] = value
        model.move_to_end(key)
        if len(model) > 4:
            model.popitem(last=False)

    for _ in range(length(60, 200)):
        atom: list[Any] = []
        for _ in range(dice.choice([1, 1, 2, 5])):
            key, value = dice.randrange(8), f"{dice.random()}"
            match dice.randrange(9):
                case 0 | 1:
                    atom.append(few.set(key, value))
                    written(key, value)
                case 2:
                    several = {(key + 3 * n) % 40: value for n in range(dice.choice([2, 2, 2, 12]))}
                    atom.append(few.set_many(several))
                    for each in several:
                        written(each, value)
                case 3:
                    atom.append(few.delete(key))
                    model.pop(key, None)
                case 4:
                    atom.append(few.append(key, "!"))
                    if key in model:
                        written(key, model[key] + "!")
                case 5:
                    atom.append(few.add(key, value))
                    if key not in model:
                        written(key, value)
                case _ if not atom:  # a use is noted with the next write
                    key = dice.choice([key, *model])
                    assert store.run(few.get(key)) == model.get(key)
                    assert store.run_all(few.get_many([key, 99]), few.get(99)) == (
                        {key: model[key]} if key in model else {},
                        None,
                    )
                    if key in model:
                        model.move_to_end(key)
                        if dice.random() < 0.5:
                            assert store.run(few.cas(key, value, store.run(few.gets(key)).token)) is True
                            written(key, value)
        store.run_all(*atom) if len(atom) > 1 else [store.run(each) for each in atom]
        assert store.run(few.keys()) == sorted(model)
        if dice.random() < 0.05:
            assert store.run_all(few.clear(), few.keys()) == (len(model), [])
            model.clear()


@pytest.mark.needs("second store")
def test_nobody_ever_sees_too_many(open_store: Make, sql: Client) -> None:
    stores = [open_store(few, timeout=60.0) for _ in range(3)]
    seen: list[int] = []

    def write(store: roost.Store, seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(length(10, 25)):
            store.run_all(*[few.set(dice.randrange(50), "x") for _ in range(3)], few.delete(dice.randrange(50)))
            store.run(few.add(dice.randrange(50), "y"))
            store.run(few.set(dice.randrange(50), "z", ttl=dice.choice([None, 100])))
            store.run(few.get(dice.randrange(50)))
            store.run(few.touch(dice.randrange(50), 100))

    threads = [threading.Thread(target=write, args=(store, seed)) for seed, store in enumerate(stores * 2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found: Any = sql.execute("SELECT count(*) FROM roost_few_rows").fetchone()
        seen.append(found[0])
    for thread in threads:
        thread.join()
    assert max(seen) <= 4
    assert stores[0].check() == []


@pytest.mark.needs("second store")
def test_a_count_that_is_wrong_is_told_and_mended(open_store: Make, sql: Client) -> None:
    store = open_store(few)
    store.run(few.set_many(dict.fromkeys(range(4), "x")))
    sql.execute("DELETE FROM roost_few_rows")
    assert [each.rule for each in store.check(few)] == ["count"]
    store.run(few.set(1, "y"))
    assert store.run(few.get(1)) == "y"


def test_bounds_can_be_altered(open_store: Make) -> None:
    store = open_store(few)
    store.run_all(*[few.set(n, "x") for n in range(4)])
    fewer = few.replaced(max_items=2)
    assert store.alter(fewer) == ["max_items: 4 -> 2"]
    assert store.run(fewer.keys()) == [2, 3]
    store.run(few.set(7, "y"))  # by what is stored
    assert store.run(few.keys()) == [3, 7]
    assert store.alter(few.replaced(max_items=3, max_bytes=100_000))
    with pytest.raises(roost.Invalid, match="no order of use"):
        store.alter(few.replaced(max_items=None))


def test_what_has_more_than_the_altered_max_bytes_is_refused_to_those_who_know_the_former(open_store: Make) -> None:
    store = open_store(small)
    store.run(small.set(1, b"x"))
    store.alter(small.replaced(max_bytes=100))
    large = b"x" * 500
    for refused in (
        [small.set(2, large)],
        [small.add(2, large)],
        [small.set_many({2: large, 3: b""})],
        [small.set(3, b""), small.set(2, large)],
        [small.set(n, large) for n in range(2, 20)],
    ):
        with pytest.raises(roost.Full, match="max_bytes"):
            store.run_all(*refused)
        assert store.run(small.get_many(range(20))) == {1: b"x"}


@pytest.mark.needs("readable views", "cache")
def test_plain_sql_reads_and_writes(open_store: Make, sql: Any) -> None:
    store, in_place = open_store(few, small), not isinstance(sql, MariaDBClient)
    for key in range(1, 6):
        insert(sql, "few", key=key, value="x")
    for key in (4, 7):
        remove(sql, "few", key=key)
    assert store.run(few.keys()) == [2, 3, 5]
    if in_place:
        sql.execute("UPDATE few SET value = 'used' WHERE key = 2")
        store.run_all(few.set(6, "f"), few.set(7, "g"))
        assert store.run(few.get_many(range(8))) == {2: "used", 5: "x", 6: "f", 7: "g"}
    with pytest.raises(sql.Error, match="max_bytes"):
        insert(sql, "small", key=1, value=b"x" * 1000)
