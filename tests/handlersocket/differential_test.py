"""Random requests to the original and to Roost: equal, or different by a rule. The long form is a campaign."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.handlersocket import rules
from tests.handlersocket.conftest import served, served_at
from tests.handlersocket.differential import Lite, Original, Twin, compare, same
from tests.handlersocket.tables import KINDS, MARIADB, Column, Key, Table
from tests.lengths import length
from tests.servers import Plugin

REQUESTS = 1500


@pytest.mark.parametrize("seed", length([1], [1, 2]))
@pytest.mark.parametrize("other", ["a file", "a twin in the same MariaDB"])
def test_random_requests_differ_from_the_original_by_rules_alone(
    other: str, seed: int, handlersocket_plugin: Plugin, tmp_path: Path
) -> None:
    original = Original(handlersocket_plugin)
    with ExitStack() as stack:
        if other == "a file":
            server = stack.enter_context(served(tmp_path / "hst.db"))
            lite = stack.enter_context(closing(Lite(tmp_path / "hst.db", server)))
            found = compare(seed, REQUESTS, original, lite, tag=f"t{seed}x")
        else:
            twin = Twin(handlersocket_plugin)
            twin.ports = stack.enter_context(served_at(twin.url))
            found = compare(seed, REQUESTS, original, twin, tag=f"w{seed}x", types=MARIADB)
    assert not found.faults, "\n".join(found.faults)
    assert found.requests >= REQUESTS
    # Rules explain a small share: what they excuse is not compared.
    assert found.explained.total() < found.requests / 4, found


def test_what_no_rule_speaks_of_is_a_difference() -> None:
    columns = Column("id", KINDS[0], False), Column("d", KINDS[5], True)
    table = Table("t", columns, (Key("PRIMARY", ((columns[0], False),), True),))
    whole, double = (rules.Opened(table, table.keys[0], (column,), ()) for column in columns)
    assert same(b"0\t1\t1\n", b"0\t1\t2\n", whole) is None
    assert same(b"0\t1\t1\n", b"0\t1\t1.0\n", double) == "T"
    assert same(b"0\t1\t1\n", b"0\t1\t1.5\n", double) is None
