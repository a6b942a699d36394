"""Two sessions, one key, as in `boundaries.py`, but inside a program: between every two statements of its text.

Programs are made with a gate before each statement: an account of the tests' own waits there while its gate is shut,
until another session's operation is over, or waits for a lock itself. So a lock that a program does not take, or takes
too late, shows at once, which no load of equal calls does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

import psycopg

from roost.structures import reading
from roost.structures.steps import Program, Routine, Step
from roost.structures.words.mysql import MySQLWords
from roost.structures.words.postgresql import PostgreSQLWords
from tests.suite.application import Application
from tests.suite.boundaries import Boundaries, Case, Operations, outcome

FIRST = "roost_first"  # the account that waits at gates
PATIENCE = 30.0
BLOCKED = 0.3  # seconds after which an operation that is not over is taken to wait for a lock; both are to be right


class _Gated:
    """What words of both servers have more."""

    number = most = 0  # the gates of the routine that is being made; the most that one has had

    def shut(self, number: int) -> str:
        raise NotImplementedError

    def routine(self, made: Program) -> Routine:
        self.number = 0
        found: Routine = super().routine(made)  # type: ignore[misc]
        _Gated.most = max(_Gated.most, self.number)
        return found

    def _lines(self, steps: Iterable[Step], declared: dict[str, str]) -> list[str]:
        lines: list[str] = []
        for step in steps:
            for line in super()._lines([step], declared):  # type: ignore[misc]
                self.number += 1
                lines += [self.shut(self.number), line]
        return lines


class _OnPostgreSQL(_Gated, PostgreSQLWords):
    def shut(self, number: int) -> str:  # it leaves FOUND as it was
        return (
            f"IF session_user = '{FIRST}' THEN ASSERT pg_advisory_lock({number}) IS NOT NULL;"
            f" ASSERT pg_advisory_unlock({number}); END IF;"
        )


class _OnMySQL(_Gated, MySQLWords):
    def shut(self, number: int) -> str:
        name = f"CONCAT(DATABASE(), ' {number}')"
        return f"IF USER() LIKE '{FIRST}@%' THEN DO GET_LOCK({name}, 60); DO RELEASE_LOCK({name}); END IF"


@contextlib.contextmanager
def gated(structures: Sequence[Any]) -> Iterator[None]:
    """Let programs of structures be made with gates."""
    former, _Gated.most = dict(reading.WORDS), 0
    words: Any = reading.WORDS
    try:
        words.update(mariadb=_OnMySQL, postgresql=_OnPostgreSQL)
        for structure in structures:
            structure.plans.clear()
        yield
    finally:
        words.update(former)
        for structure in structures:
            structure.plans.clear()


class Gates(Boundaries):
    """Tries pairs of operations at each gate of the first one's programs."""

    ends = False

    def __init__(self, url: str, cases: Sequence[Case]) -> None:
        self._sql = Application(url)
        if self._sql.kind == "postgresql":
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                self._sql(f"CREATE ROLE {FIRST} SUPERUSER LOGIN")
            self._waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            self._blocked = ["SELECT count(*) FROM pg_locks WHERE locktype <> 'advisory' AND NOT granted"]
            self._lock, self._unlock = "SELECT pg_advisory_lock({})", "SELECT pg_advisory_unlock({})"
        else:
            self._sql(f"CREATE USER IF NOT EXISTS {FIRST}@'127.0.0.1'")
            self._sql(f"GRANT ALL ON *.* TO {FIRST}@'127.0.0.1'")
            self._waits = "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'"
            self._blocked = [
                "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'",
                "SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for % metadata lock'",
            ]
            self._lock = "SELECT GET_LOCK(CONCAT(DATABASE(), ' {}'), 60)"
            self._unlock = "SELECT RELEASE_LOCK(CONCAT(DATABASE(), ' {}'))"
        parts = urlsplit(url)
        first = parts._replace(netloc=f"{FIRST}@{parts.hostname}:{parts.port}").geturl()
        self._pool = ThreadPoolExecutor(2)
        super().__init__(url, cases, first, timeout=PATIENCE, lock_wait=PATIENCE)

    def close(self) -> None:
        self._pool.shutdown()
        self._sql.close()
        super().close()

    def boundaries(self) -> Iterator[int]:
        return takewhile(lambda number: number <= _Gated.most, super().boundaries())

    def play(self, boundary: int, way: str, ours: Operations, theirs: Operations) -> tuple[Any, Any] | None:
        return self.meet(
            boundary, partial(self.first, way, ours), partial(outcome, self.other.run_all, theirs), BLOCKED
        )

    def meet(
        self, boundary: int, ours: Callable[[], Any], theirs: Callable[[], Any], blocked: float = PATIENCE
    ) -> tuple[Any, Any] | None:
        """Call the second one while the first one waits at a gate; None if that was not reached."""
        self._sql(self._lock.format(boundary))
        try:
            mine = self._pool.submit(ours)
            if not self._is_there(mine):
                return None
            other = self._pool.submit(theirs)
            limit = time.monotonic() + blocked
            while not other.done() and not self._is_blocked() and time.monotonic() < limit:
                time.sleep(0.001)
        finally:
            self._sql(self._unlock.format(boundary))
        return mine.result(PATIENCE), other.result(PATIENCE)

    def _is_blocked(self) -> bool:
        return any(int(self._sql(each)[0][-1]) for each in self._blocked)

    def _is_there(self, mine: Future[Any]) -> bool:
        # Whether the first one waits at the gate; otherwise it has not met it.
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            if mine.done():
                return False
            if self._sql(self._waits) != [(0,)]:
                return True
            time.sleep(0.001)
        raise AssertionError("the first operation is neither over nor at its gate")
