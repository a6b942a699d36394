"""Counters: another process reads them, and they outlive the one that counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from roost.server.counters import BOUNDS, NAMES, Counters, make_block, totals

COUNTING = """
import os, signal, sys
from roost.server.counters import Counters, map_block
counters = Counters(map_block(int(sys.argv[1])))
for _ in range(3):
    counters.connected()
counters.requests += 5
counters.bytes_in += 2**40
counters.turn(0.0002)
counters.requests += 1  # in a turn that does not end
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_worker_counted_stays_and_the_next_goes_on() -> None:
    fd, memory = make_block()
    for run in (1, 2):
        ended = subprocess.run([sys.executable, "-c", COUNTING, str(fd)], pass_fds=[fd])
        assert ended.returncode == -signal.SIGKILL
        found = totals(memory)
        wanted = dict.fromkeys(NAMES, 0) | {"connections": 3 * run, "open": 3, "requests": 5 * run}
        assert found.numbers == wanted | {"bytes_in": run * 2**40, "batches": run, "nanoseconds": run * 200_000}
        assert found.durations == [0, run, *[0] * (len(BOUNDS) - 1)]
    os.close(fd)


def test_every_number_has_a_place_of_its_own() -> None:
    counters = Counters()
    for number, name in enumerate(NAMES, 1):
        setattr(counters, name, number)
    counters.publish()
    assert counters.read().numbers == {name: number for number, name in enumerate(NAMES, 1)}
    counters.disconnected()
    counters.connected()
    assert counters.read().numbers["open"] == 2
    assert counters.read().numbers["connections"] == 2


def test_a_duration_is_counted_below_its_bound() -> None:
    counters = Counters()
    for seconds in (0.0, *BOUNDS, 10.1, 1e9):
        counters.turn(seconds)
    assert counters.read().durations == [2, *[1] * (len(BOUNDS) - 1), 2]
    assert counters.read().numbers["batches"] == len(BOUNDS) + 3
