"""What fails becomes an answer; what has undone the whole transaction is raised, since then nothing was done at all."""

from __future__ import annotations

from collections.abc import Callable

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError
from roost.errors import Error, Invalid
from roost.protocols.requests import Refused
from roost.server import answers as say
from roost.server.counters import Counters


class Undone(Exception):
    """An error has undone the whole transaction."""


class Guard:
    """The answers of what failed, on one connection."""

    def __init__(self, connection: ApswConnection, counters: Counters) -> None:
        self._connection = connection
        self._counters = counters

    def answered(self, work: Callable[[], str]) -> str:
        """Return what the work returns, or the answer to its error.

        Raises: Undone.
        """
        try:
            return work()
        except Error as error:
            return self._of(error)
        except SQLiteError as error:
            return self._of(self._connection.failure(error))
        except Refused as refused:
            return self.wrong(refused.word)

    def _of(self, error: Error) -> str:
        if not self._connection.in_transaction:
            raise Undone from error
        return self.refusal(error)

    def answer(self, code: int, word: str) -> str:
        """Answer a request that fails."""
        self._counters.errors += 1
        return say.error(code, word)

    def wrong(self, word: str) -> str:
        """Answer a request that has no meaning."""
        return self.answer(2, word)

    def refusal(self, error: Error) -> str:
        """Answer a request that the database, or the structure, refuses."""
        if isinstance(error, Invalid) and error.word == "value":  # what a structure does not take is its type's affair
            return self.answer(1, "type")
        if error.word == "foreign":  # found at COMMIT, when nobody knows any more which side it was
            return self.answer(1, "151")
        return self.answer(error.code, error.word)
