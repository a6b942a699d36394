"""Short forms of the campaigns `serve_faults` and `serve_kills`: workers and databases are killed, connections cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.outage import DAEMONS
from tests.campaigns.serve_faults import FAULTS, faults
from tests.campaigns.serve_kills import KINDS, kills
from tests.lengths import length

ROUNDS = length(1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_answered_is_there_and_others_do_not_notice(tmp_path: Path, kind: str) -> None:
    found = kills(tmp_path, kind, rounds=ROUNDS, seed=kind)
    assert found.kills == ROUNDS
    assert found.answers > 0
    assert found.reads > 0


@pytest.mark.parametrize("kind", length(["mariadb", "postgresql"], [*DAEMONS]))
def test_what_is_answered_over_the_wire_is_there_once_whatever_fails(kind: str, tmp_path: Path) -> None:
    seen = faults(kind, tmp_path, length(1, 2), 1, writers=length(8, 16))
    assert seen.faults == dict.fromkeys(FAULTS, length(1, 2))
    assert seen.answers > 6 * 8
