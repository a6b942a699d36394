"""What a set promises, on SQL and in memcached; and what it tells on SQL alone.

`model_test.py` has what every operation then answers on SQL, and `age_test.py` has what expires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.clients import MariaDBClient
from tests.suite.shapes import Make, Place, likes, rows
from tests.suite.views import insert, into, remove

Sets = Callable[..., Any]
pytestmark = pytest.mark.needs("sets")

OPTIONS: list[dict[str, Any]] = [{}, {"keep": 3}, {"keep_for": 300}, {"keep": 3, "keep_for": 300}]


@pytest.mark.needs("set")
def test_f84_an_add_of_no_member_makes_no_key(make: Make) -> None:
    store = make(likes)
    assert store.run(likes.add(7)) == 0
    assert store.run_all(likes.add(7), likes.remove(7, "ada"), likes.clear(7), likes.add(8)) == (0, 0, 0, 0)
    assert store.run_all(likes.add(9, "ada"), likes.add(7)) == (1, 0)
    assert store.run(likes.keys()) == [9]


def test_members_are_compared_byte_for_byte(make: Make, sets: Sets) -> None:
    likes = sets("likes", key=int, member=str)
    store = make(likes)
    members = {"Home", "home", "hömé", "", "+a", "-b", "=c", "a,b", "🐔"}
    blanks = {"home ", " home", "with space", "\n", "tab\there"}
    if getattr(likes, "encoding", "") == "readable":
        for member in blanks:
            with pytest.raises(roost.Invalid, match="white space"):
                likes.add(7, member)
    else:
        members |= blanks
    store.run(likes.add(7, *members))
    assert store.run(likes.members(7)) == members
    store.run(likes.remove(7, "home", "", "-b"))
    assert store.run(likes.members(7)) == members - {"home", "", "-b"}
    store.run(likes.forget(7))  # in memcached it is `clear`
    assert store.run(likes.members(7)) == set()


def test_composite_members(make: Make, sets: Sets) -> None:
    seen = sets("seen", key=int, member=Place)
    store = make(seen)
    store.run(seen.add(1, Place("a", 1), Place("a", 2), Place("a", 1)))
    assert store.run(seen.members(1)) == {Place("a", 1), Place("a", 2)}
    assert store.run(seen.contains(1, Place("a", 2))) is True


def test_a_large_set(make: Make, sets: Sets) -> None:
    numbers = sets("numbers", key=str, member=int)
    store = make(numbers)
    store.run(numbers.add("n", *range(5000)))
    store.run(numbers.remove("n", *range(0, 5000, 2)))
    assert store.run_all(numbers.size("n"), numbers.members("n")) == (2500, set(range(1, 5000, 2)))
    assert store.run_all(numbers.contains("n", 1), numbers.contains("n", 2)) == (True, False)


@pytest.mark.needs("set", "readable views")
def test_of_a_member_that_is_added_twice_in_one_call_the_last_time_counts(make: Make) -> None:
    online = roost.Set("online", key=str, member=int, keep=2)
    store = make(online)
    store.run_all(online.add("chat", 1, 2, 1), online.add_all([("mail", 1), ("mail", 2), ("mail", 1)]))
    store.run_all(online.add("chat", 3), online.add("mail", 3))
    assert store.run_all(online.members("chat"), online.members("mail")) == ({1, 3}, {1, 3})


@pytest.mark.needs("set", "readable views")
def test_sql_clients_add_and_remove_members(open_store: Make, sql: Any) -> None:
    declared = [roost.Set(f"online_{n}", key=str, member=int, **options) for n, options in enumerate(OPTIONS)]
    store = open_store(*declared)
    for values in ("('chat', 1), ('chat', 2)", "('chat', 3)", "('chat', 1), ('mail', 1)", "('chat', 4)"):
        for online in declared:
            sql.execute(f"INSERT INTO {into(sql, online.name)} VALUES {values}")
        assert store.check() == []  # who is added again is counted once
    for online, options in zip(declared, OPTIONS, strict=True):
        name = online.name
        there = [1, 3, 4] if "keep" in options else [1, 2, 3, 4]
        assert sorted(rows(sql, f"SELECT * FROM {name}")) == [*[("chat", n) for n in there], ("mail", 1)]
        remove(sql, name, key="chat", member=4)
        assert store.run_all(online.members("chat"), online.size("chat")) == ({*there} - {4}, len(there) - 1)
        with pytest.raises(sql.Error, match=rf"{name}\.member: it takes an integer"):
            insert(sql, name, key="chat", member=None)
        if not isinstance(sql, MariaDBClient):
            with pytest.raises(sql.Error, match="key and member cannot be changed"):
                sql.execute(f"UPDATE {name} SET member = 3")


@pytest.mark.needs("set", "second store")
@pytest.mark.parametrize("options", OPTIONS[1:3], ids=str)
def test_an_option_neither_comes_nor_goes(open_store: Make, options: dict[str, Any]) -> None:
    plain, optional = roost.Set("online", key=str, member=int), roost.Set("online", key=str, member=int, **options)
    (option,) = options
    store = open_store(plain)
    with pytest.raises(roost.Invalid, match=f"{option} cannot change from None"):
        store.alter(optional)
    assert store.run_all(plain.add("chat", 1), plain.size("chat")) == (1, 1)
