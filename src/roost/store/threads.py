"""The threads in which an `AsyncStore` runs its statements."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from roost.errors import Closed

MOST = 8


class Threads:
    """An executor that is made on first use, and not after `dismiss`."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._dismissed = False

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The executor; `Closed` after `dismiss`."""
        with self._mutex:  # event loops in several threads may need it at once
            if self._executor is None:
                if self._dismissed:
                    raise Closed("the store was closed")
                self._executor = ThreadPoolExecutor(MOST, thread_name_prefix="roost")
            return self._executor

    def dismiss(self) -> None:
        """Let the threads end after their current work."""
        self._dismissed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    def after_fork(self) -> None:
        """Reset in a child process, which has none of its parent's threads."""
        self._mutex = threading.Lock()
        self._executor = None
