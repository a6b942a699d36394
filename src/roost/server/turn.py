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
from typing import Any

from roost.batching.parts import Context, Part, Running, SlowPath
from roost.errors import Busy, CannotOpen, Error, Missing, StatementFailed
from roost.protocols.codec import Arrived, Codec, Late, Responder
from roost.server.counters import Counted
from roost.store.served import Budget, Careful, Database, Undone, kept

log = logging.getLogger("roost.server")


class Played:
    """The answers of a turn so far, in the order of its connections."""

    __slots__ = (
        "_arrived",
        "_codec",
        "_next",
        "_whole",
        "attempt",
        "blocked",
        "deadline",
        "halved",
        "late",
        "pieces",
        "rest",
        "seconds",
        "texts",
    )

    def __init__(self, arrived: Arrived, codec: Codec, deadline: float = inf) -> None:
        self.deadline = deadline  # the end of the wait for an unreachable database, by the monotonic clock
        # The places of the connections whose next line needs a lock of another session.
        self.blocked: set[int] = set()
        self.texts: list[Any] = [codec.empty] * len(arrived)
        self.late: dict[int, Late] = {}  # delayed answers, by place; they follow the texts
        self.rest: dict[int, Any] = {}  # the lines left for later turns, by place
        self.seconds = [0.0] * len(arrived)  # the time that each connection took of the turn
        self.attempt: Responder | None = None  # the responder whose transaction is not committed yet
        self.halved = False  # a part has failed as a whole and was split
        self.pieces: Sequence[_Piece] = [(place, 0, text) for place, (_, text) in enumerate(arrived)]  # all of it
        self._arrived = arrived
        self._codec = codec
        self._next = [0] * len(arrived)  # the position in each text up to which it is answered
        self._whole = False  # one responder has answered the whole turn, as far as the budget allowed

    def ready(self, pieces: Sequence[_Piece]) -> Sequence[_Piece]:
        """Return the pieces that can run: everything before them is answered, and their connection goes on."""
        if pieces is self.pieces:
            return pieces
        arrived, late, begins = self._arrived, self.late, self._next
        return [
            piece
            for piece in pieces
            if begins[piece[0]] == piece[1]
            and piece[0] not in late
            and piece[0] not in self.blocked
            and not arrived[piece[0]][0].foreign
        ]

    def take(self, pieces: Sequence[_Piece], responder: Responder) -> None:
        """Keep the answers of a responder."""
        if pieces is self.pieces:
            self.texts, self.late, self.rest, self.seconds = (
                responder.texts,
                responder.late,
                responder.rest,
                responder.seconds,
            )
            self._whole = True
            return
        for place, (at, begin, text) in enumerate(pieces):
            self.texts[at] += responder.texts[place]
            self.seconds[at] += responder.seconds[place]
            rest = responder.rest.get(place)
            late = responder.late.get(place)
            if late is not None:
                self.late[at] = late
                rest = late.rest
            gap = self._codec.gap
            self._next[at] = begin + len(text) + gap - (0 if rest is None else len(rest) + gap)

    def finish(self) -> Played:
        """Store the unanswered rest of each text in `rest` or `late`; return itself."""
        if self._whole:
            return self
        for place, (session, text) in enumerate(self._arrived):
            if self._next[place] >= len(text) + self._codec.gap or session.foreign:
                continue
            left = text[self._next[place] :]
            late = self.late.get(place)
            if late is None:
                self.rest[place] = left
            else:
                self.late[place] = Late(late.text, left)
        return self


# A connection's place, the position at which a piece of its chunk begins, and the piece: complete requests.
_Piece = tuple[int, int, Any]


class Turn:
    """Runs turns of one protocol on one database."""

    def __init__(self, database: Database, codec: Codec, counters: Counted) -> None:
        self._database = database
        self._codec = codec
        self._counters = counters

    def play(
        self, arrived: Arrived, slow_path: SlowPath | None = None, *, waits: bool = True, deadline: float = inf
    ) -> Played:
        """Answer the complete requests of each connection, as far as the budget allows.

        slow_path, waits: for locks of other sessions; see `Database.transact`.
        """
        played = Played(arrived, self._codec, deadline)
        database = self._database
        database.budget.begin()
        lines = Lines(played.pieces, arrived, played, database, self._codec, self._counters)
        failed = database.transact(lines, slow_path, waits=waits)
        if failed is not None:
            lines.refuse(failed)
        return played.finish()


class Lines(Part):
    """Requests of several connections, as a part of a batch."""

    __slots__ = (
        "_arrived",
        "_codec",
        "_counters",
        "_database",
        "_late",
        "_pieces",
        "_played",
        "_playing",
        "_responder",
    )

    def __init__(
        self,
        pieces: Sequence[_Piece],
        arrived: Arrived,
        played: Played,
        database: Database,
        codec: Codec,
        counters: Counted,
    ) -> None:
        self._pieces = pieces
        self._arrived = arrived
        self._played = played
        self._database = database
        self._codec = codec
        self._counters = counters
        self._playing: Sequence[_Piece] = ()
        self._responder: Responder | None = None
        self._late = False  # one of their statements exceeded its timeout

    def __len__(self) -> int:
        return len(self._pieces) if len(self._pieces) > 1 else self._codec.count(self._pieces[0][2])

    @property
    def writes(self) -> bool:
        """Whether the transaction may write."""
        return self._codec.writes(self._arrived)

    def run(self, context: Context) -> Running:
        """Answer the lines, as far as the budget allows; the responder keeps the answers until COMMIT."""
        database = self._database
        self._playing = self._played.ready(self._pieces)
        if not self._playing or not database.budget.open:
            return []
        if self._codec.opens or not database.looks:
            yield from database.look(context)
        responder = self._begin(database.budget)
        try:
            work = responder.play()
            asked = next(work, None)
            while asked is not None:
                begun = monotonic()
                answer = yield from asked.run(database, context)
                responder.elapsed = monotonic() - begun
                try:
                    asked = work.send(answer)
                except StopIteration:
                    break
            yield from database.confirm()
        except Undone as undone:
            self._late = getattr(undone.__cause__, "word", "") == "timeout"
            raise
        except (Missing, StatementFailed) as error:
            self._late = error.word == "timeout"
            if database.doubts():  # the table may have changed since it was opened, and the statement failed for that
                raise Careful from None
            raise
        except Busy as error:
            self._late = error.word == "timeout"
            raise
        except (Error, Careful):
            raise
        except Exception:
            # A defect of the server's own code; the halves show which request triggers it.
            log.exception("a turn failed; it is run again in halves")
            raise
        return None

    def _begin(self, budget: Budget, failed: Error | None = None) -> Responder:
        arrived = self._arrived
        if self._playing is not self._played.pieces:
            arrived = [(arrived[place][0], text) for place, _, text in self._playing]
        played = self._played
        if played.attempt is not None:  # its transaction was rolled back
            played.attempt.undo()
        self._responder = played.attempt = self._codec.responder(arrived, self._database.version, budget, failed)
        return self._responder

    def committed(self, stats: object = None) -> None:
        """Keep the answers for the connections, and count the requests."""
        responder = self._responder
        assert responder is not None
        self._played.attempt = None
        self._played.take(self._playing, responder)
        counters = self._counters
        counters.requests += responder.requests
        counters.errors += responder.errors
        counters.rows += responder.rows

    def refuse(self, error: BaseException) -> None:
        """Answer with an error every line that needs the database; close a connection whose line cannot be answered."""
        cause = error.__cause__ if isinstance(error, Undone) else error
        if not isinstance(cause, Error):
            log.error("a request failed", exc_info=cause)
            cause = Error()
        self._database.refused(kept(cause))
        self._playing = self._played.ready(self._pieces)
        responder = self._begin(Budget(), cause)
        self._database.budget.take(0)  # takes no bytes, but checks the time
        try:
            for _ in responder.play():
                raise AssertionError("a responder without a transaction asks nothing of the database")
        except Exception:
            # A defect of the server's own code, in parsing.
            parts = self.halves()
            for part in reversed(parts):
                part.refuse(error)
            if not parts:
                log.exception("a request cannot be answered; its connection is closed")
                self._give_up()
            return
        if isinstance(cause, CannotOpen):
            self._counters.unavailable += responder.errors
        self.committed()

    def _give_up(self) -> None:
        played = self._played
        if played.attempt is not None:
            played.attempt.undo()
            played.attempt = None
        for place, _, _ in self._playing:
            self._arrived[place][0].foreign = True

    def halves(self) -> list[Part]:
        """Return the second half and the first: of the connections, or of the lines of a single connection.

        After a statement that timed out, return each connection by itself: every half would wait for the statement
        again.
        """
        pieces = self._pieces
        budget = self._database.budget
        if not self._played.halved or not self._database.looks:  # the failed attempt has used up the turn's time
            self._played.halved = True
            budget.begin(budget.limits.request if self._late else 0.0)
        if self._late and len(pieces) > 1:
            return [self._part([piece]) for piece in reversed(pieces)]
        middle = len(pieces) // 2
        if middle:
            return [self._part(pieces[middle:]), self._part(pieces[:middle])]
        place, begin, chunk = pieces[0]
        found = self._codec.halves(chunk)
        if found is None:
            return []
        first, second = found
        behind = begin + len(first) + self._codec.gap
        return [self._part([(place, behind, second)]), self._part([(place, begin, first)])]

    def _part(self, pieces: Sequence[_Piece]) -> Part:
        return Lines(pieces, self._arrived, self._played, self._database, self._codec, self._counters)

    def late(self, until: float) -> Part | None:
        """Return itself if the turn's deadline is over by then; else None: unanswered lines wait for the next turn."""
        return self if self._played.deadline <= until else None

    def left(self) -> Part | None:
        """Return itself: a second run skips the lines that are answered."""
        return self

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Mark the line as blocked, for a later turn of such lines; refuse it if its time is over.

        That is so if its own statement timed out, or in its last attempt, which has no time left.
        """
        if error.word == "timeout" or self._played.deadline <= monotonic():
            self.refuse(error)
        else:
            self._played.blocked.add(self._pieces[0][0])
