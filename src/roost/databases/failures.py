"""What the errors of databases mean: a table for each, from the database's code to Roost's error."""

from __future__ import annotations

from typing import NamedTuple

from roost.errors import DatabaseError, Error, StatementFailed, worded


class Failure(NamedTuple):
    """What an error with one code means.

    error: the class of Roost's error.
    word: why a statement was refused, as HandlerSocket has it; "": the word of the class.
    says: what is said in place of the database's message.
    more: what to do, behind the message.
    code: the error's code in HandlerSocket; None: that of the class.
    """

    error: type[Error]
    word: str = ""
    says: str = ""
    more: str = ""
    code: int | None = None

    def made(self, place: str, message: str, mark: object, sql: str) -> Error:
        """Return the error. mark: the database's code, or its words, where the message is another."""
        text = f"{place}: {self.says} ({mark})" if self.says else f"{place}: {message}"
        with_sql = sql and self.error in (StatementFailed, DatabaseError)
        error = self.error(f"{text}{self.more}{f' in {sql}' if with_sql else ''}")
        return worded(error, self.word, self.code) if self.word else error


def table(*lines: tuple[str, Failure]) -> dict[str, Failure]:
    """Return a table of lines, each of which names the codes with one meaning.

    >>> table(("1213 1020", Failure(Error)))["1020"].error.__name__
    'Error'
    """
    return {code: failure for codes, failure in lines for code in codes.split()}


MAKES = "; store.create(...) makes the tables, store.check() tells what is there"
RIGHTS = "; an account that uses structures needs SELECT, INSERT, UPDATE and DELETE on it"
REFUSED = Failure(StatementFailed, "error")
FAILED = Failure(DatabaseError)
