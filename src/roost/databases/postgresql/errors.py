"""PostgreSQL's errors, by their SQLSTATE."""

from __future__ import annotations

import re

import psycopg
from psycopg.pq import DiagnosticField

from roost.databases.engine import FAILED, MAKES, REFUSED, RIGHTS, Failure, table
from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    ConnectionLost,
    DiskFull,
    Error,
    Invalid,
    Missing,
    ReadOnly,
    StatementFailed,
)

PRIVATE = re.compile(r"\broost_\w+\b(?!\.)")  # a table of Roost's, as 42P01 names it in any language; no schema
HIDDEN = re.compile(r"\broost_(writers|catalog|once)\b")  # as 42501 names them to who has no right
# A line of the statement and a ^ below it, which points nowhere once something follows. Words would be translated.
POINTED = re.compile(r"\n[^\n]*\n *\^(?=\n|\Z)")

# By SQLSTATE, or by its class.
FAILURES = table(
    ("40001 40P01", Failure(Conflict)),
    ("55P03", Failure(Busy, "146", "another transaction holds a lock that is needed")),
    ("57014", Failure(Busy, "timeout", "a statement was cancelled")),  # by statement_timeout, or by somebody
    (
        "22P05",
        Failure(Invalid, "type", "", ": the database's encoding has no such character; a UTF8 database has all", 1),
    ),
    ("2BP01", Failure(Invalid, more="; drop that first, and make it again after")),
    ("53100", Failure(DiskFull)),
    ("25006", Failure(ReadOnly, more="; a standby, or default_transaction_read_only is on")),
    ("57P01 57P02 57P03 25P03 25P04 57P05", Failure(ConnectionLost)),
    ("57", Failure(CannotOpen)),
    ("08 25 28 3D 53 58 F0 XX", FAILED),
    ("23505 23P01", Failure(StatementFailed, "121")),
    ("23001", Failure(StatementFailed, "152")),
    ("23503", Failure(StatementFailed, "foreign")),
    ("23502", Failure(StatementFailed, "notnull")),
    ("23514 44000", Failure(StatementFailed, "check")),
    ("22003", Failure(StatementFailed, "range")),
    ("22001 22026 54000", Failure(StatementFailed, "toobig")),
    ("22P02 22007 22008 42804", Failure(StatementFailed, "type")),
    ("42883", Failure(StatementFailed, "routine")),
    ("428C9", Failure(StatementFailed, "generated")),
    ("P0001", Failure(StatementFailed, "trigger")),
    ("42501", Failure(StatementFailed, "denied")),
)


def translate(error: psycopg.Error, place: str, sql: str = "") -> Error:
    primary = error.diag.message_primary or ""
    found = meaning(error.sqlstate or "", primary, sql, isinstance(error, psycopg.DataError))
    return found.made(place, POINTED.sub("", str(error).strip()), error.diag.message_primary, sql)


def meaning(state: str, primary: str = "", sql: str = "", is_value: bool = False) -> Failure:
    """Return what an error means. primary: its first line; is_value: psycopg itself may have refused a value."""
    if state == "42501" and HIDDEN.search(primary):
        return Failure(Missing, more=RIGHTS)
    if state == "42501" and "for function" in primary:
        more = "; an account that writes structures needs EXECUTE on their functions (GRANT EXECUTE ON FUNCTION …)"
        return Failure(StatementFailed, "denied", more=more)
    if state == "XX000" and primary.startswith("cache lookup failed for function"):
        return FAILURES["42883"]  # it was dropped since the statement was planned
    if state == "XX000" and primary.startswith("could not open relation") and "pg_get_" in sql:
        return Failure(Conflict)  # the same of a view, since the snapshot
    if state == "42P01" and PRIVATE.search(primary):
        return Failure(Missing, more=MAKES)
    if state == "3F000" and "CREATE" in sql:  # not that of a type, which somebody has renamed
        return Failure(Invalid, more=": no schema in search_path exists")
    if not state:
        return Failure(StatementFailed) if is_value else FAILED  # NUL in text
    return FAILURES.get(state) or FAILURES.get(state[:2]) or REFUSED  # a trigger's author may choose any other


def as_psycopg(error: Exception) -> psycopg.Error:
    """Return another driver's error as psycopg's, so that the meaning of each SQLSTATE is defined in one place."""
    if isinstance(error, psycopg.Error):
        return error
    message = str(error).strip()
    # asyncpg has 22000 for a value that it cannot send; psycopg2's attribute is `pgcode`.
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(error, TimeoutError):
        state, message = psycopg.errors.QueryCanceled.sqlstate, "command_timeout"
    elif isinstance(error, OSError) or type(error).__name__ == "InternalClientError":  # asyncpg: the session was ended
        state = "08006"
    found = psycopg.DatabaseError(
        message, info={**dict.fromkeys(DiagnosticField), DiagnosticField.MESSAGE_PRIMARY: message.encode()}
    )
    found.sqlstate = state
    return found
