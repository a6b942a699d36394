"""PostgreSQL's errors, by their SQLSTATE."""

from __future__ import annotations

import re

import psycopg
from psycopg.pq import DiagnosticField

from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    ConnectionLost,
    DatabaseError,
    DiskFull,
    Error,
    Invalid,
    Missing,
    ReadOnly,
    StatementFailed,
    worded,
)

PRIVATE = re.compile(r"\broost_\w+\b(?!\.)")  # a table of Roost's, as 42P01 names it in any language; no schema
HIDDEN = re.compile(r"\broost_(writers|catalog|once)\b")  # as 42501 names them to who has no right
# A line of the statement and a ^ below it, which points nowhere once something follows. Words would be translated.
POINTED = re.compile(r"\n[^\n]*\n *\^(?=\n|\Z)")
# What a statement was refused for, in the words of `StatementFailed`.
WORDS = {
    "23505": "121",
    "23P01": "121",
    "23001": "152",
    "23503": "foreign",
    "23502": "notnull",
    "23514": "check",
    "44000": "check",
    "22003": "range",
    "22001": "toobig",
    "22026": "toobig",
    "54000": "toobig",
    "22P02": "type",
    "22007": "type",
    "22008": "type",
    "42804": "type",
    "42883": "routine",
    "428C9": "generated",
    "P0001": "trigger",
    "42501": "denied",
}


def translate(error: psycopg.Error, place: str, sql: str = "") -> Error:
    """Return our error for one of PostgreSQL's, by its SQLSTATE."""
    state = error.sqlstate or ""
    text = f"{place}: {POINTED.sub('', str(error).strip())}"
    where = f"{text}{f' in {sql}' if sql else ''}"
    if state == "42501" and "for function" in (error.diag.message_primary or ""):
        where += "; an account that writes structures needs EXECUTE on their functions (GRANT EXECUTE ON FUNCTION …)"
    match state[:2], state:
        case _, "40001" | "40P01":
            return Conflict(text)
        case _, "55P03":
            text = f"{place}: another transaction holds a lock that is needed ({error.diag.message_primary})"
            return worded(Busy(text), "146")
        case _, "57014":  # by statement_timeout, or by somebody
            return worded(Busy(f"{place}: a statement was cancelled ({error.diag.message_primary})"), "timeout")
        case _, "22P05":
            message = "the database's encoding has no such character; a UTF8 database has all of them"
            return worded(Invalid(f"{text}: {message}"), "type", 1)
        case _, "3F000" if "CREATE" in sql:  # not that of a type, which somebody has renamed
            return Invalid(f"{text}: no schema in search_path exists")
        case _, "42P01" if PRIVATE.search(error.diag.message_primary or ""):
            return Missing(f"{text}; store.create(...) makes the tables, store.check() tells what is there")
        case _, "42501" if HIDDEN.search(error.diag.message_primary or ""):
            return Missing(f"{text}; an account that uses structures needs SELECT, INSERT, UPDATE and DELETE on it")
        case "53", "53100":
            return DiskFull(text)
        case _, "25006":
            return ReadOnly(f"{text}; a standby, or default_transaction_read_only is on")
        case _, "" if isinstance(error, psycopg.DataError):  # psycopg itself refused: NUL in text
            return StatementFailed(where)
        case _, "57P01" | "57P02" | "57P03" | "25P03" | "25P04" | "57P05":
            return ConnectionLost(text)
        case "57", _:
            return CannotOpen(text)
        case (("" | "08" | "25" | "28" | "3D" | "53" | "58" | "F0" | "XX"), _):
            return DatabaseError(where)
    return worded(StatementFailed(where), WORDS.get(state, "error"))  # a trigger's author may choose any other


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
