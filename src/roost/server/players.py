"""A worker's turns on a database server: several at a time, each a task (`tasks.py`) on a connection of its own.

A client is in one turn at a time. A turn waits a tenth of a second for a lock that another session holds. Then the line
that needs the lock is isolated: the other lines are answered, and this one is retried until its timeout. Meanwhile only
lines that modify by the same key wait with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, cast

from roost.batching.atoms import SlowPath
from roost.protocols.codec import Piece
from roost.server.client import Codec, Pieces, Server
from roost.server.tasks import Tasks
from roost.server.turn import Turn
from roost.store.served import Limits
from roost.store.served_databases import FOREVER, ServerDatabase

MANY = 8  # clients; a turn that expects fewer starts without waiting for more
ENOUGH = 0.75  # the fraction of the expected clients with which a turn starts
FADES = 0.9  # the factor by which the expected number decreases with each turn that has fewer clients
LONGEST = 0.003  # seconds that a turn waits for more clients at most; never longer than the last turn took
AGAIN = 0.03  # seconds between attempts to run a line that needs a lock of another session
TRYING = 0.02  # seconds that a turn of such attempts should take at most, since it occupies a connection

Tried = tuple[Codec, Hashable]  # what lines wait for that are tried again: the key that they modify


# Only whether there is one counts: `Requests`, the part of a batch, marks the blocked pieces itself.
SLOW_PATH = cast(SlowPath, object())


class InTasks:
    """Runs turns on a database server."""

    def __init__(self, server: Server, databases: list[ServerDatabase], tasks: Tasks) -> None:
        self._server = server
        self._tasks = tasks
        self._databases = databases
        self._turns = {
            (database, name): Turn(database, codec, server.counters[name])
            for database in databases
            for name, codec in server.codecs.items()
        }
        self._free = list(databases)
        self._all_free: asyncio.Event | None = None  # set when no turn runs, if `close` waits for that
        # Lines that wait for another session's lock, by what they modify.
        self._blocked: dict[Tried, deque[Piece]] = {}
        self._usual = 0.0  # the number of clients in recent turns
        self._took = 0.0  # seconds that the last turn took
        self._gathering: asyncio.TimerHandle | None = None  # runs while a turn waits for more clients
        self._gathered = False  # that time has passed
        self._trying = False
        self._due = False  # a retry waits for a free connection
        self._lot = 8  # the number of keys whose first lines are retried in one turn
        self._all_tried = True  # the last retry was for all keys of its protocol
        self._tried: Codec | None = None  # the protocol whose lines were retried last

    def limit(self, limits: Limits) -> None:
        for database in self._databases:
            database.limit(limits)

    def forget(self) -> None:
        """Invalidate all opened indexes, so that each is checked again before its next use."""
        self._databases[0].forget()

    async def close(self) -> None:
        while len(self._free) < len(self._databases):
            self._all_free = asyncio.Event()
            await self._all_free.wait()
        self._free.clear()  # so that no blocked line is retried
        for database in self._databases:
            database.close()
        self._tasks.close()

    def play(self) -> None:
        """Start as many turns as there are free connections."""
        server = self._server
        if self._blocked and server.waiting:
            server.waiting = [piece for piece in server.waiting if not self._joins(piece)]
        while self._free and server.waiting and not self._gathers() and (taken := server.take()):
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            self._gathered = False
            self._usual = max(len(taken), self._usual * FADES)
            self._begin(taken)

    def _gathers(self) -> bool:
        # Whether a turn waits for more clients. Clients that were answered together send their next requests at nearly
        # the same time, and the fixed cost of a turn is that of some twenty lookups.
        if self._usual < MANY or self._gathered or len(self._server.waiting) >= ENOUGH * self._usual:
            return False
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(min(self._took, LONGEST), self._go)
        return True

    def _go(self) -> None:
        self._gathered = True
        self.play()

    def _begin(self, pieces: Pieces, tried: Sequence[Tried | None] = (), **how: Any) -> None:
        database = self._free.pop()
        turn = self._turns[database, pieces[0].client.codec.name]
        begun = time.monotonic()
        how.setdefault("deadline", begun + (self._server.settings.timeout or FOREVER))

        def play() -> None:
            failed = turn.play(pieces, SLOW_PATH, **how)
            if failed is not None:
                turn.refuse(pieces, failed)

        self._tasks.start(play, partial(self._done, database, pieces, begun, tried))

    def _done(
        self,
        database: ServerDatabase,
        pieces: Pieces,
        begun: float,
        tried: Sequence[Tried | None],
        failed: BaseException | None,
    ) -> None:
        server = self._server
        self._took = time.monotonic() - begun
        self._free.append(database)
        if self._all_free is not None and len(self._free) == len(self._databases):
            self._all_free.set()
        blocked: set[int] = set()
        if failed is not None:
            server.failed(pieces, failed)
        else:
            blocked = {place for place, piece in enumerate(pieces) if piece.blocked}
            for place in blocked:
                piece = pieces[place]
                piece.client.blocked = True
                rest, piece.rest = piece.rest, None
                self._block(piece, rest, bool(tried))
            server.played(pieces, self._took)
        for place, key in enumerate(tried):
            if place not in blocked and key is not None:  # it is answered: the lines behind it join the usual turns
                server.waiting += self._blocked.pop(key, ())
        if tried:
            self._trying = False
            if self._took > TRYING:
                self._lot = max(1, self._lot // 2)
            elif len(tried) == self._lot:
                self._lot *= 2
        if self._due:
            self._try()  # before `play`, which would take the connection each time that clients wait
        else:
            self._try_again()
        self.play()

    # --- lines that need a lock of another session ----------------------------------------------------------------

    def _block(self, piece: Piece, requests: Any, again: bool = False) -> None:
        codec, client = piece.client.codec, piece.client
        line, rest = codec.cut(requests, 0)
        client.block(rest)
        waiting = self._blocked.setdefault((codec, codec.key_of(piece.session, line)), deque())
        alone = Piece(piece.session, line, client)
        waiting.appendleft(alone) if again else waiting.append(alone)

    def _joins(self, piece: Piece) -> bool:
        # Whether the client's next line has to wait with blocked lines that modify by the same key.
        codec, requests = piece.client.codec, piece.requests
        if piece.client.gone or not codec.modifies(requests):
            return False
        if (codec, codec.key_of(piece.session, codec.cut(requests, 0)[0])) not in self._blocked:
            return False
        self._block(piece, requests)
        return True

    def _try_again(self) -> None:
        if self._blocked and not self._trying:
            self._trying = True
            pause = AGAIN if self._all_tried else min(AGAIN, self._took)
            asyncio.get_running_loop().call_later(pause, self._try)

    def _try(self) -> None:
        # Retry the first line of each key, a few keys per turn, in rotation.
        self._due = not self._free
        if self._due:
            return
        codecs = list(dict.fromkeys([codec for codec, _ in self._blocked]))  # rotated: a turn has one protocol
        codec = self._tried = next((each for each in codecs if each is not self._tried), codecs[0] if codecs else None)
        until = time.monotonic() - (self._server.settings.timeout or FOREVER)
        late: Pieces = []
        first: dict[Tried, Piece] = {}
        for key, waiting in [each for each in self._blocked.items() if each[0][0] is codec]:
            left = deque([piece for piece in waiting if not piece.client.gone])
            while left and left[0].client.locked <= until and len(late) < self._lot:
                late.append(left.popleft())
            if left:
                self._blocked[key] = left
                first[key] = left[0]
            else:
                del self._blocked[key]
        if late:  # past their timeout: a last attempt, which reports the lock if it is still held
            self._begin(late, [None], waits=False, deadline=0.0)
        elif first:
            self._all_tried = len(first) <= self._lot
            first = dict(list(first.items())[: self._lot])
            for key in first:
                waiting = self._blocked[key] = self._blocked.pop(key)  # moved behind the other keys
                waiting.popleft()
            self._begin(list(first.values()), list(first), waits=False)
        else:
            self._trying = False
            self._try_again()  # lines of another protocol may be left
