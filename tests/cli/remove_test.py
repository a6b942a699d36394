"""clear, forget, drop: what deletes asks before."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell


@pytest.fixture
def visits(shell: Shell) -> Shell:
    shell("create", "ring", "visits", "--per", "uid:int", "--keep", "5", "--column", "visitor:int")
    shell("create", "counter", "hits", "--key", "site:int", "--key", "path:text")
    shell("import", "visits", "-", "--format", "csv", stdin="uid,visitor\n5,1\n5,2\n-6,3\n")
    shell("import", "hits", "-", "--format", "csv", stdin='site,path,total\n7,"/a,b",2000\n')
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


def test_f122_a_structure_is_dropped_after_a_yes(visits: Shell) -> None:
    assert visits("drop", "visits", code=1, stdin="n\n") == ""
    assert visits.error.startswith("drop visits: the ring and all that it holds are deleted. Go on? [y/N]")
    assert len(visits.json("show", "visits", "5")["entries"]) == 2
    assert visits("drop", "visits", stdin="y\n") == "visits: dropped\n"
    visits("drop", "visits", "--yes", code=1)
    assert visits.error.startswith("error: there is no structure 'visits' in sqlite:///roost.db; it has hits;")
    assert visits.json("drop", "hits", "--yes") == {"structure": "hits", "dropped": True}
    assert visits.json("list") == []


def test_f122_a_wrong_create_is_corrected(visits: Shell) -> None:
    other = ("create", "counter", "visits", "--key", "int")
    visits(*other, code=1)
    assert visits.error.endswith("`roost drop visits` drops it, with all that it holds\n")
    visits("drop", "visits", "--yes")
    assert visits(*other) == "visits: made\n"


def test_f122_a_table_of_the_applications_own_is_not_dropped(visits: Shell) -> None:
    visits.sql("roost.db", "CREATE TABLE log (id INTEGER PRIMARY KEY, room INT NOT NULL)")
    visits("cap", "log", "--per", "room", "--keep", "2", "--yes")
    visits("drop", "log", "--yes", code=1)
    assert visits.error == "error: log is a table of your own; `roost uncap log` undoes `roost cap`\n"
    assert "log" in [each["name"] for each in visits.json("list")]
