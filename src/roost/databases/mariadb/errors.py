"""MariaDB's and MySQL's errors, by their numbers."""

from __future__ import annotations

import re

from roost.databases.engine import FAILED, MAKES, REFUSED, RIGHTS, Failure, table
from roost.errors import Busy, CannotOpen, Conflict, ConnectionLost, DiskFull, Error, Missing, ReadOnly, StatementFailed

PRIVATE = re.compile(r"\.roost_[^.']*'")  # a table of Roost's, as 1146 names it: 'database.table'
HIDDEN = re.compile("[`']roost_(writers|catalog|once)[`']")  # as 1142 names them, even if they do not exist
VIEW = re.compile(r"(CREATE|DROP) (VIEW|TRIGGER|PROCEDURE)|RENAME|(?s:CREATE TABLE .*BLACKHOLE)")
# A statement was interrupted (KILL QUERY, a time limit). No handler of a compound statement runs then, and it is not
# known which of its statements were executed: the last one may have been COMMIT.
INTERRUPTED = frozenset([1317, 1969, 3024])
# A trigger's text was missing at the moment when it was read to open a table: seen on Galera nodes that abort each
# other's transactions. No trigger can be created without a text, so the statement can be retried.
UNREAD = re.compile("trigger has an error in its body: 'Query was empty'")

TO_VIEW = Failure(
    StatementFailed,
    "denied",
    more="; a view needs the privileges CREATE, DROP, ALTER, INSERT, CREATE VIEW, SHOW VIEW and TRIGGER on the "
    "database (without BLACKHOLE also CREATE ROUTINE and ALTER ROUTINE): grant them, or leave the view out "
    "(view=False, on the command line --no-view)",
)
# The savepoint of a call in the application's transaction no longer exists: after a real deadlock. Only ROLLBACK TO
# SAVEPOINT can tell, as a trigger may raise any error number, and the number may also mean that a function is missing.
NO_SAVEPOINT = 1305
GONE = Failure(Conflict, says="the server has rolled back the whole transaction: do all of it again")
TOO_LONG = Failure(Busy, "timeout", "a statement took longer than max_statement_time allows")

# By number. The numbers of words are those of the storage engines.
FAILURES = table(
    # 1684 is of a table being altered, 3058 of user-level locks, 3101 Group Replication's, the last three are TiDB's
    ("1213 1020 1412 1684 3058 3101 9007 8022 8028", Failure(Conflict)),
    ("1205 3572", Failure(Busy, says="another transaction holds a lock that is needed")),  # 3572 is NOWAIT's in MySQL
    ("1969 3024", TOO_LONG),  # 3024 is MySQL's limit for a SELECT, max_execution_time
    ("1317", Failure(Busy, says="the statement was interrupted (KILL QUERY or the like)")),
    ("1021 1114 3 3675", Failure(DiskFull)),  # the last is MySQL's, of a new table
    ("1290 1792 1036 1836", Failure(ReadOnly)),
    # 3032 is MySQL's offline_mode
    ("2002 2003 2006 2013 2055 1927 1053 1040 1047 1153 1158 1159 1160 1161 3032 4031", Failure(ConnectionLost)),
    ("1044 1045 1049 1129 1130 1203 1226 1698 1820 1862 4151 2005 2026 2059 2061", Failure(CannotOpen)),
    ("1022 1062 1169 1586 1859", Failure(StatementFailed, "121")),
    ("1216 1452", Failure(StatementFailed, "151")),
    ("1217 1451", Failure(StatementFailed, "152")),
    ("167 1467", Failure(StatementFailed, "167")),  # an AUTO_INCREMENT column has no number left
    ("1048 1364", Failure(StatementFailed, "notnull")),
    ("1369 3819 4025", Failure(StatementFailed, "check")),
    ("1264 1690", Failure(StatementFailed, "range")),
    ("1265 1292 1366 1411 1525", Failure(StatementFailed, "type")),
    ("1071 1118 1170 1406", Failure(StatementFailed, "toobig")),
    ("1906 3105", Failure(StatementFailed, "generated")),
    ("1305 1318", Failure(StatementFailed, "routine")),  # there is none, or one with other parameters
    ("1643 1644", Failure(StatementFailed, "trigger")),  # 1643 is SIGNAL SQLSTATE "02…"
    ("1142 1143 1227", Failure(StatementFailed, "denied")),
    (
        "1370",
        Failure(
            StatementFailed,
            "denied",
            more="; an account that writes structures needs EXECUTE on their procedures (GRANT EXECUTE ON PROCEDURE …)",
        ),
    ),
    (
        "1419",
        Failure(
            StatementFailed,
            more="; with a binary log a trigger may be made by an account with SUPER, or by all after SET GLOBAL "
            "log_bin_trust_function_creators = 1; or leave the view out (view=False, on the command line --no-view)",
        ),
    ),
    (
        "1665",
        Failure(
            StatementFailed,
            more="; with binlog_format=STATEMENT nothing can be written at READ COMMITTED, as Roost writes: set "
            "binlog_format=MIXED, the default, or ROW",
        ),
    ),
    # Out of memory, and tables that cannot be read any more.
    (" ".join(map(str, range(1023, 1031))), FAILED),
    ("1034 1035 1037 1038 1041 1194 1195 1712 1812 1877 1932", FAILED),
)

# A node of Galera that ends a transaction while it reads a table's triggers for it takes them for broken from then on:
# they "have an error in their body", or an alias in it is no table (1146), which the next one is told who meets that
# instance of the table in its cache.
UNPARSED = (1064, 1146)
BODY = re.compile(r"(?:Trigger 'roost_(\w+)_deleted'|Unknown trigger) has an error in its body|Table '[^']+\.h' does")
# The structures of a statement, whose trigger the error may not name.
NAMED = re.compile(r"\broost_(\w+)_rows\b|\bCALL (?:roost_)?(\w+?)_[a-z]+(?:_all)?(?:_[0-9a-f]{8})?\(")


def unparsed(error: Exception, sql: str) -> str:
    """Return the tables of Roost's whose triggers a node of Galera takes for broken; "" where the error is another."""
    found = BODY.search(str(error))
    if found is None or error.args[0] not in UNPARSED:
        return ""
    names = {found[1]} if found[1] else {rows or called for rows, called in NAMED.findall(sql)}
    return ", ".join(sorted([f"roost_{name}_rows" for name in names]))


def to_flush(found: Error, tables: str) -> Error:
    """Return the error with advice on how to fix its cause."""
    return StatementFailed(f"{found}; FLUSH TABLES {tables} on this node mends it")


def translate(error: Exception, place: str, sql: str = "") -> Error:
    """Return our error for one of a server's, by its number. The classes of PyMySQL and asyncmy have the same names."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    message = f"{error.args[1] if len(error.args) > 1 else error} ({code})"
    return meaning(code, message, type(error).__name__, sql).made(place, message, code, sql)


def meaning(code: int, message: str, kind: str = "", sql: str = "") -> Failure:
    """Return what an error means. kind: the name of the driver's class."""
    if code in (1142, 1044, 1227, 1370) and VIEW.match(sql):
        return TO_VIEW
    if code in UNPARSED and UNREAD.search(message):
        return Failure(Conflict)
    if code == NO_SAVEPOINT and "roost_joined" in message:
        return GONE
    if code == 1146 and PRIVATE.search(message):
        return Failure(Missing, more=MAKES)
    if code == 1142 and HIDDEN.search(message):
        return Failure(Missing, more=RIGHTS)
    if code == 0 and kind == "InterfaceError":  # the driver itself: the connection was closed
        return Failure(ConnectionLost)
    if found := FAILURES.get(str(code)):
        return found
    # Any other number means a refused statement, since a trigger's author may choose any. Numbers below 1000 concern
    # the server's files, those from 2000 on the driver.
    refused = kind in ("DataError", "IntegrityError", "ProgrammingError")
    return REFUSED if refused or 1000 <= code < 2000 or code >= 3000 else FAILED
