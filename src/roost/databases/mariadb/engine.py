"""MariaDB and MySQL 8, by PyMySQL: connections, and errors by their numbers.

Every transaction says how it is to run, so no state of a session has to outlive it. A batch is known by its number in
the row of its writer: when the connection is lost during COMMIT, that row tells on another one what became of it.

Which of the two a server is, is said in the URL: plans are made before there is a connection.
"""

from __future__ import annotations

import logging
import math
import re
from functools import lru_cache
from random import Random
from typing import Any

import pymysql
import pymysql.converters
import pymysql.cursors
from pymysql.constants import CLIENT

from roost.databases.engine import Trace, Wait
from roost.databases.mariadb.address import arguments, read
from roost.databases.mariadb.errors import INTERRUPTED, translate
from roost.databases.mariadb.rows import Reading
from roost.databases.mariadb.session import NO_LIMIT, own, too_small
from roost.databases.server import MOST_PREPARED, PAUSE, READS, USES, ServerConnection
from roost.dialects import MARIADB, MYSQL, Control, Dialect
from roost.dialects.dialect import MOST_ANSWER, Exchange, Row
from roost.dialects.mariadb import written
from roost.errors import (
    Busy,
    Conflict,
    ConnectionLost,
    DatabaseError,
    Error,
    Invalid,
    Missing,
    StatementFailed,
)
from roost.structures.plan import Careful

log = logging.getLogger("roost")

__all__ = ["CREATE_LOCK", "MariaDBEngine", "arguments", "mistaken", "translate"]

FAILURES, CONVERSIONS, PlainCursor = pymysql.MySQLError, pymysql.converters.conversions, pymysql.cursors.Cursor

NO_SAVEPOINT = 1305
IN_TRANSACTION, AUTOCOMMIT = 1, 2  # flags of the server's status, which comes with every answer but an error
NOT_PREPARED = 1243
CROWDED = (1203, 1226)  # to somebody who connects: the account has all the connections that it may have

# The name of the lock of those who make or change structures. MySQL takes 64 characters.
CREATE_LOCK = "LEFT(CONCAT('roost ', DATABASE()), 64)"

# READ COMMITTED whatever the server's default: what a write depends on is read by locking reads.
BEGIN = """\
SET SESSION {own}, innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {metadata};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION"""
BEGIN_READ = """\
SET SESSION {own}, lock_wait_timeout = {metadata};
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"""  # one snapshot

SNAPSHOT = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"  # of a query that is no transaction

# One operation by itself, which waits for nobody's lock: in a compound statement no limit below a second holds.
ASK = f"SET STATEMENT sql_select_limit = {NO_LIMIT}, sql_big_selects = 1, lock_wait_timeout = 0 FOR "
ALONE = """\
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR BEGIN NOT ATOMIC
DECLARE `the sequence`, `the count`, `the oldest`, `the moment`, `the debt` BIGINT;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION;
{work};
INSERT INTO roost_writers (writer, batch, at) VALUES (%s, %s + {answer}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch < VALUES(batch), VALUES(batch), NULL), at = VALUES(at){returning};
COMMIT; END"""

# What a batch is known by; in the same exchange as BEGIN. A number that is not larger than the last one is refused: a
# text that reaches the server after its outcome was looked up must not be carried out.
NOTE = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (X'{writer}', {batch}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch < {batch}, {batch}, NULL), at = UTC_TIMESTAMP()"""
FORGET = "DELETE FROM roost_writers WHERE writer = X'{writer}'"
LAST_BATCH = "SELECT batch FROM roost_writers WHERE writer = X'{writer}' FOR UPDATE"
# Where the batch is not there, takes the last number before the next one's, so that it cannot come late.
TAKE_LAST = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (X'{writer}', {last}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch BETWEEN {batch} AND {last}, batch, {last})"""
OLD_WRITERS = """\
SELECT writer FROM roost_writers WHERE at < UTC_TIMESTAMP() - INTERVAL 1 DAY LIMIT 100 FOR UPDATE SKIP LOCKED"""
GALERA_CATCHES_UP = "SET SESSION wsrep_sync_wait = 7"  # another node answers only when it has what was committed

# A statement that takes locks may run for `lock_wait`, and for what it may need by itself (measured: 20 µs per row).
# One that is over then may have waited for a lock, or for a slow disk. So it is run once more, and waits for no lock at
# all: innodb_lock_wait_timeout has whole seconds only, but 0 tells exactly whether somebody holds one.
SECONDS_PER_VALUE = 0.0001
LIMITED = "SET STATEMENT max_statement_time = {seconds:.3f} FOR "
UNBLOCKED = "SET STATEMENT max_statement_time = {seconds:.3f}, innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR "
LIMIT = re.compile(r"SET STATEMENT max_statement_time = [\d.]+ FOR ")
TOO_LONG = 1969
LEAST_SECONDS = 1.0  # that a statement which waits for no lock has, whatever the store's timeout


# Comments that are executed: the first by MariaDB alone, the second by MySQL from 8.0.20 on. The version that a
# connection tells may be a proxy's; this is answered by the server behind it.
WHICH = "SELECT 0 /*M! + 2 */ /*!80020 + 1 */, @@max_allowed_packet"
GALERA = "SHOW SESSION VARIABLES LIKE 'wsrep_on'"  # there is none in MySQL


@lru_cache
def _alone(work: str, answer: str, answers: bool) -> str:
    return ALONE.format(work=work, answer=answer, returning=" RETURNING batch" if answers else "")


def number_of(error: Error) -> int | None:
    """Return the number of the server's error that one of ours was made of."""
    cause = error.__cause__
    return cause.args[0] if cause is not None and cause.args and isinstance(cause.args[0], int) else None


def _literal(value: Any) -> str:
    return str(value) if type(value) is int else written(value)


class MariaDBEngine:
    """One database of MariaDB, or of MySQL 8."""

    memory = False
    file: str | None = None
    durability: str | None = None
    reached = False

    def __init__(self, url: str, *, timeout: float, trace: Trace | None, random: Random) -> None:
        self._arguments, self.place, self.dialect, self.prepares = read(url)
        self.timeout = timeout
        self.trace = trace
        self.random = random

    def connect(self, wait: Wait, *, writes: bool = True, create: bool = False) -> MariaDBConnection:
        """Open a connection."""
        return MariaDBConnection(self, wait)

    def open(self, timeout: float) -> Reading:
        """Return a new connection of the driver, with `timeout` as its limit too.

        `ConnectionLost` where another attempt may succeed; `Invalid` when the server is not what the URL says.
        """
        limit = max(1, math.ceil(timeout))
        limit = min(limit, self._arguments.get("connect_timeout", limit))
        options = {**self._arguments, "connect_timeout": limit, "read_timeout": limit, "write_timeout": limit}
        try:
            raw = Reading(**options, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)
        except pymysql.MySQLError as error:
            found = translate(error, self.place)
            raise (ConnectionLost(str(found)) if error.args[0] in CROWDED else found) from error
        except RuntimeError as error:  # the driver's, where a package is missing
            raise Invalid(f"{self.place}: {error}; or connect with TLS (ssl_mode=REQUIRED)") from error
        try:
            self._prepare(raw)
        except BaseException:
            raw.close()
            raise
        return raw

    def answers(self, timeout: float) -> bool:
        """Return whether the server answers somebody who connects, be it with a refusal."""
        try:
            self.open(timeout).close()
        except Error as error:
            told = error.__cause__
            return isinstance(told, pymysql.MySQLError) and told.args[0] in range(1000, 2000)  # the server's own
        return True

    def _prepare(self, raw: Reading) -> None:
        # What the server is, and what the session has to be for what is asked outside of transactions; one exchange.
        version: str = raw.get_server_info()  # type: ignore[no-untyped-call]
        text = f"{WHICH};\n{GALERA};\nSET SESSION {own(self.dialect.name)};\n{SNAPSHOT}"
        try:
            with raw.cursor() as cursor:
                cursor.execute(text)
                ((which, packet),) = cursor.fetchall()
                if wrong := mistaken(self.dialect, which, version) or too_small(packet):
                    raise Invalid(f"{self.place}: {wrong}")
                raw.packet = packet
                cursor.nextset()
                raw.galera = cursor.fetchall() == (("wsrep_on", "ON"),)
                cursor.nextset()
                cursor.nextset()
        except pymysql.MySQLError as error:
            raise translate(error, self.place, text) from error


def mistaken(dialect: Dialect, which: int, version: str) -> str:
    """Return what is wrong with the dialect of a URL for a server that answers so to `WHICH`; "" for nothing.

    >>> mistaken(MARIADB, 1, "8.0.36")
    'the server is no MariaDB (8.0.36); for MySQL 8 add ?dialect=mysql8 to the URL'
    >>> mistaken(MYSQL, 2, "11.4.2-MariaDB")
    'the server is a MariaDB (11.4.2-MariaDB); leave out ?dialect=mysql8'
    """
    is_mariadb, is_new = bool(which & 2), bool(which & 1)
    if dialect is MARIADB:
        return "" if is_mariadb else f"the server is no MariaDB ({version}); for MySQL 8 add ?dialect=mysql8 to the URL"
    if is_mariadb:
        return f"the server is a MariaDB ({version}); leave out ?dialect=mysql8"
    return "" if is_new else f"the server is too old ({version}); Roost needs MySQL 8.0.20"


class MariaDBConnection(ServerConnection):
    """One connection."""

    failures = FAILURES
    raw: Reading
    engine: MariaDBEngine

    def __init__(self, engine: MariaDBEngine, wait: Wait) -> None:
        self._names: dict[str, str] = {}  # of what is prepared
        self._uses: dict[str, int] = {}  # how often a statement was asked for that is not
        self._prepared = 0  # numbers them
        super().__init__(engine, wait)
        self._runs_on: int | None = None  # the server's number of the connection that the batch runs on
        self._open = False
        self._locked = False
        self._limit: float | None = None  # seconds for a statement, until all locks are taken

    @property
    def session(self) -> int | None:
        """The number by which the server knows it."""
        number: int = self.raw.thread_id()  # type: ignore[no-untyped-call]
        return number

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._open

    def obey(self, word: Control) -> Any:
        """Do what a control word means."""
        match word:
            case Control.LOCKED:
                self._limit = None
            case Control.LOCK_CATALOG:  # tables are made outside of transactions: the lock is the session's
                self.say(f"SELECT GET_LOCK({CREATE_LOCK}, {round(self.wait.left)})")
                if self._cursor.fetchall() != ((1,),):
                    raise Busy(f"{self.engine.place}: another process is making or changing structures")
                self._locked = True
            case _:
                return super().obey(word)
        return None

    def begin(self, word: Control) -> None:
        """Begin, all in one exchange."""
        self._limit = None
        if word in READS:
            sets = own(self.engine.dialect.name, self.wait.work)
            self._begin = [BEGIN_READ.format(own=sets, metadata=self._metadata_wait(word))]
            return
        # Whole seconds: only a limit for statements can be finer.
        seconds = self.lock_wait(word)
        wait = max(1, math.ceil(seconds))
        text = BEGIN.format(own=own(self.engine.dialect.name), wait=wait, metadata=wait)
        if word is Control.BEGIN_ALONE:
            self.say_all(f"COMMIT;\n{text}" if self._open else text)  # a second one, after a CREATE or ALTER
            self._open = True
            return
        former = self._next_batch()
        self._runs_on = self.session
        note = NOTE.format(writer=self._writer, batch=self._batch)
        if self._noted:
            self._begin = [text, FORGET.format(writer=former), note] if former else [text, note]
        else:
            self.say_all(text)
            self._open = True
            try:
                self._forget_old()
                self.say(note)
                self._noted = True
            except Missing:
                pass  # nothing was created yet: the plans tell better what is missing
        self._limit = seconds

    def _metadata_wait(self, word: Control) -> int:
        # For a table that somebody has locked, in seconds. MariaDB can be told not to wait; then it is asked again.
        least = 1 if self.engine.dialect is MYSQL else 0
        return max(least, math.floor(self.lock_wait(word)))

    def limit(self, seconds: float) -> None:
        """Let no wait for the server last longer. In whole seconds, so that the driver seldom has to set it anew."""
        self.raw.patience = self.waits_on if self.wait.lasts else None
        self.raw.limit(math.ceil(seconds))

    def measure(self, text: str) -> None:
        """Raise `Invalid` for a text that the server would drop the connection for."""
        most = self.raw.packet
        if 4 * len(text) > most and (size := len(text.encode())) >= most:
            raise Invalid(
                f"{self.engine.place}: a statement has {size:,} bytes, and max_allowed_packet of the server is {most:,}"
            )

    def begins(self) -> None:
        """Note that a transaction will be open."""
        self._open = True

    def ended(self) -> None:
        """Note that no transaction is open any more."""
        self._open = False

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Write the parameters into the text, as in every sql_mode they mean the same."""
        return self.written(sql, row), None

    def ask(self, sql: str, row: Row, _: bool) -> list[Row]:
        """Run a query in a snapshot of its own, outside of any transaction."""
        if self._trace is not None:
            self._trace(sql, row)
        rows = self._at_once(ASK + sql, row)[0]
        if self.raw.server_status & (IN_TRANSACTION | AUTOCOMMIT) != AUTOCOMMIT:  # a pooler's session: an old snapshot
            self._open = True
            raise Careful
        return rows

    def exchanged(self, exchange: Exchange) -> int:
        """Begin, do the work, and commit: one text. Return the number that was written, where there is an answer.

        It is a compound statement, since the driver needs as long for an answer as the server.
        """
        if self.raw.galera:
            raise Careful  # where a transaction may end between two of its statements, the others would be done alone
        self._runs_on = self.session
        work, row, answer, _, answers, *_ = exchange
        if self._trace is not None:
            self._trace(work, row)
            self._trace("COMMIT", ())
        self._open = True
        try:
            rows = self._at_once(_alone(work, answer, answers), (*row, bytes.fromhex(self._writer), self._batch))
        except Busy as error:
            if number_of(error) in INTERRUPTED:  # its COMMIT may have been done: that is looked up
                raise ConnectionLost(str(error)) from error.__cause__
            raise
        self._open = False
        number: int = rows[0][0][0] if answers else self._batch
        return number

    def _at_once(self, sql: str, row: Row) -> list[list[Row]]:
        self._limit = None
        name = self._names.get(sql) or self._prepare(sql, len(row))
        text = f"EXECUTE {name} USING {', '.join(map(_literal, row))}" if name else self._text(sql, row)
        self.measure(text)
        self._bound(len(text))
        try:
            return self.raw.results(text)
        except FAILURES as error:
            raise self.failed(error, sql) from error

    def _prepare(self, sql: str, parameters: int) -> str:
        # To read such a text takes the server as long as to do what it says. Returns "" where it is sent as it is.
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        if uses < USES or not self.engine.prepares:
            if len(self._uses) > MOST_PREPARED:
                self._uses.clear()
            return ""
        del self._uses[sql]
        said = []
        if len(self._names) >= MOST_PREPARED:
            said.append(f"DEALLOCATE PREPARE {self._names.pop(next(iter(self._names)))}")
        self._prepared += 1
        name = f"roost_{self._id}_{self._prepared}"
        said.append(f"PREPARE {name} FROM {self.engine.dialect.literal(sql % (('?',) * parameters))}")
        try:
            self._bound(len(sql))
            self.raw.results(";\n".join(said))
        except FAILURES as error:
            found = self.failed(error, sql)
            if isinstance(found, ConnectionLost):
                raise found from error
            return ""  # such as one too many on the server: it is asked for again after as many uses
        self._names[sql] = name
        return name

    def written(self, sql: str, row: Row) -> str:
        """Return a statement with its parameters; while locks are taken, it runs for no longer than the limit.

        MySQL has none for a statement that writes: there a lock is waited for in whole seconds, and who cannot wait
        so long asks for it with NOWAIT before.
        """
        if row:
            sql %= tuple(map(_literal, row))
        if self._limit is None or self.engine.dialect is not MARIADB:
            return sql
        if self._limit <= 0:
            return f"{self._unblocked()}{sql}"
        return LIMITED.format(seconds=max(0.001, self._limit + len(row) * SECONDS_PER_VALUE)) + sql  # 0 is no limit

    def _unblocked(self) -> str:
        return UNBLOCKED.format(seconds=max(LEAST_SECONDS, self.engine.timeout))

    def again(self, error: Exception, text: str) -> str | None:
        """Return how a statement is said that had its time: without waiting for a lock, it is told whether it did."""
        limit = LIMIT.match(text) if error.args[:1] == (TOO_LONG,) else None
        return None if limit is None else self._unblocked() + text[limit.end() :]

    def commit(self) -> None:
        """Commit."""
        self._limit = None
        self.say("COMMIT")
        self._open = False
        self._unlock()

    def roll_back(self) -> None:
        """Roll back what is open."""
        self._limit = None
        if self._open:
            self._open = False
            self.say("ROLLBACK")
        self._unlock()

    def _unlock(self) -> None:
        if self._locked:
            self._locked = False
            self.say(f"SELECT RELEASE_LOCK({CREATE_LOCK})")

    def end_lost(self) -> None:
        """End the transaction of the connection before this one, where the server has not noticed that it was lost."""
        if self._noted:
            try:
                self.say(f"{LAST_BATCH.format(writer=self._writer)} NOWAIT")
                self._cursor.fetchall()
            except Busy:
                self._end()

    def _end(self) -> None:
        # Only while it holds the writer's row: after a restart its number may be somebody else's.
        log.info("ending connection %s, which was lost", self._runs_on)
        try:
            self.say(f"KILL {self._runs_on}")
        except StatementFailed:
            pass  # it has just ended by itself

    def look_up(self, wait: Wait) -> bool | None:
        """Read the writer's row, under its lock: a transaction that is not yet over still has it."""
        if not self._noted:
            return None
        try:
            self.say(GALERA_CATCHES_UP)
        except DatabaseError as error:
            if isinstance(error, ConnectionLost):
                raise
            log.debug("this server has no wsrep_sync_wait, so it is no node of Galera: %s", error)
        ended = False
        while True:
            try:
                self.say("SET SESSION innodb_lock_wait_timeout = 1")
                self.say(TAKE_LAST.format(writer=self._writer, batch=self._batch, last=self._batch + MOST_ANSWER))
                self.say(LAST_BATCH.format(writer=self._writer))
            except Busy:
                if wait.left <= 0:
                    return None
            else:
                ((found,),) = self._cursor.fetchall()
                return self._is_committed(found)
            if not ended:  # the server has not noticed that its client is gone
                ended = True
                self._end()

    def reconnect(self, wait: Wait) -> None:
        """Connect anew; what was open, and locked, is gone with the old connection."""
        self._open = self._locked = False
        self._limit = None
        self._names.clear()
        super().reconnect(wait)

    def _forget_old(self) -> None:
        # Those of processes that were killed: each connection that writes removes some, with its first batch. Their
        # locks are kept until then: one that has been idle for a day may be about to write.
        self.say(OLD_WRITERS)
        old = self._cursor.fetchall()
        if old:
            self.say(f"DELETE FROM roost_writers WHERE writer IN ({', '.join(['%s'] * len(old))})", sum(old, ()))

    def failed(self, error: pymysql.MySQLError, sql: str) -> Error:
        """Return our error; note when the connection is lost."""
        if error.args[:1] == (NOT_PREPARED,):  # a pooler has given another session
            self._names.clear()
            return Conflict(f"{self.engine.place}: {error.args[1]}")
        found = translate(error, self.engine.place, sql)
        if not self.raw.open or isinstance(found, ConnectionLost):
            self.broken = True
            return ConnectionLost(str(found))
        return found

    def forget(self) -> None:
        """Remove the writer's row."""
        self.say(FORGET.format(writer=self._writer))

    def close_raw(self) -> None:
        """Close the driver's connection."""
        if self.raw.open:
            self.raw.limit(PAUSE)  # to say goodbye; a server that stands still does not hear it
            self.raw.close()
