"""What a set promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.shapes import Place, likes

Make = Callable[..., Any]
pytestmark = pytest.mark.needs("set")


def test_an_empty_key(make: Make) -> None:
    store = make(likes)
    assert store.run_all(
        likes.members(7), likes.size(7), likes.contains(7, "ada"), likes.remove(7, "ada"), likes.clear(7)
    ) == (set(), 0, False, 0, 0)


def test_add_and_remove_answer_how_many_changed(make: Make) -> None:
    store = make(likes)
    assert store.run(likes.add(7, "ada", "bob", "ada")) == 2
    assert store.run(likes.add(7, "bob", "cyd")) == 1
    assert store.run(likes.remove(7, "ada", "eve")) == 1
    assert store.run(likes.add(7)) == 0
    assert store.run_all(likes.members(7), likes.size(7)) == ({"bob", "cyd"}, 2)


def test_a_batch_answers_as_if_one_by_one(make: Make) -> None:
    store = make(likes)
    assert store.run_all(
        likes.add(7, "ada"), likes.add(7, "ada", "bob"), likes.remove(7, "ada"), likes.add(7, "ada"),
        likes.remove(7, "bob", "nobody"), likes.add(8, "ada"), likes.remove(8, "ada"),
    ) == (1, 1, 1, 1, 1, 1, 1)  # fmt: skip
    assert store.run_all(likes.members(7), likes.size(7), likes.size(8)) == ({"ada"}, 1, 0)


def test_members_are_compared_byte_for_byte(make: Make) -> None:
    store = make(likes)
    members = {"Home", "home", "home ", "hömé", "", "with space", "+a", "-b"}
    assert store.run(likes.add(7, *members)) == len(members)
    assert store.run(likes.members(7)) == members


def test_keys_clear_and_forget(make: Make) -> None:
    store = make(likes)
    store.run_all(likes.add(3, "a"), likes.add(1, "a", "b"), likes.add(2, "a"))
    assert store.run(likes.keys()) == [1, 2, 3]
    assert store.run(likes.keys(after=1, n=1)) == [2]
    assert store.run(likes.clear(1)) == 2
    assert store.run_all(likes.keys(), likes.size(1)) == ([1, 2, 3], 0)
    assert store.run(likes.forget(2)) == 1
    assert store.run(likes.keys()) == [1, 3]


def test_composite_members(make: Make) -> None:
    seen = roost.Set("seen", key=int, member=Place)
    store = make(seen)
    assert store.run(seen.add(1, Place("a", 1), Place("a", 2), Place("a", 1))) == 2
    assert store.run(seen.members(1)) == {Place("a", 1), Place("a", 2)}
    assert store.run(seen.contains(1, Place("a", 2))) is True


def test_a_large_set(make: Make) -> None:
    numbers = roost.Set("numbers", key=str, member=int)
    store = make(numbers)
    assert store.run(numbers.add("n", *range(5000))) == 5000
    assert store.run(numbers.remove("n", *range(0, 5000, 2))) == 2500
    assert store.run_all(numbers.size("n"), numbers.members("n")) == (2500, set(range(1, 5000, 2)))
