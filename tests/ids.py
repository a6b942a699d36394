"""Tests are found by the database that they use: `-k mariadb` leaves none of MariaDB's out."""

from __future__ import annotations

import pytest

from tests import servers

NAMES = {*servers.SERVERS, "memcached"}
# Fixtures that use a server, by what `-k` is to find their tests by, beside the ids of parameters.
USE = {"handlersocket_plugin": "mariadb", **{name: name for name in NAMES}}


def used(item: pytest.Item) -> set[str]:
    """Return the servers that a test's fixtures and parameters name."""
    found = {USE[name] for name in getattr(item, "fixturenames", ()) if name in USE}
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec is not None else ():
        name = getattr(value, "name", value)
        found |= {name} & NAMES if isinstance(name, str) else set()
    return found
