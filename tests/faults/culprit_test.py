"""A batch with a culprit: its neighbours are committed, it alone is told, and nothing of it is there."""

from __future__ import annotations

import random
import sqlite3
import threading

import pytest

import roost
from tests.campaigns.culprit import (
    CULPRITS,
    FIRST,
    FULL,
    OVER,
    TAKEN,
    Case,
    Note,
    Seat,
    case,
    in_one_batch,
    in_threads,
    judge,
    marks,
    mixed,
    notes,
    prepare,
    seats,
    tills,
)
from tests.campaigns.foreign import held
from tests.campaigns.processes import run_threads, started, until


@pytest.fixture
def prepared(url: str) -> str:
    prepare(url)
    return url


@pytest.mark.parametrize("culprit", CULPRITS)
@pytest.mark.parametrize("place", [0, 17, 39])
def test_one_culprit_in_a_batch(prepared: str, culprit: str, place: int) -> None:
    chance = random.Random(place)
    cases = [case(FIRST + n, chance, culprit if n == place else None) for n in range(40)]
    assert judge(cases, in_one_batch(prepared, cases), prepared) == 1


@pytest.mark.parametrize("culprit", CULPRITS)
def test_nothing_but_culprits_of_one_kind(prepared: str, culprit: str) -> None:
    chance = random.Random(culprit)
    cases = [case(FIRST + n, chance, culprit) for n in range(12)]
    assert judge(cases, in_one_batch(prepared, cases), prepared) == 12


def test_culprits_of_all_kinds_in_a_batch(prepared: str) -> None:
    for round_ in range(6):
        cases = mixed(100, round_, part=(0.05, 0.3)[round_ % 2], first=FIRST + 100 * round_)
        assert judge(cases, in_one_batch(prepared, cases), prepared) > 0


def test_culprits_of_all_kinds_among_threads(prepared: str) -> None:
    for round_ in range(4):
        cases = mixed(120, f"threads {round_}", part=0.2, first=FIRST + 120 * round_)
        assert judge(cases, in_threads(prepared, cases, 8), prepared) > 0


def test_a_crowd_that_waited_together_with_a_culprit_among_them(prepared: str) -> None:
    # All wait for somebody else's transaction first, so that they are one batch.
    path = prepared.removeprefix("sqlite:///")
    chance = random.Random(1)
    cases = [case(FIRST + n, chance, (*CULPRITS, None, None)[n % 8]) for n in range(24)]
    outcomes: list[object] = [None] * len(cases)
    with held(path) as holder, roost.Store(prepared, timeout=600) as store:

        def work(n: int) -> None:
            try:
                outcomes[n] = store.run_all(*cases[n].operations)
            except roost.Error as error:
                outcomes[n] = error

        threads = started(*[threading.Thread(target=work, args=(n,)) for n in range(len(cases))])
        until(lambda: store.stats().waits, "a batch that waits")
        holder.release()
        for thread in threads:
            thread.join()
    assert judge(cases, outcomes, prepared) == 18


def test_what_each_culprit_is_told(prepared: str) -> None:
    found = {
        "duplicate": r"seats\.add\(Seat\(room=1, seat=1\)\): 1 is there already",
        "full": r"seats\.add\(Seat\(room=2, seat=77\)\): the collection is full; keep is 3",
        "overflow": r"tills\.add\(3, 77\): the sum of a slot would leave 64 bits",
        "abort": r"not on my watch",
        "rollback": r"not on my watch",
        "check": r"CHECK constraint failed: member <> 13",
    }
    with roost.Store(prepared) as store:
        for culprit, (error, operation) in CULPRITS.items():
            for call in (store.run, store.run_all):
                with pytest.raises(error, match=found[culprit]) as caught:
                    call(operation(77))
                assert not caught.value.retry, "it would be refused again"
        assert store.run_all(tills.total(77), seats.count(77), marks.size(77), notes.latest(77)) == (0, 0, 0, [])


def test_the_first_error_of_several_is_told_and_nothing_is_kept(prepared: str) -> None:
    with roost.Store(prepared) as store:
        with pytest.raises((roost.Full, roost.Overflow)):
            store.run_all(
                tills.add(77), seats.add(Seat(FULL, 77)), seats.add(Seat(TAKEN, 1)), tills.add(OVER), marks.add(77, 1)
            )
        assert store.run_all(tills.total(77), seats.count(FULL), marks.size(77)) == (0, 3, 0)


def test_a_missing_structure_is_told_to_its_own_callers(prepared: str) -> None:
    missing = roost.Counter("missing", key=int)
    wrong = roost.Ring("notes", Note, per="text", keep=3)
    cases = [case(FIRST + n, random.Random(n), None) for n in range(20)]
    cases[3] = Case(FIRST + 3, [missing.add(1)], [], roost.Missing)
    cases[7] = Case(FIRST + 7, [tills.add(FIRST + 7), missing.add(1), marks.add(FIRST + 7, 1)], [], roost.Missing)
    cases[9] = Case(FIRST + 9, [marks.add(FIRST + 9, 1), wrong.push(Note(FIRST + 9, ""))], [], roost.Mismatch)
    cases[11] = Case(FIRST + 11, [missing.total(1)], [], roost.Missing)
    cases[13] = Case(FIRST + 13, [tills.add(FIRST + 13), wrong.latest("")], [], roost.Mismatch)
    assert judge(cases, in_one_batch(prepared, cases), prepared) == 5


def test_a_private_table_that_somebody_dropped(prepared: str) -> None:
    raw = sqlite3.connect(prepared.removeprefix("sqlite:///"))
    (made,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'roost_notes_rows'").fetchone()
    raw.execute("DROP TABLE roost_notes_rows")
    cases = [case(FIRST + n, random.Random(n), None) for n in range(30)]
    outcomes = in_one_batch(prepared, cases)
    raw.execute(made)
    raw.commit()
    raw.close()
    for made_case, outcome in zip(cases, outcomes, strict=True):
        if made_case.count(notes):
            assert isinstance(outcome, roost.Missing), outcome
            assert "roost_notes_rows" in str(outcome)
            made_case.error = roost.Missing
    judge(cases, outcomes, prepared)


def test_a_trace_function_that_fails_harms_only_its_own_statements(prepared: str) -> None:
    def trace(sql: str, row: object) -> None:
        if "roost_tills_" in sql and 77 in row:  # type: ignore[operator]
            raise ZeroDivisionError("in the caller's own function")

    with roost.Store(prepared, trace=trace) as store:
        with pytest.raises(ZeroDivisionError):
            store.run_all(marks.add(77, 1), tills.add(77))
        assert store.run_all(marks.size(77), tills.total(78)) == (0, 0)
        results: list[object] = []

        def work(n: int) -> None:
            try:
                results.append(store.run_all(marks.add(n, 1), tills.add(n)))
            except ZeroDivisionError:
                results.append("failed")

        run_threads(*[threading.Thread(target=work, args=(n,)) for n in range(70, 90)])
        assert results.count("failed") == 1
        assert results.count((1, None)) == 19
        assert store.run(marks.size(77)) == 0


@pytest.mark.parametrize("failing", ["BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "SELECT"])
def test_a_trace_function_that_fails_at_every_statement_of_a_kind(prepared: str, failing: str) -> None:
    fails = True

    def trace(sql: str, row: object) -> None:
        if fails and sql.startswith(failing):
            raise ZeroDivisionError("in the caller's own function")

    with roost.Store(prepared, trace=trace) as store:
        for _ in range(3):
            for operations in ((tills.add(77),), (tills.add(77), seats.add(Seat(TAKEN, 1))), (tills.total(77),)):
                try:
                    store.run_all(*operations)
                except (ZeroDivisionError, roost.Duplicate):
                    pass
        fails = False
        assert store.run_all(marks.add(77, 1), tills.add(78), tills.total(78)) == (1, None, 1)
        assert store.run(tills.total(78)) == 1
        with roost.Store(prepared, timeout=1) as other:
            assert other.run_all(tills.add(78), tills.total(78)) == (None, 2)
