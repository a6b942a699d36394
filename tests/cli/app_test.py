"""What all commands share: where the store is named, help, errors, interrupts, pipes."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
from typing import Any

import pytest

import roost
from roost.cli import main
from tests.cli.conftest import Shell


@pytest.mark.parametrize("name", ["roost", *main.commands])
def test_every_help_has_an_example_that_calls_the_command(shell: Shell, name: str) -> None:
    command = [] if name == "roost" else [name]
    examples = shell(*command, "--help").partition("Example")[2].partition("Options:")[0]
    called = [line.split("roost ", 1)[1].split()[0] for line in examples.splitlines() if "  roost " in line]
    assert called
    assert set(called) <= set(command or main.commands)


def test_help_lists_the_commands_in_the_order_of_their_use(shell: Shell) -> None:
    listed = shell("--help").partition("Commands:")[2].split("\n")
    names = [line.split()[0] for line in listed if line.strip()]
    wanted = "create alter ddl cap uncap list show check doctor import clear forget drop serve console demo"
    assert names == wanted.split()


def test_version(shell: Shell) -> None:
    assert shell("--version") == f"roost {importlib.metadata.version('roost')}\n"


def test_the_store_is_named_before_or_behind_the_command_or_by_the_environment(shell: Shell) -> None:
    shell("--store", "sqlite:///before.db", "create", "counter", "a")
    shell("create", "counter", "b", "--store", "sqlite:///behind.db")
    shell("create", "counter", "c", env={"ROOST_STORE": "sqlite:///environment.db"})
    shell("create", "counter", "d")
    for name, structure in (("before", "a"), ("behind", "b"), ("environment", "c"), ("roost", "d")):
        with roost.Store(f"sqlite:///{name}.db") as store:
            assert [each.name for each in store.structures()] == [structure]
    assert shell("list", "--store", "sqlite:///before.db", env={"ROOST_STORE": "sqlite:///behind.db"}).count("a\t") == 1


def test_json_stands_before_or_behind_the_command(shell: Shell) -> None:
    shell("create", "counter", "hits")
    assert shell("--json", "list") == shell("list", "--json")


READING = [
    ("list",),
    ("show", "visits"),
    ("show", "visits", "5"),
    ("check",),
    ("check", "visits"),
    ("alter", "visits", "--keep", "3"),
    ("clear", "visits", "5", "--yes"),
    ("forget", "visits", "5", "--yes"),
    ("import", "visits", "-", "--format", "csv"),
    ("drop", "visits", "--yes"),
    ("doctor",),
    ("uncap", "visits"),
    ("cap", "visits", "--per", "uid", "--keep", "5"),
    ("console", "--no-browser"),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_missing_database_is_told_and_not_made(shell: Shell, command: tuple[str, ...]) -> None:
    shell(*command, code=1, stdin="uid,visitor\n1,2\n")
    assert shell.error == (
        "error: there is no database at sqlite:///roost.db; `roost create` makes one, and --store or ROOST_STORE names"
        " another\n"
    )
    assert shell.files() == []


@pytest.mark.parametrize(
    "command", [each for each in READING if "visits" in each and "cap" not in each[0]], ids=" ".join
)
def test_a_missing_structure_is_told_with_those_that_are_there(shell: Shell, command: tuple[str, ...]) -> None:
    shell("create", "counter", "hits")
    shell(*command, code=1, stdin="uid,visitor\n1,2\n")
    assert "there is no structure 'visits' in sqlite:///roost.db; it has hits; `roost create` makes one" in shell.error


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://somewhere/app", "error: 'redis://somewhere/app' is not a store"),
        ("mysql://nowhere.invalid/app", "error: mysql://nowhere.invalid/app: "),
        ("roost.db", "error: 'roost.db' is not a store"),
        ("postgresql://127.0.0.1:1/app", "error: postgresql://127.0.0.1:1/app: connection failed: "),
        ("sqlite:///none/roost.db", "error: none/roost.db: there is no directory"),
        ("sqlite:///text.db", "error: text.db: file is not a database"),
    ],
)
def test_a_store_that_cannot_be_opened_is_an_error_without_a_traceback(shell: Shell, url: str, message: str) -> None:
    shell.write("text.db", "no database " * 1000)
    assert shell("create", "counter", "hits", "--store", url, code=1) == ""
    assert shell.error.startswith(message)
    assert "Traceback" not in shell.error
    assert "\\t" not in shell.error


def test_what_click_refuses_has_the_exit_code_2(shell: Shell) -> None:
    shell("lsit", code=2)
    shell("list", "--n", "5", code=2)
    shell("show", code=2)
    shell("show", "visits", "--n", "0", code=2)
    assert shell.files() == []


def test_ctrl_c_ends_quietly_with_130(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    shell("create", "counter", "hits")
    with monkeypatch.context() as patch:
        patch.setattr(roost.Store, "check", interrupted)
        assert shell("check", code=130) == ""
    assert shell.error == ""


def test_a_process_that_is_interrupted_ends_with_130_and_no_traceback(shell: Shell) -> None:
    shell("create", "counter", "hits")
    lines = b"key\n" + b"home\n" * 999 + b"\xff\n"
    with shell.start(
        *("import", "hits", "-", "--format", "csv", "--on-error", "skip"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(lines)
        process.stdin.flush()
        output = process.stderr.readline()  # the first thousand lines are in, and it waits for more
        assert output.startswith(b"line 1001: not UTF-8")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    assert process.returncode == 130
    assert out == b""
    assert error.decode().strip() == "999 lines are in; go on with --from-line 1002"
    assert shell.json("show", "hits", "home")["total"] == 999


@pytest.mark.parametrize("command", [("list",), ("demo", "--events", "10"), ("--help",)], ids=" ".join)
def test_a_reader_who_has_gone_is_no_error_to_speak_of(shell: Shell, command: tuple[str, ...]) -> None:
    shell("create", "counter", "hits")
    reading, writing = os.pipe()
    os.close(reading)
    with shell.start(*command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        _, error = process.communicate()
    assert error == b""
    assert process.returncode == 1


def test_a_terminal_gets_a_table_and_a_pipe_gets_tabs(shell: Shell) -> None:
    shell("create", "counter", "hits")
    piped = shell("list")
    assert piped == "name\tkind\tkey\tholds\trules\nhits\tcounter\tkey text(255)\t\t\n"
    shown = shell("list", env={"TTY_COMPATIBLE": "1"})
    assert "┃" in shown
    assert "\x1b[" in shown
    assert "counter" in shown


def test_what_an_output_cannot_encode_is_escaped(shell: Shell) -> None:
    shell("create", "counter", "hits")
    shell("import", "hits", "-", "--format", "csv", stdin="key\ngröße 日\n")
    env = {"PYTHONIOENCODING": "latin-1"}
    with shell.start("show", "hits", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        out, error = process.communicate()
    assert (out, error) == (b"key\ttotal\ngr\xf6\xdfe \\u65e5\t1\n", b"")


def test_a_catalog_that_cannot_be_read_is_told(shell: Shell) -> None:
    shell("create", "counter", "hits", "--store", "sqlite:///other.db")
    shell.sql("other.db", "UPDATE roost_catalog SET definition = '{}'")
    for command in (("list",), ("show", "hits"), ("create", "counter", "views"), ("check", "hits")):
        shell(*command, "--store", "sqlite:///other.db", code=1)
        assert "the catalog of sqlite:///other.db cannot be read" in shell.error
    assert "a definition that cannot be read" in shell("check", "--store", "sqlite:///other.db", code=1)


@pytest.mark.parametrize("command", [["list"], ["create", "counter", "hits"], ["doctor"], ["serve"]])
def test_f116_a_psycopg_that_finds_no_libpq_is_told(shell: Shell, command: list[str]) -> None:
    environment = {"PSYCOPG_IMPL": "c"}  # a part of psycopg that is not installed
    process = shell.start(*command, "--store", "postgresql://localhost/app", env=environment, stderr=subprocess.PIPE)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.startswith(b"error: postgresql needs the driver psycopg, which is installed, but finds no libpq: ")
    assert b"pip install 'roost[postgresql-binary]'" in error
    assert error.count(b"\n") == 1


def test_a_url_that_is_an_argument_too_many_is_told_its_option(shell: Shell) -> None:
    shell("list", "sqlite:///app.db", code=2)
    assert shell.error.endswith("the URL of a database goes to --store or ROOST_STORE\n")
