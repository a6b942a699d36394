"""uWSGI loads an application and then forks its workers, in C: Python's own hooks are not called."""

from __future__ import annotations

import subprocess
import sys

import roost

counts = roost.Counter("counts")

# The fork of libc, and what uWSGI says of itself and calls in a child. No thread: one that waits for the GIL is missed.
WORKERS = """
import asyncio, ctypes, os, sys, types
number = 0
uwsgi = sys.modules["uwsgi"] = types.ModuleType("uwsgi")
uwsgi.worker_id, called = lambda: number, []
uwsgi.post_fork_hook = lambda: called.append(os.getpid())

import roost

counts, url = roost.Counter("counts"), sys.argv[1]
store, async_store = roost.Store(url), roost.AsyncStore(url)
store.create(counts)
store.run(counts.add("a"))
assert store.run(counts.total("a")) == 1

def work():
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if path.startswith(url.removeprefix("sqlite:///"))]
    uwsgi.post_fork_hook()
    assert called == [os.getpid()]
    for _ in range(100):
        store.run(counts.add("a"))
        assert store.run_all(counts.add("a"), counts.add("b"), counts.total("c")) == (None, None, 0)
        asyncio.run(async_store.run(counts.add("a")))
        assert store.run(counts.total("c")) == 0

for number in (1, 2, 3):
    if not ctypes.PyDLL(None).fork():
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
assert [os.wait()[1] for _ in range(3)] == [0, 0, 0]
"""


def run(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", WORKERS, url], stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    with roost.Store(url) as store:
        assert store.run(counts.totals(["a", "b"])) == {"a": 901, "b": 300}
        assert store.check() == []


def test_its_workers_do_not_inherit_a_file(url: str) -> None:
    run(url)


def test_its_workers_do_not_share_a_connection(server_url: str) -> None:
    # Two wrote on one: an answer of the other's, and "null value in column batch".
    run(server_url)
