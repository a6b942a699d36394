"""A connection of memcached's protocol, and what the server tells of itself there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from roost.protocols.memcached.codec import Memcached
from roost.protocols.memcached.framing import MOST_UNKNOWN, TooLong
from roost.protocols.memcached.session import Session
from roost.protocols.memcached.values import Values
from roost.server.client import Client, Server
from roost.store.served import Database

# Clients look for what a version of memcached knows; it is this one whose answers are given.
VERSION = f"1.6.18-roost-{version('roost')}"


class MemcachedClient(Client):
    """One connection."""

    __slots__ = ("_framing", "_known")

    codec: Memcached

    def __init__(self, server: Server, codec: Memcached) -> None:
        super().__init__(server, codec)
        secret = server.settings.memcached_secret
        self.session = Session(None if secret is None else secret.encode())
        self._known = self.session.authorized
        self._framing = codec.framing(*self._limits())

    def _limits(self) -> tuple[int, int]:
        # Of a line and of a block. Who has not said the secret can have the server keep little.
        settings = self.server.settings
        return (settings.max_line, settings.max_answer) if self._known else (MOST_UNKNOWN, MOST_UNKNOWN)

    def data_received(self, data: bytes) -> None:
        """Keep what is no whole request yet, and hand on the rest."""
        if self.gone or self._farewell:
            return
        self.counters.bytes_in += len(data)
        framing = self._framing
        if self.session.authorized is not self._known:
            self._known = self.session.authorized
            framing.limit(*self._limits())
        before = framing.held
        try:
            whole = framing.feed(data)
        except TooLong as error:
            whole = error.whole
            if whole:
                self._hand_on(whole)
            self._too_long()
            return
        if framing.held != before:
            self._hold("lines", framing.held)
        if whole:
            self._hand_on(whole)

    def _drop(self) -> None:
        self._framing.drop()


def codec_of(server: Server, database: Database) -> Memcached:
    """Return the protocol over the cache that the settings name.

    Raises: Missing, Invalid.
    """
    settings = server.settings
    assert settings.cache is not None
    values = Values(database.structure(settings.cache), time.time)
    if settings.memcached_once:
        database.prepare_once()
    return Memcached(values, _stats(server, min(values.most_value, settings.max_answer)), settings.memcached_once)


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
