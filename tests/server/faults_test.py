"""A short form of `tests/campaigns/serve_faults.py`: workers and the database are killed, connections are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.campaigns.serve_faults import FAULTS, faults


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_what_is_answered_over_the_wire_is_there_once_whatever_fails(kind: str, tmp_path: Path) -> None:
    try:
        seen = faults(kind, tmp_path, 2, 1, writers=16)
    except servers.NotHere as error:
        servers.not_run(error)
    assert seen.faults == dict.fromkeys(FAULTS, 2)
    assert seen.answers > 6 * 16
