"""memcached, by pymemcache: connections to several servers, and its answers as they are.

Rendezvous hashing determines the server of an item, the same one as in pymemcache's `HashClient`. An item never moves
to another server: if its server is down, that is an error, since a server that comes back would bring old items.
"""

from __future__ import annotations

import copy
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from operator import methodcaller
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pymemcache.client.base import Client  # type: ignore[import-untyped]
from pymemcache.client.rendezvous import RendezvousHash  # type: ignore[import-untyped]
from pymemcache.exceptions import (  # type: ignore[import-untyped]
    MemcacheClientError,
    MemcacheError,
    MemcacheServerError,
    MemcacheUnexpectedCloseError,
    MemcacheUnknownError,
)

from roost.databases.engine import Trace
from roost.errors import CannotOpen, ConnectionLost, DatabaseError, DiskFull, Error, Invalid, Mismatch, OutcomeUnknown
from roost.structures.memcached_set import commands
from roost.structures.memcached_set.commands import Command, Item, TooLarge

PORT = 11211
KEPT = 64  # idle connections to one server
FRESH = 1.0  # seconds after its last use in which a connection is not looked at before the next: 9 µs


class Server:
    """One server, and connections to it that nobody uses at the moment."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.name = f"{host}:{port}"
        self._address = (host, port)
        self._timeout = max(timeout, 0.01)
        self._idle: deque[tuple[Client, float]] = deque()  # and when they were used last
        self.closed = False

    def take(self) -> Client:
        """Return a connection that is open; `CannotOpen` when there can be none."""
        while True:
            try:
                client, used = self._idle.pop()  # the one used last
            except IndexError:
                break
            if time.monotonic() - used < FRESH or _alive(client):
                return client
            client.close()
        client = Client(
            self._address,
            connect_timeout=self._timeout,
            timeout=self._timeout,
            no_delay=True,
            default_noreply=False,
        )
        try:
            client.version()
            # The kernel's timeouts instead of Python's, which ask it before every read and write: 8 µs of an exchange.
            seconds = struct.pack("ll", int(self._timeout), int(self._timeout % 1 * 1e6))
            client.sock.settimeout(None)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        except (OSError, MemcacheError) as error:
            client.close()
            raise CannotOpen(f"memcached at {self.name} cannot be reached: {worded(error)}") from error
        return client

    def give(self, client: Client) -> None:
        if self.closed or len(self._idle) >= KEPT:
            client.close()
        else:
            self._idle.append((client, time.monotonic()))

    def drop(self) -> None:
        while self._idle:
            try:
                self._idle.pop()[0].close()
            except IndexError:
                return


def _alive(client: Client) -> bool:
    # What a server has closed can be read from; so can an answer that nobody took.
    if client.sock is None:
        return False
    try:
        client.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def worded(error: BaseException) -> str:
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return "the time is over"
    first = error.args[0] if error.args else ""
    text = first.decode("ascii", "replace") if isinstance(first, bytes) else str(error)
    return text or type(error).__name__


def hosts_of(url: str) -> tuple[str, list[tuple[str, int]]]:
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        asked = "a password" if "@" in url else parts.path.strip("/") or parse_qsl(parts.query) or parts.fragment
        raise Invalid(f"memcached://host:port,host:port takes no path and no options, not {asked!r}")
    found = []
    for each in parts.netloc.split(","):
        host, colon, port = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        if not colon:
            host, port = each, str(PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise Invalid(f"{each!r} is not a memcached server; write memcached://host:port,host:port")
        found.append((host.strip("[]"), int(port)))
    if len(set(found)) < len(found):
        raise Invalid(f"{url} names a server twice")
    return f"memcached://{parts.netloc}", found


log = logging.getLogger("roost")

NOTED = "roost:servers:{name}"  # the item that lists the servers over which a structure is spread
MANY_PLACES = 100_000
PIECE = 65_536  # bytes read at once
LINE = b"\r\n"
SILENCE = (TimeoutError, BlockingIOError)  # the errors if a server does not answer in time
FAILURES = (b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR", b"BUSY", b"BADCLASS")  # answers of one line

# How a server lists its items. A walk along the hash table (memcached 1.6.9 and later) meets every item; one along the
# LRU lists misses an item that is moved from a list ahead of it to one behind it. An older server says BADCLASS.
BY_HASH = b"lru_crawler metadump hash\r\n"
BY_LRU = b"lru_crawler metadump all\r\n"
CRAWLER_TRIES = 100  # a server lists items for one client at a time, and sometimes for itself
CRAWLER_PAUSE = 0.01  # seconds between tries

# Statistics that `Store.doctor` judges.
FACTS = ("version", "limit_maxbytes", "bytes", "curr_items", "evictions", "uptime")


def _exchange(client: Client, sent: bytes, end: bytes) -> bytes:
    # One request and its answer, to its end. `Client.raw_command` forgets the beginning of an answer that comes in
    # pieces, so half of NOT_STORED would be STORED; and `Client.append` takes 8 µs of an exchange of 30.
    sock = client.sock
    sock.sendall(sent)
    answer: bytes = sock.recv(PIECE)
    while not answer.endswith(end) and not (answer.endswith(LINE) and answer.startswith(FAILURES)):
        more = sock.recv(PIECE) if answer else b""
        if not more:  # the connection was closed: even at the end of a line, the listing is incomplete
            raise MemcacheUnexpectedCloseError
        answer += more
    _raise_error(answer.rstrip())
    return answer


def _listing(client: Client) -> bytes:
    for tries in range(CRAWLER_TRIES):
        try:
            answer = _exchange(client, BY_HASH, b"END\r\n")
            return _exchange(client, BY_LRU, b"END\r\n") if answer.startswith(b"BADCLASS") else answer
        except MemcacheClientError as error:
            if b"crawler" not in error.args[0] or tries == CRAWLER_TRIES - 1:
                raise
        time.sleep(CRAWLER_PAUSE)
    raise AssertionError


def _raise_error(line: bytes) -> None:
    kind, _, text = line.partition(b" ")
    if kind == b"SERVER_ERROR":
        raise MemcacheServerError(text)
    if kind in (b"ERROR", b"CLIENT_ERROR", b"BUSY"):
        raise MemcacheClientError(text or kind)


def _gets(client: Client, items: Sequence[str]) -> dict[str, Item]:
    # `Client.gets_many`, in 5 µs instead of 12, and large items in pieces of 64 KB instead of 4.
    sock = client.sock
    sock.sendall(b"gets %b\r\n" % " ".join(items).encode())
    found: dict[str, Item] = {}
    data, place = sock.recv(PIECE), 0
    if not data:
        raise MemcacheUnexpectedCloseError
    while True:
        end = data.find(LINE, place)
        if end < 0:
            data, place = _more(sock, data[place:], 1), 0
            continue
        line = data[place:end]
        if line == b"END":
            return found
        if not line.startswith(b"VALUE "):
            _raise_error(line)
            raise MemcacheUnknownError(line[:80])
        _, item, flags, size, cas = line.split()
        place = end + 2
        missing = place + int(size) + 2 - len(data)
        if missing > 0:
            data, place = _more(sock, data[place:], missing), 0
        end = place + int(size)
        found[item.decode()] = Item(data[place:end], int(flags), cas)
        place = end + 2


def _more(sock: socket.socket, data: bytes, least: int) -> bytes:
    pieces = [data]
    while least > 0:
        piece = sock.recv(PIECE)
        if not piece:
            raise MemcacheUnexpectedCloseError
        pieces.append(piece)
        least -= len(piece)
    return b"".join(pieces)


def _noted(client: Client, noted: str, servers: bytes) -> bytes:
    found = _gets(client, [noted])
    if not found and client.add(noted, servers, noreply=False):
        return servers
    found = found or _gets(client, [noted])  # another client was faster
    return found[noted].data if found else servers


class MemcachedEngine:
    """The servers of a URL. Any number of threads may use it."""

    def __init__(self, url: str, *, timeout: float, trace: Trace | None) -> None:
        self.place, addresses = hosts_of(url)
        self.trace = trace
        self._servers = [Server(host, port, timeout) for host, port in addresses]
        self._by_name = {server.name: server for server in self._servers}
        self._node = lru_cache(MANY_PLACES)(RendezvousHash([server.name for server in self._servers]).get_node)
        self._silent: set[Server] | None = None  # in a turn of several callers: servers that have not answered in time

    def for_turn(self) -> MemcachedEngine:
        """Return an engine for a turn of several callers: they wait once for a server that hangs, not for each item."""
        found = copy.copy(self)
        found._silent = set()
        return found

    def forget(self) -> None:
        for server in self._servers:
            server.drop()

    def close(self) -> None:
        """Close all connections; those in use are closed when they are returned."""
        for server in self._servers:
            server.closed = True
            server.drop()

    def execute(self, command: Command) -> Any:
        """Run a command and return its answer: one exchange with every server that has items of it."""
        if self.trace is not None:
            self.trace(*_text(command))
        return self._run(command)

    def servers(self) -> list[tuple[str, dict[str, str] | Error]]:
        """Return what each server reports about itself, or the error if it does not answer.

        Raises: CannotOpen, if none answers.
        """
        answers: list[tuple[str, dict[str, str] | Error]] = []
        for server in self._servers:
            try:
                facts = self._ask(server, lambda client: client.stats())
                settings = self._ask(server, lambda client: client.stats("settings"))
            except (CannotOpen, ConnectionLost) as error:
                answers.append((server.name, error))
                continue
            both = {**_decoded(settings), **_decoded(facts)}
            answers.append((server.name, {name: both[name] for name in (*FACTS, "item_size_max") if name in both}))
        errors = [found for _, found in answers if isinstance(found, Error)]
        if len(errors) == len(answers):
            raise errors[0]
        return answers

    def reach(self) -> None:
        """Raise `CannotOpen` unless every server answers."""
        for server in self._servers:
            server.give(server.take())

    def note(self, name: str, item: str | None = None) -> None:
        """Record on the servers the list over which a structure is spread; `Mismatch` if it was spread over another.

        Otherwise old sets would reappear from a server that was not used for them in the meantime. Servers that are
        down are skipped. item: use only the server that has this item.
        """
        noted, servers = NOTED.format(name=name), ",".join(sorted(self._by_name)).encode()
        for server in self._servers if item is None else [self._server(item)]:
            try:
                found = self._ask(server, partial(_noted, noted=noted, servers=servers))
            except (CannotOpen, ConnectionLost, DatabaseError) as error:
                log.debug("%s was not asked how %s is spread: %s", server.name, name, error)
                continue
            if found != servers:
                raise Mismatch(
                    f"{self.place}: {name} was spread over {found.decode(errors='replace')}, says {server.name}; what "
                    "was left on a server by then would be taken for whole. Empty the servers (flush_all), or delete "
                    f"{noted} on each of them where no set has to be complete"
                )

    def _server(self, item: str) -> Server:
        if len(self._servers) == 1:
            return self._servers[0]
        return self._by_name[self._node(item)]

    def _by_server(self, items: Sequence[str]) -> Iterable[tuple[Server, list[str]]]:
        if len(self._servers) == 1:
            return [(self._servers[0], list(items))]
        groups: dict[Server, list[str]] = {}
        for item in items:
            groups.setdefault(self._server(item), []).append(item)
        return groups.items()

    def _ask(self, server: Server, call: Callable[[Client], Any]) -> Any:
        # Reads: if the connection breaks, a new one may work, so it is tried once.
        for last in (False, True):
            try:
                return self._call(server, call)
            except (OSError, MemcacheUnexpectedCloseError) as error:
                if last or isinstance(error, SILENCE):
                    raise ConnectionLost(f"memcached at {server.name} did not answer: {worded(error)}") from error
        raise AssertionError

    def _tell(self, server: Server, call: Callable[[Client], Any]) -> Any:
        # Writes are sent once. If no answer arrives, the outcome is unknown.
        try:
            return self._call(server, call)
        except (OSError, MemcacheUnexpectedCloseError) as error:
            raise OutcomeUnknown(
                f"memcached at {server.name} did not answer a command: {worded(error)}; it may have been done"
            ) from error
        except DatabaseError as error:
            if not isinstance(error.__cause__, MemcacheServerError):
                raise
            answer = worded(error.__cause__)
            if "too large" in answer:
                raise TooLarge(answer) from error.__cause__
            if "out of memory" in answer:
                message = f"memcached at {server.name} has no memory left and is set to evict nothing"
                raise DiskFull(message) from error.__cause__
            raise

    def _call(self, server: Server, call: Callable[[Client], Any]) -> Any:
        # After an error the connection is closed, as the answer may still arrive and be taken for the next one.
        if self._silent and server in self._silent:
            raise CannotOpen(f"memcached at {server.name} cannot be reached: it has just let the time pass")
        client: Client | None = None
        try:
            client = server.take()
            answer = call(client)
        except BaseException as error:
            if client is not None:
                client.close()
            cause = error.__cause__ if isinstance(error, CannotOpen) else error
            if self._silent is not None and isinstance(cause, SILENCE):
                self._silent.add(server)
            if isinstance(error, MemcacheError) and not isinstance(error, MemcacheUnexpectedCloseError):
                raise DatabaseError(f"memcached at {server.name} refused: {worded(error)}") from error
            raise
        server.give(client)
        return answer

    def _run(self, command: Command) -> Any:
        match command:
            case commands.Get([item]):
                return self._ask(self._server(item), partial(_gets, items=command.items))
            case commands.Get(items):
                found: dict[str, Item] = {}
                for server, some in self._by_server(items):
                    found |= self._ask(server, partial(_gets, items=some))
                return found
            case commands.Append(item, data):
                sent = b"append %b 0 0 %d\r\n%b\r\n" % (item.encode(), len(data), data)
                answer = self._tell(self._server(item), lambda client: _exchange(client, sent, LINE))
                if answer not in (b"STORED\r\n", b"NOT_STORED\r\n"):
                    raise DatabaseError(f"memcached answered {answer[:80]!r} to an append")
                return answer == b"STORED\r\n"
            case commands.Add(item, data, expire):
                return self._tell(self._server(item), methodcaller("add", item, data, expire=expire, noreply=False))
            case commands.Cas(item, data, expire, there):
                cas = methodcaller("cas", item, data, there.cas, expire=expire, noreply=False, flags=there.flags)
                return self._tell(self._server(item), cas)
            case commands.Put(items, expire):
                for server, some in self._by_server(list(items)):
                    values = {item: items[item] for item in some}
                    if failed := self._tell(server, methodcaller("set_many", values, expire=expire, noreply=False)):
                        raise DatabaseError(f"memcached at {server.name} did not store {failed[0]}")
            case commands.Delete(items):
                for server, some in self._by_server(items):
                    self._tell(server, methodcaller("delete_many", some, noreply=False))
            case commands.Touch(items, expire):
                for item in items:
                    self._tell(self._server(item), methodcaller("touch", item, expire=expire, noreply=False))
            case commands.Left():
                return self._left(command)
            case commands.Limit():
                return self._limit()
            case commands.List():
                return self._list(command)
        return None

    def _left(self, command: commands.Left) -> int | None:
        try:
            sent = f"mg {command.item} t\r\n".encode()
            answer: bytes = self._ask(self._server(command.item), lambda client: _exchange(client, sent, LINE))
        except DatabaseError as error:
            if isinstance(error.__cause__, MemcacheClientError):  # older than 1.6, or a proxy
                return None
            raise
        if not answer.startswith(b"HD t"):
            return None
        left = int(answer[4:].split()[0])
        return 0 if left < 0 else max(1, left)

    def _limit(self) -> int:
        # The smallest limit of the servers that answer: sets on them are served while others are down. If one returns
        # with a smaller limit, it refuses larger items, and then all are asked again.
        limits, failed = [], []
        for server in self._servers:
            try:
                settings = _decoded(self._ask(server, lambda client: client.stats("settings")))
            except (CannotOpen, ConnectionLost) as error:
                failed.append(error)
            else:
                limits.append(int(settings.get("item_size_max", 2**20)))
        if not limits:
            raise failed[0]
        return min(limits)

    def _list(self, command: commands.List) -> dict[str, int]:
        found: dict[str, int] = {}
        for server in self._servers:
            answer: bytes = self._ask(server, _listing)
            for line in answer.decode("ascii", "replace").splitlines():
                facts = dict(fact.split("=", 1) for fact in line.split() if "=" in fact)
                item = unquote(facts.get("key", ""))
                if item.startswith(command.prefix):
                    expires = int(facts.get("exp", -1))
                    found[item] = max(0, expires)
        return found


def _text(command: Command) -> tuple[str, tuple[Any, ...]]:
    # The arguments of a trace: the command as memcached spells it, and its data.
    match command:
        case commands.Get(items):
            return f"gets {' '.join(items)}", ()
        case commands.Append(item, data):
            return f"append {item}", (data,)
        case commands.Add(item, data, expire):
            return f"add {item} {expire}", (data,)
        case commands.Put(items, expire):
            return f"set {' '.join(items)} {expire}", tuple(items.values())
        case commands.Cas(item, data, expire):
            return f"cas {item} {expire}", (data,)
        case commands.Delete(items):
            return f"delete {' '.join(items)}", ()
        case commands.Touch(items, expire):
            return f"touch {' '.join(items)} {expire}", ()
        case commands.Left(item):
            return f"mg {item} t", ()
        case commands.Limit():
            return "stats settings", ()
        case commands.List(prefix):
            return f"lru_crawler metadump hash ({prefix})", ()


def _decoded(facts: dict[bytes, Any]) -> dict[str, str]:
    return {name.decode(): value.decode() if isinstance(value, bytes) else str(value) for name, value in facts.items()}
