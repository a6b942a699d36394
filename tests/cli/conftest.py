"""`roost` as a user types it, in a directory of its own; what a test did there may have broken no promise."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import roost
from roost.cli import main

# What would change the answers: a store of the developer's own, and what rich takes for a terminal.
PLAIN = dict.fromkeys(["ROOST_STORE", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"])


class Shell:
    """Runs commands in this process; `error` is what the last one wrote on stderr."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.error = ""

    def __call__(
        self, *arguments: str, code: int = 0, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """Run a command, which is to end with this code; return what it wrote on stdout."""
        runner = CliRunner(env={**PLAIN, **(env or {})})
        result = runner.invoke(main, arguments, input=stdin, catch_exceptions=False, prog_name="roost")
        self.error = result.stderr
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *arguments: str, code: int = 0, stdin: str | bytes | None = None) -> Any:
        """Run a command with --json; return the one document on stdout."""
        return json.loads(self("--json", *arguments, code=code, stdin=stdin))

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file into the directory."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process of its own, which can be interrupted even where the tests cannot."""
        options.setdefault("preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        environ = {name: value for name, value in os.environ.items() if name not in PLAIN} | dict(env or {})
        command = [sys.executable, "-m", "roost.cli", *arguments]
        return subprocess.Popen(command, cwd=self.directory, env=environ, **options)

    def sql(self, name: str, *statements: str) -> None:
        """Do something to a database that Roost would not do."""
        with closing(sqlite3.connect(self.directory / name, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def files(self) -> list[str]:
        """The names of the files in the directory."""
        return sorted(path.name for path in self.directory.iterdir())


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Shell(tmp_path)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    if (tmp_path / "roost.db").exists():
        with roost.Store("sqlite:///roost.db") as store:
            assert store.check() == []
