"""One worker's sockets: requests are collected from all connections that are ready, run as one turn, and answered.

A turn is scheduled when the first bytes arrive, and runs when the loop has read every socket that was ready; requests
that arrive while it runs belong to the next turn. A turn is bounded in requests, bytes of answers and seconds. The
remaining requests are left to the next turns, in which passed-over connections and short pieces come first. Turns on
a SQLite file run here; turns on a database server run in `players.py`, several at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from math import inf

from roost.errors import Busy
from roost.protocols.codec import Piece
from roost.protocols.codec import Session as MemcachedSession
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.handlersocket.opened import Openings, Session
from roost.protocols.memcached.asked import Values
from roost.protocols.memcached.codec import Memcached
from roost.server.client import PACE, Client, Codec, Pieces
from roost.server.counters import Counters
from roost.server.players import InTasks
from roost.server.settings import Role, Settings
from roost.server.tasks import Tasks
from roost.server.turn import Turn
from roost.store.served import Database, Limits
from roost.store.served_databases import FileDatabase, connect

TURN = 2**20  # characters of requests in a turn
TURN_SECONDS = 0.05  # seconds after which a turn leaves its remaining requests to the next one
HELD = 2**28  # bytes of incomplete and of long lines, and as many of unread answers, over all connections of a worker
LOGGED = 500  # characters of requests that are logged, if `log_values` is set
SLICE = 0.02  # seconds that the loop blocks for a file's write lock before it reads the sockets again
REST = 0.5  # seconds without a turn after which the writer copies the write-ahead log into the file
LOCK_WAIT = 5.0  # seconds that a line waits for a file's write lock before it is answered with 146
WRONG = 1.0  # seconds from one logged wrong secret to the next
TICKS = 4  # checks for silent connections per `idle` seconds

# Clients deduce features from memcached's version; the server answers as this version does.
VERSION = f"1.6.18-roost-{version('roost')}"

log = logging.getLogger("roost.server")


class Server:
    """The server in one worker process: one database, in one role, over one or several protocols.

    counters: by the names of the protocols.

    Raises: CannotOpen, Missing (from the constructor).
    """

    def __init__(self, settings: Settings, role: Role, counters: dict[str, Counters]) -> None:
        self.settings = settings
        self.role = role
        self.counters = counters
        self.codecs: dict[str, Codec] = {}
        self.clients: set[Client] = set()
        self.draining = False
        self.waiting: Pieces = []
        self.held = {"lines": 0, "answers": 0}  # bytes buffered for all connections
        self._wrong_secrets = 0  # since one was logged
        self._wrong_logged = -WRONG  # by the monotonic clock
        self._scheduled = False
        self._crowded = False  # the last turn had no room for all requests
        self._loop = asyncio.get_running_loop()
        writes = role == "write"
        self._player: InLoop | InTasks
        if settings.is_file:
            file = FileDatabase(settings.url, writes=writes, lock_wait=LOCK_WAIT)
            self._names, self._schemas = file.names, False
            self._make_codecs(file)
            self._player = InLoop(self, file)
        else:
            tasks = Tasks()
            connections = settings.connections_of_one
            databases = connect(settings.url, connections, settings.timeout, writes=writes, waits=tasks)
            self._names, self._schemas = databases[0].names, databases[0].schemas
            self._make_codecs(databases[0])
            self._player = InTasks(self, databases, tasks)
        self._player.limit(_limits(settings))
        self._look_for_silent()

    def _make_codecs(self, database: Database) -> None:
        openings = Openings(self.may_open, writes=self.role == "write", looks=database.looks)
        self.codecs[HandlerSocket.name] = HandlerSocket(openings)
        if Memcached.name in self.counters:
            settings = self.settings
            assert settings.cache is not None
            values = Values(database.structure(settings.cache), time.time, nul=database.nul)
            stats = _stats(self, min(values.most_value, settings.max_answer))
            self.codecs[Memcached.name] = Memcached(values, stats, settings.memcached_once)

    def may_open(self, database: str, table: str) -> bool:
        if database in self._names:
            return self.settings.allows(table, any_case=not self._schemas)
        return self._schemas and bool(database) and self.settings.allows(f"{database}.{table}", any_case=False)

    def protocol(self, name: str) -> asyncio.Protocol:
        """Make the `asyncio.Protocol` of a new connection, for `loop.create_server`."""
        codec = self.codecs[name]
        settings = self.settings
        session: MemcachedSession
        if name == Memcached.name:
            secret = settings.memcached_secret
            session = MemcachedSession(None if secret is None else secret.replace(":", " ", 1).encode())
        else:
            session = Session(settings.secret(self.role), settings.max_indexes)
        return Client(self, codec, session)

    def _look_for_silent(self) -> None:
        # Each connection counts the checks since its last answer, so that no request has to read a clock.
        idle, unknown = self.settings.idle, self.settings.auth_timeout
        since = time.monotonic() - unknown
        for client in list(self.clients) if idle or unknown else ():
            client.silent += 1
            unheard = unknown and not client.session.authorized and client.since < since
            if unheard or (idle and client.silent > TICKS):
                client.expire()
        self._loop.call_later(idle / TICKS if idle else min(1.0, unknown or 1.0), self._look_for_silent)

    def wrong_secret(self, client: Client) -> None:
        """Count a wrong secret as a failed request, and log where it came from: at most one line a second."""
        client.counters.requests += 1
        client.counters.errors += 1
        client.counters.publish()
        self._wrong_secrets += 1
        now = time.monotonic()
        if now >= self._wrong_logged + WRONG:
            peer = client.transport.get_extra_info("peername")
            many = f", one of {self._wrong_secrets} since the last such line" if self._wrong_secrets > 1 else ""
            log.warning("a wrong secret from %s%s", peer[0] if isinstance(peer, tuple) else "a unix socket", many)
            self._wrong_logged, self._wrong_secrets = now, 0

    def hold(self, what: str, client: Client, bytes_: int) -> None:
        """Count bytes buffered for a connection; if the total is too large, close the connection with the most.

        Connections that have not sent the secret are closed before any that have.
        """
        self.held[what] += bytes_
        if bytes_ > 0 and self.held[what] > HELD:
            holding = [each for each in self.clients if each.holds[what]]
            greediest = max(holding, key=lambda each: (not each.session.authorized, each.holds[what]), default=client)
            log.warning("this worker buffers %d bytes of %s for its connections: one is closed", self.held[what], what)
            greediest.abort()

    def arrived(self, piece: Piece) -> None:
        self.waiting.append(piece)
        self.schedule()

    def take(self) -> Pieces:
        """Take the clients of the next turn from the queue; passed-over clients come first, then short pieces.

        All clients of a turn speak one protocol; the others wait for the next turn.
        """
        waiting = [piece for piece in self.waiting if not piece.client.gone]
        others: Pieces = []
        if len(self.codecs) > 1 and waiting:
            codec = waiting[0].client.codec
            others = [piece for piece in waiting if piece.client.codec is not codec]
            waiting = [piece for piece in waiting if piece.client.codec is codec] if others else waiting
        taken = len(waiting)
        if self._crowded or sum([len(piece.requests) for piece in waiting]) > PACE:
            waiting.sort(key=lambda piece: (not piece.client.passed_over, len(piece.requests)))
            left = 0
            for taken, piece in enumerate(waiting, 1):  # noqa: B007 - `taken` is used after the loop
                left += len(piece.requests)
                if left > TURN:
                    break
        self.waiting = others + waiting[taken:]
        return waiting[:taken]

    def schedule(self) -> None:
        """Schedule a turn for when the loop has read every socket that is ready."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._play)

    def _play(self) -> None:
        self._scheduled = False
        self._player.play()

    def failed(self, pieces: Pieces, error: BaseException) -> None:
        """Close the connections of a turn whose outcome is unknown."""
        log.error(
            "a turn failed at its COMMIT; its connections are closed, since its outcome is unknown", exc_info=error
        )
        for piece in pieces:
            piece.client.abort()

    def played(self, pieces: Pieces, seconds: float) -> None:
        counters = self.counters[pieces[0].client.codec.name]
        if self.settings.slow and seconds > self.settings.slow:
            counters.slow += 1
            shown = ""
            if self.settings.log_values:
                shown = f": {' '.join([str(piece.requests[:LOGGED]) for piece in pieces])[:LOGGED]}"
            log.warning("a turn of %d connections took %.3f s%s", len(pieces), seconds, shown)
        counters.turn(seconds)
        self._crowded = any([piece.rest is not None and not piece.late for piece in pieces])
        alone = len(pieces) == 1 and not self.waiting
        for piece in pieces:
            piece.client.answer(piece, alone)

    def reload(self, settings: Settings) -> None:
        """Apply new settings: connections stay authorized, and keep open the tables that are still allowed."""
        self.settings = settings
        self._player.forget()  # so that tables that are no longer allowed are closed
        self._player.limit(_limits(settings))
        for client in self.clients:
            client.limit()

    async def drain(self, seconds: float) -> None:
        """Answer the received requests, then close every connection; abort those that do not read answers in time."""
        self.draining = True
        for _ in range(3):  # lets the loop read the sockets and run a turn
            await asyncio.sleep(0)
        for client in list(self.clients):
            client.leave()
        deadline = time.monotonic() + seconds
        while self.clients and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for client in list(self.clients):
            client.abort()

    async def close(self) -> None:
        await self._player.close()


class InLoop:
    """Runs turns on a SQLite file, one after the other.

    No turn runs while another process holds the write lock, but the event loop goes on: requests that arrive meanwhile
    wait too, each for `LOCK_WAIT` at most.
    """

    def __init__(self, server: Server, database: FileDatabase) -> None:
        self._server = server
        self._database = database
        self._turns = {name: Turn(database, codec, server.counters[name]) for name, codec in server.codecs.items()}
        self._tidying = False
        self.limit, self.forget = database.limit, database.forget
        database.wait_for(SLICE)

    def play(self) -> None:
        """Run a turn, unless another process holds the write lock."""
        server = self._server
        pieces = server.take()
        if pieces:
            begun = time.monotonic()
            turn = self._turns[pieces[0].client.codec.name]
            try:
                failed = turn.play(pieces)
                if failed is not None:
                    pieces = self._locked(pieces, begun) if isinstance(failed, Busy) else pieces
                    if pieces:
                        turn.refuse(pieces, failed)
            except Exception as error:
                server.failed(pieces, error)
                pieces = []
            if pieces:
                server.played(pieces, time.monotonic() - begun)
                if server.role == "write" and not self._tidying:
                    self._tidying = True
                    self._tidy(-1)
        if server.waiting:
            server.schedule()

    async def close(self) -> None:
        self._database.close()

    def _locked(self, pieces: Pieces, now: float) -> Pieces:
        # Another process holds the write lock: return the pieces that have waited too long, and requeue the others.
        late: Pieces = []
        others: Pieces = []
        for piece in pieces:
            client = piece.client
            client.locked = client.locked or now
            (late if now >= client.locked + LOCK_WAIT else others).append(piece)
        self._server.waiting = others + self._server.waiting
        return late

    def _tidy(self, turns: int) -> None:
        # The write-ahead log is copied into the file when the worker is idle, since a reader searches it for each page.
        batches = sum([each.batches for each in self._server.counters.values()])
        if turns == batches:
            self._tidying = False
            self._database.checkpoint()
        else:
            asyncio.get_running_loop().call_later(REST, self._tidy, batches)


def _limits(settings: Settings) -> Limits:
    return Limits(settings.max_unanswered, TURN_SECONDS, settings.timeout or inf, settings.max_answer)


def _stats(server: Server, most_value: int) -> Callable[[Sequence[bytes]], Mapping[str, object] | None]:
    begun = time.monotonic()

    def stats(words: Sequence[bytes]) -> Mapping[str, object] | None:
        if words == [b"settings"]:
            settings = server.settings
            return {"maxconns": settings.max_connections, "item_size_max": most_value, "cas_enabled": "yes"}
        if words:
            return None
        counters = server.counters[Memcached.name]
        return {
            "pid": os.getpid(),
            "uptime": int(time.monotonic() - begun),
            "time": int(time.time()),
            "version": VERSION,
            "pointer_size": 64,
            "curr_connections": counters.open,
            "total_connections": counters.connections,
            "rejected_connections": counters.refused,
            "bytes_read": counters.bytes_in,
            "bytes_written": counters.bytes_out,
            "threads": 1,
        }

    return stats
