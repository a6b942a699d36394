"""How many files a call passes, from the API or the socket to COMMIT: a bound for each way that docs/design.md shows.

Counted are the files of Roost of which a function runs in one call, when the connection is open and the statement
prepared. Where a bound is exceeded, the message lists files and functions in the order in which they are entered. A
test that needs one file more says why in docs/design.md.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import roost
from roost.databases import replicas
from roost.server.counters import Counters
from roost.server.server import Server
from roost.server.settings import Settings
from tests import servers

SOURCE = f"{Path(roost.__file__).parent}/"
PREPARED = 10  # calls, after which a server has the statement prepared


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int


pageviews = roost.Counter("pageviews")
visits = roost.Ring("visits", Visit, per="uid", keep=5)

Files = dict[str, dict[str, None]]  # files, and their functions, in the order of their first call


@contextmanager
def watched() -> Iterator[Files]:
    """Note the files and functions of Roost that run in this thread meanwhile."""
    found: Files = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # A lock's method is in C before Python 3.14.
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_qualname != "Mutex.__enter__":
            found.setdefault(code.co_filename.removeprefix(SOURCE), {})[code.co_qualname] = None

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no server asked again for its role, which would be a few files more."""
    monkeypatch.setattr(replicas, "ROLE", 3600.0)


def files_of(call: Callable[[], object]) -> Files:
    for _ in range(PREPARED):
        call()
    with watched() as found:
        call()
    return found


def shown(found: Files) -> str:
    return f"{len(found)} files:\n" + "\n".join(f"{file}: {', '.join(names)}" for file, names in found.items())


def test_an_add_on_sqlite(tmp_path: Path) -> None:
    with roost.Store(f"sqlite:///{tmp_path}/app.db") as store:
        store.create(pageviews)
        found = files_of(lambda: store.run(pageviews.add("/home")))
    assert len(found) <= 10, shown(found)


@pytest.mark.parametrize(("server", "most"), [("postgresql", 11), ("mariadb", 12)])
def test_a_push_on_a_server(server: str, most: int) -> None:
    with servers.own_database(server) as url, roost.Store(url) as store:
        store.create(visits)
        found = files_of(lambda: store.run(visits.push(Visit(7, 8))))
    assert len(found) <= most, shown(found)


def test_a_lookup_by_handlersocket(tmp_path: Path) -> None:
    program = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
        "connection.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)');"
        "connection.execute('INSERT INTO t VALUES (7, ?)', 'x'); connection.commit()"
    )
    subprocess.run([sys.executable, "-c", program, f"{tmp_path}/app.db"], check=True)

    async def look_up() -> Files:
        server = Server(Settings(url=f"sqlite:///{tmp_path}/app.db"), "read", {"handlersocket": Counters()})
        listening = await asyncio.get_running_loop().create_server(
            lambda: server.protocol("handlersocket"), "127.0.0.1"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.sockets[0].getsockname()[1])

        async def ask(line: bytes) -> bytes:
            writer.write(line + b"\n")
            return await reader.readline()

        assert await ask(b"P\t1\tapp\tt\tPRIMARY\tid,name") == b"0\t1\n"
        for _ in range(PREPARED):
            await ask(b"1\t=\t1\t7")
        with watched() as found:
            assert await ask(b"1\t=\t1\t7") == b"0\t2\t7\tx\n"
        writer.close()
        listening.close()
        await server.close()
        return found

    found = asyncio.run(look_up())
    assert len(found) <= 17, shown(found)
