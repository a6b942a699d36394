"""Worker processes before they have a place: started, with everything imported, and waiting for what they are to be.

One is kept in advance, so that whoever takes a dead worker's place needs no second for Python to start and import.
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
    """A process, and the supervisor's end of its line."""

    process: subprocess.Popen[bytes]
    line: socket.socket

    def end(self) -> None:
        """End a process that is not needed."""
        self.line.close()
        self.process.kill()
        self.process.wait()


class Standbys:
    """At most one standby process."""

    def __init__(self) -> None:
        self._kept: Standby | None = None
        self._ended = False

    def take(self) -> Standby:
        """Return a process, the one that is kept or one that has just been started; OSError when there can be none."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.process.poll() is None:
                return kept
            kept.end()
        return _start()

    def keep(self) -> None:
        """Start a process in advance, unless there is one, or none is needed any more."""
        if self._kept is None and not self._ended:
            try:
                self._kept = _start()
            except OSError:
                pass  # whoever needs one tries again, and tells

    def end(self) -> None:
        """End the process that is kept, and keep no other."""
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
                stdout=sys.stderr,  # the supervisor's own has its announcements alone
                env={name: value for name, value in os.environ.items() if not name.startswith(PREFIX)},
                process_group=0,  # Ctrl-C in a terminal is for the supervisor alone
            )
        except BaseException:
            ours.close()
            raise
    return Standby(process, ours)
