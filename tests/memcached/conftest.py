"""memcached's protocol over a cache of each database, by `roost serve` as a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import roost
from tests.index.databases import Database, database
from tests.server.serving import Serving, serving
from tests.servers import NotHere, memcached, not_run

pages = roost.Cache("pages")
Serve = Callable[..., Serving]


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of each kind with a cache."""
    with database(request.param, tmp_path) as made:
        with roost.Store(made.url) as store:
            store.create(pages)
        yield made
        with roost.Store(made.url) as store:
            assert store.check() == []


@pytest.fixture
def serve(db: Database, tmp_path: Path) -> Iterator[Serve]:
    """Run `roost serve` on it, with memcached's protocol alone unless told otherwise."""
    with contextlib.ExitStack() as stack:

        def run(*arguments: str, listeners: int = 1) -> Serving:
            own = () if listeners > 1 else ("--read", "none", "--write", "none")
            given = ("--workers", "1", "--memcached", "127.0.0.1:0", "--cache", "pages", *own, *arguments)
            return stack.enter_context(serving(tmp_path, db.url, *given, module="roost.cli", listeners=listeners))

        yield run


@pytest.fixture(scope="session")
def address() -> tuple[str, int]:
    """Where Debian's memcached listens."""
    try:
        host, _, port = memcached(number=1).partition("://")[2].partition(":")
    except NotHere as why:
        not_run(why)
    return host, int(port)


def place(served: Serving) -> tuple[str, int]:
    """Return where memcached's protocol is served."""
    host, _, port = served.addresses["memcached"][0].rpartition(":")
    return host, int(port)
