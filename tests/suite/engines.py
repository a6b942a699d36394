"""The engines that the behaviour suite runs on, by what they can do.

A test says what it needs (`@pytest.mark.needs("file")`), never which engine it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import roost
from tests import servers

_numbers = count()


@dataclass(frozen=True)
class Engine:
    name: str
    url: Callable[[Path], str]
    capabilities: frozenset[str] = field(default_factory=frozenset)
    sets: Callable[..., Any] = roost.Set  # declares a set


ENGINES = [
    Engine(
        "sqlite-file",
        lambda folder: f"sqlite:///{folder}/suite.db?synchronous=off",
        frozenset(
            [
                "cache",
                "counter",
                "ring",
                "capped",
                "set",
                "sets",
                "views",
                "file",
                "second store",
                "sqlite3",
                "nul in text",
                "application",
                "capped tables",
                "readable views",
            ]
        ),
    ),
    Engine(
        "postgresql",
        lambda folder: servers.postgresql().database(f"t{next(_numbers)}"),
        frozenset(
            [
                "cache",
                "counter",
                "ring",
                "capped",
                "set",
                "sets",
                "views",
                "second store",
                "psycopg",
                "no nul in text",
                "application",
                "programs for SQL",
                "capped tables",
                "readable views",
                "trims at commit",
            ]
        ),
    ),
    Engine(
        "mariadb",
        lambda folder: servers.mariadb().database(f"t{next(_numbers)}"),
        frozenset(
            [
                *(
                    "cache",
                    "counter",
                    "ring",
                    "capped",
                    "set",
                    "sets",
                    "second store",
                    "pymysql",
                    "inlets",
                    "nul in text",
                    "application",
                    "programs for SQL",
                    "capped tables",
                    "readable views",
                ),
                "trims in passes",
            ]
        ),
    ),
    Engine(
        "mysql",
        lambda folder: servers.mysql().database(f"t{next(_numbers)}"),
        frozenset(
            [
                "cache",
                "counter",
                "ring",
                "capped",
                "set",
                "sets",
                "second store",
                "nul in text",
                "application",
                "programs for SQL",
                "inlets",
                "capped tables",
                "readable views",
                "trims in passes",
            ]
        ),
    ),
    Engine(
        "sqlite-memory",
        lambda _: "sqlite://",
        frozenset(["cache", "counter", "ring", "capped", "set", "sets", "nul in text"]),
    ),
    Engine(
        "memcached",
        lambda _: servers.emptied(servers.memcached()),
        frozenset(["memcached", "sets"]),
        roost.MemcachedSet,
    ),
    Engine(
        "memcached-readable",
        lambda _: servers.emptied(servers.memcached(*servers.SMALL_ITEMS, number=1)),
        frozenset(["memcached", "sets"]),
        partial(roost.MemcachedSet, encoding="readable"),
    ),
]
