"""An operation beside another one of the same key, at every statement boundary: see `boundaries.py`."""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.suite.boundaries import CASES, WAYS, Aged, Boundaries, pairs
from tests.suite.gates import Gates, gated


@pytest.mark.parametrize("name", CASES)
@pytest.mark.needs("programs for SQL")
def test_f86_an_operation_beside_another_one_of_its_key_is_before_or_after_it(name: str, store_url: str) -> None:
    # What removes, of a key that has nothing yet, beside what adds (F89: of a cache); `tests/campaigns/boundaries.py`
    # tries everything.
    case = CASES[name]
    found = Boundaries(store_url, [case])
    try:
        for way in ("alone", WAYS[1 + crc32(name.encode()) % 4]):
            for state, first, second in pairs(case):
                if state is case.states[0] and second == case.adds and first in case.removes:
                    wrong = list(found.wrong(case, way, state, case.verbs[first], case.verbs[second]))
                    assert not wrong, f"{way}: {first} beside {second}: {wrong}"
        assert found.one.check() == []
    finally:
        found.close()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.needs("programs for SQL")
def test_inside_of_its_program_an_operation_is_before_or_after_another_one(name: str, store_url: str) -> None:
    case = CASES[name]
    with gated([case]):
        found = Gates(store_url, [case])
        try:
            for several in [verb for verb, make in case.verbs.items() if ", " in verb and make(0)]:
                wrong = list(found.wrong(case, "joined", case.states[0], case.verbs[several], case.verbs[case.adds]))
                assert not wrong, f"{several} of a key that is not there beside {case.adds}: {wrong}"
            beside = [(each, case.adds) for each in (case.adds, case.removes[0], case.removes[-1])]
            for state in [each for each in case.states if each is case.states[1] or isinstance(each, Aged)]:
                for first, second in [*beside, (case.removes[-1], case.removes[0])]:
                    wrong = list(found.wrong(case, "joined", state, case.verbs[first], case.verbs[second]))
                    assert not wrong, f"{first} beside {second}: {wrong}"
            assert found.one.check() == []
        finally:
            found.close()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.needs("psycopg")
def test_f87_beside_a_removal_since_its_snapshot_an_operation_conflicts(name: str, store_url: str) -> None:
    case = CASES[name]
    found = Boundaries(store_url, [case])
    try:
        for state, first, second in pairs(case):
            if state is case.states[1] and second in case.removes and first == case.adds:
                wrong = list(found.wrong(case, WAYS[3], state, case.verbs[first], case.verbs[second]))
                assert not wrong, f"{first} after {second}: {wrong}"
        assert found.one.check() == []
    finally:
        found.close()
