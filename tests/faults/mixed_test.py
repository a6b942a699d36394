"""Threads on a store, joined transactions and plain SQL clients in processes of their own, on the same keys at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns import mixed
from tests.campaigns.ledger import STRUCTURES
from tests.campaigns.mixed import KEYS, Tally, judge, together
from tests.conftest import MakeStore


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_by_any_way_in(tmp_path: Path, seed: int) -> None:
    found = together(str(tmp_path / "test.db"), lambda tally: tally.atoms + tally.rolled_back < 150, seed)
    assert found.count("atoms by") == 3
    assert " 0 atoms by" not in f" {found}"


def test_what_is_lost_is_seen(make_store: MakeStore) -> None:
    store = make_store(*STRUCTURES)
    tally = Tally()
    verbs = [("count", 0, 5), ("push", 0, 7), ("add", 1, 3), ("tag", 2, 9)]
    mixed.by_store(store, tally, verbs)
    judge(store, [tally])
    assert KEYS == 3
    for verb in (*verbs, ("push", 0, 8)):
        other = Tally()
        other.take([verb], [2])
        with pytest.raises(AssertionError):
            judge(store, [tally, other])
