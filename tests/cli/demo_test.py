"""demo: it shows what it promises, again and again, and touches nothing but its own."""

from __future__ import annotations

import os
import pty
import random
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import roost
from roost.cli.demo import CHANGES, PEOPLE_NAMES, changes
from tests import servers
from tests.cli.conftest import Shell
from tests.suite.clients import connect

RECORDED = Path(__file__).parents[2] / "docs/_site/demo.txt"
FEW = ("--events", "1500")
STORE = ("--store", "sqlite:///roost-demo.db")


def test_the_demo_tells_its_story_and_what_to_try_next_works(shell: Shell) -> None:
    output = shell("demo", "--yes")
    for line in (
        "Counter: the files changed most",
        "Ring: the last 5 files of ada, newest first",
        "Set: ada knows ",
        "Capped: the last 12 different people of ",
        " was the oldest and was evicted",
        "Rows stay bounded",
        "check: 0 violations",
    ):
        assert line in output
    assert "\x1b" not in output
    assert shell.error == ""
    # What README shows is what it prints, but for the time that it took.
    recorded = RECORDED.read_text().splitlines()
    assert recorded[0] == "$ roost demo"
    for line in recorded[1:]:
        assert line == "…" or line.partition(" commits and ")[0] in output
    commands = [line.split()[1:] for line in output.partition("Try next:")[2].splitlines() if line]
    assert len(commands) >= 4
    for command in commands:
        shell(*command)
    assert shell.json("show", "demo_files", "bob", *STORE)["entries"]
    assert len(shell.json("show", "demo_people", "core/main.py", *STORE)["entries"]) > 1
    assert shell("check", *STORE) == "every promise is kept\n"


def test_what_to_try_next_can_be_typed_where_no_environment_is_activated(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [".venv/bin/roost", "demo"])
    assert "  .venv/bin/roost list --store sqlite:///roost-demo.db" in shell("demo", *FEW)


@pytest.mark.parametrize("database", ["sqlite", *servers.SERVERS])
def test_the_sql_to_try_next_works(shell: Shell, any_url: str) -> None:
    output = shell("demo", "--store", any_url, *FEW).partition("as well:")[2].partition("Try next:")[0]
    select, insert = [line.strip() for line in output.splitlines() if line.strip()]
    shown = ("show", "demo_changes", "core/main.py", "--store", any_url)
    before = shell.json(*shown)["total"]
    with closing(connect(any_url)) as connection:
        cursor = connection.cursor()
        cursor.execute(select)
        assert cursor.fetchall()
        cursor.execute(insert)
        connection.commit()
    assert shell.json(*shown)["total"] == before + 1


def test_the_answer_as_json(shell: Shell) -> None:
    answer = shell.json("demo", *FEW)
    assert answer["store"] == "sqlite:///roost-demo.db"
    assert (answer["events"], answer["operations"], answer["commits"]) == (1500, 6000, 6)
    assert answer["violations"] == []
    assert answer["evicted"] in PEOPLE_NAMES
    assert answer["rows"]["demo_files"] <= (len(PEOPLE_NAMES) + 1) * 5
    assert answer["top"][0][1] >= answer["top"][1][1]


def test_the_demo_goes_on_or_starts_anew(shell: Shell) -> None:
    assert "earlier demo" not in shell("demo", *FEW)
    assert total(shell) == 1501  # with the guest's
    assert "has an earlier demo, and this one goes on with it; --yes starts anew" in shell("demo", *FEW)
    assert total(shell) == 3002
    assert "the earlier demo was removed" in shell("demo", "--yes", *FEW)
    assert total(shell) == 1501
    assert "has an earlier demo" not in shell("demo", "--store", "sqlite:///other.db", *FEW)


@pytest.mark.parametrize(("said", "events"), [(b"y\n", 1501), (b"n\n", 3002)])
def test_on_a_terminal_it_asks_before_it_starts_anew(shell: Shell, said: bytes, events: int) -> None:
    shell("demo", *FEW)
    ours, its = pty.openpty()
    os.write(ours, said)
    with shell.start("demo", *FEW, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _, error = process.communicate()
    os.close(its)
    os.close(ours)
    assert process.returncode == 0
    assert error == b"sqlite:///roost-demo.db has an earlier demo. Delete it and start anew? [y/N] "
    assert total(shell) == events


def test_starting_anew_leaves_alone_what_is_not_the_demos(shell: Shell) -> None:
    shell("create", "counter", "hits", *STORE)
    shell("import", "hits", "-", "--format", "csv", *STORE, stdin="key\n/home\n")
    shell("demo", *FEW)
    shell("demo", "--yes", *FEW)
    assert shell.json("show", "hits", "/home", *STORE)["total"] == 1


def total(shell: Shell) -> int:
    with roost.Store("sqlite:///roost-demo.db") as store:
        return sum(store.run(CHANGES.totals(store.run(CHANGES.keys(n=500)))).values())


def test_the_demo_leaves_the_store_of_the_environment_alone(shell: Shell) -> None:
    shell("demo", "--yes", *FEW, env={"ROOST_STORE": "sqlite:///production.db"})
    assert not [name for name in shell.files() if name.startswith("production")]
    assert "[default: sqlite:///roost-demo.db]" in " ".join(shell("demo", "--help").split())


def test_the_demo_as_make_run_starts_it(shell: Shell) -> None:
    with shell.start("demo", "--yes", *FEW, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, error = process.communicate()
    assert (process.returncode, error) == (0, b"")
    assert "check: 0 violations" in out.decode()


@pytest.mark.parametrize("n", [1, 7, 2000])
def test_the_stream_is_made_up_alike_every_time(n: int) -> None:
    stream = list(changes(n, random.Random(1)))
    assert len(stream) == n
    assert stream == list(changes(n, random.Random(1)))
    moments = [change.moment for change in stream]
    assert moments == sorted(moments)
    assert n < 100 or len(set(moments)) < n / 2
