"""An operation beside another one of the same key, at every statement boundary: see `boundaries.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from zlib import crc32

import pytest

import roost
from tests.lengths import length
from tests.suite.boundaries import CASES, WAYS, Aged, Boundaries, Case, Make, pairs
from tests.suite.engines import Engine
from tests.suite.gates import Gates, gated

Tries = Iterator[tuple[str, Make, str, str]]  # a way, a state, and two operations


def _removals_of_nothing(case: Case) -> Tries:
    # Beside what adds; `tests/campaigns/boundaries.py` tries everything.
    way = WAYS[crc32(case.structure.name.encode()) % len(WAYS)]
    for state, first, second in pairs(case):
        if state is case.states[0] and second == case.adds and first in case.removes:
            yield way, state, first, second


def _additions_under_a_snapshot(case: Case) -> Tries:
    for state, first, second in pairs(case):
        if state is case.states[1] and second in case.removes and first == case.adds:
            yield WAYS[3], state, first, second


def _wrong(url: str, tries: Callable[[Case], Tries], cases: list[Case]) -> list[str]:
    found = Boundaries(url, cases)
    found.step = length(2, 1)
    try:
        return [
            f"{case.structure.name}, {way}: {first} beside {second}: {wrong}"
            for case in cases
            for way, state, first, second in tries(case)
            for wrong in found.wrong(case, way, state, case.verbs[first], case.verbs[second])
        ]
    finally:
        found.close()


def _try_all(url: str, tries: Callable[[Case], Tries], turn: int, *, side_by_side: bool = False) -> None:
    # In the short form a structure has one test on PostgreSQL, and the one of both on one kind of server.
    cases = length([*CASES.values()][turn::2], [*CASES.values()])
    groups = [[case] for case in cases] if side_by_side else [cases]
    with roost.Store(url) as store:
        store.create(*(case.structure for case in cases), view=False)
        with ThreadPoolExecutor(len(groups)) as pool:
            assert [each for wrong in pool.map(partial(_wrong, url, tries), groups) for each in wrong] == []
        assert store.check() == []


@pytest.mark.needs("programs for SQL")
def test_f86_an_operation_beside_another_one_of_its_key_is_before_or_after_it(store_url: str, engine: Engine) -> None:
    # F89: of a cache. MySQL's clients wait for a lock for whole seconds.
    turn = int(engine.name == "postgresql")
    _try_all(store_url, _removals_of_nothing, turn, side_by_side=engine.name == "mysql")


@pytest.mark.needs("psycopg")
def test_f87_beside_a_removal_since_its_snapshot_an_operation_conflicts(store_url: str) -> None:
    _try_all(store_url, _additions_under_a_snapshot, 0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.needs("gated programs")
@pytest.mark.spread
def test_inside_of_its_program_an_operation_is_before_or_after_another_one(name: str, store_url: str) -> None:
    case = CASES[name]
    with gated([case.structure]):
        found = Gates(store_url, [case])
        found.step = length(2, 1)
        try:
            for several in [verb for verb, make in case.verbs.items() if ", " in verb and make(0)]:
                wrong = list(found.wrong(case, "joined", case.states[0], case.verbs[several], case.verbs[case.adds]))
                assert not wrong, f"{several} of a key that is not there beside {case.adds}: {wrong}"
            beside = [(each, case.adds) for each in (case.adds, case.removes[0], case.removes[-1])]
            beside.append((case.removes[-1], case.removes[0]))
            for state in [each for each in case.states if each is case.states[1] or isinstance(each, Aged)]:
                for first, second in length(beside[[*CASES].index(name) % 2 :: 2], beside):
                    wrong = list(found.wrong(case, "joined", state, case.verbs[first], case.verbs[second]))
                    assert not wrong, f"{first} beside {second}: {wrong}"
            assert found.one.check() == []
        finally:
            found.close()
