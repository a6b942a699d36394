"""The page on rate limits: its applications run, and answer 429 when it is time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import roost
from tests.contrib.frameworks_test import page
from tests.docs_test import ROOT, blocks

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
