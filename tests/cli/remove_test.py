"""clear, forget: what deletes asks before."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell


@pytest.fixture
def visits(shell: Shell) -> Shell:
    shell("create", "ring", "visits", "--per", "uid:int", "--keep", "5", "--column", "visitor:int")
    shell("create", "counter", "hits", "--key", "site:int", "--key", "path:text")
    shell("import", "visits", "-", "--format", "csv", stdin="uid,visitor\n5,1\n5,2\n-6,3\n")
    shell("import", "hits", "-", "--format", "csv", stdin='site,path,n\n7,"/a,b",2000\n')
    return shell


@pytest.mark.parametrize("command", ["clear", "forget"])
@pytest.mark.parametrize(
    ("answer", "message"), [("n\n", "nothing was changed"), ("\n", "nothing was changed"), ("", "nobody answered")]
)
def test_nothing_is_removed_without_a_yes(visits: Shell, command: str, answer: str, message: str) -> None:
    assert visits(command, "visits", "5", code=1, stdin=answer) == ""
    assert visits.error.startswith(f"{command} key 5 of visits: what it holds is deleted. Go on? [y/N]")
    assert message in visits.error
    assert len(visits.json("show", "visits", "5")["entries"]) == 2


@pytest.mark.parametrize("command", ["clear", "forget"])
@pytest.mark.parametrize(("options", "answer"), [((), "y\n"), ((), "YES\n"), (("--yes",), None)])
def test_a_yes_removes(visits: Shell, command: str, options: tuple[str, ...], answer: str | None) -> None:
    assert visits(command, "visits", "5", *options, stdin=answer) == "visits: 2 rows removed from key 5\n"
    assert visits.json("show", "visits", "5")["entries"] == []
    assert len(visits.json("show", "visits", "--", "-6")["entries"]) == 1


def test_clear_keeps_the_sequence_and_forget_does_not(visits: Shell) -> None:
    for command, sequence in (("clear", 3), ("forget", 1)):
        visits(command, "visits", "5", "--yes")
        visits("import", "visits", "-", "--format", "csv", stdin="uid,visitor\n5,1\n")
        assert [each["sequence"] for each in visits.json("show", "visits", "5")["entries"]] == [sequence]


def test_a_counter_tells_the_total_it_had(visits: Shell) -> None:
    assert visits.json("forget", "hits", '[7, "/a,b"]', "--yes") == {
        "structure": "hits",
        "key": [7, "/a,b"],
        "removed": 2000,
    }
    assert visits("clear", "hits", '7,"/a,b"', "--yes") == 'hits: a total of 0 removed from key [7, "/a,b"]\n'


def test_a_bad_key_is_told_before_anything_is_asked(visits: Shell) -> None:
    visits("clear", "visits", "five", code=1)
    assert visits.error == "error: visits.uid: 'five' is not a whole number\n"
