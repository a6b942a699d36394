"""`-k` with the name of a database finds all tests that use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
