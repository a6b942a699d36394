"""A connection to PostgreSQL, by psycopg 3.

No session state outlives a transaction, so a pooler may run each transaction in another session; behind a pooler no
statements are prepared, since they would be such state. A batch is identified by its number in its writer's row: if the
connection is lost during COMMIT, another connection reads that row to find out whether the batch was committed.

Rejected: `pg_xact_status` of the transaction's id. After a crash, a server reuses the id of a transaction that had
written nothing to disk; the COMMIT of the later transaction would be mistaken for that of the lost one.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
import uuid
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import psycopg

from roost.databases.engine import Wait
from roost.databases.postgresql.errors import translate
from roost.databases.postgresql.session import Limited, local
from roost.databases.replicas import ServerEngine
from roost.databases.server import PAUSE, READS, ServerConnection
from roost.dialects import POSTGRESQL, Control
from roost.dialects.dialect import MOST_ANSWER, Exchange, Row
from roost.dialects.postgresql import FOREIGN
from roost.errors import Busy, Conflict, ConnectionLost, Error, Invalid, Missing, ReadOnly, StatementFailed
from roost.structures.plan import Careful

# Values as literals that mean the same under every setting of a session: what has a backslash is written as E'…', so
# that it does not matter what one is in '…' (standard_conforming_strings). Nothing has a cast: it becomes what the
# parameter in its place is.


def literal(value: Any) -> str:
    """Return a value as a literal.

    >>> print(literal(7), literal("it's"), literal(["a", None, 'b"']), literal(b"\\0"))
    7 'it''s'  E'{"a",NULL,"b\\\\""}'  E'\\\\x00'
    """
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is list:
        return _array(value)
    if kind is bool:
        return "true" if value else "false"
    return _quoted(_text(value))


def parameter(value: Any) -> bytes | None:
    """Return a value as a parameter of a prepared statement, in the text format.

    >>> parameter(7), parameter("it's"), parameter(None), parameter(b"\\0")
    (b'7', b"it's", None, b'\\\\x00')
    """
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if value is None:
        return None
    if kind is bool:
        return b"t" if value else b"f"
    return _whole(_text(value)).encode()


def spelt_out(value: Any) -> str:
    """Return a value as a literal that does not depend on array_nulls either; an array with NULL needs a cast.

    >>> spelt_out(["a", None])
    "ARRAY['a', NULL]"
    """
    if type(value) is list and None in value:
        return f"ARRAY[{', '.join(map(literal, value))}]"
    return literal(value)


def filled_in(sql: str, row: Sequence[Any]) -> str:
    """Return a statement with its values in its text, which any driver can send without parameters.

    >>> filled_in("SELECT %s %% 2", (7,)), filled_in("SELECT 7 % 2", ())
    ('SELECT 7 % 2', 'SELECT 7 % 2')
    """
    return sql % tuple([spelt_out(value) for value in row]) if row else sql


def _quoted(text: str) -> str:
    return POSTGRESQL.literal(_whole(text))


def _whole(text: str) -> str:
    if "\0" in text:  # libpq would take the text up to there
        raise Invalid("PostgreSQL has no text with NUL in it")
    return text


def _text(value: Any) -> str:
    # As the server's input functions take it, whatever DateStyle is: years have four digits and come first.
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, dt.datetime):
        return _moment(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, float):
        return repr(float(value))  # the shortest text that gives the same number
    if isinstance(value, (int, Decimal, uuid.UUID)):
        return str(value)
    raise Invalid(f"{value!r} is of type {type(value).__name__}, which has no literal")


@lru_cache(256)
def _moment(value: dt.datetime) -> str:
    return value.isoformat(" ")  # a batch has one for all its rows


def _array(values: list[Any]) -> str:
    # Most are of one kind, and none needs a look at each value.
    kinds = {*map(type, values)}
    if kinds == {int}:
        return f"'{{{','.join(map(str, values))}}}'"
    if kinds == {dt.datetime}:
        return f"""'{{"{'","'.join(map(_moment, values))}"}}'"""
    if kinds == {str}:
        text = '"' + '","'.join(values) + '"'
        if "\\" not in text and text.count('"') == 2 * len(values):
            return _quoted(f"{{{text}}}")
    return _quoted(f"{{{','.join(map(_item, values))}}}")


def _item(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    return '"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


log = logging.getLogger("roost")

# READ COMMITTED whatever the database's default: what a write depends on is read by locking reads.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;\nSET LOCAL lock_timeout = {wait}{local}"
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # one snapshot
READ_SETTINGS = "SET {scope}lock_timeout = {wait}{local}"
NAMED = "/* roost {name} */ "  # the beginning of every text of a batch that writes, by which its session is found

# Writes the number that identifies a batch; in the same round trip as BEGIN. A number that is not larger than the last
# one is refused: a text that reaches the server after its outcome was looked up must not be executed.
NOTE = """\
INSERT INTO roost_writers AS w (writer, batch, at) VALUES (%s, %s, now())
  ON CONFLICT (writer) DO UPDATE
    SET batch = CASE WHEN w.batch < excluded.batch THEN excluded.batch END, at = excluded.at"""
# One operation by itself: what commits is the transaction of its text.
ALONE = """\
WITH {work}
INSERT INTO roost_writers AS w (writer, batch, at) SELECT %s::uuid, %s::bigint + {answer}, now(){source}
  ON CONFLICT (writer) DO UPDATE
    SET batch = CASE WHEN w.batch < excluded.batch THEN excluded.batch END, at = excluded.at
  RETURNING batch"""


@lru_cache
def alone(work: str, answer: str, source: str) -> str:
    return ALONE.format(work=work, answer=answer, source=source and f" {source}")


FORGET = "DELETE FROM roost_writers WHERE writer = '{writer}'"
FORGET_OLD = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = {wait};
DELETE FROM roost_writers WHERE writer IN (
  SELECT writer FROM roost_writers WHERE at < now() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED)"""
FOREIGN_WRITERS = FOREIGN.format(
    names="'roost_writers'",
    rows="r.relname BETWEEN 'roost_'::name AND 'roost_~'::name AND r.relnamespace = c.relnamespace"
    " AND right(r.relname::text, 5) = '_rows'",
)
# Waits for a transaction that has not ended: it holds the row, which may be uncommitted and not yet visible. If the
# batch was not committed, takes the last number before the next batch's, so that a late text is refused (`NOTE`).
LAST_BATCH = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = {wait};
INSERT INTO roost_writers AS w (writer, batch, at) VALUES ('{writer}', {last}, now())
  ON CONFLICT (writer) DO UPDATE
    SET batch = CASE WHEN w.batch BETWEEN {batch} AND {last} THEN w.batch ELSE {last} END, at = excluded.at
  RETURNING w.batch"""
END = """\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE starts_with(query, {mark}) AND state <> 'idle' AND pid <> pg_backend_pid()"""
# The position that a standby must have replayed, and its timeline: a standby that was not rewound after a failover may
# be ahead of the new primary, with transactions that were lost. It is where the next record goes: with
# synchronous_commit = off a COMMIT is answered before its record is flushed.
POSITION = """\
SELECT CASE WHEN NOT pg_is_in_recovery()
  THEN pg_current_wal_insert_lsn()::text || ' ' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END"""
# The last of the timelines is what the standby receives at the moment, for an account that may see it (pg_monitor).
REPLAYED = """\
SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn,
    {timeline} IN (c.timeline_id, r.min_recovery_end_timeline)
    OR EXISTS (SELECT 1 FROM pg_stat_wal_receiver w WHERE w.received_tli = {timeline})
  FROM pg_control_checkpoint() c, pg_control_recovery() r"""


CREATE_LOCK = 0x726F6F7374  # "roost": the advisory lock of those who make or change structures

FAILURES = psycopg.Error


class PostgreSQLConnection(ServerConnection):
    """One connection."""

    failures = FAILURES
    raw: Limited
    engine: Any

    def __init__(self, engine: ServerEngine, wait: Wait, follows: bool = False) -> None:
        self._forgotten = False  # whether the session has others prepared than it should
        self._lock_timeout = 1  # milliseconds, of the transaction that is begun
        self._settings = ""  # what the session was told for reading
        self._session_timeout = 0  # the same of the session, for what is a transaction by itself; 0: not set
        super().__init__(engine, wait, follows)
        self._name = NAMED.format(name=self.prepared.session)

    def _connect(self, wait: Wait) -> None:
        super()._connect(wait)
        self.prepared.names.clear()
        self._forgotten = False
        self._session_timeout = 0
        self._settings = ""

    @property
    def session(self) -> int | None:
        return self.raw.info.backend_pid

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    def obey(self, word: Control) -> Any:
        if word is Control.LOCK_CATALOG:
            self.say(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
            return None
        return super().obey(word)

    def only_reads(self) -> bool:
        ((only_reads,),) = self.say(self.engine.only_reads, traced=False)
        return bool(only_reads)

    def position(self) -> str:
        ((position,),) = self.say(POSITION)
        if position is None:
            raise ReadOnly(f"{self.engine.place}: it has become a standby")
        return str(position)

    def reaches(self, position: str, seconds: float) -> bool:
        """Return whether this is a standby that has replayed a position; it has to be asked again and again."""
        end = time.monotonic() + seconds
        lsn, timeline = position.split()
        asked = REPLAYED.format(lsn=lsn, timeline=int(timeline, 16))
        while True:
            ((in_recovery, reached, follows),) = self.say(asked, traced=False)
            if not in_recovery or reached or time.monotonic() > end:
                return bool(in_recovery and reached and follows)
            self.engine.waits.sleep(seconds / 50)

    def limit(self, seconds: float) -> None:
        self.raw.patience = self.waits_on if self.wait.lasts else None
        self.raw.seconds = seconds
        self.raw.most, self.raw.received = self.most, 0

    def written(self, sql: str, row: Row) -> str:
        """Return a statement with its parameters written into it.

        So a round trip is a single text. A statement that is used repeatedly is prepared by a separate statement:
        planning it takes as long as running it for a hundred rows.
        """
        return self._spelt(sql, row, self._prepared_name(sql, row))

    def _prepared_name(self, sql: str, row: Row) -> str | None:
        # The name under which the session has the statement prepared; None if it is not prepared.
        return self.prepared.name(sql) or (self._prepare(sql, len(row)) if row else None)

    @staticmethod
    def _spelt(sql: str, row: Row, name: str | None) -> str:
        if not row:
            return sql
        values = tuple([str(value) if type(value) is int else literal(value) for value in row])
        return f"EXECUTE {name}({', '.join(values)})" if name else sql % values

    def _prepare(self, sql: str, parameters: int) -> str | None:
        if self.raw.pooled or not self.engine.prepares or not self.prepared.counted(sql):
            return None
        name = self.prepared.new_name()
        # It takes locks on the tables as the statement does, and stands before the transaction.
        text = sql % tuple([f"${n}" for n in range(1, parameters + 1)])
        said = [f"SET LOCAL lock_timeout = {self._lock_timeout}", f"PREPARE {name} AS {text}"]
        inside = self.in_transaction
        try:
            self.say(";\n".join(["SAVEPOINT roost_prepare", *said, "RELEASE roost_prepare"] if inside else said))
        except ConnectionLost:
            raise
        except Error:  # it is sent as it is, and fails behind the savepoint that is its own
            if inside:
                self.say("ROLLBACK TO roost_prepare;\nRELEASE roost_prepare")
            return None
        self.prepared.names[sql] = name
        return name

    def ask(self, sql: str, row: Row, by_settings: bool) -> list[Row]:
        self._mark = ""
        self.stay()
        rows = self._at_once(sql, row, local(self.raw.info, self.raw.pooled) if by_settings else "")
        self.answered(wrote=False)
        return rows

    def exchanged(self, exchange: Exchange) -> int:
        """Begin, do the work and commit in one text. Return the number that was written.

        The isolation level is the session's default: a serialization failure is left to the batch.
        """
        work, row, answer, source, _ = exchange
        self._mark = self._name
        rows = self._at_once(alone(work, answer, source), (*row, self._writer, self._batch), commits=True)
        if not rows:
            raise Careful
        return int(rows[0][0])

    def _at_once(self, sql: str, row: Row, sets: str = "", commits: bool = False) -> list[Row]:
        # What is prepared is executed by its name, a transaction by itself. The server then takes the locks of all its
        # tables before its snapshot, so `first` is not needed; within a text of several statements, which otherwise is
        # the transaction, it would take the snapshot first. What the server shows as its text is that of PREPARE, mark
        # included.
        self._compare_prepared()
        wait = self._lock_timeout = max(1, round(1000 * self.lock_wait(Control.BEGIN)))
        name = self._prepared_name(sql, row)
        self.traced(sql, row, commits)
        try:
            if name and not sets:
                values = [parameter(value) for value in row]
                self._bound(len(sql) + sum([len(value) for value in values if value]))
                if self._session_timeout != wait:
                    self.raw.results(f"SET lock_timeout = {wait}")
                    self._session_timeout = wait
                return self.raw.executed(name, values)
            text = f"{self._mark}SET LOCAL lock_timeout = {wait}{sets};\n{self._spelt(sql, row, name)}"
            self._bound(len(text))
            return self.raw.results(text)[0]
        except FAILURES as error:
            raise self.failed(error, sql) from error

    def _compare_prepared(self) -> None:
        # What was prepared may be gone, and what is there may not be known: the session says what it has.
        names = self.prepared.surplus()
        if self._forgotten:
            found = self.say("SELECT name FROM pg_prepared_statements WHERE starts_with(name, 'roost_')")
            there = {name for (name,) in found if self.prepared.session in name}
            self.prepared.names = {sql: name for sql, name in self.prepared.names.items() if name in there}
            names = sorted(there - {*self.prepared.names.values()})
            self._forgotten = False
        if names:
            self.say(";\n".join([f"DEALLOCATE {each}" for each in names]))

    def begin(self, word: Control) -> None:
        self._compare_prepared()
        wait = self._lock_timeout = max(1, round(1000 * self.lock_wait(word)))  # milliseconds; 0 is without end
        sets = local(self.raw.info, self.raw.pooled, arrays=True, at_length=self.wait.lasts)
        if self.wait.work is not None:
            sets += f";\nSET LOCAL statement_timeout = {max(1, round(1000 * self.wait.work))}"
        if word in READS:
            self._begin = [BEGIN_READ, *self._settings_to_read(wait, sets)]
            return
        begin = BEGIN.format(wait=wait, local=sets)
        if word is Control.BEGIN_ALONE:
            self.say(begin)
            return
        if not self._noted:  # who comes anew removes the rows of processes that were killed
            try:
                if not self.say(FOREIGN_WRITERS):  # otherwise the first use of a structure is refused
                    self.say(FORGET_OLD.format(wait=max(1, round(1000 * self.wait.left))))
                    self._noted = True
            except Missing:
                pass  # nothing was created yet: the plans tell better what is missing
        former = self._next_batch()
        self._mark = self._name
        self._begin = [begin]
        if self._noted:
            self._begin += [FORGET.format(writer=former)] if former else []
            self._begin.append(self.written(NOTE, (self._writer, self._batch)))

    def _settings_to_read(self, wait: int, sets: str) -> list[str]:
        # What is said in the transaction. Nothing where the session has them: one that only reads, turn by turn, and
        # is nobody else's, is told once. (A function that a view calls might change them.)
        if self.wait.work is None or self.raw.pooled:
            return [READ_SETTINGS.format(scope="LOCAL ", wait=wait, local=sets)]
        settings = READ_SETTINGS.format(scope="", wait=wait, local=sets.replace("SET LOCAL", "SET"))
        if settings != self._settings:
            self._bound(0)
            try:
                self.raw.results(settings)
            except FAILURES as error:
                raise self.failed(error, settings) from error
            self._settings, self._session_timeout = settings, wait
        return []

    def commit(self) -> None:
        """Commit; a transaction that has failed cannot be."""
        self.traced("COMMIT")
        self._bound(0)
        try:
            committed = self.raw.committed(f"{self._mark}COMMIT")
        except FAILURES as error:
            raise self.failed(error, "COMMIT") from error
        if not committed:
            raise StatementFailed(f"{self.engine.place}: the transaction had failed, and was rolled back at its end")

    def roll_back(self) -> None:
        if not self.raw.closed and self.in_transaction:
            self.say("ROLLBACK")

    def end_lost(self) -> None:
        try:
            self.say(END.format(mark=literal(self._name)))
        except ConnectionLost:
            raise
        except Error as error:
            log.debug("a session that was lost could not be ended: %s", error)

    def look_up(self, wait: Wait) -> bool | None:
        """Read the writer's row under its lock, which a transaction that has not ended still holds."""
        if not self._noted:
            return None
        while True:
            try:
                last = self._batch + MOST_ANSWER
                wait_ = round(1000 * PAUSE)
                asked = LAST_BATCH.format(writer=self._writer, batch=self._batch, last=last, wait=wait_)
                ((found,),) = self.say(asked)
                return self._is_committed(found)
            except Busy:
                if wait.left <= 0:
                    return None
            log.info("ending the transaction of a connection that was lost")  # the server has not noticed that it is
            self.end_lost()

    def failed(self, error: psycopg.Error, sql: str) -> Error:
        anew = error.diag.source_function == "RevalidateCachedQuery"  # what is read has columns of other types now
        if anew:
            self.prepared.names.clear()
        if anew or error.sqlstate == "26000":  # somebody has dropped what was prepared, a pooler for example
            self._forgotten = True
            self._session_timeout = 0
            return Conflict(f"{self.engine.place}: {str(error).strip()}")
        found = translate(error, self.engine.place, sql)
        # psycopg's own error about a socket, of which libpq has not heard yet, has no SQLSTATE
        unanswered = error.sqlstate is None and isinstance(error, psycopg.OperationalError)
        if self.raw.closed or self.raw.broken or unanswered:
            self.broken = True
            return ConnectionLost(f"{self.engine.place}: {str(error).strip()}")
        return found

    def close_raw(self) -> None:
        self.raw.close()

    def forget(self) -> None:
        self.say(f"SET LOCAL lock_timeout = {round(1000 * PAUSE)};\n{FORGET.format(writer=self._writer)}")
