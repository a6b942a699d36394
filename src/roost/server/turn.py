"""A turn: the requests received from all connections become one batch, and each gets an answer. No sockets, no SQL.

Every byte of a turn is received before its transaction begins, so a request sees everything that was answered before it
was sent. Nothing is answered before COMMIT. The batch's policy is that of a store: a batch that fails as a whole (a
trigger's RAISE(ROLLBACK), a full disk, a deferred foreign key at COMMIT) is run again in halves, until the request that
caused the failure is alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from time import monotonic

from roost.batching.atoms import SlowPath
from roost.batching.batch import Part, Running
from roost.errors import Busy, CannotOpen, Error, Missing, StatementFailed
from roost.protocols.codec import Piece, Responder
from roost.server.client import Codec
from roost.server.counters import Counters
from roost.store.served import Budget, Careful, Context, Database, Undone, kept

log = logging.getLogger("roost.server")


class Turn:
    """Runs turns of one protocol on one database, one after the other.

    pieces: of the present turn, one for each connection.
    deadline: the end of the wait for an unreachable database, by the monotonic clock.
    """

    def __init__(self, database: Database, codec: Codec, counters: Counters) -> None:
        self.database, self.codec, self.counters = database, codec, counters
        self.pieces: Sequence[Piece] = ()
        self.deadline = inf
        self.halved = False  # a part has failed as a whole and was split
        self._attempt: Responder | None = None  # the responder whose transaction is not committed yet

    def play(
        self, pieces: Sequence[Piece], slow_path: SlowPath | None = None, *, waits: bool = True, deadline: float = inf
    ) -> Error | None:
        """Answer the requests, as far as the budget allows; return the error if no transaction could be begun.

        In that case nothing is answered, and `refuse` does it.
        slow_path, waits: for locks of other sessions; see `Database.transact`.
        """
        self.pieces, self.deadline, self.halved = pieces, deadline, False
        self.database.budget.begin()
        failed = self.database.transact(Requests(self, pieces), slow_path, waits=waits)
        self._finish()
        return failed

    def refuse(self, pieces: Sequence[Piece], error: Error) -> None:
        """Answer with an error every request that needs the database."""
        self.pieces = pieces
        Requests(self, pieces).refuse(error)
        self._finish()

    def _finish(self) -> None:
        self.undo()
        if self.halved:
            for piece in self.pieces:
                piece.gather(self.codec.join)

    def begin(self, pieces: Sequence[Piece], budget: Budget, failed: Error | None = None) -> Responder:
        self.undo()
        made = self._attempt = self.codec.responder(pieces, self.database.version, budget, failed)
        return made

    def undo(self) -> None:
        """Undo the last attempt, if its transaction was not committed."""
        if self._attempt is not None:
            self._attempt.undo()
            self._attempt = None

    def committed(self) -> None:
        responder, counters = self._attempt, self.counters
        assert responder is not None
        self._attempt = None
        for piece in responder.pieces:
            piece.done = True
        counters.requests += responder.requests
        counters.errors += responder.errors
        counters.rows += responder.rows

    def part(self, *pieces: Piece) -> Part:
        return Requests(self, pieces)


class Requests(Part):
    """Requests of several connections, as a part of a batch."""

    __slots__ = ("_late", "_pieces", "_turn")

    def __init__(self, turn: Turn, pieces: Sequence[Piece]) -> None:
        self._turn = turn
        self._pieces = pieces
        self._late = False  # one of their statements exceeded its timeout

    def __len__(self) -> int:
        return len(self._pieces) if len(self._pieces) > 1 else self._turn.codec.count(self._pieces[0].requests)

    @property
    def writes(self) -> bool:
        return self._turn.codec.writes(self._turn.pieces)

    def _ready(self) -> Sequence[Piece]:
        return self._pieces if self._pieces is self._turn.pieces else [each for each in self._pieces if each.ready]

    def run(self, context: Context) -> Running:
        """Answer the requests, as far as the budget allows; the answers wait for COMMIT."""
        turn = self._turn
        database = turn.database
        pieces = self._ready()
        if not pieces or not database.budget.open:
            return []
        database.look(context)
        responder = turn.begin(pieces, database.budget)
        try:
            work = responder.play()
            asked = next(work, None)
            while asked is not None:
                begun = monotonic()
                method, *given = asked
                answer = yield from getattr(database, method)(*given)
                responder.elapsed = monotonic() - begun
                try:
                    asked = work.send(answer)
                except StopIteration:
                    break
            yield from database.confirm()
        except (Undone, Missing, StatementFailed, Busy) as error:
            cause = error.__cause__ if isinstance(error, Undone) else error
            self._late = getattr(cause, "word", "") == "timeout"
            if isinstance(error, (Missing, StatementFailed)) and database.doubts():
                raise Careful from None  # the table may have changed since it was opened: the statement failed for that
            raise
        except (Error, Careful):
            raise
        except Exception:
            # A defect of the server's own code; the halves show which request triggers it.
            log.exception("a turn failed; it is run again in halves")
            raise
        return None

    def committed(self, stats: object = None) -> None:
        self._turn.committed()

    def refuse(self, error: BaseException) -> None:
        """Answer with an error every request that needs the database; close a connection that cannot be answered."""
        turn = self._turn
        cause = error.__cause__ if isinstance(error, Undone) else error
        if not isinstance(cause, Error):
            log.error("a request failed", exc_info=cause)
            cause = Error()
        turn.database.refused(kept(cause))
        responder = turn.begin(self._ready(), Budget(), cause)
        turn.database.budget.take(0)  # takes no bytes, but checks the time
        try:
            for _ in responder.play():
                raise AssertionError("a responder without a transaction asks nothing of the database")
        except Exception:
            # A defect of the server's own code, in parsing.
            turn.undo()
            parts = self.halves()
            for part in reversed(parts):
                part.refuse(error)
            if not parts:
                log.exception("a request cannot be answered; its connection is closed")
                for piece in responder.pieces:
                    piece.session.foreign = True
            return
        if isinstance(cause, CannotOpen):
            turn.counters.unavailable += responder.errors
        turn.committed()

    def halves(self) -> list[Part]:
        """Return the second half and the first: of the connections, or of the requests of a single connection.

        After a statement that timed out, return each connection by itself: every half would wait for the statement
        again.
        """
        turn, pieces = self._turn, self._pieces
        budget = turn.database.budget
        if not turn.halved or not turn.database.looks:  # the failed attempt has used up the turn's time
            turn.halved = True
            budget.begin(budget.limits.request if self._late else 0.0)
        if self._late and len(pieces) > 1:
            return [turn.part(piece) for piece in reversed(pieces)]
        middle = len(pieces) // 2
        if middle:
            return [turn.part(*pieces[middle:]), turn.part(*pieces[:middle])]
        (piece,) = pieces
        found = turn.codec.halves(piece.requests)
        if found is None:
            return []
        first, second = piece.halve(*found)
        return [turn.part(second), turn.part(first)]

    def late(self, until: float) -> Part | None:
        """Return itself if the turn's deadline is over by then; else None: unanswered requests wait for later turns."""
        return self if self._turn.deadline <= until else None

    def left(self) -> Part | None:
        """Return itself: a second run skips what is answered."""
        return self

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Mark the request as blocked, for a later turn of such requests; refuse it if its time is over.

        That is so if its own statement timed out, or in its last attempt, which has no time left.
        """
        if error.word == "timeout" or self._turn.deadline <= monotonic():
            self.refuse(error)
        else:
            (piece,) = self._pieces
            piece.blocked = True
