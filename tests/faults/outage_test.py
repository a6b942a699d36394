"""The database server is killed while processes write; short forms of the campaigns `outage` and `writers`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import roost
from tests import servers
from tests.campaigns.outage import DAEMONS, outage
from tests.campaigns.writers import Event, Plan, capped, counter, crowd, members, ring, verify


@pytest.mark.parametrize("name", DAEMONS)
def test_what_was_answered_before_the_server_was_killed_is_there_once(name: str) -> None:
    try:
        told = outage(name, rounds=2, seed=1)
    except servers.NotHere as error:
        servers.not_run(error)
    assert told.kills == 2
    assert told.answers > 0


@pytest.mark.parametrize("keys", [1, 10])
def test_many_writers_on_one_key_and_on_many(server_url: str, keys: int) -> None:
    plan = Plan(processes=3, threads=6, foreign=2, operations=80, keys=keys)
    assert crowd(server_url, plan).operations == 1440


def test_they_do_so_in_a_file_too_and_what_is_lost_or_doubled_is_seen(tmp_path: Path) -> None:
    plan = Plan(processes=2, threads=4, foreign=2, operations=80, keys=2)
    crowd(f"sqlite:///{tmp_path}/all.db", plan)
    with roost.Store(f"sqlite:///{tmp_path}/all.db") as store:
        newest = store.run(capped.latest(1, n=1))[0].number
        member = min(store.run(members.members(1)))
    changes: list[roost.Operation[Any]] = [
        *(counter.add(1), ring.push(Event(1, 1)), capped.remove(1, newest), capped.add(Event(1, -1))),
        members.remove(1, member),
    ]
    for number, change in enumerate(changes):
        shutil.copy(tmp_path / "all.db", tmp_path / f"{number}.db")
        with roost.Store(f"sqlite:///{tmp_path}/{number}.db") as store:
            verify(store, plan)
            store.run(change)
            with pytest.raises(AssertionError):
                verify(store, plan)
