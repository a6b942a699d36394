"""Statements on connections to MariaDB and MySQL, apart from the plans' own, and the session settings they depend on.

A store's own connections set them when they connect, and again with every BEGIN, since a pooler may run the next
transaction in another session. On a connection of the application nothing is changed. There each statement brings the
settings that it needs (SET STATEMENT, MariaDB only); settings that cannot be set this way are checked before the first
call of a session, on MySQL before every call. `Invalid` names the setting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from roost.dialects import MARIADB, MYSQL, Dialect
from roost.dialects.dialect import Row
from roost.dialects.mariadb import hexadecimal, written
from roost.errors import Invalid

# A value that does not fit is an error, and so is a table that would be of another engine.
SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
# A text of a batch has about MOST_BYTES of values, as literals at most twice as long, and names and numbers besides.
LEAST_PACKET = 4 * 2**20
NO_LIMIT = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a session.

    needed: the value that Roost needs, as SQL; "" where the driver or the transaction sees to it.
    caller: what is done on a connection of the application's; None: MariaDB has no such setting.
        harmless: no statement of Roost's there depends on it
        statement: each statement says it for itself
        refused: another value is refused
        theirs: it is the application's own limit, and an error says so
    on_mysql: the same where the server is MySQL.
    """

    name: str
    needed: str
    caller: str | None
    on_mysql: str | None = "harmless"

    def on(self, dialect: Dialect) -> str | None:
        """Return what is done on a connection of the application's to a server of this kind."""
        return self.caller if dialect is MARIADB else self.on_mysql


# Literals are the same in every sql_mode (`dialects/mariadb.py`), as a text is parsed in the mode before its SET.
# Each BEGIN sets isolation and lock waits (`statements.py`). Times are written and read as UTC without a
# zone, so time_zone is harmless; names are in lower case, so lower_case_table_names is.
SETTINGS = (
    Setting("sql_mode", f"'{SQL_MODE}'", "statement"),
    Setting("sql_select_limit", str(NO_LIMIT), "statement", "refused"),  # cuts every SELECT
    Setting("sql_safe_updates", "0", "statement", "refused"),  # refuses what uses no key (1175)
    Setting("sql_big_selects", "1", "statement"),  # refuses what may read much (1104)
    Setting("sql_auto_is_null", "0", "statement"),  # id IS NULL finds the row inserted last
    Setting("max_sort_length", "4096", "statement"),  # bytes that ORDER BY looks at: a key has up to 3,072
    Setting("group_concat_max_len", str(2**24), "harmless"),  # cuts what set forms gather, which no joined call has
    Setting("sql_quote_show_create", "1", "statement"),  # triggers that are made anew
    Setting("timestamp", "0", "statement", "theirs"),  # what the session takes for the present moment
    Setting("completion_type", "'NO_CHAIN'", "harmless"),  # what COMMIT does beside it: there is none of Roost's
    Setting("max_statement_time", "0", "theirs", None),
    Setting("max_execution_time", "0", None, "theirs"),
    Setting("character_set_client", "", "refused", "refused"),
    Setting("character_set_connection", "", "refused", "refused"),
    Setting("character_set_results", "", "refused", "refused"),
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


_AT_EACH = ", ".join(f"{each.name} = {each.needed}" for each in SETTINGS if each.caller == "statement")


def joined_text(dialect: Dialect, sql: str, row: Row) -> str:
    """Return a statement as it goes out on a connection of the application's.

    Its character sets are looked at once on MariaDB, and `SET NAMES` may change them: then no text may be taken for
    another.
    """
    text = sql % tuple([_in_ascii(value) for value in row]) if row else sql
    return f"SET STATEMENT {_AT_EACH} FOR {text}" if dialect is MARIADB else text


def _in_ascii(value: Any) -> str:
    return hexadecimal(value) if type(value) is str and not value.isascii() else written(value)


def looked_at(dialect: Dialect) -> list[Setting]:
    """Return the settings of a connection of the application's that are looked at."""
    return [each for each in SETTINGS if each.on(dialect) == "refused"]


# The number of the session that was looked at last, and whether it is one of Galera's, by the driver's connection.
_seen: WeakKeyDictionary[Any, tuple[int, bool]] = WeakKeyDictionary()
# There are servers without such a variable. A compound statement would tell faster, but not in sql_mode=ORACLE.
IS_GALERA = "(SELECT VARIABLE_VALUE FROM information_schema.SESSION_VARIABLES WHERE VARIABLE_NAME = 'WSREP_ON')"


def question(raw: Any, dialect: Dialect) -> str:
    """Return what asks a connection of the application's for its settings; "" where that has been done.

    On MariaDB once for each session: what decides about the rows each statement says for itself.
    """
    asked = [f"@@SESSION.{each.name}" for each in looked_at(dialect)]
    if dialect is MARIADB:
        seen = _seen.get(raw)
        if seen is not None and seen[0] == raw.thread_id():
            return ""
        asked.append(IS_GALERA)
    return f"SELECT {', '.join(asked)}"


def is_galera(raw: Any) -> bool:
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


# The name of the lock on creating and altering structures. MySQL accepts 64 characters.
CREATE_LOCK = "LEFT(CONCAT('roost ', DATABASE()), 64)"

# READ COMMITTED whatever the server's default: what a write depends on is read by locking reads.
BEGIN = """\
SET SESSION {own}, innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {metadata};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION"""
READ_SETTINGS = """\
SET SESSION {own}, lock_wait_timeout = {metadata};
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"""
BEGIN_READ = "START TRANSACTION READ ONLY"  # one snapshot, from its first row on: a lock on the table is older

# Of what is said outside of transactions. The servers' defaults are 50 seconds, and a day for a table's lock.
WAITS = "innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
MOST_SECONDS = 31_536_000  # that lock_wait_timeout takes
SNAPSHOT = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"  # of a query that is no transaction

# One operation by itself, which waits for nobody's lock: in a compound statement no limit below a second holds.
ASK = f"SET STATEMENT sql_select_limit = {NO_LIMIT}, sql_big_selects = 1, lock_wait_timeout = 0 FOR "
ALONE = """\
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR BEGIN NOT ATOMIC
DECLARE `the count` BIGINT;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION;
{work};
INSERT INTO roost_writers (writer, batch, at) VALUES (%s, %s + {answer}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch < VALUES(batch), VALUES(batch), NULL), at = VALUES(at){returning};
COMMIT; END"""

# Writes the number that identifies a batch; in the same round trip as BEGIN. A number that is not larger than the last
# one is refused: a text that reaches the server after its outcome was looked up must not be executed.
NOTE = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (X'{writer}', {batch}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch < {batch}, {batch}, NULL), at = UTC_TIMESTAMP()"""
FORGET = "DELETE FROM roost_writers WHERE writer = X'{writer}'"
LAST_BATCH = "SELECT batch FROM roost_writers WHERE writer = X'{writer}' FOR UPDATE"
# If the batch was not committed, takes the last number before the next batch's, so that a late text is refused. If it
# was, the row changes all the same: only the COMMIT of a change waits for a replica (semi-synchronous replication), and
# a replica that has this change has the batch.
TAKE_LAST = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (X'{writer}', {last}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch BETWEEN {batch} AND {last}, batch, {last}),
    at = IF(at = UTC_TIMESTAMP(), at - INTERVAL 1 SECOND, UTC_TIMESTAMP())"""
OLD_WRITERS = """\
SELECT writer FROM roost_writers WHERE at < UTC_TIMESTAMP() - INTERVAL 1 DAY LIMIT 100 FOR UPDATE SKIP LOCKED"""
SHORT_WAIT = "SET SESSION innodb_lock_wait_timeout = 1"  # for what is tried again
NO_WAIT = "SET SESSION innodb_lock_wait_timeout = 0"  # the same, which MySQL does not have
# On another node of Galera than before: it waits until it has what was committed on the others.
GALERA_WAITS = "SET SESSION wsrep_sync_wait = {}"
CATCHING_UP = 7
BEGINNING = 1  # START TRANSACTION waits
# Refused (1047) by a node that is not primary, or takes no queries: SET and SHOW are not, nor what reads no table. A
# node that answers outside of the primary component (wsrep_dirty_reads) answers what was there when it left.
GALERA_READY = f"""\
SET SESSION wsrep_dirty_reads = 0;
{GALERA_WAITS};
SELECT 1 FROM (SELECT 1) AS something"""

# A statement that takes locks may run for `lock_wait`, and for what it may need by itself (measured: 20 µs per row).
# One that is over then may have waited for a lock, or for a slow disk. So the batch is run once more, and waits for no
# lock at all: innodb_lock_wait_timeout has whole seconds only, but 0 tells exactly whether somebody holds one.
SECONDS_PER_VALUE = 0.0001
BYTES_PER_VALUE = 16  # of a text, which may have many rows as JSON
LIMITED = "SET STATEMENT max_statement_time = {seconds:.3f} FOR "
UNBLOCKED = """\
SET STATEMENT max_statement_time = {seconds:.3f}, innodb_lock_wait_timeout = {wait}, lock_wait_timeout = 0 FOR """
# What skips locked rows waits for none, and gets 1: with 0, SKIP LOCKED rolls the whole transaction back (1180).
SKIPS = re.compile(r"\ACALL \w+_sweep\(| SKIP LOCKED\Z")
TOO_LONG = 1969
LEAST_SECONDS = 1.0  # that a statement which waits for no lock has, whatever the store's timeout


# Comments that are executed: the first by MariaDB alone, the second by MySQL from 8.0.20 on. The version that a
# connection tells may be a proxy's; this is answered by the server behind it.
WHICH = """\
SELECT 0 /*M! + 2 */ /*!80020 + 1 */, @@max_allowed_packet, CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@server_id),
  @@read_only, CONNECTION_ID()"""
OF_SESSION = """\
SELECT @@character_set_client, @@character_set_connection, @@character_set_results, DATABASE()"""  # as the URL has it
GALERA = "SHOW SESSION VARIABLES LIKE 'wsrep_on'"  # there is none in MySQL
NODE = "SHOW STATUS LIKE 'wsrep_gcomm_uuid'"  # of Galera; another one after each start


@lru_cache
def alone(work: str, answer: str, answers: bool) -> str:
    return ALONE.format(work=work, answer=answer, returning=" RETURNING batch" if answers else "")


def follows(applied: str, position: str, server: str) -> bool:
    """Return whether a replica that has applied these GTIDs has no transaction that the primary lacks.

    position, server: the primary's GTIDs at some time, and its server id, which all later transactions have.

    A replica that was not rebuilt after a failover may be ahead of the primary, with transactions that were lost:
    waiting for a GTID compares sequence numbers only, whichever server assigned them.

    >>> follows("0-2-20", "0-1-17", "2"), follows("0-1-17", "0-1-17", "2"), follows("0-1-20", "0-1-17", "2")
    (True, True, False)
    """
    known = _by_domain(position)
    for domain, (origin, number) in _by_domain(applied).items():
        origin_then, number_then = known.get(domain, (origin, number))
        if number > number_then and origin != server:
            return False
        if number == number_then and origin != origin_then:
            return False
    return True


def _by_domain(gtids: str) -> dict[str, tuple[str, int]]:
    found = {}
    for each in gtids.split(",") if gtids else ():
        domain, origin, number = each.strip().split("-")
        found[domain] = origin, int(number)
    return found
