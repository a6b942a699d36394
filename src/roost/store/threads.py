"""The threads in which a store works for asyncio."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from roost.errors import Closed

MOST = 8


class Threads:
    """An executor that is made when it is first needed, and never again after `dismiss`."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._dismissed = False

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The executor; `Closed` after `dismiss`."""
        with self._mutex:  # loops of several threads may need it at once
            if self._executor is None:
                if self._dismissed:
                    raise Closed("the store was closed")
                self._executor = ThreadPoolExecutor(MOST, thread_name_prefix="roost")
            return self._executor

    def dismiss(self) -> None:
        """Let the threads end when they have done what they were given."""
        self._dismissed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    def after_fork(self) -> None:
        """Start anew in a child process, which has none of its parent's threads."""
        self._mutex = threading.Lock()
        self._executor = None
