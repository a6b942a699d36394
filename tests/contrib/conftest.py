"""The project in `site` is run by Django's own runner, in processes of its own."""

from __future__ import annotations

import pytest

from tests import servers

collect_ignore = ["site"]


@pytest.fixture(params=["sqlite", *servers.SERVERS])
def database(request: pytest.FixtureRequest) -> str:
    """The name of each database in turn, for tests that use `any_url`."""
    return str(request.param)
