"""Short reads that end in time: what a console or a metric asks of a database that has other work."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from roost.databases.engine import Wait, drive
from roost.dialects import Control, Wanted
from roost.store.core import Core
from roost.store.links import Link
from roost.structures.plan import Context

T = TypeVar("T")

STEPS = 10_000  # of SQLite's machine, about 0.1 ms, after which it looks at the time


def glance(
    core: Core, make: Callable[[Context], Generator[Wanted, Any, T]], seconds: float, *, alone: bool = False
) -> T:
    """Run a read of a store in one snapshot; an error after so many seconds.

    alone: on a connection of its own, closed afterwards, as the application's reads use the store's: a server goes on
        to limit the statements of a connection.
    """
    if core.engine.memory:
        return core.exclusive(make(core._context))
    deadline = time.monotonic() + seconds

    def look(link: Link) -> T:
        wait = Wait(deadline, core.lock_wait, work=seconds)
        connection: Any = link.connection
        if connection is None:
            connection = link.connection = core.engine.connect(wait, writes=False)
        connection.wait = wait
        if core.engine.file is not None:  # servers end a statement themselves
            connection.raw.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
        try:
            connection.execute(Control.BEGIN_READ)
            return drive(make(core._context), connection)
        finally:
            if core.engine.file is not None:
                connection.raw.set_progress_handler(None, 0)
            connection.settle()
            if alone:
                link.drop()

    link = Link(core.engine, core.timeout) if alone else core._readers[0]
    return link.use(look)
