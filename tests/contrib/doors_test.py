"""The applications of the page on doors, in several processes: nobody is allowed more than the limit."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import roost
import roost.contrib.dogpile
from tests import servers
from tests.campaigns import library_suites
from tests.contrib.applications import CODE, application, codes

spawn = multiprocessing.get_context("spawn")


def test_processes_share_the_limit(any_url: str) -> None:
    with spawn.Pool(3) as pool:
        found = pool.starmap(codes, [(any_url, 25)] * 3, chunksize=1)
    for answers in zip(*found, strict=True):  # of FastAPI, of Flask
        assert Counter(code for each in answers for code in each) == {200: 20, 429: 55}


def test_a_session_of_flask_is_everywhere(any_url: str) -> None:
    first, second = (application(any_url, "app = ") for _ in "ab")
    clients = [each["app"].test_client(use_cookies=False) for each in (first, second)]
    answer = clients[0].get("/visits")
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    assert (answer.json, clients[1].get("/visits", headers={"Cookie": cookie}).json) == ({"visits": 1}, {"visits": 2})
    for each in (first, second):
        each["store"].close()
        each["flask_limiter"].limiter.storage.store.close()
        each["limiter"].limiter.storage.store.close()


@pytest.mark.parametrize("database", ["sqlite", "mysql"])
def test_workers_of_celery_in_processes_store_results(any_url: str, tmp_path: Path) -> None:
    setting = "tasks.conf.update(broker_transport_options={'data_folder_in': 'q', 'data_folder_out': 'q'})"
    loading = "tasks.loader.override_backends = {'roost': 'roost.contrib.celery:RoostBackend'}"
    code = next(each for each in CODE if "tasks = Celery" in each)
    (tmp_path / "q").mkdir()
    (tmp_path / "tasks.py").write_text(f"import os\nSTORAGE = 'roost+{any_url}'\n{code}\n{setting}\n{loading}\n")
    (tmp_path / "ask.py").write_text(
        "from tasks import add\n"
        "results = [add.delay(n, n) for n in range(40)]\n"
        "assert [each.get(timeout=120) for each in results] == [2 * n for n in range(40)]\n"
    )
    environment = {**os.environ, "BROKER_URL": "filesystem://", "PYTHONPATH": f"{Path(roost.__file__).parents[1]}"}
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


def test_the_other_blocks_of_the_page_run(any_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = application(any_url, "region = ", "pages = ", "site = ", "http = ", "LocalCache(")
    assert (found["summary"](7), found["summary"](7)) == ({"user": 7}, {"user": 7})

    async def main() -> None:
        await found["pages"].set("/home", "a page")
        assert await found["pages"].get("/home") == "a page"
        await found["pages"].close()

    asyncio.run(main())
    assert len(found["http"].cache.responses) == 0
    assert (tmp_path / "thumbnails/cache.db").exists()
    found["http"].close()
    found["region"].backend.opened.store.close()
    found["limiter"].limiter.storage.store.close()


@pytest.mark.parametrize("library", library_suites.SUITES)
def test_the_librarys_own_tests_pass(library: str, tmp_path: Path) -> None:
    # Those that wait, and other databases, are left to the campaign.
    try:
        assert library_suites.passes(library, "sqlite", tmp_path, quick=True)
    except servers.NotHere as error:
        servers.not_run(error)
