"""The database server is killed while processes write; short forms of the campaigns `outage` and `writers`."""

from __future__ import annotations

import pytest

from tests import servers
from tests.campaigns.outage import DAEMONS, outage
from tests.campaigns.writers import crowd


@pytest.mark.parametrize("name", DAEMONS)
def test_what_was_answered_before_the_server_was_killed_is_there_once(name: str) -> None:
    try:
        told = outage(name, rounds=2, seed=1)
    except servers.NotHere as error:
        servers.not_run(error)
    assert told.kills == 2
    assert told.answers > 0


@pytest.mark.parametrize("keys", [1, 50])
def test_many_writers_on_one_key_and_on_many(server_url: str, keys: int) -> None:
    told = crowd(server_url, processes=3, threads=4, operations=40, keys=keys)
    assert told.operations == 480
