"""What tests have reached: probes in a copy of the tree call `hit`, and pytest loads this module as a plugin there.

It stands beside the copy's `roost`, so that the processes which tests start find it, too. Every event is one line of
the file that REACHED names: its kind, a number or seconds, and the test.
"""

from __future__ import annotations

import os
from typing import Any

_seen: set[tuple[int, str]] = set()


def _tell(kind: str, what: object, test: str) -> None:
    path = os.environ.get("REACHED")
    if path is not None:
        with open(path, "a") as file:
            file.write(f"{kind}\t{what}\t{test}\n")


def hit(number: int) -> bool:
    """Note that the test which runs has come by a probe; a process that it has started runs for it."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (number, test) not in _seen:
        _seen.add((number, test))
        _tell("hit", number, test)
    return True


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell("begun", 0, nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed:
        _tell("failed", 0, report.nodeid)
    if report.when == "call":
        _tell("done", report.duration, report.nodeid)
