"""Operations with many rows: what as many operations of one row would do, all of it or nothing."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest

import roost
from roost.batching.atoms import Atom
from tests.suite.shapes import Egg, Make, Place, Visit, baskets, inner, likes, pageviews, visits

pytestmark = pytest.mark.shared

# More than the rows of one text on SQLite, and not a multiple of them.
MANY = 333


def sorted_visits(n: int) -> list[Visit]:
    return [Visit(each % 50 if each % 7 else 1, each) for each in range(n)]


def test_pushes_answer_the_sequences_that_single_ones_would(make: Make) -> None:
    one = roost.Ring("one", Visit, per="uid", keep=5)
    store = make(visits, one)
    rows = sorted_visits(MANY)
    for part in rows[:100], rows[100:]:
        assert store.run(visits.push_all(part)) == list(store.run_all(*[one.push(row) for row in part]))
    for uid in 1, 2, 49:
        assert store.run(visits.latest(uid)) == store.run(one.latest(uid))
        assert [entry.sequence for entry in store.run(visits.entries(uid))] == [
            entry.sequence for entry in store.run(one.entries(uid))
        ]


def test_nothing_to_do(make: Make) -> None:
    store = make(visits, baskets, likes, pageviews)
    assert store.run(visits.push_all([])) == []
    assert store.run(baskets.add_all(())) is None
    assert store.run(likes.add_all(iter([]))) == []
    assert store.run(pageviews.add_all({})) is None
    assert store.run_all(visits.push_all([]), baskets.add_all([]), likes.add_all([]), pageviews.add_all({})) == (
        [],
        None,
        [],
        None,
    )
    assert store.run_all(visits.keys(), baskets.keys(), likes.keys(), pageviews.keys()) == ([], [], [], [])


@pytest.mark.needs("capped", "second store")
def test_a_full_collection_is_not_looked_up_first(open_store: Make, statements: list[str]) -> None:
    store = open_store(baskets)
    for begin in 0, 20:
        statements.clear()
        store.run(baskets.add_all([Egg(basket, begin + egg) for egg in range(12) for basket in range(30)]))
    assert not [sql for sql in statements if sql.startswith("SELECT sequence FROM roost_baskets_rows")]
    assert store.stats().retries == 0


def test_one_that_is_there_refuses_all_of_them_and_no_others(make: Make) -> None:
    store = make(baskets)
    store.run(baskets.add(Egg(7, 3)))
    refused = Atom((baskets.add_all([Egg(basket, 3) for basket in range(30)]),))
    others = [Atom((baskets.add(Egg(1, 100)),)), Atom((baskets.add_all([Egg(2, 100), Egg(3, 100)]),))]
    run_each(store, [others[0], refused, others[1]])
    assert isinstance(refused.error, roost.Duplicate)
    assert str(refused.error) == "baskets.add(Egg(basket=7, egg=3, colour='white')): 3 is there already"
    assert [atom.error for atom in others] == [None, None]
    assert store.run(baskets.keys()) == [1, 2, 3, 7]
    for different in 2, 12:
        with pytest.raises(roost.Duplicate):
            store.run(baskets.add_all([*[Egg(8, n) for n in range(different)], Egg(8, 1)]))
    assert store.run(baskets.count(8)) == 0


def test_members_say_which_of_them_were_new(make: Make) -> None:
    store = make(likes)
    store.run(likes.add(7, "ada"))
    assert store.run(likes.add_all([(7, "ada"), (7, "bob"), (8, "ada"), (7, "bob")])) == [False, True, True, False]
    assert store.run_all(
        likes.remove(7, "bob"), likes.add_all([(7, "bob"), (7, "cyd")]), likes.add(7, "cyd", "dan"), likes.size(7)
    ) == (1, [True, True], 1, 4)
    assert sum(store.run(likes.add_all([(n % 20, f"m{n % 200}") for n in range(MANY)]))) == 200
    assert store.run_all(likes.size(0), likes.size(7)) == (10, 14)


def test_members_of_types_that_are_stored_otherwise(make: Make) -> None:
    by_day = roost.Set("by_day", key=dt.date, member=uuid.UUID)
    store = make(by_day)
    day, member = dt.date(2008, 1, 1), uuid.UUID(int=7)
    assert store.run_all(by_day.add(day), by_day.add_all([]), by_day.add_all([(day, member)] * 2)) == (
        0, [], [True, False],
    )  # fmt: skip
    assert store.run(by_day.members(day)) == {member}


def test_one_count_that_would_leave_64_bits_refuses_all_of_them(make: Make) -> None:
    hits = roost.Counter("hits", slots=1)
    store = make(hits)
    store.run(hits.add("/full", 2**63 - 1))
    refused = Atom((hits.add_all({"/home": 1, "/full": 1}),))
    other = Atom((hits.add("/home"),))
    run_each(store, [refused, other])
    assert isinstance(refused.error, roost.Overflow)
    assert str(refused.error).startswith(
        "hits.add_all({'/home': 1, '/full': 1}): the sum of a slot would leave 64 bits"
    )
    assert other.error is None
    assert store.run(hits.total("/home")) == 1


@dataclass(frozen=True)
class Note:
    uid: int
    text: Annotated[str | None, roost.text(5)] = None
    share: float = 0.0


notes = roost.Ring("notes", Note, per="uid", keep=3)


def test_values_are_checked_and_made_neutral(make: Make) -> None:
    store = make(notes)
    for wrong, message in [
        (Note(1, "longer"), "notes.text: 'longer' has 6 characters; the limit is 5"),
        (Note(2**63), "notes.uid: 9223372036854775808 does not fit in 64 bits"),
        (Note(True), "notes.uid: True is of type bool; it takes int"),
        (Note(1, "\ud800"), "notes.text: '\\ud800' has a lone surrogate"),
        (Visit(1, 1), "notes: Visit(uid=1, visitor=1) is not a Note"),
    ]:
        with pytest.raises(roost.Invalid) as caught:
            notes.push_all([Note(1), wrong, Note(2)])  # type: ignore[list-item]
        assert str(caught.value).startswith(message)
    rows = [Note(n % 3, "é" if n % 2 else None, 1 if n % 5 else -0.0) for n in range(30)]
    store.run(notes.push_all(rows))
    assert [repr(note) for note in store.run(notes.latest(2, 2))] == [
        "Note(uid=2, text='é', share=1.0)", "Note(uid=2, text=None, share=1.0)",
    ]  # fmt: skip


def test_what_is_no_rows_is_refused() -> None:
    for wrong in "ada", b"ada", 5, None, Visit(1, 1):
        with pytest.raises(roost.Invalid, match="takes several rows, not "):
            visits.push_all(wrong)  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"'ab' is not a pair of a key and a member"):
        likes.add_all(["ab"])  # type: ignore[list-item]
    with pytest.raises(roost.Invalid, match=r"likes.member: 5 is of type int; it takes"):
        likes.add_all([(1, "ada"), (1, 5)])  # type: ignore[list-item]
    with pytest.raises(roost.Invalid, match=r"a mapping of keys to numbers, not \['/home'\]"):
        pageviews.add_all(["/home"])  # type: ignore[arg-type]
    with pytest.raises(roost.Invalid, match=r"pageviews.n: 1.5 is not a whole number"):
        pageviews.add_all({"/home": 1, "/about": 1.5})  # type: ignore[dict-item]
    by_place = roost.Counter("by_place", key=Place)
    with pytest.raises(roost.Invalid, match=r"by_place: 5 is not a key; it takes a tuple of \(site, page\)"):
        by_place.add_all({Place("a", 1): 1, 5: 1})  # type: ignore[dict-item]


def test_an_operation_with_many_rows_keeps_those_it_was_given() -> None:
    rows = [Visit(1, 2), Visit(3, 4)]
    operation = visits.push_all(rows)
    rows.append(Visit(5, 6))
    assert operation == visits.push_all(iter(rows[:2])) != visits.push_all(rows)


def test_its_rows_count_as_operations_of_a_batch() -> None:
    atom = Atom((visits.push_all([Visit(1, n) for n in range(7)]), visits.push(Visit(1, 1)), visits.latest(1)))
    assert atom.size == 9


def test_the_heads_that_many_rows_lock(open_store: Make) -> None:
    store = open_store(visits, baskets, likes, pageviews)
    heads = inner(store)._core.known.heads
    for operation in [
        visits.push_all([Visit(1, 1), Visit(2, 1), Visit(1, 2)]),
        baskets.add_all([Egg(1, 1), Egg(2, 1), Egg(1, 2)]),
        likes.add_all([(1, "ada"), (2, "ada"), (1, "bob")]),
    ]:
        assert heads(Atom((operation,))) == {(operation.structure.name, (1,)), (operation.structure.name, (2,))}
    assert heads(Atom((pageviews.add_all({"/a": 1, "/b": 1}),))) == {("pageviews", ("/a",)), ("pageviews", ("/b",))}


@pytest.mark.needs("counter", "ring", "second store")
def test_a_declaration_that_is_not_the_stored_one(open_store: Make) -> None:
    old, new = open_store(visits), open_store()

    @dataclass
    class LongVisit:
        uid: int
        visitor: int
        seconds: int = 0

    longer = roost.Ring("visits", LongVisit, per="uid", keep=5)
    assert new.run(longer.push_all([LongVisit(5, 1), LongVisit(5, 2)])) == [1, 2]
    with pytest.raises(roost.Mismatch, match="the column seconds is only in the declaration"):
        new.run(longer.push_all([LongVisit(5, 3), LongVisit(5, 4, 60)]))
    assert old.run(visits.push_all([Visit(5, 3)])) == [3]

    @dataclass(frozen=True)
    class LongEgg(Egg):
        weight: int = 0

    old.create(baskets)
    longer_eggs = roost.Capped("baskets", LongEgg, per="basket", keep=12, unique="egg")
    new.run(longer_eggs.add_all([LongEgg(1, 1), LongEgg(1, 2)]))
    with pytest.raises(roost.Duplicate, match=r"LongEgg\(basket=1, egg=2, colour='white', weight=0\)\): 2 is there"):
        new.run(longer_eggs.add_all([LongEgg(1, 3), LongEgg(1, 2)]))
    assert old.run(baskets.count(1)) == 2


def run_each(store: Any, atoms: list[Atom]) -> None:
    """Run atoms in one batch, whichever kind of store it is."""
    core = inner(store)._core
    for atom in atoms:
        atom.deadline = 0.0
    core.submit(atoms)


def test_a_row_of_a_subclass_is_one(make: Make) -> None:
    @dataclass(frozen=True)
    class Marked(Visit):
        mark: str = ""

    store = make(visits)
    assert store.run(visits.push_all([Visit(1, 1), Marked(1, 2, "x"), replace(Marked(1, 3))])) == [1, 2, 3]
    assert store.run(visits.latest(1, 1)) == [Visit(1, 3)]
