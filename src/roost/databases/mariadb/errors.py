"""MariaDB's and MySQL's errors, by their numbers."""

from __future__ import annotations

import re

from roost.errors import (
    Busy,
    CannotOpen,
    Conflict,
    ConnectionLost,
    DatabaseError,
    DiskFull,
    Error,
    Missing,
    ReadOnly,
    StatementFailed,
    worded,
)

PRIVATE = re.compile(r"\.roost_[^.']*'")  # a table of Roost's, as 1146 names it: 'database.table'
HIDDEN = re.compile("[`']roost_(writers|catalog|once)[`']")  # as 1142 names them, even if they do not exist

# Out of memory, and tables that cannot be read any more.
OF_SERVER = frozenset([*range(1023, 1031), 1034, 1035, 1037, 1038, 1041, 1194, 1195, 1712, 1812, 1877, 1932])

VIEW = re.compile(r"(CREATE|DROP) (VIEW|TRIGGER|PROCEDURE)|RENAME|(?s:CREATE TABLE .*BLACKHOLE)")
RIGHTS = (
    "; a view needs the privileges CREATE, DROP, ALTER, INSERT, CREATE VIEW, SHOW VIEW and TRIGGER on the database "
    "(without BLACKHOLE also CREATE ROUTINE and ALTER ROUTINE): grant them, or leave the view out (view=False, "
    "on the command line --no-view)"
)
# A statement was interrupted (KILL QUERY, a time limit). No handler of a compound statement runs then, and it is not
# known which of its statements were executed: the last one may have been COMMIT.
INTERRUPTED = frozenset([1317, 1969, 3024])

# A trigger's text was missing at the moment when it was read to open a table: seen on Galera nodes that abort each
# other's transactions. No trigger can be created without a text, so the statement can be retried.
UNREAD = re.compile("trigger has an error in its body: 'Query was empty'")

# The reason why a statement was refused, as a word of `StatementFailed`; numbers are those of the storage engines.
WORDS = {
    **dict.fromkeys([1022, 1062, 1169, 1586, 1859], "121"),
    **dict.fromkeys([1216, 1452], "151"),
    **dict.fromkeys([1217, 1451], "152"),
    **dict.fromkeys([1048, 1364], "notnull"),
    **dict.fromkeys([1369, 3819, 4025], "check"),
    **dict.fromkeys([1264, 1690], "range"),
    **dict.fromkeys([1265, 1292, 1366, 1411, 1525], "type"),
    **dict.fromkeys([1118, 1406], "toobig"),
    **dict.fromkeys([1906, 3105], "generated"),
    **dict.fromkeys([1305, 1318], "routine"),  # there is none, or one with other parameters
    1467: "167",
    1643: "trigger",  # SIGNAL SQLSTATE "02…"
    1644: "trigger",
    **dict.fromkeys([1142, 1143, 1227, 1370], "denied"),
}
ADVICE = {
    1370: "; an account that writes structures needs EXECUTE on their procedures (GRANT EXECUTE ON PROCEDURE …)",
    1419: "; with a binary log a trigger may be made by an account with SUPER, or by all after SET GLOBAL "
    "log_bin_trust_function_creators = 1; or leave the view out (view=False, on the command line --no-view)",
    1665: "; with binlog_format=STATEMENT nothing can be written at READ COMMITTED, as Roost writes: set "
    "binlog_format=MIXED, the default, or ROW",
}


def advice(code: int, sql: str) -> str:
    """Return advice on how to fix the cause of an error, if there is any."""
    if code in (1142, 1044, 1227, 1370) and VIEW.match(sql):
        return RIGHTS
    return ADVICE.get(code, "")


# A node of Galera that ends a transaction while it reads a table's triggers for it takes them for broken from then on:
# they "have an error in their body", which the next one is told who meets that instance of the table in its cache.
UNPARSED = 1064
WITH_TRIGGERS = re.compile(r"\broost_\w+_rows\b")


def unparsed(error: Exception, sql: str) -> str:
    """Return the table of Roost's whose triggers a node of Galera takes for broken; "" where the error is another."""
    found = WITH_TRIGGERS.search(sql) if error.args[:1] == (UNPARSED,) else None
    return found.group() if found else ""


def to_flush(found: Error, table: str) -> Error:
    """Return the error with advice on how to fix its cause."""
    return StatementFailed(f"{found}; FLUSH TABLES {table} on this node mends it")


def translate(error: Exception, place: str, sql: str = "") -> Error:
    """Return our error for one of a server's, by its number. The classes of PyMySQL and asyncmy have the same names."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"{place}: {error.args[1] if len(error.args) > 1 else error} ({code})"
    if more := advice(code, sql):
        return StatementFailed(text + more)
    match code:
        # 1684 is of a table that is being altered, 3101 Group Replication's, the last three are TiDB's
        case 1213 | 1020 | 1412 | 1684 | 3101 | 9007 | 8022 | 8028:
            return Conflict(text)
        case 1064 if UNREAD.search(text):
            return Conflict(text)
        case 1205 | 3572:  # 3572 is NOWAIT's in MySQL
            return Busy(f"{place}: another transaction holds a lock that is needed ({code})")
        case 1969 | 3024:  # 3024 is MySQL's limit for a SELECT, max_execution_time
            return worded(Busy(f"{place}: a statement took longer than max_statement_time allows ({code})"), "timeout")
        case 1317:
            return Busy(f"{place}: the statement was interrupted (KILL QUERY or the like) ({code})")
        case 1146 if PRIVATE.search(str(error.args[1])):
            return Missing(f"{text}; store.create(...) makes the tables, store.check() tells what is there")
        case 1142 if HIDDEN.search(text):
            return Missing(f"{text}; an account that uses structures needs SELECT, INSERT, UPDATE and DELETE on it")
        case 167:  # an AUTO_INCREMENT column has no number left
            return worded(StatementFailed(f"{text}{f' in {sql}' if sql else ''}"), "167")
        case 1021 | 1114 | 3:
            return DiskFull(text)
        case 1290 | 1792 | 1036 | 1836:
            return ReadOnly(text)
        case 2002 | 2003 | 2006 | 2013 | 2055 | 1927 | 1053 | 1040 | 1047 | 1153 | 1158 | 1159 | 1160 | 1161 | 4031:
            return ConnectionLost(text)
        case 1044 | 1045 | 1049 | 1129 | 1130 | 1203 | 1226 | 1698 | 1820 | 1862 | 4151 | 2005 | 2026 | 2059 | 2061:
            return CannotOpen(text)
        case 0 if type(error).__name__ == "InterfaceError":  # the driver itself: the connection was closed
            return ConnectionLost(text)
    # Any other number means a refused statement, since a trigger's author may choose any. Numbers below 1000 concern
    # the server's files, those from 2000 on the driver.
    of_statement = 1000 <= code < 2000 or code >= 3000
    if type(error).__name__ in ("DataError", "IntegrityError", "ProgrammingError") or (
        of_statement and code not in OF_SERVER
    ):
        return worded(StatementFailed(f"{text}{f' in {sql}' if sql else ''}"), WORDS.get(code, "error"))
    return DatabaseError(f"{text}{f' in {sql}' if sql else ''}")
