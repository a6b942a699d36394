"""A connection to PostgreSQL, by psycopg 3.

No session state outlives a transaction, so a pooler may run each transaction in another session; behind a pooler no
statements are prepared, since they would be such state. A batch is identified by its number in its writer's row: if the
connection is lost during COMMIT, another connection reads that row to find out whether the batch was committed.

Rejected: `pg_xact_status` of the transaction's id. After a crash, a server reuses the id of a transaction that had
written nothing to disk; the COMMIT of the later transaction would be mistaken for that of the lost one.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import psycopg

from roost.databases.engine import Wait
from roost.databases.postgresql.errors import translate
from roost.databases.postgresql.limited import Limited
from roost.databases.postgresql.session import local
from roost.databases.postgresql.statements import (
    BEGIN,
    BEGIN_READ,
    END,
    FORGET,
    FORGET_OLD,
    LAST_BATCH,
    NAMED,
    NOTE,
    POSITION,
    READ_SETTINGS,
    REPLAYED,
    alone,
)
from roost.databases.postgresql.values import literal, parameter
from roost.databases.replicas import ServerEngine
from roost.databases.server import PAUSE, READS, ServerConnection
from roost.dialects import Control
from roost.dialects.dialect import MOST_ANSWER, Exchange, Row
from roost.errors import (
    Busy,
    Conflict,
    ConnectionLost,
    Error,
    Missing,
    ReadOnly,
    StatementFailed,
)
from roost.structures.plan import Careful

log = logging.getLogger("roost")

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
        """The number by which the server knows it."""
        return self.raw.info.backend_pid

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, one that has failed included."""
        return self.raw.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    def obey(self, word: Control) -> Any:
        """Do what a control word means."""
        if word is Control.LOCK_CATALOG:
            return self.say(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        return super().obey(word)

    def only_reads(self) -> bool:
        """Return whether the server is a standby, or refuses to write for another reason."""
        ((only_reads,),) = self.rows(self.engine.only_reads)
        return bool(only_reads)

    def position(self) -> str:
        """Return the position that a standby must have replayed, and its timeline."""
        self.say(POSITION)
        ((position,),) = self._cursor.fetchall()
        if position is None:
            raise ReadOnly(f"{self.engine.place}: it has become a standby")
        return str(position)

    def reaches(self, position: str, seconds: float) -> bool:
        """Return whether this is a standby that has replayed a position; it has to be asked again and again."""
        end = time.monotonic() + seconds
        lsn, timeline = position.split()
        asked = REPLAYED.format(lsn=lsn, timeline=int(timeline, 16))
        while True:
            ((in_recovery, reached, follows),) = self.rows(asked)
            if not in_recovery or reached or time.monotonic() > end:
                return bool(in_recovery and reached and follows)
            self.engine.waits.sleep(seconds / 50)

    def limit(self, seconds: float) -> None:
        """Limit every wait for the server from now on."""
        self.raw.patience = self.waits_on if self.wait.lasts else None
        self.raw.seconds = seconds
        self.raw.most, self.raw.received = self.most, 0

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement as the cursor takes it."""
        return self._mark + sql, row or None

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
            self.say_all(";\n".join(["SAVEPOINT roost_prepare", *said, "RELEASE roost_prepare"] if inside else said))
        except ConnectionLost:
            raise
        except Error:  # it is sent as it is, and fails behind the savepoint that is its own
            if inside:
                self.say_all("ROLLBACK TO roost_prepare;\nRELEASE roost_prepare")
            return None
        self.prepared.names[sql] = name
        return name

    def ask(self, sql: str, row: Row, by_settings: bool) -> list[Row]:
        """Run a query in a snapshot of its own, outside of any transaction."""
        self._mark = ""
        self.stay()
        return self._at_once(sql, row, local(self.raw.info, self.raw.pooled) if by_settings else "")

    def exchanged(self, exchange: Exchange) -> int:
        """Begin, do the work and commit in one text. Return the number that was written.

        The isolation level is the session's default: a serialization failure is left to the batch.
        """
        work, row, answer, source, _ = exchange
        self._mark = self._name
        rows = self._at_once(alone(work, answer, source), (*row, self._writer, self._batch), commits=True)
        if not rows:
            raise Careful
        number: int = rows[0][0]
        return number

    def _at_once(self, sql: str, row: Row, sets: str = "", commits: bool = False) -> list[Row]:
        # What is prepared is executed by its name, a transaction by itself. The server then takes the locks of all its
        # tables before its snapshot, so `first` is not needed; within a text of several statements, which otherwise is
        # the transaction, it would take the snapshot first. What the server shows as its text is that of PREPARE, mark
        # included.
        self._compare_prepared()
        wait = self._lock_timeout = max(1, round(1000 * self.lock_wait(Control.BEGIN)))
        name = self._prepared_name(sql, row)
        if name and not sets:
            if self._trace is not None:
                self._trace(sql, row)
                if commits:
                    self._trace("COMMIT", ())
            values = [parameter(value) for value in row]
            self._bound(len(sql) + sum([len(value) for value in values if value]))
            try:
                if self._session_timeout != wait:
                    self.raw.results(f"SET lock_timeout = {wait}")
                    self._session_timeout = wait
                return self.raw.executed(name, values)
            except FAILURES as error:
                raise self.failed(error, sql) from error
        written = self._spelt(sql, row, name)
        begin = f"SET LOCAL lock_timeout = {wait}{sets}"
        if self._trace is not None:
            self._trace(sql, row)
            if commits:
                self._trace("COMMIT", ())
        text = f"{self._mark}{begin};\n{written}"
        self._bound(len(text))
        try:
            return self.raw.results(text)[0]
        except FAILURES as error:
            raise self.failed(error, text) from error

    def _compare_prepared(self) -> None:
        # What was prepared may be gone, and what is there may not be known: the session says what it has.
        names = self.prepared.surplus()
        if self._forgotten:
            self.say("SELECT name FROM pg_prepared_statements WHERE starts_with(name, 'roost_')")
            there = {name for (name,) in self._cursor.fetchall() if self.prepared.session in name}
            self.prepared.names = {sql: name for sql, name in self.prepared.names.items() if name in there}
            names = sorted(there - {*self.prepared.names.values()})
            self._forgotten = False
        if names:
            self.say_all(";\n".join([f"DEALLOCATE {each}" for each in names]))

    def begin(self, word: Control) -> None:
        """Begin, all in one exchange."""
        self._compare_prepared()
        wait = self._lock_timeout = max(1, round(1000 * self.lock_wait(word)))  # milliseconds; 0 is without end
        sets = local(self.raw.info, self.raw.pooled, arrays=True, at_length=self.wait.lasts)
        if self.wait.work is not None:
            sets += f";\nSET LOCAL statement_timeout = {max(1, round(1000 * self.wait.work))}"
        if word in READS:
            self._begin = [BEGIN_READ, *self._settings_to_read(wait, sets)]
            return None
        begin = BEGIN.format(wait=wait, local=sets)
        if word is Control.BEGIN_ALONE:
            return self.say_all(begin)
        if not self._noted:
            self._enrol()
        former = self._next_batch()
        self._mark = self._name
        self._begin = [begin]
        if self._noted:
            self._begin += [FORGET.format(writer=former)] if former else []
            self._begin.append(self.written(NOTE, (self._writer, self._batch)))
        return None

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

    def _enrol(self) -> None:
        # With the first batch; who comes anew removes those of processes that were killed.
        try:
            self.say_all(FORGET_OLD.format(wait=max(1, round(1000 * self.wait.left))))
            self._noted = True
        except Missing:
            pass  # nothing was created yet: the plans tell better what is missing

    def commit(self) -> None:
        """Commit; a transaction that has failed cannot be."""
        if self._trace is not None:
            self._trace("COMMIT", ())
        self._bound(0)
        try:
            committed = self.raw.committed(f"{self._mark}COMMIT")
        except FAILURES as error:
            raise self.failed(error, "COMMIT") from error
        if not committed:
            raise StatementFailed(f"{self.engine.place}: the transaction had failed, and was rolled back at its end")

    def roll_back(self) -> None:
        """Roll back what is open."""
        if not self.raw.closed and self.in_transaction:
            self.say("ROLLBACK")

    def end_lost(self) -> None:
        """End the lost connection's transaction, in case the server has not noticed the loss."""
        try:
            self.say(END, (self._name,))
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
                self.say_all(LAST_BATCH.format(writer=self._writer, batch=self._batch, last=last, wait=wait_))
                ((found,),) = self._cursor.fetchall()
                return self._is_committed(found)
            except Busy:
                if wait.left <= 0:
                    return None
            log.info("ending the transaction of a connection that was lost")  # the server has not noticed that it is
            self.end_lost()

    def failed(self, error: psycopg.Error, sql: str) -> Error:
        """Return our error; note when the connection is lost."""
        if error.sqlstate == "26000":  # somebody has dropped what was prepared, a pooler for example
            self._forgotten = True
            self._session_timeout = 0
            return Conflict(f"{self.engine.place}: {str(error).strip()}")
        found = translate(error, self.engine.place, sql)
        if self.raw.closed or self.raw.broken:
            self.broken = True
            return ConnectionLost(f"{self.engine.place}: {str(error).strip()}")
        return found

    def close_raw(self) -> None:
        """Close the driver's connection."""
        self.raw.close()

    def forget(self) -> None:
        """Remove the writer's row."""
        self.say_all(f"SET LOCAL lock_timeout = {round(1000 * PAUSE)};\n{FORGET.format(writer=self._writer)}")
