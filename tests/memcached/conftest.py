"""memcached's protocol over a cache of each database, by `roost serve` as a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import roost
from tests.index.databases import Database, database
from tests.lengths import length
from tests.server.serving import Serving, serving
from tests.servers import memcached

DATABASES = ["sqlite", "mariadb", "postgresql"]
pages = roost.Cache("pages")
Serve = Callable[..., Serving]


def on(*names: str, fixture: str = "db") -> pytest.MarkDecorator:
    """Run a test of the protocol itself on these databases; the campaign `suite` has the others, too."""
    return pytest.mark.parametrize(fixture, length([*names], DATABASES), indirect=True)


@dataclass(frozen=True)
class Common:
    """A database with a cache, and `roost serve` on it, which the tests of a process share; each begins with none."""

    db: Database
    served: Serving


@contextlib.contextmanager
def with_cache(name: str, folder: Path) -> Iterator[Database]:
    """Make a database with a cache, which is checked at the end."""
    with database(name, folder) as made:
        with roost.Store(made.url) as store:
            store.create(pages)
        yield made
        with roost.Store(made.url) as store:
            assert store.check() == []


@contextlib.contextmanager
def running(db: Database, folder: Path, *arguments: str, listeners: int = 1) -> Iterator[Serving]:
    """Run `roost serve` on it, with memcached's protocol alone unless told otherwise."""
    own = () if listeners > 1 else ("--read", "none", "--write", "none")
    given = ("--workers", "1", "--memcached", "127.0.0.1:0", "--cache", "pages", *own, *arguments)
    with serving(folder, db.url, *given, module="roost.cli", listeners=listeners) as served:
        yield served


@pytest.fixture(params=DATABASES)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of each kind with a cache."""
    with with_cache(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def serve(db: Database, tmp_path: Path) -> Iterator[Serve]:
    """Run `roost serve` on it as a test wants it."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(running(db, tmp_path, *arguments, **options))


@pytest.fixture(scope="module", params=DATABASES)
def made_common(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Common]:
    """Databases and servers that the tests of a process share."""
    folder = tmp_path_factory.mktemp("common")
    with with_cache(request.param, folder) as db, running(db, folder, "--timeout", "60") as served:
        yield Common(db, served)


@pytest.fixture
def common(made_common: Common) -> Iterator[Common]:
    """The shared database of each kind, with an empty cache; checked at the end."""
    with roost.Store(made_common.db.url) as store:
        store.run(pages.clear())
        yield made_common
        assert store.check() == []


@pytest.fixture(scope="session")
def address() -> tuple[str, int]:
    """Where Debian's memcached listens."""
    host, _, port = memcached(number=1).partition("://")[2].partition(":")
    return host, int(port)


def place(served: Serving) -> tuple[str, int]:
    """Return where memcached's protocol is served."""
    host, _, port = served.addresses["memcached"][0].rpartition(":")
    return host, int(port)
