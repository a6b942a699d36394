"""memcached's protocol over the cache named in the settings, and the answers to `stats`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from roost.protocols.memcached.codec import Memcached
from roost.protocols.memcached.values import Values
from roost.server.client import Server
from roost.store.served import Database

# Clients deduce features from memcached's version; the server answers as this version does.
VERSION = f"1.6.18-roost-{version('roost')}"


def codec_of(server: Server, database: Database) -> Memcached:
    """Return the protocol over the cache named in the settings.

    Raises: Missing, Invalid.
    """
    settings = server.settings
    assert settings.cache is not None
    values = Values(database.structure(settings.cache), time.time, nul=database.nul)
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
