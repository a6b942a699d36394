"""Standby processes: workers that are started, have imported everything, and wait for the slot that they will fill.

One is kept in advance, so that a dead worker is replaced without the second that Python takes to start and import.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass

from roost.server.settings import PREFIX

WORKER: tuple[str, ...] = ("-P", "-m", "roost.server.worker")  # -P: nothing is imported from the working directory


@dataclass
class Standby:
    """A process, and the supervisor's end of its control connection."""

    process: subprocess.Popen[bytes]
    line: socket.socket

    def end(self) -> None:
        """Kill a process that is not needed."""
        self.line.close()
        self.process.kill()
        self.process.wait()


class Standbys:
    """At most one standby process."""

    def __init__(self) -> None:
        self._kept: Standby | None = None
        self._ended = False

    def take(self) -> Standby:
        """Return the standby process, or start one if there is none; OSError if that fails."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.process.poll() is None:
                return kept
            kept.end()
        return _start()

    def keep(self) -> None:
        """Start a standby process, unless there is one or the supervisor is stopping."""
        if self._kept is None and not self._ended:
            try:
                self._kept = _start()
            except OSError:
                pass  # `take` tries again when a process is needed, and reports the error

    def end(self) -> None:
        """Kill the standby process, and start no other."""
        self._ended = True
        if self._kept is not None:
            self._kept.end()
            self._kept = None


def _start() -> Standby:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, *WORKER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # the supervisor's stdout is for its announcements only
                env={name: value for name, value in os.environ.items() if not name.startswith(PREFIX)},
                process_group=0,  # so that Ctrl-C in a terminal reaches the supervisor only
            )
        except BaseException:
            ours.close()
            raise
    return Standby(process, ours)
