"""kill -9 of the processes of `roost serve` under load; the long form is the campaign `serve_kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.serve_kills import KINDS, kills
from tests.lengths import length

ROUNDS = length(1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_answered_is_there_and_others_do_not_notice(tmp_path: Path, kind: str) -> None:
    found = kills(tmp_path, kind, rounds=ROUNDS, seed=kind)
    assert found.kills == ROUNDS
    assert found.answers > 0
    assert found.reads > 0
