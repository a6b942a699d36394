"""Servers of the tests end with them, whatever becomes of those who started them; `-k` finds what uses a database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import servers

ROOT = Path(__file__).parents[1]

STARTS = """
import signal, sys
from tests import servers
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests are told to ignore it
servers.place = sys.argv[2]
try:
    daemon = getattr(servers, sys.argv[1])()
except servers.NotHere:
    sys.exit(0)
print(daemon.pid, daemon._folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
@pytest.mark.parametrize("name", ["memcached_daemon", "postgresql_daemon"])
def test_f85_no_server_and_no_folder_outlives_the_tests(name: str, how: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTS, name, servers.place or tempfile.gettempdir()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        output = process.stdout.readline().split()
        if not output and process.wait() == 0:
            servers.not_run(servers.NotHere(f"NOT RUN: {name} does not start here"))
        process.send_signal(how)
        process.wait()
    deadline = time.monotonic() + servers.PATIENCE
    while os.path.exists(f"/proc/{output[0]}") or os.path.exists(output[1]):
        assert time.monotonic() < deadline, f"{output} is still there"
        time.sleep(0.01)


def test_what_cannot_be_had_everywhere_is_not_run_even_where_everything_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_TEST_ALL", "1")
    with pytest.raises(pytest.skip.Exception, match="NOT RUN"):
        servers.not_run(servers.NotHad("NOT RUN: there is no MySQL"))
    with pytest.raises(pytest.fail.Exception, match="NOT RUN"):
        servers.not_run(servers.NotHere("NOT RUN: there is no MariaDB"))


FOUND = {
    "suite/joined_test.py": ["pymysql", "asyncmy", "connection-pymysql", "async-session-asyncmy"],
    "client/faults_test.py": ["mariadb-plugin"],
    "cli/adopt_test.py": ["test_watch_trims_until_it_is_ended"],
}


def test_f85_a_test_is_found_by_its_database() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-n0", "-k", "mariadb"]
    ran = subprocess.run(
        [*command, *(f"tests/{file}" for file in FOUND)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [word for words in FOUND.values() for word in words if word not in ran.stdout] == []
