"""A worker's turns on a server: several at a time, each a task (`tasks.py`) on a connection of its own.

A client is in one of them. A turn waits for a lock that somebody else holds for a tenth of a second. Then the line that
needs it is isolated; the others are answered, and it is retried until its timeout. Meanwhile only lines that modify by
the same key wait with it.
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

MANY = 8  # clients; a turn for which fewer are expected waits for nobody
ENOUGH = 0.75  # of the clients that are expected
FADES = 0.9  # what is expected, from turn to turn, where fewer come
LONGEST = 0.003  # seconds that a turn waits for them, where the last one took no less
AGAIN = 0.03  # seconds until a line that needs such a lock is tried again


class Client(Protocol):
    """A connection, as those who play its lines know it."""

    session: Session
    codec: Codec
    gone: bool
    passed_over: bool  # the last turn had no room for it
    locked: float  # since when its lines wait for somebody else's lock
    blocked: bool  # the first of them goes on waiting for it

    def answer(self, text: Any, late: Late | None, rest: Any, seconds: float, alone: bool) -> None:
        """Send what was answered."""

    def block(self, rest: Any) -> None:
        """Note that its next line waits for a lock that somebody else holds, and the others for that one."""

    def abort(self) -> None:
        """Close at once."""


Taken = list[tuple[Client, Any]]  # clients of one protocol, and their chunks


class Server(Protocol):
    """A worker, as those who play its turns know it."""

    settings: Settings
    role: Role
    counters: dict[str, Counters]  # by the name of the protocol
    codecs: dict[str, Codec]
    waiting: Taken

    def take(self) -> Taken:
        """Take who is played now: clients of one protocol."""

    def schedule(self) -> None:
        """Have what waits played when the loop has read every socket that is ready."""

    def played(self, taken: Taken, played: Played, seconds: float) -> None:
        """Answer the connections of a turn."""

    def failed(self, taken: Taken, error: BaseException | None = None) -> None:
        """Close the connections of a turn whose outcome is not known."""


class Player(Protocol):
    """Plays what waits in a worker."""

    def play(self) -> None:
        """Play what waits, or as much of it as a turn has room for."""

    def limit(self, limits: Limits) -> None:
        """Say what turns may take from now on."""

    def forget(self) -> None:
        """Have everything that was opened looked at again."""

    async def close(self) -> None:
        """Close the connections."""


class InTasks:
    """Turns on a server."""

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
        self._all_free: asyncio.Event | None = None  # of who waits to close them
        self._blocked: dict[
            tuple[Codec, Hashable], deque[tuple[Client, Any]]
        ] = {}  # lines that need a lock, by what they ask for
        self._usual = 0.0  # how many clients a turn has had of late
        self._took = 0.0  # seconds, of the last one
        self._gathering: asyncio.TimerHandle | None = None  # until when a turn waits for more clients
        self._gathered = False  # that time is over
        self._trying = False
        self._tried: Codec | None = None  # whose lines were tried last

    def limit(self, limits: Limits) -> None:
        """Say what turns may take from now on."""
        for database in self._databases:
            database.limit(limits)

    def forget(self) -> None:
        """Have everything that was opened looked at again."""
        self._databases[0].forget()

    async def close(self) -> None:
        """Close the connections, when their turns are over."""
        while len(self._free) < len(self._databases):
            self._all_free = asyncio.Event()
            await self._all_free.wait()
        self._free.clear()  # nothing is tried again
        for database in self._databases:
            database.close()
        self._tasks.close()

    def play(self) -> None:
        """Begin as many turns as there are free connections."""
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
        # Whether a turn waits for more clients. Those who were answered together ask again together, but not at the
        # same moment; and a turn costs as much as some twenty of its lookups.
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
            if place not in blocked and key is not None:  # it has its answer, so those behind it go the usual way
                server.waiting += self._blocked.pop(key, ())
        if tried:
            self._trying = False
        self._try_again()
        self.play()

    def _count(self, database: ServerDatabase, codec: Codec) -> None:
        tally, counters = self._tallies[database], self._server.counters[codec.name]
        counters.requests += tally.requests
        counters.errors += tally.errors
        counters.rows += tally.rows
        tally.requests = tally.errors = tally.rows = 0

    # --- lines that need a lock which somebody else holds ---------------------------------------------------------

    def _block(self, client: Client, text: Any, again: bool = False) -> None:
        line, rest = client.codec.cut(text, 0)
        client.block(rest)
        waiting = self._blocked.setdefault((client.codec, client.codec.key_of(client.session, line)), deque())
        waiting.appendleft((client, line)) if again else waiting.append((client, line))

    def _joins(self, client: Client, text: Any) -> bool:
        # Whether a line waits with others that need the same.
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
            asyncio.get_running_loop().call_later(AGAIN, self._try)

    def _try(self) -> None:
        # The first of those who ask for the same.
        if not self._free:
            asyncio.get_running_loop().call_later(AGAIN, self._try)
            return
        codecs = list(dict.fromkeys([codec for codec, _ in self._blocked]))  # a turn has one protocol
        codec = self._tried = next((each for each in codecs if each is not self._tried), codecs[0] if codecs else None)
        until = time.monotonic() - (self._server.settings.timeout or FOREVER)
        late: Taken = []
        first: dict[tuple[Codec, Hashable], tuple[Client, Any]] = {}
        for key, waiting in [each for each in self._blocked.items() if each[0][0] is codec]:
            late += [each for each in waiting if each[0].locked <= until and not each[0].gone]
            left = [each for each in waiting if each[0].locked > until and not each[0].gone]
            if left:
                self._blocked[key] = deque(left)
                first[key] = left[0]
            else:
                del self._blocked[key]
        if late:  # their time is over: who needs a lock that is held is told so
            self._begin(late, [None], waits=False, deadline=0.0)
        elif first:
            for key in first:
                self._blocked[key].popleft()
            self._begin(list(first.values()), list(first), slow_path=SlowLines(), waits=False)
        else:
            self._trying = False
