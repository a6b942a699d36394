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


KINDS = frozenset(["cache", "counter", "ring", "capped", "set", "sets"])
SHARED = KINDS | {"second store", "application", "capped tables", "readable views"}
IN_PLACE = SHARED | {"views", "operations by themselves"}  # the relation itself takes what SQL clients write
INLETS = SHARED | {"inlets", "nul in text", "programs for SQL", "trims in passes"}

ENGINES = [
    Engine(
        "sqlite-file",
        lambda folder: f"sqlite:///{folder}/suite.db?synchronous=off",
        IN_PLACE | {"file", "sqlite3", "nul in text"},
    ),
    Engine(
        "postgresql",
        lambda folder: servers.postgresql().database(f"t{next(_numbers)}"),
        IN_PLACE | {"psycopg", "no nul in text", "programs for SQL", "gated programs", "trims at commit"},
    ),
    Engine(
        "mariadb",
        lambda folder: servers.mariadb().database(f"t{next(_numbers)}"),
        INLETS | {"pymysql", "gated programs", "operations by themselves"},
    ),
    Engine("mysql", lambda folder: servers.mysql().database(f"t{next(_numbers)}"), INLETS),
    Engine("sqlite-memory", lambda _: "sqlite://", KINDS | {"nul in text"}),
    Engine(
        "memcached",
        lambda _: servers.emptied(servers.memcached()),
        frozenset(["memcached", "sets"]),
        roost.MemcachedSet,
    ),
    Engine(
        "memcached-readable",
        lambda _: servers.emptied(servers.memcached(*servers.items_of(), number=1)),
        frozenset(["memcached", "sets"]),
        partial(roost.MemcachedSet, encoding="readable"),
    ),
]
