"""Stores among gevent's greenlets, in processes of their own, which gevent has patched."""

from __future__ import annotations

import fcntl
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import roost
from tests.servers import NotHad, not_run

counts = roost.Counter("counts")

PATCH = "from gevent import monkey; monkey.patch_all()"
BEGIN = """
import gevent, sqlite3, sys, roost
counts, url = roost.Counter("counts"), sys.argv[1]
"""

# Both stores have a place behind a transaction that another greenlet of the process will end.
TWO_STORES = """
ends = gevent.event.Event()

def transact():
    with sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None) as own:
        own.execute("BEGIN IMMEDIATE")
        ends.wait()
        own.execute("COMMIT")

stores = [roost.Store(url, timeout=600) for _ in range(2)]
jobs = [gevent.spawn(transact), *[gevent.spawn(store.run, counts.add("a")) for store in stores]]
while not all(store.stats().waits for store in stores):
    gevent.sleep(0.001)
ends.set()
gevent.joinall(jobs, raise_error=True)
"""

# While the test has the lock file, another greenlet speaks.
OTHERS = """
store = roost.Store(url, timeout=600)
job = gevent.spawn(store.run, counts.add("a"))
while not store.stats().waits:
    gevent.sleep(0.001)
print("waits", flush=True)
job.get()
"""

# Greenlets are killed at random moments.
KILLED = """
import random
made = acked = 0

def work(store):
    global made, acked
    while True:
        made += 1
        store.run_all(counts.add("a"), counts.add("b"))
        acked += 1

with roost.Store(url) as store:
    jobs = [gevent.spawn(work, store) for _ in range(10)]
    for _ in range(200):
        gevent.sleep(random.random() / 100)
        jobs.append(gevent.spawn(work, store))
        random.choice(jobs[-10:]).kill(block=False)
    gevent.killall(jobs)
    assert acked <= store.run(counts.total("a")) == store.run(counts.total("b")) <= made, (acked, made)
    assert store.check() == []
"""


def begun(*script: str, url: str) -> subprocess.Popen[str]:
    if importlib.util.find_spec("gevent") is None:
        not_run(NotHad("NOT RUN: there is no gevent; install the wheel gevent"))
    command = [sys.executable, "-c", "\n".join(script), url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    with process:
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, errors


@pytest.fixture
def made(url: str) -> str:
    with roost.Store(url) as store:
        store.create(counts)
    return url


def test_two_stores_of_a_file_do_not_stop_the_greenlet_that_both_wait_for(made: str) -> None:
    # One had the lock file, and the other's helper, a greenlet too, stopped them all in flock for ever.
    assert ended(begun(PATCH, BEGIN, TWO_STORES, url=made)) == (0, "")
    with roost.Store(made) as store:
        assert store.run(counts.total("a")) == 2


def test_others_go_on_while_another_process_has_the_lock_file(made: str) -> None:
    with Path(f"{made.removeprefix('sqlite:///')}-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = begun(PATCH, BEGIN, OTHERS, url=made)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
            code, errors = ended(process)
    assert (code, errors) == (0, "")


def test_a_store_that_was_imported_before_the_patch_is_refused(made: str) -> None:
    # Two greenlets used one connection: errors of the drivers, and a process that was aborted.
    code, errors = ended(begun(BEGIN, PATCH, "roost.Store(url).run(counts.add('a'))", url=made))
    assert code == 1
    assert "roost.errors.CannotOpen" in errors
    assert "patch first" in errors


def test_greenlets_that_are_killed_leave_the_store_whole(server_url: str) -> None:
    with roost.Store(server_url) as store:
        store.create(counts)
    code, errors = ended(begun(PATCH, BEGIN, KILLED, url=server_url))
    assert code == 0, errors
