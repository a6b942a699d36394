"""The console of `roost serve`: a process of its own that is kept, and ends with the server."""

from __future__ import annotations

import http.cookiejar
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import roost
from tests.campaigns.processes import until
from tests.server.conftest import Serve
from tests.server.serving import Serving
from tests.suite.shapes import Visit, visits

PLACES = ("--workers", "1", "--read", "127.0.0.1:0", "--write", "none", "--console")


def opener() -> Callable[[str], tuple[int, str]]:
    """A browser: it keeps cookies."""
    kept = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def get(url: str) -> tuple[int, str]:
        try:
            with kept.open(url, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    return get


def console_pid(served: Serving) -> int:
    (pid,) = [pid for pid in served.children() if b"console" in command_of(pid)]
    return pid


def command_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_the_console_is_served_and_another_takes_its_place(serve: Serve, tmp_path: Path) -> None:
    with roost.Store(f"sqlite:///{tmp_path}/app.db") as store:
        store.create(visits)
        store.run(visits.push(Visit(5, 7)))
    served = serve(*PLACES, "0.0.0.0:0", "--console-secret", "geheim", listeners=2)
    link = served.addresses["console"][0].replace(
        "127.0.0.1", "127.0.0.2"
    )  # it listens at every address, and goes on so
    base, _, token = link.partition("?token=")
    assert token == "geheim"
    get = opener()
    assert get(base)[0] == 403
    assert get(link)[0] == 200
    status, page = get(base)
    assert status == 200
    assert "visits" in page
    assert "hidden" in get(f"{base}structure?name=visits&key=5")[1]
    first = console_pid(served)
    os.kill(first, signal.SIGKILL)
    served.logged("the console ended")
    until(lambda: get(link)[0] == 200, "the next console, by the same link")
    assert console_pid(served) != first
    assert served.stop() == 0
    assert get(link)[0] == 0


def test_the_console_ends_when_the_server_is_killed(serve: Serve) -> None:
    served = serve(*PLACES, "127.0.0.1:0", listeners=2)
    token = served.addresses["console"][0].partition("?token=")[2]
    assert len(token) >= 40
    pid = console_pid(served)
    assert token.encode() not in command_of(pid)
    served.stop(signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}/exe").exists(), "the end of the console")


def test_a_second_signal_ends_a_console_that_does_not_leave(serve: Serve) -> None:
    served = serve(*PLACES, "127.0.0.1:0", listeners=2)
    pid = console_pid(served)
    os.kill(pid, signal.SIGSTOP)
    served.send(signal.SIGTERM)
    served.logged("stopping")
    assert served.stop() == 1
    served.logged("the console: told twice to leave, killed")
    assert not Path(f"/proc/{pid}").exists()
