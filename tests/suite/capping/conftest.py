"""What the tests of `roost cap` share: a table of the application's own, and other accounts and connections."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import roost
from tests.suite.application import Application
from tests.suite.capping.tables import INDEX, VISITS, Capper, Connect, Role


@pytest.fixture
def visits(application: Application) -> Application:
    """The application, with a table of visits."""
    application(VISITS)
    application(INDEX)
    return application


@pytest.fixture
def connect(store_url: str) -> Iterator[Connect]:
    """Make another connection."""
    made: list[Application] = []

    def connect_() -> Application:
        made.append(Application(store_url))
        return made[-1]

    yield connect_
    for each in made:
        each.close()


@pytest.fixture
def role(application: Application) -> Iterator[Role]:
    """Make a role of PostgreSQL without any right."""
    names: list[str] = []

    def role_(what: str) -> str:
        name = f"{what}_{application.url.rpartition('/')[2]}"
        if name not in names:
            application(f"CREATE ROLE {name}")
            names.append(name)
        return name

    yield role_
    application("RESET ROLE")
    for name in names:
        application(f"REASSIGN OWNED BY {name} TO CURRENT_USER")
        application(f"DROP OWNED BY {name} CASCADE")
        application(f"DROP ROLE {name}")


@pytest.fixture
def scheduler(application: Application) -> Iterator[None]:
    """MariaDB runs events."""
    before = application("SELECT @@event_scheduler")[0][0]
    application("SET GLOBAL event_scheduler = ON")
    yield
    application(f"SET GLOBAL event_scheduler = {before}")


@pytest.fixture
def capper(store_url: str, visits: Application, scheduler: None) -> Iterator[Capper]:
    """An account of MariaDB with all rights on the database, and what opens a store as it."""
    database = visits.url.rpartition("/")[2]
    name = f"definer_{database}@'%'"
    visits(f"CREATE USER {name} IDENTIFIED BY 'x'")
    visits(f"GRANT ALL ON {database}.* TO {name}")
    url = urlsplit(store_url)
    netloc = f"definer_{database}:x@{url.netloc.rpartition('@')[2]}"
    yield name, lambda: roost.Store(url._replace(netloc=netloc).geturl())
    visits(f"DROP USER IF EXISTS {name}")
