"""A turn: what has arrived from all connections becomes one transaction, and an answer for each request. No sockets.

Every byte of the turn was received before its transaction begins, so a request sees all that was answered before it
was sent. Nothing is answered before COMMIT. Where an error has undone the whole transaction (a trigger's
RAISE(ROLLBACK), a full disk, a deferred foreign key at COMMIT), the turn is played again in halves, until the request
that caused it stands alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from roost.errors import Busy, Error
from roost.protocols.handlersocket import answers as say
from roost.protocols.handlersocket.exchange import Arrived, Exchange, Late, Run, Singles
from roost.protocols.handlersocket.opened import Openings
from roost.server.counters import Counters
from roost.server.settings import Role
from roost.store.served import Budget, Database, Limits, Undone

log = logging.getLogger("roost.server")


class Played:
    """What the connections of a turn are answered, in their order."""

    __slots__ = ("late", "rest", "seconds", "texts")

    def __init__(self, texts: list[str], late: dict[int, Late], rest: dict[int, str], seconds: Sequence[float]) -> None:
        self.texts = texts  # "" where there is nothing to say yet
        self.late = late  # by their places, after their texts
        self.rest = rest  # by their places: the lines that the turn had no room for
        self.seconds = seconds  # that each took of the turn


class Turn:
    """Plays turns on one database.

    may: whether a table may be opened, by the names of the database and the table.
    """

    def __init__(self, database: Database, may: Callable[[str, str], bool], role: Role, counters: Counters) -> None:
        self._database = database
        self._openings = Openings(may, writes=role == "write")
        self._counters = counters
        self._begun = False
        self._failed: Error | None = None  # why there is no transaction

    def ready(self) -> bool:
        """Begin the transaction of the next turn; False where somebody else holds the write lock."""
        self._begin()
        return not isinstance(self._failed, Busy)

    def _begin(self) -> None:
        self._failed = self._database.begin()
        self._begun = True

    def play(self, arrived: Arrived) -> Played:
        """Answer the complete lines of each connection, without the last LF, as far as there is room."""
        self._database.budget.begin()
        try:
            return self._play(arrived)
        except Undone:
            self._database.undo()
            self._database.budget.begin()
            return self._in_halves(arrived)

    def _play(self, arrived: Arrived) -> Played:
        if not self._begun:
            self._begin()
        self._begun = False
        database = self._database
        exchange = Exchange(arrived, self._openings, database.version, database.budget, self._failed)
        try:
            self._answer(exchange)
        except Undone:
            raise
        except Exception as error:  # a mistake: whose request it is, is found out
            log.exception("a turn failed; it is played again in halves")
            raise Undone from error
        except BaseException:
            database.undo()
            raise
        if self._failed is None:
            database.commit()  # the last that can fail: what is played again was never committed
        counters = self._counters
        counters.requests += exchange.requests
        counters.errors += exchange.errors
        counters.rows += exchange.rows
        return Played(exchange.texts, exchange.late, exchange.rest, exchange.seconds)

    def _answer(self, exchange: Exchange) -> None:
        database = self._database
        work = exchange.play()
        asked = next(work, None)
        while asked is not None:
            begun = monotonic()
            answer: object
            if isinstance(asked, Run):
                answer = database.run(*asked)
            elif isinstance(asked, Singles):
                answer = database.perform(asked.requests)
            else:
                answer = database.open(asked.table, asked.key, asked.columns, asked.fcolumns)
            exchange.elapsed = monotonic() - begun
            try:
                asked = work.send(answer)
            except StopIteration:
                return

    def _in_halves(self, arrived: Arrived) -> Played:
        # Plays what failed together, a half after the other, each in a transaction of its own.
        lines = arrived[0][1].split("\n") if len(arrived) == 1 else []
        if len(lines) == 1:
            return self._alone(arrived)
        if not lines:
            middle = len(arrived) // 2
            first, second = self._part(arrived[:middle]), self._part(arrived[middle:])
            late = first.late | {place + middle: late for place, late in second.late.items()}
            rest = first.rest | {place + middle: text for place, text in second.rest.items()}
            return Played(first.texts + second.texts, late, rest, [*first.seconds, *second.seconds])
        session, middle = arrived[0][0], len(lines) // 2
        played = self._part([(session, "\n".join(lines[:middle]))])
        left = "\n".join(lines[middle:])
        if session.foreign:
            return played
        if played.late:
            late_one = played.late[0]
            played.late[0] = Late(late_one.text, f"{late_one.rest}\n{left}" if late_one.rest else left)
            return played
        if played.rest:
            played.rest[0] += "\n" + left
            return played
        others = self._part([(session, left)])
        seconds = [played.seconds[0] + others.seconds[0]]
        return Played([played.texts[0] + others.texts[0]], others.late, others.rest, seconds)

    def _part(self, arrived: Arrived) -> Played:
        if not self._database.budget.open:
            rest = {place: text for place, (_, text) in enumerate(arrived)}
            return Played([""] * len(arrived), {}, rest, [0.0] * len(arrived))
        try:
            return self._play(arrived)
        except Undone:
            self._database.undo()
            return self._in_halves(arrived)

    def _alone(self, arrived: Arrived) -> Played:
        # One request: its error is its answer.
        begun = monotonic()
        try:
            return self._play(arrived)
        except Undone as undone:
            self._database.undo()
            self._database.budget.take(0)
            cause = undone.__cause__
            if not isinstance(cause, Error):
                log.error("a request failed", exc_info=cause)
                cause = Error()
            self._counters.requests += 1
            self._counters.errors += 1
            return Played([say.refusal(cause) + "\n"], {}, {}, [monotonic() - begun])


__all__ = ["Budget", "Late", "Limits", "Played", "Turn"]
