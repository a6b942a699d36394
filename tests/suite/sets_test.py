"""What a set promises, on SQL and in memcached; and what it tells on SQL alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.shapes import Place, likes

Make = Callable[..., Any]
Sets = Callable[..., Any]
pytestmark = pytest.mark.needs("sets")


@pytest.mark.needs("set")
def test_an_empty_key(make: Make) -> None:
    store = make(likes)
    assert store.run_all(
        likes.members(7), likes.size(7), likes.contains(7, "ada"), likes.remove(7, "ada"), likes.clear(7)
    ) == (set(), 0, False, 0, 0)


@pytest.mark.needs("set")
def test_add_and_remove_answer_how_many_changed(make: Make) -> None:
    store = make(likes)
    assert store.run(likes.add(7, "ada", "bob", "ada")) == 2
    assert store.run(likes.add(7, "bob", "cyd")) == 1
    assert store.run(likes.remove(7, "ada", "eve")) == 1
    assert store.run(likes.add(7)) == 0
    assert store.run_all(likes.members(7), likes.size(7)) == ({"bob", "cyd"}, 2)


@pytest.mark.needs("set")
def test_a_batch_answers_as_if_one_by_one(make: Make) -> None:
    store = make(likes)
    assert store.run_all(
        likes.add(7, "ada"), likes.add(7, "ada", "bob"), likes.remove(7, "ada"), likes.add(7, "ada"),
        likes.remove(7, "bob", "nobody"), likes.add(8, "ada"), likes.remove(8, "ada"),
    ) == (1, 1, 1, 1, 1, 1, 1)  # fmt: skip
    assert store.run_all(likes.members(7), likes.size(7), likes.size(8)) == ({"ada"}, 1, 0)


@pytest.mark.needs("set")
def test_keys_clear_and_forget(make: Make) -> None:
    store = make(likes)
    store.run_all(likes.add(3, "a"), likes.add(1, "a", "b"), likes.add(2, "a"))
    assert store.run(likes.keys()) == [1, 2, 3]
    assert store.run(likes.keys(after=1, n=1)) == [2]
    assert store.run(likes.clear(1)) == 2
    assert store.run_all(likes.keys(), likes.size(1)) == ([1, 2, 3], 0)
    assert store.run(likes.forget(2)) == 1
    assert store.run(likes.keys()) == [1, 3]


def test_a_key_that_nobody_has_added_to(make: Make, sets: Sets) -> None:
    likes = sets("likes", key=int, member=str)
    store = make(likes)
    store.run(likes.remove(7, "ada"))
    store.run(likes.clear(7))
    store.run(likes.add(7))
    assert store.run_all(likes.members(7), likes.size(7), likes.contains(7, "ada")) == (set(), 0, False)


@pytest.mark.needs("set")
def test_f84_an_add_of_no_member_makes_no_key(make: Make) -> None:
    store = make(likes)
    assert store.run(likes.add(7)) == 0
    assert store.run_all(likes.add(7), likes.remove(7, "ada"), likes.clear(7), likes.add(8)) == (0, 0, 0, 0)
    assert store.run_all(likes.add(9, "ada"), likes.add(7)) == (1, 0)
    assert store.run(likes.keys()) == [9]


def test_members_are_added_and_removed_in_their_order(make: Make, sets: Sets) -> None:
    likes = sets("likes", key=int, member=str)
    store = make(likes)
    store.run_all(likes.add(7, "ada", "bob", "ada"), likes.remove(7, "ada", "eve"), likes.add(7, "cyd"))
    store.run(likes.add(8, "ada"))
    assert store.run_all(likes.members(7), likes.members(8)) == ({"bob", "cyd"}, {"ada"})
    store.run_all(likes.add(7, "ada"), likes.remove(7, "cyd"))
    store.run_all(likes.remove(8, "ada"), likes.add(8, "ada"))
    assert store.run_all(likes.members(7), likes.size(7), likes.members(8)) == ({"ada", "bob"}, 2, {"ada"})
    assert store.run_all(likes.contains(7, "ada"), likes.contains(7, "cyd")) == (True, False)


def test_a_set_that_was_cleared_is_empty(make: Make, sets: Sets) -> None:
    likes = sets("likes", key=int, member=str)
    store = make(likes)
    store.run(likes.add(1, "a", "b"))
    store.run(likes.add(2, "a"))
    store.run(likes.clear(1))
    store.run(likes.forget(2))
    assert store.run_all(likes.members(1), likes.members(2)) == (set(), set())
    store.run(likes.add(1, "c"))
    assert store.run(likes.members(1)) == {"c"}


def test_members_are_compared_byte_for_byte(make: Make, sets: Sets) -> None:
    likes = sets("likes", key=int, member=str)
    store = make(likes)
    members = {"Home", "home", "hömé", "", "+a", "-b", "=c", "a,b", "🐔"}
    store.run(likes.add(7, *members))
    assert store.run(likes.members(7)) == members
    store.run(likes.remove(7, "home", "", "-b"))
    assert store.run(likes.members(7)) == members - {"home", "", "-b"}


def test_members_with_blanks(make: Make, sets: Sets) -> None:
    likes = sets("likes", key=int, member=str)
    store = make(likes)
    members = {"home ", " home", "with space", "\n", "tab\there"}
    if getattr(likes, "encoding", "") == "readable":
        for member in members:
            with pytest.raises(roost.Invalid, match="white space"):
                likes.add(7, member)
        return
    store.run(likes.add(7, *members))
    assert store.run(likes.members(7)) == members


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
