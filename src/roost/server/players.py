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
from typing import Any, Protocol

from roost.protocols.codec import Codec, Late, Session
from roost.server.counters import Counters, Tally
from roost.server.settings import Role, Settings
from roost.server.tasks import Tasks
from roost.server.turn import Played, Turn
from roost.store.served import Limits, SlowLines
from roost.store.served_server import FOREVER, ServerDatabase

MANY = 8  # clients; a turn that expects fewer starts without waiting for more
ENOUGH = 0.75  # the fraction of the expected clients with which a turn starts
FADES = 0.9  # the factor by which the expected number decreases with each turn that has fewer clients
LONGEST = 0.003  # seconds that a turn waits for more clients at most; never longer than the last turn took
AGAIN = 0.03  # seconds between attempts to run a line that needs a lock of another session
TRYING = 0.02  # seconds that a turn of such attempts should take at most, since it occupies a connection


class Client(Protocol):
    """The part of a connection that a player uses."""

    session: Session
    codec: Codec
    gone: bool
    passed_over: bool  # the last turn had no room for its requests
    locked: float  # the time since which its lines wait for another session's lock; 0.0: they do not
    blocked: bool  # its first line still waits for that lock

    def answer(self, text: Any, late: Late | None, rest: Any, seconds: float, alone: bool) -> None:
        """Send the answers of a turn."""

    def block(self, rest: Any) -> None:
        """Note that its next line waits for another session's lock, and that its later lines wait for that line."""

    def abort(self) -> None:
        """Close at once."""


Taken = list[tuple[Client, Any]]  # clients of one protocol, and their chunks


class Server(Protocol):
    """The part of a worker that a player uses."""

    settings: Settings
    role: Role
    counters: dict[str, Counters]  # by the name of the protocol
    codecs: dict[str, Codec]
    waiting: Taken

    def take(self) -> Taken:
        """Take the clients of the next turn from the queue; they all speak one protocol."""

    def schedule(self) -> None:
        """Schedule a turn for when the loop has read every socket that is ready."""

    def played(self, taken: Taken, played: Played, seconds: float) -> None:
        """Answer the connections of a turn."""

    def failed(self, taken: Taken, error: BaseException | None = None) -> None:
        """Close the connections of a turn whose outcome is unknown."""


class Player(Protocol):
    """Runs the requests that wait in a worker."""

    def play(self) -> None:
        """Run the waiting requests, or as many as a turn has room for."""

    def limit(self, limits: Limits) -> None:
        """Set the limits of turns from now on."""

    def forget(self) -> None:
        """Invalidate all opened indexes, so that each is checked again before its next use."""

    async def close(self) -> None:
        """Close the database connections."""


class InTasks:
    """Runs turns on a database server."""

    def __init__(self, server: Server, databases: list[ServerDatabase], tasks: Tasks) -> None:
        self._server = server
        self._tasks = tasks
        self._databases = databases
        self._tallies: dict[ServerDatabase, Tally] = {database: Tally() for database in databases}
        self._turns = {
            (database, name): Turn(database, codec, tally)
            for database, tally in self._tallies.items()
            for name, codec in server.codecs.items()
        }
        self._free = list(databases)
        self._all_free: asyncio.Event | None = None  # set when no turn runs, if `close` waits for that
        # Lines that wait for another session's lock, by what they modify.
        self._blocked: dict[tuple[Codec, Hashable], deque[tuple[Client, Any]]] = {}
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
        """Set the limits of turns from now on."""
        for database in self._databases:
            database.limit(limits)

    def forget(self) -> None:
        """Invalidate all opened indexes, so that each is checked again before its next use."""
        self._databases[0].forget()

    async def close(self) -> None:
        """Close the database connections when their turns have ended."""
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
            server.waiting = [each for each in server.waiting if not self._joins(*each)]
        while self._free and server.waiting and not self._gathers() and (taken := server.take()):
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            self._gathered = False
            self._usual = max(len(taken), self._usual * FADES)
            self._begin(taken, slow_path=SlowLines())

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

    def _begin(self, taken: Taken, tried: Sequence[tuple[Codec, Hashable] | None] = (), **how: Any) -> None:
        database = self._free.pop()
        codec = taken[0][0].codec
        turn = self._turns[database, codec.name]
        arrived = [(client.session, text) for client, text in taken]
        begun = time.monotonic()
        how.setdefault("deadline", begun + (self._server.settings.timeout or FOREVER))
        self._tasks.start(partial(turn.play, arrived, **how), partial(self._done, database, taken, begun, tried))

    def _done(
        self,
        database: ServerDatabase,
        taken: Taken,
        begun: float,
        tried: Sequence[tuple[Codec, Hashable] | None],
        played: Played | BaseException,
    ) -> None:
        server = self._server
        self._took = time.monotonic() - begun
        self._free.append(database)
        if self._all_free is not None and len(self._free) == len(self._databases):
            self._all_free.set()
        self._count(database, taken[0][0].codec)
        blocked: set[int] = set()
        if isinstance(played, BaseException):
            server.failed(taken, played)
        else:
            blocked = played.blocked
            for place in blocked:
                client = taken[place][0]
                client.blocked = True
                self._block(client, played.rest.pop(place, client.codec.empty), bool(tried))
            server.played(taken, played, self._took)
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

    def _count(self, database: ServerDatabase, codec: Codec) -> None:
        tally, counters = self._tallies[database], self._server.counters[codec.name]
        counters.requests += tally.requests
        counters.errors += tally.errors
        counters.rows += tally.rows
        counters.unavailable += tally.unavailable
        tally.requests = tally.errors = tally.rows = tally.unavailable = 0

    # --- lines that need a lock of another session ----------------------------------------------------------------

    def _block(self, client: Client, text: Any, again: bool = False) -> None:
        line, rest = client.codec.cut(text, 0)
        client.block(rest)
        waiting = self._blocked.setdefault((client.codec, client.codec.key_of(client.session, line)), deque())
        waiting.appendleft((client, line)) if again else waiting.append((client, line))

    def _joins(self, client: Client, text: Any) -> bool:
        # Whether the client's next line has to wait with blocked lines that modify by the same key.
        codec = client.codec
        if client.gone or not codec.modifies(text):
            return False
        if (codec, codec.key_of(client.session, codec.cut(text, 0)[0])) not in self._blocked:
            return False
        self._block(client, text)
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
        late: Taken = []
        first: dict[tuple[Codec, Hashable], tuple[Client, Any]] = {}
        for key, waiting in [each for each in self._blocked.items() if each[0][0] is codec]:
            left = deque([each for each in waiting if not each[0].gone])
            while left and left[0][0].locked <= until and len(late) < self._lot:
                late.append(left.popleft())
            if left:
                self._blocked[key] = left
                first[key] = left[0]
            else:
                del self._blocked[key]
        if late:  # past their timeout: a last attempt, which reports the lock if it is still held
            self._begin(late, [None], slow_path=SlowLines(), waits=False, deadline=0.0)
        elif first:
            self._all_tried = len(first) <= self._lot
            first = dict(list(first.items())[: self._lot])
            for key in first:
                waiting = self._blocked[key] = self._blocked.pop(key)  # moved behind the other keys
                waiting.popleft()
            self._begin(list(first.values()), list(first), slow_path=SlowLines(), waits=False)
        else:
            self._trying = False
            self._try_again()  # lines of another protocol may be left
