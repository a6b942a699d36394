"""/metrics and /healthz: what the workers counted, also those who died, and whether all answer."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sqlite3
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.campaigns.processes import until
from tests.server.conftest import Serve
from tests.server.serving import Serving, connected, serving

PLACES = ("--workers", "2", "--read", "127.0.0.1:0", "--write", "127.0.0.1:0", "--http", "127.0.0.1:0")


def get(served: Serving, path: str) -> tuple[int, str]:
    """Return the status and the body."""
    try:
        with urllib.request.urlopen(f"http://{served.addresses['http'][0]}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics(served: Serving) -> dict[tuple[str, str], float]:
    """Return each sample's sum over the workers of a role; the buckets apart."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(get(served, "/metrics")[1]):
        for sample in family.samples:
            key = (sample.name + sample.labels.get("le", ""), sample.labels["role"])
            found[key] = found.get(key, 0) + sample.value
    return found


def test_what_was_counted_is_told_and_survives_a_killed_worker(serve: Serve) -> None:
    served = serve(*PLACES, listeners=3)
    with served.connect() as reader, served.connect("write") as writer:
        assert len(reader.ask("a", "b", "c")) == 3
        assert writer.ask("a") == ["0\t1"]
        found = metrics(served)
        assert found["roost_requests_total", "read"] == 3
        assert found["roost_requests_total", "write"] == 1
        assert found["roost_open_connections", "read"] == found["roost_connections_total", "read"] == 1
        assert found["roost_worker_ready", "read"] == 2
        assert found["roost_batch_seconds_count", "write"] == 1
        assert found["roost_batch_seconds_sum", "write"] == pytest.approx(0.0002)
        assert found["roost_batch_seconds_bucket0.0001", "write"] == 0
        assert found["roost_batch_seconds_bucket0.00025", "write"] == 1
        assert found["roost_batch_seconds_bucket+Inf", "write"] == 1
        os.kill(served.pids("write")[0], signal.SIGKILL)
        served.logged("another takes its place")
        until(lambda: get(served, "/healthz")[0] == 200, "the next writer")
        found = metrics(served)
        assert found["roost_requests_total", "write"] == 1
        assert found["roost_open_connections", "write"] == 0
        assert found["roost_worker_restarts_total", "write"] == 1
        assert found["roost_worker_restarts_total", "read"] == 0
    with served.connect("write") as writer:
        assert writer.ask("a") == ["0\t1"]
        assert metrics(served)["roost_requests_total", "write"] == 2


def test_a_wrong_secret_is_counted_and_logged_with_where_it_came_from(tmp_path: Path) -> None:
    database = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    secret = ("--read-secret", "geheim", "--auth-delay", "0")
    places = ("--write", "none", "--read", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with (
        serving(tmp_path, f"sqlite:///{database}", *secret, *places, module="roost.cli", listeners=2) as served,
        served.connect() as client,
    ):
        assert client.ask("A\t1\tgeheim") == ["0\t1"]
        assert "secret" not in served.log
        assert client.ask("A\t1\tguess") == ["3\t1\tunauth"]
        served.logged(r"WARNING roost read \d\[\d+\] a wrong secret from 127\.0\.0\.1\n")
        assert "guess" not in served.log
        assert metrics(served)["roost_request_errors_total", "read"] == 1
        assert metrics(served)["roost_requests_total", "read"] == 2
        sent = len("0\t1\n3\t1\tunauth\n")
        until(lambda: metrics(served)["roost_sent_bytes_total", "read"] == sent, "the bytes of both answers")


def test_health_is_that_of_all_workers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(*PLACES, listeners=3, env={"ROOST_TEST_PONG": "0.5"})
    assert get(served, "/healthz") == (200, "ok\n")
    pid = served.pids("read")[1]
    os.kill(pid, signal.SIGSTOP)
    assert get(served, "/healthz") == (503, "read worker 2 does not answer\n")
    os.kill(pid, signal.SIGCONT)
    until(lambda: get(served, "/healthz")[0] == 200, "the worker answers again")
    assert get(served, "/elsewhere")[0] == 404
    assert get(served, "/")[0] == 404


def test_f133_connections_are_few_and_short(serve: Serve) -> None:
    served = serve(*PLACES, listeners=3)
    address = served.addresses["http"][0]
    files = Path(f"/proc/{served.process.pid}/fd")
    before = len(list(files.iterdir()))
    slow: list[socket.socket] = []

    def refused() -> bool:  # a slow machine closes the first before the last have come, so more come each time
        slow.extend(connected(address) for _ in range(50))
        return get_or_none(served) is None

    until(refused, "connections beyond the limit are closed")
    assert len(list(files.iterdir())) < before + 50
    os.kill(served.pids("read")[0], signal.SIGKILL)  # and replaced all the same
    served.logged("another takes its place")
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.5):
            for each in slow:
                with contextlib.suppress(OSError):
                    each.send(b"G")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        until(lambda: get_or_none(served) == (200, "ok\n"), "slow connections are closed")
    finally:
        ended.set()
        dripping.join()
        for each in slow:
            each.close()


def get_or_none(served: Serving) -> tuple[int, str] | None:
    """Return the status and the body of /healthz; None if the connection is closed without an answer."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return get(served, "/healthz")
    return None


def test_f133_what_is_no_request_is_closed_and_who_says_nothing_is_in_nobodys_way(serve: Serve) -> None:
    served = serve(*PLACES, listeners=3)
    silent = [connected(served.addresses["http"][0]) for _ in range(10)]
    assert get(served, "/healthz") == (200, "ok\n")
    for each in silent:
        each.close()
    with contextlib.closing(connected(served.addresses["http"][0])) as broken:
        broken.sendall(b"\0\n\n")
        assert broken.recv(1000).startswith(b"HTTP/1.0 400") or not broken.recv(1)
    long, strange = b"X: " + b"x" * 9000, b"Accept: text/plain;version=x"
    heads = [b"GET /metrics HTTP/1.1\r\n" + each + b"\r\n\r\n" for each in (long, strange)]
    for sent in (b"\r\n\r\n", *heads, b"x" * 20_000, b"GET\n\n"):
        with contextlib.closing(connected(served.addresses["http"][0])) as client, contextlib.suppress(ConnectionError):
            client.sendall(sent)
            assert client.recv(1000) == b""
    assert get(served, "/metrics?x=y")[0] == 200
    with contextlib.closing(connected(served.addresses["http"][0])) as client:
        client.sendall(b"GET /")
        assert get(served, "/healthz")[0] == 200
        assert served.stop() == 0
    assert "Traceback" not in served.log, served.log


def test_a_taken_port_is_told(serve: Serve) -> None:
    served = serve(*PLACES, listeners=3)
    taken = served.addresses["http"][0]
    again = serve(*PLACES[:-1], taken, listeners=0)
    assert again.process.wait() == 1
    assert f"error: cannot listen at {taken}: Address already in use" in again.log
