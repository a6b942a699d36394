"""A database with one structure of each kind, and a client of its console."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

import roost
from roost.console.app import Options, Pages
from tests import servers
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

BASE = "http://127.0.0.1:8808"


@dataclass(frozen=True)
class Score:
    board: str
    player: int
    points: int


@dataclass(frozen=True)
class Page:
    site: int
    path: str
    title: str


large = roost.Ring("large", Visit, per="uid", keep=1000, keep_for=86_400)
pages = roost.Ring("pages", Page, per=("site", "path"), keep=3)
best = roost.Capped("best", Score, per="board", keep=3, unique="player", order="points", on_duplicate="best")
views = roost.Counter("views", window="hour", keep=72)
online = roost.Set("online", member=int, keep=50, keep_for=86_400)  # whatever else the machine does meanwhile
cached = roost.Cache("cached", value=str)
small = roost.Cache("small", max_items=10)
logins = roost.RateLimit("logins", limit=5, within=86_400)
jobs = roost.Lease("jobs")
EVERY = (visits, large, pages, best, baskets, pageviews, views, likes, online, cached, small, logins, jobs)

# The key that `fill` writes in each structure, as a link has it.
KEYS = {
    "visits": "5", "large": "5", "pages": '[7, "/a,b"]', "best": "go", "baskets": "42", "pageviews": "/home",
    "views": "/home", "likes": "7", "online": "chat", "cached": "/1", "small": "k1", "logins": "ada", "jobs": "daily",
}  # fmt: skip


def fill(store: roost.Store) -> None:
    """Create every structure, and write something to each."""
    store.create(*EVERY)
    for n in range(8):
        store.run_all(visits.push(Visit(5, 1000 + n)), large.push(Visit(5, n)), pages.push(Page(7, "/a,b", f"t{n}")))
        store.run_all(best.add(Score("go", n, n * 10)), baskets.add(Egg(42, n)), pageviews.add("/home"))
        store.run_all(views.add("/home", n + 1), likes.add(7, f"fan {n}"), online.add("chat", n))
        store.run_all(cached.set(f"/{n}", f"<h1>{n}</h1>", ttl=3_600 * (n + 1)), small.set(f"k{n}", b"value"))
    store.run(logins.take("ada", 2))
    store.run(jobs.acquire("daily", "worker 1", ttl=86_400))


class Browser:
    """Asks a console without a network; cookies are kept as a browser does."""

    def __init__(self, store: roost.Store, base: str = BASE, **options: Any) -> None:
        self.app = Pages(store, Options(**{"seconds": 60.0, **options})).guard  # the machine may do much else
        self.base = base
        self.cookies = httpx.Cookies()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)

    def post(self, path: str, /, data: dict[str, str], **more: Any) -> httpx.Response:
        return self.ask("POST", path, data=data, **more)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=self.base, cookies=self.cookies) as client:
                answer = await client.request(method, path, **more)
                self.cookies = client.cookies
                return answer

        return asyncio.run(asked())

    def text(self, path: str) -> str:
        """The text of a page, which is to be there, without its tags."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        assert 'class="wrong"' not in answer.text, answer.text
        without = re.sub(r"<(script|title)[^>]*>.*?</\1>", " ", answer.text, flags=re.DOTALL)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", without)).split())

    def csrf(self, path: str = "/check") -> str:
        (found,) = {*re.findall(r'name="csrf" value="([^"]+)"', self.get(path).text)}
        return str(found)


@pytest.fixture(scope="module", params=["sqlite", *servers.SERVERS])
def filled_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A filled database on each engine, for the tests of a module, which only read."""
    file = f"{tmp_path_factory.mktemp('console')}/console.db"
    with servers.own_database(request.param, file) as url, roost.Store(url) as store:
        fill(store)
        yield url
        assert store.check() == []


@pytest.fixture
def store(filled_url: str) -> Iterator[roost.Store]:
    with roost.Store(filled_url, timeout=20) as found:
        yield found


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[roost.Store]:
    """A filled file, for tests that write, or are about no database."""
    with roost.Store(f"sqlite:///{tmp_path}/own.db") as found:
        fill(found)
        yield found


@pytest.fixture
def make_database(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Make a database of the test's own, by the name of its engine."""
    with ExitStack() as made:
        yield lambda name: made.enter_context(servers.own_database(name, f"{tmp_path}/console.db"))
