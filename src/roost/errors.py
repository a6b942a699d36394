"""Every error of Roost, grouped by the moment at which it occurs.

::

    Error
     ├── Invalid             making: a name, a value or an option is refused
     ├── Missing             using: the structure, or the whole database, is not there
     ├── Mismatch            using: the declaration differs from the stored one
     ├── Duplicate           running: the id is there already
     ├── Full                running: a collection that rejects holds `keep` rows; a set that memcached cannot hold
     ├── Overflow            running: a slot of a counter would leave 64 bits
     ├── Busy                waiting: a lock was not released in time; nothing was done
     ├── LeaseLost           holding: a lease has ended before its block
     ├── Conflict            joined: the application's transaction must be redone
     ├── OutcomeUnknown      committing: it may or may not have happened
     ├── Closed              the store was closed
     ├── Refused             client: the server answered with an error
     ├── TimedOut            client: a read was not answered in time
     └── DatabaseError       the database refused or failed
          ├── CannotOpen     opening: no such directory, no database, not allowed
          │    └── ConnectionLost  the connection to the server broke; nothing was done
          ├── ReadOnly       writing: the file or the disk takes no writes
          ├── DiskFull       writing: no room left
          └── StatementFailed  one statement was refused (a constraint, a trigger, a type)

All can be pickled, and say whether a retry is safe: `Error.retry`; and each knows what the HandlerSocket protocol
answers in its place: `Error.code` and `Error.word`.
"""

from typing import ClassVar, TypeVar

__all__ = [
    "Busy",
    "CannotOpen",
    "Closed",
    "Conflict",
    "ConnectionLost",
    "DatabaseError",
    "DiskFull",
    "Duplicate",
    "Error",
    "Full",
    "Invalid",
    "LeaseLost",
    "Mismatch",
    "Missing",
    "OutcomeUnknown",
    "Overflow",
    "ReadOnly",
    "Refused",
    "StatementFailed",
    "TimedOut",
]


class Error(Exception):
    """The base of every error that Roost raises on purpose.

    `retry` says whether the same call may safely be made again: nothing was done, and the cause may pass. `code` and
    `word` are its form on the wire: 1 where the database refused, 2 where the request was wrong, and a word, or the
    number that MariaDB's storage engines have for it.
    """

    retry: ClassVar[bool] = False
    code: int = 1
    word: str = "error"


class Invalid(Error, ValueError):
    """A name, a value or an option is refused, when it is made and before anything runs."""

    code = 2
    word = "value"


class Missing(Error, LookupError):
    """The structure is not in this database, or there is no database: `store.create(...)` makes both."""

    word = "open_table"


class Mismatch(Error):
    """The declaration differs from the stored one, and cannot be used with it; the message names the difference."""

    word = "open_table"


class Duplicate(Error):
    """A row with this id is in the collection already. Nothing was changed."""

    word = "121"


class Full(Error):
    """The collection holds `keep` rows and was declared `on_full="reject"`; or memcached's items cannot hold the set.

    Nothing was changed.
    """

    word = "full"


class Overflow(Error):
    """The sum would leave 64 bits. Nothing was changed."""

    word = "range"


class Busy(Error):
    """A lock that somebody else holds was not released within the store's `timeout`. Nothing was done.

    Also raised for a call that was not begun, because earlier calls of the same store waited too long for the database.
    """

    retry = True
    word = "146"


class LeaseLost(Error):
    """A lease has ended before its holder was done: somebody else may hold it. What was done stays done."""


class Conflict(Error):
    """The application's own transaction cannot go on: roll it back and do all of it again."""


class OutcomeUnknown(Error):
    """It may or may not have happened: the connection broke during COMMIT and the outcome could not be looked up.

    The outcome of `create` and `alter` is never looked up: ask `store.structures()`.
    From a client: a modification was sent and no answer came.
    """

    word = "unknown"


class Closed(Error):
    """The store was closed. Calls made before that were answered."""


class Refused(Error):
    """A HandlerSocket server answered this request with an error; `code` and `word` are those of its answer.

    `1 1 121` (a key that is there already) has the code 1 and the word `121`.
    """

    def __init__(self, message: str, code: int = 0, word: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.word = word


class TimedOut(Error):
    """A HandlerSocket server did not answer a request that only reads in time. Nothing was changed."""

    retry = True


class DatabaseError(Error):
    """The database refused or failed. Nothing of the operation was kept."""


class CannotOpen(DatabaseError):
    """The database cannot be opened: a missing directory, a file that is no database, a forbidden one.

    Or a server that is not there when a store connects for the first time, or refuses it.
    """

    retry = True
    word = "unavailable"


class ConnectionLost(CannotOpen):
    """The connection to the server broke, or the server said nothing for too long, before COMMIT: nothing was done.

    A store reconnects and runs its batches again; the error is raised if the server stays down, if the same batch
    breaks the connection each time, or in a transaction of the application.
    """


class ReadOnly(DatabaseError):
    """The database takes no writes: a read-only file, directory or disk."""

    retry = True
    word = "165"


class DiskFull(DatabaseError):
    """There was no room for the write. The store works again when there is."""

    retry = True
    word = "135"


class StatementFailed(DatabaseError):
    """One statement was refused: a constraint, a trigger of somebody else, a missing table.

    `word` tells which: `121` a key that is there already, `151` and `152` a foreign key without its parent or with
    children, `notnull`, `check`, `type`, `range`, `toobig`, `trigger`, `generated`,
    `denied` (the account has not the right); `error` for all else.
    """


_E = TypeVar("_E", bound=Error)


def worded(error: _E, word: str, code: int | None = None) -> _E:
    """Return the error with its form on the wire."""
    error.word = word
    if code is not None:
        error.code = code
    return error
