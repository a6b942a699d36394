"""The applications on the pages about FastAPI, Flask and rate limits, as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy

import roost
from roost.structures.views.postgresql import ROOM
from tests.campaigns.foreign import held
from tests.docs_test import ROOT, blocks

BLOCKING = {"sqlite": "pysqlite", "mysql": "pymysql", "postgresql": "psycopg"}
DRIVERS = {"sqlite": "aiosqlite", "mysql": "asyncmy", "postgresql": "asyncpg"}


def with_driver(url: str, drivers: dict[str, str]) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{drivers[scheme]}://{rest}"


def page(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all code of a page as one module, and return its names."""
    monkeypatch.setenv("DATABASE_URL", url)
    names: dict[str, Any] = {"__name__": name}
    exec(compile("\n".join(blocks(ROOT / "docs" / name, "python")), name, "exec", dont_inherit=True), names)
    return names


def executed(url: str, *statements: str) -> None:
    engine = sqlalchemy.create_engine(with_driver(url, BLOCKING))
    with engine.begin() as connection:
        for sql in statements:
            connection.execute(sqlalchemy.text(sql))
    engine.dispose()


def make_orders(url: str) -> None:
    executed(url, "CREATE TABLE orders (id INT PRIMARY KEY)")


def fill(url: str, key: str) -> None:
    """Put as much into each slot of a counter's key as 64 bits can hold."""
    numbers = ROOM if url.startswith("postgresql") else 1
    rows = [f"('{key}', {slot * numbers}, {2**63 - 1})" for slot in range(16)]
    executed(url, f"INSERT INTO roost_pageviews_rows VALUES {', '.join(rows)}")


def asked(names: dict[str, Any], work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    """Use FastAPI's application by a client, from its lifespan's beginning to its end."""

    async def main() -> None:
        app = names["app"]
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://a") as client,
        ):
            await work(client)
            assert await app.state.store.check() == []
        await names["engine"].dispose()

    asyncio.run(main())


def test_f64_the_application_on_the_page_of_fastapi(any_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(any_url)
    names = page("fastapi.md", with_driver(any_url, DRIVERS), monkeypatch)

    async def work(client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(*[client.post("/profiles/5/views", params={"visitor": n}) for n in range(1, 21)])
        assert {answer.status_code for answer in answers} == {200}
        assert max(answer.json()["views"] for answer in answers) == 20
        latest = (await client.get("/profiles/5/visitors")).json()
        assert len(latest) == 12
        assert latest[0].keys() == {"uid", "visitor"}
        store = names["app"].state.store
        assert (await client.post("/orders/7")).json() == {"order": 7}
        assert await store.run(names["pageviews"].total("/thanks")) == 1
        assert (await client.post("/orders/7")).status_code == 500  # the id is taken: rolled back with the view
        assert await store.run(names["pageviews"].total("/thanks")) == 1
        fill(any_url, "/profiles/6")
        assert (await client.post("/profiles/6/views", params={"visitor": 1})).status_code == 409

    asked(names, work)


def test_f64_what_is_busy_is_answered_503_and_a_cancelled_request_takes_nothing_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(f"sqlite:///{tmp_path}/app.db")
    names = page("fastapi.md", f"sqlite+aiosqlite:///{tmp_path}/app.db", monkeypatch)

    async def work(client: httpx.AsyncClient) -> None:
        def view() -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(client.post("/profiles/5/views", params={"visitor": 1}))

        store = names["app"].state.store
        with held(tmp_path / "app.db") as holder:
            first, second = view(), view()
            while not store.stats().waits:
                await asyncio.sleep(0.001)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            holder.release()
            assert (await second).status_code == 200
        assert await store.run(names["pageviews"].total("/profiles/5")) in (1, 2)
        short = roost.AsyncStore(f"sqlite:///{tmp_path}/app.db", timeout=0.05)
        names["app"].state.store = short
        with held(tmp_path / "app.db"):
            answer = await view()
        await short.close()
        names["app"].state.store = store
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")

    asked(names, work)


def test_f64_the_application_on_the_page_of_flask(any_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(any_url)
    names = page("flask.md", with_driver(any_url, BLOCKING), monkeypatch)
    app, store, pageviews = names["app"], names["store"], names["pageviews"]
    ran = app.test_cli_runner().invoke(args=["create-structures"])
    assert (ran.exit_code, ran.output) == (0, "")
    client = app.test_client()
    for n in range(20):
        assert client.post(f"/profiles/5/views?visitor={n}").json == {"views": n + 1}
    assert client.post("/profiles/5/views").status_code == 400
    assert json.loads(client.get("/profiles/5/visitors").data)[0] == {"uid": 5, "visitor": 19}
    assert client.post("/orders/7").json == {"order": 7}
    assert client.post("/orders/7").status_code == 500
    assert store.run(pageviews.total("/thanks")) == 1
    fill(any_url, "/profiles/6")
    assert client.post("/profiles/6/views?visitor=1").status_code == 409
    assert store.check() == []
    names["engine"].dispose()
    store.close()


def test_the_applications_on_the_pages_are_typed(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    modules = [tmp_path / "of_fastapi.py", tmp_path / "of_flask.py"]
    for module in modules:
        module.write_text("\n".join(blocks(ROOT / f"docs/{module.stem.removeprefix('of_')}.md", "python")))
    assert pytestconfig.cache is not None
    libraries = pytestconfig.cache.mkdir("mypy")  # what mypy makes of them takes most of the time
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={libraries}", *modules],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": f"{ROOT / 'src'}"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.stdout == "Success: no issues found in 2 source files\n", ran.stdout + ran.stderr


def test_f64_what_is_busy_is_answered_503_by_flask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(f"sqlite:///{tmp_path}/app.db")
    names = page("flask.md", f"sqlite:///{tmp_path}/app.db", monkeypatch)
    names["store"].create(names["pageviews"], names["visitors"])
    names["store"].close()
    with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with roost.Store(f"sqlite:///{tmp_path}/app.db", timeout=0.05) as short:
            names["store"] = short
            answer = names["app"].test_client().post("/profiles/5/views?visitor=1")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    names["engine"].dispose()


# --- the page on rate limits --------------------------------------------------------------------------------------

DJANGO = """
import django
from django.conf import settings
from django.http import HttpResponse
from django.test import RequestFactory

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.db"}})
django.setup()
ask = RateLimitMiddleware(lambda request: HttpResponse("ok"))
answers = [ask(RequestFactory().get("/", REMOTE_ADDR="10.0.0.7")) for _ in range(21)]
print([answer.status_code for answer in answers], answers[-1].headers["Retry-After"])
"""


def test_the_application_on_the_page_for_flask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = page("rate-limits.md", f"sqlite:///{tmp_path}/app.db", monkeypatch)
    app, store = names["app"], names["store"]
    assert app.test_cli_runner().invoke(args=["create-structures"]).exit_code == 0
    client = app.test_client()
    found = [client.post("/login/ada").json["detail"] for _ in range(5)]
    assert found == [f"wrong; {n} left" for n in (4, 3, 2, 1, 0)]
    refused = client.post("/login/ada", data={"password": "correct horse"})
    assert (refused.status_code, refused.json["detail"]) == (429, "try again later")
    assert 170 < int(refused.headers["Retry-After"]) <= 181
    assert client.post("/login/bob", data={"password": "correct horse"}).json["detail"] == "welcome"
    codes = [client.post("/login/cy").status_code for _ in range(20)]
    assert codes[:5] == [403] * 5
    assert codes[-1] == 429
    assert client.get("/").headers["Retry-After"] in ("1", "2", "3", "4")
    assert store.check() == []
    store.close()


def test_the_application_on_the_page_for_fastapi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = page("rate-limits.md", f"sqlite:///{tmp_path}/app.db", monkeypatch)

    async def main() -> None:
        api = names["api"]
        transport = httpx.ASGITransport(api, client=("10.0.0.7", 1))
        async with (
            api.router.lifespan_context(api),
            httpx.AsyncClient(transport=transport, base_url="http://a") as client,
        ):
            answers = await asyncio.gather(*[client.get("/search") for _ in range(7)])
            assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 3
            assert {answer.headers.get("Retry-After") for answer in answers} <= {None, "14", "15", "16"}

    asyncio.run(main())


def test_the_middleware_on_the_page_for_django(tmp_path: Path) -> None:
    with roost.Store(f"sqlite:///{tmp_path}/app.db") as store:
        store.create(roost.RateLimit("requests", limit=20, within=60))
    found = blocks(ROOT / "docs/rate-limits.md", "python")
    program = "\n".join([found[0], found[-1], DJANGO])
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    codes = [200] * 20 + [429]
    assert ran.stdout.splitlines()[0].rpartition(" ")[0] == f"{codes}"
