"""The programs of the pages on libraries, in several processes: nobody is allowed more than the limit."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import roost
import roost.contrib.dogpile
from tests.campaigns import library_suites
from tests.campaigns.processes import at_once
from tests.contrib.applications import DOCS, application, code_of, codes

PAGES = ["limits", "flask-session", "celery", "dogpile", "aiocache", "starsessions", "requests-cache", "diskcache"]
SECTIONS = ["Install", "The line", "What differs", "What it costs"]


@pytest.mark.spread
def test_processes_share_the_limit(any_url: str) -> None:
    found = at_once(3, lambda _: codes(any_url, 25))
    for answers in zip(*found, strict=True):  # of FastAPI, of Flask
        assert Counter(code for each in answers for code in each) == {200: 20, 429: 55}


@pytest.mark.spread
def test_a_session_of_flask_is_everywhere(any_url: str) -> None:
    first, second = (application(any_url, "flask-session") for _ in "ab")
    clients = [each["app"].test_client(use_cookies=False) for each in (first, second)]
    answer = clients[0].get("/visits")
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    assert (answer.json, clients[1].get("/visits", headers={"Cookie": cookie}).json) == ({"visits": 1}, {"visits": 2})
    for each in (first, second):
        each["store"].close()


@pytest.mark.parametrize("database", ["sqlite", "mysql"])
def test_workers_of_celery_in_processes_store_results(any_url: str, tmp_path: Path) -> None:
    setting = "tasks.conf.update(broker_transport_options={'data_folder_in': 'q', 'data_folder_out': 'q'})"
    loading = "tasks.loader.override_backends = {'roost': 'roost.contrib.celery:RoostBackend'}"
    (tmp_path / "q").mkdir()
    (tmp_path / "tasks.py").write_text(f"{code_of('celery')}\n{setting}\n{loading}\n")
    (tmp_path / "ask.py").write_text(
        "from tasks import add\n"
        "results = [add.delay(n, n) for n in range(40)]\n"
        "assert [each.get(timeout=120) for each in results] == [2 * n for n in range(40)]\n"
    )
    environment = {
        **os.environ,
        "DATABASE_URL": any_url,
        "BROKER_URL": "filesystem://",
        "PYTHONPATH": f"{Path(roost.__file__).parents[1]}",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    run: Any = {"cwd": tmp_path, "env": environment, "text": True, **pipes}
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency=2", "--without-mingle"]
    with subprocess.Popen([*command, "--without-gossip", "--without-heartbeat"], **run) as worker:
        try:
            asked = subprocess.run([sys.executable, "ask.py"], timeout=180, **run)
        finally:
            worker.terminate()
            told = worker.communicate()[0]
    assert not asked.returncode, asked.stdout + told
    with roost.Store(any_url) as store:
        assert store.check() == []


@pytest.mark.parametrize("page", PAGES)
def test_each_page_says_what_to_install_and_to_change_what_differs_and_what_it_costs(page: str) -> None:
    heads = re.findall("^## (.*)", (DOCS / f"{page}.md").read_text(), re.MULTILINE)
    assert [head.removesuffix("s to change").removesuffix(" to change") for head in heads] == SECTIONS
    assert f"]({page}.md)" in (DOCS / "doors.md").read_text()


@pytest.mark.spread
def test_the_other_pages_run(any_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    application(any_url, "diskcache")
    assert (tmp_path / "thumbnails/cache.db").exists()
    region = application(any_url, "dogpile")
    assert (region["summary"](7), region["summary"](7)) == ({"user": 7}, {"user": 7})
    region["region"].backend.opened.store.close()
    http = application(any_url, "requests-cache")["http"]
    assert len(http.cache.responses) == 0
    http.close()

    async def main() -> None:
        found = application(any_url, "aiocache")
        await found["pages"].set("/home", "a page")
        assert await found["pages"].get("/home") == "a page"
        assert [await found["summary"](7), await found["summary"](7)] == [{"user": 7}, {"user": 7}]
        await found["pages"].close()
        await found["summary"].cache.close()
        (sessions,) = [each.kwargs["store"] for each in application(any_url, "starsessions")["site"].user_middleware]
        await sessions.write("a", b"data", 60, 60)
        assert await sessions.read("a", 60) == b"data"
        await sessions._opened.close()

    asyncio.run(main())


@pytest.mark.parametrize("library", library_suites.SUITES)
def test_the_librarys_own_tests_pass(library: str, tmp_path: Path) -> None:
    # Those that wait, and other databases, are left to the campaign.
    assert library_suites.passes(library, "sqlite", tmp_path, quick=True)
