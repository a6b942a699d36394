"""console: what it prints, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import urllib.request
from importlib.machinery import ModuleSpec

import pytest

from tests.cli.conftest import Shell


@pytest.fixture
def made(shell: Shell) -> Shell:
    shell("create", "counter", "hits")
    return shell


def test_it_prints_the_link_and_serves_until_it_is_interrupted(made: Shell) -> None:
    made.write("token", "geheim\n")
    options = ("--address", "127.0.0.1:0", "--no-browser", "--token-file", "token")
    with made.start("console", *options, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        what, link = process.stdout.readline().decode().split()
        assert what == "console"
        assert link.endswith("/?token=geheim")
        with urllib.request.urlopen(link, timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_without_a_token_it_is_for_this_machine_alone(made: Shell) -> None:
    options = ("--no-browser", "--json", "--no-token")
    with made.start("console", "--address", "127.0.0.1:0", *options, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        link = json.loads(process.stdout.readline())["console"]
        assert "token" not in link
        with urllib.request.urlopen(link, timeout=60) as answer:
            assert b"hits" in answer.read()
        process.terminate()
        process.wait(60)
    made("console", "--address", "0.0.0.0:0", *options, code=1)
    assert "without a token anybody could look" in made.error


def test_what_it_refuses(made: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    made("console", "sqlite:///nowhere.db", "--no-browser", code=1)
    assert "there is no database" in made.error
    made("console", "--allow", "drop", "--no-browser", code=1)
    assert "--allow takes clear, forget, remove" in made.error
    made("console", "--address", "unix:/x", "--no-browser", code=1)
    assert "take a port" in made.error
    made("console", "memcached://localhost", "--no-browser", code=1)
    assert "has no catalog" in made.error
    made("console", "--token-file", "nowhere", "--no-browser", code=1)
    assert "cannot be read" in made.error
    find = importlib.util.find_spec

    def without(name: str) -> ModuleSpec | None:
        return None if name == "uvicorn" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    made("console", code=1)
    assert "pip install 'roost[console]'" in made.error
