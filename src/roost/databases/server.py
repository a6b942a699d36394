"""The common part of connections to servers: running statements, and handling a lost connection."""

from __future__ import annotations

import logging
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import Any

from roost.databases.engine import GRACE, HASTE, LAST, Wait
from roost.databases.replicas import PAUSE, Reconnecting, ServerEngine
from roost.dialects.dialect import (
    MOST_ANSWER,
    MOST_BYTES,
    Control,
    Exchange,
    Row,
    Statement,
    Template,
    Together,
    Wanted,
    collect,
    render,
)
from roost.errors import Conflict, ConnectionLost, Error, Missing, OutcomeUnknown, StatementFailed, worded
from roost.structures.plan import Careful

__all__ = ["PAUSE", "ServerConnection"]

log = logging.getLogger("roost")

# A part of a transaction that may fail by itself. MariaDB drops a savepoint when another of the same name is set.
SAVEPOINT = "SAVEPOINT roost_part_{}"
BACK = f"ROLLBACK TO {SAVEPOINT}"
RELEASE = f"RELEASE {SAVEPOINT}"
WRITERS = "roost_writers"  # where a batch writes its number
READS = (Control.BEGIN_READ, Control.BEGIN_READ_NOWAIT)
BEGINS = (*READS, Control.BEGIN, Control.BEGIN_NOWAIT, Control.BEGIN_ALONE)

# The distance between the numbers of two batches. An operation by itself adds its result to its number; the last number
# of the range belongs to a look-up (see `look_up`).
STEP = MOST_ANSWER + 1
# After this many batches a writer changes its name: numbers have 63 bits. And on PostgreSQL, while another session has
# an old snapshot, each batch leaves a row version that all later ones have to skip (15 µs per 1,000).
MOST_BATCHES = 1000

JITTER = 0.02  # maximum seconds before a batch that conflicted with another is retried
LOOKUP = 5.0  # seconds for asking whether the server is there, and after an interrupt what became of a COMMIT
SECONDS_PER_BYTE = 0.00001  # of a text, for which the server may work by itself before it answers
PARTING = 0.5  # seconds for the last statement of each connection that is closed
SILENCE = 10.0  # seconds of a long statement after which another connection checks whether the server still responds
USES, MOST_PREPARED = 5, 100  # of a statement before it is prepared, as with psycopg; on one connection


class Prepared:
    """What a session has prepared: the names of statements, by their texts, the least recently used first.

    A statement is prepared when it was asked for `USES` times. No more than `MOST_PREPARED` stay, which is seen to
    before a transaction: texts that are being built may have any of the names.
    """

    def __init__(self) -> None:
        self.session = uuid.uuid4().hex  # a pooler's session may have others' prepared statements
        self.names: dict[str, str] = {}
        self._uses: dict[str, int] = {}
        self._made = 0

    def name(self, sql: str) -> str | None:
        name = self.names.pop(sql, None)
        if name is not None:
            self.names[sql] = name
        return name

    def counted(self, sql: str) -> bool:
        """Count a use of a statement; return whether it is to be prepared."""
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        if uses >= USES:
            del self._uses[sql]  # where it fails, the next attempt is after as many uses
            return True
        if len(self._uses) > MOST_PREPARED:
            self._uses.clear()
        return False

    def new_name(self) -> str:
        self._made += 1
        return f"roost_{self.session}_{self._made}"

    def surplus(self) -> list[str]:
        """Take out the names of those that are too many, a quarter at a time."""
        if len(self.names) <= MOST_PREPARED:
            return []
        return [self.names.pop(sql) for sql in list(self.names)[: MOST_PREPARED // 4]]


class ServerConnection(Reconnecting):
    """One of a store's own connections. It is replaced when it is lost; its open transaction is then rolled back."""

    def __init__(self, engine: ServerEngine, wait: Wait, follows: bool = False) -> None:
        self.prepared = Prepared()
        self._writer = uuid.uuid4().hex
        self._former: str | None = None  # its name before, until a batch that removes its row is committed
        self._batch = 0  # the number of the last batch, written by it
        self._parts = 0  # of the transaction, one in the other, that may fail by themselves
        self._later: list[str] = []  # where these begin and end: to be sent with the next statement
        self._reads = False  # the transaction only reads
        self._begun_by = Control.BEGIN
        self._over = False  # its COMMIT went out with its last statement
        self._answer = 0  # of the operation that was looked up
        self._commits = False  # whether what is sent now is, or contains, COMMIT
        self.most = inf  # bytes of an answer that are read, and of a value that is sent
        self._noted = False  # whether the batch that runs has written it, or writes it with its first statement
        super().__init__(engine, wait, follows)

    def execute(self, wanted: Wanted) -> Any:
        try:
            if isinstance(wanted, Control):
                return self.obey(wanted)
            if isinstance(wanted, Together):
                return self._run(wanted.statements)
            assert isinstance(wanted, Statement)
            return self._run([wanted])[0]
        except Error:
            raise
        except BaseException:  # an interrupt, perhaps between a question and its answer: nothing it says is to be read
            self.broken = True
            raise

    def transact(self, exchange: Exchange) -> Any:
        """Run a transaction in one round trip; return its result.

        After an error nothing is changed, except after `OutcomeUnknown`; `settle` ends an open transaction."""
        self.stay()
        if not self._noted or self._former or self._batch >= STEP * MOST_BATCHES:
            raise Careful  # the first batch of a connection, or of a writer's name, has more to do
        self._batch += STEP
        self._commits = True
        try:
            answer = self.exchanged(exchange) - self._batch
        except ConnectionLost as error:
            committed = self.outcome(inf)
            if committed is None:
                raise OutcomeUnknown(f"{error}, during COMMIT, and the outcome could not be looked up") from error
            if not committed:
                raise
            answer = self._answer
        finally:
            self._commits = False
        self.answered(wrote=True)
        return None if exchange.result is None else exchange.result(answer)

    def stay(self) -> None:
        """Raise `Careful` if a batch has to check whether this is still the right server."""
        raw, engine = self.raw, self.engine
        if raw.replica or raw.home != engine.home:
            if not self.is_current():
                raise Careful
        elif engine.moves and time.monotonic() > self._role_known and self._has_moved():
            self._role_known = 0.0  # the batch is to ask, too
            raise Careful
        elif engine.moves and self._follows and engine.replicas:
            raise Careful

    def _next_batch(self) -> str | None:
        """Count a batch; return the writer's former name where it goes by another one now, and has a row by that."""
        if self._batch < STEP * MOST_BATCHES:
            self._batch += STEP
        else:
            self._former, self._writer, self._batch = self._former or self._writer, uuid.uuid4().hex, STEP
        return self._former

    def _is_committed(self, found: int) -> bool:
        """Judge the number that a look-up has found in the writer's row, and keep the answer that is in it."""
        self.answered(wrote=True)
        self._answer = found - self._batch
        return 0 <= self._answer < MOST_ANSWER

    def _run(self, statements: Sequence[Statement]) -> list[Any]:
        assert not self._over
        texts = [render(statement) for statement in statements]
        said = [text for each in texts for text in each]
        returns = [statement.template.returns for statement, each in zip(statements, texts, strict=True) for _ in each]
        answers = iter(self._exchange(said, returns, self._reads and statements[-1].last))
        return [
            collect(statement, [next(answers) for _ in each]) for statement, each in zip(statements, texts, strict=True)
        ]

    def _exchange(self, said: Sequence[tuple[str, Row]], returns: Sequence[bool], ends: bool = False) -> list[Any]:
        # As one text, behind that which begins the transaction; as several where they are large.
        # ends: COMMIT goes with it. Whether that of a transaction that only reads went through, nobody needs to know.
        if self._begin and self._reads:
            self.begin_read()
        elif self._begin:
            self.begin_write()
        written = [self._text(sql, row) for sql, row in said]
        for (_, row), text in zip(said, written, strict=True) if self.most < inf else ():
            if len(text) > self.most and _longest(row) > self.most:
                raise worded(StatementFailed(f"a value has more than {self.most:,.0f} bytes"), "toobig")
        begin, self._begin = ";\n".join(self._begin).split(";\n") if self._begin else [], []
        if begin:
            self.begins()
        begin, self._later = begin + self._later, []
        together = not self.one_by_one
        ends = ends and together
        end = ["COMMIT"] if ends else []
        if self._trace is not None:
            for sql, row in [*[(sql, ()) for sql in begin], *said, *[(sql, ()) for sql in end]]:
                self._trace(sql, row)
        texts = begin + written + end
        answers: list[Any] = []
        place = 0
        while place < len(texts):
            first = place
            size = len(texts[place])
            place += 1
            while together and place < len(texts) and (size := size + len(texts[place])) <= MOST_BYTES:
                place += 1
            try:
                self._send(texts[first:place], first - len(begin), returns, answers)
            except Missing as error:
                if not (begin and self._noted and WRITERS in str(error)):
                    raise
                self._noted = False  # somebody has taken the table, or a right on it: the batch runs again without
                raise Conflict(str(error)) from error.__cause__
        if ends:
            self._over = True
            self.ended()
        return answers

    def say(self, sql: str, row: Row = (), *, traced: bool = True) -> list[Row]:
        """Send a text of the connection's own; return the rows of the last of its statements that has any."""
        found = [rows for rows, _ in self.said(sql, row, traced=traced) if rows is not None]
        return found[-1] if found else []

    def said(self, sql: str, row: Row = (), *, traced: bool = True) -> list[tuple[list[Row] | None, int]]:
        """Send such a text; return the rows of each of its statements, and how many it has changed."""
        if traced:
            self.traced(sql, row)
        text = self._mark + self._text(sql, row)
        self._bound(len(text))
        try:
            return list(self.raw.answers(text))
        except self.failures as error:
            raise self.failed(error, sql) from error

    def traced(self, sql: str, row: Row = (), commits: bool = False) -> None:
        if self._trace is not None:
            self._trace(sql, row)
            if commits:
                self._trace("COMMIT", ())

    def _bound(self, size: int) -> None:
        # Of the exchange that comes, for a text of so many bytes. A replica that hangs leaves time to ask the primary,
        # and a lost COMMIT to look up its outcome.
        halves = self.raw.replica or (self._commits and self.wait.work is None and not self.wait.lasts)
        seconds = min(self.wait.answer, self.wait.left / 2 + GRACE) if halves else self.wait.answer
        self.limit(seconds + size * SECONDS_PER_BYTE)

    def lock_wait(self, word: Control) -> float:
        """Return the seconds that a transaction begun in this way waits for a single lock."""
        most = HASTE if word in (Control.BEGIN_NOWAIT, Control.BEGIN_READ_NOWAIT) else self.wait.most
        return self.wait.left if most is None else min(most, self.wait.left)

    def measure(self, text: str) -> None:
        """Raise `Invalid` for a text that is too large for the server."""

    def waits_on(self) -> float:
        """Return how many more seconds to wait for a server that was silent until its limit; 0: no longer."""
        waits = self.engine.waits
        return SILENCE if self.wait.lasts and waits.call(partial(self.engine.answers, LOOKUP)) else 0.0

    def _text(self, sql: str, row: Row) -> str:
        try:
            return self.written(sql, row)
        except self.failures as error:  # the driver takes no such value
            raise self.failed(error, sql) from error

    def _send(self, texts: Sequence[str], place: int, returns: Sequence[bool], answers: list[Any]) -> None:
        # place: of the first one, counted from the first that has an answer.
        text = self._mark + ";\n".join(texts)
        self.measure(text)
        self._bound(len(text))
        number = place
        try:
            for rows, changed in self.raw.answers(text):
                if 0 <= number < len(returns):
                    answers.append(rows if returns[number] else changed)
                number += 1
            self.arrived()
        except self.failures as error:
            raise self.failed(error, text) from error

    def arrived(self) -> None:
        """Examine the status that the server has sent along with its answers."""

    def obey(self, word: Control) -> Any:
        match word:
            case _ if word in BEGINS:
                self._mark, self._parts, self._over = "", 0, False
                self._later.clear()
                self._reads, self._begun_by = word in READS, word
                self._begin_somehow(word)
            case Control.SAVEPOINT:
                self._parts += 1
                self._later.append(SAVEPOINT.format(self._parts))
            case Control.BACK:
                if self._later[-1:] != [SAVEPOINT.format(self._parts)]:
                    self._run([Statement(Template(BACK.format(self._parts)), [()])])
            case Control.RELEASE:
                if self._later[-1:] == [SAVEPOINT.format(self._parts)]:
                    self._later.pop()  # nothing was done behind it
                else:
                    self._later.append(RELEASE.format(self._parts))
                self._parts -= 1
            case Control.COMMIT if self._begin or self._over:
                self._begin, self._over = [], False  # nothing was sent, or all
                self.answered(wrote=False)
            case Control.COMMIT:
                self.wait.pause()
                self._commits = True
                try:
                    self.commit()  # it ends what is to be released
                finally:
                    self._commits = False
                if self._begun_by in (Control.BEGIN, Control.BEGIN_NOWAIT):
                    self._former = None
                self.answered(wrote=not self._reads)
            case Control.ROLLBACK:
                self.settle()
            case Control.JITTER:
                self.engine.waits.sleep(self.engine.random.random() * JITTER)
            case Control.RECONNECT:
                self._anew(self.end_lost, self._later_wait())
            case Control.LEAVE:
                self._anew(self._find_writing, self.wait)
            case Control.OUTCOME:
                return self._look_up()
        return None

    def outcome(self, most: float = LOOKUP) -> bool | None:
        """Return whether an interrupted COMMIT succeeded; None if that cannot be determined. Never raises.

        most: the maximum number of seconds to wait for the server; it is never beyond the deadline.
        """
        try:
            return self._look_up(most)
        except Error:
            return None

    def _look_up(self, most: float = inf) -> bool | None:
        self._commits = False
        self.engine.events.count("lookups")
        wait = self._later_wait()
        wait.deadline = min(wait.deadline, time.monotonic() + most)
        return self._anew(lambda: self.look_up(wait), wait)

    def _later_wait(self) -> Wait:
        # For what is to be done after a connection was lost. `roost serve` has a limit for the statement, not for this.
        if self.wait.work is not None:
            return Wait(max(self.wait.deadline, time.monotonic() + LOOKUP), work=self.wait.work)
        return Wait(self.wait.deadline + LAST - GRACE)

    def settle(self) -> None:
        """Roll back what is open. Never raises."""
        self._begin, self._over = [], False
        if self.broken:
            return  # it is closed before anything else is said on it, and the server rolls back
        try:
            self.roll_back()
            self.answered(wrote=False)  # a refusal is an answer, too
        except (self.failures, Error):
            self.broken = True

    def close(self) -> None:
        """Close the connection; the writer's row goes with it, and the server rolls back whatever is open."""
        if self._noted and not self.broken and not self.in_transaction:
            try:
                self.wait = Wait(time.monotonic() + PARTING - GRACE)
                self.forget()
            except Error as error:
                log.debug("a writer's row stays for a day: %s", error)
        self.hang_up()
        self.leave_primary()

    @property
    def one_by_one(self) -> bool:
        """Whether each statement of a transaction is a text of its own."""
        return False

    @property
    def received(self) -> int:
        """The bytes of the last answer, as far as they were counted: at least where there were many."""
        return int(self.raw.received)

    @abstractmethod
    def position(self) -> str:
        """Return what a replica must have to have all that was committed here by now."""

    @abstractmethod
    def reaches(self, position: str, seconds: float) -> bool:
        """Return whether this is a replica that has a position; wait for it for so long."""

    @abstractmethod
    def limit(self, seconds: float) -> None:
        """Limit every wait for the server, both for sending and for its answer.

        After that the connection counts as lost, unless `waits_on` extends the wait.
        """

    def begin_read(self) -> None:
        """Switch to another server if this one lacks data that was already returned.

        Not with BEGIN: a batch accepts requests until its first statement, and their callers may know of later writes.
        """
        while not self.is_current():
            self.reconnect(self.wait)
            self.begin(self._begun_by)

    def begin_write(self) -> None:
        """Say before the first statement of a batch that writes what cannot be said along with it."""

    def answered(self, *, wrote: bool) -> None:
        """Note that callers are about to be told what this server has: later reads have it, too."""
        if wrote or not self.raw.replica:
            self.engine.replicas.wrote = time.monotonic()

    def begins(self) -> None:
        """Note that the texts of `_begin` are about to be sent."""

    def ended(self) -> None:
        """Note that the transaction was committed along with its last statement."""

    @abstractmethod
    def ask(self, sql: str, row: Row, by_settings: bool) -> list[Row]:
        """Run a query in a snapshot of its own, outside of any transaction.

        by_settings: settings of the session decide how a server spells its values.
        """

    @abstractmethod
    def exchanged(self, exchange: Exchange) -> int:
        """Begin, do the work, and commit: one text. Return the number that was written, where there is an answer."""

    @abstractmethod
    def written(self, sql: str, row: Row) -> str:
        """Return a statement with its parameters written into it."""

    @abstractmethod
    def commit(self) -> None:
        """Commit."""

    @abstractmethod
    def roll_back(self) -> None:
        """Roll back what is open."""

    @abstractmethod
    def end_lost(self) -> None:
        """End the lost connection's transaction, in case the server has not noticed the loss."""

    @abstractmethod
    def look_up(self, wait: Wait) -> bool | None:
        """Find out whether the last batch's COMMIT succeeded; None if that cannot be determined.

        If it did not, write the last number before the next batch's, so that a late text of the batch is refused.
        """

    @abstractmethod
    def forget(self) -> None:
        """Remove the writer's row."""


def _longest(values: Iterable[Any]) -> int:
    # In bytes, or characters of texts; many rows may be lists of values.
    found = 0
    for each in values:
        if isinstance(each, (str, bytes)):
            found = max(found, len(each))
        elif isinstance(each, (list, tuple)):
            found = max(found, _longest(each))
    return found
