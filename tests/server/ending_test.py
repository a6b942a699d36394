"""Rate limits and leases over the wire: they are found by their keys, and deleting gives back or ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.playing import Bench, bench

MAKE = """
import sys, roost
logins, jobs = roost.RateLimit("logins", key=int, limit=3, within=86400), roost.Lease("jobs")
with roost.Store(f"sqlite:///{sys.argv[1]}") as store:
    store.create(logins, jobs)
    store.run_all(logins.take(7, 2), jobs.acquire("daily", "ada", 86400))
    print(store.run(jobs.peek("daily")).token)
"""


@pytest.fixture
def token(tmp_path: Path) -> str:
    made = subprocess.run(
        [sys.executable, "-c", MAKE, f"{tmp_path}/app.db"], check=True, capture_output=True, text=True
    )
    return made.stdout.strip()


@pytest.fixture
def write(token: str, tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "app.db", "write")
    yield made
    made.database.close()


def test_a_rate_limit(write: Bench) -> None:
    session = write.session()
    assert write.say(session, "P\t1\tmain\tlogins\tPRIMARY\tkey,remaining,retry_after") == ["0\t1"]
    assert write.say(session, "1\t=\t1\t7\n1\t=\t1\t8") == ["0\t3\t7\t1\t0.0", "0\t3\t8\t3\t0.0"]
    assert write.say(session, "1\t+\t1\t7\n1\t=\t1\t7\t1\t0\tU\t8") == ["2\t1\tnotimpl"] * 2
    assert write.say(session, "1\t=\t1\t7\t1\t0\tD\n1\t=\t1\t7") == ["0\t1\t1", "0\t3\t7\t3\t0.0"]


def test_a_lease(write: Bench, token: str) -> None:
    session = write.session()
    assert write.say(session, "P\t1\tmain\tjobs\tPRIMARY\tkey,holder,token") == ["0\t1"]
    assert write.say(session, "1\t=\t1\tdaily\n1\t=\t1\tweekly") == [f"0\t3\tdaily\tada\t{token}", "0\t3"]
    assert write.say(session, "1\t+\t2\tdaily\tbob\n1\t=\t1\tdaily\t1\t0\tU\tx") == ["2\t1\tnotimpl"] * 2
    assert write.say(session, "1\t=\t1\tdaily\t1\t0\tD\n1\t=\t1\tdaily") == ["0\t1\t1", "0\t3"]
