"""Random requests to the original and to Roost: equal, or different by a rule. The long form is a campaign."""

from __future__ import annotations

import pytest

from tests.handlersocket import rules
from tests.handlersocket.conftest import Served, served_at
from tests.handlersocket.differential import Counts, Lite, Original, Twin, compare, same
from tests.handlersocket.requests import Open, Request, is_number, number, read, value
from tests.handlersocket.tables import KINDS, MARIADB, Column, Key, Table
from tests.lengths import length
from tests.servers import Plugin

REQUESTS = 1500

INT, TEXT = KINDS[0], KINDS[2]
ID, NAME = Column("id", INT, False), Column("name", TEXT, True)
TABLE = Table("t", (ID, NAME), (Key("PRIMARY", ((ID, False),), True), Key("k", ((NAME, False),), False)))
INDEX = rules.Opened(TABLE, TABLE.keys[0], (ID, NAME), (NAME,))


def names(line: bytes) -> set[str]:
    asked = read(line)
    assert isinstance(asked, Request)
    return {rule.name for rule in rules.of_request(asked, INDEX)}


@pytest.mark.parametrize("seed", length([1], [1, 2]))
def test_random_requests_differ_from_the_original_by_rules_alone(
    seed: int, handlersocket_plugin: Plugin, served_file: Served
) -> None:
    found = compare(
        seed, REQUESTS, Original(handlersocket_plugin), Lite(served_file.file, served_file), tag=f"t{seed}x"
    )
    assert not found.faults, "\n".join(found.faults)
    assert found.requests >= REQUESTS
    # Rules explain a small share: what they excuse is not compared.
    assert found.explained.total() < found.requests / 4, found


@pytest.mark.parametrize("seed", length([1], [1, 2]))
def test_random_requests_to_a_twin_in_the_same_mariadb_differ_by_rules_alone(
    seed: int, handlersocket_plugin: Plugin
) -> None:
    original, twin = Original(handlersocket_plugin), Twin(handlersocket_plugin)
    with served_at(twin.url) as server:
        found = compare(seed, REQUESTS, original, twin.at(server), tag=f"w{seed}x", types=MARIADB)
    assert not found.faults, "\n".join(found.faults)
    assert found.requests >= REQUESTS
    assert found.explained.total() < found.requests / 4, found


@pytest.mark.parametrize(
    ("line", "applying"),
    [
        (b"0\t=\t1\t1\n", set()),
        (b"0\t=\t1\t1\t10\t0\tF\t=\t0\tx\n", set()),
        (b"0\t+\t2\t1\tx\n", set()),
        (b"0\t=\t1\t1\t1\t0\tU\t2\tx\n", set()),
        (b"0\t=\t1\t1\t1\t0\tD\n", set()),
        (b"0\t=\t1\t1\t1\t0\t+\t2\t\0\n", set()),
        (b"0x\t=\t1\t1\n", {"3"}),
        (b"0\t=\t1\t1\tU\tx\n", {"3"}),
        (b"0\t=\t1\tabc\n", {"4"}),
        (b"0\t=\t1\t\0\n", {"4"}),
        (b"0\t=\t1\t99999999999\n", {"T"}),
        (b"0\t+\t1\t1\n", {"1"}),
        (b"0\t+\t2\tabc\tx\n", {"4"}),
        (b"0\t+\t2\t1\ta\x01\n", {"7"}),
        (b"0\t=\t1\t1\t1\t0\tU\t2\n", {"2"}),
        (b"0\t=\t1\t1\t1\t0\t+\t2\t1\n", {"5"}),
        (b"0\t=\t1\t1\t1\t0\tF\t<>\t0\tx\n", {"7"}),
        (b"0\t=\t1\t1\t1\t0\t@\t0\t2\t1\t\0\n", {"4", "6"}),
        (b"0\t>\t1\t1\t1\t0\t@\t0\t1\t1\n", {"6"}),
        (b"0\t>\t1\t1\t9\t0\tU\t2\tx\n", {"8"}),
    ],
)
def test_rules_apply_to_what_they_speak_of(line: bytes, applying: set[str]) -> None:
    assert names(line) == applying


def test_a_line_is_read_as_the_original_reads_it() -> None:
    line = b"1\t>=\t2\ta\t\0\t10\t1\t@\t0\t2\tx\ty\tF\t=\t0\tz\tW\t<\t1\t9\tU?\tp\t\x01@\r\n"
    asked = read(line)
    assert isinstance(asked, Request)
    assert (asked.key, asked.limit, asked.offset) == ((b"a", b"\0"), b"10", b"1")
    assert (asked.icol, asked.members) == (b"0", (b"x", b"y"))
    assert [(each.type, each.op, each.column, each.value) for each in asked.filters] == [
        (b"F", b"=", b"0", b"z"),
        (b"W", b"<", b"1", b"9"),
    ]
    assert (asked.mop, [*map(value, asked.values)]) == (b"U?", [b"p", b"\0"])
    opened = Open(b"3", b"hst", b"t", b"k", (b"a", b""), ())
    assert read(b"P\t3\thst\0x\tt\tk\ta,\0\n") == opened
    assert read(b"A\t1\tx\n") is None


def test_numbers_are_read_as_the_original_and_as_roost_reads_them() -> None:
    read_as = {b"-3": 3, b"abc": 0, b"": 0, b"4x5": 45, b"4294967297": 1, b"4294967296": 0, b"0" * 10_000 + b"7": 7}
    assert {token: number(token) for token in read_as} == read_as
    assert [is_number(token) for token in (b"", b"0" * 10_000 + b"7", b"4294967295", b"0012")] == [True] * 4
    assert [is_number(token) for token in (b"-3", b"x", b"4294967296", b"1" * 10_000, b"\0", b" 1")] == [False] * 6


def test_what_no_rule_speaks_of_is_a_difference() -> None:
    assert same(b"0\t1\t1\n", b"0\t1\t2\n", INDEX) is None
    double = rules.Opened(TABLE, TABLE.keys[0], (Column("d", KINDS[5], True),), ())
    assert same(b"0\t1\t1\n", b"0\t1\t1.0\n", double) == "T"
    assert same(b"0\t1\t1\n", b"0\t1\t1.5\n", double) is None
    assert str(Counts()).startswith("0 requests")
