"""A connection to MariaDB or MySQL, by PyMySQL.

Every transaction begins with the settings that it needs, so no session state has to outlive a transaction. A batch is
identified by its number in its writer's row: if the connection is lost during COMMIT, another connection reads that row
to find out whether the batch was committed.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

import pymysql
import pymysql.converters
import pymysql.cursors

from roost.databases.engine import MOMENT, Wait
from roost.databases.mariadb import statements as texts
from roost.databases.mariadb.cluster_lock import ClusterLock
from roost.databases.mariadb.errors import INTERRUPTED, to_flush, translate, unparsed
from roost.databases.mariadb.rows import Reading
from roost.databases.mariadb.statements import own
from roost.databases.replicas import ServerEngine
from roost.databases.server import PAUSE, READS, ServerConnection
from roost.dialects import MARIADB, MYSQL, Control
from roost.dialects.dialect import MOST_ANSWER, Exchange, Row
from roost.dialects.mariadb import written
from roost.errors import Busy, Conflict, ConnectionLost, Error, Invalid, Missing, StatementFailed, worded
from roost.structures.plan import Careful

log = logging.getLogger("roost")

FAILURES, CONVERSIONS, PlainCursor = pymysql.MySQLError, pymysql.converters.conversions, pymysql.cursors.Cursor

IN_TRANSACTION, AUTOCOMMIT = 1, 2  # flags of the server's status, which comes with every answer but an error
NOT_PREPARED, PASSED_OVER = 1243, 1684


def number_of(error: Error) -> int | None:
    cause = error.__cause__
    return cause.args[0] if cause is not None and cause.args and isinstance(cause.args[0], int) else None


def _literal(value: Any) -> str:
    return str(value) if type(value) is int else written(value)


class MariaDBConnection(ServerConnection):
    """One connection."""

    failures = FAILURES
    raw: Reading

    def __init__(self, engine: ServerEngine, wait: Wait, follows: bool = False) -> None:
        super().__init__(engine, wait, follows)
        self._caught_up = 0.0  # by the monotonic clock: when the node last waited for the others
        self._runs_on: tuple[str, int | None] = "", None  # the server, and its session number, on which the batch runs
        self._open = False
        self._whole = False  # the open transaction is a batch, which only COMMIT and ROLLBACK end
        self._locked = False
        self._cluster_lock = ClusterLock()
        self._unparsed = ""  # a table whose triggers the server could not read
        self._may_flush = True
        self._limit: float | None = None  # seconds for a statement of a batch
        self._waits_for_nobody = False  # the next batch, since one took longer than that
        self._settings = self._settings_then = ""  # the session's settings for reads

    @property
    def session(self) -> int | None:
        return int(self.raw.thread_id())  # type: ignore[no-untyped-call]

    @property
    def in_transaction(self) -> bool:
        return self._open

    def obey(self, word: Control) -> Any:
        match word:
            case Control.LOCK_CATALOG:  # CREATE TABLE ends a transaction, so the lock belongs to the session
                if self.say(f"SELECT GET_LOCK({texts.CREATE_LOCK}, {round(self.wait.left)})") != [(1,)]:
                    raise Busy(f"{self.engine.place}: another process is making or changing structures")
                self._locked = True
                return self.raw.galera
            case Control.LOCK_CLUSTER:
                self.say(f"COMMIT;\n{texts.SHORT_WAIT}")
                self._cluster_lock.take(self)
                self.begin(Control.BEGIN_ALONE)
            case _:
                return super().obey(word)
        return None

    def answer(self, sql: str, row: Row = ()) -> Any:
        """Run one statement by itself; return its rows, or the number of changed rows."""
        ((rows, changed),) = self.said(sql, row)
        return changed if rows is None else rows

    def begin(self, word: Control) -> None:
        self._limit = None
        self._whole = word is not Control.BEGIN_ALONE
        seconds = self.lock_wait(word)
        if word in READS:
            sets = own(self.engine.dialect.name, self.wait.work)
            # The wait for a table's lock, in whole seconds. MariaDB can be told not to wait at all; then this retries.
            metadata = max(int(self.engine.dialect is MYSQL), math.floor(seconds))
            settings = texts.READ_SETTINGS.format(own=sets, metadata=metadata)
            # Reads do not change them (a function that a view calls might), unless a pooler switches the session.
            known = settings == self._settings and not self.raw.pooled
            self._begin_by(texts.BEGIN_READ if known else f"{settings};\n{texts.BEGIN_READ}", settings)
            return
        # Whole seconds: only a limit for statements can be finer.
        wait = max(1, math.ceil(seconds))
        text = texts.BEGIN.format(own=own(self.engine.dialect.name), wait=wait, metadata=wait)
        if self.raw.galera:
            text = f"{texts.GALERA_WAITS.format(texts.BEGINNING)};\n{text}"
        if word is Control.BEGIN_ALONE:
            self._settings = ""
            self.say(f"COMMIT;\n{text}" if self._open else text)  # begins again, after a CREATE or ALTER
            self._open = True
            return
        former = self._next_batch()
        self._runs_on = self.raw.server, self.session
        note = texts.NOTE.format(writer=self._writer, batch=self._batch)
        self._begin_by(text, "", now=not self._noted)
        if self._noted:
            self._begin += [texts.FORGET.format(writer=former), note] if former else [note]
        else:
            try:
                # Rows of processes that were killed: each connection that writes removes some with its first batch,
                # and keeps their locks until it ends: a writer that has been idle for a day may be about to write.
                if old := self.say(texts.OLD_WRITERS):
                    holes = ", ".join(["%s"] * len(old))
                    self.say(f"DELETE FROM roost_writers WHERE writer IN ({holes})", sum(old, ()))
                self.say(note)
                self._noted = True
            except Missing:
                pass  # nothing was created yet: the plans' error message is better
            else:
                if self.raw.galera:  # this was a transaction of its own: the batch's has to begin later
                    self.commit()
                    self.begin(word)
                    return
        self._limit, self._waits_for_nobody = 0.0 if self._waits_for_nobody else seconds, False

    def _begin_by(self, text: str, settings: str, now: bool = False) -> None:
        # settings: what the session has for reading when it has been sent.
        self._settings_then = settings
        if now:
            self.say(text)
            self.begins()
        else:
            self._begin = [text]

    def begin_read(self) -> None:
        """On Galera, begin the transaction: only now, because this moment determines its snapshot."""
        super().begin_read()
        if self.raw.galera:
            self._catch_up()
            self.begin_write()

    def begin_write(self) -> None:
        """On Galera, begin the transaction: only now, because by now the batch has taken its requests.

        The node waits until it has all that was answered on others. Otherwise an operation that finds nothing to do
        would change nothing, and certification would not notice that it has missed something.
        """
        if self.one_by_one:
            text, *self._begin = self._begin
            self.say(text)
            self.begins()

    def _catch_up(self) -> None:
        # What the store was answered by other nodes since this one last waited for them.
        answered = self.engine.replicas.answered
        if any([at > self._caught_up for server, at in answered.items() if server != self.raw.server]):
            now = time.monotonic()
            self.say(texts.GALERA_READY.format(texts.CATCHING_UP))
            self.say(texts.GALERA_WAITS.format(self.raw.sync_wait))
            self._caught_up = now

    def answered(self, *, wrote: bool) -> None:
        super().answered(wrote=wrote)
        if self.raw.galera:
            self.engine.replicas.answered[self.raw.server] = time.monotonic()

    def only_reads(self) -> bool:
        ((only_reads,),) = self.say("SELECT @@read_only", traced=False)
        return bool(only_reads)

    def position(self) -> str:
        """Return the GTIDs that a replica must have, and the number of the server that writes."""
        ((logged, gtids, server),) = self.say("SELECT @@log_bin, @@gtid_current_pos, @@server_id")
        if not logged:
            raise Invalid(f"{self.engine.place}: reads=replica takes a binary log (log_bin) on the server that writes")
        return f"{gtids} {server}"

    def reaches(self, position: str, seconds: float) -> bool:
        """Return whether this is a replica that has applied these GTIDs and no foreign ones; not if there are none."""
        gtids, _, server = position.partition(" ")
        if not gtids:  # it would wait for nothing
            return False
        asked = "SELECT @@read_only AND MASTER_GTID_WAIT(%s, %s) = 0, @@global.gtid_slave_pos"
        ((reached, applied),) = self.say(asked, (gtids, seconds))
        return bool(reached == 1 and texts.follows(applied, gtids, server))

    def limit(self, seconds: float) -> None:
        """Limit every wait for the server; rounded up, so that the driver rarely has to set the timeout again.

        MySQL waits for locks in whole seconds.
        """
        self.raw.patience = self.waits_on if self.wait.lasts else None
        self.raw.limit(math.ceil(seconds / MOMENT) * MOMENT + (self.engine.dialect is MYSQL))
        self.raw.most, self.raw.received = self.most, 0

    def measure(self, text: str) -> None:
        """Raise `Invalid` for a text so large that the server would drop the connection."""
        most = self.raw.packet
        if 4 * len(text) > most and (size := len(text.encode())) >= most:
            message = f"a statement has {size:,} bytes, and max_allowed_packet of the server is {most:,}"
            raise worded(Invalid(f"{self.engine.place}: {message}"), "toobig", 1)

    def begins(self) -> None:
        self._open = True
        self._settings = self._settings_then

    def ended(self) -> None:
        self._open = False

    @property
    def one_by_one(self) -> bool:
        """Whether each statement of a transaction is sent as a separate text, as on Galera.

        A node aborts a transaction that conflicts with another node's. If that happens between two statements of one
        text, no error is raised: the remaining statements run outside of it, each as its own transaction, and COMMIT
        succeeds. If it happens between two texts, the second one fails with 1213.
        """
        return self.raw.galera

    def arrived(self) -> None:
        """Raise `Conflict` if Galera has aborted the transaction, before any statement runs outside of it.

        And where what is made of structures was asked for and not told: a table that is being altered is passed over.
        """
        if self.raw.galera and self._whole and self._open and not self.raw.server_status & IN_TRANSACTION:
            raise Conflict(f"{self.engine.place}: another node has ended the transaction")
        if self.wait.lasts and self.raw.warned:
            for _, number, message in self.say("SHOW WARNINGS", traced=False):
                if number == PASSED_OVER:
                    raise Conflict(f"{self.engine.place}: {message} ({number})")

    def ask(self, sql: str, row: Row, _: bool) -> list[Row]:
        self.stay()
        if self.raw.galera:
            self._catch_up()
        self.traced(sql, row)
        rows = self._at_once(texts.ASK + sql, row)[0]
        if self.raw.server_status & (IN_TRANSACTION | AUTOCOMMIT) != AUTOCOMMIT:  # a pooler's session: an old snapshot
            self._open = True
            raise Careful
        self.answered(wrote=False)
        return rows

    def exchanged(self, exchange: Exchange) -> int:
        """Begin, do the work and commit in one text. Return the number that was written, if there is a result.

        It is a compound statement, because the driver spends as much time on a result as the server.
        """
        if self.raw.galera:
            raise Careful  # if the transaction were aborted between two statements, the others would run outside of it
        self._runs_on = self.raw.server, self.session
        work, row, answer, _, result = exchange
        answers = result is not None
        self.traced(work, row, commits=True)
        self._open = True
        try:
            rows = self._at_once(texts.alone(work, answer, answers), (*row, bytes.fromhex(self._writer), self._batch))
        except Busy as error:
            if number_of(error) in INTERRUPTED:  # COMMIT may have succeeded: look it up
                raise ConnectionLost(str(error)) from error.__cause__
            raise
        self._open = False
        return int(rows[0][0][0]) if answers else self._batch

    def _at_once(self, sql: str, row: Row) -> list[list[Row]]:
        self._limit = None
        name = self.prepared.name(sql) or self._prepare(sql, len(row))
        text = f"EXECUTE {name} USING {', '.join(map(_literal, row))}" if name else self._text(sql, row)
        self.measure(text)
        self._bound(len(text))
        try:
            return self.raw.results(text)
        except FAILURES as error:
            raise self.failed(error, sql) from error

    def _prepare(self, sql: str, parameters: int) -> str:
        # Parsing such a text takes the server as long as executing it. Returns "" if the text is not to be prepared.
        if self.raw.pooled or not self.engine.prepares or not self.prepared.counted(sql):
            return ""
        name = self.prepared.new_name()
        said = [f"DEALLOCATE PREPARE {each}" for each in self.prepared.surplus()]
        said.append(f"PREPARE {name} FROM {self.engine.dialect.literal(sql % (('?',) * parameters))}")
        try:
            self._bound(len(sql))
            self.raw.results(";\n".join(said))
        except FAILURES as error:
            found = self.failed(error, sql)
            if isinstance(found, ConnectionLost):
                raise found from error
            return ""  # for example, the server's limit is reached
        self.prepared.names[sql] = name
        return name

    def written(self, sql: str, row: Row) -> str:
        """Return a statement with its parameters; while locks are taken, it runs for no longer than the limit.

        MySQL has no such limit for a statement that writes: it waits for locks in whole seconds, and a caller that
        cannot wait that long first requests the lock with NOWAIT.
        """
        if row:
            sql %= tuple(map(_literal, row))
        if self._limit is None or self.engine.dialect is not MARIADB:
            return sql
        if self._limit <= 0:
            seconds, wait = max(texts.LEAST_SECONDS, self.engine.timeout), int(texts.SKIPS.search(sql) is not None)
            return texts.UNBLOCKED.format(seconds=seconds, wait=wait) + sql
        values = len(row) + sum([len(each) // texts.BYTES_PER_VALUE for each in row if type(each) is str])
        seconds = max(0.001, self._limit + values * texts.SECONDS_PER_VALUE)  # 0 is no limit
        return texts.LIMITED.format(seconds=seconds) + sql

    def commit(self) -> None:
        self._limit = None
        try:
            self.say("COMMIT")
        except (Conflict, ConnectionLost):
            raise
        except Error as error:
            if not self.raw.galera:
                raise
            self.broken = True  # for example 1180: the others may have the commit, and this node has left the cluster
            raise ConnectionLost(str(error)) from error.__cause__
        self._open = False
        self._unlock()

    def roll_back(self) -> None:
        self._limit = None
        if self._open:
            self._open = False
            try:
                self.say("ROLLBACK")
            except Conflict:  # Galera has rolled it back already
                pass
        self._unlock()
        if self._unparsed:
            table, self._unparsed = self._unparsed, ""
            try:
                self.say(f"FLUSH LOCAL TABLES {table}")
            except StatementFailed as error:
                self._may_flush = False
                log.info("%s", error)

    def _unlock(self) -> None:
        self._cluster_lock.give(self)
        if self._locked:
            self._locked = False
            self.say(f"SELECT RELEASE_LOCK({texts.CREATE_LOCK})")

    def end_lost(self) -> None:
        if self._noted:
            try:
                self.say(f"{texts.LAST_BATCH.format(writer=self._writer)} NOWAIT")
            except Busy:
                self._end()
            except Conflict:  # with the lost batch, which has just arrived from another node: so it has ended
                pass

    def _end(self) -> None:
        # Only while the session holds the writer's row: after a restart its number may belong to another session. And
        # only on the same server: on another node of Galera the number belongs to another session. A pooler's number is
        # not a session's.
        server, number = self._runs_on
        if server != self.raw.server or self.raw.pooled:
            return
        log.info("ending connection %s, which was lost", number)
        try:
            self.say(f"KILL {number}")
        except StatementFailed:
            pass  # it has just ended by itself

    def look_up(self, wait: Wait) -> bool | None:
        """Read the writer's row under its lock, which a transaction that has not ended still holds."""
        if not self._noted:
            return None
        if not self.raw.galera:
            return self._take_last(wait)
        self.say(texts.GALERA_WAITS.format(texts.CATCHING_UP))
        committed = self._take_last(wait)
        self.say(texts.GALERA_WAITS.format(self.raw.sync_wait))
        return committed

    def _take_last(self, wait: Wait) -> bool | None:
        ended = False
        while True:
            try:
                self.say(texts.NO_WAIT if self.engine.dialect is MARIADB else texts.SHORT_WAIT)
                self.say(texts.TAKE_LAST.format(writer=self._writer, batch=self._batch, last=self._batch + MOST_ANSWER))
                ((found,),) = self.say(texts.LAST_BATCH.format(writer=self._writer))
            except (Busy, Conflict) as error:
                if wait.left <= 0:
                    return None
                if isinstance(error, Conflict):  # with the lost COMMIT, which has arrived from another node just now
                    continue
            else:
                return self._is_committed(found)
            if not ended:  # the server has not noticed that the client is gone
                ended = True
                self._end()
            self.engine.waits.sleep(PAUSE)

    def reconnect(self, wait: Wait) -> None:
        """Connect anew; what was open, and locked, is gone with the old connection."""
        self._open = self._locked = False
        self._limit = None
        self._caught_up = 0.0
        self._settings = ""
        self.prepared.names.clear()
        super().reconnect(wait)

    def failed(self, error: pymysql.MySQLError, sql: str) -> Error:
        self._settings = ""
        if error.args[:1] == (NOT_PREPARED,):  # a pooler has switched the session
            self.prepared.names.clear()
            return Conflict(f"{self.engine.place}: {error.args[1]}")
        if error.args[:1] == (texts.TOO_LONG,) and self._limit and self.wait.left:
            # It may have waited for a lock, and have done a part of its work: all is done again, and does not wait.
            self._waits_for_nobody = True
            return Conflict(f"{self.engine.place}: a statement was interrupted that may have waited for a lock")
        found = translate(error, self.engine.place, sql)
        if self.raw.galera and (table := unparsed(error, sql)):
            if not self._may_flush:
                return to_flush(found, table)
            self._unparsed = table
            return Conflict(str(found))
        if not self.raw.open or isinstance(found, ConnectionLost):
            self.broken = True
            return ConnectionLost(str(translate(error, self.engine.place, "")))  # it is logged, and so without values
        return found

    def forget(self) -> None:
        self.say(texts.FORGET.format(writer=self._writer))

    def close_raw(self) -> None:
        self._cluster_lock.leave()
        if self.raw.open:
            self.raw.limit(PAUSE)  # for the driver's QUIT, which a server that hangs does not read
            self.raw.close()
