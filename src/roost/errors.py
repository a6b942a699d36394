"""Every error of Roost, grouped by the moment at which it occurs.

::

    Error
     ├── Invalid             making: a name, a value or an option is refused
     ├── Missing             using: the structure, or the whole database, does not exist
     ├── Mismatch            using: the declaration differs from the stored one
     ├── Duplicate           running: a row with this id already exists
     ├── Full                running: a collection that rejects holds `keep` rows; a set too large for memcached
     ├── Overflow            running: a slot of a counter would leave 64 bits
     ├── Busy                waiting: a lock was not released in time; nothing was done
     ├── LeaseLost           holding: a lease has ended before its block
     ├── Conflict            joined: the application must repeat its whole transaction
     ├── OutcomeUnknown      committing: the transaction may or may not have been committed
     ├── Closed              the store was closed
     ├── Refused             client: the server answered with an error
     ├── TimedOut            client: the server did not answer a read in time
     └── DatabaseError       the database refused or failed
          ├── CannotOpen     opening: no such directory, no database, not allowed
          │    └── ConnectionLost  the connection to the server broke; nothing was done
          ├── ReadOnly       writing: the database, file or disk is read-only
          ├── DiskFull       writing: no room left
          └── StatementFailed  one statement was refused (a constraint, a trigger, a type)

Every error can be pickled. `Error.retry` says whether a retry is safe; `Error.code` and `Error.word` are what the
HandlerSocket protocol sends for the error.
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

    `retry` says whether the same call may safely be repeated: nothing was done, and the cause may be temporary. `code`
    and `word` are the error's form on the wire: the code is 1 if the database refused, 2 if the request was wrong; the
    word is a name, or the number of the same error in MariaDB's storage engines.
    """

    retry: ClassVar[bool] = False
    code: int = 1
    word: str = "error"


class Invalid(Error, ValueError):
    """A name, a value or an option is not allowed; raised when the object is made, before anything runs."""

    code = 2
    word = "value"


class Missing(Error, LookupError):
    """The structure, or the database itself, does not exist: `store.create(...)` creates both."""

    word = "open_table"


class Mismatch(Error):
    """The declaration differs from the stored one and cannot be used with it; the message names the difference."""

    word = "open_table"


class Duplicate(Error):
    """The collection already holds a row with this id. Nothing was changed."""

    word = "121"


class Full(Error):
    """The collection holds `keep` rows and is declared `on_full="reject"`; or the set is too large for memcached.

    Nothing was changed.
    """

    word = "full"


class Overflow(Error):
    """The sum would leave 64 bits. Nothing was changed."""

    word = "range"


class Busy(Error):
    """Another process or transaction did not release a lock within the store's `timeout`. Nothing was done.

    Also raised for a call that never started because earlier calls of the same store waited too long for the database.
    """

    retry = True
    word = "146"


class LeaseLost(Error):
    """A lease expired before its block ended: another holder may have it now. Work already done is not undone."""


class Conflict(Error):
    """The application's own transaction cannot continue: roll it back and repeat all of it."""


class OutcomeUnknown(Error):
    """The connection broke during COMMIT and the outcome could not be looked up: it may or may not be committed.

    The outcome of `create` and `alter` is never looked up: ask `store.structures()`.
    Raised by a client: it sent a modification and received no answer.
    """

    word = "unknown"


class Closed(Error):
    """The store was closed. Calls made before `close` have completed."""


class Refused(Error):
    """A HandlerSocket server answered this request with an error; `code` and `word` come from its answer.

    The answer `1 1 121` (a duplicate key) has the code 1 and the word `121`.
    """

    def __init__(self, message: str, code: int = 0, word: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.word = word


class TimedOut(Error):
    """A HandlerSocket server did not answer a read in time, or others used the connection. Nothing was changed."""

    retry = True


class DatabaseError(Error):
    """The database refused the operation or failed. No part of the operation was kept."""


class CannotOpen(DatabaseError):
    """The database cannot be opened: the directory is missing, the file is not a database, or access is denied.

    On a server: it is unreachable when the store first connects, or it rejects the connection.
    """

    retry = True
    word = "unavailable"


class ConnectionLost(CannotOpen):
    """Before COMMIT, the connection to the server broke or the server did not answer in time: nothing was done.

    A store reconnects and runs its batches again. The error is raised if the server stays down, if the same batch
    breaks the connection each time, or if the call was part of the application's own transaction.
    """


class ReadOnly(DatabaseError):
    """The database accepts no writes: the server, file, directory or disk is read-only."""

    retry = True
    word = "165"


class DiskFull(DatabaseError):
    """The disk had no room for the write. The store works again once there is room."""

    retry = True
    word = "135"


class StatementFailed(DatabaseError):
    """The database refused one statement, because of a constraint, a trigger of the user's own or a missing table.

    `word` gives the reason: `121` for a duplicate key, `151` for a foreign key without its parent, `152` for one that
    still has children, `notnull`, `check`, `type`, `range`, `toobig`, `trigger`, `generated`, `denied` (the account
    lacks the privilege); `error` for everything else.
    """


_E = TypeVar("_E", bound=Error)


def worded(error: _E, word: str, code: int | None = None) -> _E:
    """Return the error with its form on the wire."""
    error.word = word
    if code is not None:
        error.code = code
    return error
