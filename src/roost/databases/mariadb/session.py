"""The session settings of MariaDB and MySQL that Roost's statements depend on, in one table.

A store's own connections set them when they connect, and again with every BEGIN, since a pooler may run the next
transaction in another session. On a connection of the application nothing is changed. There each statement brings the
settings that it needs (SET STATEMENT, MariaDB only); settings that cannot be set this way are checked before the first
call of a session, on MySQL before every call. `Invalid` names the setting.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from roost.dialects import MARIADB, MYSQL, Dialect
from roost.dialects.dialect import Row
from roost.dialects.mariadb import written
from roost.errors import Invalid

# A value that does not fit is an error, and so is a table that would be of another engine.
SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
# A text of a batch has about MOST_BYTES of values, as literals at most twice as long, and names and numbers besides.
LEAST_PACKET = 4 * 2**20
NO_LIMIT = 2**64 - 1


class Caller(enum.Enum):
    """How a setting is handled on a connection of the application."""

    HARMLESS = "no statement of Roost's there depends on it"
    STATEMENT = "each statement says it for itself"
    REFUSED = "another value is refused"
    THEIRS = "it is the application's own limit, and an error says so"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a session.

    needed: the value that Roost needs, as SQL; "" where the driver or the transaction sees to it.
    caller: what is done on a connection of the application's; None: MariaDB has no such setting.
    on_mysql: the same where the server is MySQL.
    """

    name: str
    needed: str
    caller: Caller | None
    on_mysql: Caller | None = Caller.HARMLESS

    def on(self, dialect: Dialect) -> Caller | None:
        """Return what is done on a connection of the application's to a server of this kind."""
        return self.caller if dialect is MARIADB else self.on_mysql


# Literals are the same in every sql_mode (`dialects/mariadb.py`), as a text is parsed in the mode before its SET.
# Each BEGIN sets isolation and lock waits (`statements.py`). Times are written and read as UTC without a
# zone, so time_zone is harmless; names are in lower case, so lower_case_table_names is.
SETTINGS = (
    Setting("sql_mode", f"'{SQL_MODE}'", Caller.STATEMENT),
    Setting("sql_select_limit", str(NO_LIMIT), Caller.STATEMENT, Caller.REFUSED),  # cuts every SELECT
    Setting("sql_safe_updates", "0", Caller.STATEMENT, Caller.REFUSED),  # refuses what uses no key (1175)
    Setting("sql_big_selects", "1", Caller.STATEMENT),  # refuses what may read much (1104)
    Setting("sql_auto_is_null", "0", Caller.STATEMENT),  # id IS NULL finds the row inserted last
    Setting("max_sort_length", "4096", Caller.STATEMENT),  # bytes that ORDER BY looks at: a key has up to 3,072
    Setting("sql_quote_show_create", "1", Caller.STATEMENT),  # triggers that are made anew
    Setting("timestamp", "0", Caller.STATEMENT, Caller.THEIRS),  # what the session takes for the present moment
    Setting("completion_type", "'NO_CHAIN'", Caller.HARMLESS),  # what COMMIT does beside it: there is none of Roost's
    Setting("max_statement_time", "0", Caller.THEIRS, None),
    Setting("max_execution_time", "0", None, Caller.THEIRS),
    Setting("character_set_client", "", Caller.REFUSED, Caller.REFUSED),
    Setting("character_set_connection", "", Caller.REFUSED, Caller.REFUSED),
    Setting("character_set_results", "", Caller.REFUSED, Caller.REFUSED),
)
UTF8 = "utf8mb4"


@cache
def own(dialect_name: str, seconds: float | None = None) -> str:
    """Return what follows SET SESSION on Roost's own connections.

    seconds: that a query may take.
    """
    dialect = MARIADB if dialect_name == MARIADB.name else MYSQL
    text = ", ".join(f"{each.name} = {each.needed}" for each in SETTINGS if each.needed and each.on(dialect))
    if seconds is None:
        return text
    seconds = max(0.001, seconds)  # 0 is no limit
    limit = (
        f"max_statement_time = {seconds:.3f}" if dialect is MARIADB else f"max_execution_time = {seconds * 1000:.0f}"
    )
    return f"{text}, {limit}"


_AT_EACH = ", ".join(f"{each.name} = {each.needed}" for each in SETTINGS if each.caller is Caller.STATEMENT)


def joined_text(dialect: Dialect, sql: str, row: Row) -> str:
    """Return a statement as it goes out on a connection of the application's."""
    text = sql % tuple([written(value) for value in row]) if row else sql
    return f"SET STATEMENT {_AT_EACH} FOR {text}" if dialect is MARIADB else text


def looked_at(dialect: Dialect) -> list[Setting]:
    """Return the settings of a connection of the application's that are looked at."""
    return [each for each in SETTINGS if each.on(dialect) is Caller.REFUSED]


# The number of the session that was looked at last, and whether it is one of Galera's, by the driver's connection.
_seen: WeakKeyDictionary[Any, tuple[int, bool]] = WeakKeyDictionary()
# There are servers without such a variable. A compound statement would tell faster, but not in sql_mode=ORACLE.
GALERA = "(SELECT VARIABLE_VALUE FROM information_schema.SESSION_VARIABLES WHERE VARIABLE_NAME = 'WSREP_ON')"


def question(raw: Any, dialect: Dialect) -> str:
    """Return what asks a connection of the application's for its settings; "" where that has been done.

    On MariaDB once for each session: what decides about the rows each statement says for itself.
    """
    asked = [f"@@SESSION.{each.name}" for each in looked_at(dialect)]
    if dialect is MARIADB:
        seen = _seen.get(raw)
        if seen is not None and seen[0] == raw.thread_id():
            return ""
        asked.append(GALERA)
    return f"SELECT {', '.join(asked)}"


def is_galera(raw: Any) -> bool:
    """Return whether a session that was looked at is one of Galera's."""
    return _seen[raw][1]


def judge(raw: Any, dialect: Dialect, values: Sequence[Any], where: str) -> None:
    """Raise `Invalid` for the first setting in the answer to `question` that has another value than Roost needs."""
    settings = looked_at(dialect)
    for setting, value in zip(settings, values[: len(settings)], strict=True):
        needed = setting.needed or UTF8
        if str(value) != needed:
            why = "" if setting.needed else ", which alone carries every text; connect with charset='utf8mb4'"
            raise Invalid(f"{where}: {setting.name} of the connection is {value}, and has to be {needed}{why}")
    _seen[raw] = raw.thread_id(), values[len(settings) :] in (("ON",), ["ON"])


def too_small(packet: int) -> str:
    """Return what is wrong with a server's max_allowed_packet; "" for nothing."""
    if packet >= LEAST_PACKET:
        return ""
    return (
        f"max_allowed_packet of the server is {packet:,} bytes, and has to be {LEAST_PACKET:,} at least: set it in the "
        "server's configuration, or by SET GLOBAL"
    )
